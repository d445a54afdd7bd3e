//! The encoder of dag-cbor that canvas-js uses, as far as it makes a difference: its buffer.
//!
//! It writes into chunks of 256 bytes, and what is 64 bytes or longer and does not fit becomes a chunk itself. How far it
//! came is a sum of the `length` of all that it wrote. A map that passes for bytes has any `length`: a fraction, a negative
//! number, or text, to which a sum appends. So what is written next can overwrite what was written, or leave a gap, in
//! which stands what the process had in memory; that, and what makes the encoder throw, is refused here.
//!
//! Source: cborg's `Bl` and `concat`, `Buffer.concat` of Node.js, and ECMAScript 2023, 23.2.3.26 (`set`).

use super::events::events;
use super::float::MAX_SAFE_INTEGER;
use super::passing::{Length, Passing};
use super::prototype::{format_number, parse_number};
use super::write::Item;
use crate::error::Error;

const CHUNK: usize = 256;
const OWN_CHUNK: f64 = 64.0;
/// Strings of fewer UTF-16 units are written from a list, which has no method of a typed array.
const LISTED: usize = 24;
/// A position that was appended to so often is no longer followed.
const MAX_POSITION: usize = 4096;

struct Chunk {
    bytes: Vec<u8>,
    /// Whether each byte was written; empty for a chunk that was whole from the beginning.
    written: Vec<bool>,
    is_list: bool,
}

/// How far the encoder came: a sum of numbers, or text to which numbers are appended.
enum Position {
    Number(f64),
    Text(String),
}

struct Chunks {
    chunks: Vec<Chunk>,
    position: Position,
    last: f64,
}

fn throws(reason: &str) -> Error {
    Error::Invalid(format!("a map passes for bytes, and the encoder of canvas-js has no bytes for it: {reason}"))
}

/// What canvas-js signs in dag-cbor for canonical bytes in which maps pass for bytes, in the order in which they stand.
///
/// # Errors
/// [`Error`] where it throws, or signs what happens to be in memory.
pub fn encode_in_chunks(data: &[u8], passing: &[Passing]) -> Result<Vec<u8>, Error> {
    let mut chunks = Chunks { chunks: Vec::new(), position: Position::Number(0.0), last: -1.0 };
    let mut passing = passing.iter().peekable();
    let mut items = events(data);
    loop {
        let start = items.position();
        let Some(item) = items.next_item()? else { break };
        let content = match item {
            Item::Bytes(bytes) => bytes.len(),
            Item::Text(text) => text.len(),
            Item::Link(link) => link.len() + 1,
            _ => 0,
        };
        let end = items.position();
        let (head, content) = data[start..end].split_at(end - start - content);
        match item {
            Item::Bytes(bytes) => match passing.next_if(|passing| passing.at == start) {
                Some(passing) => chunks.push_passing(bytes, &passing.length)?,
                None => {
                    chunks.push(head, false)?;
                    chunks.push(content, false)?;
                }
            },
            Item::Text(text) => {
                chunks.push(head, false)?;
                chunks.push(content, text.encode_utf16().take(LISTED).count() < LISTED)?;
            }
            Item::Link(_) => {
                // The tag, the head of the bytes, and they.
                chunks.push(&head[..2], false)?;
                chunks.push(&head[2..], false)?;
                chunks.push(content, false)?;
            }
            _ => chunks.push(head, false)?,
        }
    }
    chunks.finish()
}

impl Position {
    fn number(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => parse_number(text),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => format_number(*number),
            Self::Text(text) => text.clone(),
        }
    }

    fn plus(&self, length: &Length) -> Result<Self, Error> {
        let text = match (self, length) {
            (Self::Number(left), Length::Number(right)) => return Ok(Self::Number(left + right)),
            (_, Length::Number(number)) => self.text() + &format_number(*number),
            (_, Length::Text(text)) => self.text() + text,
        };
        // In UTF-16 units it is no longer.
        if text.chars().count() > MAX_POSITION {
            Err(throws("a position of too many characters"))
        } else {
            Ok(Self::Text(text))
        }
    }
}

