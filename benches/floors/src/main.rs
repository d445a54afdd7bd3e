//! Floors: bare batch verification with SHA-256, and bare hashing of leaves, with nothing around them.
//!
//! Usage: `gossiplog-floors signatures COUNT AUTHORS SIGNED_BYTES STORED_BYTES` or `gossiplog-floors leaves COUNT KEY_BYTES VALUE_BYTES`.
//! Prints the seconds of one run on all cores; `signatures` prints those of the best batch size.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use ed25519_zebra::{Signature, SigningKey, VerificationKeyBytes, batch};
use sha2::Digest;

const BATCH_SIZES: [usize; 4] = [512, 1024, 2048, 8192];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<usize>> = arguments.iter().skip(1).map(|number| number.parse().ok()).collect();
    let seconds = match (arguments.first().map(String::as_str), numbers.as_deref()) {
        (Some("signatures"), Some([count, authors, signed, stored])) => signatures(*count, *authors, *signed, *stored),
        (Some("leaves"), Some([count, key, value])) => Some(leaves(*count, *key, *value)),
        _ => None,
    };
    match seconds {
        Some(seconds) => {
            println!("{seconds}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: gossiplog-floors signatures COUNT AUTHORS SIGNED_BYTES STORED_BYTES");
            eprintln!("       gossiplog-floors leaves COUNT KEY_BYTES VALUE_BYTES");
            ExitCode::from(2)
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The seconds that `work` takes over shares of `count`, one for each core.
fn timed(count: usize, work: impl Fn(std::ops::Range<usize>) + Sync) -> f64 {
    let share = count.div_ceil(threads()).max(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for first in (0..count).step_by(share) {
            let work = &work;
            scope.spawn(move || work(first..(first + share).min(count)));
        }
    });
    start.elapsed().as_secs_f64()
}

fn bytes(number: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; length];
    for (target, source) in bytes.iter_mut().zip(number.to_be_bytes()) {
        *target = source;
    }
    bytes
}

/// Verifies and hashes, with the batch size that is fastest here; none if a signature does not hold, which is a defect.
fn signatures(count: usize, authors: usize, signed_bytes: usize, stored_bytes: usize) -> Option<f64> {
    let keys: Vec<SigningKey> = (0..authors.max(1)).map(|_| SigningKey::new(rand::rng())).collect();
    let messages: Vec<Vec<u8>> = (0..count).map(|number| bytes(number, signed_bytes)).collect();
    let stored: Vec<Vec<u8>> = (0..count).map(|number| bytes(number, stored_bytes)).collect();
    let signed: Vec<(VerificationKeyBytes, Signature)> = messages
        .iter()
        .zip(keys.iter().cycle())
        .map(|(message, key)| (VerificationKeyBytes::from(key), key.sign(message)))
        .collect();
    let valid = std::sync::atomic::AtomicBool::new(true);
    let run = |size: usize| {
        timed(count, |range| {
            for first in range.clone().step_by(size) {
                let mut verifier = batch::Verifier::new();
                for number in first..(first + size).min(range.end) {
                    black_box(sha2::Sha256::digest(&stored[number]));
                    let (key, signature) = signed[number];
                    verifier.queue((key, signature, &messages[number][..]));
                }
                if verifier.verify(rand::rng()).is_err() {
                    valid.store(false, std::sync::atomic::Ordering::Relaxed);
                }
            }
        })
    };
    let best = BATCH_SIZES.into_iter().map(run).fold(f64::INFINITY, f64::min);
    valid.into_inner().then_some(best)
}

/// Hashes leaves as the tree does: length and key, length and value.
fn leaves(count: usize, key: usize, value: usize) -> f64 {
    let entries: Vec<Vec<u8>> = (0..count).map(|number| bytes(number, 8 + key + value)).collect();
    timed(count, |range| {
        for entry in &entries[range] {
            black_box(blake3::hash(entry));
        }
    })
}
