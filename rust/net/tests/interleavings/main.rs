//! What threads share about peers (the budget, their accounts, the connections of their addresses, streams in the
//! caller's hands) in thousands of interleavings.
//!
//! The sources are compiled once more, with a module `sync` whose locks and atomics are Shuttle's: it decides at each
//! of them which thread goes on. A thread that locks what it holds, which a waker does that is woken under a lock, and
//! threads that wait for ever, fail the test. `make interleavings` tries more.

#![allow(clippy::panic, clippy::unwrap_used, dead_code, missing_docs, unused_imports)]

#[path = "../../src/budget.rs"]
mod budget;
#[path = "../../src/close_signal.rs"]
mod close_signal;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/inbox.rs"]
mod inbox;
#[path = "../../src/limits.rs"]
mod limits;
#[path = "../../src/mesh"]
mod mesh {
    pub mod adapters;
    pub mod addresses;
    pub mod backpressure;
    pub mod metrics;
    pub mod outbox;
    pub mod peer;
    pub mod peer_account;
    pub mod peer_table;
    pub mod rate_limiter;
    pub mod scope;
}
#[path = "../../src/slot.rs"]
mod slot;
#[path = "../../src/wake.rs"]
mod wake;

/// What threads share values by, under Shuttle's control.
mod sync {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use shuttle::sync::{Mutex, MutexGuard};

    /// What `std::sync::OnceLock` does, where threads may be interrupted before and after.
    #[derive(Debug)]
    pub struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        turn: Mutex<()>,
    }

    impl<T> Default for OnceLock<T> {
        fn default() -> Self {
            Self { value: std::sync::OnceLock::new(), turn: Mutex::default() }
        }
    }

    impl<T> OnceLock<T> {
        pub fn set(&self, value: T) -> Result<(), T> {
            let _turn = self.turn.lock().unwrap();
            self.value.set(value)
        }

        pub fn get(&self) -> Option<&T> {
            let _turn = self.turn.lock().unwrap();
            self.value.get()
        }
    }

    /// What `futures::task::AtomicWaker` does, where threads may be interrupted in between.
    #[derive(Debug, Default)]
    pub struct AtomicWaker(Mutex<Option<std::task::Waker>>);

    impl AtomicWaker {
        pub fn register(&self, waker: &std::task::Waker) {
            let before = self.0.lock().unwrap().replace(waker.clone());
            drop(before);
        }

        pub fn wake(&self) {
            let waker = self.0.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

use std::collections::{HashSet, VecDeque};
use std::future::{Pending, pending};
use std::io;
use std::iter::repeat_n;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{Either, select};
use futures::io::{AsyncRead, AsyncWrite};
use libp2p::core::transport::{DialOpts, ListenerId, Transport, TransportError, TransportEvent};
use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};
use shuttle::Runner;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread::spawn;

use crate::budget::{Account, Budget};
use crate::close_signal::CloseSignal;
use crate::error::{Cause, Closed, lock};
use crate::inbox::Inbox;
use crate::limits::{Limits, Permit};
use crate::mesh::adapters::AdaptedTransport;
use crate::mesh::addresses::{Addresses, Gate, MOST_PENDING, source};
use crate::mesh::outbox::{ControlSummary, Queues};
use crate::mesh::peer::Remote;
use crate::mesh::peer_account::PeerAccounts;
use crate::mesh::peer_table::PeerTable;
use crate::slot::{Slot, StreamTransport};
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// Interleavings of each test, if nothing else is said: what takes some seconds.
const USUAL: usize = 400;

/// What the scheduler's choices are drawn from.
const SEED: u64 = 0;

/// How often the scheduler changes its mind in an interleaving, beside those that are random throughout.
const DEPTH: usize = 3;

fn main() {
    let count = std::env::var("INTERLEAVINGS").map_or(USUAL, |count| count.parse().unwrap());
    let tests: [(&str, fn()); 9] = [
        ("shares_of_a_budget_are_given_back", shares_of_a_budget_are_given_back),
        ("the_end_of_a_connection_is_not_missed", the_end_of_a_connection_is_not_missed),
        ("accounts_of_peers_are_given_back", accounts_of_peers_are_given_back),
        ("what_connections_of_a_peer_write_is_counted_once", what_connections_of_a_peer_write_is_counted_once),
        ("what_is_held_for_a_stream_is_given_back", what_is_held_for_a_stream_is_given_back),
        ("places_are_limited_and_given_back", places_are_limited_and_given_back),
        ("connections_of_an_address_are_limited_and_given_back", connections_of_an_address_are_limited_and_given_back),
        (
            "connections_of_an_address_are_given_back_when_the_host_fails",
            connections_of_an_address_are_given_back_when_the_host_fails,
        ),
        (
            "the_oldest_handshake_of_an_address_gives_way_and_none_is_left",
            the_oldest_handshake_of_an_address_gives_way_and_none_is_left,
        ),
    ];
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let mut config = shuttle::Config::new();
        // Of orderings: they are relaxed where values stand alone.
        config.silence_warnings = true;
        Runner::new(RandomScheduler::new_from_seed(SEED, count), config.clone()).run(test);
        Runner::new(PctScheduler::new_from_seed(SEED, DEPTH, count), config).run(test);
        println!("test {name} ... ok");
    }
}

