//! The head of a CBOR item: three bits of major type and an argument (RFC 8949, section 3).

use crate::error::Error;

/// The major type of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Major {
    /// 0: an integer from 0.
    Unsigned,
    /// 1: -1 minus the argument.
    Negative,
    /// 2: as many bytes as the argument says.
    Bytes,
    /// 3: as many bytes of UTF-8 as the argument says.
    Text,
    /// 4: as many items.
    List,
    /// 5: as many pairs of items.
    Map,
    /// 6: a tag on the next item.
    Tag,
    /// 7: the constants, with their number as the argument, and floats, with their bits.
    Simple,
}

/// A head as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// The major type.
    pub major: Major,
    /// The low five bits of the first byte, which distinguish floats and constants.
    pub info: u8,
    /// The argument.
    pub argument: u64,
    /// Where the item goes on behind its head.
    pub end: usize,
}

const MAJORS: [Major; 8] =
    [Major::Unsigned, Major::Negative, Major::Bytes, Major::Text, Major::List, Major::Map, Major::Tag, Major::Simple];

/// Reads the head at `at`.
///
/// # Errors
/// [`Error::Decode`] where the bytes end, and for arguments that are reserved, of indefinite length or not minimal.
#[inline]
pub fn read(data: &[u8], at: usize) -> Result<Head, Error> {
    let Some(&first) = data.get(at) else {
        return Err(Error::decode("the input ends where an item should begin", at));
    };
    let major = MAJORS[usize::from(first >> 5)];
    let info = first & 31;
    if info < 24 {
        return Ok(Head { major, info, argument: u64::from(info), end: at + 1 });
    }
    let width = match info {
        24..=27 => 1_usize << (info - 24),
        31 => return Err(Error::decode("indefinite lengths are not allowed", at)),
        _ => return Err(Error::decode("a reserved head", at)),
    };
    let Some(bytes) = data.get(at + 1..at + 1 + width) else {
        return Err(Error::decode("the input ends within a head", data.len()));
    };
    let argument = bytes.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    // The bits of a float are no number, so only the others have a shorter form.
    let smallest = match info {
        24 => 24,
        _ => 1_u64 << (4 * width),
    };
    if argument < smallest && major != Major::Simple {
        return Err(Error::decode("an integer or length takes more bytes than it needs", at));
    }
    Ok(Head { major, info, argument, end: at + 1 + width })
}
