//! What the map key `__proto__` does, for readers of messages in JavaScript.
//!
//! The JavaScript implementation, canvas-js, decodes a map by assigning its entries to an object. Assigning to `__proto__`
//! sets the object's prototype instead: the entry is gone, but what the object inherits can make a later assignment, or
//! the encoder, throw, and then the message is refused. How the chain of prototypes ends is most of what matters of it;
//! the keys of the maps on the way hide what it ends in.
//!
//! Source: wire format, "The map key `__proto__`"; cborg's `tokenToMap`, multiformats' `CID`, and ECMAScript 2023, 7.1
//! (conversions), 10.4.5.5 (assignment to typed arrays) and 23.1.3.18 (`join`).

use std::borrow::Cow;
use std::collections::HashMap;

use super::float::MAX_SAFE_INTEGER;
use crate::base58;

/// A list this long is joined by nobody in time.
const MAX_JOINED: u64 = 1 << 20;
/// A link this long has no text here.
const MAX_LINK: usize = 64;

/// How a chain of prototypes ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As for any object.
    Object,
    /// As for an object, but that a conversion asks for the list's elements.
    List,
    /// `__proto__` is an entry like any other behind it, once. The copy that canvas-js encodes gets it as its prototype.
    Null,
    /// The object passes for bytes, and is encoded as such if it has a `length`.
    Bytes,
    /// A link: its properties without a setter cannot be assigned.
    Link,
}

/// What a value is converted to where JavaScript needs a number or a string.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Primitive<'a> {
    Null,
    Bool(bool),
    Number(f64),
    /// An integer of 2^53 or more, on either side of zero.
    Big(i128),
    Text(Cow<'a, str>),
    /// Text that is no number, whatever it is.
    NotNumber,
    /// The conversion throws.
    Throws,
}

/// An entry of a map on the way, as far as conversions are concerned.
#[derive(Debug, Clone)]
pub(super) struct Property<'a> {
    /// Where the value stands.
    pub start: usize,
    /// None for what stands there as a scalar.
    pub primitive: Option<Primitive<'a>>,
}

/// What a list is converted from.
#[derive(Debug, Clone)]
pub(super) struct Elements<'a> {
    /// The only element, as text.
    pub first: Primitive<'a>,
    /// The elements that have no text.
    pub throwing: Vec<u64>,
}

/// An object, as far as conversions and objects that inherit from it are concerned.
#[derive(Debug, Clone)]
pub(super) struct Chain<'a> {
    pub end: End,
    /// The entries that matter of the maps on the way to the end, the nearest of each name.
    pub keys: HashMap<Cow<'a, str>, Property<'a>>,
    /// Where the bytes or the link stand in which it ends.
    pub data: Option<usize>,
    /// The length of the bytes or of the list in which it ends.
    pub length: u64,
    pub elements: Option<Box<Elements<'a>>>,
}

impl<'a> Chain<'a> {
    pub fn new(end: End) -> Self {
        Self { end, keys: HashMap::new(), data: None, length: 0, elements: None }
    }

    /// Whether assigning to `key` throws.
    pub fn blocks(&self, key: &str) -> bool {
        let is_read_only = match self.end {
            End::Link => matches!(key, "asCID" | "byteLength" | "byteOffset"),
            End::Bytes => matches!(key, "BYTES_PER_ELEMENT" | "buffer" | "byteLength" | "byteOffset" | "length"),
            End::Object | End::List | End::Null => false,
        };
        is_read_only && !self.keys.contains_key(key)
    }

    /// Whether assigning to `key` does nothing but convert the value to a number, which may throw: keys that are numbers,
    /// in their canonical form, but no index of the bytes.
    pub fn swallows(&self, key: &str) -> bool {
        self.end == End::Bytes
            && is_canonical_number(key)
            && index(key).is_none_or(|index| index >= self.length)
            && !self.keys.contains_key(key)
    }

    /// The keys that are indices below `count`, and the values.
    pub fn indices(&self, count: u64) -> impl Iterator<Item = (u64, &Property<'a>)> {
        let own = self.keys.iter().filter_map(|(key, property)| Some((index(key)?, property)));
        own.filter(move |(index, _)| *index < count)
    }

