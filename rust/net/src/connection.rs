//! One connection, and the task that drives it.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use futures::future::select;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};
use yamux::{ConnectionError, Mode};

use crate::budget::Budget;
use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Handle, Inbox};
use crate::ledger::Ledger;
use crate::limits::{Counters, INITIAL_WINDOW, Limits, Permit};
use crate::negotiation::{Done, Outcome, Task, listen, propose};
use crate::slot::{Carrier, Slot};
use crate::stream::{Muxed, finish};
use crate::verdict::verdict;
use crate::watched::Watched;

/// What the connections of a network have in common.
#[derive(Debug)]
pub struct Shared {
    pub inbox: Arc<Inbox>,
    pub limits: Limits,
    pub budget: Arc<Budget>,
    pub counters: Counters,
}

impl Shared {
    /// Nothing counted yet.
    pub fn new(inbox: Arc<Inbox>, limits: Limits) -> Self {
        let budget = Arc::new(Budget::new(limits.peer_bytes, limits.total_bytes));
        Self { inbox, limits, budget, counters: Counters::default() }
    }
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<Handle, Arc<Slot>>,
    opening: VecDeque<(Handle, Arc<Slot>, String, Permit)>,
    finishing: Vec<Box<dyn Carrier>>,
    /// Why its bytes stopped, if they did.
    explanation: Option<Closed>,
    /// The caller let go of it.
    forgotten: bool,
}

/// A connection, as the caller and its task share it.
#[derive(Debug)]
pub struct Link {
    pub handle: Handle,
    pub shared: Arc<Shared>,
    pub ledger: Arc<Ledger>,
    protocols: Arc<[String]>,
    state: Mutex<State>,
    inbound: Arc<AtomicUsize>,
    outbound: Arc<AtomicUsize>,
    closed: OnceLock<Closed>,
}

impl Link {
    /// A connection that offers `protocols` on the streams which the peer opens.
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

    /// How it ended, once it has.
    pub fn closed(&self) -> Option<Closed> {
        self.closed.get().cloned()
    }

    /// Has it end, for the first reason that anybody gives.
    pub fn end(&self, closed: Closed) {
        self.ledger.halt.end(closed);
    }

    /// Says why its bytes stop where they do. What came before is still worth reading.
    pub fn explain(&self, closed: Closed) {
        lock(&self.state).explanation.get_or_insert(closed);
    }

    /// Begins to open a stream.
    pub fn open(self: &Arc<Self>, protocol: &str) -> Result<(Handle, Arc<Slot>), Error> {
        let limit = self.shared.limits.outbound_streams;
        let too_many = || Error::Limit(format!("{limit} streams are open on the connection: close one first"));
        let mut state = lock(&self.state);
        // Under the lock, which the end of the task takes after it said why: it finds the stream, or the stream the end.
        if let Some(closed) = self.closed() {
            return Err(Error::Lost(closed));
        }
        let permit = Permit::take(&self.outbound, limit).ok_or_else(too_many)?;
        let handle = self.shared.inbox.add_stream(self.handle, false);
        let slot = Arc::new(Slot::opening(&self.shared.inbox, self.handle, handle, &self.ledger.account));
        state.streams.insert(handle, Arc::clone(&slot));
        state.opening.push_back((handle, Arc::clone(&slot), protocol.to_owned(), permit));
        drop(state);
        self.ledger.halt.driver.wake();
        Ok((handle, slot))
    }

    /// A stream by its handle.
    pub fn stream(&self, handle: Handle) -> Option<Arc<Slot>> {
        lock(&self.state).streams.get(&handle).cloned()
    }

    /// Lets go of a stream: at once, or (`finish`) after both directions have ended in order.
    pub fn release(&self, handle: Handle, finish: bool) {
        self.shared.inbox.remove(handle);
        let Some(slot) = lock(&self.state).streams.remove(&handle) else { return };
        let Some(carrier) = slot.take() else { return };
        let mut state = lock(&self.state);
        if finish && self.closed().is_none() {
            state.finishing.push(carrier);
            drop(state);
            self.ledger.halt.driver.wake();
        } else {
            drop(state);
            carrier.reset();
        }
    }

    /// Lets go of everything: the connection ends, and nothing is heard of it any more. Return its streams.
    pub fn forget(&self, closed: Closed) -> Vec<Handle> {
        let mut state = lock(&self.state);
        state.forgotten = true;
        let streams = std::mem::take(&mut state.streams);
        drop(state);
        self.end(closed);
        self.shared.inbox.remove(self.handle);
        for (handle, slot) in &streams {
            self.shared.inbox.remove(*handle);
            drop(slot.take());
        }
        streams.into_keys().collect()
    }

