//! Whether messages wait for slow peers, and at whose expense.
//!
//! gossipsub would queue any number of bytes for a peer that takes them more slowly than they come. So messages wait
//! until slow peers have taken some. They wait for all peers at once, so a slow one costs the others time: each peer
//! may be slow for a limited time a minute while others are not, and so may all peers together. Beyond that nobody
//! waits for it: it is suspended from gossip ([`PeerAccount::is_suspended`]), and gets what it missed by sync. Where
//! all are slow, this side sends too much, and nobody is to blame.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mesh::peer_account::{PeerAccount, SLOWNESS_PERIOD};
use crate::mesh::rate_limiter::RateLimiter;

/// How long messages wait at a time, at most, for slow peers.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// For how long messages may wait so for all peers together, in microseconds. That comes back in the same time.
const MAX_HELD: usize = 6_000_000;

/// How long messages have waited.
#[derive(Debug)]
pub struct Backpressure {
    all: RateLimiter,
    /// The time of the last call.
    asked: Instant,
    /// Messages wait since they were last asked for.
    waits: bool,
}

impl Backpressure {
    /// Create it with nothing queued.
    pub fn new(now: Instant) -> Self {
        Self { all: RateLimiter::new(MAX_HELD, SLOWNESS_PERIOD, now), asked: now, waits: false }
    }

    /// Return whether a message is to wait for some of `recipients`. `mesh`: those that get most messages.
    pub fn must_wait(&mut self, recipients: &[&Arc<PeerAccount>], mesh: &[&Arc<PeerAccount>], now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.asked, now));
        if std::mem::take(&mut self.waits) {
            self.all.spend(usize::try_from(elapsed.as_micros()).unwrap_or(usize::MAX), now);
        }
        let slow: Vec<_> =
            recipients.iter().filter_map(|account| Some((account, account.outbox.slow_for(now)?))).collect();
        if slow.is_empty() {
            return false;
        }
        if recipients.iter().chain(mesh).all(|account| account.outbox.slow_for(now).is_some()) {
            let takes = |account: &Arc<PeerAccount>| account.outbox.idle_for(now) < MAX_DELAY;
            return slow.iter().any(|(account, since)| *since < MAX_DELAY || takes(account));
        }
        for (account, since) in &slow {
            account.was_slow(elapsed.min(*since), now);
        }
        let is_waited_for =
            |(account, since): &(&&Arc<PeerAccount>, Duration)| *since < MAX_DELAY && !account.is_suspended();
        self.waits = slow.iter().any(is_waited_for) && self.all.remaining(now) > 0;
        self.waits
    }
}

/// Return whether a message of so many bytes may be handed to gossip for `recipients`. Slow ones are ended
/// for the sake of the others; where most do for which messages wait, it is this side that sends too much.
pub fn admit(recipients: &[&Arc<PeerAccount>], size: usize, now: Instant) -> bool {
    let mut full = recipients.iter().filter(|account| !account.outbox.fits(size)).peekable();
    if full.peek().is_none() {
        return true;
    }
    let waited_for = recipients.iter().filter(|account| !account.is_suspended());
    let slow = waited_for.clone().filter(|account| account.outbox.slow_for(now).is_some()).count();
    let are_slow = 2 * slow > waited_for.count();
    let mut fits = true;
    for account in full {
        if are_slow && !account.is_suspended() {
            fits = false;
        } else {
            account.close_signal.end(account.outbox.overflow());
        }
    }
    fits
}

#[cfg(test)]
mod tests {
    use libp2p::PeerId;

    use super::*;
    use crate::budget::Budget;
    use crate::mesh::outbox::Queues;
    use crate::mesh::peer_account::PeerAccounts;

    const FULL: usize = 1000;

    fn accounts() -> PeerAccounts {
        PeerAccounts::new(&Arc::new(Budget::new(1 << 20, 1 << 20)), 1000, Queues::new(FULL, 1 << 20))
    }

