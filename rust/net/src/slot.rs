//! One stream, as the caller reads and writes it.

use std::fmt::Debug;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::io::{AsyncRead, AsyncWrite};

use crate::budget::Account;
use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Handle, Inbox};
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// The bytes of a stream whose protocol is agreed on, and the connection under them.
///
/// A reset by the peer fails reading and writing with `ConnectionReset`; whatever else they fail with is the
/// connection's end.
pub trait StreamTransport: AsyncRead + AsyncWrite + Debug + Send + Unpin {
    /// Return how the connection under the stream ended, once it has.
    fn closed(&self) -> Option<Closed>;

    /// End the connection under the stream.
    fn end(&self, closed: Closed);

    /// Release the stream at once: the peer sees a reset, even if this side has ended its direction.
    fn reset(self: Box<Self>);
}

#[derive(Debug)]
enum State {
    Opening,
    Open(Box<dyn StreamTransport>),
    Gone,
}

/// A stream in the caller's hands.
#[derive(Debug)]
pub struct Slot {
    /// The connection's handle.
    pub connection: Handle,
    account: Arc<Account>,
    state: Mutex<State>,
    held: AtomicUsize,
    readable: Waker,
    writable: Waker,
}

impl Slot {
    /// Create the slot of a stream that is not open yet. `account`: the peer's.
    pub fn opening(inbox: &Arc<Inbox>, connection: Handle, handle: Handle, account: &Arc<Account>) -> Self {
        Self {
            connection,
            account: Arc::clone(account),
            state: Mutex::new(State::Opening),
            held: AtomicUsize::new(0),
            readable: inbox.readable(handle),
            writable: inbox.writable(handle),
        }
    }

    /// Give the slot its open stream. False: the caller has released it meanwhile, and the stream is dropped, which
    /// resets it.
    pub fn opened(&self, carrier: Box<dyn StreamTransport>) -> bool {
        let mut state = lock(&self.state);
        let wanted = !matches!(*state, State::Gone);
        if wanted {
            *state = State::Open(carrier);
        }
        wanted
    }

    /// Return whether it is an outbound stream that is not open yet.
    pub fn is_opening(&self) -> bool {
        matches!(*lock(&self.state), State::Opening)
    }

    /// Return whether the caller released it.
    pub fn gone(&self) -> bool {
        matches!(*lock(&self.state), State::Gone)
    }

    /// Take what was received, as much as fits. None: nothing now. 0: the peer sent all it had to.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let mut state = lock(&self.state);
        let State::Open(carrier) = &mut *state else { return Err(Error::NotOpen) };
        attempt(carrier, &self.readable, |carrier, context| Pin::new(carrier).poll_read(context, buffer)).transpose()
    }

    /// Give bytes to send, and says how many were taken: 0 if there is no room now.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Error> {
        let mut state = lock(&self.state);
        let State::Open(carrier) = &mut *state else { return Err(Error::NotOpen) };
        let mut taken = 0;
        while taken < bytes.len() {
            match attempt(carrier, &self.writable, |carrier, context| {
                Pin::new(carrier).poll_write(context, &bytes[taken..])
            }) {
                Some(Ok(written)) => taken += written,
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Ok(taken)
    }

    /// Set how many bytes the caller keeps for it.
    pub fn reserve_memory(&self, bytes: usize) {
        let mut before = self.held.load(Ordering::Relaxed);
        loop {
            // Counted before others can see it: or it would be given back by one of them before it is taken.
            let more = bytes.saturating_sub(before);
            if more > 0 {
                self.account.add(more);
            }
            match self.held.compare_exchange(before, bytes, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break self.account.subtract(before.saturating_sub(bytes)),
                Err(now) => {
                    self.account.subtract(more);
                    before = now;
                }
            }
        }
    }

    /// Take the stream out of the caller's hands: None if it is not open: not yet, or no longer.
    pub fn take(&self) -> Option<Box<dyn StreamTransport>> {
        match std::mem::replace(&mut *lock(&self.state), State::Gone) {
            State::Open(carrier) => Some(carrier),
            State::Opening | State::Gone => None,
        }
    }
}

/// Poll once, on the caller's thread. None: nothing to do now, the waker will notify.
fn attempt<T>(
    carrier: &mut Box<dyn StreamTransport>,
    waker: &Waker,
    poll: impl FnOnce(&mut Box<dyn StreamTransport>, &mut Context<'_>) -> Poll<io::Result<T>>,
) -> Option<Result<T, Error>> {
    let polled = catch_unwind(AssertUnwindSafe(|| poll(carrier, &mut Context::from_waker(waker))));
    match polled {
        Ok(Poll::Pending) => None,
        Ok(Poll::Ready(Ok(value))) => Some(Ok(value)),
        Ok(Poll::Ready(Err(error))) if error.kind() == io::ErrorKind::ConnectionReset => Some(Err(Error::Reset)),
        // Until the connection's task says why it ended, which wakes this stream, there is nothing to report.
        Ok(Poll::Ready(Err(_))) => carrier.closed().map(|closed| Err(Error::Lost(closed))),
        Err(_) => {
            let closed = Closed::new(Cause::Internal, "a defect of gossiplog-net: a stream panicked");
            carrier.end(closed.clone());
            Some(Err(Error::Lost(closed)))
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.reserve_memory(0);
    }
}
