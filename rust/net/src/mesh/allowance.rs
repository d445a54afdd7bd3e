//! How much a peer may say by gossip beside messages: subscriptions, and what gossipsub calls control messages.

use std::time::Instant;

/// Bytes that may come at once, for any use. A sixteenth of it comes back in each second: an announcement of the
/// original's, of 5,000 ids in each heartbeat, takes a sixth of that, and what goes with 1,000 small messages a fifteenth.
pub const CHATTER: usize = 16 << 20;

/// Seconds in which all of it comes back.
const SECONDS: f64 = 16.0;

/// What a peer has left of what it may say.
#[derive(Debug)]
pub struct Allowance {
    most: usize,
    used: usize,
    since: Instant,
}

impl Allowance {
    /// One of `most` bytes at once.
    pub fn new(most: usize, now: Instant) -> Self {
        Self { most, used: 0, since: now }
    }

    /// The peer said so much. False: it is too much.
    pub fn spend(&mut self, cost: usize, now: Instant) -> bool {
        let share = now.saturating_duration_since(self.since).as_secs_f64() / SECONDS;
        let regained = share.min(1.0) * self.most as f64;
        if regained >= 1.0 {
            self.used = self.used.saturating_sub(regained as usize);
            self.since = now;
        }
        self.used = self.used.saturating_add(cost);
        self.used <= self.most
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn is_regained_with_time() {
        let start = Instant::now();
        let mut allowance = Allowance::new(1600, start);
        assert!(allowance.spend(1600, start));
        let second = start + Duration::from_secs(1);
        assert!(allowance.spend(100, second));
        assert!(!allowance.spend(1, second));
        let minute = start + Duration::from_secs(60);
        assert!(allowance.spend(1599, minute));
        assert!(!allowance.spend(1, minute));
    }

    #[test]
    fn who_stays_within_the_rate_never_spends_it_all() {
        let start = Instant::now();
        let mut allowance = Allowance::new(1_600_000, start);
        for step in 0..100_000 {
            assert!(allowance.spend(100, start + Duration::from_millis(step)));
        }
    }
}
