//! Finding peers, and dialling them: what peers say of themselves goes into Kademlia's table, which discoveries search.

use std::collections::HashSet;
use std::mem::take;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use libp2p::swarm::ConnectionId;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::{Multiaddr, PeerId, identify};

use crate::error::{Cause, Closed};
use crate::limits::Counters;
use crate::mesh::behaviour::QUERY;
use crate::mesh::buckets::{Buckets, MAX_DIALLED};
use crate::mesh::config::reachable;
use crate::mesh::driver::Driver;
use crate::mesh::scope::Scope;
use crate::mesh::streams::bare;

/// Addresses of a peer that are remembered, and bytes of them: a message of Kademlia has 16 KiB and names six peers.
const MAX_ADDRESSES: usize = 16;
const MAX_ADDRESS_BYTES: usize = 1536;

/// Protocols of a peer that are remembered, and characters of what it calls its program.
const MAX_PROTOCOLS: usize = 128;
const MAX_AGENT_LENGTH: usize = 256;

/// Peers that a discovery looks for.
const DISCOVERED_PEERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Queries of Kademlia at a time, beyond which no peers are looked up.
const MAX_LOOKUPS: usize = 4;

/// A connection that is being made on purpose.
#[derive(Debug)]
pub struct Dial {
    /// By the host itself, not because the caller said so.
    pub own: bool,
    /// Whether Kademlia gave the address.
    pub by_id: bool,
    /// The peer that is to answer, if it is known.
    pub peer_id: Option<PeerId>,
}

/// A connection that Kademlia made in a discovery.
#[derive(Debug)]
pub struct DiscoveryConnection {
    pub since: Instant,
    pub peer_id: PeerId,
    pub connection: ConnectionId,
}

impl Driver {
    /// Record what a peer says of itself. Its addresses go into Kademlia's table, if it takes part.
    pub(super) fn identified(&mut self, peer_id: PeerId, info: identify::Info) {
        let Some(peer) = self.shared.peer_table.peer(&peer_id) else { return };
        let (Some(remote), Some(account)) = (peer.remote(), peer.account()) else { return };
        account.was_identified(Instant::now());
        let from = Scope::of(&remote.address);
        let serves = info.protocols.iter().any(|protocol| protocol.as_ref() == self.kademlia);
        let mut protocols: Vec<_> = info.protocols.iter().take(MAX_PROTOCOLS).map(ToString::to_string).collect();
        protocols.sort_unstable();
        protocols.dedup();
        peer.update_status(|status| {
            status.agent = Some(info.agent_version.chars().take(MAX_AGENT_LENGTH).collect());
            status.protocols = protocols;
        });
        let wanted = |address: &&Multiaddr| reachable(address) && from.gives(Scope::of(address));
        let mut bytes = 0;
        let fits = |address: &Multiaddr| {
            bytes += address.len();
            bytes <= MAX_ADDRESS_BYTES
        };
        let listed = info.listen_addrs.iter().filter(wanted).map(bare).take(MAX_ADDRESSES);
        let listed: Vec<_> = listed.take_while(fits).collect();
        if serves && !listed.is_empty() {
            self.update_addresses(&peer_id, listed, remote.dialer.then_some(&remote.address));
        }
    }

