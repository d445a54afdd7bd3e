//! A network: the handles in the caller's hands, and the thread that drives what is behind them.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::runtime::{Builder, Handle as RuntimeHandle, Runtime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use yamux::Mode;

use crate::connection::drive;
use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Event, Handle, Inbox};
use crate::limits::{Counters, Counts, Limits};
use crate::link::{Link, Shared};
use crate::negotiation::check_protocol;
use crate::slot::Slot;
use crate::table::StreamTable;
use crate::watched::PIPE;
use crate::websocket::{Address, Target, connect, run};

/// How long stopping waits for the thread. It never waits for peers, only for the host's resolver of names.
const STOPPING: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Member {
    link: Arc<Link>,
    pipe: Option<Arc<Pipe>>,
}

/// A pipe's far end, in the caller's hands.
#[derive(Debug)]
struct Pipe {
    end: Mutex<DuplexStream>,
    readable: Waker,
    writable: Waker,
    /// Cancelled once the caller has taken everything.
    drained: CancellationToken,
}

#[derive(Debug, Default)]
struct Members {
    connections: HashMap<Handle, Member>,
    /// Streams by handle, with the connection that each is on.
    streams: HashMap<Handle, Arc<Slot>>,
}

/// Where the connections' tasks run.
#[derive(Debug)]
enum Host {
    Own(Runtime),
    Callers(RuntimeHandle),
}

/// Many connections, driven on a thread of its own.
#[derive(Debug)]
pub struct Network {
    shared: Arc<Shared>,
    members: Mutex<Members>,
    /// None once it was stopped: even a handle keeps a runtime's file descriptors open.
    host: Mutex<Option<Host>>,
    process: u32,
}

impl Network {
    /// Start the thread.
    pub fn start(limits: Limits) -> Result<Self, Error> {
        let failure = |error: std::io::Error| Error::system("the network cannot be started", error);
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("gossiplog-net").enable_all().build().map_err(failure)?;
        Self::on(Host::Own(runtime), limits)
    }

    /// Create a network that runs on the caller's runtime.
    pub fn within(handle: &RuntimeHandle, limits: Limits) -> Result<Self, Error> {
        Self::on(Host::Callers(handle.clone()), limits)
    }

    fn on(host: Host, limits: Limits) -> Result<Self, Error> {
        let failure = |error: std::io::Error| Error::system("the network cannot be started", error);
        let shared = Shared::new(Arc::new(Inbox::new().map_err(failure)?), limits);
        Ok(Self {
            shared: Arc::new(shared),
            members: Mutex::default(),
            host: Mutex::new(Some(host)),
            process: std::process::id(),
        })
    }

    /// Fail after [`Self::stop`], and in a process that was forked from the one in which the network was started: its
    /// thread is not there, and its locks may be held for ever.
    fn check(&self) -> Result<(), Error> {
        let reason = if self.process != std::process::id() {
            "the network was started before this process was forked, and stayed behind: start another one here"
        } else if lock(&self.host).is_none() {
            "the network was stopped: start another one"
        } else {
            return Ok(());
        };
        Err(Error::Stopped(reason))
    }

    /// Return what an event loop waits for: readable when [`Self::poll`] has something.
    pub fn fileno(&self) -> Result<i64, Error> {
        self.check()?;
        let stopped = || Error::Stopped("the network is being stopped");
        self.shared.inbox.fileno().ok_or_else(stopped)
    }

    /// Return what happened since the last call, one event a handle.
    pub fn poll(&self) -> Result<Vec<Event>, Error> {
        self.check()?;
        let events = self.shared.inbox.take();
        for event in &events {
            if let Event::Stream { stream, connection, inbound: true, protocol: Some(_), .. } = event {
                let mut members = lock(&self.members);
                let slot = members.connections.get(connection).and_then(|member| member.link.stream(*stream));
                if let Some(slot) = slot {
                    members.streams.insert(*stream, slot);
                }
            }
        }
        Ok(events)
    }

    /// Return what was counted since the start.
    pub fn counts(&self) -> Result<Counts, Error> {
        self.check()?;
        Ok(self.shared.counters.read())
    }

    /// Return bytes that are kept for all peers now: see [`Limits::peer_bytes`].
    pub fn held(&self) -> Result<usize, Error> {
        self.check()?;
        Ok(self.shared.budget.held())
    }

    /// Set the bytes kept outside of connections, which count against [`Limits::total_bytes`].
    pub fn set_external_bytes(&self, bytes: usize) -> Result<(), Error> {
        self.check()?;
        self.shared.budget.set_other(bytes);
        Ok(())
    }

