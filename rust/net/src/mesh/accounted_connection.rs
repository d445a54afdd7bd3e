//! A connection whose memory and gossip are charged to the peer's account: what all transports have in common.

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

use crate::error::Closed;
use crate::mesh::frames::{Frame, Frames};
use crate::mesh::outbox::{ANSWER, Outlet};
use crate::mesh::peer_account::PeerAccount;

/// A connection that ends when all of its peer's are to, and whose streams' gossip is counted.
pub struct AccountedConnection<M> {
    muxer: M,
    account: Arc<PeerAccount>,
    waker: Arc<AtomicWaker>,
    others: Arc<[StreamProtocol]>,
    outlet: Arc<Outlet>,
}

impl<M> AccountedConnection<M> {
    /// Create a connection to `account`. `others`: protocols that the caller speaks, in which no gossip is looked for.
    pub fn new(muxer: M, account: Arc<PeerAccount>, others: &Arc<[StreamProtocol]>) -> Self {
        Self { muxer, waker: account.waker(), account, others: Arc::clone(others), outlet: Arc::default() }
    }

    fn check(&self, context: &Context<'_>) -> Result<(), Closed> {
        self.waker.register(context.waker());
        // libp2p asks the muxer once the handlers have nothing more to do: gossipsub's has emptied its queue.
        if self.outlet.is_idle() {
            self.account.outbox.drained();
        }
        self.account.close_signal.reason().map_or(Ok(()), Err)
    }
}

impl<M> Drop for AccountedConnection<M> {
    fn drop(&mut self) {
        self.account.left(&self.waker);
    }
}

impl<M: StreamMuxer + Unpin> AccountedConnection<M>
where
    M::Error: Into<Closed>,
{
    /// Wrap a stream. `outlet`: of a stream that this side opened.
    fn accounted(
        &self,
        opened: Poll<Result<M::Substream, M::Error>>,
        outlet: Option<&Arc<Outlet>>,
    ) -> Poll<Result<AccountedStream<M::Substream>, Closed>> {
        let counted = |stream| AccountedStream {
            stream,
            frames: Frames::new(&self.others),
            account: Arc::clone(&self.account),
            kept: 0,
            outlet: outlet.cloned(),
            written: None,
            writing: None,
        };
        opened.map(|stream| stream.map(counted).map_err(Into::into))
    }
}

