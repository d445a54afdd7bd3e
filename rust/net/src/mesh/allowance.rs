//! How much a peer may use of what comes back with time: what it may say by gossip beside messages (subscriptions, and what
//! gossipsub calls control messages), and for how long others wait for it.

use std::time::{Duration, Instant};

/// Bytes that may come at once, for any use. A sixteenth of it comes back in each second: an announcement of canvas-js
/// 's, of 5,000 ids in each heartbeat, takes a third of that, and what goes with 1,000 small messages a fifteenth.
pub const CHATTER: usize = 16 << 20;

/// The time in which all of what a peer may say comes back.
pub const REGAINED: Duration = Duration::from_secs(16);

/// What a peer has left of what it may use.
#[derive(Debug)]
pub struct Allowance {
    most: usize,
    period: Duration,
    used: usize,
    since: Instant,
}

impl Allowance {
    /// One of `most` at once, which comes back within `period`.
    pub fn new(most: usize, period: Duration, now: Instant) -> Self {
        Self { most, period, used: 0, since: now }
    }

    /// The peer used so much. False: it is too much.
    pub fn spend(&mut self, cost: usize, now: Instant) -> bool {
        self.regain(now);
        self.used = self.used.saturating_add(cost);
        self.used <= self.most
    }

    /// What is left.
    pub fn left(&mut self, now: Instant) -> usize {
        self.regain(now);
        self.most.saturating_sub(self.used)
    }

    fn regain(&mut self, now: Instant) {
        let share = now.saturating_duration_since(self.since).as_secs_f64() / self.period.as_secs_f64();
        let regained = share.min(1.0) * self.most as f64;
        if regained >= 1.0 {
            self.used = self.used.saturating_sub(regained as usize);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_regained_with_time() {
        let start = Instant::now();
        let mut allowance = Allowance::new(1600, REGAINED, start);
        assert!(allowance.spend(1600, start));
        let second = start + Duration::from_secs(1);
        assert!(allowance.spend(100, second));
        assert!(!allowance.spend(1, second));
        let minute = start + Duration::from_secs(60);
        assert!(allowance.spend(1599, minute));
        assert!(!allowance.spend(1, minute));
        assert_eq!([minute, minute + Duration::from_secs(1)].map(|now| allowance.left(now)), [0, 99]);
    }

    #[test]
    fn who_stays_within_the_rate_never_spends_it_all() {
        let start = Instant::now();
        let mut allowance = Allowance::new(1_600_000, REGAINED, start);
        for step in 0..100_000 {
            assert!(allowance.spend(100, start + Duration::from_millis(step)));
        }
    }
}
