//! The bytes that peers make this side keep in memory: so many each, and so many all together.
//!
//! A peer that exceeds its own budget is to blame. When all together exceed theirs, the one that has the most kept is
//! ended without blame, the newest of equals: to stop reading instead would let peers that hold memory and never
//! finish stop everybody, and to refuse newcomers would leave them in its possession.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::close_signal::CloseSignal;
use crate::error::{Cause, Closed, lock};
use crate::sync::Mutex;

#[derive(Debug)]
struct Member {
    held: usize,
    close_signal: Arc<CloseSignal>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    held: usize,
    /// Bytes that are kept outside of connections, for those who ask over HTTP.
    other: usize,
    /// Ordered by age. Without those that were ended: theirs is about to be given back.
    members: BTreeMap<u64, Member>,
}

impl State {
    /// Count a peer no more; return how to end its connection once the lock is released, since that wakes others.
    fn expel(&mut self, number: u64, cause: Cause, reason: String) -> Option<(Arc<CloseSignal>, Closed)> {
        let member = self.members.remove(&number)?;
        self.held -= member.held;
        Some((member.close_signal, Closed::new(cause, reason)))
    }

    /// Count those who have the most no more, until the rest is within `total`.
    fn expel_most(&mut self, total: usize) -> Vec<(Arc<CloseSignal>, Closed)> {
        let mut expelled = Vec::new();
        while self.held.saturating_add(self.other) > total {
            let most = self.members.iter().max_by_key(|(_, member)| member.held);
            let Some((number, held)) = most.map(|(number, member)| (*number, member.held)) else { break };
            let reason =
                format!("the peers have more than {total} bytes kept in memory, and this one the most: {held}");
            expelled.extend(self.expel(number, Cause::Overload, reason));
        }
        expelled
    }
}

/// What all peers share.
#[derive(Debug)]
pub struct Budget {
    peer: usize,
    total: usize,
    state: Mutex<State>,
}

impl Budget {
    /// Create a budget of `peer` bytes each and `total` bytes together.
    pub fn new(peer: usize, total: usize) -> Self {
        Self { peer, total, state: Mutex::default() }
    }

    /// Return bytes that are kept now.
    pub fn held(&self) -> usize {
        let state = lock(&self.state);
        state.held.saturating_add(state.other)
    }

    /// Set the bytes kept outside of connections. They count with those of peers, and end the connection of the peer
    /// that has the most where all together exceed the total.
    pub fn set_other(&self, bytes: usize) {
        let mut state = lock(&self.state);
        state.other = bytes;
        let expelled = state.expel_most(self.total);
        drop(state);
        for (close_signal, closed) in expelled {
            close_signal.end(closed);
        }
    }
}

/// One peer's share of a budget, given back when dropped.
#[derive(Debug)]
pub struct Account {
    budget: Arc<Budget>,
    number: u64,
}

impl Account {
    /// Create an empty one. `close_signal`: of the peer's connection.
    pub fn open(budget: &Arc<Budget>, close_signal: &Arc<CloseSignal>) -> Self {
        let mut state = lock(&budget.state);
        state.last += 1;
        let number = state.last;
        state.members.insert(number, Member { held: 0, close_signal: Arc::clone(close_signal) });
        Self { budget: Arc::clone(budget), number }
    }

    /// Charge bytes to the peer. End the connection that exceeds a budget, which may be another.
    pub fn add(&self, bytes: usize) {
        let Budget { peer, total, state } = &*self.budget;
        let mut expelled = Vec::new();
        let mut state = lock(state);
        let Some(member) = state.members.get_mut(&self.number) else { return };
        member.held = member.held.saturating_add(bytes);
        let held = member.held;
        state.held = state.held.saturating_add(bytes);
        if held > *peer {
            let what = "not read yet, not whole messages yet, or answers that it does not take";
            let reason = format!("the peer has {held} bytes kept in memory for it, {what}; {peer} at most are");
            expelled.extend(state.expel(self.number, Cause::Violation, reason));
        }
        expelled.extend(state.expel_most(*total));
        drop(state);
        for (close_signal, closed) in expelled {
            close_signal.end(closed);
        }
    }

