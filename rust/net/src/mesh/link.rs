//! A peer in the caller's hands: the connections to it, and the streams on them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::take;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use libp2p::swarm::{ConnectionId, Stream};
use libp2p::{Multiaddr, PeerId};

use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Handle, Inbox};
use crate::limits::{Counters, Limits, Permit};
use crate::mesh::party::Party;
use crate::slot::{Carrier, Slot};

/// Whom a connection leads to, once that is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its identity, proven.
    pub peer: PeerId,
    /// Its end of the first connection.
    pub address: Multiaddr,
    /// Whether this side dialled the first connection.
    pub dialer: bool,
}

/// What a peer says of itself, and how it stands with the topic.
#[derive(Clone, Debug, Default)]
pub struct Standing {
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
    known: Option<(Known, Arc<Party>)>,
    wires: HashMap<ConnectionId, Arc<Wire>>,
    streams: HashMap<Handle, Arc<Slot>>,
    standing: Standing,
    /// No further connection is added.
    closing: bool,
    /// The caller let go of it.
    forgotten: bool,
}

/// A peer, however many connections there are to it; or a dialled one that does not stand yet.
#[derive(Debug)]
pub struct Link {
    /// What the caller knows it by.
    pub handle: Handle,
    inbox: Arc<Inbox>,
    counters: Arc<Counters>,
    limits: Limits,
    state: Mutex<State>,
    inbound: Arc<AtomicUsize>,
    outbound: Arc<AtomicUsize>,
    closed: OnceLock<Closed>,
}

impl Link {
    /// One without connections.
    pub fn new(inbox: &Arc<Inbox>, counters: &Arc<Counters>, limits: &Limits) -> Self {
        Self {
            handle: inbox.add_connection(),
            inbox: Arc::clone(inbox),
            counters: Arc::clone(counters),
            limits: limits.clone(),
            state: Mutex::default(),
            inbound: Arc::default(),
            outbound: Arc::default(),
            closed: OnceLock::new(),
        }
    }

    /// How its last connection ended, once it has.
    pub fn closed(&self) -> Option<Closed> {
        self.closed.get().cloned()
    }

    /// Whom it leads to.
    pub fn known(&self) -> Option<Known> {
        lock(&self.state).known.as_ref().map(|(known, _)| known.clone())
    }

    /// Its account.
    pub fn party(&self) -> Option<Arc<Party>> {
        lock(&self.state).known.as_ref().map(|(_, party)| Arc::clone(party))
    }

    /// How the peer stands now.
    pub fn standing(&self) -> Standing {
        lock(&self.state).standing.clone()
    }

