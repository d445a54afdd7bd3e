//! What a stranger's value costs: memory in proportion to its size, and no allocation for each of its items.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hostile;
mod random;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gossiplog_core::batch::{Verdict, check, verify_signatures};
use gossiplog_core::cbor::{Item, Writer, normalize, scan};
use gossiplog_core::id::Key;
use gossiplog_core::json;
use gossiplog_core::message::{Codec, sign};
use gossiplog_core::signature::SigningKey;
use random::Random;

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
    let normal = canonical(payload).unwrap_or_else(|| vec![0xf6]);
    let normal = if sign(TOPIC, clock, parents, &normal, &signing_key, codec).is_ok() { normal } else { vec![0xf6] };
    let (_, mut value) = sign(TOPIC, clock, parents, &normal, &signing_key, codec).unwrap();
    value.truncate(value.len() - normal.len());
    value.extend_from_slice(payload);
    value
}

fn verify(values: &[Vec<u8>]) -> bool {
    let mut verdicts = check(values, TOPIC);
    verify_signatures(values, &mut verdicts);
    verdicts.iter().all(|verdict| matches!(verdict, Verdict::Fresh(_)))
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

/// What `cbor::unusual` normalises, which has no such limits yet.
const UNUSUAL: &[&str] =
    &["prototypes", "prototypes that are null", "maps that are links", "swallowed numbers", "inherited marks"];

/// Links take an allocation of their own, since they are turned into text, and long ones of version 0 some thousands; nothing
/// else does.
fn is_cheap(name: &str, length: usize, peak: usize, moved: usize, count: usize) -> bool {
    let (most_moved, most) =
        if name == "long links of version 0" { (256, length / 2) } else { (MOST_MOVED, length / 5) };
    peak <= MOST_MEMORY * length + SMALL && moved <= most_moved * length + SMALL && count <= 500 + most
}

// One test: the allocator counts for the whole process.
#[test]
fn no_value_costs_more_than_a_few_times_its_size() {
    warm_up();
    let size = 1 << 18;
    let mut worst = String::new();
    for (name, payload, accepted) in hostile::payloads(size) {
        if UNUSUAL.contains(&name) {
            continue;
        }
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

/// The processor's time that a thread had; elsewhere than on Linux the time that passed.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let start = *START;
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = statistics.and_then(|fields| fields.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn took(work: impl FnOnce()) -> Duration {
    let start = processor_time();
    work();
    processor_time() - start
}

/// Prints what the largest values cost, or those with `ONLY` in their names: `cargo test --release -p gossiplog-core --test cost -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute, and prints times"]
fn print_what_the_largest_values_take() {
    warm_up();
    let size = (1 << 22) - 1024;
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, payload, accepted) in hostile::payloads(size) {
        if !name.contains(&only) {
            continue;
        }
        for codec in [Codec::Cbor, Codec::Json] {
            let parents = if name == "parents" { hostile::parents(size) } else { Vec::new() };
            let value = [message(&payload, &parents, codec)];
            let mut found = false;
            let time = (0..3).map(|_| took(|| found = verify(&value))).min().unwrap();
            assert_eq!(found, accepted, "{name} {}", codec.name());
            let (peak, moved, count) = allocations(|| found = verify(&value));
            let times = |bytes: usize| bytes as f64 / value[0].len() as f64;
            println!(
                "{:28} {:8} {:7.1} ms  peak {:5.2}  moved {:6.2}  {count} allocations",
                name,
                codec.name(),
                time.as_secs_f64() * 1e3,
                times(peak),
                times(moved)
            );
        }
    }
    for (name, text) in hostile::texts(size) {
        if !name.contains(&only) {
            continue;
        }
        let time = (0..3).map(|_| took(|| _ = json::read(&text))).min().unwrap();
        let (peak, moved, count) = allocations(|| _ = json::read(&text));
        let times = |bytes: usize| bytes as f64 / text.len() as f64;
        println!(
            "{:28} read     {:7.1} ms  peak {:5.2}  moved {:6.2}  {count} allocations",
            name,
            time.as_secs_f64() * 1e3,
            times(peak),
            times(moved)
        );
    }
}

/// Searches for values that cost more: lists of one small random item, over and over. Prints the worst.
#[test]
#[ignore = "takes minutes, and prints times"]
fn search_for_what_costs_most() {
    warm_up();
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let tries = std::env::var("TRIES").map_or(2000, |tries| tries.parse().unwrap());
    let mut random = Random(seed);
    let size = 1 << 16;
    let mut found: Vec<(f64, f64, String)> = Vec::new();
    for _ in 0..tries {
        let mut unit = Vec::new();
        hostile::item(&mut random, 4, &mut unit);
        if unit.len() > 200 {
            continue;
        }
        let count = size / unit.len();
        let mut writer = Writer::new();
        writer.item(Item::List(count));
        (0..count).for_each(|_| writer.raw(&unit));
        let payload = writer.finish();
        let codec = if random.below(2) == 0 { Codec::Cbor } else { Codec::Json };
        let value = [message(&payload, &[], codec)];
        let time = (0..3).map(|_| took(|| _ = verify(&value))).min().unwrap();
        let (peak, ..) = allocations(|| _ = verify(&value));
        let nanoseconds = time.as_secs_f64() * 1e9 / value[0].len() as f64;
        let name = format!("{} {}", codec.name(), data_encoding::HEXLOWER.encode(&unit));
        found.push((nanoseconds, (peak as f64 - 50_000.0) / value[0].len() as f64, name));
    }
    found.sort_by(|left, right| right.0.total_cmp(&left.0));
    found.iter().take(12).for_each(|(time, peak, name)| println!("{time:6.1} ns a byte, peak {peak:5.2}: {name}"));
    found.sort_by(|left, right| right.1.total_cmp(&left.1));
    found.iter().take(8).for_each(|(time, peak, name)| println!("peak {peak:5.2}, {time:6.1} ns a byte: {name}"));
}
