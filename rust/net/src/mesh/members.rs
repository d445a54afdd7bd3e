//! Who is there: peers by handle, by identity and by connection, and their streams.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use libp2p::PeerId;
use libp2p::swarm::ConnectionId;

use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Event, Handle, Inbox};
use crate::limits::{Counters, Limits};
use crate::mesh::addresses::{Addresses, Place, source};
use crate::mesh::link::{Known, Link, Opening, Wire};
use crate::mesh::metrics::HostMetrics;
use crate::mesh::party::{Parties, Party};
use crate::slot::{Carrier, Slot};

/// Denied peers that are kept for the caller.
const MOST_DENIED: usize = 64;

#[derive(Debug, Default)]
struct State {
    /// Until the caller lets go of them.
    links: HashMap<Handle, Arc<Link>>,
    /// Those that are connected.
    peers: HashMap<PeerId, Arc<Link>>,
    /// Those of them that subscribed to the topic.
    subscribed: HashSet<PeerId>,
    /// Those that the caller dialled and that do not stand yet.
    dialled: HashMap<ConnectionId, Arc<Link>>,
    /// Connections to bootstrap peers that do not stand yet.
    trusted: HashSet<ConnectionId>,
    wires: HashMap<ConnectionId, (Arc<Link>, Option<Place>)>,
    streams: HashMap<Handle, Arc<Slot>>,
    /// Peers that dialled this side and are not allowed, since the caller last took them.
    denied: Vec<String>,
}

impl State {
    /// A peer is not connected any more.
    fn part(&mut self, peer: &PeerId) {
        self.peers.remove(peer);
        self.subscribed.remove(peer);
    }
}

/// The peers of a host.
#[derive(Debug)]
pub struct Members {
    inbox: Arc<Inbox>,
    counters: Arc<Counters>,
    limits: Limits,
    parties: Arc<Parties>,
    addresses: Arc<Addresses>,
    metrics: Arc<HostMetrics>,
    allowed: Option<HashSet<PeerId>>,
    state: Mutex<State>,
}

impl Members {
    /// Nobody yet.
    pub fn new(
        inbox: &Arc<Inbox>,
        counters: &Arc<Counters>,
        limits: &Limits,
        parties: &Arc<Parties>,
        addresses: &Arc<Addresses>,
        metrics: &Arc<HostMetrics>,
        allowed: Option<HashSet<PeerId>>,
    ) -> Self {
        Self {
            inbox: Arc::clone(inbox),
            counters: Arc::clone(counters),
            limits: limits.clone(),
            parties: Arc::clone(parties),
            addresses: Arc::clone(addresses),
            metrics: Arc::clone(metrics),
            allowed,
            state: Mutex::default(),
        }
    }

    fn link(&self, state: &mut State) -> Result<Arc<Link>, Error> {
        let limit = self.limits.connections;
        if state.links.len() >= limit {
            return Err(Error::ConnectionLimit { owner: "host", limit });
        }
        let link = Arc::new(Link::new(&self.inbox, &self.counters, &self.limits));
        state.links.insert(link.handle, Arc::clone(&link));
        Ok(link)
    }

    /// The caller dials: what it will know the peer by.
    pub fn dialled(&self, connection: ConnectionId) -> Result<Handle, Error> {
        let mut state = lock(&self.state);
        let link = self.link(&mut state)?;
        let handle = link.handle;
        state.dialled.insert(connection, link);
        Ok(handle)
    }

    /// A bootstrap peer is being dialled: its connection is wanted, however many its address has.
    pub fn trust(&self, connection: ConnectionId) {
        lock(&self.state).trusted.insert(connection);
    }

    /// Whether connections to a peer are kept. An error says why not.
    pub fn check_allowed(&self, peer: &PeerId) -> Result<(), Closed> {
        if self.allowed.as_ref().is_none_or(|allowed| allowed.contains(peer)) {
            return Ok(());
        }
        Err(Closed::new(Cause::Local, format!("the peer {peer} is not one of those that this side allows")))
    }