    /// What `join` makes of a list, or of a map that inherits from one. `scalar` reads what stands somewhere.
    pub fn join(&self, scalar: impl Fn(usize) -> Primitive<'a>) -> Primitive<'a> {
        let mut length = self.length;
        if let Some(property) = self.keys.get("length") {
            let Some(number) = property.primitive(&scalar).number() else { return Primitive::Throws };
            // As ToLength: from NaN and below zero, nothing.
            length = number as u64;
        }
        if length > MAX_JOINED {
            return Primitive::Throws;
        }
        let mut first = None;
        for (index, property) in self.indices(length) {
            let text = property.primitive(&scalar).element();
            if text == Primitive::Throws {
                return text;
            }
            first = first.or((index == 0).then_some(text));
        }
        let elements = self.elements.as_deref();
        let hidden = |index: u64| self.keys.contains_key(index.to_string().as_str());
        if elements.is_some_and(|list| list.throwing.iter().any(|index| *index < length && !hidden(*index))) {
            return Primitive::Throws;
        }
        match length {
            0 => Primitive::Text(Cow::Borrowed("")),
            1 => {
                first.or_else(|| elements.map(|list| list.first.clone())).unwrap_or(Primitive::Text(Cow::Borrowed("")))
            }
            _ => Primitive::NotNumber,
        }
    }

    /// What a map is converted to.
    pub fn primitive(&self, scalar: impl Fn(usize) -> Primitive<'a>) -> Primitive<'a> {
        if self.end == End::Null || self.keys.contains_key("toString") {
            return Primitive::Throws;
        }
        match self.end {
            End::List if !self.keys.contains_key("join") => self.join(scalar),
            End::Bytes if !self.keys.contains_key("join") => Primitive::Throws,
            // Its text begins with `b`, or is looked at where it stands.
            End::Link => Primitive::Throws,
            _ => Primitive::NotNumber,
        }
    }
}

impl<'a> Property<'a> {
    /// What the value is converted to.
    pub fn primitive(&self, scalar: impl Fn(usize) -> Primitive<'a>) -> Primitive<'a> {
        self.primitive.clone().unwrap_or_else(|| scalar(self.start))
    }
}

impl<'a> Primitive<'a> {
    /// The number, as operators convert to it; none where that throws.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Null => Some(0.0),
            Self::Bool(value) => Some(f64::from(u8::from(*value))),
            Self::Number(value) => Some(*value),
            Self::Text(text) => Some(parse_number(text)),
            Self::NotNumber => Some(f64::NAN),
            Self::Big(_) | Self::Throws => None,
        }
    }

    /// What `join` makes of an element.
    pub fn element(self) -> Self {
        match self {
            Self::Null => Self::Text(Cow::Borrowed("")),
            Self::Bool(_) => Self::NotNumber,
            Self::Number(value) => Self::Text(Cow::Owned(format_number(value))),
            Self::Big(value) => Self::Text(Cow::Owned(value.to_string())),
            other => other,
        }
    }

    /// A JavaScript number or BigInt.
    pub fn of_integer(value: i128) -> Self {
        if value.unsigned_abs() <= MAX_SAFE_INTEGER as u128 { Self::Number(value as f64) } else { Self::Big(value) }
    }

    /// What bytes are converted to.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        match bytes {
            [] => Self::Text(Cow::Borrowed("")),
            [byte] => Self::Text(Cow::Owned(byte.to_string())),
            _ => Self::NotNumber,
        }
    }

    /// What a link is converted to, or what has these bytes in its place.
    pub fn of_link(bytes: &[u8], is_version_0: bool) -> Self {
        if !is_version_0 {
            Self::NotNumber
        } else if bytes.len() > MAX_LINK {
            Self::Throws
        } else {
            Self::Text(Cow::Owned(base58::encode(bytes)))
        }
    }
}

/// `String(number)`.
pub(super) fn format_number(number: f64) -> String {
    ryu_js::Buffer::new().format(number).to_owned()
}

/// Whether an entry with this key can matter to objects that inherit from its map.
pub(super) fn matters(key: &str) -> bool {
    match key.as_bytes() {
        [b'-' | b'0'..=b'9' | b'I' | b'N', ..] => true,
        [b'a' | b'b' | b'l' | b'v' | b'j' | b't' | b'/' | b'B', ..] => matches!(
            key,
            "/" | "bytes"
                | "length"
                | "asCID"
                | "byteLength"
                | "byteOffset"
                | "buffer"
                | "BYTES_PER_ELEMENT"
                | "version"
                | "join"
                | "toString"
        ),
        _ => false,
    }
}

/// The index that a key is of bytes.
fn index(key: &str) -> Option<u64> {
    let digits = key.as_bytes();
    let is_index = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.iter().all(u8::is_ascii_digit);
    if is_index && digits.len() <= 10 { key.parse().ok() } else { None }
}

/// Whether JavaScript enumerates a key before all others.
pub(super) fn is_array_index(key: &str) -> bool {
    index(key).is_some_and(|index| index < u64::from(u32::MAX))
}

fn is_canonical_number(key: &str) -> bool {
    if matches!(key, "-0" | "NaN" | "Infinity" | "-Infinity") {
        return true;
    }
    let begins = key.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let Some(number) = key.parse::<f64>().ok().filter(|number| begins && number.is_finite()) else {
        return false;
    };
    ryu_js::Buffer::new().format_finite(number) == key
}

/// `Number(text)`.
pub(super) fn parse_number(text: &str) -> f64 {
    let is_space = |character: char| {
        matches!(character, '\t'..='\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}')
            || matches!(character, '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{feff}')
    };
    let text = text.trim_matches(is_space);
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if text.is_empty() {
        return 0.0;
    }
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return parse_whole(digits, radix);
        }
    }
    if unsigned == "Infinity" {
        return if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    // Rust reads words as well, and otherwise what JavaScript reads.
    let begins = unsigned.starts_with(|first: char| first == '.' || first.is_ascii_digit());
    if begins { text.parse().unwrap_or(f64::NAN) } else { f64::NAN }
}

fn parse_whole(digits: &str, radix: u32) -> f64 {
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return f64::NAN;
    }
    // Beyond 128 bits only the size matters to the caller: all that is left modulo 2^32 is zero.
    match u128::from_str_radix(digits.trim_start_matches('0'), radix) {
        Ok(whole) => whole as f64,
        Err(_) if digits.bytes().all(|digit| digit == b'0') => 0.0,
        Err(_) => 2_f64.powi(200),
    }
}
