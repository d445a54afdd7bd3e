//! From whatever canvas-js accepts to the canonical bytes that it would sign (wire format, "Normalising").
//!
//! Two passes over the input, neither recursive. The first checks it, finds the maps whose entries must be sorted or
//! dropped, and how long the result is; the second writes. Both cost time in proportion to the input, whatever is in it, and
//! allocate for the input as a whole: nothing for a single item.
//!
//! What follows from how JavaScript objects work is left to `unusual`: a map with the key `__proto__`, and links and bytes
//! that canvas-js takes for something else.

use std::cmp::Ordering;

use super::MAX_DEPTH;
use super::float;
use super::head::{Major, read};
use super::order::{self, Order, Picked, Rewrites, Sorter, reserve};
use super::token::{self, read_token, take};
use super::write::{Item, Writer, head_length};
use crate::cid::Cid;
use crate::error::{Error, shortened};

/// A value that was read, as far as the map around it needs to know.
struct Seen {
    start: usize,
    /// How many bytes it is written in.
    size: usize,
    /// Why canvas-js refuses to encode this value.
    refused: Option<Refusal>,
}

/// Why a value is refused, and where.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    reason: &'static str,
    at: usize,
}

/// What stands under a key that matters to the test for links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Bool(bool),
    Integer(i128),
    /// The bits of a float that is written as one.
    Float(u64),
    /// The hash of a string's text.
    Text([u8; 32]),
    /// Bytes that are empty: canvas-js has one object for all of them.
    Empty,
    /// Something that is equal to nothing else.
    Other,
}

#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    slash: Option<Mark>,
    bytes: Option<Mark>,
}

/// A list or map that is being read.
struct Open<'a> {
    start: usize,
    remaining: u64,
    /// How many bytes its items so far are written in.
    size: usize,
    refused: Option<Refusal>,
    map: Option<OpenMap<'a>>,
}

struct OpenMap<'a> {
    key: Text<'a>,
    key_start: usize,
    /// Where the places of its keys begin among those of all open maps.
    first: usize,
    last: Option<Text<'a>>,
    sorted: bool,
    /// Whether keys have to be decoded before they can be sorted.
    broken: bool,
    /// What canvas-js's encoder finds under `/` and `bytes`, its test for links.
    marks: Marks,
}

/// Why the first pass ended.
enum Stop {
    Refused(Error),
    /// There is something that `unusual` has to look at.
    Unusual,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The canonical form of one item that fills `data`; none if `unusual` has to look at it.
///
/// # Errors
/// [`Error::Decode`] with the place, for everything that canvas-js refuses.
pub(super) fn normalize_usual(data: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    order::check_length(data, 1)?;
    match check(data) {
        Ok((mut rewrites, size)) => write(data, &mut rewrites, size).map(Some),
        Err(Stop::Unusual) => Ok(None),
        Err(Stop::Refused(error)) => Err(error),
    }
}

/// A string as JavaScript's TextDecoder reads it: U+FFFD for what is not UTF-8, without one U+FEFF at its start.
#[derive(Debug, Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    /// Whether the bytes are UTF-8.
    valid: bool,
}

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

impl<'a> Text<'a> {
    const EMPTY: Self = Self { bytes: b"", valid: true };

    /// From bytes without U+FEFF at their start.
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, valid: std::str::from_utf8(bytes).is_ok() }
    }

    /// The text in parts.
    fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (whole, broken) = if self.valid { (self.bytes, &[][..]) } else { (&[][..], self.bytes) };
        let parts = broken.utf8_chunks().flat_map(|chunk| {
            let replacement = if chunk.invalid().is_empty() { &[][..] } else { REPLACEMENT };
            [chunk.valid().as_bytes(), replacement]
        });
        std::iter::once(whole).chain(parts)
    }

    fn len(&self) -> usize {
        if self.valid { self.bytes.len() } else { self.parts().map(<[u8]>::len).sum() }
    }

    /// The order of keys in dag-cbor.
    fn compare(&self, other: &Self) -> Ordering {
        if self.valid && other.valid {
            return Order::Length.compare(self.bytes, other.bytes);
        }
        let bytes = |text: &Self| text.parts().flatten();
        self.len().cmp(&other.len()).then_with(|| bytes(self).cmp(bytes(other)))
    }

    fn write(&self, writer: &mut Writer) {
        writer.text_head(self.len());
        self.parts().for_each(|part| writer.raw(part));
    }
}

