//! Maps that pass for bytes: their prototypes end in bytes, and they have a `length` of their own.
//!
//! canvas-js hands such a map to its encoders as it is. They ask it for its `length`, of whatever type, and read so many
//! indices: the map's own entries, else the bytes that it inherits from, else nothing. In dag-cbor a typed array is set
//! from it, which takes the whole part of `length`, and each index modulo 256; in dag-json base64 is made of it by a loop
//! as long as the index is below `length`, with 32-bit integers.
//!
//! Source: wire format, "Maps that pass for bytes"; cborg's `encodeBytes`, multiformats' `rfc4648`, and ECMAScript 2023,
//! 7.1.6, 7.1.11 (conversions to integers) and 23.2.3.26.2 (`set`).

use super::prototype::{Chain, Primitive};

/// Bytes that all maps of a value together may pass for.
pub const MAX_PASSING_BYTES: u64 = 1 << 22;

/// What a message's signature is made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// dag-cbor
    Cbor,
    /// dag-json
    Json,
}

/// What the encoder of dag-cbor finds as the `length` of a map.
#[derive(Debug, Clone, PartialEq)]
pub enum Length {
    /// A number.
    Number(f64),
    /// What is appended, where numbers are added.
    Text(Box<str>),
}

/// A map that passes for bytes, where it stands in what was normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct Passing {
    /// Where the head of its bytes is.
    pub at: usize,
    /// Its `length`.
    pub length: Length,
    /// Whether it also passes for a parent's key.
    pub is_key: bool,
}

/// Such a map whose bytes are made once it is known to be kept.
#[derive(Debug)]
pub(super) struct Pending {
    /// Where the bytes stand in which its prototypes end.
    pub data: usize,
    pub count: u64,
    pub indices: Vec<(u64, i32)>,
    pub length: Length,
    pub is_key: bool,
}

/// The bytes of a map in messages that are signed in a form; none where the encoder throws, or works on without end.
pub(super) fn pend<'a>(
    chain: &Chain<'a>,
    form: Form,
    scalar: impl Fn(usize) -> Primitive<'a>,
    is_byte: impl Fn(usize) -> bool,
    is_width: impl Fn(usize) -> bool,
) -> Option<Pending> {
    let length = chain.keys.get("length")?.primitive(&scalar);
    let count = match (form, &length) {
        (Form::Cbor, _) => {
            let number = length.number()?;
            // More than a chunk of the encoder has is refused, whatever it is; see `chunks`.
            if number.is_nan() || number >= 256.0 {
                return None;
            }
            number as u64
        }
        (Form::Json, Primitive::Big(value)) if *value < 0 => 0,
        (Form::Json, _) => {
            let number = length.number()?;
            if number > MAX_PASSING_BYTES as f64 {
                return None;
            }
            // From NaN and below zero, nothing.
            number.ceil() as u64
        }
    };
    let mut indices = Vec::new();
    for (index, property) in chain.indices(count) {
        let number = property.primitive(&scalar).number()?;
        let whole = to_int32(number);
        indices.push((index, if form == Form::Cbor { whole & 0xff } else { whole }));
    }
    let widths = ["length", "byteLength"].map(|name| chain.keys.get(name).is_some_and(|found| is_width(found.start)));
    let is_key = widths == [true, true] && chain.indices(20).all(|(_, property)| is_byte(property.start));
    let length = match length {
        Primitive::Text(text) => Length::Text(text.into()),
        Primitive::NotNumber => Length::Text("NaN".into()),
        other => Length::Number(other.number().unwrap_or(0.0)),
    };
    Some(Pending { data: chain.data?, count, indices, length, is_key })
}

impl Pending {
    /// The bytes, of those in which the prototypes end.
    pub fn make(&self, data: &[u8]) -> Vec<u8> {
        let count = self.count as usize;
        let mut bytes = data[..data.len().min(count)].to_vec();
        bytes.resize(count, 0);
        if self.indices.iter().all(|(_, value)| (0..256).contains(value)) {
            self.indices.iter().for_each(|(index, value)| bytes[*index as usize] = *value as u8);
            return bytes;
        }
        let mut numbers: Vec<i32> = bytes.into_iter().map(i32::from).collect();
        self.indices.iter().for_each(|(index, value)| numbers[*index as usize] = *value);
        through_base64(&numbers)
    }
}

/// As ToInt32.
fn to_int32(number: f64) -> i32 {
    if !number.is_finite() {
        return 0;
    }
    number.trunc().rem_euclid(4_294_967_296.0) as u32 as i32
}

/// What is in the base64 that canvas-js makes of integers that may be no bytes.
fn through_base64(numbers: &[i32]) -> Vec<u8> {
    let mut sextets = Vec::with_capacity(numbers.len() * 4 / 3 + 1);
    let (mut buffer, mut bits) = (0_i32, 0);
    for number in numbers {
        buffer = buffer << 8 | number;
        bits += 8;
        while bits > 6 {
            bits -= 6;
            sextets.push((buffer >> bits & 63) as u8);
        }
    }
    if bits > 0 {
        sextets.push((buffer << (6 - bits) & 63) as u8);
    }
    let mut bytes = Vec::with_capacity(numbers.len());
    let (mut buffer, mut bits) = (0_u32, 0);
    for sextet in sextets {
        buffer = buffer << 6 | u32::from(sextet);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
        }
    }
    bytes
}
