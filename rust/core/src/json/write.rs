//! From canonical dag-cbor to the dag-json that is signed, whole or in pieces.

use data_encoding::{BASE32_NOPAD, BASE64_NOPAD};

use crate::cbor::events::events;
use crate::cbor::order::{self, Order, Sorter, reserve};
use crate::cbor::{Item, read_head};
use crate::cid;
use crate::error::Error;

/// Bytes of a string, or of bytes, that are written at once.
const CHUNK: usize = 3 << 12;
/// Bytes that are written at once to what does not hold the whole.
const PART: usize = 1 << 16;

/// What text is written to. It can be nineteen times as long as the dag-cbor, so that not everything can hold it.
pub trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Takes the dag-json of one canonical item.
    ///
    /// # Errors
    /// As [`write`].
    fn put_json(&mut self, canonical: &[u8]) -> Result<(), Error> {
        let (mut text, mut part) = (Text::new(canonical)?, Vec::new());
        while !text.write(canonical, &mut part, PART)? {
            self.put(&part);
            part.clear();
        }
        self.put(&part);
        Ok(())
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn put_json(&mut self, canonical: &[u8]) -> Result<(), Error> {
        Text::new(canonical)?.write(canonical, self, usize::MAX).map(drop)
    }
}

/// Appends the dag-json of one canonical item to `out`.
///
/// # Errors
/// [`Error::Decode`] for bytes that are not canonical, [`Error::Encode`] for a link that has no text form.
pub fn write(canonical: &[u8], out: &mut impl Sink) -> Result<(), Error> {
    out.put_json(canonical)
}

/// The dag-json of one canonical item, written in pieces.
///
/// It keeps places in the item's bytes, which each call is given again, and none of what it wrote.
#[derive(Debug)]
pub struct Text {
    index: Index,
    at: usize,
    /// Whether an item is to be written now, from `at`.
    due: bool,
    stack: Vec<Open>,
}

/// What is open around the place that is being written.
#[derive(Debug)]
enum Open {
    List {
        is_first: bool,
        remaining: usize,
    },
    /// A map whose entries stand in JavaScript's order.
    Map {
        is_first: bool,
        remaining: usize,
    },
    /// Another one, by its number in the index.
    Sorted {
        map: usize,
        done: usize,
    },
    /// The rest of a long string.
    Text {
        at: usize,
        end: usize,
        is_key: bool,
    },
    /// The rest of long bytes.
    Bytes {
        at: usize,
        end: usize,
    },
}

impl Text {
    /// Looks through the item's bytes; nothing is written yet.
    ///
    /// # Errors
    /// [`Error::Decode`] for bytes that are not canonical, [`Error::Encode`] for a link that has no text form. `write` finds
    /// nothing else.
    pub fn new(canonical: &[u8]) -> Result<Self, Error> {
        Ok(Self { index: Index::new(canonical)?, at: 0, due: true, stack: Vec::new() })
    }

    /// Bytes that this keeps in memory, about.
    pub fn held(&self) -> usize {
        let Index { keys, maps } = &self.index;
        keys.capacity() * size_of::<u32>() + maps.capacity() * size_of::<Sorted>()
    }

