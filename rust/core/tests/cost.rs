//! What a stranger's value costs: memory in proportion to its size, and no allocation for each of its items.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hostile;

use gossiplog_core::batch::{CheckedValue, check, verify_signatures};
use gossiplog_core::cbor::{normalize, scan};
use gossiplog_core::id::Key;
use gossiplog_core::json;
use gossiplog_core::message::{Codec, sign};
use gossiplog_core::signature::SigningKey;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const TOPIC: &str = "example.com";

/// The canonical payload, if the value is one that is accepted.
fn canonical(payload: &[u8]) -> Option<Vec<u8>> {
    if scan(payload, 0, 0) == Some(payload.len()) { Some(payload.to_vec()) } else { normalize(payload).ok() }
}

/// A message with this payload as it stands; its signature holds if the payload is accepted.
fn message(payload: &[u8], parents: &[Key], codec: Codec) -> Vec<u8> {
    let signing_key = SigningKey::new(&[1; 32]);
    let clock = if parents.is_empty() { 1 } else { 2 };
    let mut normal = canonical(payload).unwrap_or_else(|| vec![0xf6]);
    if codec == Codec::Json {
        normal = json::resolve(&normal).unwrap_or(normal);
    }
    let normal = if sign(TOPIC, clock, parents, &normal, &signing_key, codec).is_ok() { normal } else { vec![0xf6] };
    let (_, mut value) = sign(TOPIC, clock, parents, &normal, &signing_key, codec).unwrap();
    value.truncate(value.len() - normal.len());
    value.extend_from_slice(payload);
    value
}

fn verify(values: &[Vec<u8>]) -> bool {
    let mut verdicts = check(values, TOPIC);
    verify_signatures(values, &mut verdicts);
    verdicts.iter().all(|verdict| matches!(verdict, CheckedValue::Fresh(_)))
}

/// What `work` allocates: bytes at the peak, bytes in all, and how often. What is there already counts for nothing.
fn allocations(work: impl FnOnce()) -> (usize, usize, usize) {
    let _profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get();
    work();
    let after = dhat::HeapStats::get();
    let since = |before: u64, after: u64| usize::try_from(after - before).unwrap();
    (after.max_bytes, since(before.total_bytes, after.total_bytes), since(before.total_blocks, after.total_blocks))
}

/// The threads of the pool and what they remember are there already.
fn warm_up() {
    assert!(verify(&[message(&[0xf6], &[], Codec::Cbor)]));
}

/// What the memory for a value may be, in its sizes, beyond what is small.
const MOST_MEMORY: usize = 5;
/// The same for all memory that was ever allocated: whatever is copied again and again is more.
const MOST_MOVED: usize = 32;
/// What is open around an item, at the deepest.
const SMALL: usize = 1 << 21;

/// Links take an allocation of their own, since they are turned into text, and long ones of version 0 some thousands; so do maps
/// with the key `__proto__`, a few each.
fn is_cheap(name: &str, length: usize, peak: usize, moved: usize, count: usize) -> bool {
    let (most_moved, most) = match name {
        "long links of version 0" => (256, length / 2),
        "maps that are links" => (MOST_MOVED, length / 3),
        _ => (MOST_MOVED, length / 5),
    };
    peak <= MOST_MEMORY * length + SMALL && moved <= most_moved * length + SMALL && count <= 500 + most
}

// One test: the allocator counts for the whole process.
#[test]
fn no_value_costs_more_than_a_few_times_its_size() {
    warm_up();
    let size = 1 << 18;
    let mut worst = String::new();
    for (name, payload, accepted) in hostile::payloads(size) {
        for codec in [Codec::Cbor, Codec::Json] {
            let parents = if name == "parents" { hostile::parents(size) } else { Vec::new() };
            let value = [message(&payload, &parents, codec)];
            let mut found = false;
            let (peak, moved, count) = allocations(|| found = verify(&value));
            assert_eq!(found, accepted, "{name} {}", codec.name());
            let length = value[0].len();
            if !is_cheap(name, length, peak, moved, count) {
                worst += &format!("\n{name} {}: {length} bytes, {peak} at the peak, {moved} in {count}", codec.name());
            }
        }
    }
    for (name, text) in hostile::texts(size) {
        let (peak, moved, count) = allocations(|| _ = json::read(&text));
        let length = text.len();
        if !is_cheap(name, length, peak, moved, count) {
            worst += &format!("\n{name} as JSON: {length} bytes, {peak} at the peak, {moved} in {count}");
        }
    }
    assert!(worst.is_empty(), "too much memory:{worst}");
}
