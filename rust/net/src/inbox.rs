//! What became ready since the caller last asked.
//!
//! A set, not a queue: each handle is in it once, with everything that happened to it. So it is no larger than the
//! number of handles, which the limits bound, however rarely it is polled.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::mem;
use std::sync::Arc;
use std::task::{Wake as TaskWake, Waker};

use crate::error::{Closed, lock};
use crate::sync::Mutex;
use crate::wake::Wake;

/// Names a connection or a stream. Never used again.
pub type Handle = u64;

/// A peer's failed attempt on a connection, which goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// What [`crate::Counts`] counts it as.
    pub kind: &'static str,
    /// How often, since the last [`crate::Network::poll`].
    pub count: u64,
    /// What it did, the last time, as a clause for people.
    pub text: String,
}

/// What happened to one handle since the last [`crate::Network::poll`]. `readable` and `writable` say that a call that
/// found nothing to do is worth trying again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// News of a connection; bytes to drain (readable) or room to feed (writable), if it is over a pipe.
    Connection {
        /// The connection.
        connection: Handle,
        /// A dialled connection is established.
        established: bool,
        /// With that: what a hub said of itself, names and values of headers.
        hello: Vec<(String, String)>,
        /// There are bytes to drain.
        readable: bool,
        /// There is room to feed.
        writable: bool,
        /// The peer's failed attempts, one entry a kind.
        incidents: Vec<Incident>,
        /// It ended.
        closed: Option<Closed>,
    },
    /// News of a stream.
    Stream {
        /// The stream.
        stream: Handle,
        /// The connection that it is on.
        connection: Handle,
        /// Both sides agreed on this protocol.
        protocol: Option<String>,
        /// The peer opened the stream.
        inbound: bool,
        /// There are bytes to read, or the end.
        readable: bool,
        /// There is room to write.
        writable: bool,
        /// It could not be opened.
        failed: Option<Closed>,
    },
}

/// What is recorded of a handle between two calls of [`Inbox::take`].
#[derive(Debug, Default)]
pub struct News {
    /// A connection was established (with an empty name), or a protocol was agreed on.
    pub begun: Option<String>,
    /// What a hub said of itself when a connection was established.
    pub hello: Vec<(String, String)>,
    /// Worth reading again.
    pub readable: bool,
    /// Worth writing again.
    pub writable: bool,
    /// The peer's failed attempts on a connection by kind: how often, and what it did the last time.
    pub incidents: BTreeMap<&'static str, (u64, String)>,
    /// A connection ended, or a stream could not be opened.
    pub ended: Option<Closed>,
}

impl News {
    /// Record a failed attempt of the peer.
    pub fn incident(&mut self, kind: &'static str, text: String) {
        let (count, last) = self.incidents.entry(kind).or_default();
        *count += 1;
        *last = text;
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Connection,
    Stream { connection: Handle, inbound: bool },
}

#[derive(Debug)]
struct State {
    /// None once it was closed.
    wake: Option<Wake>,
    last: Handle,
    members: HashMap<Handle, (Kind, News)>,
    // Ordered: a connection comes before its streams, whose handles are larger.
    ready: BTreeSet<Handle>,
}

/// The set, and what wakes the caller.
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<State>,
}

impl Inbox {
    /// Create an empty one.
    pub fn new() -> io::Result<Self> {
        let state = State { wake: Some(Wake::new()?), last: 0, members: HashMap::new(), ready: BTreeSet::new() };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Return a file descriptor that is readable while [`Self::take`] has something. None: it was closed.
    pub fn fileno(&self) -> Option<i64> {
        lock(&self.state).wake.as_ref().map(Wake::fileno)
    }

    /// Release every handle, and of the sockets.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.wake = None;
        state.members.clear();
        state.ready.clear();
    }

    /// Return a handle for a new connection.
    pub fn add_connection(&self) -> Handle {
        self.add(Kind::Connection)
    }

