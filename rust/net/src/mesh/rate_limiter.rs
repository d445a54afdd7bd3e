//! A limit of what comes back with time: bytes of control messages, changes of subscriptions, time for which others
//! wait.

use std::time::{Duration, Instant};

/// Bytes that may come at once, for any use. A sixteenth of it comes back in each second: an announcement of canvas-js
/// 's, of 5,000 ids in each heartbeat, takes a third of that, and what goes with 1,000 small messages a fifteenth.
pub const CONTROL_BYTES: usize = 16 << 20;

/// The time in which all of what a peer may say comes back.
pub const CONTROL_PERIOD: Duration = Duration::from_secs(16);

/// What a peer has left of what it may use.
#[derive(Debug)]
pub struct RateLimiter {
    limit: usize,
    period: Duration,
    used: usize,
    since: Instant,
}

impl RateLimiter {
    /// Create a limiter of `limit` at once, which is refilled within `period`.
    pub fn new(limit: usize, period: Duration, now: Instant) -> Self {
        Self { limit, period, used: 0, since: now }
    }

    /// Spend so much. False: that exceeds the limit.
    pub fn spend(&mut self, cost: usize, now: Instant) -> bool {
        self.refill(now);
        self.used = self.used.saturating_add(cost);
        self.used <= self.limit
    }

    /// Return what is left.
    pub fn remaining(&mut self, now: Instant) -> usize {
        self.refill(now);
        self.limit.saturating_sub(self.used)
    }

    fn refill(&mut self, now: Instant) {
        let share = now.saturating_duration_since(self.since).as_secs_f64() / self.period.as_secs_f64();
        let refilled = share.min(1.0) * self.limit as f64;
        if refilled >= 1.0 {
            self.used = self.used.saturating_sub(refilled as usize);
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
        let mut limiter = RateLimiter::new(1600, CONTROL_PERIOD, start);
        assert!(limiter.spend(1600, start));
        let second = start + Duration::from_secs(1);
        assert!(limiter.spend(100, second));
        assert!(!limiter.spend(1, second));
        let minute = start + Duration::from_secs(60);
        assert!(limiter.spend(1599, minute));
        assert!(!limiter.spend(1, minute));
        assert_eq!([minute, minute + Duration::from_secs(1)].map(|now| limiter.remaining(now)), [0, 99]);
    }

    #[test]
    fn spending_within_the_rate_never_exceeds_the_limit() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(1_600_000, CONTROL_PERIOD, start);
        for step in 0..100_000 {
            assert!(limiter.spend(100, start + Duration::from_millis(step)));
        }
    }
}
