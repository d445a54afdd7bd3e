//! Verifying messages by the batch, and planning what one transaction writes for them.
//!
//! The checks go from cheap to dear: everything but signatures, on all cores; then whether a message is known already;
//! then the signatures of the rest, on all cores, as large a batch on each as there is.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::ancestors::{Linker, Links};
use crate::clock;
use crate::error::Error;
use crate::id::Key;
use crate::message::{self, Codec, Invalid, Parsed, parse};
use crate::parallel::{self, SMALLEST_SHARE};
use crate::signature::{Claim, Scheme, SigningKey};
use crate::tree::{Hash, leaf_hash};

/// The largest batch of signatures: more gain nothing, and cost memory.
const LARGEST_SHARE: usize = 8192;

/// The verdict on one value.
pub enum CheckedValue {
    /// A valid message, not known before.
    Fresh(Arc<Parsed>),
    /// A message that is known already, or stands earlier in the batch.
    Duplicate(Arc<Parsed>),
    /// What every peer refuses.
    Invalid(Invalid),
}

impl CheckedValue {
    /// The message, unless it is invalid.
    pub fn parsed(&self) -> Option<&Parsed> {
        match self {
            Self::Fresh(parsed) | Self::Duplicate(parsed) => Some(parsed),
            Self::Invalid(_) => None,
        }
    }

    /// The message, if it is fresh.
    pub fn fresh(&self) -> Option<&Parsed> {
        match self {
            Self::Fresh(parsed) => Some(parsed),
            _ => None,
        }
    }

    fn into_duplicate(self) -> Self {
        match self {
            Self::Fresh(parsed) => Self::Duplicate(parsed),
            other => other,
        }
    }
}

fn share(count: usize) -> usize {
    count.div_ceil(parallel::threads()).clamp(SMALLEST_SHARE, LARGEST_SHARE)
}

/// The first stage: everything about each value but its signature. A repetition within the batch is a duplicate.
pub fn check<V: AsRef<[u8]> + Sync>(values: &[V], topic: &str) -> Vec<CheckedValue> {
    let mut verdicts = check_each(values, topic);
    drop_repetitions(&mut verdicts);
    verdicts
}

/// As [`check`], but repetitions are fresh, too.
pub fn check_each<V: AsRef<[u8]> + Sync>(values: &[V], topic: &str) -> Vec<CheckedValue> {
    let one = |value: &V| match parse(value.as_ref(), topic) {
        Ok(parsed) => CheckedValue::Fresh(Arc::new(parsed)),
        Err(invalid) => CheckedValue::Invalid(invalid),
    };
    parallel::map(values, one)
}

/// Makes duplicates of the fresh messages that stand earlier among the fresh ones.
pub fn drop_repetitions(verdicts: &mut [CheckedValue]) {
    let mut seen = HashSet::with_capacity(verdicts.len());
    for verdict in verdicts {
        if let Some(key) = verdict.fresh().map(|parsed| parsed.key)
            && !seen.insert(key)
        {
            demote(verdict);
        }
    }
}

/// Signs messages, the first of which follows these parents, and each other one the message before it.
///
/// # Errors
/// As [`message::sign`]; [`Error::Decode`] for a parent without a clock.
pub fn sign_chain(
    topic: &str,
    parents: &[Key],
    payloads: &[Vec<u8>],
    signing_key: &SigningKey,
    codec: Codec,
) -> Result<(Vec<Vec<u8>>, Vec<CheckedValue>), Error> {
    let mut clock = 1;
    for parent in parents {
        clock = clock.max(1 + clock::decode(parent)?.0);
    }
    let mut previous: Option<Key> = None;
    let (mut values, mut verdicts) = (Vec::with_capacity(payloads.len()), Vec::with_capacity(payloads.len()));
    for (payload, clock) in payloads.iter().zip(clock..) {
        let parents = previous.as_ref().map_or(parents, std::slice::from_ref);
        let (key, value) = message::sign(topic, clock, parents, payload, signing_key, codec)?;
        verdicts.push(CheckedValue::Fresh(Arc::new(Parsed::signed(key, clock, codec, &value, signing_key)?)));
        values.push(value);
        previous = Some(key);
    }
    Ok((values, verdicts))
}

