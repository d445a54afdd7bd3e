//! Publications that wait: for their parents, or for the log, which has fallen behind.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use crate::batch::CheckedValue;
use crate::id::Key;
use crate::validator::Publication;

/// How long a publication waits. Parents come over other connections, mostly within milliseconds; while all processors
/// are busy it takes them some hundred.
pub const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Publications that wait at a time, and bytes of them.
const MOST_WAITING: usize = 1024;
const MOST_BYTES: usize = 4 << 20;

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
    missing: HashSet<Key>,
}

/// The publications that wait, within limits of number, bytes and time.
#[derive(Default)]
pub struct Orphans {
    waiting: HashMap<Key, Orphan>,
    /// By parent, those that wait for it.
    children: HashMap<Key, HashSet<Key>>,
    /// Since when each waits, and its key.
    order: BTreeSet<(Duration, Key)>,
    /// Those that wait for no parent.
    ready: Vec<Candidate>,
    /// The bytes of all.
    bytes: usize,
}

impl Orphans {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    /// Have a candidate wait for its missing parents, if there are any; give it back if there is no room, if it has
    /// waited long enough, or if its message waits already.
    pub fn add(&mut self, candidate: Candidate, missing: HashSet<Key>, now: Duration) -> Option<Candidate> {
        let bytes = candidate.publication.data.len();
        let has_room = self.waiting.len() + self.ready.len() < MOST_WAITING && self.bytes + bytes <= MOST_BYTES;
        let is_old = now.saturating_sub(candidate.since) >= LONGEST_WAIT;
        if !has_room || is_old || self.waiting.contains_key(&candidate.key) {
            return Some(candidate);
        }
        self.bytes += bytes;
        if missing.is_empty() {
            self.ready.push(candidate);
            return None;
        }
        let key = candidate.key;
        for parent in &missing {
            self.children.entry(*parent).or_default().insert(key);
        }
        self.order.insert((candidate.since, key));
        self.waiting.insert(key, Orphan { candidate, missing });
        None
    }

    /// Remove and return those that wait for nothing but a message that is held now, and that message itself.
    pub fn resolve(&mut self, key: &Key) -> Vec<Candidate> {
        let mut found: Vec<_> = self.remove(key).into_iter().collect();
        for child in self.children.remove(key).unwrap_or_default() {
            if let Some(orphan) = self.waiting.get_mut(&child) {
                orphan.missing.remove(key);
                if orphan.missing.is_empty() {
                    found.extend(self.remove(&child));
                }
            }
        }
        found
    }

    /// Do as [`Self::resolve`], and keep what it finds for [`Self::take_ready`].
    pub fn note(&mut self, key: &Key) {
        let found = self.resolve(key);
        self.bytes += bytes_of(&found);
        self.ready.extend(found);
    }

    /// Remove and return those that wait for no parent.
    pub fn take_ready(&mut self) -> Vec<Candidate> {
        let found = std::mem::take(&mut self.ready);
        self.bytes -= bytes_of(&found);
        found
    }

    /// Remove and return those that have waited long enough for their parents.
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
        let Self { waiting, ready, .. } = std::mem::take(self);
        waiting.into_values().map(|orphan| orphan.candidate).chain(ready).collect()
    }

    fn remove(&mut self, key: &Key) -> Option<Candidate> {
        let Orphan { candidate, missing } = self.waiting.remove(key)?;
        self.bytes -= candidate.publication.data.len();
        self.order.remove(&(candidate.since, *key));
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

fn bytes_of(candidates: &[Candidate]) -> usize {
    candidates.iter().map(|candidate| candidate.publication.data.len()).sum()
}
