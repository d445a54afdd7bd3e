//! Which messages that come by gossip are accepted before they are stored.
//!
//! gossipsub passes a message on when it is accepted. One that every peer takes, and whose parents the log holds or is
//! about to hold, need not wait until it is stored: the [`Validator`] accepts it. Gossip keeps no order: what lacks a
//! parent waits a moment for it, as all does while the log falls behind ([`orphans`]). What else comes is left to the
//! caller, who holds it back until it is stored: what is invalid, and what has waited in vain.
//!
//! The validator knows a bounded number of the log's keys. The caller tells it of what is stored, and is asked for
//! parents that it does not know ([`Validator::take_missing`]). What it does not learn is stored first: it accepts less
//! than it could, and never more.

mod held;
mod orphans;
mod publication;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch::{CheckedValue, check_each, verify_signatures};
use crate::id::Key;
use crate::validator::held::{Accepted, KnownKeys};
use crate::validator::orphans::{Candidate, Orphans};
pub use crate::validator::publication::Publication;
use crate::validator::publication::read_message;

/// What is due within so long is done together.
const ROUND: Duration = Duration::from_millis(10);

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
    fn decide(&mut self, decision: Decision, candidates: impl IntoIterator<Item = Candidate>) {
        self.decisions.extend(candidates.into_iter().map(|candidate| (candidate.publication, decision)));
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

    /// Note messages that the log holds now. Return whether [`Self::validate`] has become due by that.
    pub fn stored(&self, keys: impl IntoIterator<Item = Key>) -> bool {
        let mut held = self.held();
        for key in keys {
            held.accepted.remove(&key);
            held.known.add(key);
            held.orphans.note(&key);
        }
        held.become_due()
    }

    /// Note that no more of these messages is going to be stored. If one of them was accepted and is not stored, forget
    /// all such messages: they may follow it. Return what [`Self::stored`] does.
    pub fn finish(&self, keys: impl IntoIterator<Item = Key>) -> bool {
        let mut held = self.held();
        if keys.into_iter().any(|key| held.accepted.contains(&key)) {
            held.accepted = Accepted::default();
        }
        held.become_due()
    }

    /// Accept nothing from now on. What waits is deferred by the next [`Self::validate`]. Return what [`Self::stored`]
    /// does.
    pub fn close(&self) -> bool {
        let mut held = self.held();
        held.is_closed = true;
        held.become_due()
    }

    /// Return how long from `now` until [`Self::validate`] is due where nothing else comes; None while nothing waits.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let held = self.held();
        if held.is_due {
            return Some(Duration::ZERO);
        }
        let due = held.orphans.next_due(held.now)?;
        let over = Duration::from_nanos((due.as_nanos() % ROUND.as_nanos()) as u64);
        let due = if over.is_zero() { due } else { due.saturating_add(ROUND - over) };
        Some(due.saturating_sub(now.max(held.now)))
    }

    /// Return whether there is something for [`Self::take_missing`], as of the last [`Self::validate`].
    pub fn has_missing(&self) -> bool {
        let held = self.held();
        held.orphans.has_missing(held.now)
    }

    /// Take the keys of parents that messages have waited for, ascending, each once for a message: the caller reports
    /// those that its log holds ([`Self::stored`]). Where there are very many, the next call gives more.
    pub fn take_missing(&self) -> Vec<Key> {
        let mut held = self.held();
        let now = held.now;
        held.orphans.take_missing(now)
    }

    /// Decide about publications, and about those of earlier calls that waited. `now`: the time since any fixed moment;
    /// one before that of an earlier call counts as that.
    pub fn validate(&self, publications: Vec<Publication>, now: Duration) -> Validated {
        let mut validated = Validated::default();
        let (found, now) = self.unknown(publications, now, &mut validated);
        let candidates = self.with_parents(found, now, &mut validated);
        if candidates.is_empty() {
            return validated;
        }
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

    /// Return the publications whose keys go with their values and are not known, as well-formed messages, and what time
    /// it is.
    fn unknown(
        &self,
        publications: Vec<Publication>,
        now: Duration,
        validated: &mut Validated,
    ) -> (Vec<Candidate>, Duration) {
        let mut found = Vec::with_capacity(publications.len());
        for publication in publications {
            // A hash costs less than parsing, and shows which value a known key stands for.
            match read_message(&publication.data) {
                Some((key, place)) => found.push((publication, key, place)),
                None => validated.decisions.push((publication, Decision::Defer)),
            }
        }
        let mut held = self.held();
        held.now = held.now.max(now);
        let (now, is_closed) = (held.now, held.is_closed);
        let (known, mut found): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, key, _)| held.known.contains(key));
        drop(held);
        validated.decisions.extend(known.into_iter().map(|(publication, ..)| (publication, Decision::Known)));
        if is_closed {
            validated.decisions.extend(found.drain(..).map(|(publication, ..)| (publication, Decision::Defer)));
        }
        let values: Vec<_> = found.iter().map(|(publication, _, place)| &publication.data[place.clone()]).collect();
        let verdicts = check_each(&values, &self.topic);
        let mut candidates = Vec::with_capacity(found.len());
        for ((publication, key, place), verdict) in found.into_iter().zip(verdicts) {
            // The clock in the key of a publication is a claim.
            if verdict.fresh().is_some_and(|parsed| parsed.key == key) {
                candidates.push(Candidate { publication, key, place, verdict, since: now });
            } else {
                validated.decisions.push((publication, Decision::Defer));
            }
        }
        (candidates, now)
    }

    /// Return those of new and waiting messages whose parents are held, or are among the others, ascending by key, each
    /// once; none while the log falls behind.
    fn with_parents(&self, found: Vec<Candidate>, now: Duration, validated: &mut Validated) -> Vec<Candidate> {
        let mut held = self.held();
        held.is_due = false;
        validated.decide(Decision::Known, held.orphans.take_stored());
        if held.is_closed {
            validated.decide(Decision::Defer, held.orphans.clear().into_iter().chain(found));
            return Vec::new();
        }
        let is_behind = held.accepted.is_behind(now);
        // While the log falls behind, what waits for it is not looked at.
        let ready = if is_behind { Vec::new() } else { held.orphans.take_ready() };
        validated.decide(Decision::Defer, held.orphans.expire(now));
        let mut queue: BTreeMap<Key, Candidate> = ready.into_iter().map(|each| (each.key, each)).collect();
        for candidate in found {
            if held.orphans.contains(&candidate.key) || queue.contains_key(&candidate.key) {
                validated.decide(Decision::Defer, [candidate]);
            } else {
                queue.insert(candidate.key, candidate);
            }
        }
        let (mut among, mut kept) = (HashSet::with_capacity(queue.len()), Vec::with_capacity(queue.len()));
        while let Some((key, candidate)) = queue.pop_first() {
            if held.known.contains(&key) {
                validated.decide(Decision::Known, [candidate]);
                continue;
            }
            let missing: HashSet<Key> =
                candidate.parents().filter(|parent| !among.contains(parent) && !held.has(parent)).collect();
            if missing.is_empty() && !is_behind {
                among.insert(key);
                // A message's clock is above its parents': they have not been passed yet.
                queue.extend(held.orphans.resolve(&key).into_iter().map(|child| (child.key, child)));
                kept.push(candidate);
            } else {
                validated.decide(Decision::Defer, held.orphans.add(candidate, missing, now));
            }
        }
        kept
    }
}

