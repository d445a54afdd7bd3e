//! Whether messages wait for peers that take less than comes, and at whose expense.
//!
//! Of what comes faster than peers take it, gossipsub would queue any number of bytes. So messages wait until slow peers
//! have taken some; and since messages wait for all at once, who is slow costs the others time. So each peer may be slow for
//! so long in a minute while others are not, and all peers together may have messages wait for so long. Nobody waits for a
//! peer beyond that: gossip leaves it out for a while ([`Party::is_left_out`]), and it gets what it missed by sync. Where all
//! are slow, it is this side that sends too much, and nobody is to blame.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mesh::allowance::Allowance;
use crate::mesh::party::{Party, SLOW_REGAINED};

/// How long messages wait at a time, at most, for peers that take less than comes.
const HOLD: Duration = Duration::from_secs(1);

/// For how long messages may wait so for all peers together, in microseconds. That comes back in the same time.
const MOST_HELD: usize = 6_000_000;

/// How long messages have waited.
#[derive(Debug)]
pub struct Holding {
    all: Allowance,
    /// The last time that anybody was asked.
    asked: Instant,
    /// Messages wait since they were last asked for.
    waits: bool,
}

impl Holding {
    /// Nothing waits.
    pub fn new(now: Instant) -> Self {
        Self { all: Allowance::new(MOST_HELD, SLOW_REGAINED, now), asked: now, waits: false }
    }

    /// Whether a message is to wait for some of `recipients`. `mesh`: those that get most messages.
    pub fn waits(&mut self, recipients: &[&Arc<Party>], mesh: &[&Arc<Party>], now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.asked, now));
        if std::mem::take(&mut self.waits) {
            self.all.spend(usize::try_from(elapsed.as_micros()).unwrap_or(usize::MAX), now);
        }
        let slow: Vec<_> = recipients.iter().filter_map(|party| Some((party, party.outbox.slow_for(now)?))).collect();
        if slow.is_empty() {
            return false;
        }
        if recipients.iter().chain(mesh).all(|party| party.outbox.slow_for(now).is_some()) {
            let takes = |party: &Arc<Party>| party.outbox.idle_for(now) < HOLD;
            return slow.iter().any(|(party, since)| *since < HOLD || takes(party));
        }
        for (party, since) in &slow {
            party.was_slow(elapsed.min(*since), now);
        }
        let is_waited_for = |(party, since): &(&&Arc<Party>, Duration)| *since < HOLD && !party.is_left_out();
        self.waits = slow.iter().any(is_waited_for) && self.all.left(now) > 0;
        self.waits
    }
}

