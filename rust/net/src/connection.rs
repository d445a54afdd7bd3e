//! The task that drives one connection.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::select;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};
use yamux::{ConnectionError, Mode};

use crate::error::{Cause, Closed};
use crate::limits::{Counters, INITIAL_WINDOW};
use crate::link::{Link, Opening, Shared};
use crate::muxed::Muxed;
use crate::negotiation::{Done, Outcome, Task, listen, propose};
use crate::stream::finish;
use crate::verdict::verdict;
use crate::watched::Watched;

/// Drive the streams of `link` over `pipe` until the connection ends, and says how it did.
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
            let closed = select(pin!(link.ledger.close_signal.wait()), ended).await.factor_first().0;
            // This side may have closed the connection while the muxer was polled, before it found the bytes to end.
            link.ledger.close_signal.reason().filter(|reason| reason.cause == Cause::Local).unwrap_or(closed)
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
    /// Move everything on that can be moved on now.
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
        let Some(permit) = self.link.inbound_permit() else {
            // Dropping it resets it.
            self.link.ledger.dropped(number);
            let text = format!("it opened a stream beyond the {} that it may have", limits.inbound_streams);
            self.link.incident("streams_over_limit", &counters.streams_over_limit, text);
            return;
        };
        let stream = Muxed::new(stream, Arc::clone(&self.link.ledger), permit);
        self.tasks.push(listen(Arc::clone(self.link), stream, number, Arc::clone(&self.link.protocols)));
    }

    /// Open what is to be opened. Not while written bytes wait: yamux may then still count streams that were dropped,
    /// and one beyond its limit would end the connection.
    fn open(&mut self, context: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let mut opened = false;
        while !self.link.ledger.blocked() {
            let Some(opening) = self.link.next_opening() else { break };
            if opening.slot.gone() {
                continue;
            }
            let Poll::Ready(stream) = self.muxer.poll_new_outbound(context) else {
                self.link.postpone(opening);
                break;
            };
            let Opening { handle, slot, protocol, permit } = opening;
            let stream = stream?;
            let number = stream.id().val();
            self.link.ledger.opened(number);
            let stream = Muxed::new(stream, Arc::clone(&self.link.ledger), permit);
            self.tasks.push(propose(Arc::clone(self.link), stream, number, handle, slot, protocol));
            opened = true;
        }
        Ok(opened)
    }

    /// Take over the streams that the caller released, to end them in order.
    fn finish(&mut self) -> bool {
        let finishing = self.link.take_finishing();
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
            Done::Inbound(Outcome::Agreed(protocol, agreed)) => self.link.accept(protocol, agreed),
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
                    inbox.notify(handle, |news| news.begun = Some(protocol));
                }
            }
            Done::Outbound(handle, _, Outcome::TimedOut(closed) | Outcome::Failed(closed)) => {
                if closed.cause == Cause::Violation {
                    return Err(closed);
                }
                inbox.notify(handle, |news| news.ended = Some(closed));
            }
            Done::Finished => {}
        }
        Ok(())
    }

    fn verdict(&self, error: Option<&ConnectionError>) -> Closed {
        verdict(&self.link.ledger, self.link.explanation(), error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;

    use tokio::io::ReadBuf;

    use super::*;
    use crate::inbox::Inbox;
    use crate::limits::Limits;

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
    async fn a_local_close_takes_precedence_over_the_error_that_follows() {
        let shared = Arc::new(Shared::new(Arc::new(Inbox::new().unwrap()), Limits::small()));
        let link = Arc::new(Link::new(&shared, Vec::new()));
        let pipe = Breaking(Arc::clone(&link));
        assert_eq!(drive(&link, pipe, Mode::Server).await, Closed::new(Cause::Local, "enough"));
    }
}