    /// Changes how the peer stands.
    pub fn stand(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut lock(&self.state).standing);
    }

    /// One more connection. None: the caller let go of the peer, closes it, or closed the connection before it stood.
    pub fn wire(self: &Arc<Self>, connection: ConnectionId, party: Arc<Party>, known: Known) -> Option<Arc<Wire>> {
        let mut state = lock(&self.state);
        if state.forgotten || state.closing || self.closed().is_some() {
            return None;
        }
        let first = state.known.is_none();
        let (_, party) = state.known.get_or_insert((known, party));
        let wire = Wire {
            link: Arc::clone(self),
            party: Arc::clone(party),
            streams: Mutex::default(),
            closed: OnceLock::new(),
        };
        let wire = Arc::new(wire);
        state.wires.insert(connection, Arc::clone(&wire));
        drop(state);
        if first {
            Counters::add(&self.counters.connections);
            self.inbox.tell(self.handle, |news| news.begun = Some(String::new()));
        }
        Some(wire)
    }

    /// Removes a connection that ended; returns it, and whether it was the last one.
    pub fn unwire(&self, connection: ConnectionId) -> Option<(Arc<Wire>, bool)> {
        let mut state = lock(&self.state);
        let wire = state.wires.remove(&connection)?;
        Some((wire, state.wires.is_empty()))
    }

    /// Mark as closing, so that further connections get another link; return the connections to close.
    pub fn close(&self) -> Vec<ConnectionId> {
        let mut state = lock(&self.state);
        state.closing = true;
        state.wires.keys().copied().collect()
    }

    /// Whether its connections are being closed.
    pub fn is_ending(&self) -> bool {
        let state = lock(&self.state);
        state.closing || state.known.as_ref().is_some_and(|(_, party)| party.halt.reason().is_some())
    }

    /// Has its connections end.
    pub fn end(&self, closed: Closed) {
        if let Some(party) = self.party() {
            party.halt.end(closed);
        }
    }

    /// None of its connections goes on.
    pub fn lost(&self, closed: &Closed) {
        let connections: Vec<_> = lock(&self.state).wires.keys().copied().collect();
        for connection in &connections {
            if let Some((wire, last)) = self.unwire(*connection) {
                wire.ended(closed, last);
            }
        }
        if connections.is_empty() && self.closed().is_none() {
            self.finished(closed.clone());
        }
    }

    /// There are no connections any more, or there never was one.
    pub fn finished(&self, closed: Closed) {
        match closed.cause {
            Cause::Violation => Counters::add(&self.counters.violations),
            Cause::Overload => Counters::add(&self.counters.overloads),
            Cause::Internal => Counters::add(&self.counters.defects),
            _ => {}
        }
        let _ = self.closed.set(closed.clone());
        self.inbox.tell(self.handle, |news| news.ended = Some(closed));
    }

    /// Begin to open a stream on the newest connection of this link; the caller passes the result to its handler.
    pub fn open(self: &Arc<Self>, protocol: &str) -> Result<Opening, Error> {
        let limit = self.limits.outbound_streams;
        let mut state = lock(&self.state);
        if let Some(closed) = self.closed() {
            return Err(Error::Lost(closed));
        }
        let not_yet = || Error::Invalid(format!("connection {} is not established yet", self.handle));
        let (known, party) = state.known.as_ref().ok_or_else(not_yet)?;
        let (peer, account) = (known.peer, Arc::clone(&party.account));
        let ending = || Error::Lost(Closed::new(Cause::Transport, "the connection ended before the stream was opened"));
        // An older one may lead to where the peer was before it started anew.
        let connection = state.wires.keys().max().copied().ok_or_else(ending)?;
        let permit = Permit::take(&self.outbound, limit).ok_or(Error::StreamLimit(limit))?;
        let handle = self.inbox.add_stream(self.handle, false);
        let slot = Arc::new(Slot::opening(&self.inbox, self.handle, handle, &account));
        state.streams.insert(handle, Arc::clone(&slot));
        drop(state);
        let ticket = Ticket { link: Arc::clone(self), handle, slot, failure: None };
        Ok(Opening { peer, connection, protocol: protocol.to_owned(), permit, ticket })
    }

    /// How many streams there are that the caller has not let go of.
    pub fn streams(&self) -> usize {
        lock(&self.state).streams.len()
    }

    /// A stream by its handle.
    pub fn stream(&self, handle: Handle) -> Option<Arc<Slot>> {
        lock(&self.state).streams.get(&handle).cloned()
    }

    /// Lets go of a stream. What is returned, if it was open, is to be finished or reset.
    pub fn release(&self, handle: Handle) -> Option<Box<dyn Carrier>> {
        self.inbox.remove(handle);
        let slot = lock(&self.state).streams.remove(&handle);
        slot.and_then(|slot| slot.take())
    }

    /// Lets go of everything: the connections end at once, and nothing is heard of the peer any more. Return its streams.
    pub fn forget(&self, closed: Closed) -> Vec<Handle> {
        let mut state = lock(&self.state);
        state.forgotten = true;
        let streams = take(&mut state.streams);
        let party = state.known.as_ref().map(|(_, party)| Arc::clone(party));
        drop(state);
        if let Some(party) = party.filter(|_| self.closed().is_none()) {
            party.halt.end(closed);
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
pub struct Wire {
    link: Arc<Link>,
    party: Arc<Party>,
    streams: Mutex<HashSet<Handle>>,
    closed: OnceLock<Closed>,
}

impl Wire {
    /// The limits that it is under.
    pub fn limits(&self) -> &Limits {
        &self.link.limits
    }

    /// It ended, and its streams with it. `last`: the peer has no other.
    pub fn ended(&self, closed: &Closed, last: bool) {
        if closed.cause == Cause::Violation {
            // What a peer did on one connection ends all of them.
            self.party.halt.end(closed.clone());
        }
        // Set before anybody is woken: whoever looks then finds the reason.
        let _ = self.closed.set(closed.clone());
        if last {
            self.link.finished(closed.clone());
        }
        let streams = take(&mut *lock(&self.streams));
        for handle in streams {
            self.link.inbox.tell(handle, |news| (news.readable, news.writable) = (true, true));
        }
    }

    /// The peer opened a stream, and both sides agreed on its protocol.
    pub fn accept(self: &Arc<Self>, stream: Stream, protocol: String) {
        let Link { handle: connection, inbox, counters, limits, .. } = &*self.link;
        let Some(permit) = Permit::take(&self.link.inbound, limits.inbound_streams) else {
            // Dropping it resets it.
            Counters::add(&counters.streams_over_limit);
            let text = format!("it opened a stream beyond the {} that it may have", limits.inbound_streams);
            return inbox.tell(*connection, |news| news.incident("streams_over_limit", text));
        };
        let mut state = lock(&self.link.state);
        if state.forgotten {
            return;
        }
        Counters::add(&counters.streams);
        let handle = inbox.add_stream(*connection, true);
        let slot = Arc::new(Slot::opening(inbox, *connection, handle, &self.party.account));
        slot.opened(self.carry(stream, permit, handle));
        state.streams.insert(handle, slot);
        drop(state);
        inbox.tell(handle, |news| news.begun = Some(protocol));
    }

    fn carry(self: &Arc<Self>, stream: Stream, permit: Permit, handle: Handle) -> Box<dyn Carrier> {
        lock(&self.streams).insert(handle);
        Box::new(Carried { stream, wire: Arc::clone(self), handle, _permit: permit })
    }
}

/// The bytes of a stream on a [`Wire`].
#[derive(Debug)]
struct Carried {
    stream: Stream,
    wire: Arc<Wire>,
    handle: Handle,
    _permit: Permit,
}

impl Drop for Carried {
    fn drop(&mut self) {
        lock(&self.wire.streams).remove(&self.handle);
    }
}

impl Carrier for Carried {
    fn closed(&self) -> Option<Closed> {
        self.wire.closed.get().cloned()
    }

    fn end(&self, closed: Closed) {
        self.wire.party.halt.end(closed);
    }

    /// Dropped, it is reset. Of a stream whose direction was ended here, the peer hears once it sends more.
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

/// A stream that is to be opened. Dropped before anything came of it, it tells that it failed.
#[derive(Debug)]
pub struct Opening {
    /// To whom.
    pub peer: PeerId,
    /// The connection to open it on. Another link to the same peer may have others.
    pub connection: ConnectionId,
    /// What it is to speak.
    pub protocol: String,
    permit: Permit,
    ticket: Ticket,
}

#[derive(Debug)]
struct Ticket {
    link: Arc<Link>,
    handle: Handle,
    slot: Arc<Slot>,
    failure: Option<Closed>,
}

impl Opening {
    /// What the caller knows the stream by.
    pub fn handle(&self) -> Handle {
        self.ticket.handle
    }

    /// The stream, as the caller will read and write it.
    pub fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.ticket.slot)
    }

    /// The peer agreed.
    pub fn agreed(self, stream: Stream, wire: &Arc<Wire>) {
        let Self { protocol, permit, ticket, .. } = self;
        let link = Arc::clone(&ticket.link);
        if ticket.slot.opened(wire.carry(stream, permit, ticket.handle)) {
            Counters::add(&link.counters.streams);
            link.inbox.tell(ticket.handle, |news| news.begun = Some(protocol));
        }
    }

    /// It came to nothing.
    pub fn failed(mut self, closed: Closed) {
        self.ticket.failure = Some(closed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.slot.is_opening() {
            let lost = || Closed::new(Cause::Transport, "the connection ended before the stream was opened");
            let failure = self.failure.take().or_else(|| self.link.closed()).unwrap_or_else(lost);
            self.link.inbox.tell(self.handle, |news| news.ended = Some(failure));
        }
    }
}
