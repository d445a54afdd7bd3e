//! Publications that wait: for their parents, or for the log, which has fallen behind.
//!
//! A source has all the room while nobody else needs it. Once there is none, each has a share, the room divided by the
//! number of sources: what is within it finds room, and the youngest of whoever has the most gives way. So whatever others
//! do, what came from one source waits as long as it is within its share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;
use std::time::Duration;

use crate::batch::CheckedValue;
use crate::id::{KEY_LENGTH, Key};
use crate::validator::publication::Publication;

/// How long a publication waits. Parents come over other connections, mostly within milliseconds; while all processors
/// are busy it takes them some hundred.
pub const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How long a publication lacks parents until the log is asked for them. In a burst most orphans have them by then.
pub const ASK_DELAY: Duration = Duration::from_millis(10);

/// Publications that wait at a time, and bytes of them.
const MOST_WAITING: usize = 1024;
const MOST_BYTES: usize = 4 << 20;

/// Parents that are asked for at once. For a publication that lacks more, none are.
const MOST_ASKED: usize = 1024;

/// A publication whose value is a well-formed message of the topic; its signature is not verified yet.
pub struct Candidate {
    pub publication: Publication,
    pub key: Key,
    /// Where in the data of the publication its value is.
    pub place: Range<usize>,
    pub verdict: CheckedValue,
    /// When it came.
    pub since: Duration,
}

impl Candidate {
    pub fn value(&self) -> &[u8] {
        &self.publication.data[self.place.clone()]
    }

    /// Return the keys of the parents.
    pub fn parents(&self) -> impl Iterator<Item = Key> {
        self.verdict.fresh().into_iter().flat_map(|parsed| parsed.parents(self.value()))
    }
}

struct Orphan {
    candidate: Candidate,
    /// The parents that it waits for; none: it waits for the log alone.
    missing: HashSet<Key>,
}

/// What waits of one source.
#[derive(Default)]
struct Share {
    order: BTreeSet<(Duration, Key)>,
    bytes: usize,
}

/// The publications that wait, within limits of number, bytes and time.
#[derive(Default)]
pub struct Orphans {
    waiting: HashMap<Key, Orphan>,
    /// By parent, those that wait for it.
    children: HashMap<Key, HashSet<Key>>,
    /// Since when each waits, and its key.
    order: BTreeSet<(Duration, Key)>,
    /// Likewise, of those whose parents nobody was asked for.
    unasked: BTreeSet<(Duration, Key)>,
    /// Those that wait for no parent.
    ready: HashSet<Key>,
    /// Those that were stored meanwhile, and wait no more.
    stored: Vec<Candidate>,
    shares: HashMap<u64, Share>,
    /// The bytes of all that wait.
    bytes: usize,
}

