//! The peers of a host by handle, by identity and by connection, and their streams.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use libp2p::PeerId;
use libp2p::swarm::ConnectionId;

use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Event, Handle, Inbox};
use crate::limits::{Counters, Limits};
use crate::mesh::addresses::{Addresses, Place, source};
use crate::mesh::metrics::HostMetrics;
use crate::mesh::peer::{Opening, Peer, PeerConnection, Remote};
use crate::mesh::peer_account::{PeerAccount, PeerAccounts};
use crate::slot::{Slot, StreamTransport};
use crate::sync::Mutex;

/// Denied peers that are kept for the caller.
const MOST_DENIED: usize = 64;

/// Peers that can be blocked at a time.
const MOST_BLOCKED: usize = 65_536;

#[derive(Debug, Default)]
struct State {
    /// Until the caller releases them.
    by_handle: HashMap<Handle, Arc<Peer>>,
    /// Those that are connected.
    peers: HashMap<PeerId, Arc<Peer>>,
    /// Those of them that subscribed to the topic.
    subscribed: HashSet<PeerId>,
    /// Those that the caller dialled and that are not established yet.
    dialled: HashMap<ConnectionId, Arc<Peer>>,
    /// Connections to bootstrap peers that are not established yet.
    trusted: HashSet<ConnectionId>,
    connections: HashMap<ConnectionId, (Arc<Peer>, Option<Place>)>,
    streams: HashMap<Handle, Arc<Slot>>,
    /// Peers that no connections are kept to until the caller unblocks them.
    blocked: HashSet<PeerId>,
    /// Peers that dialled this side and are not allowed or blocked, since the caller last took them.
    denied: Vec<String>,
}

impl State {
    /// Remove a peer that has disconnected.
    fn remove(&mut self, peer_id: &PeerId) {
        self.peers.remove(peer_id);
        self.subscribed.remove(peer_id);
    }
}

/// The peers of a host.
#[derive(Debug)]
pub struct PeerTable {
    inbox: Arc<Inbox>,
    counters: Arc<Counters>,
    limits: Limits,
    accounts: Arc<PeerAccounts>,
    addresses: Arc<Addresses>,
    metrics: Arc<HostMetrics>,
    allowed: Option<HashSet<PeerId>>,
    state: Mutex<State>,
}

impl PeerTable {
    /// Create an empty table.
    pub fn new(
        inbox: &Arc<Inbox>,
        counters: &Arc<Counters>,
        limits: &Limits,
        accounts: &Arc<PeerAccounts>,
        addresses: &Arc<Addresses>,
        metrics: &Arc<HostMetrics>,
        allowed: Option<HashSet<PeerId>>,
    ) -> Self {
        Self {
            inbox: Arc::clone(inbox),
            counters: Arc::clone(counters),
            limits: limits.clone(),
            accounts: Arc::clone(accounts),
            addresses: Arc::clone(addresses),
            metrics: Arc::clone(metrics),
            allowed,
            state: Mutex::default(),
        }
    }

    fn add(&self, state: &mut State) -> Result<Arc<Peer>, Error> {
        let limit = self.limits.connections;
        if state.by_handle.len() >= limit {
            return Err(Error::ConnectionLimit { owner: "host", limit });
        }
        let peer = Arc::new(Peer::new(&self.inbox, &self.counters, &self.limits));
        state.by_handle.insert(peer.handle, Arc::clone(&peer));
        Ok(peer)
    }

    /// Register a dial of the caller; return the handle of the connection.
    pub fn dialled(&self, connection: ConnectionId) -> Result<Handle, Error> {
        let mut state = lock(&self.state);
        let peer = self.add(&mut state)?;
        let handle = peer.handle;
        state.dialled.insert(connection, peer);
        Ok(handle)
    }

    /// Exempt the connection to a bootstrap peer, which is being dialled, from the limit of its address.
    pub fn trust(&self, connection: ConnectionId) {
        lock(&self.state).trusted.insert(connection);
    }

    /// Return whether connections to a peer are kept. An error says why not.
    pub fn check_allowed(&self, peer_id: &PeerId) -> Result<(), Closed> {
        self.check_kept(&lock(&self.state), peer_id)
    }

