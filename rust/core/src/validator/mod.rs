//! Which messages that come by gossip are accepted before they are stored.
//!
//! gossipsub passes a message on when it is accepted. One that every peer takes, and whose parents the log holds or is
//! about to hold, need not wait until it is stored: the [`Validator`] accepts it. Gossip keeps no order: what lacks a
//! parent waits a moment for it, as all does while the log falls behind ([`orphans`]). What else comes is left to the
//! caller, who holds it back until it is stored: what is invalid, and what has waited in vain.
//!
//! The validator knows a bounded number of the log's keys, so that it accepts less than it could, and never more.

mod orphans;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch::{CheckedValue, check, verify_signatures};
use crate::clock;
use crate::id::{self, KEY_LENGTH, Key};
use crate::validator::orphans::{Candidate, Orphans};

/// Keys in a generation of those that are known, of which there are two.
const GENERATION: usize = 1 << 18;

/// Bytes of messages that are accepted and not stored yet, beyond which all others wait.
const MOST_BYTES: usize = 16 << 20;

/// How long a message may be accepted and not stored, after which all others wait.
const MAX_STORE_DELAY: Duration = Duration::from_secs(1);

/// A message as it came by gossip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The caller's name for it.
    pub ticket: u64,
    /// The caller's name for who passed it on.
    pub source: u64,
    /// What was published.
    pub data: Vec<u8>,
}

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

/// A message that was accepted: a fresh one, whose signature holds.
pub struct AcceptedMessage {
    /// Who passed it on.
    pub source: u64,
    /// Its encoding.
    pub value: Vec<u8>,
    /// What was found of it.
    pub verdict: CheckedValue,
}

/// What becomes of some publications.
#[derive(Default)]
pub struct Validated {
    /// Those that are decided, among them some of earlier calls.
    pub decisions: Vec<(Publication, Decision)>,
    /// The accepted messages, parents first.
    pub accepted: Vec<AcceptedMessage>,
}

impl Validated {
    fn defer(&mut self, candidates: impl IntoIterator<Item = Candidate>) {
        self.decisions.extend(candidates.into_iter().map(|candidate| (candidate.publication, Decision::Defer)));
    }
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

