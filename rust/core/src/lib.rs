//! The algorithms of gossiplog: ids, dag-cbor, signatures, the prolly tree, ancestors. No I/O, no clock, no Python.
//!
//! Imports go only towards the top of this list: error, clock, id, base58, cid, cbor, json, topic, signature, message, message_json,
//! tree, ancestors, parallel, batch, validator, columns.

#![forbid(unsafe_code)]

pub mod ancestors;
mod base58;
pub mod batch;
pub mod cbor;
pub mod cid;
pub mod clock;
pub mod columns;
pub mod error;
pub mod id;
pub mod json;
pub mod message;
pub mod message_json;
pub mod parallel;
pub mod signature;
pub mod topic;
pub mod tree;
pub mod validator;

pub use error::Error;