    fn check_kept(&self, state: &State, peer_id: &PeerId) -> Result<(), Closed> {
        if state.blocked.contains(peer_id) {
            return Err(Closed::new(Cause::Local, format!("this side blocks the peer {peer_id}")));
        }
        if self.allowed.as_ref().is_none_or(|allowed| allowed.contains(peer_id)) {
            return Ok(());
        }
        Err(Closed::new(Cause::Local, format!("the peer {peer_id} is not one of those that this side allows")))
    }

    /// Keep no connections to a peer from now on; return it if it is connected, for its connections to be closed.
    pub fn block(&self, peer_id: PeerId) -> Result<Option<Arc<Peer>>, Error> {
        let mut state = lock(&self.state);
        if state.blocked.len() >= MOST_BLOCKED && !state.blocked.contains(&peer_id) {
            return Err(Error::Invalid(format!("{MOST_BLOCKED} peers are blocked, as many as there may be")));
        }
        state.blocked.insert(peer_id);
        Ok(state.peers.get(&peer_id).cloned())
    }

    /// Keep connections to a peer again. False: it was not blocked.
    pub fn unblock(&self, peer_id: &PeerId) -> bool {
        lock(&self.state).blocked.remove(peer_id)
    }

    /// Return the peers that were denied since the last call: those that dialled this side, and are not allowed or are
    /// blocked.
    pub fn take_denied(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).denied)
    }

    /// Add a connection that is established. Err: why it is refused.
    pub fn connected(&self, connection: ConnectionId, remote: Remote) -> Result<Arc<PeerConnection>, Closed> {
        let mut state = lock(&self.state);
        if let Err(closed) = self.check_kept(&state, &remote.peer_id) {
            if !remote.dialer {
                Counters::add(&self.metrics.refused);
                if state.denied.len() < MOST_DENIED {
                    state.denied.push(remote.peer_id.to_string());
                }
            }
            return Err(closed);
        }
        let (peer_id, account) = (remote.peer_id, self.accounts.enter(remote.peer_id));
        let dialled = state.dialled.remove(&connection);
        let is_wanted = state.trusted.remove(&connection) || dialled.is_some();
        let source = source(&remote.address);
        if let Some(source) = source.filter(|source| !is_wanted && self.addresses.is_full(*source)) {
            Counters::add(&self.metrics.refused);
            let limit = self.addresses.limit(source);
            let reason = format!("there are {limit} connections from {source}, as many as there may be");
            return Err(Closed::new(Cause::Local, reason));
        }
        let unwanted = |_| Closed::new(Cause::Local, "this side has as many connections as it may have");
        let peer = match state.peers.get(&peer_id).cloned() {
            // Under the old handle, which is closing, the new connection would keep the peer connected.
            Some(ending) if ending.is_ending() => {
                let peer = dialled.map_or_else(|| self.add(&mut state), Ok).map_err(unwanted)?;
                // Gossipsub reports a subscription once a peer, not once a connection.
                peer.update_status(|status| *status = ending.status());
                peer
            }
            Some(peer) => {
                if let Some(dialled) = dialled {
                    let reason = format!("the peer is connected already: connection {}", peer.handle);
                    dialled.finished(Closed::new(Cause::Local, reason));
                }
                peer
            }
            None => dialled.map_or_else(|| self.add(&mut state), Ok).map_err(unwanted)?,
        };
        let forgotten = || Closed::new(Cause::Local, "this side released the connection");
        let is_inbound = !remote.dialer;
        let peer_connection = peer.add_connection(connection, account, remote).ok_or_else(forgotten)?;
        // Whether the caller learns of others that this side dialled depends on what they were dialled for.
        if is_inbound || is_wanted {
            peer.announce();
        }
        let place = source.map(|source| self.addresses.enter(source));
        state.connections.insert(connection, (Arc::clone(&peer), place));
        state.peers.insert(peer_id, peer);
        Ok(peer_connection)
    }

    /// Remove a connection that ended.
    pub fn disconnected(&self, peer_id: PeerId, connection: ConnectionId, closed: &Closed) {
        let mut state = lock(&self.state);
        let Some((peer, place)) = state.connections.remove(&connection) else { return };
        let Some((peer_connection, last)) = peer.remove_connection(connection) else { return };
        if last && state.peers.get(&peer_id).is_some_and(|current| current.handle == peer.handle) {
            state.remove(&peer_id);
        }
        let is_unknown = last && !peer.is_announced();
        if is_unknown {
            state.by_handle.remove(&peer.handle);
        }
        // Unlocked: this wakes tasks.
        drop(state);
        drop(place);
        peer_connection.ended(closed, last);
        if is_unknown {
            peer.forget(closed.clone());
        }
    }

    /// Fail a dial.
    pub fn unreachable(&self, connection: ConnectionId, closed: Closed) {
        let mut state = lock(&self.state);
        state.trusted.remove(&connection);
        let dialled = state.dialled.remove(&connection);
        drop(state);
        if let Some(peer) = dialled {
            peer.finished(closed);
        }
    }

    /// Return a connected peer by its identity.
    pub fn peer(&self, peer_id: &PeerId) -> Option<Arc<Peer>> {
        lock(&self.state).peers.get(peer_id).cloned()
    }

    /// Return the connected peers, the oldest first.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        let mut peers: Vec<_> = lock(&self.state).peers.values().cloned().collect();
        peers.sort_by_key(|peer| peer.handle);
        peers
    }

    /// Record whether a peer is subscribed to the topic. False: that is no change, or it is not connected.
    pub fn subscribe(&self, peer_id: &PeerId, subscribed: bool) -> bool {
        let mut state = lock(&self.state);
        let Some(peer) = state.peers.get(peer_id).cloned() else { return false };
        let changed = if subscribed { state.subscribed.insert(*peer_id) } else { state.subscribed.remove(peer_id) };
        drop(state);
        peer.update_status(|status| status.subscribed = subscribed);
        changed
    }

    /// Return whether any peer is subscribed to the topic.
    pub fn has_subscribers(&self) -> bool {
        !lock(&self.state).subscribed.is_empty()
    }

    /// Return the accounts of those that subscribed to the topic.
    pub fn subscribers(&self) -> Vec<Arc<PeerAccount>> {
        let state = lock(&self.state);
        state
            .subscribed
            .iter()
            .filter_map(|peer_id| state.peers.get(peer_id)?.account().filter(PeerAccount::is_open))
            .collect()
    }

    /// Return how many peers are connected.
    pub fn connections(&self) -> usize {
        lock(&self.state).peers.len()
    }

    /// Return a peer by its handle.
    pub fn find(&self, connection: Handle) -> Result<Arc<Peer>, Error> {
        lock(&self.state).by_handle.get(&connection).cloned().ok_or(Error::UnknownConnection(connection))
    }

    /// Return a stream by its handle.
    pub fn stream(&self, stream: Handle) -> Result<Arc<Slot>, Error> {
        lock(&self.state).streams.get(&stream).cloned().ok_or(Error::UnknownStream(stream))
    }

    /// Begin to open a stream of the caller's.
    pub fn open(&self, connection: Handle, protocol: &str) -> Result<Opening, Error> {
        let opening = self.find(connection)?.open(protocol)?;
        lock(&self.state).streams.insert(opening.handle(), opening.slot());
        Ok(opening)
    }

    /// Take what is ready, each connection that is established with its remote end.
    pub fn take(&self) -> Vec<(Event, Option<Remote>)> {
        let events = self.inbox.take();
        let mut state = lock(&self.state);
        let mut remote = |event: &Event| match event {
            Event::Connection { connection, established: true, .. } => {
                state.by_handle.get(connection).and_then(|peer| peer.remote())
            }
            Event::Stream { stream, connection, inbound: true, protocol: Some(_), .. } => {
                let slot = state.by_handle.get(connection).and_then(|peer| peer.stream(*stream));
                if let Some(slot) = slot {
                    state.streams.insert(*stream, slot);
                }
                None
            }
            _ => None,
        };
        events.into_iter().map(|event| (remote(&event), event)).map(|(remote, event)| (event, remote)).collect()
    }

    /// Release a stream. What is returned, if it was open, is to be finished or reset.
    pub fn release_stream(&self, stream: Handle) -> Option<Box<dyn StreamTransport>> {
        let mut state = lock(&self.state);
        let slot = state.streams.remove(&stream)?;
        let peer = state.by_handle.get(&slot.connection).cloned()?;
        drop(state);
        peer.release(stream)
    }

    /// Release a peer and its streams.
    pub fn release(&self, connection: Handle) {
        let mut state = lock(&self.state);
        let Some(peer) = state.by_handle.remove(&connection) else { return };
        let peer_id = peer.remote().map(|remote| remote.peer_id);
        if let Some(peer_id) =
            peer_id.filter(|peer_id| state.peers.get(peer_id).is_some_and(|current| current.handle == connection))
        {
            state.remove(&peer_id);
        }
        drop(state);
        let streams = peer.forget(Closed::new(Cause::Local, "this side released the connection"));
        let mut state = lock(&self.state);
        let streams: Vec<_> = streams.iter().filter_map(|stream| state.streams.remove(stream)).collect();
        // Unlocked: the last reference to a stream may end it.
        drop(state);
        drop(streams);
    }

    /// Release everybody.
    pub fn forget(&self, reason: &str) {
        let state = std::mem::take(&mut *lock(&self.state));
        for peer in state.by_handle.into_values() {
            peer.forget(Closed::new(Cause::Local, reason));
        }
    }

    /// Notify everybody that nothing goes on.
    pub fn fail(&self, closed: &Closed) {
        let mut state = lock(&self.state);
        let (dialled, connections) = (std::mem::take(&mut state.dialled), std::mem::take(&mut state.connections));
        state.peers.clear();
        state.subscribed.clear();
        drop(state);
        for peer in dialled.into_values().chain(connections.into_values().map(|(peer, _)| peer)) {
            peer.lost(closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use libp2p::Multiaddr;

    use super::*;
    use crate::budget::Budget;
    use crate::mesh::outbox::Queues;

    fn peer_table() -> PeerTable {
        let budget = Arc::new(Budget::new(1 << 20, 1 << 20));
        let accounts = Arc::new(PeerAccounts::new(&budget, 1000, Queues::new(1 << 19, 1 << 19)));
        let (inbox, addresses) = (Arc::new(Inbox::new().unwrap()), Arc::new(Addresses::new(Some(3))));
        PeerTable::new(&inbox, &Arc::default(), &Limits::small(), &accounts, &addresses, &Arc::default(), None)
    }

    fn connection(number: usize) -> ConnectionId {
        ConnectionId::new_unchecked(number)
    }

    #[test]
    fn a_peer_that_dials_again_while_it_is_dropped_gets_another_handle() {
        let dropping: [fn(&Peer); 2] = [
            |peer| assert_eq!(peer.close(), [connection(1)]),
            |peer| peer.end(Closed::new(Cause::Violation, "a test's fault")),
        ];
        for drop in dropping {
            let (peer_table, peer_id) = (peer_table(), PeerId::random());
            let remote = Remote { peer_id, address: Multiaddr::empty(), dialer: false };
            peer_table.connected(connection(1), remote.clone()).unwrap();
            let first = peer_table.peer(&peer_id).unwrap();
            first.update_status(|status| status.subscribed = true);
            drop(&first);
            peer_table.connected(connection(2), remote.clone()).unwrap();
            let second = peer_table.peer(&peer_id).unwrap();
            assert_ne!(first.handle, second.handle);
            assert_eq!(first.open("/sync").unwrap().connection, connection(1));
            assert_eq!(second.open("/sync").unwrap().connection, connection(2));
            assert!(second.status().subscribed);
            peer_table.connected(connection(3), remote).unwrap();
            assert_eq!(second.open("/sync").unwrap().connection, connection(3));
            peer_table.disconnected(peer_id, connection(1), &Closed::new(Cause::Local, "dropped"));
            assert_eq!(first.closed().unwrap().reason, "dropped");
            assert_eq!(peer_table.peer(&peer_id).unwrap().handle, second.handle);
            peer_table.disconnected(peer_id, connection(2), &Closed::new(Cause::Remote, "gone"));
            assert_eq!(second.closed(), None);
        }
    }

    fn established(peer_table: &PeerTable) -> Vec<Handle> {
        let events = peer_table.take().into_iter();
        let handle = |(event, _)| match event {
            Event::Connection { connection, established: true, .. } => Some(connection),
            _ => None,
        };
        events.filter_map(handle).collect()
    }

    #[test]
    fn the_caller_learns_of_a_peer_that_a_discovery_found_when_it_is_announced() {
        let (peer_table, peer_id) = (peer_table(), PeerId::random());
        let remote = |dialer| Remote { peer_id, address: Multiaddr::empty(), dialer };
        for is_dialled_in_return in [false, true] {
            peer_table.connected(connection(1), remote(true)).unwrap();
            assert_eq!(established(&peer_table), []);
            let peer = peer_table.peer(&peer_id).unwrap();
            if is_dialled_in_return {
                peer_table.connected(connection(2), remote(false)).unwrap();
            } else {
                peer.announce();
                peer.announce();
            }
            assert_eq!(established(&peer_table), [peer.handle]);
            peer_table.release(peer.handle);
        }
    }

    #[test]
    fn a_peer_that_was_not_announced_leaves_without_a_trace() {
        let peer_table = peer_table();
        for number in 0..2 * Limits::small().connections {
            let peer_id = PeerId::random();
            peer_table
                .connected(connection(number), Remote { peer_id, address: Multiaddr::empty(), dialer: true })
                .unwrap();
            let handle = peer_table.peer(&peer_id).unwrap().handle;
            peer_table.disconnected(peer_id, connection(number), &Closed::new(Cause::Local, "not needed"));
            assert!(peer_table.take().is_empty() && peer_table.find(handle).is_err());
        }
    }

    #[test]
    fn what_a_peer_did_on_one_connection_ends_all() {
        let (peer_table, peer_id) = (peer_table(), PeerId::random());
        let remote = Remote { peer_id, address: Multiaddr::empty(), dialer: false };
        for number in 1..=3 {
            peer_table.connected(connection(number), remote.clone()).unwrap();
        }
        let peer = peer_table.peer(&peer_id).unwrap();
        peer_table.disconnected(peer_id, connection(1), &Closed::new(Cause::Transport, "lost"));
        assert!(!peer.is_ending());
        peer_table.disconnected(peer_id, connection(2), &Closed::new(Cause::Violation, "a test's fault"));
        assert_eq!(
            peer.account().unwrap().close_signal.reason(),
            Some(Closed::new(Cause::Violation, "a test's fault"))
        );
        // A later connection is not affected.
        peer_table.connected(connection(4), remote).unwrap();
        assert_ne!(peer_table.peer(&peer_id).unwrap().handle, peer.handle);
        peer_table.disconnected(peer_id, connection(3), &Closed::new(Cause::Violation, "a test's fault"));
        assert_eq!(peer.closed().unwrap().reason, "a test's fault");
        assert_eq!(peer_table.peer(&peer_id).unwrap().account().unwrap().close_signal.reason(), None);
    }

    #[test]
    fn streams_go_with_their_peer() {
        let peer_table = peer_table();
        let peers = [PeerId::random(), PeerId::random()];
        for (number, peer_id) in peers.into_iter().enumerate() {
            let remote = Remote { peer_id, address: Multiaddr::empty(), dialer: false };
            peer_table.connected(connection(number), remote).unwrap();
        }
        let [first, second] = peers.map(|peer_id| peer_table.peer(&peer_id).unwrap().handle);
        let streams = [first, first, second].map(|handle| peer_table.open(handle, "/sync").unwrap().handle());
        peer_table.release(first);
        assert_eq!(streams.map(|stream| peer_table.stream(stream).is_ok()), [false, false, true]);
        assert!(peer_table.peer(&peers[0]).is_none() && peer_table.peer(&peers[1]).is_some());
    }

    #[test]
    fn peers_that_are_not_allowed_are_not_connected() {
        let friend = PeerId::random();
        let peer_table = PeerTable { allowed: Some(HashSet::from([friend])), ..peer_table() };
        let remote = |peer_id, dialer| Remote { peer_id, address: Multiaddr::empty(), dialer };
        peer_table.connected(connection(1), remote(friend, false)).unwrap();
        let stranger = PeerId::random();
        for number in 0..100 {
            let refused = peer_table.connected(connection(2 + number), remote(stranger, false)).unwrap_err();
            assert_eq!(refused.reason, format!("the peer {stranger} is not one of those that this side allows"));
        }
        assert_eq!(peer_table.take_denied(), vec![stranger.to_string(); MOST_DENIED]);
        let dialled = peer_table.dialled(connection(200)).unwrap();
        let closed = peer_table.connected(connection(200), remote(stranger, true)).unwrap_err();
        peer_table.unreachable(connection(200), closed);
        assert!(peer_table.take_denied().is_empty() && peer_table.peer(&stranger).is_none());
        let reason = peer_table.find(dialled).unwrap().closed().unwrap().reason;
        assert_eq!(reason, format!("the peer {stranger} is not one of those that this side allows"));
    }

    #[test]
    fn blocked_peers_are_not_connected() {
        let (peer_table, peer_id) = (peer_table(), PeerId::random());
        let remote = |dialer| Remote { peer_id, address: Multiaddr::empty(), dialer };
        assert!(peer_table.block(peer_id).unwrap().is_none());
        let refused = peer_table.connected(connection(1), remote(false)).unwrap_err();
        assert_eq!(refused.reason, format!("this side blocks the peer {peer_id}"));
        assert_eq!(peer_table.take_denied(), [peer_id.to_string()]);
        assert_eq!(peer_table.check_allowed(&peer_id).unwrap_err().reason, refused.reason);
        assert!(peer_table.unblock(&peer_id) && !peer_table.unblock(&peer_id));
        peer_table.connected(connection(2), remote(false)).unwrap();
        assert_eq!(peer_table.block(peer_id).unwrap().unwrap().close(), [connection(2)]);
    }

    #[test]
    fn so_many_peers_can_be_blocked() {
        let (peer_table, first) = (peer_table(), PeerId::random());
        peer_table.block(first).unwrap();
        for _ in 1..MOST_BLOCKED {
            peer_table.block(PeerId::random()).unwrap();
        }
        peer_table.block(first).unwrap();
        let refused = peer_table.block(PeerId::random()).unwrap_err();
        assert!(refused.to_string().contains("peers are blocked, as many as there may be"), "{refused}");
    }

    #[test]
    fn an_address_has_so_many_connections_beside_those_that_were_asked_for() {
        let peer_table = peer_table();
        let remote =
            |dialer| Remote { peer_id: PeerId::random(), address: "/ip4/10.0.0.1/tcp/1".parse().unwrap(), dialer };
        peer_table.dialled(connection(1)).unwrap();
        peer_table.trust(connection(2));
        for number in 1..=3 {
            peer_table.connected(connection(number), remote(true)).unwrap();
        }
        let refused = peer_table.connected(connection(4), remote(false)).unwrap_err();
        assert_eq!(refused.reason, "there are 3 connections from 10.0.0.1, as many as there may be");
        peer_table.dialled(connection(5)).unwrap();
        peer_table.trust(connection(6));
        let asked: Vec<_> = [5, 6].map(|number| (connection(number), remote(true))).to_vec();
        for (connection, remote) in &asked {
            peer_table.connected(*connection, remote.clone()).unwrap();
        }
        peer_table.disconnected(asked[0].1.peer_id, asked[0].0, &Closed::new(Cause::Remote, "gone"));
        peer_table.disconnected(asked[1].1.peer_id, asked[1].0, &Closed::new(Cause::Remote, "gone"));
        peer_table.connected(connection(7), remote(false)).unwrap_err();
        peer_table.trust(connection(8));
        peer_table.unreachable(connection(8), Closed::new(Cause::Transport, "nobody"));
        assert!(lock(&peer_table.state).trusted.is_empty());
    }
}
