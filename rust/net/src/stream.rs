//! One stream, as yamux carries it and multistream-select negotiates on it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use multistream_select::Negotiated;
use tokio::time::timeout;

use crate::connection::Link;
use crate::error::Closed;
use crate::ledger::{Ending, Ledger};
use crate::limits::Permit;
use crate::slot::Carrier;

/// A yamux stream that tells an end from a reset, and a reset from a lost connection.
///
/// Reading and writing go straight into yamux's windows: there is no other buffer, and credit goes back to the peer
/// only as bytes are read.
#[derive(Debug)]
pub struct Muxed {
    stream: yamux::Stream,
    ledger: Arc<Ledger>,
    _permit: Permit,
}

impl Muxed {
    /// Wraps a stream that the ledger knows.
    pub fn new(stream: yamux::Stream, ledger: Arc<Ledger>, permit: Permit) -> Self {
        Self { stream, ledger, _permit: permit }
    }

    fn number(&self) -> u32 {
        self.stream.id().val()
    }

    /// Why a call on the stream failed, or found the end of its bytes.
    fn failure(&self) -> io::ErrorKind {
        match self.ledger.ending(self.number()) {
            Ending::Reset => io::ErrorKind::ConnectionReset,
            Ending::None | Ending::Finished => io::ErrorKind::ConnectionAborted,
        }
    }
}

impl AsyncRead for Muxed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer)).map_err(|_| self.failure())?;
        self.ledger.read(self.number(), read);
        if read == 0 && !buffer.is_empty() && self.ledger.ending(self.number()) != Ending::Finished {
            return Poll::Ready(Err(self.failure().into()));
        }
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for Muxed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(written.map_err(|_| self.failure().into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(flushed.map_err(|_| self.failure().into()))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = ready!(Pin::new(&mut self.stream).poll_close(context));
        Poll::Ready(closed.map_err(|_| self.failure().into()))
    }
}

impl Drop for Muxed {
    fn drop(&mut self) {
        self.ledger.dropped(self.number());
    }
}

/// Ends this side's direction and passes over what the peer still sends, until the peer ends its own; resets the stream
/// if that takes longer than `limit`.
pub async fn finish(mut carrier: Box<dyn Carrier>, limit: Duration) {
    let ended = async {
        let closed = poll_fn(|context| Pin::new(&mut carrier).poll_close(context)).await;
        let mut passed = vec![0; 4096];
        let mut read = |context: &mut Context<'_>| Pin::new(&mut carrier).poll_read(context, &mut passed);
        while closed.is_ok() && matches!(poll_fn(&mut read).await, Ok(1..)) {}
    };
    if timeout(limit, ended).await.is_err() {
        carrier.reset();
    }
}

/// A stream of a [`Link`], with its number on the connection.
#[derive(Debug)]
pub struct Agreed {
    bytes: Negotiated<Muxed>,
    number: u32,
    link: Arc<Link>,
}

impl Agreed {
    /// `number` is the stream's on the connection of `link`.
    pub fn new(bytes: Negotiated<Muxed>, number: u32, link: &Arc<Link>) -> Self {
        Self { bytes, number, link: Arc::clone(link) }
    }
}

impl Carrier for Agreed {
    fn closed(&self) -> Option<Closed> {
        self.link.closed()
    }

    fn end(&self, closed: Closed) {
        self.link.end(closed);
    }

    fn reset(self: Box<Self>) {
        self.link.ledger.reset(self.number);
    }
}

impl AsyncRead for Agreed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_read(context, buffer)
    }
}

impl AsyncWrite for Agreed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_close(context)
    }
}
