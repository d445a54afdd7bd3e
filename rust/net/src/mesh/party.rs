//! A peer, however many connections there are to it: what is kept in memory for it, and that all of them end together
//! when it is too much.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use libp2p::PeerId;

use crate::budget::{Account, Budget};
use crate::error::{Cause, Closed, lock};
use crate::halt::Halt;
use crate::mesh::allowance::{Allowance, REGAINED};
use crate::mesh::outbox::{Id, Named, Outbox, Queues, Recent};
use crate::sync::{AtomicBool, AtomicWaker, Mutex, Ordering};

/// Subscriptions and their ends that a peer may send at once, and how often it may say who it is. A sixteenth of them comes
/// back in each second.
const MOST_TOGGLES: usize = 64;
const MOST_INTRODUCTIONS: usize = 256;

/// For how long a peer may be slow while others are not, in microseconds, and the time in which that comes back.
pub const MOST_SLOW: usize = 2_000_000;
pub const SLOW_REGAINED: Duration = Duration::from_secs(60);

type Table = Mutex<HashMap<PeerId, Weak<Party>>>;

/// What the connections to one peer share.
#[derive(Debug)]
pub struct Party {
    /// Bytes that are kept for the peer.
    pub account: Arc<Account>,
    /// How its connections are told to end.
    pub halt: Arc<Halt>,
    /// What waits in gossip's queue for the peer.
    pub outbox: Outbox,
    peer: PeerId,
    table: Arc<Table>,
    recent: Arc<Recent>,
    drivers: Mutex<Vec<Weak<AtomicWaker>>>,
    chatter: usize,
    allowance: Mutex<Allowance>,
    toggles: Mutex<Allowance>,
    introductions: Mutex<Allowance>,
    /// For how long it may take less than comes, in microseconds.
    slowness: Mutex<Allowance>,
    left_out: AtomicBool,
}

impl Party {
    fn new(parties: &Parties, peer: PeerId) -> Arc<Self> {
        let halt = Arc::<Halt>::default();
        let account = Arc::new(Account::open(&parties.budget, &halt));
        let now = Instant::now();
        let party = Arc::new(Self {
            outbox: Outbox::new(&account, &parties.queues, now),
            account,
            halt,
            peer,
            table: Arc::clone(&parties.table),
            recent: Arc::clone(&parties.recent),
            drivers: Mutex::default(),
            chatter: parties.chatter,
            allowance: Mutex::new(Allowance::new(parties.chatter, REGAINED, now)),
            toggles: Mutex::new(Allowance::new(MOST_TOGGLES, REGAINED, now)),
            introductions: Mutex::new(Allowance::new(MOST_INTRODUCTIONS, REGAINED, now)),
            slowness: Mutex::new(Allowance::new(MOST_SLOW, SLOW_REGAINED, now)),
            left_out: AtomicBool::new(false),
        });
        // Once is enough: only the first reason counts.
        party.halt.driver.register(&Waker::from(Arc::new(Alarm(Arc::downgrade(&party)))));
        party
    }

    /// A place for the waker of one more connection's task. It is woken when the connections are to end.
    pub fn driver(&self) -> Arc<AtomicWaker> {
        let driver = Arc::default();
        let mut drivers = lock(&self.drivers);
        drivers.retain(|driver| driver.strong_count() > 0);
        drivers.push(Arc::downgrade(&driver));
        driver
    }

