//! Messages as the HTTP API exchanges them: the map `{id, signature, message}` (wire format, "HTTP API"), written and read
//! without a tree of values in between.

use std::borrow::Cow;
use std::fmt::Display;

use data_encoding::BASE64_NOPAD;

use crate::cbor::events::{Events, events};
use crate::cbor::{Item, Writer, normalize, scan};
use crate::error::Error;
use crate::id::{self, Key};
use crate::json::{self, write_text};
use crate::message::{Codec, Parsed};

/// The dag-json of a stored message, written in pieces.
pub struct MessageText {
    parsed: Parsed,
    payload: json::Text,
    part: Part,
}

enum Part {
    Head,
    /// The parents from this one on.
    Parents(usize),
    Payload,
    Tail,
    End,
}

impl MessageText {
    /// Looks through a stored value; nothing is written yet.
    ///
    /// # Errors
    /// [`Error::Encode`] for a message that has no dag-json form, or one that cannot be read. `write` finds nothing else.
    pub fn new(value: &[u8], parsed: Parsed) -> Result<Self, Error> {
        let payload = parsed.payload(value);
        let refuse = |reason: &dyn Display| {
            Error::Encode(format!("message {} has no dag-json form: {reason}", id::encode(&parsed.key)))
        };
        if json::is_unreadable(payload) {
            return Err(refuse(&r#"a map {"/": {"bytes": ...}} in it holds no base64, and cannot be read"#));
        }
        let payload = json::Text::new(payload).map_err(|error| refuse(&error))?;
        Ok(Self { parsed, payload, part: Part::Head })
    }

    /// The message's key.
    pub fn key(&self) -> &Key {
        &self.parsed.key
    }

    /// Bytes that this keeps in memory, about, beside the stored value.
    pub fn held(&self) -> usize {
        self.parsed.held() + self.payload.held()
    }

    /// Appends to `out` what comes next, as [`json::Text::write`] does. Returns whether that was the end.
    ///
    /// # Errors
    /// [`Error::Decode`] for another value than the one that `new` was given.
    pub fn write(&mut self, value: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<bool, Error> {
        let Self { parsed, payload, part } = self;
        while out.len() < limit {
            match part {
                Part::Head => {
                    out.push(b'{');
                    if !parsed.is_canonical() {
                        out.extend_from_slice(b"\"content_id\":\"");
                        out.extend_from_slice(&id::encode_ascii(&parsed.content_key(value)));
                        out.extend_from_slice(b"\",");
                    }
                    out.extend_from_slice(b"\"id\":\"");
                    out.extend_from_slice(&id::encode_ascii(&parsed.key));
                    out.extend_from_slice(b"\",\"message\":{\"clock\":");
                    out.extend_from_slice(parsed.clock.to_string().as_bytes());
                    out.extend_from_slice(b",\"parents\":[");
                    *part = Part::Parents(0);
                }
                Part::Parents(done) => {
                    let before = *done;
                    for key in parsed.parents(value).skip(before) {
                        if out.len() >= limit {
                            break;
                        }
                        out.extend_from_slice(if *done > 0 { b",\"" } else { b"\"" });
                        out.extend_from_slice(&id::encode_ascii(&key));
                        out.push(b'"');
                        *done += 1;
                    }
                    if *done == parsed.parents(value).len() {
                        out.extend_from_slice(b"],\"payload\":");
                        *part = Part::Payload;
                    }
                }
                Part::Payload => {
                    if payload.write(parsed.payload(value), out, limit)? {
                        *part = Part::Tail;
                    }
                }
                Part::Tail => {
                    out.extend_from_slice(b",\"topic\":");
                    write_text(parsed.topic(value), out);
                    out.extend_from_slice(b"},\"signature\":{\"codec\":");
                    write_text(parsed.codec.name(), out);
                    out.extend_from_slice(b",\"publicKey\":");
                    write_text(&parsed.did(value), out);
                    out.extend_from_slice(b",\"signature\":{\"/\":{\"bytes\":\"");
                    out.extend_from_slice(BASE64_NOPAD.encode(parsed.signature(value)).as_bytes());
                    out.extend_from_slice(b"\"}}}}");
                    *part = Part::End;
                }
                Part::End => return Ok(true),
            }
        }
        Ok(matches!(part, Part::End))
    }
}

/// The canonical stored value of a message that somebody sent as a map, in dag-json or dag-cbor; its signature is not verified,
/// and rules of messages are not looked at. What else the maps hold is passed over.
///
/// # Errors
/// [`Error::Decode`] for anything else.
pub fn read_map(data: &[u8], codec: Codec) -> Result<Vec<u8>, Error> {
    let canonical = match codec {
        Codec::Json => Cow::Owned(json::read(data)?),
        Codec::Cbor if scan(data, 0, 0) == Some(data.len()) => Cow::Borrowed(data),
        Codec::Cbor => Cow::Owned(normalize(data)?),
    };
    from_map(&canonical)
}

/// The stored value of the message in a line of an export: what the line has under `value`, or else as [`read_map`] makes it.
///
/// # Errors
///
/// [`Error::Decode`]: text that is no such map.
pub fn read_line(text: &[u8]) -> Result<Vec<u8>, Error> {
    let canonical = json::read(text)?;
    let [value] = fields(&canonical, 0, "the body", ["value"])?;
    let Some(place) = value else { return from_map(&canonical) };
    match next(&mut at(&canonical, place))? {
        Item::Bytes(value) => Ok(value.to_vec()),
        other => Err(mismatch("'value'", "bytes", other)),
    }
}

fn from_map(canonical: &[u8]) -> Result<Vec<u8>, Error> {
    let [signature, message] = fields(canonical, 0, "the body", ["signature", "message"])?;
    let (signature, message) = (present(signature, "signature")?, present(message, "message")?);
    let [codec, did, bytes] = fields(canonical, signature, "'signature'", ["codec", "publicKey", "signature"])?;
    let [topic, clock, parents, payload] =
        fields(canonical, message, "'message'", ["topic", "clock", "parents", "payload"])?;
    let payload = present(payload, "payload")?;
    let mut keys = Vec::new();
    {
        let mut items = at(canonical, present(parents, "parents")?);
        let count = match next(&mut items)? {
            Item::List(count) => count,
            other => return Err(mismatch("'parents'", "a list", other)),
        };
        for _ in 0..count {
            match next(&mut items)? {
                Item::Text(text) => keys.push(id::decode(text)?),
                other => return Err(mismatch("a parent", "a string", other)),
            }
        }
    }
    let scalar = |place: Option<usize>, name: &str, kind: &str, is_kind: fn(Item<'_>) -> bool| {
        let item = next(&mut at(canonical, present(place, name)?))?;
        if is_kind(item) { Ok(item) } else { Err(mismatch(&format!("'{name}'"), kind, item)) }
    };
    let is_text = |item: Item<'_>| matches!(item, Item::Text(_));
    let mut writer = Writer::new();
    writer.item(Item::List(5));
    writer.item(Item::List(3));
    writer.item(scalar(codec, "codec", "a string", is_text)?);
    writer.item(scalar(did, "publicKey", "a string", is_text)?);
    writer.item(scalar(bytes, "signature", "bytes", |item| matches!(item, Item::Bytes(_)))?);
    writer.item(scalar(topic, "topic", "a string", is_text)?);
    writer.item(scalar(clock, "clock", "an integer", |item| matches!(item, Item::Integer(_)))?);
    writer.item(Item::List(keys.len()));
    keys.iter().for_each(|key| writer.item(Item::Bytes(key)));
    let mut end = at(canonical, payload);
    skip(&mut end)?;
    writer.raw(&canonical[payload..end.position()]);
    Ok(writer.finish())
}

fn at(canonical: &[u8], place: usize) -> Events<'_> {
    let mut items = events(canonical);
    items.seek(place);
    items
}

/// Where the values of these keys stand in the map at `place`.
fn fields<const N: usize>(
    canonical: &[u8],
    place: usize,
    what: &str,
    names: [&str; N],
) -> Result<[Option<usize>; N], Error> {
    let mut items = at(canonical, place);
    let count = match next(&mut items)? {
        Item::Map(count) => count,
        other => return Err(mismatch(what, "a map", other)),
    };
    let mut found = [None; N];
    for _ in 0..count {
        if let Item::Text(key) = next(&mut items)?
            && let Some(number) = names.iter().position(|name| *name == key)
        {
            found[number] = Some(items.position());
        }
        skip(&mut items)?;
    }
    Ok(found)
}

fn next<'a>(items: &mut Events<'a>) -> Result<Item<'a>, Error> {
    let place = items.position();
    items.next_item()?.ok_or_else(|| Error::decode("the input ends where an item should begin", place))
}

/// Passes over one item with all that it holds.
fn skip(items: &mut Events<'_>) -> Result<(), Error> {
    let mut due = 1_usize;
    while due > 0 {
        due -= 1;
        due = due.saturating_add(match next(items)? {
            Item::List(count) => count,
            Item::Map(count) => count.saturating_mul(2),
            _ => 0,
        });
    }
    Ok(())
}

fn present(place: Option<usize>, name: &str) -> Result<usize, Error> {
    place.ok_or_else(|| refuse(format!("'{name}' is missing")))
}

/// Types go by their names in Python.
fn mismatch(what: &str, kind: &str, item: Item<'_>) -> Error {
    let found = match item {
        Item::Null => "NoneType",
        Item::Bool(_) => "bool",
        Item::Integer(_) => "int",
        Item::Float(_) => "float",
        Item::Text(_) => "str",
        Item::Bytes(_) => "bytes",
        Item::Link(_) => "CID",
        Item::List(_) => "list",
        Item::Map(_) => "dict",
    };
    refuse(format!("{what} must be {kind}, not {found}"))
}

fn refuse(reason: String) -> Error {
    Error::Decode { reason, offset: None }
}
