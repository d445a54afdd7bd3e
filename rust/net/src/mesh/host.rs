//! A host: the handles in the caller's hands, and the thread that drives what is behind them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use libp2p::core::Transport as _;
use libp2p::swarm;
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::{Swarm, TransportError};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::budget::Budget;
use crate::error::{Cause, Closed, Error, lock};
use crate::inbox::{Event, Handle, Inbox};
use crate::limits::Counters;
use crate::mesh::adapters::AdaptedTransport;
use crate::mesh::addresses::{Addresses, Gate};
use crate::mesh::behaviour::HostBehaviour;
use crate::mesh::config::{Config, LARGEST_MESSAGE, address, peer_id, peer_of};
use crate::mesh::dial_filter::DialFilter;
use crate::mesh::dialer::Dialer;
use crate::mesh::driver::{Command, Driver};
use crate::mesh::metrics::{HostCounts, HostMetrics};
use crate::mesh::notice::{Message, Notice, PeerInfo};
use crate::mesh::outbox::Queues;
use crate::mesh::peer::Peer;
use crate::mesh::peer_account::PeerAccounts;
use crate::mesh::peer_table::PeerTable;
use crate::mesh::pending::PendingMessages;
use crate::mesh::shared::Shared;
use crate::mesh::transport::{is_free, transport};
use crate::mesh::validation;
use crate::mesh::validator::Answer;
use crate::negotiation::check_protocol;
use crate::slot::Slot;
use crate::stream::finish;
use crate::table::StreamTable;

/// Bytes of messages that may wait until libp2p's task takes them.
const MOST_OUTGOING: usize = 16 << 20;

/// How long stopping waits for the thread. It never waits for peers, only for the host's resolver of names.
const STOPPING: Duration = Duration::from_secs(1);

/// The longest time between two ticks.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// What is there until the host is stopped.
#[derive(Debug)]
struct Running {
    runtime: Runtime,
    commands: UnboundedSender<Command>,
}

/// A host, driven on a thread of its own.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    closing: Duration,
    /// None once it was stopped: even a handle keeps a runtime's file descriptors open.
    running: Mutex<Option<Running>>,
    process: u32,
}

