//! One stream: as multistream-select negotiates on it, and as the caller reads and writes it.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use futures::io::{AsyncRead, AsyncWrite};
use multistream_select::Negotiated;

use crate::connection::Link;
use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::Handle;
use crate::ledger::{Ending, Ledger};
use crate::limits::Permit;

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

/// A stream whose protocol is agreed on, with its number on the connection.
#[derive(Debug)]
pub struct Agreed {
    pub bytes: Box<Negotiated<Muxed>>,
    pub number: u32,
}

impl Agreed {
    /// Ends this side's direction and passes over what the peer still sends, until the peer ends its own.
    pub async fn finish(mut self) {
        let closed = poll_fn(|context| Pin::new(&mut self.bytes).poll_close(context)).await;
        let mut passed = vec![0; 4096];
        let mut read = |context: &mut Context<'_>| Pin::new(&mut self.bytes).poll_read(context, &mut passed);
        while closed.is_ok() && matches!(poll_fn(&mut read).await, Ok(1..)) {}
    }
}

#[derive(Debug)]
enum State {
    Opening,
    Open(Agreed),
    Gone,
}

/// A stream in the caller's hands.
#[derive(Debug)]
pub struct Slot {
    link: Arc<Link>,
    state: Mutex<State>,
    held: AtomicUsize,
    readable: Waker,
    writable: Waker,
}

impl Slot {
    /// For an outbound stream that is not open yet.
    pub fn opening(link: &Arc<Link>, handle: Handle) -> Self {
        let inbox = &link.shared.inbox;
        Self {
            link: Arc::clone(link),
            state: Mutex::new(State::Opening),
            held: AtomicUsize::new(0),
            readable: inbox.readable(handle),
            writable: inbox.writable(handle),
        }
    }

    /// For an inbound stream.
    pub fn open(link: &Arc<Link>, handle: Handle, agreed: Agreed) -> Self {
        let slot = Self::opening(link, handle);
        *lock(&slot.state) = State::Open(agreed);
        slot
    }

    /// The outbound stream is open. False: the caller let go of it meanwhile, and it is dropped, which resets it.
    pub fn opened(&self, agreed: Agreed) -> bool {
        let mut state = lock(&self.state);
        let wanted = !matches!(*state, State::Gone);
        if wanted {
            *state = State::Open(agreed);
        }
        wanted
    }

    /// Whether it is an outbound stream that is not open yet.
    pub fn is_opening(&self) -> bool {
        matches!(*lock(&self.state), State::Opening)
    }

    /// Whether the caller let go of it.
    pub fn gone(&self) -> bool {
        matches!(*lock(&self.state), State::Gone)
    }

    /// Takes what was received, as much as fits. None: nothing now. 0: the peer sent all it had to.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let mut state = lock(&self.state);
        let State::Open(agreed) = &mut *state else { return Err(not_open()) };
        let read = self.attempt(&self.readable, |context| Pin::new(&mut agreed.bytes).poll_read(context, buffer));
        read.transpose()
    }

    /// Gives bytes to send, and says how many were taken: 0 if there is no room now.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Error> {
        let mut state = lock(&self.state);
        let State::Open(agreed) = &mut *state else { return Err(not_open()) };
        let mut taken = 0;
        while taken < bytes.len() {
            let write = |context: &mut Context<'_>| Pin::new(&mut agreed.bytes).poll_write(context, &bytes[taken..]);
            match self.attempt(&self.writable, write) {
                Some(Ok(written)) => taken += written,
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Ok(taken)
    }

    /// The caller keeps so many bytes for it.
    pub fn hold(&self, bytes: usize) {
        let account = &self.link.ledger.account;
        let before = self.held.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            account.add(bytes - before);
        } else {
            account.subtract(before - bytes);
        }
    }

    /// Takes the stream out of the caller's hands: None if it was not open (yet, or any more).
    pub fn take(&self) -> Option<Agreed> {
        match std::mem::replace(&mut *lock(&self.state), State::Gone) {
            State::Open(agreed) => Some(agreed),
            State::Opening | State::Gone => None,
        }
    }

    /// The connection that it is on.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Polls once, on the caller's thread. None: nothing to do now, the waker will tell.
    fn attempt<T>(
        &self,
        waker: &Waker,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Option<Result<T, Error>> {
        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut Context::from_waker(waker))));
        match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(Ok(value))) => Some(Ok(value)),
            Ok(Poll::Ready(Err(error))) if error.kind() == io::ErrorKind::ConnectionReset => Some(Err(Error::Reset)),
            // Until the connection's task says why it ended, which wakes this stream, there is nothing to tell.
            Ok(Poll::Ready(Err(_))) => self.link.closed().map(|closed| Err(Error::Lost(closed))),
            Err(_) => {
                let closed = Closed::new(Cause::Internal, "a defect of gossiplog-net: a stream panicked");
                self.link.end(closed.clone());
                Some(Err(Error::Lost(closed)))
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.hold(0);
    }
}

fn not_open() -> Error {
    Error::Invalid("the stream is not open".to_owned())
}