    /// Appends to `out` what comes next, until `out` has `limit` bytes, or somewhat more: 128 KiB at most, but for a link.
    /// Returns whether that was the end.
    ///
    /// # Errors
    /// [`Error::Decode`] for other bytes than those that `new` was given.
    pub fn write(&mut self, canonical: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<bool, Error> {
        while out.len() < limit {
            if self.due {
                self.due = false;
                self.item(canonical, out)?;
                continue;
            }
            match self.stack.last_mut() {
                None => return Ok(true),
                Some(Open::List { remaining: 0, .. }) => {
                    out.push(b']');
                    self.stack.pop();
                }
                Some(Open::List { is_first, remaining }) => {
                    separate(is_first, out);
                    *remaining -= 1;
                    self.due = true;
                }
                Some(Open::Map { remaining: 0, .. }) => {
                    out.push(b'}');
                    self.stack.pop();
                }
                Some(Open::Map { is_first, remaining }) => {
                    separate(is_first, out);
                    *remaining -= 1;
                    let at = self.at;
                    self.key(canonical, at, out)?;
                }
                Some(Open::Sorted { map, done }) => {
                    let sorted = &self.index.maps[*map];
                    let (first, last) = (sorted.first as usize, sorted.last as usize);
                    if let Some(&at) = self.index.keys[first..last].get(*done) {
                        separate(&mut (*done == 0), out);
                        *done += 1;
                        self.key(canonical, at as usize, out)?;
                    } else {
                        out.push(b'}');
                        self.at = sorted.end as usize;
                        self.stack.pop();
                    }
                }
                Some(Open::Text { at, end, is_key }) => {
                    let chunk = slice(canonical, *at, (*end).min(*at + CHUNK))?;
                    escape(chunk, out);
                    *at += chunk.len();
                    if at == end {
                        out.push(b'"');
                        if *is_key {
                            out.push(b':');
                            self.due = true;
                        }
                        self.stack.pop();
                    }
                }
                Some(Open::Bytes { at, end }) => {
                    // A multiple of three bytes has no rest in base64.
                    let chunk = slice(canonical, *at, (*end).min(*at + CHUNK))?;
                    out.extend_from_slice(BASE64_NOPAD.encode(chunk).as_bytes());
                    *at += chunk.len();
                    if at == end {
                        out.extend_from_slice(b"\"}}");
                        self.stack.pop();
                    }
                }
            }
        }
        Ok(!self.due && self.stack.is_empty())
    }

    /// A scalar, or the opening of a list or map.
    fn item(&mut self, canonical: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let start = self.at;
        let mut items = events(canonical);
        items.seek(start);
        let item = items.next_item()?.ok_or_else(|| cut_off(start))?;
        self.at = items.position();
        match item {
            Item::List(remaining) => {
                out.push(b'[');
                self.stack.push(Open::List { is_first: true, remaining });
            }
            Item::Map(remaining) => {
                out.push(b'{');
                self.stack.push(match self.index.find(start) {
                    Some(map) => Open::Sorted { map, done: 0 },
                    None => Open::Map { is_first: true, remaining },
                });
            }
            Item::Text(text) => self.text(text, false, out),
            Item::Bytes(bytes) => {
                out.extend_from_slice(b"{\"/\":{\"bytes\":\"");
                self.stack.push(Open::Bytes { at: self.at - bytes.len(), end: self.at });
            }
            Item::Null => out.extend_from_slice(b"null"),
            Item::Bool(true) => out.extend_from_slice(b"true"),
            Item::Bool(false) => out.extend_from_slice(b"false"),
            Item::Integer(value) => write_integer(value, out),
            Item::Float(value) => write_float(value, out),
            Item::Link(link) => {
                out.extend_from_slice(b"{\"/\":\"");
                write_link(link, out)?;
                out.extend_from_slice(b"\"}");
            }
        }
        Ok(())
    }

    /// The key at `at`; its value is due then.
    fn key(&mut self, canonical: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut items = events(canonical);
        items.seek(at);
        let Item::Text(key) = items.next_item()?.ok_or_else(|| cut_off(at))? else {
            return Err(Error::decode("a map key must be a string", at));
        };
        self.at = items.position();
        self.text(key, true, out);
        Ok(())
    }

    /// A string that ends where this stands.
    fn text(&mut self, text: &str, is_key: bool, out: &mut Vec<u8>) {
        if text.len() > CHUNK {
            out.push(b'"');
            self.stack.push(Open::Text { at: self.at - text.len(), end: self.at, is_key });
            return;
        }
        write_text(text, out);
        if is_key {
            out.push(b':');
            self.due = true;
        }
    }
}

fn separate(is_first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(is_first) {
        out.push(b',');
    }
}

fn cut_off(at: usize) -> Error {
    Error::decode("the input ends where an item should begin", at)
}

fn slice(canonical: &[u8], at: usize, end: usize) -> Result<&[u8], Error> {
    canonical.get(at..end).ok_or_else(|| cut_off(canonical.len()))
}

/// The maps whose order is another in JavaScript, which compares keys by UTF-16 code units; dag-cbor by length and bytes.
///
/// Places are kept in four bytes, and none of the maps that stand in order already: what a stranger sends is not to cost many
/// times its size.
#[derive(Debug, Default)]
struct Index {
    /// Where keys begin, those of each map together.
    keys: Vec<u32>,
    /// By `start`.
    maps: Vec<Sorted>,
}

#[derive(Debug)]
struct Sorted {
    start: u32,
    end: u32,
    /// Its keys in JavaScript's order: a range of `Index::keys`.
    first: u32,
    last: u32,
}

impl Index {
    fn new(canonical: &[u8]) -> Result<Self, Error> {
        struct Reading {
            start: u32,
            remaining: usize,
            /// For a map: how many keys of other maps stand before its own.
            first: Option<usize>,
        }
        order::check_length(canonical, 1)?;
        let mut index = Self::default();
        let mut sorter = Sorter::default();
        let mut items = events(canonical);
        let mut stack: Vec<Reading> = Vec::new();
        // The keys of the maps that are open.
        let mut keys: Vec<u32> = Vec::new();
        loop {
            let start = items.position() as u32;
            match items.next_item()?.ok_or_else(|| cut_off(start as usize))? {
                Item::List(remaining) => stack.push(Reading { start, remaining, first: None }),
                Item::Map(remaining) => stack.push(Reading { start, remaining, first: Some(keys.len()) }),
                Item::Link(link) => cid::check_text(link)?,
                _ => {}
            }
            loop {
                let Some(top) = stack.last_mut() else {
                    index.maps.sort_unstable_by_key(|map| map.start);
                    return Ok(index);
                };
                if top.remaining > 0 {
                    top.remaining -= 1;
                    if top.first.is_some() {
                        let at = items.position();
                        let Some(Item::Text(_)) = items.next_item()? else {
                            return Err(Error::decode("a map key must be a string", at));
                        };
                        reserve(&mut keys, 1);
                        keys.push(at as u32);
                    }
                    break;
                }
                if let Some(Reading { start, first: Some(first), .. }) = stack.pop() {
                    let own = &keys[first..];
                    let key = |number: usize| key_at(canonical, own[number] as usize);
                    if !(1..own.len()).all(|number| Order::Utf16.compare(key(number - 1), key(number)).is_lt()) {
                        let first = index.keys.len() as u32;
                        reserve(&mut index.keys, own.len());
                        index.keys.extend(sorter.sort(Order::Utf16, own.len(), key).map(|number| own[number]));
                        let (end, last) = (items.position() as u32, index.keys.len() as u32);
                        reserve(&mut index.maps, 1);
                        index.maps.push(Sorted { start, end, first, last });
                    }
                    keys.truncate(first);
                }
            }
        }
    }

