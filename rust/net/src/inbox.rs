//! What became ready since the caller last asked.
//!
//! A set, not a queue: each handle is in it once, with everything that happened to it. So it is no larger than the
//! number of handles, which the limits bound, however long nobody asks.

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

/// What a peer did on a connection that came to nothing, and left the connection standing.
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
        /// A dialled connection stands.
        established: bool,
        /// With that: what a hub said of itself, names and values of headers.
        hello: Vec<(String, String)>,
        /// There are bytes to drain.
        readable: bool,
        /// There is room to feed.
        writable: bool,
        /// What the peer did in vain, one entry a kind.
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
    /// What the peer did in vain on a connection: how often, and the last time, by kind.
    pub incidents: BTreeMap<&'static str, (u64, String)>,
    /// A connection ended, or a stream could not be opened.
    pub ended: Option<Closed>,
}

impl News {
    /// The peer did something in vain.
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
    /// None once nobody asks any more.
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
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        let state = State { wake: Some(Wake::new()?), last: 0, members: HashMap::new(), ready: BTreeSet::new() };
        Ok(Self { state: Mutex::new(state) })
    }

    /// Readable while [`Self::take`] has something. None: it was closed.
    pub fn fileno(&self) -> Option<i64> {
        lock(&self.state).wake.as_ref().map(Wake::fileno)
    }

    /// Lets go of every handle, and of the sockets.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.wake = None;
        state.members.clear();
        state.ready.clear();
    }

    /// A handle for a new connection.
    pub fn add_connection(&self) -> Handle {
        self.add(Kind::Connection)
    }

    /// A handle for a new stream.
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

    /// Lets go of a handle: nothing is heard of it any more.
    pub fn remove(&self, handle: Handle) {
        let mut state = lock(&self.state);
        state.members.remove(&handle);
        state.ready.remove(&handle);
    }

    /// Records news of a handle, and wakes the caller. Does nothing for a handle that was let go.
    pub fn tell(&self, handle: Handle, record: impl FnOnce(&mut News)) {
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

    /// Everything that is ready, once.
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

    /// A waker that says `handle` is worth reading again.
    pub fn readable(self: &Arc<Self>, handle: Handle) -> Waker {
        Arc::new(Readable(Arc::clone(self), handle)).into()
    }

    /// A waker that says `handle` is worth writing again.
    pub fn writable(self: &Arc<Self>, handle: Handle) -> Waker {
        Arc::new(Writable(Arc::clone(self), handle)).into()
    }
}

struct Readable(Arc<Inbox>, Handle);

impl TaskWake for Readable {
    fn wake(self: Arc<Self>) {
        self.0.tell(self.1, |news| news.readable = true);
    }
}

struct Writable(Arc<Inbox>, Handle);

impl TaskWake for Writable {
    fn wake(self: Arc<Self>) {
        self.0.tell(self.1, |news| news.writable = true);
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
        inbox.tell(stream, |news| news.begun = Some("/a".to_owned()));
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
    fn a_handle_that_was_let_go_is_silent() {
        let inbox = Arc::new(Inbox::new().unwrap());
        let connection = inbox.add_connection();
        let late = inbox.readable(connection);
        inbox.tell(connection, |news| news.writable = true);
        inbox.remove(connection);
        late.wake();
        assert_eq!(inbox.take(), []);
        assert_ne!(inbox.add_connection(), connection);
    }
}
