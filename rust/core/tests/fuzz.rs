//! The targets of the fuzzer, on all vectors and on what is left of them after some accidents.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod random;
mod targets;

use std::path::Path;

use random::Random;
use serde_json::Value;

/// The bytes and texts in the vectors.
fn seeds() -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors").read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            collect(&serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(), &mut found);
        }
    }
    found
}

fn collect(value: &Value, found: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) if text.len() < 4000 => {
            found.extend(data_encoding::HEXLOWER.decode(text.as_bytes()).ok());
            found.push(text.clone().into_bytes());
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(values) => values.values().for_each(|value| collect(value, found)),
        _ => {}
    }
}

#[test]
fn no_bytes_break_what_holds_for_all() {
    let mut random = Random(1);
    let seeds = seeds();
    assert!(seeds.len() > 1000);
    for mut data in seeds {
        for _ in 0..2 {
            targets::cbor(&data);
            targets::json(&data);
            targets::answer(&data);
            // Signatures take most of the time.
            if random.below(4) == 0 {
                let first = [0, 1, 3][random.below(3) as usize];
                targets::message(&[&[first], &data[..]].concat());
            }
            if let Some(at) = data.len().checked_sub(1).map(|last| random.below(last as u64 + 1) as usize) {
                data[at] ^= 1 << random.below(8);
            }
        }
    }
}
