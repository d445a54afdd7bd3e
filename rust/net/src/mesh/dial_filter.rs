//! Which addresses are dialled of those that strangers give.
//!
//! Addresses that anybody could reach are dialled. Those of this machine, of its local network and of a private one are
//! dialled once a peer was connected from there: or a stranger's answer would have a host connect to whatever listens
//! behind its owner's firewall. Where a name leads shows when it is resolved: what comes of one that the caller did not
//! give is checked before it is dialled.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libp2p::Multiaddr;
use libp2p::core::Transport;
use libp2p::core::transport::{DialOpts, TransportError};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::{ConnectionDenied, ConnectionId, NetworkBehaviour, THandler};

use crate::error::lock;
use crate::mesh::adapters::{BehaviourAdapter, Dialled, TransportAdapter};
use crate::mesh::rate_limiter::RateLimiter;
use crate::mesh::scope::Scope;

/// Private networks that peers were connected from which are remembered.
const MAX_SCOPES: usize = 256;

/// Addresses that are tried of one peer, and bytes of the longest.
const MAX_TRIED: usize = 16;
const LONGEST: usize = 256;

/// Addresses that are tried because a behaviour dials by itself: so many at once, which come back within this time. Of
/// what a stranger answers to Kademlia, one discovery would try hundreds, wherever they lead.
const MAX_DIALLED: usize = 256;
const DIALLED_PERIOD: Duration = Duration::from_secs(60);

/// What addresses that strangers give may lead to, beside what anybody can reach.
#[derive(Debug, Default)]
pub struct DialFilter {
    /// From where peers were connected.
    scopes: Mutex<HashSet<Scope>>,
    /// Names that the caller gave.
    names: Mutex<HashSet<String>>,
}

impl DialFilter {
    /// Record the address of a connection. A name proves nothing: `localhost` may be the end of a tunnel.
    pub fn record_connection(&self, address: &Multiaddr) {
        if name(address).is_some() {
            return;
        }
        let (scope, mut scopes) = (Scope::of(address), lock(&self.scopes));
        if scope.is_near() && scopes.len() < MAX_SCOPES {
            scopes.insert(scope);
        }
    }

    /// Trust an address that the caller gave: its name may lead anywhere.
    pub fn trust(&self, address: &Multiaddr) {
        lock(&self.names).extend(name(address));
    }

    fn trusts(&self, name: &str) -> bool {
        lock(&self.names).contains(name)
    }

    fn allows(&self, address: &Multiaddr) -> bool {
        match Scope::of(address) {
            Scope::Global => true,
            Scope::Nowhere => false,
            Scope::Name => !lock(&self.scopes).is_empty(),
            scope => lock(&self.scopes).contains(&scope),
        }
    }
}

/// Return the name in an address, if it begins with one.
fn name(address: &Multiaddr) -> Option<String> {
    match address.iter().next() {
        Some(Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name)) => {
            Some(name.trim_end_matches('.').to_ascii_lowercase())
        }
        _ => None,
    }
}

/// Beneath a transport that resolves names which strangers gave: dials what they may lead to.
#[derive(Debug)]
pub struct ScopeFilter(pub Arc<DialFilter>);

impl<T: Transport<Error = io::Error>> TransportAdapter<T> for ScopeFilter {
    type Upgrade = T::ListenerUpgrade;

    fn dial(&mut self, inner: &mut T, address: Multiaddr, options: DialOpts) -> Dialled<T> {
        if self.0.allows(&address) {
            return inner.dial(address, options);
        }
        let reason = format!("a name that a peer gave leads to {address}, and no peer was connected from there yet");
        Err(TransportError::Other(io::Error::other(reason)))
    }

    fn accept(&mut self, upgrade: T::ListenerUpgrade, _: &Multiaddr) -> T::ListenerUpgrade {
        upgrade
    }
}

/// Over a transport that resolves the names which the caller gave: dials all others by `strange`.
#[derive(Debug)]
pub struct NameFilter<S> {
    /// Resolves names of strangers.
    pub strange: S,
    /// Knows the caller's names.
    pub filter: Arc<DialFilter>,
}

impl<T, S> TransportAdapter<T> for NameFilter<S>
where
    T: Transport,
    S: Transport<Output = T::Output, Error = T::Error, Dial = T::Dial>,
{
    type Upgrade = T::ListenerUpgrade;

    fn dial(&mut self, inner: &mut T, address: Multiaddr, options: DialOpts) -> Dialled<T> {
        if name(&address).is_none_or(|name| self.filter.trusts(&name)) {
            inner.dial(address, options)
        } else {
            self.strange.dial(address, options)
        }
    }

    fn accept(&mut self, upgrade: T::ListenerUpgrade, _: &Multiaddr) -> T::ListenerUpgrade {
        upgrade
    }
}

/// Around a behaviour whose addresses come from strangers: only global addresses are dialled until a peer connects from
/// nearby.
#[derive(Debug)]
pub struct AddressFilter {
    filter: Arc<DialFilter>,
    dialled: RateLimiter,
    /// What the behaviour has just begun to dial.
    dialling: Option<ConnectionId>,
}

impl AddressFilter {
    /// Create one that dialled nothing yet.
    pub fn new(filter: &Arc<DialFilter>) -> Self {
        let dialled = RateLimiter::new(MAX_DIALLED, DIALLED_PERIOD, Instant::now());
        Self { filter: Arc::clone(filter), dialled, dialling: None }
    }
}

impl<B: NetworkBehaviour> BehaviourAdapter<B> for AddressFilter {
    type Handler = THandler<B>;

