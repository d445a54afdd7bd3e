//! Which messages that come by gossip are accepted before they are stored.
//!
//! gossipsub passes a message on when it is accepted. One that every peer takes, and whose parents the log holds or is
//! about to hold, need not wait until it is stored: the [`Validator`] accepts it. What else comes is left to the caller, who
//! holds it back until it is stored: what is invalid, what lacks a parent as far as the validator knows, and everything while
//! the log falls behind.
//!
//! The validator knows a bounded number of the log's keys, so that it accepts less than it could, and never more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch::{CheckedValue, check, verify_signatures};
use crate::clock;
use crate::id::{self, KEY_LENGTH, Key};

/// Keys in a generation of those that are known, of which there are two.
const GENERATION: usize = 1 << 18;

/// Bytes of messages that are accepted and not stored yet, beyond which all others are left to the caller.
const MOST_BYTES: usize = 16 << 20;

/// How long a message may be accepted and not stored, after which all others are left to the caller.
const MAX_STORE_DELAY: Duration = Duration::from_secs(1);

/// What becomes of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is valid, and its parents are stored or accepted: gossip passes it on, and the caller stores it.
    Accept,
    /// It is stored: gossip passes it on.
    Known,
    /// The caller decides.
    Defer,
}

/// What becomes of some publications.
pub struct Validated {
    /// One for each publication.
    pub decisions: Vec<Decision>,
    /// The accepted publications, parents first.
    pub accepted: Vec<usize>,
    /// Their values.
    pub values: Vec<Vec<u8>>,
    /// Their messages: fresh ones, whose signatures hold.
    pub verdicts: Vec<CheckedValue>,
}

/// Decides about gossip on one topic. The caller reports what its log holds.
pub struct Validator {
    topic: String,
    held: Mutex<Held>,
}

impl Validator {
    /// A validator that knows no message yet.
    pub fn new(topic: String) -> Self {
        Self { topic, held: Mutex::default() }
    }

    /// Notes messages that the log holds now.
    pub fn stored(&self, keys: impl IntoIterator<Item = Key>) {
        let mut held = self.held();
        for key in keys {
            held.accepted.remove(&key);
            held.known.add(key);
        }
    }

    /// Notes that no more of these messages is going to be stored. If one of them was accepted and is not stored, all
    /// such messages are forgotten: they may follow it.
    pub fn finish(&self, keys: impl IntoIterator<Item = Key>) {
        let mut held = self.held();
        if keys.into_iter().any(|key| held.accepted.sizes.contains_key(&key)) {
            held.accepted = Accepted::default();
        }
    }

    /// Accepts nothing from now on.
    pub fn close(&self) {
        self.held().is_closed = true;
    }

    /// Decides about the data of publications. `now`: the time since any fixed moment.
    pub fn validate<D: AsRef<[u8]>>(&self, publications: &[D], now: Duration) -> Validated {
        let mut decisions = vec![Decision::Defer; publications.len()];
        let unknown = self.unknown(publications, &mut decisions);
        let (indices, values, mut verdicts) = self.with_parents(unknown);
        verify_signatures(&values, &mut verdicts);
        let mut validated = Validated {
            decisions,
            accepted: Vec::new(),
            values: Vec::with_capacity(values.len()),
            verdicts: Vec::new(),
        };
        let mut held = self.held();
        for ((index, value), verdict) in indices.into_iter().zip(values).zip(verdicts) {
            // What was held a moment ago may have been forgotten since.
            let accepts = verdict.fresh().is_some_and(|parsed| {
                parsed.parents(value).all(|parent| held.has(&parent))
                    && !held.is_closed
                    && held.accepted.add(parsed.key, value.len(), now)
            });
            if accepts {
                validated.decisions[index] = Decision::Accept;
                validated.accepted.push(index);
                validated.values.push(value.to_vec());
                validated.verdicts.push(verdict);
            }
        }
        validated
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Whatever panicked, the keys that are there were put there.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The publications whose keys go with their values and are not known: their indices, keys and values.
    fn unknown<'a, D: AsRef<[u8]>>(
        &self,
        publications: &'a [D],
        decisions: &mut [Decision],
    ) -> Vec<(usize, Key, &'a [u8])> {
        let read = |(index, data): (usize, &'a D)| {
            let (key, value) = read_insert(data.as_ref())?;
            // A hash costs less than parsing, and shows which value a known key stands for.
            let (clock, _) = clock::decode(&key).ok()?;
            (id::key(clock, value).ok()? == key).then_some((index, key, value))
        };
        let mut found: Vec<_> = publications.iter().enumerate().filter_map(read).collect();
        let mut held = self.held();
        found.retain(|(index, key, _)| {
            let is_known = held.known.contains(key);
            if is_known {
                decisions[*index] = Decision::Known;
            }
            !is_known
        });
        found
    }