impl Orphans {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.stored.is_empty()
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.waiting.contains_key(key)
    }

    /// Return whether any waits for no parent.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Return whether any was stored while it waited.
    pub fn has_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Have a candidate wait for its missing parents, if there are any, or else for the log. Return those that do not
    /// wait, or no more: itself, if it has waited long enough, if its message waits already, or if there is no room
    /// for it; else what had to make room.
    pub fn add(&mut self, candidate: Candidate, missing: HashSet<Key>, now: Duration) -> Vec<Candidate> {
        let (key, source, bytes) = (candidate.key, candidate.publication.source, candidate.publication.data.len());
        if now.saturating_sub(candidate.since) >= LONGEST_WAIT || self.waiting.contains_key(&key) {
            return vec![candidate];
        }
        let mut refused = Vec::new();
        if self.waiting.len() >= MOST_WAITING || self.bytes + bytes > MOST_BYTES {
            let (own, own_bytes) = self.shares.get(&source).map_or((0, 0), |share| (share.order.len(), share.bytes));
            let sources = self.shares.len() + usize::from(own == 0);
            if own + 1 > MOST_WAITING / sources || own_bytes + bytes > MOST_BYTES / sources {
                return vec![candidate];
            }
            // Others have more than their shares.
            while self.waiting.len() >= MOST_WAITING
                && let Some(other) = self.remove_youngest_of_largest(|share| share.order.len())
            {
                refused.push(other);
            }
            while self.bytes + bytes > MOST_BYTES
                && let Some(other) = self.remove_youngest_of_largest(|share| share.bytes)
            {
                refused.push(other);
            }
        }
        let place = (candidate.since, key);
        let share = self.shares.entry(source).or_default();
        share.order.insert(place);
        share.bytes += bytes;
        self.bytes += bytes;
        self.order.insert(place);
        if missing.is_empty() {
            self.ready.insert(key);
        } else {
            self.unasked.insert(place);
        }
        for parent in &missing {
            self.children.entry(*parent).or_default().insert(key);
        }
        self.waiting.insert(key, Orphan { candidate, missing });
        refused
    }

    fn remove_youngest_of_largest(&mut self, size: impl Fn(&Share) -> usize) -> Option<Candidate> {
        let largest = self.shares.iter().max_by_key(|(source, share)| (size(share), **source));
        let (_, youngest) = *largest?.1.order.last()?;
        self.remove(&youngest)
    }

    /// Remove and return those that wait for nothing but a message that is held now.
    pub fn resolve(&mut self, key: &Key) -> Vec<Candidate> {
        let found = self.without_parent(key);
        found.iter().filter_map(|child| self.remove(child)).collect()
    }

    /// Note that a message is stored, for [`Self::take_ready`] and [`Self::take_stored`].
    pub fn note(&mut self, key: &Key) {
        let stored = self.remove(key);
        self.stored.extend(stored);
        let found = self.without_parent(key);
        self.ready.extend(found);
    }

    /// Have nobody wait for a parent any more; return those that wait for no other.
    fn without_parent(&mut self, parent: &Key) -> Vec<Key> {
        let mut found = Vec::new();
        for child in self.children.remove(parent).unwrap_or_default() {
            if let Some(orphan) = self.waiting.get_mut(&child) {
                orphan.missing.remove(parent);
                if orphan.missing.is_empty() {
                    self.unasked.remove(&(orphan.candidate.since, child));
                    found.push(child);
                }
            }
        }
        found
    }

    /// Remove and return those that wait for no parent.
    pub fn take_ready(&mut self) -> Vec<Candidate> {
        let ready = std::mem::take(&mut self.ready);
        ready.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Remove and return those that were stored meanwhile.
    pub fn take_stored(&mut self) -> Vec<Candidate> {
        std::mem::take(&mut self.stored)
    }

    /// Return whether there is something for [`Self::take_missing`].
    pub fn has_missing(&self, now: Duration) -> bool {
        self.unasked.first().is_some_and(|(since, _)| now.saturating_sub(*since) >= ASK_DELAY)
    }

    /// Take the parents that publications have lacked for a moment, and that do not wait themselves, ascending: each is
    /// given once for a publication.
    pub fn take_missing(&mut self, now: Duration) -> Vec<Key> {
        let mut found = BTreeSet::new();
        while self.has_missing(now)
            && let Some(place) = self.unasked.first().copied()
        {
            let orphan = self.waiting.get(&place.1);
            let missing = orphan.into_iter().flat_map(|orphan| &orphan.missing);
            let missing: Vec<_> = missing.filter(|parent| !self.waiting.contains_key(*parent)).copied().collect();
            if missing.len() <= MOST_ASKED {
                if found.len() + missing.len() > MOST_ASKED {
                    break;
                }
                found.extend(missing);
            }
            self.unasked.remove(&place);
        }
        found.into_iter().collect()
    }

    /// Return when the next has waited long enough, or is to be asked for, after a moment up to which all that was due
    /// has been done.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        let last_asked = now.checked_sub(ASK_DELAY).map_or(Unbounded, |since| Excluded((since, [0xff; KEY_LENGTH])));
        let asked =
            self.unasked.range((last_asked, Unbounded)).next().map(|(since, _)| since.saturating_add(ASK_DELAY));
        let expired = self.order.first().map(|(since, _)| since.saturating_add(LONGEST_WAIT));
        asked.into_iter().chain(expired).min()
    }

    /// Remove and return those that have waited long enough.
    pub fn expire(&mut self, now: Duration) -> Vec<Candidate> {
        let mut found = Vec::new();
        while let Some((since, key)) = self.order.first().copied()
            && now.saturating_sub(since) >= LONGEST_WAIT
        {
            found.extend(self.remove(&key));
        }
        found
    }

    /// Remove and return all.
    pub fn clear(&mut self) -> Vec<Candidate> {
        let Self { waiting, stored, .. } = std::mem::take(self);
        waiting.into_values().map(|orphan| orphan.candidate).chain(stored).collect()
    }

    fn remove(&mut self, key: &Key) -> Option<Candidate> {
        let Orphan { candidate, missing } = self.waiting.remove(key)?;
        let (place, bytes) = ((candidate.since, *key), candidate.publication.data.len());
        self.bytes -= bytes;
        self.order.remove(&place);
        if let Some(share) = self.shares.get_mut(&candidate.publication.source) {
            share.bytes -= bytes;
            share.order.remove(&place);
            if share.order.is_empty() {
                self.shares.remove(&candidate.publication.source);
            }
        }
        if missing.is_empty() {
            self.ready.remove(key);
        } else {
            self.unasked.remove(&place);
        }
        for parent in missing {
            if let Some(siblings) = self.children.get_mut(&parent) {
                siblings.remove(key);
                if siblings.is_empty() {
                    self.children.remove(&parent);
                }
            }
        }
        Some(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Invalid;

    const START: Duration = Duration::ZERO;

    fn key(number: u16) -> Key {
        let mut key = [0; KEY_LENGTH];
        key[..2].copy_from_slice(&number.to_be_bytes());
        key
    }

    fn candidate(number: u16, source: u64, bytes: usize, since: Duration) -> Candidate {
        let publication = Publication { ticket: number.into(), source, data: vec![0; bytes] };
        let verdict = CheckedValue::Invalid(Invalid { reason: String::new(), key: None });
        Candidate { publication, key: key(number), place: 0..0, verdict, since }
    }

    /// Those that do not wait, after an orphan of some bytes came.
    fn add(orphans: &mut Orphans, number: u16, source: u64, bytes: usize) -> Vec<u16> {
        numbers(&orphans.add(candidate(number, source, bytes, START), [key(u16::MAX)].into(), START))
    }

    fn numbers(candidates: &[Candidate]) -> Vec<u16> {
        let mut found: Vec<_> = candidates.iter().map(|each| each.publication.ticket as u16).collect();
        found.sort_unstable();
        found
    }

    fn waiting(orphans: &Orphans, source: u64) -> usize {
        orphans.waiting.values().filter(|orphan| orphan.candidate.publication.source == source).count()
    }

    /// Nothing is left behind of what waits no more.
    fn assert_empty(orphans: &Orphans) {
        assert!(orphans.is_empty() && orphans.children.is_empty() && orphans.shares.is_empty());
        assert!(orphans.order.is_empty() && orphans.unasked.is_empty() && orphans.ready.is_empty());
        assert_eq!(orphans.bytes, 0);
    }

    #[test]
    fn one_source_has_all_the_room_while_nobody_else_needs_it() {
        let mut orphans = Orphans::default();
        for number in 0..1024 {
            assert_eq!(add(&mut orphans, number, 1, 1), []);
        }
        assert_eq!(add(&mut orphans, 1024, 1, 1), [1024]);
        // The youngest give way to others, until both have the same.
        for number in 0..512 {
            assert_eq!(add(&mut orphans, 2000 + number, 2, 1), [1023 - number]);
        }
        assert_eq!(add(&mut orphans, 3000, 2, 1), [3000]);
        assert_eq!(add(&mut orphans, 3001, 1, 1), [3001]);
        assert_eq!(add(&mut orphans, 3002, 3, 1), [2511]);
        assert_eq!((waiting(&orphans, 1), waiting(&orphans, 2), waiting(&orphans, 3)), (512, 511, 1));
        assert_eq!(orphans.clear().len(), 1024);
        assert_empty(&orphans);
    }

    #[test]
    fn one_source_has_all_the_bytes_while_nobody_else_needs_them() {
        let mut orphans = Orphans::default();
        let quarter = MOST_BYTES / 4;
        for number in 0..4 {
            assert_eq!(add(&mut orphans, number, 1, quarter), []);
        }
        assert_eq!(add(&mut orphans, 4, 1, 1), [4]);
        assert_eq!(add(&mut orphans, 5, 2, 1), [3]);
        assert_eq!(add(&mut orphans, 6, 2, quarter - 1), []);
        assert_eq!(add(&mut orphans, 7, 2, quarter + 1), [7], "with what waits, more than half");
        assert_eq!(add(&mut orphans, 8, 3, MOST_BYTES / 3 + 1), [8], "more than a third");
        assert_eq!(add(&mut orphans, 9, 3, MOST_BYTES / 3), [1, 2]);
        assert_eq!(orphans.bytes, 2 * quarter + MOST_BYTES / 3);
        assert_eq!(add(&mut orphans, 10, 4, MOST_BYTES + 1), [10], "too large");
        orphans.clear();
        assert_empty(&orphans);
    }

    #[test]
    fn what_one_source_does_takes_no_room_from_the_others() {
        // Three sources: one has within its third, whatever the two others add, and in whatever order.
        let mut state = 1_u32;
        let mut random = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        let mut orphans = Orphans::default();
        let (mut count, mut bytes, mut number) = (0, 0, 0);
        while count < MOST_WAITING / 3 {
            number += 1;
            let size = random(2 * MOST_BYTES / MOST_WAITING);
            let source = random(8).min(2) as u64;
            if source > 0 {
                add(&mut orphans, number, source, random(4) * size);
            } else if bytes + size <= MOST_BYTES / 3 {
                let refused = orphans.add(candidate(number, 0, size, START), [key(u16::MAX)].into(), START);
                assert!(refused.iter().all(|each| each.publication.source != 0), "of {count}");
                (count, bytes) = (count + 1, bytes + size);
            } else {
                break;
            }
            assert_eq!(waiting(&orphans, 0), count);
            assert!(orphans.waiting.len() <= MOST_WAITING && orphans.bytes <= MOST_BYTES);
        }
        assert!(count > 200, "{count}");
    }

    #[test]
    fn expires_by_age_whatever_it_waits_for() {
        let mut orphans = Orphans::default();
        let later = Duration::from_millis(100);
        assert!(orphans.add(candidate(1, 1, 1, later), [key(9)].into(), later).is_empty());
        assert!(orphans.add(candidate(2, 1, 1, START), HashSet::new(), later).is_empty());
        assert_eq!(numbers(&orphans.add(candidate(3, 1, 1, START), [key(9)].into(), LONGEST_WAIT)), [3]);
        assert_eq!(numbers(&orphans.add(candidate(2, 1, 1, later), [key(9)].into(), later)), [2]);
        assert_eq!(orphans.next_due(later), Some(later + ASK_DELAY));
        assert_eq!(orphans.next_due(later + ASK_DELAY), Some(LONGEST_WAIT));
        assert_eq!(numbers(&orphans.expire(LONGEST_WAIT - Duration::from_nanos(1))), []);
        assert_eq!(numbers(&orphans.expire(LONGEST_WAIT)), [2]);
        assert_eq!(numbers(&orphans.expire(later + LONGEST_WAIT)), [1]);
        assert_eq!(orphans.next_due(later), None);
        assert_empty(&orphans);
    }

    #[test]
    fn what_is_stored_is_no_orphan_and_has_none() {
        let mut orphans = Orphans::default();
        for (number, missing) in [(1, vec![7]), (2, vec![7, 8]), (3, vec![1]), (4, vec![8])] {
            assert!(
                orphans.add(candidate(number, 1, 1, START), missing.into_iter().map(key).collect(), START).is_empty()
            );
        }
        orphans.note(&key(1));
        orphans.note(&key(7));
        assert!(orphans.has_stored() && orphans.has_ready() && orphans.contains(&key(3)));
        assert_eq!((numbers(&orphans.take_stored()), numbers(&orphans.take_ready())), (vec![1], vec![3]));
        assert_eq!(numbers(&orphans.resolve(&key(8))), [2, 4]);
        assert_empty(&orphans);
    }

    #[test]
    fn asks_for_so_many_parents_at_once() {
        let mut orphans = Orphans::default();
        let keys = |numbers: Range<u16>| -> HashSet<Key> { numbers.map(key).collect() };
        for (number, parents) in [(1, 100..1024), (2, 1000..1124), (3, 3000..4025), (4, 2000..2001)] {
            assert!(orphans.add(candidate(number, 1, 1, START), keys(parents), START).is_empty());
        }
        assert!(!orphans.has_missing(ASK_DELAY - Duration::from_nanos(1)));
        // The second would be too many with the first, the third by itself.
        assert_eq!(orphans.take_missing(ASK_DELAY), (100..1024).map(key).collect::<Vec<_>>());
        assert!(orphans.has_missing(ASK_DELAY));
        let rest: Vec<_> = (1000..1124).chain([2000]).map(key).collect();
        assert_eq!(orphans.take_missing(ASK_DELAY), rest);
        assert!(orphans.take_missing(LONGEST_WAIT).is_empty());
    }
}