    /// The connection whose task has `driver` is gone. With the last one goes what waited for the peer.
    pub fn left(&self, driver: &Arc<AtomicWaker>) {
        let mut drivers = lock(&self.drivers);
        drivers.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(driver));
        let last = drivers.is_empty();
        drop(drivers);
        if last {
            self.outbox.clear();
        }
    }

    /// Wake the tasks of all connections.
    pub fn wake(&self) {
        // Unlocked: whoever is woken may open or end a connection of the peer.
        let drivers: Vec<_> = lock(&self.drivers).iter().filter_map(Weak::upgrade).collect();
        for driver in drivers {
            driver.wake();
        }
    }

    /// Whether its connections are not to end.
    pub fn stays(self: &Arc<Self>) -> bool {
        self.halt.reason().is_none()
    }

    /// The peer said so much by gossip beside messages. Ends its connections when that is too much.
    pub fn chatted(&self, cost: usize) {
        if cost > 0 && !lock(&self.allowance).spend(cost, Instant::now()) {
            let what = "about the mesh, subscriptions and ids of messages";
            let reason = format!("the peer said more by gossip than it may {what}: {} bytes at once", self.chatter);
            self.halt.end(Closed::new(Cause::Violation, reason));
        }
    }

    /// The peer subscribed to the topic, or ended its subscription. Ends its connections when it does so too often.
    pub fn toggled(&self, now: Instant) {
        if !lock(&self.toggles).spend(1, now) {
            let reason = format!("the peer changed its subscription more than {MOST_TOGGLES} times at once");
            self.halt.end(Closed::new(Cause::Violation, reason));
        }
    }

    /// The peer said who it is. Ends its connections when it does so too often.
    pub fn introduced(&self, now: Instant) {
        if !lock(&self.introductions).spend(1, now) {
            let reason = format!("the peer said who it is more than {MOST_INTRODUCTIONS} times at once");
            self.halt.end(Closed::new(Cause::Violation, reason));
        }
    }

    /// The peer took less than came for so long, while others took all. Gossip leaves it out when that is too much.
    pub fn was_slow(&self, time: Duration, now: Instant) {
        let microseconds = usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
        // Not further, or it would be long before the peer is given messages again.
        if !self.is_left_out() && !lock(&self.slowness).spend(microseconds, now) {
            self.left_out.store(true, Ordering::Relaxed);
        }
    }

    /// Whether gossip leaves the peer out, which took less than came for too long: nobody waits for it.
    pub fn is_left_out(&self) -> bool {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Leave the peer out no more once it has half of its allowance again and takes what waits.
    pub fn readmit(&self, now: Instant) {
        if self.is_left_out() && lock(&self.slowness).left(now) >= MOST_SLOW / 2 && self.outbox.slow_for(now).is_none()
        {
            self.left_out.store(false, Ordering::Relaxed);
        }
    }

    /// The peer said something that gossip answers. Ends its connections when too much waits, and when what it named cannot
    /// be the id of a message.
    pub fn named(&self, named: &Named) {
        if let Some(length) = named.malformed {
            let reason =
                format!("the peer named a message by {length} bytes; ids of messages have {}", size_of::<Id>());
            self.halt.end(Closed::new(Cause::Violation, reason));
        }
        let bytes = self.recent.queued_for(named);
        if bytes > 0 && !self.outbox.fits(bytes) {
            self.halt.end(self.outbox.overflow());
        } else {
            self.outbox.charge(bytes, Instant::now());
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        // Another may have taken its place.
        if table.get(&self.peer).is_some_and(|party| party.strong_count() == 0) {
            table.remove(&self.peer);
        }
    }
}

struct Alarm(Weak<Party>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(party) = self.0.upgrade() {
            party.wake();
        }
    }
}

/// The peers that have connections, or had one that is not let go.
#[derive(Debug)]
pub struct Parties {
    /// Sizes of the messages that peers may ask for.
    pub recent: Arc<Recent>,
    /// What of gossip may wait for peers.
    pub queues: Arc<Queues>,
    budget: Arc<Budget>,
    chatter: usize,
    table: Arc<Table>,
}

impl Parties {
    /// Nobody yet. All share in `budget`. `chatter`: see [`crate::Config`].
    pub fn new(budget: &Arc<Budget>, chatter: usize, queues: Queues) -> Self {
        let (recent, queues, table) = (Arc::default(), Arc::new(queues), Arc::default());
        Self { recent, queues, budget: Arc::clone(budget), chatter, table }
    }

    /// A peer that has one more connection: as it is known, unless its connections are to end.
    pub fn enter(&self, peer: PeerId) -> Arc<Party> {
        let mut table = lock(&self.table);
        let known = table.get(&peer).and_then(Weak::upgrade);
        let entered = match &known {
            Some(party) if party.halt.reason().is_none() => Arc::clone(party),
            _ => {
                let party = Party::new(self, peer);
                table.insert(peer, Arc::downgrade(&party));
                party
            }
        };
        // Before `known`: the last reference to a party locks the table.
        drop(table);
        entered
    }

