//! A peer: the connections to it, and the streams on them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::{replace, take};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use libp2p::swarm::{ConnectionId, Stream};
use libp2p::{Multiaddr, PeerId};

use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Handle, Inbox};
use crate::limits::{Counters, Limits, Permit};
use crate::mesh::peer_account::PeerAccount;
use crate::slot::{Slot, StreamTransport};
use crate::sync::{AtomicUsize, Mutex, OnceLock};

/// The remote end of a connection, once it is known.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Its identity, proven.
    pub peer_id: PeerId,
    /// Its end of the first connection.
    pub address: Multiaddr,
    /// Whether this side dialled the first connection.
    pub dialer: bool,
}

/// What a peer says of itself, and its status with the topic.
#[derive(Clone, Debug, Default)]
pub struct PeerStatus {
    /// What it calls its program.
    pub agent: Option<String>,
    /// What it says its streams may speak.
    pub protocols: Vec<String>,
    /// It is in the topic's mesh.
    pub in_mesh: bool,
    /// It subscribed to the topic.
    pub subscribed: bool,
    /// Gossipsub's score.
    pub score: f64,
    /// The last round trip, in seconds.
    pub rtt: Option<f64>,
}

#[derive(Debug, Default)]
struct State {
    remote: Option<(Remote, Arc<PeerAccount>)>,
    connections: HashMap<ConnectionId, Arc<PeerConnection>>,
    streams: HashMap<Handle, Arc<Slot>>,
    status: PeerStatus,
    /// The caller knows it.
    announced: bool,
    /// No further connection is added.
    closing: bool,
    /// The caller released it.
    forgotten: bool,
}

/// A peer, however many connections there are to it; or a dialled one that is not established yet.
#[derive(Debug)]
pub struct Peer {
    /// Its handle.
    pub handle: Handle,
    inbox: Arc<Inbox>,
    counters: Arc<Counters>,
    limits: Limits,
    state: Mutex<State>,
    inbound: Arc<AtomicUsize>,
    outbound: Arc<AtomicUsize>,
    closed: OnceLock<Closed>,
}

impl Peer {
    /// Create a peer without connections.
    pub fn new(inbox: &Arc<Inbox>, counters: &Arc<Counters>, limits: &Limits) -> Self {
        Self {
            handle: inbox.add_connection(),
            inbox: Arc::clone(inbox),
            counters: Arc::clone(counters),
            limits: limits.clone(),
            state: Mutex::default(),
            inbound: Arc::default(),
            outbound: Arc::default(),
            closed: OnceLock::default(),
        }
    }

    /// Return how its last connection ended, once it has.
    pub fn closed(&self) -> Option<Closed> {
        self.closed.get().cloned()
    }

    /// Return the remote end, once it is known.
    pub fn remote(&self) -> Option<Remote> {
        lock(&self.state).remote.as_ref().map(|(remote, _)| remote.clone())
    }

    /// Return its account, once it is connected.
    pub fn account(&self) -> Option<Arc<PeerAccount>> {
        lock(&self.state).remote.as_ref().map(|(_, account)| Arc::clone(account))
    }

    /// Return the peer's status.
    pub fn status(&self) -> PeerStatus {
        lock(&self.state).status.clone()
    }

    /// Change the peer's status.
    pub fn update_status(&self, change: impl FnOnce(&mut PeerStatus)) {
        change(&mut lock(&self.state).status);
    }

    /// Add a connection, which the caller learns of by [`Self::announce`]. None: the caller has released the peer,
    /// closes it, or closed the connection before it was established.
    pub fn add_connection(
        self: &Arc<Self>,
        connection: ConnectionId,
        account: Arc<PeerAccount>,
        remote: Remote,
    ) -> Option<Arc<PeerConnection>> {
        let mut state = lock(&self.state);
        if state.forgotten || state.closing || self.closed().is_some() {
            return None;
        }
        let first = state.remote.is_none();
        let (_, account) = state.remote.get_or_insert((remote, account));
        let peer_connection = PeerConnection {
            peer: Arc::clone(self),
            account: Arc::clone(account),
            streams: Mutex::default(),
            closed: OnceLock::default(),
        };
        let peer_connection = Arc::new(peer_connection);
        state.connections.insert(connection, Arc::clone(&peer_connection));
        drop(state);
        if first {
            Counters::add(&self.counters.connections);
        }
        Some(peer_connection)
    }

    /// Report to the caller that the peer is connected, once.
    pub fn announce(&self) {
        let mut state = lock(&self.state);
        if !replace(&mut state.announced, true) {
            drop(state);
            self.inbox.notify(self.handle, |news| news.begun = Some(String::new()));
        }
    }

    /// Return whether the caller knows the peer.
    pub fn is_announced(&self) -> bool {
        lock(&self.state).announced
    }