impl Host {
    /// Start the thread, and listens.
    pub fn start(config: Config) -> Result<Self, Error> {
        let config = config.check()?;
        let failure = |error: std::io::Error| Error::system("the host cannot be started", error);
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("gossiplog-host").enable_all().build().map_err(failure)?;
        let inbox = Arc::new(Inbox::new().map_err(failure)?);
        let counters = Arc::<Counters>::default();
        let budget = Arc::new(Budget::new(config.limits.peer_bytes, config.limits.total_bytes));
        let queues = Queues::new(config.limits.peer_bytes / 2, config.limits.total_bytes / 2);
        let accounts = Arc::new(PeerAccounts::new(&budget, config.control_bytes, queues));
        let (metrics, addresses) = (Arc::<HostMetrics>::default(), Arc::new(Addresses::new(config.per_address)));
        let peer_table = Arc::new(PeerTable::new(
            &inbox,
            &counters,
            &config.limits,
            &accounts,
            &addresses,
            &metrics,
            config.allowed.clone(),
        ));
        let peer_id = config.key.public().to_peer_id();

        let dial_filter = Arc::<DialFilter>::default();
        config.bootstrap.iter().for_each(|(address, _)| dial_filter.trust(address));
        let within = runtime.enter();
        let transport = transport(&config, &accounts, &counters, &dial_filter)?;
        let transport = AdaptedTransport::new(transport, Gate::new(&addresses, &metrics)).boxed();
        let parts = HostBehaviour::new(&config, &peer_table, &dial_filter)?;
        let mut swarm = Swarm::new(transport, parts, peer_id, swarm::Config::with_executor(spawning(&counters)));
        for address in config.listen {
            let refused = format!("the host cannot listen on {address}");
            is_free(&address).map_err(|error| Error::system(&refused, error))?;
            swarm.listen_on(address.clone()).map_err(|error| match error {
                TransportError::Other(error) => Error::system(&refused, error),
                error => Error::system(&refused, error),
            })?;
        }
        config.announce.into_iter().for_each(|address| swarm.add_external_address(address));
        drop(within);

        let own = inbox.add_connection();
        let shared = Arc::new(Shared {
            peer_table,
            dial_filter,
            pending: Arc::new(PendingMessages::new(config.validator.is_some())),
            validator: config.validator,
            recent: Arc::clone(&accounts.recent),
            queues: Arc::clone(&accounts.queues),
            notices: Mutex::default(),
            metrics,
            outgoing: AtomicUsize::new(0),
            inbox,
            counters,
            budget,
            failure: OnceLock::new(),
            over: AtomicBool::new(false),
            peer_id,
            own,
        });
        let (commands, received) = unbounded_channel();
        // The same list serves all hosts, those on it too.
        let others = config.bootstrap.into_iter().filter(|(_, remote)| *remote != Some(peer_id));
        let dialer = Dialer::new(others.collect(), Instant::now());
        let tick_interval = config.gossip.heartbeat_interval.min(TICK_INTERVAL);
        let kademlia = config.kademlia.as_ref();
        let driver = Driver::new(
            swarm,
            Arc::clone(&shared),
            received,
            &config.topic,
            kademlia,
            dialer,
            config.gossip.sizes_ttl(),
            tick_interval,
            config.idle_streams,
        );
        if let Some(validator) = &shared.validator {
            let (shared, validator, commands) = (Arc::clone(&shared), Arc::clone(validator), commands.clone());
            let validating = move || {
                if catch_unwind(AssertUnwindSafe(|| validation::run(&shared, &validator, &commands))).is_err() {
                    shared.fail("a defect of gossiplog-net: the validator of gossip panicked");
                }
            };
            thread::Builder::new().name("gossiplog-validator".to_owned()).spawn(validating).map_err(failure)?;
        }
        let monitored = Arc::clone(&shared);
        runtime.spawn(async move {
            if AssertUnwindSafe(driver.run()).catch_unwind().await.is_err() {
                monitored.fail("a defect of gossiplog-net: the host's task panicked");
            }
        });
        let running = Mutex::new(Some(Running { runtime, commands }));
        Ok(Self { shared, closing: config.limits.closing, running, process: std::process::id() })
    }

    /// Fail after [`Self::stop`], and in a process that was forked from the one in which the host was started: its
    /// thread is not there, and its locks may be held for ever.
    fn check(&self) -> Result<(), Error> {
        let reason = if self.process != std::process::id() {
            "the host was started before this process was forked, and stayed behind: start another one here"
        } else if lock(&self.running).is_none() {
            "the host was stopped: start another one"
        } else {
            return Ok(());
        };
        Err(Error::Stopped(reason))
    }

    /// Fail as [`Self::check`] does, and once the host's task has panicked.
    fn alive(&self) -> Result<(), Error> {
        self.check()?;
        self.shared.failure.get().map_or(Ok(()), |reason| Err(Error::Stopped(reason)))
    }

    fn command(&self, command: Command) {
        // Unlocked before it sends: this wakes the task.
        let commands = lock(&self.running).as_ref().map(|running| running.commands.clone());
        if let Some(commands) = commands {
            // Refused only by a task that has just panicked, which is reported.
            let _ = commands.send(command);
        }
    }

    /// Return this host's peer id.
    pub fn peer(&self) -> String {
        self.shared.peer_id.to_string()
    }

    /// Return the addresses that the host listens on.
    pub fn addresses(&self) -> Result<Vec<String>, Error> {
        self.check()?;
        Ok(self.shared.addresses())
    }

    /// Return what an event loop waits for: readable when [`Self::poll`] has something.
    pub fn fileno(&self) -> Result<i64, Error> {
        self.check()?;
        let stopped = || Error::Stopped("the host is being stopped");
        self.shared.inbox.fileno().ok_or_else(stopped)
    }