    /// How many peers there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        lock(&self.table).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parties() -> Parties {
        Parties::new(&Arc::new(Budget::new(1000, 1000)), 1000, Queues::new(500, 500))
    }

    #[test]
    fn connections_to_one_peer_share_an_account_until_they_end() {
        let budget = Arc::new(Budget::new(100, 1000));
        let parties = Parties::new(&budget, 1000, Queues::new(50, 50));
        let (peer, other) = (PeerId::random(), PeerId::random());
        let (first, second) = (parties.enter(peer), parties.enter(peer));
        first.account.add(60);
        parties.enter(other).account.add(60);
        assert_eq!(second.halt.reason(), None);
        second.account.add(60);
        assert_eq!(first.halt.reason().map(|closed| closed.cause), Some(Cause::Violation));
        assert_eq!(parties.enter(peer).halt.reason(), None);
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
        let party = Parties::new(&Arc::new(Budget::new(1, 1)), 1000, Queues::new(1, 1)).enter(PeerId::random());
        let flags = [Arc::new(Flag::default()), Arc::new(Flag::default())];
        let drivers = [party.driver(), party.driver()];
        for (driver, flag) in drivers.iter().zip(&flags) {
            driver.register(&Arc::clone(flag).into());
        }
        party.chatted(1000);
        assert!(flags.iter().all(|flag| !*lock(&flag.0)));
        party.chatted(1000);
        assert!(flags.iter().all(|flag| *lock(&flag.0)));
        assert_eq!(party.halt.reason().map(|closed| closed.cause), Some(Cause::Violation));
    }

    #[test]
    fn nobody_is_woken_while_the_party_is_locked() {
        struct Woken(Weak<Party>);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                drop(self.0.upgrade().unwrap().driver());
            }
        }
        let party = parties().enter(PeerId::random());
        let driver = party.driver();
        driver.register(&Arc::new(Woken(Arc::downgrade(&party))).into());
        party.halt.end(Closed::new(Cause::Local, "a test"));
    }

    #[test]
    fn what_waits_for_a_peer_goes_with_its_last_connection() {
        let party = parties().enter(PeerId::random());
        let drivers = [party.driver(), party.driver()];
        party.outbox.charge(10, Instant::now());
        party.left(&drivers[0]);
        assert_eq!(party.outbox.queued(), 10);
        party.left(&drivers[1]);
        assert_eq!(party.outbox.queued(), 0);
    }

    #[test]
    fn peers_that_are_gone_are_forgotten() {
        let parties = parties();
        let staying = parties.enter(PeerId::random());
        for _ in 0..100 {
            let (peer, reason) = (PeerId::random(), Closed::new(Cause::Local, "a test"));
            let first = parties.enter(peer);
            first.halt.end(reason);
            let second = parties.enter(peer);
            drop(first);
            assert!(Arc::ptr_eq(&second, &parties.enter(peer)));
            assert_eq!(parties.len(), 2);
        }
        drop(staying);
        assert_eq!(parties.len(), 0);
    }

    #[test]
    fn subscriptions_that_change_too_often_are_a_violation() {
        let (party, start) = (parties().enter(PeerId::random()), Instant::now());
        for second in 0..1000 {
            party.toggled(start + Duration::from_secs(second));
        }
        assert_eq!(party.halt.reason(), None);
        for _ in 0..=MOST_TOGGLES {
            party.toggled(start + Duration::from_secs(1000));
        }
        assert_eq!(party.halt.reason().map(|closed| closed.cause), Some(Cause::Violation));
    }

    #[test]
    fn nothing_is_held_once_all_have_gone_in_whatever_order() {
        let budget = Arc::new(Budget::new(300, 1000));
        let parties = Parties::new(&budget, 1000, Queues::new(200, 500));
        let peers: Vec<_> = (0..4).map(|_| PeerId::random()).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (parties, peers, budget) = (&parties, &peers, &budget);
                scope.spawn(move || {
                    for step in 0..500_usize {
                        let party = parties.enter(peers[(step + thread) % peers.len()]);
                        let (driver, bytes) = (party.driver(), step % 97 + 1);
                        party.account.add(bytes);
                        party.outbox.charge(bytes, Instant::now());
                        assert!(budget.held() <= 1000);
                        if step % 5 == 0 {
                            party.wake();
                            party.outbox.sent(bytes, Instant::now());
                        }
                        party.account.subtract(bytes);
                        if step % 31 == 0 {
                            party.halt.end(Closed::new(Cause::Local, "a test"));
                        }
                        party.left(&driver);
                    }
                });
            }
        });
        assert_eq!((budget.held(), parties.len()), (0, 0));
        assert!(parties.queues.fit(500));
    }
}
