//! A peer's account over all its connections: its memory, its rates, and the signal that ends them all.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use libp2p::PeerId;

use crate::budget::{Account, Budget};
use crate::close_signal::CloseSignal;
use crate::error::{Cause, Closed, lock};
use crate::mesh::outbox::{ControlSummary, Id, Outbox, Queues, Recent};
use crate::mesh::rate_limiter::{CONTROL_PERIOD, RateLimiter};
use crate::sync::{AtomicBool, AtomicWaker, Mutex, Ordering};

/// Subscriptions and their ends that a peer may send at once, and messages of identify. A sixteenth of them comes
/// back in each second.
const MAX_SUBSCRIPTION_CHANGES: usize = 64;
const MAX_IDENTIFICATIONS: usize = 256;

/// For how long a peer may be slow while others are not, in microseconds, and the time in which that comes back.
pub const MAX_SLOWNESS: usize = 2_000_000;
pub const SLOWNESS_PERIOD: Duration = Duration::from_secs(60);

type Table = Mutex<HashMap<PeerId, Weak<PeerAccount>>>;

/// What the connections to one peer share.
#[derive(Debug)]
pub struct PeerAccount {
    /// Bytes that are kept for the peer.
    pub memory: Arc<Account>,
    /// The signal that ends its connections.
    pub close_signal: Arc<CloseSignal>,
    /// What waits in gossip's queue for the peer.
    pub outbox: Outbox,
    peer_id: PeerId,
    table: Arc<Table>,
    recent: Arc<Recent>,
    wakers: Mutex<Vec<Weak<AtomicWaker>>>,
    control_bytes: usize,
    control: Mutex<RateLimiter>,
    subscription_changes: Mutex<RateLimiter>,
    identifications: Mutex<RateLimiter>,
    /// For how long it may take less than comes, in microseconds.
    slowness: Mutex<RateLimiter>,
    suspended: AtomicBool,
}

impl PeerAccount {
    fn new(accounts: &PeerAccounts, peer_id: PeerId) -> Arc<Self> {
        let close_signal = Arc::<CloseSignal>::default();
        let memory = Arc::new(Account::open(&accounts.budget, &close_signal));
        let now = Instant::now();
        let account = Arc::new(Self {
            outbox: Outbox::new(&memory, &accounts.queues, now),
            memory,
            close_signal,
            peer_id,
            table: Arc::clone(&accounts.table),
            recent: Arc::clone(&accounts.recent),
            wakers: Mutex::default(),
            control_bytes: accounts.control_bytes,
            control: Mutex::new(RateLimiter::new(accounts.control_bytes, CONTROL_PERIOD, now)),
            subscription_changes: Mutex::new(RateLimiter::new(MAX_SUBSCRIPTION_CHANGES, CONTROL_PERIOD, now)),
            identifications: Mutex::new(RateLimiter::new(MAX_IDENTIFICATIONS, CONTROL_PERIOD, now)),
            slowness: Mutex::new(RateLimiter::new(MAX_SLOWNESS, SLOWNESS_PERIOD, now)),
            suspended: AtomicBool::new(false),
        });
        // Once is enough: only the first reason counts.
        account.close_signal.task.register(&Waker::from(Arc::new(Alarm(Arc::downgrade(&account)))));
        account
    }

    /// Add a connection; return the place for its task's waker, which is woken when the connections are to end.
    pub fn waker(&self) -> Arc<AtomicWaker> {
        let waker = Arc::default();
        let mut wakers = lock(&self.wakers);
        wakers.retain(|waker| waker.strong_count() > 0);
        wakers.push(Arc::downgrade(&waker));
        waker
    }