    /// Return a handle for a new stream.
    pub fn add_stream(&self, connection: Handle, inbound: bool) -> Handle {
        self.add(Kind::Stream { connection, inbound })
    }

    fn add(&self, kind: Kind) -> Handle {
        let mut state = lock(&self.state);
        state.last += 1;
        let handle = state.last;
        state.members.insert(handle, (kind, News::default()));
        handle
    }

    /// Release a handle: no more events come from it.
    pub fn remove(&self, handle: Handle) {
        let mut state = lock(&self.state);
        state.members.remove(&handle);
        state.ready.remove(&handle);
    }

    /// Record news of a handle, and wake the caller. Does nothing for a handle that was released.
    pub fn notify(&self, handle: Handle, record: impl FnOnce(&mut News)) {
        let mut state = lock(&self.state);
        let State { wake, members, ready, .. } = &mut *state;
        if let Some((_, news)) = members.get_mut(&handle) {
            record(news);
            if ready.is_empty()
                && let Some(wake) = wake
            {
                wake.notify();
            }
            ready.insert(handle);
        }
    }

    /// Take everything that is ready.
    pub fn take(&self) -> Vec<Event> {
        let mut state = lock(&self.state);
        let State { wake, members, ready, .. } = &mut *state;
        if let Some(wake) = wake {
            wake.clear();
        }
        let event = |handle| {
            let (kind, news) = members.get_mut(&handle)?;
            let News { begun, hello, readable, writable, incidents, ended } = mem::take(news);
            let incident = |(kind, (count, text))| Incident { kind, count, text };
            Some(match *kind {
                Kind::Connection => Event::Connection {
                    connection: handle,
                    established: begun.is_some(),
                    hello,
                    readable,
                    writable,
                    incidents: incidents.into_iter().map(incident).collect(),
                    closed: ended,
                },
                Kind::Stream { connection, inbound } => Event::Stream {
                    stream: handle,
                    connection,
                    protocol: begun,
                    inbound,
                    readable,
                    writable,
                    failed: ended,
                },
            })
        };
        mem::take(ready).into_iter().filter_map(event).collect()
    }

    /// Return a waker that says `handle` is worth reading again.
    pub fn readable(self: &Arc<Self>, handle: Handle) -> Waker {
        Arc::new(Readable(Arc::clone(self), handle)).into()
    }

    /// Return a waker that says `handle` is worth writing again.
    pub fn writable(self: &Arc<Self>, handle: Handle) -> Waker {
        Arc::new(Writable(Arc::clone(self), handle)).into()
    }
}

struct Readable(Arc<Inbox>, Handle);

impl TaskWake for Readable {
    fn wake(self: Arc<Self>) {
        self.0.notify(self.1, |news| news.readable = true);
    }
}

struct Writable(Arc<Inbox>, Handle);

impl TaskWake for Writable {
    fn wake(self: Arc<Self>) {
        self.0.notify(self.1, |news| news.writable = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_one_handle_coalesce() {
        let inbox = Arc::new(Inbox::new().unwrap());
        let connection = inbox.add_connection();
        let stream = inbox.add_stream(connection, true);
        for _ in 0..1000 {
            inbox.readable(stream).wake();
        }
        inbox.writable(stream).wake();
        inbox.notify(stream, |news| news.begun = Some("/a".to_owned()));
        let expected = Event::Stream {
            stream,
            connection,
            protocol: Some("/a".to_owned()),
            inbound: true,
            readable: true,
            writable: true,
            failed: None,
        };
        assert_eq!(inbox.take(), [expected]);
        assert_eq!(inbox.take(), []);
    }

    #[test]
    fn a_released_handle_has_no_events() {
        let inbox = Arc::new(Inbox::new().unwrap());
        let connection = inbox.add_connection();
        let late = inbox.readable(connection);
        inbox.notify(connection, |news| news.writable = true);
        inbox.remove(connection);
        late.wake();
        assert_eq!(inbox.take(), []);
        assert_ne!(inbox.add_connection(), connection);
    }
}
