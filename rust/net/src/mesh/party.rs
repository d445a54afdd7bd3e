//! A peer, however many connections there are to it: what is kept in memory for it, and that all of them end together
//! when it is too much.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};
use std::time::Instant;

use futures::task::AtomicWaker;
use libp2p::PeerId;

use crate::budget::{Account, Budget};
use crate::error::{Cause, Closed, lock};
use crate::halt::Halt;
use crate::mesh::allowance::Allowance;

/// What the connections to one peer share.
#[derive(Debug)]
pub struct Party {
    /// Bytes that are kept for the peer.
    pub account: Arc<Account>,
    /// How its connections are told to end.
    pub halt: Arc<Halt>,
    drivers: Mutex<Vec<Weak<AtomicWaker>>>,
    chatter: usize,
    allowance: Mutex<Allowance>,
}

impl Party {
    fn new(budget: &Arc<Budget>, chatter: usize) -> Arc<Self> {
        let halt = Arc::<Halt>::default();
        let account = Arc::new(Account::open(budget, &halt));
        let allowance = Mutex::new(Allowance::new(chatter, Instant::now()));
        let party = Arc::new(Self { account, halt, drivers: Mutex::default(), chatter, allowance });
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

    /// The peer said so much by gossip beside messages. Ends its connections when that is too much.
    pub fn chatted(&self, cost: usize) {
        if cost > 0 && !lock(&self.allowance).spend(cost, Instant::now()) {
            let what = "about the mesh, subscriptions and ids of messages";
            let reason = format!("the peer said more by gossip than it may {what}: {} bytes at once", self.chatter);
            self.halt.end(Closed::new(Cause::Violation, reason));
        }
    }
}

struct Alarm(Weak<Party>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        let Some(party) = self.0.upgrade() else { return };
        for driver in lock(&party.drivers).iter().filter_map(Weak::upgrade) {
            driver.wake();
        }
    }
}

/// The peers that have connections, or had one that is not let go.
#[derive(Debug)]
pub struct Parties {
    budget: Arc<Budget>,
    chatter: usize,
    members: Mutex<HashMap<PeerId, Weak<Party>>>,
}

impl Parties {
    /// Nobody yet. All share in `budget`. `chatter`: see [`crate::Config`].
    pub fn new(budget: &Arc<Budget>, chatter: usize) -> Self {
        Self { budget: Arc::clone(budget), chatter, members: Mutex::default() }
    }

    /// A peer that has one more connection: as it is known, unless its connections are to end.
    pub fn enter(&self, peer: PeerId) -> Arc<Party> {
        let mut members = lock(&self.members);
        let known = members.get(&peer).and_then(Weak::upgrade).filter(|party| party.halt.reason().is_none());
        known.unwrap_or_else(|| {
            members.retain(|_, party| party.strong_count() > 0);
            let party = Party::new(&self.budget, self.chatter);
            members.insert(peer, Arc::downgrade(&party));
            party
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_one_peer_share_an_account_until_they_end() {
        let budget = Arc::new(Budget::new(100, 1000));
        let parties = Parties::new(&budget, 1000);
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
        let party = Parties::new(&Arc::new(Budget::new(1, 1)), 1000).enter(PeerId::random());
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
}