    /// The peers that were denied since the last call: those that dialled this side, and are not allowed.
    pub fn take_denied(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).denied)
    }

    /// A connection stands. An error says why it is not wanted.
    pub fn connected(&self, connection: ConnectionId, known: Known) -> Result<Arc<Wire>, Closed> {
        let mut state = lock(&self.state);
        if let Err(closed) = self.check_allowed(&known.peer) {
            if !known.dialer {
                Counters::add(&self.metrics.refused);
                if state.denied.len() < MOST_DENIED {
                    state.denied.push(known.peer.to_string());
                }
            }
            return Err(closed);
        }
        let (peer, party) = (known.peer, self.parties.enter(known.peer));
        let dialled = state.dialled.remove(&connection);
        let is_wanted = state.trusted.remove(&connection) || dialled.is_some();
        let source = source(&known.address);
        if let Some(source) = source.filter(|source| !is_wanted && self.addresses.is_full(*source)) {
            Counters::add(&self.metrics.refused);
            let limit = self.addresses.limit(source);
            let reason = format!("there are {limit} connections from {source}, as many as there may be");
            return Err(Closed::new(Cause::Local, reason));
        }
        let unwanted = |_| Closed::new(Cause::Local, "this side has as many connections as it may have");
        let link = match state.peers.get(&peer).cloned() {
            // Under the old handle, which is closing, the new connection would keep the peer connected.
            Some(ending) if ending.is_ending() => {
                let link = dialled.map_or_else(|| self.link(&mut state), Ok).map_err(unwanted)?;
                // Gossipsub reports a subscription once a peer, not once a connection.
                link.stand(|standing| *standing = ending.standing());
                link
            }
            Some(link) => {
                if let Some(dialled) = dialled {
                    let reason = format!("the peer is connected already: connection {}", link.handle);
                    dialled.finished(Closed::new(Cause::Local, reason));
                }
                link
            }
            None => dialled.map_or_else(|| self.link(&mut state), Ok).map_err(unwanted)?,
        };
        let forgotten = || Closed::new(Cause::Local, "this side let go of the connection");
        let wire = link.wire(connection, party, known).ok_or_else(forgotten)?;
        let place = source.map(|source| self.addresses.enter(source));
        state.wires.insert(connection, (Arc::clone(&link), place));
        state.peers.insert(peer, link);
        Ok(wire)
    }

    /// A connection ended.
    pub fn disconnected(&self, peer: PeerId, connection: ConnectionId, closed: &Closed) {
        let mut state = lock(&self.state);
        let Some((link, place)) = state.wires.remove(&connection) else { return };
        let Some((wire, last)) = link.unwire(connection) else { return };
        if last && state.peers.get(&peer).is_some_and(|known| known.handle == link.handle) {
            state.part(&peer);
        }
        // Unlocked: this wakes tasks.
        drop(state);
        drop(place);
        wire.ended(closed, last);
    }

    /// A peer that was dialled cannot be reached.
    pub fn unreachable(&self, connection: ConnectionId, closed: Closed) {
        let mut state = lock(&self.state);
        state.trusted.remove(&connection);
        let dialled = state.dialled.remove(&connection);
        drop(state);
        if let Some(link) = dialled {
            link.finished(closed);
        }
    }

    /// A connected peer by its identity.
    pub fn peer(&self, peer: &PeerId) -> Option<Arc<Link>> {
        lock(&self.state).peers.get(peer).cloned()
    }

    /// The connected peers, the oldest first.
    pub fn peers(&self) -> Vec<Arc<Link>> {
        let mut peers: Vec<_> = lock(&self.state).peers.values().cloned().collect();
        peers.sort_by_key(|link| link.handle);
        peers
    }

    /// A peer subscribed to the topic, or does no more. False: it is not connected, or did before.
    pub fn subscribe(&self, peer: &PeerId, subscribed: bool) -> bool {
        let mut state = lock(&self.state);
        let Some(link) = state.peers.get(peer).cloned() else { return false };
        let changed = if subscribed { state.subscribed.insert(*peer) } else { state.subscribed.remove(peer) };
        drop(state);
        link.stand(|standing| standing.subscribed = subscribed);
        changed
    }

    /// Whether anybody subscribed to the topic.
    pub fn is_heard(&self) -> bool {
        !lock(&self.state).subscribed.is_empty()
    }

    /// The accounts of those that subscribed to the topic.
    pub fn subscribers(&self) -> Vec<Arc<Party>> {
        let state = lock(&self.state);
        state.subscribed.iter().filter_map(|peer| state.peers.get(peer)?.party().filter(Party::stays)).collect()
    }

    /// How many peers are connected.
    pub fn connections(&self) -> usize {
        lock(&self.state).peers.len()
    }

    /// A peer by its handle.
    pub fn find(&self, connection: Handle) -> Result<Arc<Link>, Error> {
        lock(&self.state).links.get(&connection).cloned().ok_or(Error::UnknownConnection(connection))
    }

    /// A stream by its handle.
    pub fn stream(&self, stream: Handle) -> Result<Arc<Slot>, Error> {
        lock(&self.state).streams.get(&stream).cloned().ok_or(Error::UnknownStream(stream))
    }

    /// The caller is about to open a stream, or hears of one that its peer opened.
    pub fn open(&self, connection: Handle, protocol: &str) -> Result<Opening, Error> {
        let opening = self.find(connection)?.open(protocol)?;
        lock(&self.state).streams.insert(opening.handle(), opening.slot());
        Ok(opening)
    }

    /// What is ready, with whom each connection that is established leads to.
    pub fn take(&self) -> Vec<(Event, Option<Known>)> {
        let events = self.inbox.take();
        let mut state = lock(&self.state);
        let mut known = |event: &Event| match event {
            Event::Connection { connection, established: true, .. } => {
                state.links.get(connection).and_then(|link| link.known())
            }
            Event::Stream { stream, connection, inbound: true, protocol: Some(_), .. } => {
                let slot = state.links.get(connection).and_then(|link| link.stream(*stream));
                if let Some(slot) = slot {
                    state.streams.insert(*stream, slot);
                }
                None
            }
            _ => None,
        };
        events.into_iter().map(|event| (known(&event), event)).map(|(known, event)| (event, known)).collect()
    }

    /// Lets go of a stream. What is returned, if it was open, is to be finished or reset.
    pub fn release_stream(&self, stream: Handle) -> Option<Box<dyn Carrier>> {
        let mut state = lock(&self.state);
        let slot = state.streams.remove(&stream)?;
        let link = state.links.get(&slot.connection).cloned()?;
        drop(state);
        link.release(stream)
    }

    /// Lets go of a peer and its streams.
    pub fn release(&self, connection: Handle) {
        let mut state = lock(&self.state);
        let Some(link) = state.links.remove(&connection) else { return };
        let peer = link.known().map(|known| known.peer);
        if let Some(peer) = peer.filter(|peer| state.peers.get(peer).is_some_and(|link| link.handle == connection)) {
            state.part(&peer);
        }
        drop(state);
        let streams = link.forget(Closed::new(Cause::Local, "this side let go of the connection"));
        let mut state = lock(&self.state);
        let streams: Vec<_> = streams.iter().filter_map(|stream| state.streams.remove(stream)).collect();
        // Unlocked: the last reference to a stream may end it.
        drop(state);
        drop(streams);
    }

    /// Lets go of everybody.
    pub fn forget(&self, reason: &str) {
        let state = std::mem::take(&mut *lock(&self.state));
        for link in state.links.into_values() {
            link.forget(Closed::new(Cause::Local, reason));
        }
    }

    /// Tells everybody that nothing goes on.
    pub fn fail(&self, closed: &Closed) {
        let mut state = lock(&self.state);
        let (dialled, wires) = (std::mem::take(&mut state.dialled), std::mem::take(&mut state.wires));
        state.peers.clear();
        state.subscribed.clear();
        drop(state);
        for link in dialled.into_values().chain(wires.into_values().map(|(link, _)| link)) {
            link.lost(closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use libp2p::Multiaddr;

    use super::*;
    use crate::budget::Budget;
    use crate::mesh::outbox::Queues;

    fn members() -> Members {
        let budget = Arc::new(Budget::new(1 << 20, 1 << 20));
        let parties = Arc::new(Parties::new(&budget, 1000, Queues::new(1 << 19, 1 << 19)));
        let (inbox, addresses) = (Arc::new(Inbox::new().unwrap()), Arc::new(Addresses::new(Some(3))));
        Members::new(&inbox, &Arc::default(), &Limits::small(), &parties, &addresses, &Arc::default(), None)
    }

    fn connection(number: usize) -> ConnectionId {
        ConnectionId::new_unchecked(number)
    }

    #[test]
    fn a_peer_that_dials_again_while_it_is_dropped_gets_another_handle() {
        let dropping: [fn(&Link); 2] = [
            |link| assert_eq!(link.close(), [connection(1)]),
            |link| link.end(Closed::new(Cause::Violation, "a test's fault")),
        ];
        for drop in dropping {
            let (members, peer) = (members(), PeerId::random());
            let known = Known { peer, address: Multiaddr::empty(), dialer: false };
            members.connected(connection(1), known.clone()).unwrap();
            let first = members.peer(&peer).unwrap();
            first.stand(|standing| standing.subscribed = true);
            drop(&first);
            members.connected(connection(2), known.clone()).unwrap();
            let second = members.peer(&peer).unwrap();
            assert_ne!(first.handle, second.handle);
            assert_eq!(first.open("/sync").unwrap().connection, connection(1));
            assert_eq!(second.open("/sync").unwrap().connection, connection(2));
            assert!(second.standing().subscribed);
            members.connected(connection(3), known).unwrap();
            assert_eq!(second.open("/sync").unwrap().connection, connection(3));
            members.disconnected(peer, connection(1), &Closed::new(Cause::Local, "dropped"));
            assert_eq!(first.closed().unwrap().reason, "dropped");
            assert_eq!(members.peer(&peer).unwrap().handle, second.handle);
            members.disconnected(peer, connection(2), &Closed::new(Cause::Remote, "gone"));
            assert_eq!(second.closed(), None);
        }
    }

    #[test]
    fn what_a_peer_did_on_one_connection_ends_all() {
        let (members, peer) = (members(), PeerId::random());
        let known = Known { peer, address: Multiaddr::empty(), dialer: false };
        for number in 1..=3 {
            members.connected(connection(number), known.clone()).unwrap();
        }
        let link = members.peer(&peer).unwrap();
        members.disconnected(peer, connection(1), &Closed::new(Cause::Transport, "lost"));
        assert!(!link.is_ending());
        members.disconnected(peer, connection(2), &Closed::new(Cause::Violation, "a test's fault"));
        assert_eq!(link.party().unwrap().halt.reason(), Some(Closed::new(Cause::Violation, "a test's fault")));
        // Whoever comes meanwhile has nothing to do with it.
        members.connected(connection(4), known).unwrap();
        assert_ne!(members.peer(&peer).unwrap().handle, link.handle);
        members.disconnected(peer, connection(3), &Closed::new(Cause::Violation, "a test's fault"));
        assert_eq!(link.closed().unwrap().reason, "a test's fault");
        assert_eq!(members.peer(&peer).unwrap().party().unwrap().halt.reason(), None);
    }

    #[test]
    fn streams_go_with_their_peer() {
        let members = members();
        let peers = [PeerId::random(), PeerId::random()];
        for (number, peer) in peers.into_iter().enumerate() {
            let known = Known { peer, address: Multiaddr::empty(), dialer: false };
            members.connected(connection(number), known).unwrap();
        }
        let [first, second] = peers.map(|peer| members.peer(&peer).unwrap().handle);
        let streams = [first, first, second].map(|handle| members.open(handle, "/sync").unwrap().handle());
        members.release(first);
        assert_eq!(streams.map(|stream| members.stream(stream).is_ok()), [false, false, true]);
        assert!(members.peer(&peers[0]).is_none() && members.peer(&peers[1]).is_some());
    }

    #[test]
    fn peers_that_are_not_allowed_are_not_connected() {
        let friend = PeerId::random();
        let members = Members { allowed: Some(HashSet::from([friend])), ..members() };
        let known = |peer, dialer| Known { peer, address: Multiaddr::empty(), dialer };
        members.connected(connection(1), known(friend, false)).unwrap();
        let stranger = PeerId::random();
        for number in 0..100 {
            let refused = members.connected(connection(2 + number), known(stranger, false)).unwrap_err();
            assert_eq!(refused.reason, format!("the peer {stranger} is not one of those that this side allows"));
        }
        assert_eq!(members.take_denied(), vec![stranger.to_string(); MOST_DENIED]);
        let dialled = members.dialled(connection(200)).unwrap();
        let closed = members.connected(connection(200), known(stranger, true)).unwrap_err();
        members.unreachable(connection(200), closed);
        assert!(members.take_denied().is_empty() && members.peer(&stranger).is_none());
        let reason = members.find(dialled).unwrap().closed().unwrap().reason;
        assert_eq!(reason, format!("the peer {stranger} is not one of those that this side allows"));
    }

    #[test]
    fn an_address_has_so_many_connections_beside_those_that_were_asked_for() {
        let members = members();
        let known = |dialer| Known { peer: PeerId::random(), address: "/ip4/10.0.0.1/tcp/1".parse().unwrap(), dialer };
        members.dialled(connection(1)).unwrap();
        members.trust(connection(2));
        for number in 1..=3 {
            members.connected(connection(number), known(true)).unwrap();
        }
        let refused = members.connected(connection(4), known(false)).unwrap_err();
        assert_eq!(refused.reason, "there are 3 connections from 10.0.0.1, as many as there may be");
        members.dialled(connection(5)).unwrap();
        members.trust(connection(6));
        let asked: Vec<_> = [5, 6].map(|number| (connection(number), known(true))).to_vec();
        for (connection, known) in &asked {
            members.connected(*connection, known.clone()).unwrap();
        }
        members.disconnected(asked[0].1.peer, asked[0].0, &Closed::new(Cause::Remote, "gone"));
        members.disconnected(asked[1].1.peer, asked[1].0, &Closed::new(Cause::Remote, "gone"));
        members.connected(connection(7), known(false)).unwrap_err();
        members.trust(connection(8));
        members.unreachable(connection(8), Closed::new(Cause::Transport, "nobody"));
        assert!(lock(&members.state).trusted.is_empty());
    }
}