    /// Those messages whose parents are held, or are among the others: publications' indices, values and verdicts,
    /// ascending by key. Their signatures are not verified yet.
    fn with_parents<'a>(&self, found: Vec<(usize, Key, &'a [u8])>) -> (Vec<usize>, Vec<&'a [u8]>, Vec<CheckedValue>) {
        let values: Vec<_> = found.iter().map(|(_, _, value)| *value).collect();
        let mut verdicts: Vec<_> = check(&values, &self.topic).into_iter().map(Some).collect();
        let mut order: Vec<(Key, usize)> = Vec::with_capacity(found.len());
        for (position, (verdict, (_, claimed, _))) in verdicts.iter().zip(&found).enumerate() {
            // The clock in the key of a publication is a claim.
            if let Some(parsed) = verdict.as_ref().and_then(CheckedValue::fresh)
                && parsed.key == *claimed
            {
                order.push((parsed.key, position));
            }
        }
        order.sort_unstable();
        let mut held = self.held();
        let mut among: HashSet<Key> = HashSet::with_capacity(order.len());
        let (mut indices, mut kept, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for (key, position) in order {
            let (index, _, value) = found[position];
            let has_parents = verdicts[position]
                .as_ref()
                .and_then(CheckedValue::fresh)
                .is_some_and(|parsed| parsed.parents(value).all(|parent| among.contains(&parent) || held.has(&parent)));
            if has_parents && let Some(verdict) = verdicts[position].take() {
                among.insert(key);
                indices.push(index);
                kept.push(value);
                messages.push(verdict);
            }
        }
        (indices, kept, messages)
    }
}

/// The messages that may be parents.
#[derive(Default)]
struct Held {
    known: KnownKeys,
    accepted: Accepted,
    is_closed: bool,
}

impl Held {
    fn has(&mut self, key: &Key) -> bool {
        self.accepted.sizes.contains_key(key) || self.known.contains(key)
    }
}

/// Keys of stored messages: those that were added or looked up last.
#[derive(Default)]
struct KnownKeys {
    young: HashSet<Key>,
    old: HashSet<Key>,
}