    /// Remove the connection whose task has `waker`. With the last one goes what is queued for the peer.
    pub fn left(&self, waker: &Arc<AtomicWaker>) {
        let mut wakers = lock(&self.wakers);
        wakers.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(waker));
        let last = wakers.is_empty();
        drop(wakers);
        if last {
            self.outbox.clear();
        }
    }

    /// Wake the tasks of all connections.
    pub fn wake(&self) {
        // Unlocked: a woken task may open or end a connection of the peer.
        let wakers: Vec<_> = lock(&self.wakers).iter().filter_map(Weak::upgrade).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Return whether its connections are not to end.
    pub fn is_open(self: &Arc<Self>) -> bool {
        self.close_signal.reason().is_none()
    }

    /// Charge what the peer said by gossip beside messages. End its connections if that is too much.
    pub fn spend_control(&self, cost: usize) {
        if cost > 0 && !lock(&self.control).spend(cost, Instant::now()) {
            let what = "about the mesh, subscriptions and ids of messages";
            let reason =
                format!("the peer said more by gossip than it may {what}: {} bytes at once", self.control_bytes);
            self.close_signal.end(Closed::new(Cause::Violation, reason));
        }
    }

    /// Count a change of the peer's subscription. End its connections if there are too many.
    pub fn changed_subscription(&self, now: Instant) {
        if !lock(&self.subscription_changes).spend(1, now) {
            let reason =
                format!("the peer changed its subscription more than {MAX_SUBSCRIPTION_CHANGES} times at once");
            self.close_signal.end(Closed::new(Cause::Violation, reason));
        }
    }

    /// Count a message of identify. End the peer's connections if there are too many.
    pub fn was_identified(&self, now: Instant) {
        if !lock(&self.identifications).spend(1, now) {
            let reason = format!("the peer said who it is more than {MAX_IDENTIFICATIONS} times at once");
            self.close_signal.end(Closed::new(Cause::Violation, reason));
        }
    }

    /// Charge the time for which the peer was slow while others were not. Suspend it from gossip if that is too much.
    pub fn was_slow(&self, time: Duration, now: Instant) {
        let microseconds = usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
        // Not further, or it would be long before the peer is given messages again.
        if !self.is_suspended() && !lock(&self.slowness).spend(microseconds, now) {
            self.suspended.store(true, Ordering::Relaxed);
        }
    }

    /// Return whether the peer is suspended from gossip because it was slow for too long: nobody waits for it.
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Relaxed)
    }

    /// End the suspension once the peer has half of its allowance again and takes what is queued.
    pub fn resume(&self, now: Instant) {
        if self.is_suspended()
            && lock(&self.slowness).remaining(now) >= MAX_SLOWNESS / 2
            && self.outbox.slow_for(now).is_none()
        {
            self.suspended.store(false, Ordering::Relaxed);
        }
    }

    /// Charge the answers to the peer's control messages. End its connections if too much is queued, or if what it
    /// named cannot be the id of a message.
    pub fn received_control(&self, summary: &ControlSummary) {
        if let Some(length) = summary.malformed {
            let reason =
                format!("the peer named a message by {length} bytes; ids of messages have {}", size_of::<Id>());
            self.close_signal.end(Closed::new(Cause::Violation, reason));
        }
        let bytes = self.recent.queued_for(summary);
        if bytes > 0 && !self.outbox.fits(bytes) {
            self.close_signal.end(self.outbox.overflow());
        } else {
            self.outbox.charge(bytes, Instant::now());
        }
    }
}

impl Drop for PeerAccount {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        // Another may have taken its place.
        if table.get(&self.peer_id).is_some_and(|account| account.strong_count() == 0) {
            table.remove(&self.peer_id);
        }
    }
}

struct Alarm(Weak<PeerAccount>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(account) = self.0.upgrade() {
            account.wake();
        }
    }
}

/// The peers that have connections, or had one that is not released.
#[derive(Debug)]
pub struct PeerAccounts {
    /// Sizes of the messages that peers may ask for.
    pub recent: Arc<Recent>,
    /// What of gossip may wait for peers.
    pub queues: Arc<Queues>,
    budget: Arc<Budget>,
    control_bytes: usize,
    table: Arc<Table>,
}

impl PeerAccounts {
    /// Create an empty table. All share in `budget`. `control_bytes`: see [`crate::Config`].
    pub fn new(budget: &Arc<Budget>, control_bytes: usize, queues: Queues) -> Self {
        let (recent, queues, table) = (Arc::default(), Arc::new(queues), Arc::default());
        Self { recent, queues, budget: Arc::clone(budget), control_bytes, table }
    }

    /// Return the account for one more connection of a peer: a new one if the connections of the known one are to end.
    pub fn enter(&self, peer_id: PeerId) -> Arc<PeerAccount> {
        let mut table = lock(&self.table);
        let known = table.get(&peer_id).and_then(Weak::upgrade);
        let entered = match &known {
            Some(account) if account.close_signal.reason().is_none() => Arc::clone(account),
            _ => {
                let account = PeerAccount::new(self, peer_id);
                table.insert(peer_id, Arc::downgrade(&account));
                account
            }
        };
        // Before `known`: the last reference to an account locks the table.
        drop(table);
        entered
    }

