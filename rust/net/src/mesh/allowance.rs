//! How much a peer may say by gossip beside messages: subscriptions, and what gossipsub calls control messages.

use std::time::{Duration, Instant};

/// Bytes that may come in a second, for as long as the peer likes. An announcement of the original's, of 5,000 ids in each
/// heartbeat, takes a twentieth of it, and what goes with 10,000 small messages in a second a sixth.
const RATE: usize = 4 << 20;

/// Bytes that may come at once.
pub const BURST: usize = 16 << 20;

/// What a peer has left of what it may say.
#[derive(Debug)]
pub struct Allowance {
    used: usize,
    since: Instant,
}

impl Allowance {
    /// A whole one.
    pub fn new(now: Instant) -> Self {
        Self { used: 0, since: now }
    }

    /// The peer said so much. False: it is too much.
    pub fn spend(&mut self, cost: usize, now: Instant) -> bool {
        let regained =
            now.saturating_duration_since(self.since).min(Duration::from_secs(60)).as_secs_f64() * RATE as f64;
        if regained >= 1.0 {
            self.used = self.used.saturating_sub(regained as usize);
            self.since = now;
        }
        self.used = self.used.saturating_add(cost);
        self.used <= BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_regained_with_time() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        assert!(allowance.spend(BURST, start));
        let second = start + Duration::from_secs(1);
        assert!(allowance.spend(RATE, second));
        assert!(!allowance.spend(1, second));
        let minute = start + Duration::from_secs(60);
        assert!(allowance.spend(BURST, minute));
        assert!(!allowance.spend(1, minute));
    }

    #[test]
    fn who_stays_within_the_rate_never_spends_it_all() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        for step in 0..100_000 {
            assert!(allowance.spend(RATE / 1000, start + Duration::from_millis(step)));
        }
    }
}