    /// Put addresses of a peer into Kademlia's table instead of those that are there, but for the one where it was
    /// reached.
    pub(super) fn update_addresses(&mut self, peer_id: &PeerId, listed: Vec<Multiaddr>, reached: Option<&Multiaddr>) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        let mut old = Vec::new();
        if let Some(bucket) = kademlia.kbucket(*peer_id) {
            let entry = bucket.iter().find(|entry| entry.node.key.preimage() == peer_id);
            old.extend(entry.iter().flat_map(|entry| entry.node.value.iter().map(bare)));
        }
        old.retain(|address| !listed.contains(address) && Some(address) != reached);
        for address in listed {
            kademlia.add_address(peer_id, address);
        }
        // Afterwards: with its last address, the peer would go.
        for address in old {
            kademlia.remove_address(peer_id, &address);
        }
    }

    /// Dial, and look for peers, as far as that is due.
    pub(super) fn discover(&mut self, now: Instant) {
        let peers = self.shared.peer_table.connections();
        let peer_table = Arc::clone(&self.shared.peer_table);
        for (number, address) in self.dialer.bootstrap(now, peers, |peer_id| peer_table.peer(peer_id).is_some()) {
            let options = DialOpts::from(address);
            self.dialer.dialling(number, options.connection_id());
            self.shared.peer_table.trust(options.connection_id());
            self.dial(options);
        }
        let mut buckets = self.buckets(now);
        let pending = self.swarm.network_info().connection_counters().num_pending_outgoing() as usize;
        let outbound =
            peer_table.peers().iter().filter_map(|peer| peer.remote()).filter(|remote| remote.dialer).count();
        // With what is pending, or a slow network would be dialled to pieces.
        for peer_id in buckets.dials(MAX_DIALLED.saturating_sub(outbound + pending), &mut rand::rng()) {
            self.dialer.dialled(now, peer_id);
            self.dial(DialOpts::peer_id(peer_id).condition(PeerCondition::DisconnectedAndNotDialing).build());
        }
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        let idle = kademlia.iter_queries().next().is_none() && kademlia.kbuckets().next().is_some();
        if idle && self.dialer.is_discovery_due(now, buckets.lacks(), buckets.filled()) {
            let first = self.dialer.first_discovery().map(|discovery| buckets.first_target(discovery));
            let target = first.unwrap_or_else(|| buckets.target(&mut rand::rng()));
            kademlia.get_n_closest_peers(target, DISCOVERED_PEERS);
        }
        self.judge_discovered(&mut buckets, now);
    }

    /// Return what the buckets hold now: who is connected, and who is in Kademlia's table.
    pub(super) fn buckets(&mut self, now: Instant) -> Buckets {
        let mut buckets = Buckets::new(self.shared.peer_id);
        let connected: HashSet<_> =
            self.shared.peer_table.peers().iter().filter_map(|peer| Some(peer.remote()?.peer_id)).collect();
        let closing: HashSet<_> = self.closing.values().collect();
        let dialling: HashSet<_> = self
            .dialled
            .values()
            .filter_map(|dial| dial.peer_id)
            .filter(|peer_id| !connected.contains(peer_id))
            .collect();
        connected
            .iter()
            .filter(|peer_id| !closing.contains(peer_id))
            .for_each(|peer_id| buckets.add_connected(*peer_id));
        dialling.iter().for_each(|peer_id| buckets.add_dialling(*peer_id));
        for bucket in self.swarm.behaviour_mut().kademlia.inner.kbuckets() {
            for key in bucket.iter().map(|entry| entry.node.key) {
                let peer_id = key.preimage();
                if !connected.contains(peer_id) && !dialling.contains(peer_id) && self.dialer.may_dial(now, peer_id) {
                    buckets.add_free(*key);
                }
            }
        }
        buckets
    }

    /// Announce peers that a discovery has found to the caller, once it is over, or close the connections to them where
    /// their buckets have enough without them. Of those that the caller knows already, close what is not used.
    pub(super) fn judge_discovered(&mut self, buckets: &mut Buckets, now: Instant) {
        let is_discovering = self.swarm.behaviour_mut().kademlia.inner.iter_queries().next().is_some();
        for visit in take(&mut self.discovered) {
            let Some(peer) = self.shared.peer_table.peer(&visit.peer_id) else { continue };
            let is_over = now.saturating_duration_since(visit.since) > QUERY;
            let waits = if peer.is_announced() { !is_over } else { is_discovering && !is_over };
            if waits {
                self.discovered.push_back(visit);
            } else if peer.streams() > self.idle_streams {
                self.discovered.push_back(DiscoveryConnection { since: now, ..visit });
            } else if buckets.spare(visit.peer_id) {
                self.closing.insert(visit.connection, visit.peer_id);
                self.swarm.close_connection(visit.connection);
            } else {
                peer.announce();
            }
        }
    }

    /// Look a peer up, unless as many are being looked up as may be. Kademlia connects to those that it asks.
    pub(super) fn look_up(&mut self, peer_id: PeerId) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        if kademlia.iter_queries().count() < MAX_LOOKUPS && kademlia.kbuckets().next().is_some() {
            kademlia.get_n_closest_peers(peer_id.to_bytes(), DISCOVERED_PEERS);
        }
    }

    pub(super) fn dial(&mut self, options: DialOpts) {
        let (connection, peer_id) = (options.connection_id(), options.get_peer_id());
        Counters::add(&self.shared.metrics.dials);
        if self.swarm.dial(options).is_ok() {
            self.dialled.insert(connection, Dial { own: true, by_id: false, peer_id });
        } else {
            self.dialer.failed(Instant::now(), connection);
            self.shared.peer_table.unreachable(connection, Closed::new(Cause::Transport, "it was not dialled"));
            Counters::add(&self.shared.metrics.dials_failed);
        }
    }
}