    /// Return how many peers there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        lock(&self.table).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> PeerAccounts {
        PeerAccounts::new(&Arc::new(Budget::new(1000, 1000)), 1000, Queues::new(500, 500))
    }

    #[test]
    fn connections_to_one_peer_share_an_account_until_they_end() {
        let budget = Arc::new(Budget::new(100, 1000));
        let accounts = PeerAccounts::new(&budget, 1000, Queues::new(50, 50));
        let (peer_id, other) = (PeerId::random(), PeerId::random());
        let (first, second) = (accounts.enter(peer_id), accounts.enter(peer_id));
        first.memory.add(60);
        accounts.enter(other).memory.add(60);
        assert_eq!(second.close_signal.reason(), None);
        second.memory.add(60);
        assert_eq!(first.close_signal.reason().map(|closed| closed.cause), Some(Cause::Violation));
        assert_eq!(accounts.enter(peer_id).close_signal.reason(), None);
    }

    #[test]
    fn every_connection_is_woken_to_end() {
        #[derive(Default)]
        struct Flag(Mutex<bool>);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                *lock(&self.0) = true;
            }
        }
        let account = PeerAccounts::new(&Arc::new(Budget::new(1, 1)), 1000, Queues::new(1, 1)).enter(PeerId::random());
        let flags = [Arc::new(Flag::default()), Arc::new(Flag::default())];
        let wakers = [account.waker(), account.waker()];
        for (waker, flag) in wakers.iter().zip(&flags) {
            waker.register(&Arc::clone(flag).into());
        }
        account.spend_control(1000);
        assert!(flags.iter().all(|flag| !*lock(&flag.0)));
        account.spend_control(1000);
        assert!(flags.iter().all(|flag| *lock(&flag.0)));
        assert_eq!(account.close_signal.reason().map(|closed| closed.cause), Some(Cause::Violation));
    }

    #[test]
    fn no_task_is_woken_while_the_account_is_locked() {
        struct Woken(Weak<PeerAccount>);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                drop(self.0.upgrade().unwrap().waker());
            }
        }
        let account = accounts().enter(PeerId::random());
        let waker = account.waker();
        waker.register(&Arc::new(Woken(Arc::downgrade(&account))).into());
        account.close_signal.end(Closed::new(Cause::Local, "a test"));
    }

    #[test]
    fn what_waits_for_a_peer_goes_with_its_last_connection() {
        let account = accounts().enter(PeerId::random());
        let wakers = [account.waker(), account.waker()];
        account.outbox.charge(10, Instant::now());
        account.left(&wakers[0]);
        assert_eq!(account.outbox.queued(), 10);
        account.left(&wakers[1]);
        assert_eq!(account.outbox.queued(), 0);
    }

    #[test]
    fn peers_that_are_gone_are_forgotten() {
        let accounts = accounts();
        let staying = accounts.enter(PeerId::random());
        for _ in 0..100 {
            let (peer_id, reason) = (PeerId::random(), Closed::new(Cause::Local, "a test"));
            let first = accounts.enter(peer_id);
            first.close_signal.end(reason);
            let second = accounts.enter(peer_id);
            drop(first);
            assert!(Arc::ptr_eq(&second, &accounts.enter(peer_id)));
            assert_eq!(accounts.len(), 2);
        }
        drop(staying);
        assert_eq!(accounts.len(), 0);
    }

    #[test]
    fn subscriptions_that_change_too_often_are_a_violation() {
        let (account, start) = (accounts().enter(PeerId::random()), Instant::now());
        for second in 0..1000 {
            account.changed_subscription(start + Duration::from_secs(second));
        }
        assert_eq!(account.close_signal.reason(), None);
        for _ in 0..=MAX_SUBSCRIPTION_CHANGES {
            account.changed_subscription(start + Duration::from_secs(1000));
        }
        assert_eq!(account.close_signal.reason().map(|closed| closed.cause), Some(Cause::Violation));
    }

    #[test]
    fn nothing_is_held_once_all_have_gone_in_whatever_order() {
        let budget = Arc::new(Budget::new(300, 1000));
        let accounts = PeerAccounts::new(&budget, 1000, Queues::new(200, 500));
        let peers: Vec<_> = (0..4).map(|_| PeerId::random()).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (accounts, peers, budget) = (&accounts, &peers, &budget);
                scope.spawn(move || {
                    for step in 0..500_usize {
                        let account = accounts.enter(peers[(step + thread) % peers.len()]);
                        let (waker, bytes) = (account.waker(), step % 97 + 1);
                        account.memory.add(bytes);
                        account.outbox.charge(bytes, Instant::now());
                        assert!(budget.held() <= 1000);
                        if step % 5 == 0 {
                            account.wake();
                            account.outbox.sent(bytes, Instant::now());
                        }
                        account.memory.subtract(bytes);
                        if step % 31 == 0 {
                            account.close_signal.end(Closed::new(Cause::Local, "a test"));
                        }
                        account.left(&waker);
                    }
                });
            }
        });
        assert_eq!((budget.held(), accounts.len()), (0, 0));
        assert!(accounts.queues.fit(500));
    }
}