    /// Remove a connection that ended; returns it, and whether it was the last one.
    pub fn remove_connection(&self, connection: ConnectionId) -> Option<(Arc<PeerConnection>, bool)> {
        let mut state = lock(&self.state);
        let peer_connection = state.connections.remove(&connection)?;
        Some((peer_connection, state.connections.is_empty()))
    }

    /// Mark as closing, so that further connections get another handle; return the connections to close.
    pub fn close(&self) -> Vec<ConnectionId> {
        let mut state = lock(&self.state);
        state.closing = true;
        state.connections.keys().copied().collect()
    }

    /// Return whether its connections are being closed.
    pub fn is_ending(&self) -> bool {
        let state = lock(&self.state);
        state.closing || state.remote.as_ref().is_some_and(|(_, account)| account.close_signal.reason().is_some())
    }

    /// End its connections.
    pub fn end(&self, closed: Closed) {
        if let Some(account) = self.account() {
            account.close_signal.end(closed);
        }
    }

    /// End all of its connections.
    pub fn lost(&self, closed: &Closed) {
        let connections: Vec<_> = lock(&self.state).connections.keys().copied().collect();
        for connection in &connections {
            if let Some((peer_connection, last)) = self.remove_connection(*connection) {
                peer_connection.ended(closed, last);
            }
        }
        if connections.is_empty() && self.closed().is_none() {
            self.finished(closed.clone());
        }
    }

    /// Report the end of the peer: its connections have ended, or there never was one.
    pub fn finished(&self, closed: Closed) {
        match closed.cause {
            Cause::Violation => Counters::add(&self.counters.violations),
            Cause::Overload => Counters::add(&self.counters.overloads),
            Cause::Internal => Counters::add(&self.counters.defects),
            _ => {}
        }
        let _ = self.closed.set(closed.clone());
        self.inbox.notify(self.handle, |news| news.ended = Some(closed));
    }

    /// Begin to open a stream on the peer's newest connection; the caller passes the result to its handler.
    pub fn open(self: &Arc<Self>, protocol: &str) -> Result<Opening, Error> {
        let limit = self.limits.outbound_streams;
        let mut state = lock(&self.state);
        if let Some(closed) = self.closed() {
            return Err(Error::Lost(closed));
        }
        let not_yet = || Error::Invalid(format!("connection {} is not established yet", self.handle));
        let (remote, account) = state.remote.as_ref().ok_or_else(not_yet)?;
        let (peer_id, memory) = (remote.peer_id, Arc::clone(&account.memory));
        let ending = || Error::Lost(Closed::new(Cause::Transport, "the connection ended before the stream was opened"));
        // An older one may lead to where the peer was before it started anew.
        let connection = state.connections.keys().max().copied().ok_or_else(ending)?;
        let permit = Permit::take(&self.outbound, limit).ok_or(Error::StreamLimit(limit))?;
        let handle = self.inbox.add_stream(self.handle, false);
        let slot = Arc::new(Slot::opening(&self.inbox, self.handle, handle, &memory));
        state.streams.insert(handle, Arc::clone(&slot));
        drop(state);
        let ticket = Ticket { peer: Arc::clone(self), handle, slot, failure: None };
        Ok(Opening { peer_id, connection, protocol: protocol.to_owned(), permit, ticket })
    }

    /// Return how many streams there are that the caller has not released.
    pub fn streams(&self) -> usize {
        lock(&self.state).streams.len()
    }

    /// Return a stream by its handle.
    pub fn stream(&self, handle: Handle) -> Option<Arc<Slot>> {
        lock(&self.state).streams.get(&handle).cloned()
    }

    /// Release a stream. What is returned, if it was open, is to be finished or reset.
    pub fn release(&self, handle: Handle) -> Option<Box<dyn StreamTransport>> {
        self.inbox.remove(handle);
        let slot = lock(&self.state).streams.remove(&handle);
        slot.and_then(|slot| slot.take())
    }

    /// Release everything: the connections end at once, and no more events come from it. Return its streams.
    pub fn forget(&self, closed: Closed) -> Vec<Handle> {
        let mut state = lock(&self.state);
        state.forgotten = true;
        let streams = take(&mut state.streams);
        let account = state.remote.as_ref().map(|(_, account)| Arc::clone(account));
        drop(state);
        if let Some(account) = account.filter(|_| self.closed().is_none()) {
            account.close_signal.end(closed);
        }
        self.inbox.remove(self.handle);
        for (handle, slot) in &streams {
            self.inbox.remove(*handle);
            drop(slot.take());
        }
        streams.into_keys().collect()
    }
}

/// One connection to a peer.
#[derive(Debug)]
pub struct PeerConnection {
    peer: Arc<Peer>,
    account: Arc<PeerAccount>,
    streams: Mutex<HashSet<Handle>>,
    closed: OnceLock<Closed>,
}