    /// The number of the map that begins at `start`; none if it stands in order.
    fn find(&self, start: usize) -> Option<usize> {
        self.maps.binary_search_by_key(&start, |map| map.start as usize).ok()
    }
}

/// The bytes of the key at `at`, which was read before.
fn key_at(canonical: &[u8], at: usize) -> &[u8] {
    let Ok(head) = read_head(canonical, at) else { return &[] };
    let end = usize::try_from(head.argument).ok().and_then(|length| head.end.checked_add(length));
    end.and_then(|end| canonical.get(head.end..end)).unwrap_or_default()
}

/// As [`cid::format`], without memory of its own where the link is not of version 0.
fn write_link(link: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    if cid::is_version_0(link) {
        out.extend_from_slice(cid::format(link)?.as_bytes());
        return Ok(());
    }
    out.push(b'b');
    let start = out.len();
    out.resize(start + BASE32_NOPAD.encode_len(link.len()), 0);
    BASE32_NOPAD.encode_mut(link, &mut out[start..]);
    out[start..].make_ascii_lowercase();
    Ok(())
}

fn write_integer(value: i128, out: &mut Vec<u8>) {
    // As long as -2^64.
    let mut digits = [0; 21];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_float(value: f64, out: &mut Vec<u8>) {
    let mut buffer = ryu_js::Buffer::new();
    let text = buffer.format_finite(value);
    out.extend_from_slice(text.as_bytes());
    if !text.contains(['.', 'e']) {
        out.extend_from_slice(b".0");
    }
}

/// A string, escaped as `JSON.stringify` does.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape(text.as_bytes(), out);
    out.push(b'"');
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..0x20 => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cbor::Writer;

    #[test]
    fn pieces_make_the_whole_and_are_bounded() {
        let (long, control) = ("x".repeat(100_000), "\u{1}".repeat(40_000));
        let mut writer = Writer::new();
        writer.item(Item::List(4));
        writer.item(Item::Text(&control));
        writer.item(Item::Bytes(&[7; 50_000]));
        writer.item(Item::Map(3));
        for key in ["b", "aa", &long] {
            writer.item(Item::Text(key));
            writer.item(Item::List(0));
        }
        writer.item(Item::Integer(-(1 << 64)));
        let canonical = writer.finish();
        let mut whole = Vec::new();
        write(&canonical, &mut whole).unwrap();
        assert!(whole.ends_with(format!("{{\"aa\":[],\"b\":[],\"{long}\":[]}},-18446744073709551616]").as_bytes()));
        for limit in [1, 1000, 1 << 16] {
            let (mut text, mut pieces) = (Text::new(&canonical).unwrap(), Vec::new());
            loop {
                let mut piece = Vec::new();
                let ended = text.write(&canonical, &mut piece, limit).unwrap();
                assert!(piece.len() < limit + 8 * CHUNK);
                pieces.extend_from_slice(&piece);
                if ended {
                    break;
                }
            }
            assert!(pieces == whole);
        }
    }

    #[test]
    fn an_index_takes_a_few_times_the_bytes_that_it_is_over() {
        let maps = 100_000;
        let mut writer = Writer::new();
        writer.item(Item::List(maps));
        for _ in 0..maps {
            writer.item(Item::Map(2));
            for key in ["b", "aa"] {
                writer.item(Item::Text(key));
                writer.item(Item::Null);
            }
        }
        let canonical = writer.finish();
        let text = Text::new(&canonical).unwrap();
        assert_eq!(text.index.maps.len(), maps);
        assert!(text.held() < 6 * canonical.len());
    }
}
