//! From canonical dag-cbor to the dag-json that is signed.

use std::collections::HashMap;

use data_encoding::BASE64_NOPAD;

use crate::cbor::Item;
use crate::cbor::events::{Events, events};
use crate::cid;
use crate::error::Error;

/// A map's entries in JavaScript's order: each key with the place of its value; then where the map ends.
struct Sorted<'a> {
    entries: Vec<(&'a str, usize)>,
    end: usize,
}

/// Appends the dag-json of one canonical item to `out`.
///
/// # Errors
/// [`Error::Decode`] for bytes that are not canonical, [`Error::Encode`] for a link that has no text form.
pub fn write(canonical: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let maps = sort_maps(canonical)?;
    let mut items = events(canonical);
    let mut stack: Vec<Open<'_, '_>> = Vec::new();
    loop {
        let start = items.position();
        let item = next(&mut items)?;
        match item {
            Item::List(count) => {
                out.push(b'[');
                stack.push(Open::List { count, remaining: count });
            }
            Item::Map(count) => {
                out.push(b'{');
                stack.push(match maps.get(&start) {
                    Some(sorted) => Open::Sorted { sorted, done: 0 },
                    None => Open::Map { count, remaining: count },
                });
            }
            scalar => write_scalar(scalar, out)?,
        }
        loop {
            match stack.last_mut() {
                None => return Ok(()),
                Some(Open::List { remaining: 0, .. }) => {
                    out.push(b']');
                    stack.pop();
                }
                Some(Open::List { count, remaining }) => {
                    if remaining < count {
                        out.push(b',');
                    }
                    *remaining -= 1;
                    break;
                }
                Some(Open::Map { remaining: 0, .. }) => {
                    out.push(b'}');
                    stack.pop();
                }
                Some(Open::Map { count, remaining }) => {
                    if remaining < count {
                        out.push(b',');
                    }
                    *remaining -= 1;
                    let at = items.position();
                    let Item::Text(key) = next(&mut items)? else {
                        return Err(Error::decode("a map key must be a string", at));
                    };
                    write_text(key, out);
                    out.push(b':');
                    break;
                }
                Some(Open::Sorted { sorted, done }) => {
                    let Some((key, value)) = sorted.entries.get(*done) else {
                        out.push(b'}');
                        items.seek(sorted.end);
                        stack.pop();
                        continue;
                    };
                    if *done > 0 {
                        out.push(b',');
                    }
                    *done += 1;
                    write_text(key, out);
                    out.push(b':');
                    items.seek(*value);
                    break;
                }
            }
        }
    }
}

/// What is open around the place that is being written.
enum Open<'m, 'a> {
    List {
        count: usize,
        remaining: usize,
    },
    /// A map whose entries stand in JavaScript's order.
    Map {
        count: usize,
        remaining: usize,
    },
    /// Another one.
    Sorted {
        sorted: &'m Sorted<'a>,
        done: usize,
    },
}

fn next<'a>(items: &mut Events<'a>) -> Result<Item<'a>, Error> {
    let position = items.position();
    items.next_item()?.ok_or_else(|| Error::decode("the input ends where an item should begin", position))
}

/// The entries of every map whose order is another in JavaScript, by the place where the map begins.
///
/// JavaScript compares keys by UTF-16 code units, dag-cbor by length and bytes.
fn sort_maps(canonical: &[u8]) -> Result<HashMap<usize, Sorted<'_>>, Error> {
    struct Reading<'a> {
        start: usize,
        remaining: usize,
        entries: Option<Vec<(&'a str, usize)>>,
    }
    let mut maps = HashMap::new();
    let mut items = events(canonical);
    let mut stack: Vec<Reading<'_>> = Vec::new();
    loop {
        let start = items.position();
        match next(&mut items)? {
            Item::List(remaining) => stack.push(Reading { start, remaining, entries: None }),
            Item::Map(remaining) => stack.push(Reading { start, remaining, entries: Some(Vec::new()) }),
            _ => {}
        }
        loop {
            let Some(top) = stack.last_mut() else {
                return Ok(maps);
            };
            if top.remaining > 0 {
                top.remaining -= 1;
                if let Some(entries) = &mut top.entries {
                    let at = items.position();
                    let Item::Text(key) = next(&mut items)? else {
                        return Err(Error::decode("a map key must be a string", at));
                    };
                    entries.push((key, items.position()));
                }
                break;
            }
            if let Some(Reading { start, entries: Some(mut entries), .. }) = stack.pop() {
                let order = |left: &str, right: &str| left.encode_utf16().cmp(right.encode_utf16());
                if !entries.is_sorted_by(|(left, _), (right, _)| order(left, right).is_lt()) {
                    entries.sort_unstable_by(|(left, _), (right, _)| order(left, right));
                    maps.insert(start, Sorted { entries, end: items.position() });
                }
            }
        }
    }
}

fn write_scalar(item: Item<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    match item {
        Item::Null => out.extend_from_slice(b"null"),
        Item::Bool(true) => out.extend_from_slice(b"true"),
        Item::Bool(false) => out.extend_from_slice(b"false"),
        Item::Integer(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Item::Float(value) => {
            let mut buffer = ryu_js::Buffer::new();
            let text = buffer.format_finite(value);
            out.extend_from_slice(text.as_bytes());
            if !text.contains(['.', 'e']) {
                out.extend_from_slice(b".0");
            }
        }
        Item::Text(text) => write_text(text, out),
        Item::Bytes(bytes) => {
            out.extend_from_slice(b"{\"/\":{\"bytes\":\"");
            out.extend_from_slice(BASE64_NOPAD.encode(bytes).as_bytes());
            out.extend_from_slice(b"\"}}");
        }
        Item::Link(link) => {
            out.extend_from_slice(b"{\"/\":\"");
            out.extend_from_slice(cid::format(link)?.as_bytes());
            out.extend_from_slice(b"\"}");
        }
        Item::List(_) | Item::Map(_) => {}
    }
    Ok(())
}

/// A string, escaped as `JSON.stringify` does.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text.as_bytes() {
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
    out.push(b'"');
}