fn closed(reason: &str) -> Closed {
    Closed::new(Cause::Local, reason)
}

/// What a task may do that is woken: look at the budget, and let go of what it has.
struct Woken<T> {
    budget: Arc<Budget>,
    owned: Mutex<Option<T>>,
}

impl<T: Send + 'static> Woken<T> {
    fn waker(budget: &Arc<Budget>, owned: T) -> Waker {
        Arc::new(Self { budget: Arc::clone(budget), owned: Mutex::new(Some(owned)) }).into()
    }
}

impl<T: Send + 'static> Wake for Woken<T> {
    fn wake(self: Arc<Self>) {
        self.budget.held();
        let owned = lock(&self.owned).take();
        drop(owned);
    }
}

fn shares_of_a_budget_are_given_back() {
    let budget = Arc::new(Budget::new(10, 20));
    let peers = (0..3).map(|number| {
        let (budget, close_signal) = (Arc::clone(&budget), Arc::<CloseSignal>::default());
        let account = Arc::new(Account::open(&budget, &close_signal));
        close_signal.task.register(&Woken::waker(&budget, Arc::clone(&account)));
        spawn(move || {
            for bytes in [4, 5 + number] {
                account.add(bytes);
                assert!(budget.held() <= 20);
                account.subtract(bytes);
            }
            account.add(9 + number);
            (account, close_signal)
        })
    });
    let peers: Vec<_> = peers.collect();
    budget.set_other(3);
    assert!(budget.held() <= 20);
    let peers: Vec<_> = peers.into_iter().map(|peer| peer.join().unwrap()).collect();
    // Two of them are too much for one, or for all with what is kept elsewhere.
    assert!(peers.iter().filter(|(_, close_signal)| close_signal.reason().is_none()).count() <= 1);
    assert!(peers[2].1.reason().is_some());
    // Those that stay would keep their accounts by what is woken at their end.
    peers.iter().for_each(|(_, close_signal)| close_signal.end(closed("a test")));
    drop(peers);
    assert_eq!(budget.held(), 3);
}

fn the_end_of_a_connection_is_not_missed() {
    let close_signal = Arc::<CloseSignal>::default();
    let enders = ["first", "second"].map(|reason| {
        let close_signal = Arc::clone(&close_signal);
        spawn(move || close_signal.end(closed(reason)))
    });
    // Deadlocks if nobody wakes it.
    let reason = block_on(close_signal.wait());
    enders.into_iter().for_each(|ender| ender.join().unwrap());
    assert_eq!(close_signal.reason(), Some(reason));
}

