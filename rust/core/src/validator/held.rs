//! The messages that may be parents: those that are known to be stored, and those that are accepted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::id::Key;

/// Keys in a generation of those that are known, of which there are two.
const GENERATION: usize = 1 << 18;

/// Bytes of messages that are accepted and not stored yet.
pub const MOST_BYTES: usize = 16 << 20;

/// How long a message may be accepted and not stored, after which all others wait.
pub const MAX_STORE_DELAY: Duration = Duration::from_secs(1);

/// Keys of stored messages: those that were added or looked up last.
#[derive(Default)]
pub struct KnownKeys {
    young: HashSet<Key>,
    old: HashSet<Key>,
}

impl KnownKeys {
    pub fn add(&mut self, key: Key) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
    }

    pub fn contains(&mut self, key: &Key) -> bool {
        if self.young.contains(key) {
            return true;
        }
        let is_old = self.old.remove(key);
        if is_old {
            self.add(*key);
        }
        is_old
    }
}

/// Messages that are accepted and not stored yet.
#[derive(Default)]
pub struct Accepted {
    sizes: HashMap<Key, usize>,
    pub bytes: usize,
    /// When each was accepted, the oldest first. May name some that were stored since.
    order: VecDeque<(Duration, Key)>,
}

impl Accepted {
    pub fn contains(&self, key: &Key) -> bool {
        self.sizes.contains_key(key)
    }

    /// Return whether the log falls behind.
    pub fn is_behind(&mut self, now: Duration) -> bool {
        while self.order.front().is_some_and(|(_, oldest)| !self.sizes.contains_key(oldest)) {
            self.order.pop_front();
        }
        let is_late = |(accepted, _): &(Duration, Key)| now.saturating_sub(*accepted) > MAX_STORE_DELAY;
        self.bytes >= MOST_BYTES || self.order.front().is_some_and(is_late)
    }

    /// Add a message; false: it is there already, or there is no room.
    pub fn add(&mut self, key: Key, size: usize, now: Duration) -> bool {
        if self.bytes + size > MOST_BYTES || self.sizes.contains_key(&key) {
            return false;
        }
        self.sizes.insert(key, size);
        self.bytes += size;
        self.order.push_back((now, key));
        true
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(size) = self.sizes.remove(key) {
            self.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::KEY_LENGTH;

    #[test]
    fn knows_two_generations_of_keys() {
        let mut known = KnownKeys::default();
        let key = |number: usize| {
            let mut key = [0; KEY_LENGTH];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        for number in 0..3 * GENERATION {
            known.add(key(number));
            assert!(known.contains(&key(0)), "after {number}");
        }
        assert!(known.young.len() + known.old.len() <= 2 * GENERATION);
        assert!(!known.contains(&key(1)) && known.contains(&key(3 * GENERATION - 1)));
    }
}