impl Length {
    fn number(&self) -> f64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => parse_number(text),
        }
    }
}

impl Chunk {
    fn set(&mut self, bytes: &[u8], at: f64) -> Result<(), Error> {
        let start = at.trunc();
        if self.is_list || !(start >= 0.0 && start + bytes.len() as f64 <= self.bytes.len() as f64) {
            return Err(throws("bytes written outside its buffer"));
        }
        let range = start as usize..start as usize + bytes.len();
        self.bytes[range.clone()].copy_from_slice(bytes);
        if let Some(written) = self.written.get_mut(range) {
            written.fill(true);
        }
        Ok(())
    }

    /// Where a relative end is, as `subarray` takes it.
    fn end(&self, end: f64) -> usize {
        let length = self.bytes.len() as f64;
        let end = if end.is_nan() { 0.0 } else { end.trunc() };
        (if end < 0.0 { end + length } else { end }).clamp(0.0, length) as usize
    }

    fn take(&self, end: usize) -> Result<&[u8], Error> {
        if self.written.iter().take(end).any(|written| !written) {
            return Err(throws("bytes of its buffer that were never written"));
        }
        Ok(&self.bytes[..end])
    }
}

impl Chunks {
    fn push(&mut self, bytes: &[u8], is_list: bool) -> Result<(), Error> {
        self.add(bytes, &Length::Number(bytes.len() as f64), is_list, false)
    }

    fn push_passing(&mut self, bytes: &[u8], length: &Length) -> Result<(), Error> {
        let number = length.number();
        let whole = (number.trunc().rem_euclid(256.0)) as u8;
        if number < 24.0 {
            self.push(&[0x40 | whole], false)?;
        } else {
            self.push(&[0x58, whole], false)?;
        }
        self.add(bytes, length, false, true)
    }

    fn add(&mut self, bytes: &[u8], length: &Length, is_list: bool, passes: bool) -> Result<(), Error> {
        let end = self.position.plus(length)?;
        let position = self.position.number();
        let start = self.chunks.last().map_or(0, |top| top.bytes.len()) as f64 - (self.last - position) - 1.0;
        match self.chunks.last_mut() {
            Some(top) if end.number() <= self.last + 1.0 => top.set(bytes, start)?,
            top => {
                if let Some(top) = top
                    && start < top.bytes.len() as f64
                {
                    if top.is_list {
                        return Err(throws("a list has no part"));
                    }
                    let end = top.end(start);
                    top.bytes.truncate(end);
                    top.written.truncate(end);
                    self.last = position - 1.0;
                }
                if length.number() < OWN_CHUNK {
                    let mut chunk = Chunk { bytes: vec![0; CHUNK], written: vec![false; CHUNK], is_list: false };
                    chunk.set(bytes, 0.0)?;
                    self.last += CHUNK as f64;
                    self.chunks.push(chunk);
                } else if passes {
                    return Err(throws("a map among chunks that are joined"));
                } else {
                    self.chunks.push(Chunk { bytes: bytes.to_vec(), written: Vec::new(), is_list });
                    self.last += bytes.len() as f64;
                }
            }
        }
        self.position = end;
        Ok(())
    }

    fn finish(self) -> Result<Vec<u8>, Error> {
        if let [chunk] = &self.chunks[..] {
            return Ok(chunk.take(chunk.end(self.position.number()))?.to_vec());
        }
        let length = match self.position {
            Position::Number(length) if length.fract() == 0.0 && (0.0..=MAX_SAFE_INTEGER).contains(&length) => length,
            _ => return Err(throws("chunks joined to a length that is none")),
        };
        let mut out = Vec::new();
        for chunk in &self.chunks {
            let left = length as usize - out.len();
            out.extend_from_slice(chunk.take(chunk.bytes.len().min(left))?);
        }
        // What is left of it is filled with zeros: no more than was taken away, or a fraction for each map.
        out.resize(length as usize, 0);
        Ok(out)
    }
}