fn accounts_of_peers_are_given_back() {
    let budget = Arc::new(Budget::new(60, 100));
    let accounts = Arc::new(PeerAccounts::new(&budget, 1000, Queues::new(50, 80)));
    let peers = [PeerId::random(), PeerId::random()];
    let connections = [0, 0, 1].map(|peer| {
        let (accounts, peer, budget) = (Arc::clone(&accounts), peers[peer], Arc::clone(&budget));
        spawn(move || {
            let (account, now) = (accounts.enter(peer), Instant::now());
            let waker = account.waker();
            waker.register(&Woken::waker(&budget, Arc::clone(&account)));
            account.memory.add(20);
            account.outbox.charge(20, now);
            assert!(budget.held() <= 100);
            account.received_control(&ControlSummary { grafts: 1, ..ControlSummary::default() });
            account.outbox.sent(15, now);
            account.memory.subtract(20);
            account.left(&waker);
            // Or the waker would keep the peer's account.
            waker.wake();
        })
    });
    let known = accounts.enter(peers[0]);
    known.close_signal.end(closed("the caller let go of it"));
    known.wake();
    assert!(!known.is_open());
    drop(known);
    connections.into_iter().for_each(|connection| connection.join().unwrap());
    assert_eq!(budget.held(), 0);
    assert!(accounts.queues.fit(80));
}

fn what_connections_of_a_peer_write_is_counted_once() {
    let budget = Arc::new(Budget::new(1000, 1000));
    let accounts = PeerAccounts::new(&budget, 1000, Queues::new(1000, 1000));
    let account = accounts.enter(PeerId::random());
    let now = Instant::now();
    let writers = [30, 50].map(|bytes| {
        let (account, waker) = (Arc::clone(&account), account.waker());
        spawn(move || {
            account.outbox.charge(bytes, now);
            account.outbox.write(0, bytes);
            account.outbox.sent(10, now);
            account.outbox.write(bytes, bytes - 10);
            account.outbox.sent(bytes - 10, now);
            account.outbox.write(bytes - 10, 0);
            account.outbox.drained();
            account.left(&waker);
        })
    });
    assert!(budget.held() <= 80);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!((account.outbox.queued(), budget.held()), (0, 0));
    assert!(accounts.queues.fit(1000));
}

/// The bytes of a stream: none.
#[derive(Debug)]
struct Nothing(Arc<AtomicUsize>);

impl Drop for Nothing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AsyncRead for Nothing {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }
}

impl AsyncWrite for Nothing {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl StreamTransport for Nothing {
    fn closed(&self) -> Option<Closed> {
        None
    }

    fn end(&self, _: Closed) {}