    /// Return what happened since the last call, one event a handle. Fails once all events were returned of a host
    /// whose task has panicked: nothing will happen again.
    pub fn poll(&self) -> Result<Vec<Notice>, Error> {
        self.check()?;
        // Before anything is taken: what was reported until then is among it.
        let over = self.shared.over.load(Ordering::Acquire);
        let (mut notices, mut own) = (Vec::new(), false);
        for (event, remote) in self.shared.peer_table.take() {
            if matches!(event, Event::Connection { connection, .. } if connection == self.shared.own) {
                own = true;
                continue;
            }
            if let (Event::Connection { connection, .. }, Some(remote)) = (&event, remote) {
                notices.push(Notice::Peer {
                    connection: *connection,
                    peer_id: remote.peer_id.to_string(),
                    address: remote.address.to_string(),
                    dialer: remote.dialer,
                });
            }
            notices.push(Notice::Event(event));
        }
        // Last: a peer is reported before its status.
        if own {
            self.shared.take_notices(&mut notices);
        }
        if over {
            if notices.is_empty() {
                self.alive()?;
            }
            self.shared.notify();
        }
        Ok(notices)
    }

    /// Return what was counted since the start.
    pub fn counts(&self) -> Result<HostCounts, Error> {
        self.check()?;
        Ok(self.shared.metrics.read(self.shared.counters.read()))
    }

    /// Return bytes that are kept for all peers now: see [`crate::Limits::peer_bytes`].
    pub fn held(&self) -> Result<usize, Error> {
        self.check()?;
        Ok(self.shared.budget.held())
    }

    /// Begin to connect to a multiaddr.
    pub fn dial(&self, text: &str) -> Result<Handle, Error> {
        self.alive()?;
        let address = address(text)?;
        if peer_of(&address) == Some(self.shared.peer_id) {
            return Err(Error::Invalid(format!("{address} leads to this host itself")));
        }
        self.shared.dial_filter.trust(&address);
        let options = DialOpts::from(address);
        let handle = self.shared.peer_table.dialled(options.connection_id())?;
        self.command(Command::Dial(options));
        Ok(handle)
    }

    /// Begin to connect to a peer by its id, where Kademlia has it. It is looked up where it is not known, which this
    /// call does not wait for: dial again.
    pub fn dial_peer(&self, text: &str) -> Result<Handle, Error> {
        self.alive()?;
        let peer_id = peer_id(text)?;
        if peer_id == self.shared.peer_id {
            return Err(Error::Invalid(format!("{peer_id} is this host itself")));
        }
        let options = DialOpts::peer_id(peer_id).build();
        let handle = self.shared.peer_table.dialled(options.connection_id())?;
        self.command(Command::DialPeer(peer_id, options));
        Ok(handle)
    }

    /// Close connections to a peer, and keep none until it is unblocked.
    pub fn block(&self, text: &str) -> Result<(), Error> {
        self.alive()?;
        let peer_id = peer_id(text)?;
        if peer_id == self.shared.peer_id {
            return Err(Error::Invalid(format!("{peer_id} is this host itself")));
        }
        if let Some(peer) = self.shared.peer_table.block(peer_id)? {
            self.command(Command::Close(peer_id, peer.close()));
        }
        Ok(())
    }

    /// Let a peer connect again, and dial it as any other. False: it was not blocked.
    pub fn unblock(&self, text: &str) -> Result<bool, Error> {
        self.alive()?;
        let peer_id = peer_id(text)?;
        let was_blocked = self.shared.peer_table.unblock(&peer_id);
        if was_blocked {
            self.command(Command::Forgive(peer_id));
        }
        Ok(was_blocked)
    }

    /// Publish a message to the peers that subscribed to the topic. False: there are none, or there is no room.
    pub fn publish(&self, data: Vec<u8>) -> Result<bool, Error> {
        self.alive()?;
        let length = data.len();
        if length > LARGEST_MESSAGE {
            return Err(Error::Invalid(format!("the message has {length} bytes; expected {LARGEST_MESSAGE} at most")));
        }
        let room = |outgoing: usize| Some(outgoing + length).filter(|outgoing| *outgoing <= MOST_OUTGOING);
        if !self.shared.peer_table.has_subscribers()
            || self.shared.outgoing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err()
        {
            return Ok(false);
        }
        self.command(Command::Publish(data));
        Ok(true)
    }

