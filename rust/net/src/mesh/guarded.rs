//! A connection's streams under the eyes of the peer's account: what all transports have in common.

use std::cmp::Ordering;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures::io::{AsyncRead, AsyncWrite};
use futures::task::AtomicWaker;
use libp2p::StreamProtocol;
use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};

use crate::mesh::frames::{Frame, Frames};
use crate::mesh::muxer::Ended;
use crate::mesh::outbox::Outlet;
use crate::mesh::party::Party;

/// A connection that ends when all of its peer's are to, and whose streams' gossip is counted.
pub struct Guarded<M> {
    muxer: M,
    party: Arc<Party>,
    driver: Arc<AtomicWaker>,
    others: Arc<[StreamProtocol]>,
    outlet: Arc<Outlet>,
}

impl<M> Guarded<M> {
    /// A connection to `party`. `others`: protocols that the caller speaks, in which no gossip is looked for.
    pub fn new(muxer: M, party: Arc<Party>, others: &Arc<[StreamProtocol]>) -> Self {
        Self { muxer, driver: party.driver(), party, others: Arc::clone(others), outlet: Arc::default() }
    }

    fn check(&self, context: &Context<'_>) -> Result<(), Ended> {
        self.driver.register(context.waker());
        // libp2p asks the muxer once the handlers have nothing more to do: gossipsub's has emptied its queue.
        if self.outlet.is_idle() {
            self.party.outbox.drained();
        }
        self.party.halt.reason().map_or(Ok(()), |closed| Err(Ended(closed)))
    }
}

impl<M> Drop for Guarded<M> {
    fn drop(&mut self) {
        self.party.left(&self.driver);
    }
}

impl<M: StreamMuxer + Unpin> Guarded<M>
where
    M::Error: Into<Ended>,
{
    /// `outlet`: of a stream that this side opened.
    fn guarded(
        &self,
        opened: Poll<Result<M::Substream, M::Error>>,
        outlet: Option<&Arc<Outlet>>,
    ) -> Poll<Result<Counted<M::Substream>, Ended>> {
        let counted = |stream| Counted {
            stream,
            frames: Frames::new(&self.others),
            party: Arc::clone(&self.party),
            kept: 0,
            outlet: outlet.cloned(),
            written: None,
            writing: false,
        };
        opened.map(|stream| stream.map(counted).map_err(Into::into))
    }
}

impl<M: StreamMuxer + Unpin> StreamMuxer for Guarded<M>
where
    M::Substream: Unpin,
    M::Error: Into<Ended>,
{
    type Substream = Counted<M::Substream>;
    type Error = Ended;

    fn poll_inbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Self::Substream, Ended>> {
        self.check(context)?;
        let stream = Pin::new(&mut self.muxer).poll_inbound(context);
        self.guarded(stream, None)
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Self::Substream, Ended>> {
        self.check(context)?;
        let stream = Pin::new(&mut self.muxer).poll_outbound(context);
        self.guarded(stream, Some(&self.outlet))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        self.check(context)?;
        Pin::new(&mut self.muxer).poll_close(context).map_err(Into::into)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<StreamMuxerEvent, Ended>> {
        self.check(context)?;
        Pin::new(&mut self.muxer).poll(context).map_err(Into::into)
    }
}

/// A stream whose gossip is counted as it is read.
pub struct Counted<S> {
    stream: S,
    frames: Frames,
    party: Arc<Party>,
    kept: usize,
    outlet: Option<Arc<Outlet>>,
    /// What gossipsub writes, once both sides agreed on gossip on a stream that this side opened.
    written: Option<Frame>,
    /// It is not flushed yet.
    writing: bool,
}

impl<S> Counted<S> {
    fn keep(&mut self, kept: usize) {
        let before = std::mem::replace(&mut self.kept, kept);
        match kept.cmp(&before) {
            Ordering::Less => self.party.account.subtract(before - kept),
            Ordering::Equal => {}
            Ordering::Greater => self.party.account.add(kept - before),
        }
    }

    /// Both sides agreed on gossip, if they did.
    fn agree(&mut self) {
        if let Some(outlet) = &self.outlet
            && self.written.is_none()
            && self.frames.are_gossip()
        {
            outlet.open.fetch_add(1, Relaxed);
            self.written = Some(Frame::default());
        }
    }

    fn set_writing(&mut self, writing: bool) {
        if let (Some(outlet), true) = (&self.outlet, self.written.is_some() && writing != self.writing) {
            if writing {
                outlet.writing.fetch_add(1, Relaxed);
            } else {
                outlet.writing.fetch_sub(1, Relaxed);
            }
            self.writing = writing;
        }
    }
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.keep(0);
        self.set_writing(false);
        if let (Some(outlet), Some(_)) = (&self.outlet, &self.written) {
            outlet.open.fetch_sub(1, Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let cost = self.frames.advance(&buffer[..read]);
        self.party.chatted(cost);
        let requested = self.frames.requested();
        self.party.requested(&requested);
        self.agree();
        let kept = self.frames.kept();
        self.keep(kept);
        Poll::Ready(Ok(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.set_writing(true);
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        if let Some(frame) = &mut self.written {
            let sent = frame.written(&bytes[..written]);
            self.party.outbox.sent(sent, Instant::now());
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.set_writing(false);
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}
