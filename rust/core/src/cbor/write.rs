//! Writing canonical items, one after the other: who writes a map sorts its keys first.

use super::float;

/// A scalar, or the head of a list or map whose items follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Item<'a> {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// An integer from -2^64 to 2^64 - 1.
    Integer(i128),
    /// A float; one with a safe integral value is written as an integer.
    Float(f64),
    /// A string.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A link: the normalised bytes of a CID.
    Link(&'a [u8]),
    /// A list of so many items.
    List(usize),
    /// A map of so many entries, each a text and an item.
    Map(usize),
}

/// How many bytes the head of an item with this argument takes.
pub(crate) fn head_length(argument: u64) -> usize {
    match argument {
        0..24 => 1,
        24..0x100 => 2,
        0x100..0x1_0000 => 3,
        0x1_0000..0x1_0000_0000 => 5,
        _ => 9,
    }
}

/// A buffer of canonical dag-cbor.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on behind what `bytes` holds.
    pub fn append_to(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// How much was written.
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    fn head(&mut self, major: u8, argument: u64) {
        let first = major << 5;
        match argument {
            0..24 => self.bytes.push(first | argument as u8),
            24..0x100 => self.bytes.extend_from_slice(&[first | 24, argument as u8]),
            0x100..0x1_0000 => {
                self.bytes.push(first | 25);
                self.bytes.extend_from_slice(&(argument as u16).to_be_bytes());
            }
            0x1_0000..0x1_0000_0000 => {
                self.bytes.push(first | 26);
                self.bytes.extend_from_slice(&(argument as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(first | 27);
                self.bytes.extend_from_slice(&argument.to_be_bytes());
            }
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the head of a string of so many bytes, which follow.
    pub(crate) fn text_head(&mut self, length: usize) {
        self.head(3, length as u64);
    }

    /// Appends a link from the two parts of its normalised CID.
    pub(crate) fn link(&mut self, cid: [&[u8]; 2]) {
        self.bytes.extend_from_slice(&[0xd8, 42]);
        self.head(2, (cid[0].len() + cid[1].len()) as u64 + 1);
        self.bytes.push(0);
        cid.into_iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    /// Appends canonical bytes that exist already.
    pub fn raw(&mut self, canonical: &[u8]) {
        self.bytes.extend_from_slice(canonical);
    }

    /// Appends one item.
    pub fn item(&mut self, item: Item<'_>) {
        match item {
            Item::Null => self.bytes.push(0xf6),
            Item::Bool(value) => self.bytes.push(0xf4 | u8::from(value)),
            Item::Integer(value) if value < 0 => self.head(1, (-1 - value) as u64),
            Item::Integer(value) => self.head(0, value as u64),
            Item::Float(value) => match float::canonical(value) {
                Some(integer) => self.item(Item::Integer(i128::from(integer))),
                None => {
                    self.bytes.push(0xfb);
                    self.bytes.extend_from_slice(&value.to_bits().to_be_bytes());
                }
            },
            Item::Text(text) => {
                self.head(3, text.len() as u64);
                self.bytes.extend_from_slice(text.as_bytes());
            }
            Item::Bytes(bytes) => {
                self.head(2, bytes.len() as u64);
                self.bytes.extend_from_slice(bytes);
            }
            Item::Link(cid) => self.link([cid, &[]]),
            Item::List(count) => self.head(4, count as u64),
            Item::Map(count) => self.head(5, count as u64),
        }
    }
}