    /// Take the messages that wait.
    pub fn gossip(&self) -> Result<Vec<Message>, Error> {
        self.alive()?;
        let message = |(ticket, source, data)| {
            let connection = self.shared.peer_table.peer(&source).map_or(0, |peer| peer.handle);
            Message { ticket, connection, peer_id: source.to_string(), data }
        };
        Ok(self.shared.pending.take().into_iter().map(message).collect())
    }

    /// Answer messages by their tickets.
    pub fn validate(&self, answers: &[(u64, Answer)]) -> Result<(), Error> {
        self.alive()?;
        let answered = self.shared.pending.answer(answers);
        if !answered.is_empty() {
            self.command(Command::Answer(answered));
        }
        Ok(())
    }

    /// Return the connected peers, the oldest first.
    pub fn peers(&self) -> Result<Vec<PeerInfo>, Error> {
        self.check()?;
        let info = |peer: &Arc<Peer>| {
            let remote = peer.remote()?;
            Some(PeerInfo {
                connection: peer.handle,
                peer_id: remote.peer_id.to_string(),
                address: remote.address.to_string(),
                dialer: remote.dialer,
                status: peer.status(),
            })
        };
        Ok(self.shared.peer_table.peers().iter().filter_map(info).collect())
    }

    /// Close everything at once and ends the thread. Nothing but this can be called afterwards.
    pub fn stop(&self) -> Result<(), Error> {
        match self.check() {
            Err(_) if self.process == std::process::id() => return Ok(()),
            checked => checked?,
        }
        let running = lock(&self.running).take();
        if let Some(running) = running {
            running.runtime.shutdown_timeout(STOPPING);
        }
        self.forget();
        Ok(())
    }

    fn forget(&self) {
        self.shared.pending.close();
        self.shared.peer_table.forget("the host was stopped");
        self.shared.inbox.close();
    }
}

impl StreamTable for Host {
    fn close(&self, connection: Handle) -> Result<(), Error> {
        self.check()?;
        let peer = self.shared.peer_table.find(connection)?;
        match peer.remote() {
            Some(remote) => self.command(Command::Close(remote.peer_id, peer.close())),
            // It is not established yet, and is not wanted once it does.
            None => peer.finished(Closed::new(Cause::Local, "this side closed the connection")),
        }
        Ok(())
    }

    fn release(&self, connection: Handle) -> Result<(), Error> {
        self.check()?;
        self.shared.peer_table.release(connection);
        Ok(())
    }

    fn open(&self, connection: Handle, protocol: &str) -> Result<Handle, Error> {
        self.alive()?;
        check_protocol(protocol)?;
        let opening = self.shared.peer_table.open(connection, protocol)?;
        let handle = opening.handle();
        self.command(Command::Open(opening));
        Ok(handle)
    }

    fn slot(&self, stream: Handle) -> Result<Arc<Slot>, Error> {
        self.check()?;
        self.shared.peer_table.stream(stream)
    }

    fn finish(&self, stream: Handle) -> Result<(), Error> {
        self.check()?;
        let Some(carrier) = self.shared.peer_table.release_stream(stream) else { return Ok(()) };
        let runtime = lock(&self.running).as_ref().map(|running| running.runtime.handle().clone());
        if let Some(runtime) = runtime {
            runtime.spawn(finish(carrier, self.closing));
        }
        Ok(())
    }

    fn reset(&self, stream: Handle) -> Result<(), Error> {
        self.check()?;
        if let Some(carrier) = self.shared.peer_table.release_stream(stream) {
            carrier.reset();
        }
        Ok(())
    }
}

