//! What canvas-js signed and what it accepts, byte for byte.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::Path;

use data_encoding::HEXLOWER;
use gossiplog_core::batch::{CheckedValue, check, verify_signatures};
use gossiplog_core::id::Key;
use gossiplog_core::message::{Codec, parse, sign};
use gossiplog_core::signature::SigningKey;
use gossiplog_core::{clock, id, json, tree};
use serde_json::Value;

fn vectors(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn hex(value: &Value) -> Vec<u8> {
    HEXLOWER.decode(value.as_str().unwrap().as_bytes()).unwrap()
}

fn verify(value: &[u8], topic: &str) -> Result<(Key, Vec<Key>), String> {
    let values = [value.to_vec()];
    let mut verdicts = check(&values, topic);
    verify_signatures(&values, &mut verdicts);
    match verdicts.pop().unwrap() {
        CheckedValue::Invalid(invalid) => Err(invalid.reason),
        verdict => {
            let parsed = verdict.parsed().unwrap();
            Ok((parsed.key, parsed.parents(value).collect()))
        }
    }
}

#[test]
fn clocks_are_written_and_read_as_the_original_does() {
    let vectors = vectors("clocks.json");
    let entries = vectors.as_array().unwrap();
    assert!(entries.len() > 30);
    for entry in entries {
        let (number, expected) = (entry["clock"].as_u64().unwrap(), hex(&entry["hex"]));
        let mut target = [0; 8];
        let length = clock::encode(number, &mut target).unwrap();
        assert_eq!(&target[..length], expected);
        assert_eq!(clock::decode(&expected).unwrap(), (number, length));
    }
}

#[test]
fn messages_are_signed_as_the_original_does() {
    let vectors = vectors("messages.json");
    let topic = vectors["topic"].as_str().unwrap();
    let messages = vectors["messages"].as_array().unwrap();
    assert!(messages.len() > 400);
    for entry in messages {
        let value = hex(&entry["value"]);
        let parsed = parse(&value, topic).map_err(|invalid| invalid.reason).unwrap();
        let mut signed = Vec::new();
        parsed.signed_bytes(&value, &mut signed).unwrap();
        assert_eq!(signed, hex(&entry["signingBytes"]), "{entry}");
        assert_eq!(parsed.did(&value), entry["publicKey"].as_str().unwrap());
        assert_eq!(tree::leaf_hash(&parsed.key, &value).to_vec(), hex(&entry["leafHash"]));

        let codec = Codec::from_name(entry["codec"].as_str().unwrap()).unwrap();
        let parents = entry["parents"].as_array().unwrap();
        let parents: Vec<Key> = parents.iter().map(|parent| id::decode(parent.as_str().unwrap()).unwrap()).collect();
        let private_key: [u8; 32] = hex(&entry["privateKey"]).try_into().unwrap();
        let (key, again) =
            sign(topic, parsed.clock, &parents, parsed.payload(&value), &SigningKey::new(&private_key), codec).unwrap();
        assert_eq!((again, id::encode(&key)), (value, entry["id"].as_str().unwrap().to_owned()));
    }
}

#[test]
fn verdicts_are_the_originals() {
    let vectors = vectors("verdicts.json");
    let topic = vectors["topic"].as_str().unwrap();
    let before = vectors["before"].as_array().unwrap();
    let known: HashSet<Key> = before.iter().map(|value| verify(&hex(value), topic).unwrap().0).collect();
    let verdicts = vectors["verdicts"].as_array().unwrap();
    assert!(verdicts.len() > 100);
    for entry in verdicts {
        let verdict = verify(&hex(&entry["value"]), topic);
        let accepted = verdict.as_ref().is_ok_and(|(_, parents)| parents.iter().all(|parent| known.contains(parent)));
        assert_eq!(accepted, entry["accepted"].as_bool().unwrap(), "{}: {verdict:?}", entry["name"]);
        if accepted {
            assert_eq!(id::encode(&verdict.unwrap().0), entry["id"].as_str().unwrap(), "{}", entry["name"]);
        }
    }
}

#[test]
fn bad_signatures_are_found_in_a_batch() {
    let (topic, count) = ("example.com", 700);
    let bad: HashSet<usize> = [0, 1, 33, 350, 351, 699].into();
    let values: Vec<Vec<u8>> = (0..count)
        .map(|number: usize| {
            let seed = [(number % 7) as u8; 32];
            let payload = json::read(number.to_string().as_bytes()).unwrap();
            let (_, mut value) = sign(topic, 1, &[], &payload, &SigningKey::new(&seed), Codec::Cbor).unwrap();
            if bad.contains(&number) {
                // Within the signature, whose last byte stands before the topic.
                let at = value.windows(topic.len()).position(|window| window == topic.as_bytes()).unwrap();
                value[at - 40] ^= 1;
            }
            value
        })
        .collect();
    let mut verdicts = check(&values, topic);
    verify_signatures(&values, &mut verdicts);
    let invalid =
        |(index, verdict): (usize, &CheckedValue)| matches!(verdict, CheckedValue::Invalid(_)).then_some(index);
    let found: HashSet<usize> = verdicts.iter().enumerate().filter_map(invalid).collect();
    assert_eq!(found, bad);
}
