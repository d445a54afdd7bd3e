//! A connection, as the caller and the task that drives it share it.

use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};

use crate::budget::Budget;
use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Handle, Inbox};
use crate::ledger::Ledger;
use crate::limits::{Counters, Limits, Permit};
use crate::slot::{Slot, StreamTransport};

/// What the connections of a network have in common.
#[derive(Debug)]
pub struct Shared {
    pub inbox: Arc<Inbox>,
    pub limits: Limits,
    pub budget: Arc<Budget>,
    pub counters: Counters,
}

impl Shared {
    /// Create it with nothing counted.
    pub fn new(inbox: Arc<Inbox>, limits: Limits) -> Self {
        let budget = Arc::new(Budget::new(limits.peer_bytes, limits.total_bytes));
        Self { inbox, limits, budget, counters: Counters::default() }
    }
}

/// A stream that is to be opened.
#[derive(Debug)]
pub struct Opening {
    pub handle: Handle,
    pub slot: Arc<Slot>,
    pub protocol: String,
    pub permit: Permit,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<Handle, Arc<Slot>>,
    opening: VecDeque<Opening>,
    finishing: Vec<Box<dyn StreamTransport>>,
    /// Why its bytes stopped, if they did.
    explanation: Option<Closed>,
    /// The caller released it.
    forgotten: bool,
}

/// A connection, as the caller and its task share it.
#[derive(Debug)]
pub struct Link {
    pub handle: Handle,
    pub shared: Arc<Shared>,
    pub ledger: Arc<Ledger>,
    pub protocols: Arc<[String]>,
    state: Mutex<State>,
    inbound: Arc<AtomicUsize>,
    outbound: Arc<AtomicUsize>,
    closed: OnceLock<Closed>,
}

impl Link {
    /// Create a connection that offers `protocols` on the streams which the peer opens.
    pub fn new(shared: &Arc<Shared>, protocols: Vec<String>) -> Self {
        Self {
            handle: shared.inbox.add_connection(),
            shared: Arc::clone(shared),
            ledger: Arc::new(Ledger::new(&shared.budget)),
            protocols: protocols.into(),
            state: Mutex::default(),
            inbound: Arc::default(),
            outbound: Arc::default(),
            closed: OnceLock::new(),
        }
    }

    /// Return how it ended, once it has.
    pub fn closed(&self) -> Option<Closed> {
        self.closed.get().cloned()
    }

    /// End it, for the first reason given.
    pub fn end(&self, closed: Closed) {
        self.ledger.close_signal.end(closed);
    }

    /// Report why its bytes stop where they do. What came before is still worth reading.
    pub fn explain(&self, closed: Closed) {
        lock(&self.state).explanation.get_or_insert(closed);
    }

    /// Begin to open a stream.
    pub fn open(self: &Arc<Self>, protocol: &str) -> Result<(Handle, Arc<Slot>), Error> {
        let limit = self.shared.limits.outbound_streams;
        let mut state = lock(&self.state);
        // Under the lock, which the end of the task takes after it said why: it finds the stream, or the stream the
        // end.
        if let Some(closed) = self.closed() {
            return Err(Error::Lost(closed));
        }
        let permit = Permit::take(&self.outbound, limit).ok_or(Error::StreamLimit(limit))?;
        let handle = self.shared.inbox.add_stream(self.handle, false);
        let slot = Arc::new(Slot::opening(&self.shared.inbox, self.handle, handle, &self.ledger.account));
        state.streams.insert(handle, Arc::clone(&slot));
        let opening = Opening { handle, slot: Arc::clone(&slot), protocol: protocol.to_owned(), permit };
        state.opening.push_back(opening);
        drop(state);
        self.ledger.close_signal.task.wake();
        Ok((handle, slot))
    }

    /// Return a stream by its handle.
    pub fn stream(&self, handle: Handle) -> Option<Arc<Slot>> {
        lock(&self.state).streams.get(&handle).cloned()
    }