/// What is known of the log, and what waits for it.
#[derive(Default)]
struct Held {
    known: KnownKeys,
    accepted: Accepted,
    orphans: Orphans,
    /// The latest time that was given.
    now: Duration,
    is_closed: bool,
    /// Whether something that waits can be decided now.
    is_due: bool,
}

impl Held {
    fn has(&mut self, key: &Key) -> bool {
        self.accepted.contains(key) || self.known.contains(key)
    }

    /// Note whether something that waits can be decided now; return whether that is new.
    fn become_due(&mut self) -> bool {
        let is_due = self.orphans.has_stored()
            || (self.is_closed && !self.orphans.is_empty())
            || (self.orphans.has_ready() && !self.accepted.is_behind(self.now));
        is_due && !std::mem::replace(&mut self.is_due, is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::sign_chain;
    use crate::id;
    use crate::message::Codec;
    use crate::signature::SigningKey;
    use crate::validator::held::{MAX_STORE_DELAY, MOST_BYTES};
    use crate::validator::publication::{FIRST, SECOND};

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

    fn waits(validator: &Validator) -> bool {
        validator.due(START).is_some()
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
        assert!(!waits(&validator));
        assert_eq!(decide(&validator, &messages[1..4]), [None; 3]);
        assert!(waits(&validator));
        // Twice the same: one waits.
        assert_eq!(decide(&validator, &messages[2..3]), [DEFER]);
        assert_eq!(decide_rest(&validator, START), []);
        let validated = validator.validate(publications(&[publication(&messages[0])]), START);
        assert_eq!(validated.decisions.len(), 4);
        assert!(validated.decisions.iter().all(|(_, decision)| *decision == Decision::Accept));
        assert_eq!(validated.accepted.iter().map(|accepted| accepted.source).collect::<Vec<_>>(), [100, 100, 101, 102]);
        assert!(!waits(&validator));
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
        assert!(validator.stored([messages[3].0]));
        assert_eq!(decide_rest(&validator, START), [(1, Decision::Known)]);
        assert!(waits(&validator));
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
        assert!(!waits(&validator));
        // It is forgotten what it waited for.
        validator.stored([messages[1].0]);
        assert_eq!(decide_rest(&validator, START), []);
    }

    #[test]
    fn is_due_once_something_can_be_decided() {
        let (validator, messages) = (validator(), chain(&[], 4, 1));
        let at = Duration::from_millis(14);
        assert_eq!(validator.due(at), None);
        assert_eq!(validate_data(&validator, &[publication(&messages[1])], at), [None]);
        // Its parent is asked for after ten milliseconds, and that in rounds.
        assert_eq!(validator.due(at), Some(Duration::from_millis(16)));
        assert_eq!(validator.due(Duration::from_millis(25)), Some(Duration::from_millis(5)));
        assert_eq!((decide_rest(&validator, Duration::from_millis(23)), validator.has_missing()), (vec![], false));
        assert_eq!((decide_rest(&validator, Duration::from_millis(30)), validator.has_missing()), (vec![], true));
        assert_eq!(validator.due(Duration::from_millis(30)), Some(Duration::from_millis(490)));
        // Time does not go back.
        assert_eq!((decide_rest(&validator, START), validator.has_missing()), (vec![], true));
        assert_eq!(validator.due(START), Some(Duration::from_millis(490)));
        assert!(!validator.stored([messages[2].0]) && !validator.finish([messages[2].0]));
        assert!(validator.stored([messages[0].0]));
        assert_eq!(validator.due(at), Some(Duration::ZERO));
        // That is no news the second time.
        assert!(!validator.stored([messages[0].0]) && !validator.close());
        assert_eq!(decide_rest(&validator, at), [(0, Decision::Defer)]);
        assert_eq!(validator.due(at), None);
    }

    #[test]
    fn parents_are_asked_for_that_do_not_wait_themselves() {
        let (validator, messages) = (validator(), chain(&[], 4, 1));
        let (other, both) = (chain(&[], 1, 2), chain(&[messages[2].0, chain(&[], 1, 2)[0].0], 1, 3));
        assert_eq!(decide(&validator, &[messages[1].clone(), messages[2].clone(), both[0].clone()]), [None; 3]);
        assert_eq!((validator.has_missing(), validator.take_missing()), (false, vec![]));
        assert_eq!(decide_rest(&validator, orphans::ASK_DELAY), []);
        let mut missing = vec![messages[0].0, other[0].0];
        missing.sort_unstable();
        assert_eq!(validator.take_missing(), missing);
        assert_eq!((validator.has_missing(), validator.take_missing()), (false, vec![]));
        validator.stored([messages[0].0]);
        assert_eq!(decide_rest(&validator, orphans::ASK_DELAY), [(0, Decision::Accept), (1, Decision::Accept)]);
        validator.stored([other[0].0]);
        assert_eq!(decide_rest(&validator, orphans::ASK_DELAY), [(2, Decision::Accept)]);
    }

    #[test]
    fn a_wrong_claim_leaves_an_honest_neighbour_alone() {
        let messages = chain(&[], 2, 1);
        let claim = |(_, value): &(Key, Vec<u8>)| (id::key(7, value).unwrap(), value.clone());
        let batch = [claim(&messages[0]), messages[0].clone(), claim(&messages[0])];
        assert_eq!(decide(&validator(), &batch), [DEFER, ACCEPT, DEFER]);
        let batch = [claim(&messages[1]), messages[1].clone(), messages[0].clone()];
        assert_eq!(decide(&validator(), &batch), [DEFER, ACCEPT, ACCEPT]);
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
        assert!(waits(&validator));
        assert_eq!(decide_rest(&validator, late + orphans::LONGEST_WAIT - Duration::from_nanos(1)), []);
        // There is nothing to look at until the log has caught up.
        assert_ne!(validator.due(late + orphans::LONGEST_WAIT / 2), Some(Duration::ZERO));
        assert!(validator.stored([messages[0].0]));
        assert_eq!(decide_rest(&validator, late), [(0, Decision::Accept)]);
        validator.stored([messages[1].0]);
        assert_eq!(at(3, 3 * MAX_STORE_DELAY), None);
        assert_eq!(decide_rest(&validator, 3 * MAX_STORE_DELAY + orphans::LONGEST_WAIT), [(0, Decision::Defer)]);
        assert!(!waits(&validator));
        validator.stored([messages[2].0]);
        let full = 4 * MAX_STORE_DELAY;
        let mut held = validator.held();
        assert!(held.accepted.add([1; 20], MOST_BYTES - messages[3].1.len(), full));
        assert!(!held.accepted.add([2; 20], messages[3].1.len() + 1, full));
        drop(held);
        assert_eq!(at(3, full), ACCEPT);
        assert_eq!(at(4, full), None);
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
}