    /// Make a connection over a pipe whose far end is [`Self::feed`] and [`Self::drain`]. `protocols`: what the peer's
    /// streams may speak. `client`: this end is yamux's client; the other must not be.
    pub fn attach(&self, protocols: Vec<String>, client: bool) -> Result<Handle, Error> {
        let (near, far) = duplex(PIPE);
        let link = self.link(protocols)?;
        let inbox = &self.shared.inbox;
        let (readable, writable) = (inbox.readable(link.handle), inbox.writable(link.handle));
        let pipe = Arc::new(Pipe { end: Mutex::new(far), readable, writable, drained: CancellationToken::new() });
        self.enter(&link, Some(Arc::clone(&pipe)))?;
        Counters::add(&self.shared.counters.connections);
        let mode = if client { Mode::Client } else { Mode::Server };
        let driven = Arc::clone(&link);
        self.spawn(&link, async move {
            let closed = drive(&driven, near, mode).await;
            if closed.cause == Cause::Local {
                // A pipe holds what was written until somebody takes it to the peer.
                let _ = timeout(driven.shared.limits.closing, pipe.drained.cancelled()).await;
            }
            closed
        });
        Ok(link.handle)
    }

    /// Begin to connect to a WebSocket, as yamux's client.
    pub fn dial(&self, target: Target, protocols: Vec<String>) -> Result<Handle, Error> {
        let keepalive = target.keepalive;
        let address = target.check()?;
        let link = self.link(protocols)?;
        self.enter(&link, None)?;
        let dialled = Arc::clone(&link);
        self.spawn(&link, async move { speak(&dialled, address, keepalive).await });
        Ok(link.handle)
    }

    fn link(&self, protocols: Vec<String>) -> Result<Arc<Link>, Error> {
        self.check()?;
        protocols.iter().try_for_each(|protocol| check_protocol(protocol))?;
        Ok(Arc::new(Link::new(&self.shared, protocols)))
    }

    fn enter(&self, link: &Arc<Link>, pipe: Option<Arc<Pipe>>) -> Result<(), Error> {
        let mut members = lock(&self.members);
        let limit = self.shared.limits.connections;
        if members.connections.len() >= limit {
            self.shared.inbox.remove(link.handle);
            return Err(Error::ConnectionLimit { owner: "network", limit });
        }
        members.connections.insert(link.handle, Member { link: Arc::clone(link), pipe });
        Ok(())
    }

    fn spawn(&self, link: &Arc<Link>, driven: impl Future<Output = Closed> + Send + 'static) {
        let link = Arc::clone(link);
        let task = async move {
            let defect = |_| Closed::new(Cause::Internal, "a defect of gossiplog-net: the connection's task panicked");
            let closed = AssertUnwindSafe(driven).catch_unwind().await.unwrap_or_else(defect);
            link.finished(closed);
        };
        // Unlocked before it spawns: this wakes the runtime, or drops the task.
        let runtime = lock(&self.host).as_ref().map(|host| match host {
            Host::Own(runtime) => runtime.handle().clone(),
            Host::Callers(handle) => handle.clone(),
        });
        if let Some(runtime) = runtime {
            runtime.spawn(task);
        }
    }

    fn find(&self, connection: Handle) -> Result<(Arc<Link>, Option<Arc<Pipe>>), Error> {
        self.check()?;
        let members = lock(&self.members);
        let member = members.connections.get(&connection).ok_or(Error::UnknownConnection(connection))?;
        Ok((Arc::clone(&member.link), member.pipe.clone()))
    }

    fn pipe(&self, connection: Handle) -> Result<(Arc<Link>, Arc<Pipe>), Error> {
        let (link, pipe) = self.find(connection)?;
        let dialled =
            || Error::Invalid(format!("connection {connection} was dialled: nothing is fed to it or drained from it"));
        Ok((link, pipe.ok_or_else(dialled)?))
    }

    /// Give bytes that came from the peer, and says how many were taken: 0 if there is no room now.
    pub fn feed(&self, connection: Handle, bytes: &[u8]) -> Result<usize, Error> {
        let (link, pipe) = self.pipe(connection)?;
        let mut taken = 0;
        while taken < bytes.len() {
            let mut end = lock(&pipe.end);
            let written = Pin::new(&mut *end).poll_write(&mut Context::from_waker(&pipe.writable), &bytes[taken..]);
            match written {
                Poll::Ready(Ok(written)) => taken += written,
                // The connection's task has gone, or is going and will say why.
                Poll::Ready(Err(_)) => return link.closed().map_or(Ok(taken), |closed| Err(Error::Lost(closed))),
                Poll::Pending => break,
            }
        }
        Ok(taken)
    }