    /// The peer did something in vain: `kind` is the counter's name.
    fn incident(&self, kind: &'static str, counter: &AtomicU64, text: String) {
        Counters::add(counter);
        self.shared.inbox.tell(self.handle, |news| news.incident(kind, text));
    }

    /// The task is over: tells everybody who waits.
    pub fn finished(&self, closed: Closed) {
        match closed.cause {
            Cause::Violation => Counters::add(&self.shared.counters.violations),
            Cause::Overload => Counters::add(&self.shared.counters.overloads),
            Cause::Internal => Counters::add(&self.shared.counters.defects),
            _ => {}
        }
        // Set before anybody is woken: whoever looks then finds the reason.
        let _ = self.closed.set(closed.clone());
        let mut state = lock(&self.state);
        let (finishing, opening) = (std::mem::take(&mut state.finishing), std::mem::take(&mut state.opening));
        let streams: Vec<_> = state.streams.iter().map(|(handle, slot)| (*handle, Arc::clone(slot))).collect();
        drop(state);
        // Unlocked: streams that are let go wake tasks.
        drop((finishing, opening));
        let inbox = &self.shared.inbox;
        // Before the streams, as in one `take`: whoever hears that a stream failed knows already if its connection ended.
        inbox.tell(self.handle, |news| {
            (news.readable, news.writable) = (true, true);
            news.ended = Some(closed.clone());
        });
        for (handle, slot) in streams {
            let failed = slot.is_opening().then(|| closed.clone());
            inbox.tell(handle, |news| {
                (news.readable, news.writable) = (true, true);
                news.ended = failed;
            });
        }
    }
}

/// Drives the streams of `link` over `pipe` until the connection ends, and says how it did.
pub async fn drive<P: AsyncRead + AsyncWrite + Unpin>(link: &Arc<Link>, pipe: P, mode: Mode) -> Closed {
    let limits = &link.shared.limits;
    // One more than the limits: a stream too many is there until its reset is written.
    let streams = limits.inbound_streams + limits.outbound_streams + 1;
    let mut config = yamux::Config::default();
    config.set_max_num_streams(streams);
    config.set_max_connection_receive_window(Some(streams * INITIAL_WINDOW + limits.window_growth()));
    let watched = Watched::new(pipe.compat(), Arc::clone(&link.ledger));
    let run = async move {
        let mut driver =
            Driver { link, muxer: yamux::Connection::new(watched, config, mode), tasks: FuturesUnordered::new() };
        let closed = {
            let ended = poll_fn(|context| driver.poll(context));
            let closed = select(pin!(link.ledger.halt.wait()), ended).await.factor_first().0;
            // This side may have closed the connection while the muxer was polled, before it found the bytes to end.
            link.ledger.halt.reason().filter(|reason| reason.cause == Cause::Local).unwrap_or(closed)
        };
        driver.tasks.clear();
        if closed.cause == Cause::Local {
            // The peer hears of it, if it reads.
            let _ = timeout(limits.closing, poll_fn(|context| driver.muxer.poll_close(context))).await;
        }
        closed
    };
    let panicked = |_| Closed::new(Cause::Internal, "a defect of gossiplog-net: the connection's task panicked");
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(panicked)
}

struct Driver<'a, P> {
    link: &'a Arc<Link>,
    muxer: yamux::Connection<Watched<Compat<P>>>,
    tasks: FuturesUnordered<Task>,
}