impl<M: StreamMuxer + Unpin> StreamMuxer for AccountedConnection<M>
where
    M::Substream: Unpin,
    M::Error: Into<Closed>,
{
    type Substream = AccountedStream<M::Substream>;
    type Error = Closed;

    fn poll_inbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Self::Substream, Closed>> {
        self.check(context)?;
        let stream = Pin::new(&mut self.muxer).poll_inbound(context);
        self.accounted(stream, None)
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Self::Substream, Closed>> {
        self.check(context)?;
        let stream = Pin::new(&mut self.muxer).poll_outbound(context);
        self.accounted(stream, Some(&self.outlet))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        self.check(context)?;
        Pin::new(&mut self.muxer).poll_close(context).map_err(Into::into)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<StreamMuxerEvent, Closed>> {
        self.check(context)?;
        Pin::new(&mut self.muxer).poll(context).map_err(Into::into)
    }
}

/// A stream whose gossip is counted as it is read.
pub struct AccountedStream<S> {
    stream: S,
    frames: Frames,
    account: Arc<PeerAccount>,
    kept: usize,
    outlet: Option<Arc<Outlet>>,
    /// What gossipsub writes, once both sides agreed on gossip on a stream that this side opened.
    written: Option<Frame>,
    /// Bytes that it has to write, until all is flushed.
    writing: Option<usize>,
}

impl<S> AccountedStream<S> {
    fn keep(&mut self, kept: usize) {
        let before = std::mem::replace(&mut self.kept, kept);
        match kept.cmp(&before) {
            Ordering::Less => self.account.memory.subtract(before - kept),
            Ordering::Equal => {}
            Ordering::Greater => self.account.memory.add(kept - before),
        }
    }

    /// Register the stream with its outlet once both sides have agreed on gossip.
    fn agree(&mut self) {
        if let Some(outlet) = &self.outlet
            && self.written.is_none()
            && self.frames.are_gossip()
        {
            outlet.open.fetch_add(1, Relaxed);
            self.written = Some(Frame::default());
        }
    }

    /// Record how many bytes gossipsub has to write here; None once all is flushed.
    fn set_writing(&mut self, writing: Option<usize>) {
        let (Some(outlet), true) = (&self.outlet, self.written.is_some()) else { return };
        let before = std::mem::replace(&mut self.writing, writing);
        self.account.outbox.write(before.unwrap_or(0), writing.unwrap_or(0));
        match (before, writing) {
            (None, Some(_)) => drop(outlet.writing.fetch_add(1, Relaxed)),
            (Some(_), None) => drop(outlet.writing.fetch_sub(1, Relaxed)),
            _ => {}
        }
    }
}

impl<S> Drop for AccountedStream<S> {
    fn drop(&mut self) {
        self.keep(0);
        self.set_writing(None);
        if let (Some(outlet), Some(_)) = (&self.outlet, &self.written) {
            outlet.open.fetch_sub(1, Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AccountedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let cost = self.frames.advance(&buffer[..read]);
        self.account.spend_control(cost);
        let summary = self.frames.take_control();
        self.account.received_control(&summary);
        self.agree();
        let kept = self.frames.kept();
        self.keep(kept);
        Poll::Ready(Ok(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AccountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // The codec offers all that it has.
        self.set_writing(Some(bytes.len()));
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.set_writing(Some(bytes.len() - written));
        if let Some(frame) = &mut self.written {
            let (sent, answers) = frame.written(&bytes[..written]);
            self.account.outbox.sent(sent + answers * ANSWER, Instant::now());
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.set_writing(None);
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::task::Waker;

    use super::*;
    use crate::budget::Budget;
    use crate::error::lock;
    use crate::mesh::outbox::Queues;
    use crate::mesh::peer_account::PeerAccounts;

    impl From<Infallible> for Closed {
        fn from(never: Infallible) -> Self {
            match never {}
        }
    }

    /// A stream on which the peer has agreed on gossip, and takes so many bytes more.
    struct Pipe {
        agreed: &'static [u8],
        room: Arc<Mutex<usize>>,
    }

    impl AsyncRead for Pipe {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
            let (read, rest) = self.agreed.split_at(self.agreed.len().min(buffer.len()));
            buffer[..read.len()].copy_from_slice(read);
            self.agreed = rest;
            Poll::Ready(Ok(read.len()))
        }
    }

    impl AsyncWrite for Pipe {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let mut room = lock(&self.room);
            let taken = bytes.len().min(*room);
            *room -= taken;
            if taken == 0 { Poll::Pending } else { Poll::Ready(Ok(taken)) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A connection whose streams are all of that kind.
    struct Pipes(Arc<Mutex<usize>>);

    impl StreamMuxer for Pipes {
        type Substream = Pipe;
        type Error = Infallible;

        fn poll_inbound(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<Pipe, Infallible>> {
            Poll::Pending
        }

        fn poll_outbound(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<Pipe, Infallible>> {
            let agreed = b"\x13/multistream/1.0.0\n\x0f/meshsub/1.1.0\n";
            Poll::Ready(Ok(Pipe { agreed, room: Arc::clone(&self.0) }))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<StreamMuxerEvent, Infallible>> {
            Poll::Pending
        }
    }

    /// One connection of a peer, as gossipsub's handler uses it.
    struct Connection {
        connection: AccountedConnection<Pipes>,
        stream: AccountedStream<Pipe>,
        room: Arc<Mutex<usize>>,
    }

    impl Connection {
        fn open(account: &Arc<PeerAccount>) -> Self {
            let (room, others): (_, Arc<[StreamProtocol]>) = (Arc::default(), Arc::new([]));
            let mut connection = AccountedConnection::new(Pipes(Arc::clone(&room)), Arc::clone(account), &others);
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(Ok(mut stream)) = Pin::new(&mut connection).poll_outbound(&mut context) else {
                panic!("no stream")
            };
            assert!(Pin::new(&mut stream).poll_read(&mut context, &mut [0; 100]).is_ready());
            Self { connection, stream, room }
        }

        /// Write as much of `bytes` as the peer takes, of which there is room for `room`; return what is left.
        fn write<'a>(&mut self, mut bytes: &'a [u8], room: usize) -> &'a [u8] {
            *lock(&self.room) = room;
            let mut context = Context::from_waker(Waker::noop());
            while !bytes.is_empty() {
                let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(&mut context, bytes) else {
                    return bytes;
                };
                bytes = &bytes[written.unwrap()..];
            }
            assert!(Pin::new(&mut self.stream).poll_flush(&mut context).is_ready());
            bytes
        }

        /// Poll the connection as libp2p does once the handler has nothing more to do.
        fn rest(&mut self) {
            assert!(Pin::new(&mut self.connection).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }

    #[test]
    fn what_each_connection_of_a_peer_writes_counts_until_it_is_written() {
        let (budget, now) = (Arc::new(Budget::new(100_000, 100_000)), Instant::now());
        let account = PeerAccounts::new(&budget, 1000, Queues::new(50_000, 50_000)).enter(libp2p::PeerId::random());
        let mut connections: Vec<_> = (0..4).map(|_| Connection::open(&account)).collect();
        // Of a frame of 1,003 bytes each begins with, the peer takes 103.
        let frame = [&[0xe9, 0x07, 0x12, 0xe6, 0x07][..], &[0; 998]].concat();
        let mut left = Vec::new();
        for connection in &mut connections[..3] {
            account.outbox.charge(998, now);
            left.push(connection.write(&frame, 103));
        }
        // A message that gossipsub did not send after all.
        account.outbox.charge(500, now);
        connections.iter_mut().for_each(Connection::rest);
        assert_eq!((account.outbox.queued(), budget.held()), (3 * 900, 3 * 900));
        assert_eq!(connections[0].write(left[0], 1000), b"");
        connections.iter_mut().for_each(Connection::rest);
        assert_eq!(account.outbox.queued(), 2 * 900);
        drop(connections.remove(1));
        connections[0].rest();
        assert_eq!(account.outbox.queued(), 900);
        assert_eq!(connections[1].write(left[2], 1000), b"");
        connections[1].rest();
        assert_eq!((account.outbox.queued(), budget.held()), (0, 0));
    }
}
