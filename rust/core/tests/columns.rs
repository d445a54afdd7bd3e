//! Columns where Python cannot bring them: through the crate alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, Int32Array};
use gossiplog_core::columns::{Column, decode, fragment, leaf_hashes, verify};
use gossiplog_core::message::{Codec, sign};
use gossiplog_core::signature::SigningKey;
use gossiplog_core::{id, tree};

const TOPIC: &str = "org.example.test";

#[test]
fn a_message_its_row_its_verdict_and_its_leaf() {
    let (key, value) = sign(TOPIC, 1, &[], &[0x01], &SigningKey::new(&[1; 32]), Codec::Cbor).unwrap();
    let values = BinaryArray::from_iter([Some(&value[..]), None, Some(b"broken")]);
    let batch = decode(&values, TOPIC, &Column::ALL).unwrap();
    assert_eq!(batch.column(0).as_string::<i32>().value(0), id::encode(&key));
    assert_eq!(batch.column_by_name("payload").unwrap().as_string::<i32>().value(0), "1");
    assert_eq!(batch.column_by_name("error").unwrap().null_count(), 1);

    let keys = BinaryArray::from_iter([Some(&key[..]), Some(&key), Some(&key)]);
    let verdicts = verify(Some(&keys), &values, TOPIC, &[Column::Clock]).unwrap();
    assert_eq!((verdicts.column(1).null_count(), verdicts.column(2).null_count()), (1, 2));
    assert!(verify(Some(&keys), &values, TOPIC, &[Column::Key]).is_err());
    let hashes = leaf_hashes(&keys, &values).unwrap();
    assert_eq!(hashes.value(0), tree::leaf_hash(&key, &value));
    assert_eq!(fragment(&keys.slice(0, 1), &hashes.slice(0, 1)).unwrap().len(), 1);
}

#[test]
fn numbers_are_no_bytes() {
    assert!(decode(&Int32Array::from(vec![1]), TOPIC, &Column::ALL).is_err());
}