/// Run the tasks of libp2p's connections. One that panics is a connection that stalls, and is counted.
fn spawning(counters: &Arc<Counters>) -> impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + 'static {
    let counters = Arc::clone(counters);
    move |task| {
        let counters = Arc::clone(&counters);
        tokio::spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                Counters::add(&counters.defects);
            }
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            if let Some(running) = running {
                running.runtime.shutdown_background();
            }
            // A panic in a destructor would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.forget()));
        } else {
            // A forked process has neither the thread that this would wait for, nor the threads that held a lock then.
            std::mem::forget((running, Arc::clone(&self.shared)));
        }
    }
}

#[cfg(test)]
mod tests {
    use libp2p::gossipsub::MessageId;
    use libp2p::swarm::ConnectionId;

    use super::*;
    use crate::limits::Limits;
    use crate::mesh::config::GossipConfig;
    use crate::mesh::rate_limiter::CONTROL_BYTES;

    fn host(seed: u8) -> Host {
        let config = Config {
            identity: [seed; 32],
            topic: "com.example.test".to_owned(),
            protocols: vec!["/sync".to_owned()],
            listen: vec!["/ip4/127.0.0.1/tcp/0".to_owned()],
            bootstrap: Vec::new(),
            announce: Vec::new(),
            mdns: false,
            gossips: true,
            gossip: GossipConfig::default(),
            idle_streams: 1,
            validator: None,
            control_bytes: CONTROL_BYTES,
            limits: Limits::small(),
            per_address: None,
            allowed: Vec::new(),
        };
        Host::start(config).unwrap()
    }

    fn until<T>(host: &Host, mut found: impl FnMut(Result<Vec<Notice>, Error>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = found(host.poll()) {
                return value;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "waited in vain");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn closed(host: &Host) -> Closed {
        until(host, |notices| {
            notices.unwrap().into_iter().find_map(|notice| match notice {
                Notice::Event(Event::Connection { closed, .. }) => closed,
                _ => None,
            })
        })
    }

    #[test]
    fn a_host_whose_task_panicked_reports_it_and_refuses_calls() {
        let (first, second) = (host(1), host(2));
        let address = until(&first, |_| first.addresses().unwrap().pop());
        let connection = second.dial(&address).unwrap();
        until(&second, |_| (second.peers().unwrap().len() == 1).then_some(()));
        let origin = (MessageId::new(b"untaken"), first.shared.peer_id);
        assert!(second.shared.pending.push(origin, b"data".to_vec(), Instant::now()));
        second.command(Command::Panic);
        assert_eq!(closed(&second).cause, Cause::Internal);
        let failed = until(&second, |notices| notices.err());
        let reason = "a defect of gossiplog-net: the host's task panicked";
        assert_eq!(failed, Error::Stopped(reason));
        for result in [
            second.dial(&address).map(|_| ()),
            second.open(connection, "/sync").map(|_| ()),
            second.publish(Vec::new()).map(|_| ()),
            second.gossip().map(|_| ()),
            second.validate(&[]),
            second.poll().map(|_| ()),
        ] {
            assert_eq!(result, Err(failed.clone()));
        }
        assert_eq!((second.addresses().unwrap(), second.peers().unwrap().len()), (Vec::new(), 0));
        assert_eq!(second.counts().unwrap().network.defects, 1);
        assert_ne!(closed(&first).cause, Cause::Internal);
        second.release(connection).unwrap();
        second.stop().unwrap();
    }

    #[test]
    fn a_failed_host_reports_it_after_all_other_events() {
        let host = host(3);
        let listens = |notice: &Notice| matches!(notice, Notice::Host { .. });
        until(&host, |notices| notices.unwrap().iter().any(listens).then_some(()));
        let handle = host.shared.peer_table.dialled(ConnectionId::new_unchecked(0)).unwrap();
        host.shared.failure.set("a test's fault").unwrap();
        assert!(host.dial("/ip4/127.0.0.1/tcp/1").is_err());
        host.poll().unwrap();
        host.shared.fail("a test's fault");
        assert_eq!(closed(&host).cause, Cause::Internal);
        until(&host, |notices| notices.err());
        host.release(handle).unwrap();
    }
}