    /// Give back bytes of the peer.
    pub fn subtract(&self, bytes: usize) {
        let mut state = lock(&self.budget.state);
        let Some(member) = state.members.get_mut(&self.number) else { return };
        let bytes = bytes.min(member.held);
        member.held -= bytes;
        state.held -= bytes;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut state = lock(&self.budget.state);
        let member = state.members.remove(&self.number);
        state.held -= member.as_ref().map_or(0, |member| member.held);
        drop(state);
        // Unlocked: with the last reference to its close signal goes a waker, and with that perhaps a task.
        drop(member);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;

    fn peers(budget: &Arc<Budget>, count: usize) -> Vec<(Account, Arc<CloseSignal>)> {
        let peer = |_| {
            let close_signal = Arc::default();
            (Account::open(budget, &close_signal), close_signal)
        };
        (0..count).map(peer).collect()
    }

    fn causes(peers: &[(Account, Arc<CloseSignal>)]) -> Vec<Option<Cause>> {
        peers.iter().map(|(_, close_signal)| close_signal.reason().map(|closed| closed.cause)).collect()
    }

    /// What a task may do that is woken: look at the budget, and release its own share.
    struct Woken {
        budget: Arc<Budget>,
        share: Mutex<Option<Account>>,
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            assert_eq!(self.budget.held(), 0);
            drop(lock(&self.share).take());
        }
    }

    impl Drop for Woken {
        fn drop(&mut self) {
            self.budget.held();
        }
    }

    #[test]
    fn no_task_is_woken_while_the_budget_is_locked() {
        let budget = Arc::new(Budget::new(10, 100));
        let [(account, close_signal), (other, _)] = <[_; 2]>::try_from(peers(&budget, 2)).unwrap();
        let woken = Arc::new(Woken { budget: Arc::clone(&budget), share: Mutex::new(Some(other)) });
        close_signal.task.register(&Waker::from(Arc::clone(&woken)));
        account.add(11);
        assert!(lock(&woken.share).is_none());
        assert_eq!(causes(&[(account, close_signal)]), [Some(Cause::Violation)]);
    }

    #[test]
    fn nothing_is_dropped_while_the_budget_is_locked() {
        let budget = Arc::new(Budget::new(10, 100));
        let [(account, close_signal)] = <[_; 1]>::try_from(peers(&budget, 1)).unwrap();
        close_signal
            .task
            .register(&Waker::from(Arc::new(Woken { budget: Arc::clone(&budget), share: Mutex::new(None) })));
        drop(close_signal);
        drop(account);
        assert_eq!(Arc::strong_count(&budget), 1);
    }

    #[test]
    fn a_peer_that_exceeds_its_own_budget_is_blamed_and_no_longer_counted() {
        let budget = Arc::new(Budget::new(10, 100));
        let peers = peers(&budget, 2);
        peers[0].0.add(10);
        peers[1].0.add(7);
        assert_eq!(causes(&peers), [None, None]);
        peers[0].0.add(1);
        assert_eq!(causes(&peers), [Some(Cause::Violation), None]);
        assert_eq!(budget.held(), 7);
        peers[0].0.add(50);
        peers[0].0.subtract(61);
        assert_eq!(budget.held(), 7);
    }

    #[test]
    fn the_largest_ends_when_all_together_exceed_theirs() {
        let budget = Arc::new(Budget::new(10, 20));
        let peers = peers(&budget, 4);
        for ((account, _), bytes) in peers.iter().zip([6, 7, 7, 1]) {
            account.add(bytes);
        }
        assert_eq!(causes(&peers), [None, None, Some(Cause::Overload), None]);
        assert_eq!(budget.held(), 14);
    }

    #[test]
    fn what_is_kept_outside_of_connections_counts_with_the_rest() {
        let budget = Arc::new(Budget::new(10, 20));
        let peers = peers(&budget, 2);
        budget.set_other(12);
        peers[0].0.add(8);
        assert_eq!(budget.held(), 20);
        peers[1].0.add(1);
        assert_eq!(causes(&peers), [Some(Cause::Overload), None]);
        budget.set_other(20);
        assert_eq!(causes(&peers), [Some(Cause::Overload), Some(Cause::Overload)]);
        budget.set_other(30);
        assert_eq!(budget.held(), 30);
        budget.set_other(0);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn what_is_given_back_may_be_taken_again() {
        let budget = Arc::new(Budget::new(10, 20));
        let mut peers = peers(&budget, 2);
        for _ in 0..5 {
            peers[0].0.add(10);
            peers[0].0.subtract(10);
        }
        peers[1].0.add(8);
        peers.pop();
        assert_eq!(budget.held(), 0);
        assert_eq!(causes(&peers), [None]);
    }
}