    /// Notes messages that the log holds now. What waited for them is decided by the next [`Self::validate`].
    pub fn stored(&self, keys: impl IntoIterator<Item = Key>) {
        let mut held = self.held();
        for key in keys {
            held.accepted.remove(&key);
            held.known.add(key);
            held.orphans.note(&key);
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

    /// Accepts nothing from now on. What waits is deferred by the next [`Self::validate`].
    pub fn close(&self) {
        self.held().is_closed = true;
    }

    /// Returns whether publications wait for their parents: they are to be looked at again soon, by
    /// [`Self::validate`], also where nothing else comes.
    pub fn waits(&self) -> bool {
        !self.held().orphans.is_empty()
    }

    /// Decides about publications, and about those of earlier calls that waited. `now`: the time since any fixed moment.
    pub fn validate(&self, publications: Vec<Publication>, now: Duration) -> Validated {
        let mut validated = Validated::default();
        let found = self.unknown(publications, now, &mut validated);
        let candidates = self.with_parents(found, now, &mut validated);
        let (values, mut verdicts): (Vec<_>, Vec<_>) =
            candidates.into_iter().map(|each| ((each.publication, each.place), each.verdict)).unzip();
        let slices: Vec<_> = values.iter().map(|(publication, place)| &publication.data[place.clone()]).collect();
        verify_signatures(&slices, &mut verdicts);
        let mut held = self.held();
        for ((publication, place), verdict) in values.into_iter().zip(verdicts) {
            let value = &publication.data[place];
            // What was held a moment ago may have been forgotten since.
            let accepts = verdict.fresh().is_some_and(|parsed| {
                parsed.parents(value).all(|parent| held.has(&parent))
                    && !held.is_closed
                    && held.accepted.add(parsed.key, value.len(), now)
            });
            if accepts {
                let value = value.to_vec();
                validated.accepted.push(AcceptedMessage { source: publication.source, value, verdict });
            }
            validated.decisions.push((publication, if accepts { Decision::Accept } else { Decision::Defer }));
        }
        validated
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Whatever panicked, the keys that are there were put there.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return the publications whose keys go with their values and are not known, as well-formed messages.
    fn unknown(&self, publications: Vec<Publication>, now: Duration, validated: &mut Validated) -> Vec<Candidate> {
        let mut found: Vec<(Publication, Key, Range<usize>)> = Vec::with_capacity(publications.len());
        for publication in publications {
            match read_insert(&publication.data) {
                // A hash costs less than parsing, and shows which value a known key stands for.
                Some((key, place)) if is_key_of(&key, &publication.data[place.clone()]) => {
                    found.push((publication, key, place));
                }
                _ => validated.decisions.push((publication, Decision::Defer)),
            }
        }
        let mut held = self.held();
        let (known, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, key, _)| held.known.contains(key));
        drop(held);
        validated.decisions.extend(known.into_iter().map(|(publication, ..)| (publication, Decision::Known)));
        let values: Vec<_> = found.iter().map(|(publication, _, place)| &publication.data[place.clone()]).collect();
        let verdicts = check(&values, &self.topic);
        let mut candidates = Vec::with_capacity(found.len());
        for ((publication, key, place), verdict) in found.into_iter().zip(verdicts) {
            // The clock in the key of a publication is a claim.
            if verdict.fresh().is_some_and(|parsed| parsed.key == key) {
                candidates.push(Candidate { publication, key, place, verdict, since: now });
            } else {
                validated.decisions.push((publication, Decision::Defer));
            }
        }
        candidates
    }

    /// Return those of new and waiting messages whose parents are held, or are among the others, ascending by key; none
    /// while the log falls behind.
    fn with_parents(&self, found: Vec<Candidate>, now: Duration, validated: &mut Validated) -> Vec<Candidate> {
        let mut held = self.held();
        if held.is_closed {
            validated.defer(held.orphans.clear());
        }
        validated.defer(held.orphans.expire(now));
        let mut queue: BTreeMap<Key, Candidate> = BTreeMap::new();
        for candidate in held.orphans.take_ready().into_iter().chain(found) {
            validated.defer(queue.insert(candidate.key, candidate));
        }
        let is_behind = held.accepted.is_behind(now);
        let (mut among, mut kept) = (HashSet::with_capacity(queue.len()), Vec::with_capacity(queue.len()));
        while let Some((key, candidate)) = queue.pop_first() {
            if held.known.contains(&key) {
                validated.decisions.push((candidate.publication, Decision::Known));
                continue;
            }
            let missing: HashSet<Key> =
                candidate.parents().filter(|parent| !among.contains(parent) && !held.has(parent)).collect();
            if missing.is_empty() && !is_behind {
                among.insert(key);
                // A message's clock is above its parents': they have not been passed yet.
                for child in held.orphans.resolve(&key) {
                    validated.defer(queue.insert(child.key, child));
                }
                kept.push(candidate);
            } else if held.is_closed {
                validated.defer([candidate]);
            } else {
                validated.defer(held.orphans.add(candidate, missing, now));
            }
        }
        kept
    }
}

/// Returns whether a key is that of a value, with a clock of any number.
fn is_key_of(key: &Key, value: &[u8]) -> bool {
    clock::decode(key).is_ok_and(|(clock, _)| id::key(clock, value).is_ok_and(|found| found == *key))
}

/// The messages that may be parents.
#[derive(Default)]
struct Held {
    known: KnownKeys,
    accepted: Accepted,
    orphans: Orphans,
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
    /// Returns whether the log falls behind.
    fn is_behind(&mut self, now: Duration) -> bool {
        while self.order.front().is_some_and(|(_, oldest)| !self.sizes.contains_key(oldest)) {
            self.order.pop_front();
        }
        let is_late = |(accepted, _): &(Duration, Key)| now.saturating_sub(*accepted) > MAX_STORE_DELAY;
        self.bytes >= MOST_BYTES || self.order.front().is_some_and(is_late)
    }

    /// Adds a message; false: it is there already, or there is no room.
    fn add(&mut self, key: Key, size: usize, now: Duration) -> bool {
        if self.bytes + size > MOST_BYTES || self.sizes.contains_key(&key) {
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

/// The key of a publication, and where its value is: an Event with an Insert (wire format, "Gossip"), in the one form
/// that encoders write. What else may be valid is left to the caller.
fn read_insert(data: &[u8]) -> Option<(Key, Range<usize>)> {
    let (insert, rest) = field(data, FIRST)?;
    let (key, end) = field(insert, FIRST)?;
    let (value, end) = field(end, SECOND)?;
    let key = (rest.is_empty() && end.is_empty() && key.len() == KEY_LENGTH).then_some(key)?;
    Some((key.try_into().ok()?, data.len() - value.len()..data.len()))
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

    /// A message that follows parents.
    fn sign(parents: &[Key], payload: &[u8]) -> (Key, Vec<u8>) {
        let head = match payload.len() {
            length @ 0..24 => vec![0x40 | length as u8],
            length => [&[0x5a], &(length as u32).to_be_bytes()[..]].concat(),
        };
        let payload = [&head[..], payload].concat();
        let (values, verdicts) =
            sign_chain(TOPIC, parents, &[payload], &SigningKey::new(&[9; 32]), Codec::Cbor).unwrap();
        (verdicts[0].fresh().unwrap().key, values[0].clone())
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

    fn publications<D: Into<Vec<u8>> + Clone>(data: &[D]) -> Vec<Publication> {
        let one = |(ticket, data): (usize, &D)| Publication {
            ticket: ticket as u64,
            source: ticket as u64 + 100,
            data: data.clone().into(),
        };
        data.iter().enumerate().map(one).collect()
    }

    fn validator() -> Validator {
        Validator::new(TOPIC.to_owned())
    }

    /// The decision about each; None for one that waits, or was decided before.
    fn validate_data(validator: &Validator, data: &[Vec<u8>], now: Duration) -> Vec<Option<Decision>> {
        let mut found = vec![None; data.len()];
        for (publication, decision) in validator.validate(publications(data), now).decisions {
            found[publication.ticket as usize] = Some(decision);
        }
        found
    }

    fn decide(validator: &Validator, messages: &[(Key, Vec<u8>)]) -> Vec<Option<Decision>> {
        validate_data(validator, &messages.iter().map(publication).collect::<Vec<_>>(), START)
    }

    /// The tickets that are decided when nothing new comes, with the decisions.
    fn decide_rest(validator: &Validator, now: Duration) -> Vec<(u64, Decision)> {
        let decisions = validator.validate(Vec::new(), now).decisions;
        decisions.into_iter().map(|(publication, decision)| (publication.ticket, decision)).collect()
    }

    const ACCEPT: Option<Decision> = Some(Decision::Accept);
    const DEFER: Option<Decision> = Some(Decision::Defer);
    const KNOWN: Option<Decision> = Some(Decision::Known);

    #[test]
    fn accepts_what_follows_accepted_and_stored_messages_parents_first() {
        let (validator, mut messages) = (validator(), chain(&[], 5, 1));
        messages.reverse();
        let data: Vec<_> = messages[2..].iter().map(publication).collect();
        let validated = validator.validate(publications(&data), START);
        assert!(validated.decisions.iter().all(|(_, decision)| *decision == Decision::Accept));
        assert_eq!(validated.accepted.iter().map(|accepted| accepted.source).collect::<Vec<_>>(), [102, 101, 100]);
        let values: Vec<_> = validated.accepted.iter().map(|accepted| &accepted.value).collect();
        assert_eq!(values, messages[2..].iter().rev().map(|(_, value)| value).collect::<Vec<_>>());
        let keys: Vec<_> = validated.accepted.iter().map(|accepted| accepted.verdict.fresh().unwrap().key).collect();
        assert_eq!(keys, [messages[4].0, messages[3].0, messages[2].0]);
        validator.stored(keys);
        assert_eq!(decide(&validator, &messages[1..3]), [ACCEPT, KNOWN]);
        assert_eq!(decide(&validator, &messages[..1]), [ACCEPT]);
    }

    #[test]
    fn leaves_what_is_accepted_already() {
        let (validator, messages) = (validator(), chain(&[], 1, 1));
        assert_eq!(decide(&validator, &[messages[0].clone(), messages[0].clone()]), [ACCEPT, DEFER]);
        assert_eq!(decide(&validator, &messages), [DEFER]);
    }

    #[test]
    fn what_lacks_a_parent_waits_for_it() {
        let (validator, messages) = (validator(), chain(&[], 5, 1));
        assert!(!validator.waits());
        assert_eq!(decide(&validator, &messages[1..4]), [None; 3]);
        assert!(validator.waits());
        // Twice the same: one waits.
        assert_eq!(decide(&validator, &messages[2..3]), [DEFER]);
        assert_eq!(decide_rest(&validator, START), []);
        let validated = validator.validate(publications(&[publication(&messages[0])]), START);
        assert_eq!(validated.decisions.len(), 4);
        assert!(validated.decisions.iter().all(|(_, decision)| *decision == Decision::Accept));
        assert_eq!(validated.accepted.iter().map(|accepted| accepted.source).collect::<Vec<_>>(), [100, 100, 101, 102]);
        assert!(!validator.waits());
        assert_eq!(decide(&validator, &messages[4..]), [ACCEPT]);
    }

    #[test]
    fn what_is_stored_ends_a_wait() {
        let (validator, messages) = (validator(), chain(&[], 4, 1));
        let both = chain(&[messages[0].0, chain(&[], 1, 2)[0].0], 1, 3);
        assert_eq!(decide(&validator, &[messages[1].clone(), messages[3].clone(), both[0].clone()]), [None; 3]);
        validator.stored([messages[0].0]);
        assert_eq!(decide_rest(&validator, START), [(0, Decision::Accept)]);
        // It came otherwise.
        validator.stored([messages[3].0]);
        assert_eq!(decide_rest(&validator, START), [(1, Decision::Known)]);
        assert!(validator.waits());
    }

    #[test]
    fn nothing_waits_for_long() {
        let (validator, messages) = (validator(), chain(&[], 3, 1));
        assert_eq!(decide(&validator, &messages[2..]), [None]);
        let later = orphans::LONGEST_WAIT / 2;
        assert_eq!(validate_data(&validator, &[publication(&messages[1])], later), [None]);
        assert_eq!(decide_rest(&validator, orphans::LONGEST_WAIT - Duration::from_nanos(1)), []);
        assert_eq!(decide_rest(&validator, orphans::LONGEST_WAIT), [(0, Decision::Defer)]);
        assert_eq!(decide_rest(&validator, orphans::LONGEST_WAIT + later), [(0, Decision::Defer)]);
        assert!(!validator.waits());
        // It is forgotten what it waited for.
        validator.stored([messages[1].0]);
        assert_eq!(decide_rest(&validator, START), []);
    }

    #[test]
    fn so_much_waits_and_no_more() {
        let (validator, missing) = (validator(), chain(&[], 1, 1));
        let children: Vec<_> = (0..=1024_u16).map(|number| sign(&[missing[0].0], &number.to_be_bytes())).collect();
        let mut expected = vec![None; 1024];
        let mut by_key: Vec<_> = (0..1025).collect();
        by_key.sort_by_key(|index| children[*index].0);
        expected.push(None);
        expected[by_key[1024]] = DEFER;
        assert_eq!(decide(&validator, &children), expected);
        validator.close();
        assert_eq!(decide_rest(&validator, START).len(), 1024);
        let validator = self::validator();
        let large = |number: u8| sign(&[missing[0].0], &vec![number; 1 << 20]);
        let large: Vec<_> = (0..4).map(large).collect();
        assert_eq!(decide(&validator, &large).iter().filter(|decision| decision.is_none()).count(), 3);
    }

    #[test]
    fn leaves_what_is_invalid_and_what_follows_it() {
        let (validator, messages) = (validator(), chain(&[], 2, 1));
        let mut forged = messages[0].clone();
        let signature = forged.1.len() - 40;
        forged.1[signature] ^= 1;
        forged.0 = id::key(1, &forged.1).unwrap();
        let follows = chain(&[forged.0], 1, 2);
        assert_eq!(decide(&validator, &[forged.clone(), follows[0].clone()]), [DEFER; 2]);
        // What waited for it is left, too.
        assert_eq!(decide(&validator, &follows), [None]);
        let decisions = validator.validate(publications(&[publication(&forged)]), START).decisions;
        assert_eq!(decisions.iter().map(|(_, decision)| *decision).collect::<Vec<_>>(), [Decision::Defer; 2]);
        // A key with another clock, and one of another value.
        let claimed = id::key(7, &messages[0].1).unwrap();
        assert_eq!(decide(&validator, &[(claimed, messages[0].1.clone())]), [DEFER]);
        assert_eq!(decide(&validator, &[(messages[1].0, messages[0].1.clone())]), [DEFER]);
        let other = Validator::new("com.example.other".to_owned());
        assert_eq!(decide(&other, &messages), [DEFER; 2]);
        assert_eq!(decide(&validator, &messages), [ACCEPT; 2]);
    }

    #[test]
    fn leaves_other_forms_of_a_publication() {
        let (validator, messages) = (validator(), chain(&[], 1, 1));
        let data = publication(&messages[0]);
        let is_left = |data: &[u8]| validate_data(&validator, &[data.to_vec()], START) == [DEFER];
        for cut in 0..data.len() {
            assert!(is_left(&data[..cut]));
        }
        assert!(is_left(&[&data[..], &[0]].concat()));
        assert!(is_left(&[0x80; 12]));
        assert!(is_left(&[&[FIRST, 0xff, 0xff, 0xff, 0xff, 0x7f][..], &data].concat()));
        // A length in more bytes than it needs: of one message there would be any number of publications.
        let (tag, rest) = data.split_at(1);
        let (length, insert) = rest.split_at(2);
        assert!(is_left(&[tag, &[length[0], length[1] | 0x80, 0], insert].concat()));
        assert_eq!(validate_data(&validator, &[data], START), [ACCEPT]);
    }

    #[test]
    fn everything_waits_while_the_log_falls_behind() {
        let (validator, messages) = (validator(), chain(&[], 5, 1));
        let at = |index: usize, now| validate_data(&validator, &[publication(&messages[index])], now)[0];
        assert_eq!(at(0, START), ACCEPT);
        assert_eq!(at(1, MAX_STORE_DELAY), ACCEPT);
        let late = MAX_STORE_DELAY + Duration::from_millis(1);
        assert_eq!(at(2, late), None);
        assert!(validator.waits());
        assert_eq!(decide_rest(&validator, late + orphans::LONGEST_WAIT - Duration::from_nanos(1)), []);
        validator.stored([messages[0].0]);
        assert_eq!(decide_rest(&validator, late), [(0, Decision::Accept)]);
        validator.stored([messages[1].0]);
        assert_eq!(at(3, 3 * MAX_STORE_DELAY), None);
        assert_eq!(decide_rest(&validator, 3 * MAX_STORE_DELAY + orphans::LONGEST_WAIT), [(0, Decision::Defer)]);
        assert!(!validator.waits());
        validator.stored([messages[2].0]);
        let mut held = validator.held();
        assert!(held.accepted.add([1; 20], MOST_BYTES - messages[3].1.len(), MAX_STORE_DELAY));
        assert!(!held.accepted.add([2; 20], messages[3].1.len() + 1, MAX_STORE_DELAY));
        drop(held);
        assert_eq!(at(3, MAX_STORE_DELAY), ACCEPT);
        assert_eq!(at(4, MAX_STORE_DELAY), None);
    }

    #[test]
    fn accepts_nothing_that_follows_what_was_forgotten() {
        let (validator, messages) = (validator(), chain(&[], 3, 1));
        assert_eq!(decide(&validator, &messages[..2]), [ACCEPT; 2]);
        validator.stored([messages[0].0]);
        validator.finish([messages[0].0]);
        assert_eq!(decide(&validator, &messages[1..2]), [DEFER], "it is accepted already");
        validator.finish([messages[0].0, messages[1].0]);
        assert_eq!(decide(&validator, &messages[2..]), [None]);
        assert_eq!(decide_rest(&validator, orphans::LONGEST_WAIT), [(0, Decision::Defer)]);
        assert_eq!(decide(&validator, &messages[1..2]), [ACCEPT]);
        assert_eq!(validator.held().accepted.bytes, messages[1].1.len());
    }

    #[test]
    fn accepts_nothing_once_it_is_closed() {
        let (validator, messages) = (validator(), chain(&[], 4, 1));
        validator.stored([messages[0].0]);
        assert_eq!(decide(&validator, &messages[3..]), [None]);
        validator.close();
        assert_eq!(decide_rest(&validator, START), [(0, Decision::Defer)]);
        assert_eq!(decide(&validator, &messages[..3]), [KNOWN, DEFER, DEFER]);
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