type Token<'a> = token::Token<'a, Text<'a>, Cid<'a>>;

#[inline]
fn token(data: &[u8], at: usize) -> Result<(Token<'_>, usize), Error> {
    read_token(data, at, |bytes| Text::new(without_mark(bytes)), Cid::read)
}

impl Token<'_> {
    /// How many bytes a scalar is written in.
    fn size(&self) -> usize {
        let sized = |length: usize| head_length(length as u64) + length;
        match self {
            Token::Null | Token::Bool(_) | Token::List(_) | Token::Map(_) => 1,
            Token::Integer(value) => integer_size(*value),
            Token::Float(value) => float::canonical(*value).map_or(9, |integer| integer_size(i128::from(integer))),
            Token::Text(text) => sized(text.len()),
            Token::Bytes(bytes) => sized(bytes.len()),
            Token::Link(cid) => 2 + sized(1 + cid.len()),
        }
    }

    /// What the test for links makes of it.
    fn mark(&self) -> Mark {
        match self {
            Token::Bool(value) => Mark::Bool(*value),
            Token::Integer(value) => Mark::Integer(*value),
            Token::Float(value) => float::canonical(*value)
                .map_or(Mark::Float(value.to_bits()), |integer| Mark::Integer(i128::from(integer))),
            Token::Text(text) => {
                let mut hasher = blake3::Hasher::new();
                text.parts().for_each(|part| _ = hasher.update(part));
                Mark::Text(*hasher.finalize().as_bytes())
            }
            Token::Bytes([]) => Mark::Empty,
            _ => Mark::Other,
        }
    }
}

fn integer_size(value: i128) -> usize {
    head_length(if value < 0 { (-1 - value) as u64 } else { value as u64 })
}

/// The first pass: the rewrites, and how many bytes are to be written.
struct Checker<'a> {
    data: &'a [u8],
    stack: Vec<Open<'a>>,
    /// Where the keys of all open maps stand, those of the innermost last.
    keys: Vec<u32>,
    rewrites: Rewrites,
    sorter: Sorter,
    /// Keys of one map as they are decoded, one behind the other, and where each ends.
    texts: Vec<u8>,
    ends: Vec<u32>,
}

fn check(data: &[u8]) -> Result<(Rewrites, usize), Stop> {
    let mut checker = Checker {
        data,
        stack: Vec::new(),
        keys: Vec::new(),
        rewrites: Rewrites::default(),
        sorter: Sorter::default(),
        texts: Vec::new(),
        ends: Vec::new(),
    };
    let size = checker.run()?;
    Ok((checker.rewrites, size))
}

impl<'a> Checker<'a> {
    fn run(&mut self) -> Result<usize, Stop> {
        let data = self.data;
        let mut at = 0;
        loop {
            let start = at;
            let (token, end) = token(data, start)?;
            at = end;
            if matches!(&token, Token::Link(cid) if cid.looks_like_version_1()) {
                return Err(Stop::Unusual);
            }
            let (count, is_map) = match token {
                Token::List(count) => (Some(count), false),
                Token::Map(count) => (Some(count), true),
                _ => (None, false),
            };
            let mut complete = None;
            if let Some(remaining) = count {
                if self.stack.len() >= MAX_DEPTH {
                    let reason = format!("more than {MAX_DEPTH} lists and maps are nested");
                    return Err(Error::decode(reason, start).into());
                }
                let map = is_map.then(|| OpenMap::new(self.keys.len()));
                let size = head_length(remaining);
                self.stack.push(Open { start, remaining, size, refused: None, map });
            } else if let Some(list) = self.stack.last_mut().filter(|top| top.map.is_none()) {
                // Most items of most values.
                list.size += token.size();
            } else {
                complete = Some(Seen { start, size: token.size(), refused: None });
            }
            loop {
                if let Some(seen) = complete.take() {
                    match self.stack.last_mut() {
                        Some(top) => top.add(data, &mut self.keys, seen)?,
                        None if at < data.len() => {
                            return Err(Error::decode("bytes follow the end of the item", at).into());
                        }
                        None => {
                            let refuse = |refusal: Refusal| Err(Error::decode(refusal.reason, refusal.at).into());
                            return seen.refused.map_or(Ok(seen.size), refuse);
                        }
                    }
                }
                let Some(top) = self.stack.last_mut() else {
                    return Err(Error::decode("the input ends where an item should begin", at).into());
                };
                if top.remaining > 0 {
                    top.remaining -= 1;
                    if let Some(map) = &mut top.map {
                        at = map.read_key(data, at)?;
                        if map.key.valid && map.key.bytes == b"__proto__" {
                            return Err(Stop::Unusual);
                        }
                    }
                    break;
                }
                if let Some(open) = self.stack.pop() {
                    complete = Some(self.close(open)?);
                }
            }
        }
    }