impl PeerConnection {
    /// Return the host's limits.
    pub fn limits(&self) -> &Limits {
        &self.peer.limits
    }

    /// End the connection and its streams. `last`: the peer has no other.
    pub fn ended(&self, closed: &Closed, last: bool) {
        if closed.cause == Cause::Violation {
            // What a peer did on one connection ends all of them.
            self.account.close_signal.end(closed.clone());
        }
        // Set before anybody is woken, who then finds the reason.
        let _ = self.closed.set(closed.clone());
        if last {
            self.peer.finished(closed.clone());
        }
        let streams = take(&mut *lock(&self.streams));
        for handle in streams {
            self.peer.inbox.notify(handle, |news| (news.readable, news.writable) = (true, true));
        }
    }

    /// Add a stream that the peer opened, once its protocol is agreed on.
    pub fn accept(self: &Arc<Self>, stream: Stream, protocol: String) {
        let Peer { handle: connection, inbox, counters, limits, .. } = &*self.peer;
        self.peer.announce();
        let Some(permit) = Permit::take(&self.peer.inbound, limits.inbound_streams) else {
            // Dropping it resets it.
            Counters::add(&counters.streams_over_limit);
            let text = format!("it opened a stream beyond the {} that it may have", limits.inbound_streams);
            return inbox.notify(*connection, |news| news.incident("streams_over_limit", text));
        };
        let mut state = lock(&self.peer.state);
        if state.forgotten {
            return;
        }
        Counters::add(&counters.streams);
        let handle = inbox.add_stream(*connection, true);
        let slot = Arc::new(Slot::opening(inbox, *connection, handle, &self.account.memory));
        slot.opened(self.carry(stream, permit, handle));
        state.streams.insert(handle, slot);
        drop(state);
        inbox.notify(handle, |news| news.begun = Some(protocol));
    }

    fn carry(self: &Arc<Self>, stream: Stream, permit: Permit, handle: Handle) -> Box<dyn StreamTransport> {
        lock(&self.streams).insert(handle);
        Box::new(Carried { stream, peer_connection: Arc::clone(self), handle, _permit: permit })
    }
}

/// The bytes of a stream on a [`PeerConnection`].
#[derive(Debug)]
struct Carried {
    stream: Stream,
    peer_connection: Arc<PeerConnection>,
    handle: Handle,
    _permit: Permit,
}

impl Drop for Carried {
    fn drop(&mut self) {
        lock(&self.peer_connection.streams).remove(&self.handle);
    }
}

impl StreamTransport for Carried {
    fn closed(&self) -> Option<Closed> {
        self.peer_connection.closed.get().cloned()
    }

    fn end(&self, closed: Closed) {
        self.peer_connection.account.close_signal.end(closed);
    }

    /// Reset the stream by dropping it. If its direction was ended here, the peer notices once it sends more.
    fn reset(self: Box<Self>) {}
}

impl AsyncRead for Carried {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Carried {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

/// A stream that is to be opened. Dropped before anything came of it, it reports that it failed.
#[derive(Debug)]
pub struct Opening {
    /// The peer.
    pub peer_id: PeerId,
    /// The connection to open it on. Another link to the same peer may have others.
    pub connection: ConnectionId,
    /// What it is to speak.
    pub protocol: String,
    permit: Permit,
    ticket: Ticket,
}

#[derive(Debug)]
struct Ticket {
    peer: Arc<Peer>,
    handle: Handle,
    slot: Arc<Slot>,
    failure: Option<Closed>,
}

impl Opening {
    /// Return the stream's handle.
    pub fn handle(&self) -> Handle {
        self.ticket.handle
    }

    /// Return the stream, as the caller will read and write it.
    pub fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.ticket.slot)
    }

    /// Complete the opening: the peer agreed.
    pub fn agreed(self, stream: Stream, peer_connection: &Arc<PeerConnection>) {
        let Self { protocol, permit, ticket, .. } = self;
        let peer = Arc::clone(&ticket.peer);
        if ticket.slot.opened(peer_connection.carry(stream, permit, ticket.handle)) {
            Counters::add(&peer.counters.streams);
            peer.inbox.notify(ticket.handle, |news| news.begun = Some(protocol));
        }
    }

    /// Fail the opening.
    pub fn failed(mut self, closed: Closed) {
        self.ticket.failure = Some(closed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.slot.is_opening() {
            let lost = || Closed::new(Cause::Transport, "the connection ended before the stream was opened");
            let failure = self.failure.take().or_else(|| self.peer.closed()).unwrap_or_else(lost);
            self.peer.inbox.notify(self.handle, |news| news.ended = Some(failure));
        }
    }
}