    /// Report that no more bytes come from the peer.
    pub fn feed_end(&self, connection: Handle) -> Result<(), Error> {
        let (_, pipe) = self.pipe(connection)?;
        let mut end = lock(&pipe.end);
        // A pipe shuts down at once and without failing.
        let _ = Pin::new(&mut *end).poll_shutdown(&mut Context::from_waker(&pipe.writable));
        Ok(())
    }

    /// Take bytes to send to the peer, as much as fits. None: nothing now. 0: there will be no more.
    pub fn drain(&self, connection: Handle, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let (_, pipe) = self.pipe(connection)?;
        let mut buffer = ReadBuf::new(buffer);
        let mut end = lock(&pipe.end);
        if Pin::new(&mut *end).poll_read(&mut Context::from_waker(&pipe.readable), &mut buffer).is_pending() {
            return Ok(None);
        }
        // Unlocked: this wakes the connection's task.
        drop(end);
        let read = buffer.filled().len();
        if read == 0 {
            pipe.drained.cancel();
        }
        Ok(Some(read))
    }

    /// Close everything at once and ends the thread. Nothing but this can be called afterwards.
    pub fn stop(&self) -> Result<(), Error> {
        match self.check() {
            Err(_) if self.process == std::process::id() => return Ok(()),
            checked => checked?,
        }
        let host = lock(&self.host).take();
        if let Some(Host::Own(runtime)) = host {
            runtime.shutdown_timeout(STOPPING);
        }
        self.forget();
        Ok(())
    }

    fn release_stream(&self, stream: Handle, finishing: bool) -> Result<(), Error> {
        self.check()?;
        let mut members = lock(&self.members);
        let Some(slot) = members.streams.remove(&stream) else { return Ok(()) };
        let link = members.connections.get(&slot.connection).map(|member| Arc::clone(&member.link));
        drop(members);
        if let Some(link) = link {
            link.release(stream, finishing);
        }
        Ok(())
    }

    fn forget(&self) {
        let members = std::mem::take(&mut *lock(&self.members));
        for member in members.connections.into_values() {
            member.link.forget(Closed::new(Cause::Local, "the network was stopped"));
        }
        self.shared.inbox.close();
    }
}

impl StreamTable for Network {
    fn close(&self, connection: Handle) -> Result<(), Error> {
        let (link, _) = self.find(connection)?;
        link.end(Closed::new(Cause::Local, "this side closed the connection"));
        Ok(())
    }

    fn release(&self, connection: Handle) -> Result<(), Error> {
        self.check()?;
        let mut members = lock(&self.members);
        let Some(member) = members.connections.remove(&connection) else { return Ok(()) };
        drop(members);
        let streams = member.link.forget(Closed::new(Cause::Local, "this side released the connection"));
        let mut members = lock(&self.members);
        let streams: Vec<_> = streams.iter().filter_map(|stream| members.streams.remove(stream)).collect();
        // Unlocked: the last reference to a stream may end it.
        drop(members);
        drop(streams);
        Ok(())
    }

    fn open(&self, connection: Handle, protocol: &str) -> Result<Handle, Error> {
        let (link, _) = self.find(connection)?;
        check_protocol(protocol)?;
        let (handle, slot) = link.open(protocol)?;
        lock(&self.members).streams.insert(handle, slot);
        Ok(handle)
    }

    fn slot(&self, stream: Handle) -> Result<Arc<Slot>, Error> {
        self.check()?;
        lock(&self.members).streams.get(&stream).cloned().ok_or(Error::UnknownStream(stream))
    }

    fn finish(&self, stream: Handle) -> Result<(), Error> {
        self.release_stream(stream, true)
    }

    fn reset(&self, stream: Handle) -> Result<(), Error> {
        self.release_stream(stream, false)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let host = self.host.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            if let Some(Host::Own(runtime)) = host {
                runtime.shutdown_background();
            }
            // A panic in a destructor would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.forget()));
        } else {
            // A forked process has neither the thread that this would wait for, nor the threads that held a lock then.
            let members = self.members.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((host, std::mem::take(members)));
        }
    }
}

/// Drive a dialled connection, from the first packet to the last.
async fn speak(link: &Arc<Link>, address: Address, keepalive: Duration) -> Closed {
    let (socket, hello) = match select(pin!(link.ledger.close_signal.wait()), pin!(connect(address))).await {
        Either::Left((closed, _)) | Either::Right((Err(closed), _)) => return closed,
        Either::Right((Ok(opened), _)) => opened,
    };
    Counters::add(&link.shared.counters.connections);
    link.shared.inbox.notify(link.handle, |news| {
        news.begun = Some(String::new());
        news.hello = hello;
    });
    run(link, socket, keepalive).await
}
