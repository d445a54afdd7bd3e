//! Publications: what came by gossip, and the message in it.

use std::ops::Range;

use crate::clock;
use crate::id::{self, KEY_LENGTH, Key};

/// A message as it came by gossip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The caller's name for it.
    pub ticket: u64,
    /// The caller's name for who passed it on.
    pub source: u64,
    /// What was published.
    pub data: Vec<u8>,
}

/// Tags of protocol buffers: field 1 and field 2, of bytes.
pub const FIRST: u8 = 0x0a;
pub const SECOND: u8 = 0x12;

/// Return the key of a publication, and where its value is, if they go together: the key is that of the value, with a
/// clock of any number.
pub fn read_message(data: &[u8]) -> Option<(Key, Range<usize>)> {
    read_insert(data).filter(|(key, place)| is_key_of(key, &data[place.clone()]))
}

fn is_key_of(key: &Key, value: &[u8]) -> bool {
    clock::decode(key).is_ok_and(|(clock, _)| id::key(clock, value).is_ok_and(|found| found == *key))
}

/// The key of a publication, and where its value is: an Event with an Insert (wire format, "Gossip"), in the one form
/// that encoders write. What else may be valid is left to the caller.
fn read_insert(data: &[u8]) -> Option<(Key, Range<usize>)> {
    let (insert, rest) = field(data, FIRST)?;
    let (key, end) = field(insert, FIRST)?;
    let (value, end) = field(end, SECOND)?;
    let key = (rest.is_empty() && end.is_empty() && key.len() == KEY_LENGTH).then_some(key)?;
    Some((key.try_into().ok()?, data.len() - value.len()..data.len()))
}

/// The bytes of the field that `data` begins with, and what follows it.
fn field(data: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let mut data = data.strip_prefix(&[tag])?;
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        let (byte, rest) = data.split_first()?;
        data = rest;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let is_shortest = *byte > 0 || shift == 0;
            return if is_shortest { data.split_at_checked(length) } else { None };
        }
    }
    None
}