    fn close(&mut self, open: Open<'a>) -> Result<Seen, Stop> {
        let Open { start, size, mut refused, map, .. } = open;
        let Some(map) = map else {
            return Ok(Seen { start, size, refused });
        };
        match (&map.marks.slash, &map.marks.bytes) {
            (Some(Mark::Empty), Some(Mark::Empty)) => return Err(Stop::Unusual),
            (Some(slash), Some(bytes)) if slash == bytes && *slash != Mark::Other => {
                let reason = "a map whose \"/\" equals its \"bytes\" cannot be encoded";
                refused.get_or_insert(Refusal { reason, at: start });
            }
            _ => {}
        }
        if !map.sorted {
            self.arrange(&map, start)?;
        }
        self.keys.truncate(map.first);
        Ok(Seen { start, size, refused })
    }

    /// Refuses repeated keys, and notes in which order the entries are written.
    fn arrange(&mut self, map: &OpenMap<'a>, start: usize) -> Result<(), Error> {
        let Self { data, keys, rewrites, sorter, texts, ends, .. } = self;
        let keys = &keys[map.first..];
        texts.clear();
        ends.clear();
        if map.broken {
            let all = || keys.iter().map(|key| key_at(data, *key as usize));
            reserve(texts, all().map(|text| text.len()).sum());
            reserve(ends, keys.len());
            for text in all() {
                text.parts().for_each(|part| texts.extend_from_slice(part));
                ends.push(texts.len() as u32);
            }
        }
        let text = |number: usize| -> &[u8] {
            if map.broken {
                let from = number.checked_sub(1).map_or(0, |before| ends[before] as usize);
                &texts[from..ends[number] as usize]
            } else {
                key_bytes(data, keys[number] as usize)
            }
        };
        let mut before = None;
        for number in sorter.sort(Order::Length, keys.len(), text) {
            if before.replace(text(number)) == Some(text(number)) {
                return Err(duplicate(data, keys[number] as usize));
            }
        }
        rewrites.reorder(start, keys.len(), sorter.numbers().map(|number| keys[number]));
        Ok(())
    }
}

fn duplicate(data: &[u8], at: usize) -> Error {
    let mut start: Vec<u8> = Vec::new();
    key_at(data, at).parts().take(64).for_each(|part| start.extend_from_slice(&part[..part.len().min(256)]));
    Error::decode(format!("the map key {} stands twice", shortened(&String::from_utf8_lossy(&start))), at)
}

/// The key at `at`, which was read before.
fn key_at(data: &[u8], at: usize) -> Text<'_> {
    Text::new(key_bytes(data, at))
}

fn key_bytes(data: &[u8], at: usize) -> &[u8] {
    let bytes = read(data, at).and_then(|head| take(data, &head)).map_or(&[][..], |(bytes, _)| bytes);
    without_mark(bytes)
}

/// The bytes without U+FEFF at their start.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

