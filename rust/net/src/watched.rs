//! The bytes under a connection, as yamux reads and writes them, under the ledger's eyes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};

use crate::ledger::{HEADER, Header, Ledger, Scanner};

/// Bytes that a pipe holds in each direction: enough that the other end moves four of yamux's data frames
/// at a time.
pub const PIPE: usize = 64 * 1024;

/// What yamux's frames travel through.
#[derive(Debug)]
pub struct Watched<T> {
    pipe: T,
    ledger: Arc<Ledger>,
    input: Scanner,
    output: Scanner,
    /// A frame of our own, and how much of it is written.
    own: Option<([u8; HEADER], usize)>,
    /// Closing waits for the peer's end.
    lingers: bool,
    /// The last frame was flushed.
    flushed: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Watched<T> {
    /// Frames through `pipe`.
    pub fn new(pipe: T, ledger: Arc<Ledger>) -> Self {
        let (input, output) = Default::default();
        Self { pipe, ledger, input, output, own: None, lingers: false, flushed: false }
    }

    /// Frames through a `pipe` that ends at a socket. Closing discards what the peer still sends until it ends, too:
    /// the system resets a connection that is released with bytes unread, and the peer may lose what was written last.
    pub fn lingering(pipe: T, ledger: Arc<Ledger>) -> Self {
        Self { lingers: true, ..Self::new(pipe, ledger) }
    }

    fn check(&self) -> io::Result<()> {
        self.ledger.violation().map_or(Ok(()), |reason| Err(io::Error::other(reason)))
    }

    fn write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.pipe).poll_write(context, bytes);
        self.ledger.set_blocked(written.is_pending());
        match written {
            // Nobody takes it, but what was received before is still to be read, and then the end.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Poll::Ready(Ok(bytes.len())),
            written => written,
        }
    }

    /// Write the resets that wait, between two of yamux's frames.
    fn write_own(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.output.at_boundary() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let next = || self.ledger.next_reset().map(|stream| (Header::reset(stream), 0));
            let Some((frame, offset)) = self.own.take().or_else(next) else { return Poll::Ready(Ok(())) };
            self.own = Some((frame, offset));
            let written = ready!(self.write(context, &frame[offset..]))?;
            self.own = (offset + written < HEADER).then_some((frame, offset + written));
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Watched<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check()?;
        let read = ready!(Pin::new(&mut this.pipe).poll_read(context, buffer))?;
        this.input.advance(&buffer[..read], |header| this.ledger.received(header));
        this.check()?;
        Poll::Ready(Ok(read))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check()?;
        ready!(this.write_own(context))?;
        let header = bytes.first_chunk().filter(|_| this.output.at_boundary());
        if header.is_some_and(|header| Header::parse(header).accuses()) {
            // The peer is notified if there is room. Yamux would go on reading; the error ends the connection.
            this.ledger.accused();
            let _ = this.write(context, bytes);
            this.check()?;
        }
        let written = ready!(this.write(context, bytes))?;
        this.output.advance(&bytes[..written], |_| ());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.write_own(context))?;
        Pin::new(&mut this.pipe).poll_flush(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.flushed {
            // That fails if the peer has taken yamux's farewell, and has gone.
            let _ = ready!(Pin::new(&mut this.pipe).poll_flush(context));
            this.flushed = true;
        }
        if !this.ledger.ended() {
            let _ = ready!(Pin::new(&mut this.pipe).poll_close(context));
            this.ledger.end();
        }
        let mut discarded = [0; 4096];
        let mut read = || Pin::new(&mut this.pipe).poll_read(context, &mut discarded);
        while this.lingers && matches!(ready!(read()), Ok(1..)) {}
        Poll::Ready(Ok(()))
    }
}
