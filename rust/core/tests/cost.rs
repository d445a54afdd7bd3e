//! What a stranger's value costs: memory in proportion to its size, and no allocation for each of its items.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hostile;

use std::path::Path;

use gossiplog_core::batch::{CheckedValue, check, verify_signatures};
use gossiplog_core::cbor::{Item, Writer, normalize, scan};
use gossiplog_core::id::Key;
use gossiplog_core::json;
use gossiplog_core::message::{Codec, sign};
use gossiplog_core::signature::SigningKey;
use serde_json::Value;
use sha2::{Digest, Sha256};

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
const MOST_MOVED: usize = 36;
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

/// The payloads that took the most memory of all that were tried, as vectors: 4 MiB each, and what canvas-js signs.
fn costly() -> Vec<(Vec<u8>, Codec, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/costly.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(vectors["topic"], TOPIC);
    let read = |row: &Value| {
        let (item, codec) = (row["item"].as_str().unwrap(), row["codec"].as_str().unwrap());
        let digit = |at: usize| u8::from_str_radix(&item[at..at + 2], 16).unwrap();
        let item: Vec<u8> = (0..item.len()).step_by(2).map(digit).collect();
        let count = usize::try_from(row["count"].as_u64().unwrap()).unwrap();
        let mut writer = Writer::new();
        writer.item(Item::List(count));
        (0..count).for_each(|_| writer.raw(&item));
        let codec = [Codec::Cbor, Codec::Json].into_iter().find(|each| each.name() == codec).unwrap();
        (writer.finish(), codec, row["signed"].as_str().unwrap().to_owned())
    };
    vectors["rows"].as_array().unwrap().iter().map(read).collect()
}

/// The SHA-256 of what a value's signature must hold over.
fn signed(value: &[u8]) -> String {
    let verdicts = check(&[value], TOPIC);
    let mut bytes = Vec::new();
    verdicts[0].parsed().unwrap().signed_bytes(value, &mut bytes).unwrap();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

// One test: the allocator counts for the whole process.
#[test]
#[ignore = "takes seconds: `make test` runs it"]
fn no_value_costs_more_than_a_few_times_its_size() {
    warm_up();
    // `COST_SIZE=4190208 cargo test -p gossiplog-core --test cost -- --nocapture` takes a minute, and prints the worst.
    let size = std::env::var("COST_SIZE").map_or(1 << 18, |size| size.parse().unwrap());
    let mut most = (0, String::new());
    let mut worst = String::new();
    for (name, payload, accepted) in hostile::payloads(size) {
        for codec in [Codec::Cbor, Codec::Json] {
            let parents = if name == "parents" { hostile::parents(size) } else { Vec::new() };
            let value = [message(&payload, &parents, codec)];
            let mut found = false;
            let (peak, moved, count) = allocations(|| found = verify(&value));
            assert_eq!(found, accepted, "{name} {}", codec.name());
            let length = value[0].len();
            most = most.max((100 * peak / length, format!("{name} {}", codec.name())));
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
    println!("{} % of its size at the peak: {}", most.0, most.1);
    for (payload, codec, expected) in costly() {
        let value = [message(&payload, &[], codec)];
        let (peak, _, _) = allocations(|| assert!(verify(&value)));
        assert_eq!(signed(&value[0]), expected);
        let length = value[0].len();
        if peak > MOST_MEMORY * length {
            worst += &format!("\na vector {}: {length} bytes, {peak} at the peak", codec.name());
        }
    }
    assert!(worst.is_empty(), "too much memory:{worst}");
}
