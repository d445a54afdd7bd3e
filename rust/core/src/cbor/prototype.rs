//! What the map key `__proto__` does, for whoever reads messages in JavaScript.
//!
//! The original decodes a map by assigning its entries to an object. Assigning to `__proto__` sets the object's prototype
//! instead: the entry is gone, but what the object inherits can make a later assignment, or the encoder, throw, and then
//! the message is refused. Only how the chain of prototypes ends matters.
//!
//! Left out, where the original's verdict is an accident of an accident: a map that passes for bytes and has a `length` of
//! its own; an index of such bytes that is given an integer of 2^53 or more, or a list or map; and in dag-json a `version`
//! of its own in a map that is written as the link that it inherits from.
//!
//! Source: wire format, "The map key `__proto__`"; cborg's `tokenToMap`, multiformats' `CID`, and ECMAScript 2023, 10.4.5.5
//! (assignment to typed arrays).

/// How a chain of prototypes ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chain {
    /// As for any object.
    Object,
    /// `__proto__` is an entry like any other behind it, once. The copy that the original encodes gets it as its prototype.
    Null,
    /// The object passes for bytes, so many of them, and cannot be encoded unless another prototype takes their place.
    Bytes(u64),
    /// A link: its properties without a setter cannot be assigned.
    Link,
}

impl Chain {
    /// Whether assigning to `key` throws.
    pub(super) fn blocks(self, key: &str) -> bool {
        match self {
            Self::Link => matches!(key, "asCID" | "byteLength" | "byteOffset"),
            Self::Bytes(_) => {
                matches!(key, "BYTES_PER_ELEMENT" | "buffer" | "byteLength" | "byteOffset" | "length")
            }
            Self::Object | Self::Null => false,
        }
    }

    /// Whether assigning to `key` does nothing: numbers, in their canonical form, that are no index of the bytes.
    pub(super) fn swallows(self, key: &str) -> bool {
        let Self::Bytes(length) = self else { return false };
        let is_index = !key.starts_with('-') && key.parse::<u64>().is_ok_and(|index| index < length);
        is_canonical_number(key) && !is_index
    }
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