/// Whether a message of so many bytes may be handed to gossip for `recipients`. Those that take less than comes are ended
/// for the sake of the others; where most do for which messages wait, it is this side that sends too much.
pub fn admit(recipients: &[&Arc<Party>], size: usize, now: Instant) -> bool {
    let mut full = recipients.iter().filter(|party| !party.outbox.fits(size)).peekable();
    if full.peek().is_none() {
        return true;
    }
    let waited_for = recipients.iter().filter(|party| !party.is_left_out());
    let slow = waited_for.clone().filter(|party| party.outbox.slow_for(now).is_some()).count();
    let are_slow = 2 * slow > waited_for.count();
    let mut fits = true;
    for party in full {
        if are_slow && !party.is_left_out() {
            fits = false;
        } else {
            party.halt.end(party.outbox.overflow());
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
    use crate::mesh::party::Parties;

    const FULL: usize = 1000;

    fn parties() -> Parties {
        Parties::new(&Arc::new(Budget::new(1 << 20, 1 << 20)), 1000, Queues::new(FULL, 1 << 20))
    }

    /// How long messages wait in a minute, when these peers are asked every 10 ms, before which `act` happens.
    fn minute(
        holding: &mut Holding,
        start: Instant,
        mesh: &[Arc<Party>],
        mut act: impl FnMut(u64, Instant),
    ) -> Duration {
        let mesh: Vec<_> = mesh.iter().collect();
        let mut waited = Duration::ZERO;
        for step in 0..6000 {
            let now = start + Duration::from_millis(10 * step);
            act(step, now);
            waited += Duration::from_millis(if holding.waits(&mesh, &mesh, now) { 10 } else { 0 });
        }
        waited
    }

    /// Takes all at once every 0.9 s, of a queue that fills as fast.
    fn act_slowly(party: &Party, step: u64, now: Instant) {
        if step.is_multiple_of(90) {
            party.outbox.sent(FULL, now);
            party.outbox.charge(FULL, now);
        }
    }

    #[test]
    fn a_peer_that_is_slow_on_purpose_holds_up_others_for_two_seconds_a_minute() {
        let (parties, start) = (parties(), Instant::now());
        let mesh = [parties.enter(PeerId::random()), parties.enter(PeerId::random())];
        let mut holding = Holding::new(start);
        let waited = minute(&mut holding, start, &mesh, |step, now| act_slowly(&mesh[0], step, now));
        assert!(waited < Duration::from_millis(2200), "{waited:?}");
        assert_eq!([&mesh[0], &mesh[1]].map(|party| party.is_left_out()), [true, false]);
        // It is given messages again once it takes what waits, and half a minute after it was left out.
        mesh[0].readmit(start + Duration::from_secs(60));
        assert!(mesh[0].is_left_out());
        mesh[0].outbox.clear();
        mesh[0].readmit(start + Duration::from_secs(60));
        assert!(!mesh[0].is_left_out());
    }

    #[test]
    fn any_number_of_slow_peers_hold_up_others_for_some_seconds_a_minute() {
        let (parties, start) = (parties(), Instant::now());
        let mut mesh: Vec<_> = (0..12).map(|_| parties.enter(PeerId::random())).collect();
        let mut holding = Holding::new(start);
        let mut waited = Duration::ZERO;
        // One after the other, and those that are known come again as somebody else.
        for minutes in 0..5 {
            let start = start + Duration::from_secs(60 * minutes);
            for party in &mut mesh[1..] {
                *party = parties.enter(PeerId::random());
            }
            waited += minute(&mut holding, start, &mesh, |step, now| {
                act_slowly(&mesh[1 + (step / 500) as usize % 11], step, now);
            });
        }
        // Six seconds at once, and six in each minute.
        assert!(waited <= Duration::from_secs(6 * 6), "{waited:?}");
    }

    #[test]
    fn messages_wait_where_all_are_slow_as_long_as_somebody_takes_some() {
        let (parties, start) = (parties(), Instant::now());
        let mesh = [parties.enter(PeerId::random()), parties.enter(PeerId::random())];
        let mut holding = Holding::new(start);
        for party in &mesh {
            party.outbox.charge(FULL, start);
        }
        let waited = minute(&mut holding, start, &mesh, |step, now| {
            if step.is_multiple_of(50) {
                mesh[0].outbox.sent(1, now);
            }
        });
        assert_eq!(waited, Duration::from_secs(60));
        let later = start + Duration::from_secs(60);
        assert!(!admit(&[&mesh[0], &mesh[1]], FULL, later));
        assert!(mesh.iter().all(|party| party.stays() && !party.is_left_out()));
    }

    #[test]
    fn most_peers_cannot_keep_messages_from_the_others_by_being_slow() {
        let (parties, start) = (parties(), Instant::now());
        let mesh: Vec<_> = (0..5).map(|_| parties.enter(PeerId::random())).collect();
        let mut holding = Holding::new(start);
        for party in &mesh[1..] {
            party.outbox.charge(FULL, start);
        }
        let recipients: Vec<_> = mesh.iter().collect();
        assert!(!admit(&recipients, FULL, start));
        minute(&mut holding, start, &mesh, |step, now| {
            for party in &mesh[1..] {
                act_slowly(party, step, now);
            }
        });
        assert!(admit(&recipients, FULL, start + Duration::from_secs(60)));
        assert_eq!(mesh.iter().filter(|party| party.stays()).count(), 1);
    }
}