    fn handler(&mut self, inner: THandler<B>, remote: &Multiaddr) -> THandler<B> {
        self.filter.record_connection(remote);
        inner
    }

    fn select(
        &mut self,
        connection: ConnectionId,
        mut given: Vec<Multiaddr>,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let mut seen = HashSet::new();
        given.retain(|address| address.len() <= LONGEST && self.filter.allows(address) && seen.insert(address.clone()));
        // What was proven comes first, what others say of the peer last.
        given.truncate(MAX_TRIED);
        if self.dialling.take() == Some(connection) {
            let now = Instant::now();
            if self.dialled.remaining(now) < given.len() {
                return Err(ConnectionDenied::new(io::Error::other("too many addresses of strangers were tried")));
            }
            self.dialled.spend(given.len(), now);
        }
        Ok(given)
    }

    fn dials(&mut self, connection: ConnectionId) {
        self.dialling = Some(connection);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, UdpSocket};

    use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
    use libp2p::core::Endpoint;
    use libp2p::core::transport::PortUse;
    use libp2p::dns::tokio::Transport as Dns;
    use libp2p::kad::store::MemoryStore;
    use libp2p::kad::{Behaviour, Config};
    use libp2p::{PeerId, StreamProtocol, tcp};

    use super::*;
    use crate::mesh::adapters::{AdaptedBehaviour, AdaptedTransport};

    fn address(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_near_is_dialled_once_somebody_was_connected_from_there() {
        let (me, peer) = (PeerId::random(), PeerId::random());
        let config = Config::new(StreamProtocol::new("/kad"));
        let kademlia = Behaviour::with_config(me, MemoryStore::new(me), config);
        let mut filtered = AdaptedBehaviour::new(kademlia, AddressFilter::new(&Arc::default()));
        let known =
            ["/ip4/127.0.0.1/tcp/1", "/ip4/10.1.2.3/tcp/2", "/ip4/169.254.169.254/tcp/80", "/ip4/203.0.113.7/tcp/3"];
        for text in known {
            filtered.inner.add_address(&peer, address(text));
        }
        let connection = ConnectionId::new_unchecked(1);
        let dialled = |filtered: &mut AdaptedBehaviour<_, AddressFilter>| {
            let dialled = filtered.handle_pending_outbound_connection(connection, Some(peer), &[], Endpoint::Dialer);
            let port = |address: &Multiaddr| match address.iter().nth(1) {
                Some(Protocol::Tcp(port)) => port,
                _ => 0,
            };
            dialled.unwrap().iter().map(port).collect::<Vec<_>>()
        };
        assert_eq!(dialled(&mut filtered), [3]);
        for (remote, expected) in [
            ("/ip4/198.51.100.1/tcp/9", vec![3]),
            ("/ip4/10.2.0.1/tcp/9", vec![3]),
            ("/ip4/10.1.9.9/tcp/9", vec![2, 3]),
            ("/ip6/::1/tcp/9", vec![1, 2, 3]),
        ] {
            let (local, remote) = (address("/ip4/10.0.0.1/tcp/1"), address(remote));
            drop(
                filtered.handle_established_inbound_connection(connection, PeerId::random(), &local, &remote).unwrap(),
            );
            assert_eq!(dialled(&mut filtered), expected, "{remote}");
        }
    }

    /// Answer every question for an address of version 4 with 127.0.0.1. Return where.
    fn resolver() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                // RFC 1035: the header says it is an answer with one record; then the question, up to its type and
                // class; then the record, whose name is that of the question.
                let end = 12 + buffer[12..length].iter().position(|byte| *byte == 0).unwrap() + 5;
                let head = [&buffer[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
                let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1];
                socket.send_to(&[&head, &buffer[12..end], &record].concat(), from).unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn names_that_strangers_give_lead_to_where_their_addresses_may() {
        let server = resolver();
        let filter = Arc::<DialFilter>::default();
        let tcp = || tcp::tokio::Transport::new(tcp::Config::default());
        let config = || {
            let mut connection = ConnectionConfig::udp();
            connection.port = server.port();
            ResolverConfig::from_parts(None, vec![], vec![NameServerConfig::new(server.ip(), true, vec![connection])])
        };
        let trusted = Dns::custom(tcp(), config(), ResolverOpts::default());
        let near = AdaptedTransport::new(tcp(), ScopeFilter(Arc::clone(&filter)));
        let strange = Dns::custom(near, config(), ResolverOpts::default());
        let mut transport = AdaptedTransport::new(trusted, NameFilter { strange, filter: Arc::clone(&filter) });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut dialled = async |name: &str| {
            let options = DialOpts { role: Endpoint::Dialer, port_use: PortUse::New };
            let dialled = transport.dial(address(&format!("/dns4/{name}/tcp/{port}")), options).unwrap().await;
            (dialled.is_ok(), listener.accept().is_ok())
        };
        assert_eq!(dialled("hub.example.org").await, (false, false));
        filter.trust(&address("/dns4/Hub.example.org./tcp/1/ws"));
        assert_eq!(dialled("hub.example.org").await, (true, true));
        assert_eq!(dialled("other.example.org").await, (false, false));
        filter.record_connection(&address("/ip4/10.1.2.3/tcp/1"));
        assert_eq!(dialled("other.example.org").await, (false, false));
        filter.record_connection(&address("/ip4/127.0.0.1/tcp/1"));
        assert_eq!(dialled("other.example.org").await, (true, true));
    }
}