    fn reset(self: Box<Self>) {}
}

fn what_is_held_for_a_stream_is_given_back() {
    let (budget, inbox) = (Arc::new(Budget::new(1000, 1000)), Arc::new(Inbox::new().unwrap()));
    let account = Arc::new(Account::open(&budget, &Arc::default()));
    let connection = inbox.add_connection();
    let handle = inbox.add_stream(connection, false);
    let slot = Arc::new(Slot::opening(&inbox, connection, handle, &account));
    let carriers = Arc::new(AtomicUsize::new(1));
    let holders = [5, 0, 7].map(|bytes| {
        let slot = Arc::clone(&slot);
        spawn(move || {
            slot.reserve_memory(bytes);
            let _ = slot.read(&mut [0; 10]);
            let _ = slot.write(&[0; 10]);
        })
    });
    let opener = {
        let (slot, inbox, carriers) = (Arc::clone(&slot), Arc::clone(&inbox), Arc::clone(&carriers));
        spawn(move || {
            if slot.opened(Box::new(Nothing(carriers))) {
                inbox.notify(handle, |news| news.begun = Some(String::new()));
            }
        })
    };
    drop(slot.take());
    inbox.remove(handle);
    holders.into_iter().for_each(|holder| holder.join().unwrap());
    opener.join().unwrap();
    // The last value that any thread set.
    assert!([0, 5, 7].contains(&budget.held()), "{}", budget.held());
    drop(slot);
    assert_eq!((budget.held(), carriers.load(Ordering::SeqCst)), (0, 0));
}

fn places_are_limited_and_given_back() {
    let (used, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let users = [(); 4].map(|()| {
        let (used, most) = (Arc::clone(&used), Arc::clone(&most));
        spawn(move || {
            if let Some(permit) = Permit::take(&used, 2) {
                assert!(most.fetch_add(1, Ordering::SeqCst) < 2);
                most.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        })
    });
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(used.load(Ordering::SeqCst), 0);
}

/// Two connections from an address at most, and three peers in all.
fn peer_table(addresses: &Arc<Addresses>, allowed: Option<HashSet<PeerId>>) -> Arc<PeerTable> {
    let budget = Arc::new(Budget::new(1000, 1000));
    let accounts = Arc::new(PeerAccounts::new(&budget, 1000, Queues::new(1000, 1000)));
    let limits = Limits {
        connections: 3,
        inbound_streams: 8,
        outbound_streams: 8,
        peer_bytes: 1000,
        total_bytes: 1000,
        negotiation: Duration::from_secs(10),
        closing: Duration::from_secs(1),
    };
    let inbox = Arc::new(Inbox::new().unwrap());
    Arc::new(PeerTable::new(&inbox, &Arc::default(), &limits, &accounts, addresses, &Arc::default(), allowed))
}

fn remote(peer_id: PeerId, dialer: bool) -> Remote {
    Remote { peer_id, address: "/ip4/10.0.0.1/tcp/1".parse().unwrap(), dialer }
}

/// Fail if connections of the address in [`remote`] are counted: none is left.
fn assert_none_is_counted(addresses: &Arc<Addresses>) {
    let address = source(&remote(PeerId::random(), false).address).unwrap();
    let first = addresses.enter(address);
    assert!(!addresses.is_full(address));
    let second = addresses.enter(address);
    assert!(addresses.is_full(address));
    drop((first, second));
}

fn connections_of_an_address_are_limited_and_given_back() {
    let addresses = Arc::new(Addresses::new(Some(2)));
    let peers: Vec<_> = (0..5).map(|_| PeerId::random()).collect();
    // The last one is denied.
    let table = peer_table(&addresses, Some(peers[..4].iter().copied().collect()));
    let dialled = table.dialled(ConnectionId::new_unchecked(0)).unwrap();
    let open = Arc::<AtomicUsize>::default();
    let connections = peers.iter().enumerate().map(|(number, &peer_id)| {
        let (table, open, connection) = (Arc::clone(&table), Arc::clone(&open), ConnectionId::new_unchecked(number));
        spawn(move || {
            let is_asked_for = number == 0;
            if table.connected(connection, remote(peer_id, is_asked_for)).is_err() {
                return;
            }
            if !is_asked_for {
                assert!(open.fetch_add(1, Ordering::SeqCst) < 2);
                if let Some(peer) = table.peer(&peer_id).filter(|_| number % 2 == 0) {
                    table.release(peer.handle);
                }
                open.fetch_sub(1, Ordering::SeqCst);
            }
            table.disconnected(peer_id, connection, &closed("it ended"));
            // What is over gives nothing back again.
            table.disconnected(peer_id, connection, &closed("it ended twice"));
        })
    });
    let connections: Vec<_> = connections.collect();
    table.release(dialled);
    connections.into_iter().for_each(|connection| connection.join().unwrap());
    assert_eq!(table.connections(), 0);
    assert_none_is_counted(&addresses);
}

fn connections_of_an_address_are_given_back_when_the_host_fails() {
    let addresses = Arc::new(Addresses::new(Some(2)));
    let table = peer_table(&addresses, None);
    let connections = (0..3).map(|number| {
        let (table, peer_id, connection) = (Arc::clone(&table), PeerId::random(), ConnectionId::new_unchecked(number));
        spawn(move || {
            if table.connected(connection, remote(peer_id, false)).is_ok() {
                table.disconnected(peer_id, connection, &closed("it ended"));
            }
        })
    });
    let connections: Vec<_> = connections.collect();
    table.fail(&closed("a defect"));
    table.forget("the host is stopped");
    connections.into_iter().for_each(|connection| connection.join().unwrap());
    assert_none_is_counted(&addresses);
}

/// Listens where connections come from these addresses, none of which gets any further.
struct Incoming(VecDeque<Multiaddr>);

impl Transport for Incoming {
    type Output = ();
    type Error = io::Error;
    type ListenerUpgrade = Pending<io::Result<()>>;
    type Dial = Pending<io::Result<()>>;

    fn listen_on(&mut self, _: ListenerId, _: Multiaddr) -> Result<(), TransportError<io::Error>> {
        Ok(())
    }

    fn remove_listener(&mut self, _: ListenerId) -> bool {
        false
    }

    fn dial(&mut self, address: Multiaddr, _: DialOpts) -> Result<Self::Dial, TransportError<io::Error>> {
        Err(TransportError::MultiaddrNotSupported(address))
    }

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<TransportEvent<Self::ListenerUpgrade, io::Error>> {
        let Some(send_back_addr) = self.0.pop_front() else { return Poll::Pending };
        let (listener_id, local_addr) = (ListenerId::next(), Multiaddr::empty());
        Poll::Ready(TransportEvent::Incoming { listener_id, upgrade: pending(), local_addr, send_back_addr })
    }
}

fn the_oldest_handshake_of_an_address_gives_way_and_none_is_left() {
    const GREEDY: usize = 3;
    let one_each = |count, network| (0..count).map(move |host| format!("/ip4/10.0.{network}.{host}/tcp/1"));
    let many = |count, network| repeat_n(format!("/ip4/10.0.{network}.1/tcp/1"), count);
    let queue = one_each(MOST_PENDING - GREEDY, 0).chain(many(GREEDY, 1)).chain(one_each(2, 2));
    let queue = queue.chain(many(MOST_PENDING + 1, 3)).map(|address| address.parse().unwrap());
    let gate = Gate::new(&Arc::new(Addresses::new(None)), &Arc::default());
    let mut gate = AdaptedTransport::new(Incoming(queue.collect()), gate);
    let mut next = || match Pin::new(&mut gate).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(TransportEvent::Incoming { upgrade, .. }) => upgrade,
        _ => panic!("no connection comes"),
    };
    let mut others: Vec<_> = (0..MOST_PENDING - GREEDY).map(|_| next()).collect();
    let (mut first, second, third) = (next(), next(), next());
    // A task may drop what it is woken for at once.
    let woken = Arc::new(Woken { budget: Arc::new(Budget::new(1, 1)), owned: Mutex::default() });
    assert!(first.poll_unpin(&mut Context::from_waker(&Arc::clone(&woken).into())).is_pending());
    *lock(&woken.owned) = Some(first);
    let over = Arc::<CloseSignal>::default();
    let waiting = {
        let over = Arc::clone(&over);
        spawn(move || {
            let over = pin!(over.wait());
            let ended = block_on(select(second, over));
            matches!(ended, Either::Left((Err(_), _)) | Either::Right(_))
        })
    };
    let leaving = others.pop();
    let leaving = spawn(move || drop(leaving));
    let newcomers = [next(), next()];
    over.end(closed("all have come"));
    // It is the oldest of those of the address with the most: one gives way for two that come, or two do.
    assert!(lock(&woken.owned).is_none());
    assert!(waiting.join().unwrap());
    leaving.join().unwrap();
    let mut stay: Vec<_> = others.into_iter().chain([third]).chain(newcomers).collect();
    assert!(stay.iter_mut().all(|handshake| handshake.now_or_never().is_none()));
    drop(stay);
    let mut later: Vec<_> = (0..MOST_PENDING).map(|_| next()).collect();
    assert!((&mut later[0]).now_or_never().is_none());
    later.push(next());
    assert!((&mut later[0]).now_or_never().is_some());
}