impl<P: AsyncRead + AsyncWrite + Unpin> Driver<'_, P> {
    /// Moves everything on that can be moved on now.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        loop {
            match self.muxer.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => {
                    self.accept(stream);
                    continue;
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(self.verdict(Some(&error))),
                Poll::Ready(None) => return Poll::Ready(self.verdict(None)),
                Poll::Pending => {}
            }
            let mut moved = self.finish();
            while let Poll::Ready(Some(done)) = self.tasks.poll_next_unpin(context) {
                moved = true;
                if let Err(closed) = self.done(done) {
                    return Poll::Ready(closed);
                }
            }
            match self.open(context) {
                Ok(opened) => moved |= opened,
                Err(error) => return Poll::Ready(self.verdict(Some(&error))),
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn accept(&mut self, stream: yamux::Stream) {
        let Shared { limits, counters, .. } = &*self.link.shared;
        let number = stream.id().val();
        let Some(permit) = Permit::take(&self.link.inbound, limits.inbound_streams) else {
            // Dropping it resets it.
            self.link.ledger.dropped(number);
            let text = format!("it opened a stream beyond the {} that it may have", limits.inbound_streams);
            self.link.incident("streams_over_limit", &counters.streams_over_limit, text);
            return;
        };
        let stream = Muxed::new(stream, Arc::clone(&self.link.ledger), permit);
        self.tasks.push(listen(Arc::clone(self.link), stream, number, Arc::clone(&self.link.protocols)));
    }

    /// Opens what is to be opened. Not while written bytes wait: yamux may then still count streams that were dropped,
    /// and one beyond its limit would end the connection.
    fn open(&mut self, context: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let mut opened = false;
        while !self.link.ledger.blocked() {
            let Some((handle, slot, protocol, permit)) = lock(&self.link.state).opening.pop_front() else { break };
            if slot.gone() {
                continue;
            }
            let Poll::Ready(stream) = self.muxer.poll_new_outbound(context) else {
                lock(&self.link.state).opening.push_front((handle, slot, protocol, permit));
                break;
            };
            let stream = stream?;
            let number = stream.id().val();
            self.link.ledger.opened(number);
            let stream = Muxed::new(stream, Arc::clone(&self.link.ledger), permit);
            self.tasks.push(propose(Arc::clone(self.link), stream, number, handle, slot, protocol));
            opened = true;
        }
        Ok(opened)
    }

    /// Takes over the streams that the caller let go of, to end them in order.
    fn finish(&mut self) -> bool {
        let finishing = std::mem::take(&mut lock(&self.link.state).finishing);
        let some = !finishing.is_empty();
        for carrier in finishing {
            let limit = self.link.shared.limits.closing;
            self.tasks.push(Box::pin(finish(carrier, limit).map(|()| Done::Finished)));
        }
        some
    }

    fn done(&self, done: Done) -> Result<(), Closed> {
        let Shared { inbox, counters, .. } = &*self.link.shared;
        match done {
            Done::Inbound(Outcome::Agreed(protocol, agreed)) => {
                let mut state = lock(&self.link.state);
                if state.forgotten {
                    return Ok(());
                }
                Counters::add(&counters.streams);
                let handle = inbox.add_stream(self.link.handle, true);
                let slot = Slot::opening(inbox, self.link.handle, handle, &self.link.ledger.account);
                slot.opened(agreed);
                state.streams.insert(handle, Arc::new(slot));
                drop(state);
                inbox.tell(handle, |news| news.begun = Some(protocol));
            }
            Done::Inbound(Outcome::TimedOut(_)) => {
                let text = format!(
                    "it did not agree on a stream's protocol within {} s",
                    self.link.shared.limits.negotiation.as_secs_f64()
                );
                self.link.incident("negotiations_timed_out", &counters.negotiations_timed_out, text);
            }
            Done::Inbound(Outcome::Failed(closed)) => {
                if closed.cause == Cause::Violation {
                    return Err(closed);
                }
                let offered = self.link.protocols.join(", ");
                let text = format!("it opened a stream and spoke none of the protocols offered here: {offered}");
                self.link.incident("streams_refused", &counters.streams_refused, text);
            }
            Done::Outbound(handle, slot, Outcome::Agreed(protocol, agreed)) => {
                if slot.opened(agreed) {
                    Counters::add(&counters.streams);
                    inbox.tell(handle, |news| news.begun = Some(protocol));
                }
            }
            Done::Outbound(handle, _, Outcome::TimedOut(closed) | Outcome::Failed(closed)) => {
                if closed.cause == Cause::Violation {
                    return Err(closed);
                }
                inbox.tell(handle, |news| news.ended = Some(closed));
            }
            Done::Finished => {}
        }
        Ok(())
    }

    fn verdict(&self, error: Option<&ConnectionError>) -> Closed {
        let explanation = lock(&self.link.state).explanation.clone();
        verdict(&self.link.ledger, explanation, error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;

    use tokio::io::ReadBuf;

    use super::*;

    /// The end of a pipe at which this side closes the connection just before it breaks.
    struct Breaking(Arc<Link>);

    impl AsyncRead for Breaking {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.0.end(Closed::new(Cause::Local, "enough"));
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }
    }

    impl AsyncWrite for Breaking {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_this_side_closed_did_not_break() {
        let shared = Arc::new(Shared::new(Arc::new(Inbox::new().unwrap()), Limits::small()));
        let link = Arc::new(Link::new(&shared, Vec::new()));
        let pipe = Breaking(Arc::clone(&link));
        assert_eq!(drive(&link, pipe, Mode::Server).await, Closed::new(Cause::Local, "enough"));
    }
}