impl KnownKeys {
    fn add(&mut self, key: Key) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
    }

    fn contains(&mut self, key: &Key) -> bool {
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
struct Accepted {
    sizes: HashMap<Key, usize>,
    bytes: usize,
    /// When each was accepted, the oldest first. May name some that were stored since.
    order: VecDeque<(Duration, Key)>,
}

impl Accepted {
    /// Adds a message; false: the log falls behind.
    fn add(&mut self, key: Key, size: usize, now: Duration) -> bool {
        while self.order.front().is_some_and(|(_, oldest)| !self.sizes.contains_key(oldest)) {
            self.order.pop_front();
        }
        let is_late = self.order.front().is_some_and(|(accepted, _)| now.saturating_sub(*accepted) > MAX_STORE_DELAY);
        if is_late || self.bytes + size > MOST_BYTES || self.sizes.contains_key(&key) {
            return false;
        }
        self.sizes.insert(key, size);
        self.bytes += size;
        self.order.push_back((now, key));
        true
    }

    fn remove(&mut self, key: &Key) {
        if let Some(size) = self.sizes.remove(key) {
            self.bytes -= size;
        }
    }
}

/// Tags of protocol buffers: field 1 and field 2, of bytes.
const FIRST: u8 = 0x0a;
const SECOND: u8 = 0x12;

/// The key and the value of a publication: an Event with an Insert (wire format, "Gossip"), in the one form that encoders
/// write. What else may be valid is left to the caller.
fn read_insert(data: &[u8]) -> Option<(Key, &[u8])> {
    let (insert, rest) = field(data, FIRST)?;
    let (key, end) = field(insert, FIRST)?;
    let (value, end) = field(end, SECOND)?;
    (rest.is_empty() && end.is_empty() && key.len() == KEY_LENGTH).then_some((key.try_into().ok()?, value))
}

/// The bytes of the field that `data` begins with, and what follows it.
fn field(data: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let mut data = data.strip_prefix(&[tag])?;
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = data.split_first()?;
        data = rest;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let is_shortest = *byte > 0 || shift == 0;
            return if is_shortest { data.split_at_checked(length) } else { None };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::sign_chain;
    use crate::message::Codec;
    use crate::signature::SigningKey;

    const TOPIC: &str = "com.example.test";
    const START: Duration = Duration::ZERO;

    /// The keys and values of a chain of messages that follows `parents`.
    fn chain(parents: &[Key], count: usize, seed: u8) -> Vec<(Key, Vec<u8>)> {
        let payloads = vec![vec![seed]; count];
        let signing_key = SigningKey::new(&[seed; 32]);
        let (values, verdicts) = sign_chain(TOPIC, parents, &payloads, &signing_key, Codec::Cbor).unwrap();
        verdicts.iter().map(|verdict| verdict.fresh().unwrap().key).zip(values).collect()
    }

    fn length(mut length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while length > 0x7f {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out
    }

    fn publication((key, value): &(Key, Vec<u8>)) -> Vec<u8> {
        let insert = [&[FIRST, 20], &key[..], &[SECOND], &length(value.len()), value].concat();
        [&[FIRST], &length(insert.len())[..], &insert].concat()
    }

    fn publications(messages: &[(Key, Vec<u8>)]) -> Vec<Vec<u8>> {
        messages.iter().map(publication).collect()
    }

    fn validator() -> Validator {
        Validator::new(TOPIC.to_owned())
    }

    fn decide(validator: &Validator, messages: &[(Key, Vec<u8>)]) -> Vec<Decision> {
        validator.validate(&publications(messages), START).decisions
    }

    #[test]
    fn accepts_what_follows_accepted_and_stored_messages_parents_first() {
        let (validator, mut messages) = (validator(), chain(&[], 5, 1));
        messages.reverse();
        let validated = validator.validate(&publications(&messages[2..]), START);
        assert_eq!(validated.decisions, [Decision::Accept; 3]);
        assert_eq!(validated.accepted, [2, 1, 0]);
        let values: Vec<_> = messages[2..].iter().rev().map(|(_, value)| value.clone()).collect();
        assert_eq!(validated.values, values);
        let keys: Vec<_> = validated.verdicts.iter().map(|verdict| verdict.fresh().unwrap().key).collect();
        assert_eq!(keys, [messages[4].0, messages[3].0, messages[2].0]);
        validator.stored(keys);
        assert_eq!(decide(&validator, &messages[1..3]), [Decision::Accept, Decision::Known]);
        assert_eq!(decide(&validator, &messages[..1]), [Decision::Accept]);
    }

    #[test]
    fn leaves_what_is_accepted_already() {
        let (validator, messages) = (validator(), chain(&[], 1, 1));
        assert_eq!(
            decide(&validator, &[messages[0].clone(), messages[0].clone()]),
            [Decision::Accept, Decision::Defer]
        );
        assert_eq!(decide(&validator, &messages), [Decision::Defer]);
    }

    #[test]
    fn leaves_what_lacks_a_parent() {
        let (validator, messages) = (validator(), chain(&[], 3, 1));
        assert_eq!(decide(&validator, &messages[1..]), [Decision::Defer; 2]);
        validator.stored([messages[0].0]);
        assert_eq!(decide(&validator, &messages[1..]), [Decision::Accept; 2]);
        let both = chain(&[messages[0].0, chain(&[], 1, 2)[0].0], 1, 3);
        assert_eq!(decide(&validator, &both), [Decision::Defer]);
    }

    #[test]
    fn leaves_what_is_invalid_and_what_follows_it() {
        let (validator, messages) = (validator(), chain(&[], 2, 1));
        let mut forged = messages[0].clone();
        let signature = forged.1.len() - 40;
        forged.1[signature] ^= 1;
        forged.0 = id::key(1, &forged.1).unwrap();
        let follows = chain(&[forged.0], 1, 2);
        assert_eq!(decide(&validator, &[forged, follows[0].clone()]), [Decision::Defer; 2]);
        // A key with another clock, and one of another value.
        let claimed = id::key(7, &messages[0].1).unwrap();
        assert_eq!(decide(&validator, &[(claimed, messages[0].1.clone())]), [Decision::Defer]);
        assert_eq!(decide(&validator, &[(messages[1].0, messages[0].1.clone())]), [Decision::Defer]);
        let other = Validator::new("com.example.other".to_owned());
        assert_eq!(decide(&other, &messages), [Decision::Defer; 2]);
        assert_eq!(decide(&validator, &messages), [Decision::Accept; 2]);
    }

    #[test]
    fn leaves_other_forms_of_a_publication() {
        let (validator, messages) = (validator(), chain(&[], 1, 1));
        let data = publication(&messages[0]);
        for cut in 0..data.len() {
            assert!(validator.validate(&[&data[..cut]], START).accepted.is_empty());
        }
        assert!(validator.validate(&[[&data[..], &[0]].concat()], START).accepted.is_empty());
        assert!(validator.validate(&[[0x80; 12]], START).accepted.is_empty());
        assert!(
            validator
                .validate(&[[&[FIRST, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &data].concat()], START)
                .accepted
                .is_empty()
        );
        // A length in more bytes than it needs: of one message there would be any number of publications.
        let (tag, rest) = data.split_at(1);
        let (length, insert) = rest.split_at(2);
        let longer = [tag, &[length[0], length[1] | 0x80, 0], insert].concat();
        assert!(validator.validate(&[longer], START).accepted.is_empty());
        assert_eq!(validator.validate(&[data], START).decisions, [Decision::Accept]);
    }

    #[test]
    fn leaves_everything_while_the_log_falls_behind() {
        let (validator, messages) = (validator(), chain(&[], 4, 1));
        let at = |index: usize, now| validator.validate(&[publication(&messages[index])], now).decisions[0];
        assert_eq!(at(0, START), Decision::Accept);
        assert_eq!(at(1, MAX_STORE_DELAY), Decision::Accept);
        assert_eq!(at(2, MAX_STORE_DELAY + Duration::from_millis(1)), Decision::Defer);
        validator.stored([messages[0].0]);
        assert_eq!(at(2, 2 * MAX_STORE_DELAY), Decision::Accept);
        validator.stored([messages[1].0, messages[2].0]);
        let mut held = validator.held();
        assert!(held.accepted.add([1; 20], MOST_BYTES - messages[3].1.len(), MAX_STORE_DELAY));
        assert!(!held.accepted.add([2; 20], messages[3].1.len() + 1, MAX_STORE_DELAY));
        drop(held);
        assert_eq!(at(3, MAX_STORE_DELAY), Decision::Accept);
    }

    #[test]
    fn accepts_nothing_that_follows_what_was_forgotten() {
        let (validator, messages) = (validator(), chain(&[], 3, 1));
        assert_eq!(decide(&validator, &messages[..2]), [Decision::Accept; 2]);
        validator.stored([messages[0].0]);
        validator.finish([messages[0].0]);
        assert_eq!(decide(&validator, &messages[1..2]), [Decision::Defer], "it is accepted already");
        validator.finish([messages[0].0, messages[1].0]);
        assert_eq!(decide(&validator, &messages[2..]), [Decision::Defer]);
        assert_eq!(decide(&validator, &messages[1..2]), [Decision::Accept]);
        assert_eq!(validator.held().accepted.bytes, messages[1].1.len());
    }

    #[test]
    fn accepts_nothing_once_it_is_closed() {
        let (validator, messages) = (validator(), chain(&[], 2, 1));
        validator.stored([messages[0].0]);
        validator.close();
        assert_eq!(decide(&validator, &messages), [Decision::Known, Decision::Defer]);
    }

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
