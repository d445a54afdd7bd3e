//! dag-cbor: what is written, and what is accepted (wire format, "What is written, and what is accepted").
//!
//! Canonical bytes are the common currency: [`scan`] recognises them without allocating, [`normalize`] turns whatever else
//! canvas-js accepts into them, and [`events`] reads them. Nothing here recurses.

mod chunks;
mod float;
mod head;
mod normalize;
pub(crate) mod order;
mod passing;
mod prototype;
mod rewrite;
mod scan;
mod token;
mod unusual;
mod write;

pub mod events;

pub use chunks::encode_in_chunks;
pub use float::{MAX_SAFE_INTEGER, canonical as canonical_float};
pub use head::{Head, Major, read as read_head};
pub use passing::{Length, MAX_PASSING_BYTES, Passing};
pub use scan::scan;
pub use unusual::{Normalized, normalize, normalize_stored};
pub(crate) use write::head_length;
pub use write::{Item, Writer};

/// How many lists and maps may be open at once in what comes from others. canvas-js's limit is the stack of its
/// JavaScript engine: it accepts 2,000 and refuses 2,500 on Node 20.
pub const MAX_DEPTH: usize = 2200;

/// The same for what is written here, well inside what every engine reads.
pub const MAX_OWN_DEPTH: usize = 500;

/// The most bytes that are normalised or turned into JSON or back: 2 GiB, far above what any message has.
const MAX_LENGTH: usize = (1 << 31) - 1;

/// The order of map keys: shorter first, then bytewise.
pub fn key_order(left: &str, right: &str) -> std::cmp::Ordering {
    left.len().cmp(&right.len()).then_with(|| left.as_bytes().cmp(right.as_bytes()))
}