impl Open<'_> {
    /// Takes in a value that is complete.
    fn add(&mut self, data: &[u8], keys: &mut Vec<u32>, seen: Seen) -> Result<(), Error> {
        match &mut self.map {
            None => {
                self.size += seen.size;
                self.refused = self.refused.or(seen.refused);
            }
            Some(map) => {
                map.assign(data, keys, &seen)?;
                let key = map.key.len();
                self.size += head_length(key as u64) + key + seen.size;
                self.refused = self.refused.or(seen.refused);
            }
        }
        Ok(())
    }
}

impl<'a> OpenMap<'a> {
    fn new(first: usize) -> Self {
        Self { key: Text::EMPTY, key_start: 0, first, last: None, sorted: true, broken: false, marks: Marks::default() }
    }

    fn read_key(&mut self, data: &'a [u8], at: usize) -> Result<usize, Error> {
        let head = read(data, at)?;
        if head.major != Major::Text {
            return Err(Error::decode("a map key must be a string", at));
        }
        let (bytes, end) = take(data, &head)?;
        self.key = Text::new(without_mark(bytes));
        self.key_start = at;
        Ok(end)
    }

    /// Assigns a value to the current key.
    fn assign(&mut self, data: &[u8], keys: &mut Vec<u32>, seen: &Seen) -> Result<(), Error> {
        let key = self.key;
        reserve(keys, 1);
        keys.push(self.key_start as u32);
        self.broken |= !key.valid;
        self.sorted = self.sorted && self.last.is_none_or(|last| last.compare(&key).is_lt());
        self.last = Some(key);
        match key.bytes {
            b"/" => self.marks.slash = Some(token(data, seen.start)?.0.mark()),
            b"bytes" => self.marks.bytes = Some(token(data, seen.start)?.0.mark()),
            _ => {}
        }
        Ok(())
    }
}

/// A map's entries that are still to be written.
enum Writing {
    /// They stand one behind the other.
    InPlace { remaining: u64, is_map: bool },
    /// They are picked out.
    Picked(Picked),
}

/// The second pass.
fn write(data: &[u8], rewrites: &mut Rewrites, size: usize) -> Result<Vec<u8>, Error> {
    let mut rewrites = rewrites.finish();
    let mut writer = Writer::append_to(Vec::with_capacity(size));
    let mut stack: Vec<Writing> = Vec::new();
    let mut at = 0;
    loop {
        let start = at;
        let (token, end) = token(data, start)?;
        at = end;
        match token {
            Token::Map(count) => {
                writer.item(Item::Map(count as usize));
                stack.push(match rewrites.find(start, count as usize) {
                    Some(picked) => Writing::Picked(picked),
                    None => Writing::InPlace { remaining: count, is_map: true },
                });
            }
            Token::List(count) => {
                writer.item(Item::List(count as usize));
                stack.push(Writing::InPlace { remaining: count, is_map: false });
            }
            Token::Null => writer.item(Item::Null),
            Token::Bool(value) => writer.item(Item::Bool(value)),
            Token::Integer(value) => writer.item(Item::Integer(value)),
            Token::Float(value) => writer.item(Item::Float(value)),
            Token::Text(text) => text.write(&mut writer),
            Token::Bytes(value) => writer.item(Item::Bytes(value)),
            Token::Link(cid) => writer.link(cid.parts()),
        }
        loop {
            let is_entry = match stack.last_mut() {
                None => {
                    debug_assert_eq!(writer.len(), size, "the first pass counted otherwise");
                    return Ok(writer.finish());
                }
                Some(Writing::InPlace { remaining: 0, .. }) => {
                    stack.pop();
                    continue;
                }
                Some(Writing::InPlace { remaining, is_map }) => {
                    *remaining -= 1;
                    *is_map
                }
                Some(Writing::Picked(picked)) => match rewrites.advance(picked, at) {
                    Ok(key) => {
                        at = key;
                        true
                    }
                    Err(end) => {
                        at = end;
                        stack.pop();
                        continue;
                    }
                },
            };
            if is_entry && let (Token::Text(key), end) = self::token(data, at)? {
                key.write(&mut writer);
                at = end;
            }
            break;
        }
    }
}