fn demote(verdict: &mut CheckedValue) {
    let empty = CheckedValue::Invalid(Invalid { reason: String::new(), key: None });
    *verdict = std::mem::replace(verdict, empty).into_duplicate();
}

/// Makes duplicates of the fresh messages with these keys.
pub fn drop_known(verdicts: &mut [CheckedValue], known: &HashSet<Key>) {
    for verdict in verdicts {
        if verdict.fresh().is_some_and(|parsed| known.contains(&parsed.key)) {
            demote(verdict);
        }
    }
}

/// The last stage: the signatures of the fresh messages.
pub fn verify_signatures<V: AsRef<[u8]> + Sync>(values: &[V], verdicts: &mut [CheckedValue]) {
    let mut refused: Vec<(usize, String)> = Vec::new();
    let mut groups: HashMap<u64, (&'static dyn Scheme, Vec<usize>)> = HashMap::new();
    for (index, verdict) in verdicts.iter().enumerate() {
        if let Some(parsed) = verdict.fresh() {
            let group = groups.entry(parsed.author.scheme.multicodec());
            group.or_insert_with(|| (parsed.author.scheme, Vec::new())).1.push(index);
        }
    }
    for (scheme, indices) in groups.values() {
        let one = |share: &[usize]| verify_share(*scheme, share, values, verdicts);
        let share = share(indices.len());
        let mut bad: Vec<(usize, String)> = if indices.len() <= share {
            one(indices)
        } else {
            parallel::run(|| indices.par_chunks(share).flat_map_iter(one).collect())
        };
        refused.append(&mut bad);
    }
    let mut reasons: HashMap<Key, String> = HashMap::new();
    for (index, reason) in refused {
        if let Some(parsed) = verdicts[index].parsed() {
            reasons.insert(parsed.key, reason);
        }
    }
    if reasons.is_empty() {
        return;
    }
    // Repetitions within the batch share the verdict.
    for verdict in verdicts {
        let key = verdict.parsed().map(|parsed| parsed.key);
        if let Some((key, reason)) = key.and_then(|key| Some((key, reasons.get(&key)?.clone()))) {
            *verdict = CheckedValue::Invalid(Invalid { reason, key: Some(key) });
        }
    }
}

/// Values of more bytes than this are verified one by one, in parts: a batch would hold all that was signed at once, which in dag-json
/// can be nineteen times as much, and most of the time goes into hashing anyway.
const LARGE: usize = 1 << 16;

/// Signed bytes that are held at once.
const LARGEST_TEXT: usize = 1 << 22;

/// The messages of one thread whose signatures do not hold, and why.
fn verify_share<V: AsRef<[u8]>>(
    scheme: &dyn Scheme,
    share: &[usize],
    values: &[V],
    verdicts: &[CheckedValue],
) -> Vec<(usize, String)> {
    let mut refused = Vec::new();
    let mut bytes = Vec::new();
    let mut signed: Vec<(usize, &Parsed, Range<usize>)> = Vec::with_capacity(share.len());
    let refusal = |parsed: &Parsed| {
        let (name, codec) = (scheme.name(), parsed.codec.name());
        format!("the {name} signature does not hold over the message in {codec}")
    };
    let verify = |signed: &mut Vec<(usize, &Parsed, Range<usize>)>, bytes: &mut Vec<u8>, refused: &mut Vec<_>| {
        let claims: Vec<Claim<'_>> = signed
            .iter()
            .map(|(index, parsed, range)| Claim {
                key: &parsed.author.key,
                signature: parsed.signature(values[*index].as_ref()),
                bytes: &bytes[range.clone()],
            })
            .collect();
        for ((index, parsed, _), valid) in signed.iter().zip(scheme.verify(&claims)) {
            if !valid {
                refused.push((*index, refusal(parsed)));
            }
        }
        signed.clear();
        bytes.clear();
    };
    for &index in share {
        let (Some(parsed), value) = (verdicts[index].parsed(), values[index].as_ref()) else {
            continue;
        };
        if value.len() > LARGE {
            match parsed.verify_parts(value) {
                Ok(true) => {}
                Ok(false) => refused.push((index, refusal(parsed))),
                Err(error) => refused.push((index, error.to_string())),
            }
            continue;
        }
        let start = bytes.len();
        match parsed.signed_bytes(value, &mut bytes) {
            Ok(()) => signed.push((index, parsed, start..bytes.len())),
            Err(error) => {
                bytes.truncate(start);
                refused.push((index, error.to_string()));
            }
        }
        if bytes.len() > LARGEST_TEXT {
            verify(&mut signed, &mut bytes, &mut refused);
        }
    }
    verify(&mut signed, &mut bytes, &mut refused);
    refused
}

/// The fresh messages' indices, ascending by key: causal order, since a message's clock is above its parents'.
pub fn fresh_order(verdicts: &[CheckedValue]) -> Vec<(Key, usize)> {
    let mut order: Vec<(Key, usize)> =
        verdicts.iter().enumerate().filter_map(|(index, verdict)| Some((verdict.fresh()?.key, index))).collect();
    if !order.is_sorted() {
        order.sort_unstable();
    }
    order
}

/// The distinct keys, ascending, that fresh messages name as parents and that are not fresh messages here.
pub fn outer_parents<V: AsRef<[u8]>>(values: &[V], verdicts: &[CheckedValue]) -> Vec<Key> {
    let fresh: HashSet<Key> = verdicts.iter().filter_map(|verdict| Some(verdict.fresh()?.key)).collect();
    let mut parents: Vec<Key> = verdicts
        .iter()
        .zip(values)
        .filter_map(|(verdict, value)| Some(verdict.fresh()?.parents(value.as_ref())))
        .flatten()
        .filter(|parent| !fresh.contains(parent))
        .collect();
    parents.sort_unstable();
    parents.dedup();
    parents
}

/// What one transaction writes for a batch.
#[derive(Debug, Default)]
pub struct WritePlan {
    /// Indices into the batch, in the order of their sequences.
    pub order: Vec<usize>,
    /// The sequence of the first of them.
    pub first: u64,
    /// The link record of each.
    pub links: Vec<Vec<u8>>,
    /// The key and leaf hash of each.
    pub leaves: Vec<(Key, Hash)>,
    /// The sequences, ascending, of the messages that are alternative encodings, with the keys of the canonical ones.
    pub alternatives: Vec<(u64, Key)>,
    /// Pairs of sequences, a parent and its child, ascending.
    pub children: Vec<(u64, u64)>,
    /// The planned messages that no other planned message names as a parent: keys, ascending, and sequences.
    pub heads_added: Vec<(Key, u64)>,
    /// The parents that were in the log before.
    pub heads_removed: Vec<Key>,
    /// Fresh messages left out, each with its missing parents, ascending.
    pub orphans: Vec<(usize, Vec<Key>)>,
    /// Fresh messages left for another plan.
    pub late: Vec<usize>,
}

/// Orders the fresh messages whose parents are in `parents` (key to sequence) or in the plan itself. Of some of the parents the
/// sequence of the first message that names them is known, or, where that is `first` or above, that no stored message does.
///
/// Messages with an index in `refused` are left out, and whatever descends from them becomes an orphan. When the link records have
/// cost `work` looks at members of link sets, the messages that are left, which may be any but the first, are late.
///
/// # Errors
/// What `load` fails with, and [`Error::Decode`] for a link record that is damaged.
#[expect(clippy::too_many_arguments, reason = "a batch, the log that it follows, and limits")]
pub fn plan<V: AsRef<[u8]> + Sync, E: From<Error>>(
    values: &[V],
    verdicts: &[CheckedValue],
    first: u64,
    parents: &HashMap<Key, u64>,
    first_children: HashMap<u64, u64>,
    refused: &HashSet<usize>,
    work: u64,
    load: &mut Links<'_, E>,
) -> Result<WritePlan, E> {
    let heads: Vec<u64> =
        first_children.iter().filter(|(_, child)| **child >= first).map(|(parent, _)| *parent).collect();
    let mut linker = Linker::new(heads, load).with_first_children(first_children);
    let order = fresh_order(verdicts).into_iter().map(|(_, index)| index).filter(|index| !refused.contains(index));
    let link = |sequence, clock, parents: &[u64]| {
        if linker.work() > work { Ok(None) } else { linker.add(sequence, clock, parents).map(Some) }
    };
    gather(values, verdicts, first, parents, order, link)
}

/// The plan that messages which are stored already have followed, in the order of their arrival. The link records are
/// left empty.
///
/// # Errors
/// None of its own.
pub fn arrived<V: AsRef<[u8]> + Sync>(
    values: &[V],
    verdicts: &[CheckedValue],
    first: u64,
    parents: &HashMap<Key, u64>,
) -> Result<WritePlan, Error> {
    let fresh = |index: &usize| verdicts[*index].fresh().is_some();
    gather(values, verdicts, first, parents, (0..verdicts.len()).filter(fresh), |_, _, _| Ok(Some(Vec::new())))
}

fn gather<V: AsRef<[u8]> + Sync, E: From<Error>>(
    values: &[V],
    verdicts: &[CheckedValue],
    first: u64,
    parents: &HashMap<Key, u64>,
    mut order: impl Iterator<Item = usize>,
    mut link: impl FnMut(u64, u64, &[u64]) -> Result<Option<Vec<u8>>, E>,
) -> Result<WritePlan, E> {
    let mut plan = WritePlan { first, ..WritePlan::default() };
    let mut planned: HashMap<Key, u64> = HashMap::new();
    let mut has_child: HashSet<Key> = HashSet::new();
    let mut sequences = Vec::new();
    for index in order.by_ref() {
        let Some(parsed) = verdicts[index].parsed() else {
            continue;
        };
        sequences.clear();
        let mut missing = Vec::new();
        let keys: Vec<Key> = parsed.parents(values[index].as_ref()).collect();
        for parent in &keys {
            match planned.get(parent).or_else(|| parents.get(parent)) {
                Some(sequence) => sequences.push(*sequence),
                None => missing.push(*parent),
            }
        }
        if !missing.is_empty() {
            // A message may name a parent more than once.
            missing.sort_unstable();
            missing.dedup();
            plan.orphans.push((index, missing));
            continue;
        }
        let sequence = first + plan.order.len() as u64;
        sequences.sort_unstable();
        sequences.dedup();
        let Some(record) = link(sequence, parsed.clock, &sequences)? else {
            plan.late.push(index);
            break;
        };
        plan.links.push(record);
        plan.children.extend(sequences.iter().map(|parent| (*parent, sequence)));
        planned.insert(parsed.key, sequence);
        has_child.extend(keys);
        plan.order.push(index);
    }
    plan.late.extend(order);
    let leaf = |index: &usize| {
        let key = verdicts[*index].parsed().map_or([0; 20], |parsed| parsed.key);
        (key, leaf_hash(&key, values[*index].as_ref()))
    };
    // Not on the shared threads: they are at the signatures of the next batch, and a hash is soon made.
    plan.leaves = plan.order.iter().map(leaf).collect();
    let alternative = |(index, sequence): (&usize, u64)| {
        let parsed = verdicts[*index].parsed().filter(|parsed| !parsed.is_canonical())?;
        Some((sequence, parsed.content_key(values[*index].as_ref())))
    };
    plan.alternatives = plan.order.iter().zip(first..).filter_map(alternative).collect();
    let heads = plan.leaves.iter().zip(first..).map(|((key, _), sequence)| (*key, sequence));
    plan.heads_added = heads.filter(|(key, _)| !has_child.contains(key)).collect();
    plan.heads_added.sort_unstable();
    plan.heads_removed = has_child.into_iter().filter(|key| !planned.contains_key(key)).collect();
    plan.heads_removed.sort_unstable();
    plan.children.sort_unstable();
    Ok(plan)
}
