//! A stream of yamux, with what the ledger knows of it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::io::{AsyncRead, AsyncWrite};

use crate::ledger::{Ending, Ledger};
use crate::limits::Permit;

/// A yamux stream that distinguishes an end, a reset and a lost connection.
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
    /// Wrap a stream that the ledger knows.
    pub fn new(stream: yamux::Stream, ledger: Arc<Ledger>, permit: Permit) -> Self {
        Self { stream, ledger, _permit: permit }
    }

    fn number(&self) -> u32 {
        self.stream.id().val()
    }

    /// Return why a call on the stream failed, or found the end of its bytes.
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
