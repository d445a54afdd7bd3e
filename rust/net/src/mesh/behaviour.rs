//! libp2p's behaviours, combined.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::gossipsub::IdentTopic;
use libp2p::kad::store::{MemoryStore, MemoryStoreConfig};
use libp2p::kad::{self, Mode, QueryInfo, StoreInserts};
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::swarm::{ConnectionDenied, ConnectionId, NetworkBehaviour, THandler};
use libp2p::{Multiaddr, identify, mdns, ping};

use crate::error::Error;
use crate::mesh::adapters::{AdaptedBehaviour, BehaviourAdapter};
use crate::mesh::aliases::Aliases;
use crate::mesh::config::Checked;
use crate::mesh::dial_filter::{AddressFilter, DialFilter};
use crate::mesh::gossip::{Gossip, gossip};
use crate::mesh::peer_table::PeerTable;
use crate::mesh::streams::Streams;

/// What canvas-js's hosts call their protocols together.
const PROTOCOL_VERSION: &str = "canvas/0.1.0";

/// Connections to one peer: both may have dialled, and once more while one is about to be given up.
const MOST_CONNECTIONS: u32 = 4;

/// Outbound connections that are being agreed on. Of inbound ones, `addresses` has the limit.
const MOST_PENDING: u32 = 128;

/// Peers that a query of Kademlia ends at. The usual 20 would connect a small network completely.
const QUERIED: NonZeroUsize = NonZeroUsize::new(6).unwrap();

/// How long a query of Kademlia may take.
pub const QUERY: Duration = Duration::from_secs(20);

/// All behaviours. The order matters: limits are asked first, and streams before those that only observe. None after
/// them refuses a connection.
#[derive(NetworkBehaviour)]
pub struct HostBehaviour {
    limits: connection_limits::Behaviour,
    pub streams: Streams,
    pub gossip: Toggle<Gossip>,
    pub kademlia: AdaptedBehaviour<Kademlia, WithoutBootstrap>,
    identify: AdaptedBehaviour<identify::Behaviour, Aliases>,
    ping: AdaptedBehaviour<ping::Behaviour, Aliases>,
    mdns: Toggle<mdns::tokio::Behaviour>,
}

impl HostBehaviour {
    /// Create the behaviours of a host.
    pub fn new(config: &Checked, peer_table: &Arc<PeerTable>, dial_filter: &Arc<DialFilter>) -> Result<Self, Error> {
        let me = config.key.public().to_peer_id();
        // canvas-js checks signed records by other rules, and drops identify over them: there are none.
        let agent = concat!("gossiplog/", env!("CARGO_PKG_VERSION"));
        let identity = identify::Config::new(PROTOCOL_VERSION.to_owned(), config.key.public())
            .with_agent_version(agent.to_owned())
            .with_cache_size(0);
        let limits = ConnectionLimits::default()
            .with_max_established_per_peer(Some(MOST_CONNECTIONS))
            .with_max_pending_outgoing(Some(MOST_PENDING));
        let gossip = config.gossips.then(|| gossip(&IdentTopic::new(&config.topic), &config.gossip)).transpose()?;
        let failure = |error| Error::system("no peers can be looked for in the local network", error);
        let mdns = config.mdns.then(|| mdns::tokio::Behaviour::new(mdns::Config::default(), me)).transpose();
        Ok(Self {
            limits: connection_limits::Behaviour::new(limits),
            streams: Streams::new(Arc::clone(peer_table), config.protocols.clone()),
            gossip: gossip.into(),
            kademlia: AdaptedBehaviour::new(kademlia(config), WithoutBootstrap(AddressFilter::new(dial_filter))),
            identify: AdaptedBehaviour::new(identify::Behaviour::new(identity), Aliases),
            ping: AdaptedBehaviour::new(ping::Behaviour::new(ping::Config::new()), Aliases),
            mdns: mdns.map_err(failure)?.into(),
        })
    }
}

/// Create Kademlia for finding peers, and nothing else: it stores nothing for anybody.
fn kademlia(config: &Checked) -> Kademlia {
    let me = config.key.public().to_peer_id();
    let nothing = MemoryStoreConfig {
        max_records: 0,
        max_provided_keys: 0,
        max_providers_per_key: 0,
        ..MemoryStoreConfig::default()
    };
    let mut kademlia = kad::Config::new(config.kademlia.clone());
    kademlia
        .set_replication_factor(QUERIED)
        .set_query_timeout(QUERY)
        // What peers want stored is handed out instead, and nobody takes it.
        .set_record_filtering(StoreInserts::FilterBoth)
        // Discoveries do as much: see `dialer`.
        .set_periodic_bootstrap_interval(None);
    let mut kademlia = Kademlia::with_config(me, MemoryStore::with_config(me, nothing), kademlia);
    kademlia.set_mode(Some(Mode::Server));
    kademlia
}

type Kademlia = kad::Behaviour<MemoryStore>;

/// Kademlia without the queries that it begins by itself: while its table is small, it would look up this host and then
/// peers in every bucket whenever a peer comes, and connect to all that it asks. `dialer` says when to look for whom.
pub struct WithoutBootstrap(AddressFilter);

impl BehaviourAdapter<Kademlia> for WithoutBootstrap {
    type Handler = THandler<Kademlia>;

    fn handler(&mut self, inner: Self::Handler, remote: &Multiaddr) -> Self::Handler {
        BehaviourAdapter::<Kademlia>::handler(&mut self.0, inner, remote)
    }

    fn select(&mut self, connection: ConnectionId, given: Vec<Multiaddr>) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        BehaviourAdapter::<Kademlia>::select(&mut self.0, connection, given)
    }

    fn dials(&mut self, connection: ConnectionId) {
        BehaviourAdapter::<Kademlia>::dials(&mut self.0, connection);
    }

    fn before_poll(&mut self, inner: &mut Kademlia) {
        for mut query in inner.iter_queries_mut() {
            if matches!(query.info(), QueryInfo::Bootstrap { .. }) {
                query.finish();
            }
        }
    }
}