    /// Return how long messages wait in a minute when these peers are tried every 10 ms, each time after `act`.
    fn minute(
        backpressure: &mut Backpressure,
        start: Instant,
        mesh: &[Arc<PeerAccount>],
        mut act: impl FnMut(u64, Instant),
    ) -> Duration {
        let mesh: Vec<_> = mesh.iter().collect();
        let mut waited = Duration::ZERO;
        for step in 0..6000 {
            let now = start + Duration::from_millis(10 * step);
            act(step, now);
            waited += Duration::from_millis(if backpressure.must_wait(&mesh, &mesh, now) { 10 } else { 0 });
        }
        waited
    }

    /// Take all at once every 0.9 s, of a queue that fills as fast.
    fn act_slowly(account: &PeerAccount, step: u64, now: Instant) {
        if step.is_multiple_of(90) {
            account.outbox.sent(FULL, now);
            account.outbox.charge(FULL, now);
        }
    }

    #[test]
    fn a_peer_that_is_slow_on_purpose_holds_up_others_for_two_seconds_a_minute() {
        let (accounts, start) = (accounts(), Instant::now());
        let mesh = [accounts.enter(PeerId::random()), accounts.enter(PeerId::random())];
        let mut backpressure = Backpressure::new(start);
        let waited = minute(&mut backpressure, start, &mesh, |step, now| act_slowly(&mesh[0], step, now));
        assert!(waited < Duration::from_millis(2200), "{waited:?}");
        assert_eq!([&mesh[0], &mesh[1]].map(|account| account.is_suspended()), [true, false]);
        // It is given messages again once it takes what waits, and half a minute after it was left out.
        mesh[0].resume(start + Duration::from_secs(60));
        assert!(mesh[0].is_suspended());
        mesh[0].outbox.clear();
        mesh[0].resume(start + Duration::from_secs(60));
        assert!(!mesh[0].is_suspended());
    }

    #[test]
    fn any_number_of_slow_peers_hold_up_others_for_some_seconds_a_minute() {
        let (accounts, start) = (accounts(), Instant::now());
        let mut mesh: Vec<_> = (0..12).map(|_| accounts.enter(PeerId::random())).collect();
        let mut backpressure = Backpressure::new(start);
        let mut waited = Duration::ZERO;
        // One after the other, and those that are known come again as somebody else.
        for minutes in 0..5 {
            let start = start + Duration::from_secs(60 * minutes);
            for account in &mut mesh[1..] {
                *account = accounts.enter(PeerId::random());
            }
            waited += minute(&mut backpressure, start, &mesh, |step, now| {
                act_slowly(&mesh[1 + (step / 500) as usize % 11], step, now);
            });
        }
        // Six seconds at once, and six in each minute.
        assert!(waited <= Duration::from_secs(6 * 6), "{waited:?}");
    }

    #[test]
    fn messages_wait_where_all_are_slow_as_long_as_somebody_takes_some() {
        let (accounts, start) = (accounts(), Instant::now());
        let mesh = [accounts.enter(PeerId::random()), accounts.enter(PeerId::random())];
        let mut backpressure = Backpressure::new(start);
        for account in &mesh {
            account.outbox.charge(FULL, start);
        }
        let waited = minute(&mut backpressure, start, &mesh, |step, now| {
            if step.is_multiple_of(50) {
                mesh[0].outbox.sent(1, now);
            }
        });
        assert_eq!(waited, Duration::from_secs(60));
        let later = start + Duration::from_secs(60);
        assert!(!admit(&[&mesh[0], &mesh[1]], FULL, later));
        assert!(mesh.iter().all(|account| account.is_open() && !account.is_suspended()));
    }

    #[test]
    fn most_peers_cannot_keep_messages_from_the_others_by_being_slow() {
        let (accounts, start) = (accounts(), Instant::now());
        let mesh: Vec<_> = (0..5).map(|_| accounts.enter(PeerId::random())).collect();
        let mut backpressure = Backpressure::new(start);
        for account in &mesh[1..] {
            account.outbox.charge(FULL, start);
        }
        let recipients: Vec<_> = mesh.iter().collect();
        assert!(!admit(&recipients, FULL, start));
        minute(&mut backpressure, start, &mesh, |step, now| {
            for account in &mesh[1..] {
                act_slowly(account, step, now);
            }
        });
        assert!(admit(&recipients, FULL, start + Duration::from_secs(60)));
        assert_eq!(mesh.iter().filter(|account| account.is_open()).count(), 1);
    }
}