    /// Release a stream: at once, or (`finish`) after both directions have ended in order.
    pub fn release(&self, handle: Handle, finish: bool) {
        self.shared.inbox.remove(handle);
        let Some(slot) = lock(&self.state).streams.remove(&handle) else { return };
        let Some(carrier) = slot.take() else { return };
        let mut state = lock(&self.state);
        if finish && self.closed().is_none() {
            state.finishing.push(carrier);
            drop(state);
            self.ledger.close_signal.task.wake();
        } else {
            drop(state);
            carrier.reset();
        }
    }

    /// Release everything: the connection ends, and no more events come from it. Return its streams.
    pub fn forget(&self, closed: Closed) -> Vec<Handle> {
        let mut state = lock(&self.state);
        state.forgotten = true;
        let streams = take(&mut state.streams);
        drop(state);
        self.end(closed);
        self.shared.inbox.remove(self.handle);
        for (handle, slot) in &streams {
            self.shared.inbox.remove(*handle);
            drop(slot.take());
        }
        streams.into_keys().collect()
    }

    /// Take a place for a stream that the peer opened, if it may have one more.
    pub fn inbound_permit(&self) -> Option<Permit> {
        Permit::take(&self.inbound, self.shared.limits.inbound_streams)
    }

    /// Add a stream that the peer opened.
    pub fn accept(&self, protocol: String, carrier: Box<dyn StreamTransport>) {
        let Shared { inbox, counters, .. } = &*self.shared;
        let mut state = lock(&self.state);
        if state.forgotten {
            return;
        }
        Counters::add(&counters.streams);
        let handle = inbox.add_stream(self.handle, true);
        let slot = Slot::opening(inbox, self.handle, handle, &self.ledger.account);
        slot.opened(carrier);
        state.streams.insert(handle, Arc::new(slot));
        drop(state);
        inbox.notify(handle, |news| news.begun = Some(protocol));
    }

    /// Take the next stream that is to be opened.
    pub fn next_opening(&self) -> Option<Opening> {
        lock(&self.state).opening.pop_front()
    }

    /// Give back a stream that cannot be opened yet: it is the next one again.
    pub fn postpone(&self, opening: Opening) {
        lock(&self.state).opening.push_front(opening);
    }

    /// Take the streams that were released and are to be ended in order.
    pub fn take_finishing(&self) -> Vec<Box<dyn StreamTransport>> {
        take(&mut lock(&self.state).finishing)
    }

    /// Return why its bytes stopped, if that is known.
    pub fn explanation(&self) -> Option<Closed> {
        lock(&self.state).explanation.clone()
    }

    /// Count and report a failed attempt of the peer. `kind`: the counter's name.
    pub fn incident(&self, kind: &'static str, counter: &AtomicU64, text: String) {
        Counters::add(counter);
        self.shared.inbox.notify(self.handle, |news| news.incident(kind, text));
    }

    /// End the link: its task is over. Notify everybody who waits.
    pub fn finished(&self, closed: Closed) {
        match closed.cause {
            Cause::Violation => Counters::add(&self.shared.counters.violations),
            Cause::Overload => Counters::add(&self.shared.counters.overloads),
            Cause::Internal => Counters::add(&self.shared.counters.defects),
            _ => {}
        }
        // Set before anybody is woken, who then finds the reason.
        let _ = self.closed.set(closed.clone());
        let mut state = lock(&self.state);
        let (finishing, opening) = (take(&mut state.finishing), take(&mut state.opening));
        let streams: Vec<_> = state.streams.iter().map(|(handle, slot)| (*handle, Arc::clone(slot))).collect();
        drop(state);
        // Unlocked: streams that are released wake tasks.
        drop((finishing, opening));
        let inbox = &self.shared.inbox;
        // Before the streams, as in one `take`: a stream's failure is reported after its connection's end.
        inbox.notify(self.handle, |news| {
            (news.readable, news.writable) = (true, true);
            news.ended = Some(closed.clone());
        });
        for (handle, slot) in streams {
            let failed = slot.is_opening().then(|| closed.clone());
            inbox.notify(handle, |news| {
                (news.readable, news.writable) = (true, true);
                news.ended = failed;
            });
        }
    }
}
