//! Keys of the tree: byte strings that are usually 20 bytes long, kept without an allocation up to 22.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use data_encoding::HEXLOWER;

/// The longest key that is kept in place; with it a `Key` takes 24 bytes.
const INLINE: usize = 22;

/// An immutable byte string, compared bytewise. The empty one stands for the anchor, which has no key.
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Key {
    /// The anchor's key: empty, and thereby below every other.
    pub const ANCHOR: Key = Key(Repr::Inline { length: 0, bytes: [0; INLINE] });

    /// Whether this is the anchor's key.
    pub fn is_anchor(&self) -> bool {
        self.is_empty()
    }

    /// The first eight bytes, padded with zeros: keys that differ in them are in their order.
    fn prefix(&self) -> u64 {
        let mut first = [0; 8];
        match &self.0 {
            Repr::Inline { bytes, .. } => first.copy_from_slice(&bytes[..8]),
            Repr::Heap(bytes) => first.copy_from_slice(&bytes[..8]),
        }
        u64::from_be_bytes(first)
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length).min(INLINE)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match bytes.get_mut(..key.len()) {
            Some(start) => {
                start.copy_from_slice(key);
                // At most INLINE, so the cast keeps the value.
                Key(Repr::Inline { length: key.len() as u8, bytes })
            }
            None => Key(Repr::Heap(key.into())),
        }
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        if key.len() > INLINE { Key(Repr::Heap(key.into())) } else { Key::from(key.as_slice()) }
    }
}

impl From<Box<[u8]>> for Key {
    fn from(key: Box<[u8]>) -> Self {
        if key.len() > INLINE { Key(Repr::Heap(key)) } else { Key::from(&*key) }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.prefix().cmp(&other.prefix()).then_with(|| (**self).cmp(&**other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({self})")
    }
}

/// In hexadecimal, as error messages name keys.
impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_anchor() { formatter.write_str("(anchor)") } else { formatter.write_str(&HEXLOWER.encode(self)) }
    }
}
