//! A connection's streams under the eyes of the peer's account: what all transports have in common.

use std::cmp::Ordering;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};
use futures::task::AtomicWaker;
use libp2p::StreamProtocol;
use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};

use crate::mesh::frames::Frames;
use crate::mesh::muxer::Ended;
use crate::mesh::party::Party;

/// A connection that ends when all of its peer's are to, and whose streams' gossip is counted.
pub struct Guarded<M> {
    muxer: M,
    party: Arc<Party>,
    driver: Arc<AtomicWaker>,
    others: Arc<[StreamProtocol]>,
}

impl<M> Guarded<M> {
    /// A connection to `party`. `others`: protocols that the caller speaks, in which no gossip is looked for.
    pub fn new(muxer: M, party: Arc<Party>, others: &Arc<[StreamProtocol]>) -> Self {
        Self { muxer, driver: party.driver(), party, others: Arc::clone(others) }
    }

    fn check(&self, context: &Context<'_>) -> Result<(), Ended> {
        self.driver.register(context.waker());
        self.party.halt.reason().map_or(Ok(()), |closed| Err(Ended(closed)))
    }
}

impl<M: StreamMuxer + Unpin> Guarded<M>
where
    M::Error: Into<Ended>,
{
    fn guarded(&self, opened: Poll<Result<M::Substream, M::Error>>) -> Poll<Result<Counted<M::Substream>, Ended>> {
        let counted =
            |stream| Counted { stream, frames: Frames::new(&self.others), party: Arc::clone(&self.party), kept: 0 };
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
        self.guarded(stream)
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Self::Substream, Ended>> {
        self.check(context)?;
        let stream = Pin::new(&mut self.muxer).poll_outbound(context);
        self.guarded(stream)
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
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let cost = self.frames.advance(&buffer[..read]);
        self.party.chatted(cost);
        let kept = self.frames.kept();
        self.keep(kept);
        Poll::Ready(Ok(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
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
