//! Messages as they are stored and signed (wire format, "Message, signature, stored value").

use std::borrow::Cow;
use std::ops::Range;

use crate::cbor::{Head, Item, Major, Passing, Writer, encode_in_chunks, normalize_stored, read_head, scan};
use crate::error::{Error, shortened};
use crate::id::{self, KEY_LENGTH, Key};
use crate::json::{self, Sink};
use crate::signature::{self, Author, SigningKey};
use crate::{clock, topic};

/// What a message's signature is made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// dag-cbor
    Cbor,
    /// dag-json
    Json,
}

impl Codec {
    /// The name in a signature record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cbor => "dag-cbor",
            Self::Json => "dag-json",
        }
    }

    /// The codec of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Cbor, Self::Json].into_iter().find(|codec| codec.name() == name)
    }
}

/// A stored value whose message keeps every rule, but for its signature, which was not looked at.
pub struct Parsed {
    /// The message's key.
    pub key: Key,
    /// Its clock.
    pub clock: u64,
    /// The codec of its signature.
    pub codec: Codec,
    /// Who claims to have signed it.
    pub author: Author,
    shape: Shape,
    /// The value's canonical bytes, where it has others.
    normalized: Option<Box<[u8]>>,
    /// The maps in the payload that pass for bytes, where they stand in it.
    passing: Box<[Passing]>,
}

/// What is wrong with a message, and its id as far as it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// What was wrong.
    pub reason: String,
    /// The message's key.
    pub key: Option<Key>,
}

/// A CBOR head for a parent key: bytes, 20 of them.
const PARENT_HEAD: u8 = 0x54;
const PARENT_WIDTH: usize = KEY_LENGTH + 1;

/// Reads the fixed structure around a message's payload.
struct Walker<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Walker<'a> {
    fn head(&mut self, major: Major, what: &str, kind: &str) -> Result<Head, Error> {
        let head = read_head(self.data, self.at)?;
        if head.major != major {
            return Err(Error::Invalid(format!("{what} must be {kind} (at byte {})", self.at)));
        }
        self.at = head.end;
        Ok(head)
    }

    fn list(&mut self, length: u64, what: &str) -> Result<(), Error> {
        let head = self.head(Major::List, what, "a list")?;
        if head.argument != length {
            return Err(Error::Invalid(format!("{what} must have {length} elements, it has {}", head.argument)));
        }
        Ok(())
    }

    fn take(&mut self, major: Major, what: &str, kind: &str) -> Result<Range<usize>, Error> {
        let head = self.head(major, what, kind)?;
        let end = usize::try_from(head.argument).ok().and_then(|length| head.end.checked_add(length));
        let end = end.filter(|end| *end <= self.data.len());
        self.at = end.ok_or_else(|| Error::decode("the input ends within an item", self.data.len()))?;
        Ok(head.end..self.at)
    }
}

/// Checks everything about a stored value but its signature: that it decodes, its structure, topic, parents and clock.
///
/// # Errors
/// [`Invalid`] with the first thing that is wrong, the cheap checks first; with a key once there is a clock to make it of.
pub fn parse(value: &[u8], topic: &str) -> Result<Parsed, Invalid> {
    let refuse = |error: Error| Invalid { reason: error.to_string(), key: None };
    let (mut normalized, mut passing) = (None, Vec::new());
    if scan(value, 0, 0) != Some(value.len()) {
        let made = normalize_stored(value).map_err(refuse)?;
        if let Some(error) = made.unstorable {
            return Err(refuse(error));
        }
        (normalized, passing) = (Some(made.bytes.into_boxed_slice()), made.passing);
    }
    let data = normalized.as_deref().unwrap_or(value);
    let shape = Shape::read(data).map_err(refuse)?;
    let passing = shape.passing(passing).map_err(refuse)?;
    let (codec, author) = match shape.check(data, topic) {
        Ok(checked) => checked,
        Err(error) => return Err(Invalid { reason: error.to_string(), key: shape.key(value) }),
    };
    let key = id::key(shape.clock, value).map_err(refuse)?;
    let mut parsed = Parsed { key, clock: shape.clock, codec, author, shape, normalized, passing };
    if codec == Codec::Json {
        parsed.resolve_lookalikes(value);
    }
    Ok(parsed)
}

/// Whether a stored value is the one with this key. Of the value, nothing is checked but its hash and its clock; the latter
/// not where it cannot be read, as in what an earlier version accepted.
pub fn has_key(value: &[u8], key: &[u8]) -> bool {
    let read = |data: &[u8]| Shape::read(data).ok().map(|shape| shape.clock);
    let stored = read(value).or_else(|| read(&normalize_stored(value).ok()?.bytes));
    let clock = stored.or_else(|| clock::decode(key).ok().map(|(clock, _)| clock));
    clock.and_then(|clock| id::key(clock, value).ok()).is_some_and(|found| found == key)
}

/// Where the parts of a message stand in canonical bytes.
struct Shape {
    codec: Range<usize>,
    did: Range<usize>,
    signature: Range<usize>,
    topic: Range<usize>,
    clock: u64,
    clock_item: Range<usize>,
    parents: Range<usize>,
    parent_count: usize,
    payload: Range<usize>,
}

impl Shape {
    /// Reads the types of a message's parts.
    fn read(data: &[u8]) -> Result<Self, Error> {
        let mut walker = Walker { data, at: 0 };
        walker.list(5, "a message")?;
        walker.list(3, "a message's signature record")?;
        let codec = walker.take(Major::Text, "the signature's codec", "a string")?;
        let did = walker.take(Major::Text, "the public key", "a string")?;
        let signature = walker.take(Major::Bytes, "the signature", "bytes")?;
        let topic = walker.take(Major::Text, "the topic", "a string")?;
        let clock_start = walker.at;
        let clock = walker.head(Major::Unsigned, "the clock", "an integer from 1")?.argument;
        let clock_item = clock_start..walker.at;
        let parent_count = walker.head(Major::List, "the parents", "a list")?.argument as usize;
        let width = parent_count.checked_mul(PARENT_WIDTH);
        let end = width.and_then(|width| walker.at.checked_add(width)).unwrap_or(usize::MAX);
        let parents = walker.at..end;
        let keys = data.get(parents.clone()).map(|keys| keys.chunks_exact(PARENT_WIDTH));
        if !keys.is_some_and(|mut keys| keys.all(|entry| entry[0] == PARENT_HEAD)) {
            return Err(Error::Invalid(format!("the parents must be keys of {KEY_LENGTH} bytes")));
        }
        let payload = parents.end..data.len();
        Ok(Self { codec, did, signature, topic, clock, clock_item, parents, parent_count, payload })
    }

    /// The maps in the payload that pass for bytes, where they stand in it; elsewhere only a parent may be one.
    fn passing(&self, passing: Vec<Passing>) -> Result<Box<[Passing]>, Error> {
        let start = self.payload.start;
        if passing.iter().any(|map| map.at < start && !(map.is_key && self.parents.contains(&map.at))) {
            return Err(Error::Invalid("a map passes for bytes where bytes are needed".into()));
        }
        let inside = passing.into_iter().filter(|map| map.at >= start);
        Ok(inside.map(|map| Passing { at: map.at - start, ..map }).collect())
    }

    /// The key that the message would have; none for a clock that no message has.
    fn key(&self, value: &[u8]) -> Option<Key> {
        if self.clock == 0 { None } else { id::key(self.clock, value).ok() }
    }

    fn parents<'a>(&self, data: &'a [u8]) -> impl ExactSizeIterator<Item = Key> + use<'a> {
        data[self.parents.clone()].chunks_exact(PARENT_WIDTH).map(|entry| {
            let mut key = [0; KEY_LENGTH];
            key.copy_from_slice(&entry[1..]);
            key
        })
    }

    /// Holds what the parts say against the rules.
    fn check(&self, data: &[u8], topic: &str) -> Result<(Codec, Author), Error> {
        let refuse = |reason: String| Err(Error::Invalid(reason));
        let found = text(data, &self.topic);
        if found != topic {
            return refuse(format!("the topic is {}, expected {topic:?}", shortened(found)));
        }
        let mut largest = 0;
        for parent in self.parents(data) {
            let (clock, _) = clock::decode_lenient(&parent)
                .map_err(|error| Error::Invalid(format!("a parent has no clock: {error}")))?;
            largest = largest.max(clock);
        }
        if self.clock != largest + 1 {
            let (clock, expected) = (self.clock, largest + 1);
            return refuse(format!("the clock is {clock}, expected {expected}: 1 + the largest of the parents'"));
        }
        let name = text(data, &self.codec);
        let Some(codec) = Codec::from_name(name) else {
            let name = shortened(name);
            return refuse(format!("the signature's codec is {name}, expected dag-cbor or dag-json"));
        };
        let author = signature::decode_did(text(data, &self.did))?;
        let (scheme, expected) = (author.scheme.name(), author.scheme.signature_length());
        if self.signature.len() != expected {
            return refuse(format!("an {scheme} signature has {expected} bytes, this has {}", self.signature.len()));
        }
        Ok((codec, author))
    }
}

/// What was scanned or normalised is UTF-8.
fn text<'a>(data: &'a [u8], range: &Range<usize>) -> &'a str {
    std::str::from_utf8(&data[range.clone()]).unwrap_or("")
}

impl Parsed {
    /// A message that this key pair has just signed: every rule holds, and only its parts are found.
    ///
    /// # Errors
    /// None, for what [`sign`] returned.
    pub fn signed(key: Key, clock: u64, codec: Codec, value: &[u8], signing_key: &SigningKey) -> Result<Self, Error> {
        let (author, shape) = (signing_key.author().clone(), Shape::read(value)?);
        Ok(Self { key, clock, codec, author, shape, normalized: None, passing: Box::default() })
    }

    /// Takes the values of the payload for what their text is read as: the signature does not distinguish them.
    fn resolve_lookalikes(&mut self, value: &[u8]) {
        if let Some(payload) = json::resolve(self.payload(value)) {
            let mut data = self.data(value)[..self.shape.payload.start].to_vec();
            data.extend_from_slice(&payload);
            self.shape.payload.end = data.len();
            self.normalized = Some(data.into_boxed_slice());
        }
    }

    /// Whether the value is the one encoding of its message that honest peers write. A relay can make alternative ones, under other
    /// ids: by encoding otherwise, by a longer form of the author's URI, which is not signed, or, of a message that was signed as
    /// dag-json, with maps that have the text of links or bytes in place of these.
    pub fn is_canonical(&self) -> bool {
        self.normalized.is_none() && self.author.is_shortest
    }

    /// The key of the canonical encoding: one for all encodings of what was signed, and that of the message where it is canonical.
    pub fn content_key(&self, value: &[u8]) -> Key {
        let data = self.data(value);
        let content = if self.author.is_shortest {
            if self.normalized.is_none() {
                return self.key;
            }
            id::key(self.clock, data)
        } else {
            // What is around the author's URI stays; its head may be shorter.
            let mut writer = Writer::append_to(data[..self.shape.codec.end].to_vec());
            writer.item(Item::Text(&self.author.did()));
            writer.raw(&data[self.shape.did.end..]);
            id::key(self.clock, &writer.finish())
        };
        // Its clock was encoded before.
        content.unwrap_or(self.key)
    }

    /// Bytes that are kept in memory for it beside the stored value, about.
    pub fn held(&self) -> usize {
        self.normalized.as_ref().map_or(0, |normalized| normalized.len())
    }

    fn data<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        self.normalized.as_deref().unwrap_or(value)
    }

    /// The author's did:key in its shortest form.
    pub fn did<'a>(&'a self, value: &'a [u8]) -> Cow<'a, str> {
        if self.author.is_shortest {
            Cow::Borrowed(text(self.data(value), &self.shape.did))
        } else {
            Cow::Owned(self.author.did())
        }
    }

    /// The topic.
    pub fn topic<'a>(&'a self, value: &'a [u8]) -> &'a str {
        text(self.data(value), &self.shape.topic)
    }

    /// The signature's bytes.
    pub fn signature<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        &self.data(value)[self.shape.signature.clone()]
    }

    /// The payload in canonical dag-cbor.
    pub fn payload<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        &self.data(value)[self.shape.payload.clone()]
    }

    /// The parents' keys, in the order in which they stand.
    pub fn parents<'a>(&'a self, value: &'a [u8]) -> impl ExactSizeIterator<Item = Key> + use<'a> {
        self.shape.parents(self.data(value))
    }

    /// Appends what the signature must hold over.
    ///
    /// # Errors
    /// [`Error`] where the message has no form in its codec.
    pub fn signed_bytes(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.write_signed(value, out)
    }

    /// Whether the signature holds; what it is over is written in parts, and need not fit into memory.
    ///
    /// # Errors
    /// [`Error`] where the message has no form in its codec.
    pub fn verify_parts(&self, value: &[u8]) -> Result<bool, Error> {
        let mut write = |pass: &mut dyn FnMut(&[u8])| {
            let mut parts = Buffered { buffer: Vec::with_capacity(PART), pass };
            self.write_signed(value, &mut parts)?;
            (parts.pass)(&parts.buffer);
            Ok(())
        };
        self.author.scheme.verify_parts(&self.author.key, self.signature(value), &mut write)
    }

    fn write_signed(&self, value: &[u8], out: &mut impl Sink) -> Result<(), Error> {
        let clock = &self.data(value)[self.shape.clock_item.clone()];
        let parts = Parts { clock, topic: Item::Text(self.topic(value)), payload: self.payload(value) };
        if !self.passing.is_empty() && self.codec == Codec::Cbor {
            let mut signed = Vec::new();
            write_signed(self.codec, &parts, self.shape.parent_count, self.parents(value), &mut signed)?;
            let start = signed.len() - parts.payload.len();
            let moved = self.passing.iter().cloned().map(|map| Passing { at: map.at + start, ..map });
            // Otherwise the signature would hold over other bytes than the message is read from: anybody could make a message of
            // their own of somebody's signature.
            if encode_in_chunks(&signed, &moved.collect::<Vec<_>>())? != signed {
                let reason = "a map in the payload passes for bytes, and what canvas-js signs of it is another message";
                return Err(Error::Invalid(reason.to_owned()));
            }
            out.put(&signed);
            return Ok(());
        }
        write_signed(self.codec, &parts, self.shape.parent_count, self.parents(value), out)
    }
}

/// Bytes that are passed on together.
const PART: usize = 1 << 14;

/// Passes bytes on, not too few at once.
struct Buffered<'a> {
    buffer: Vec<u8>,
    pass: &'a mut dyn FnMut(&[u8]),
}

impl Sink for Buffered<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() > PART - self.buffer.len() {
            (self.pass)(&self.buffer);
            self.buffer.clear();
        }
        if bytes.len() > PART {
            (self.pass)(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }
}

struct Parts<'a> {
    clock: &'a [u8],
    topic: Item<'a>,
    payload: &'a [u8],
}

/// Writes the map `{topic, clock, parents, payload}` from encoded parts; the keys stand in the codec's order.
fn write_signed(
    codec: Codec,
    parts: &Parts<'_>,
    count: usize,
    parents: impl Iterator<Item = Key>,
    out: &mut impl Sink,
) -> Result<(), Error> {
    let encoded = |items: &[Item<'_>]| {
        let mut writer = Writer::new();
        items.iter().for_each(|item| writer.item(*item));
        writer.finish()
    };
    match codec {
        Codec::Cbor => {
            out.put(b"\xa4\x65clock");
            out.put(parts.clock);
            out.put(&encoded(&[Item::Text("topic"), parts.topic, Item::Text("parents"), Item::List(count)]));
            for key in parents {
                // A string of 32 bytes.
                out.put(&[0x78, 32]);
                out.put(&id::encode_ascii(&key));
            }
            out.put(b"\x67payload");
            out.put(parts.payload);
        }
        Codec::Json => {
            out.put(b"{\"clock\":");
            json::write(parts.clock, out)?;
            out.put(b",\"parents\":[");
            for (index, key) in parents.enumerate() {
                out.put(if index == 0 { b"\"" } else { b",\"" });
                out.put(&id::encode_ascii(&key));
                out.put(b"\"");
            }
            out.put(b"],\"payload\":");
            json::write(parts.payload, out)?;
            out.put(b",\"topic\":");
            json::write(&encoded(&[parts.topic]), out)?;
            out.put(b"}");
        }
    }
    Ok(())
}

/// Signs a message with Ed25519: its key and stored value.
///
/// `payload` is canonical dag-cbor; `parents` may come in any order and repeat, and are written in ascending order.
///
/// # Errors
/// [`Error::Encode`] for a topic that no log has, a clock that is not 1 + the largest of the parents' clocks, and a map that dag-json
/// writes as it does something else.
pub fn sign(
    topic: &str,
    clock: u64,
    parents: &[Key],
    payload: &[u8],
    signing_key: &SigningKey,
    codec: Codec,
) -> Result<(Key, Vec<u8>), Error> {
    topic::check(topic)?;
    let mut parents = parents.to_vec();
    parents.sort_unstable();
    parents.dedup();
    let mut largest = 0;
    for parent in &parents {
        let (clock, _) = clock::decode(parent)
            .map_err(|error| Error::Encode(format!("the parent {} has no clock: {error}", id::encode(parent))))?;
        largest = largest.max(clock);
    }
    if clock != largest + 1 {
        let expected = largest + 1;
        return Err(Error::Encode(format!(
            "the clock is {clock}, expected {expected}: 1 + the largest of the parents'"
        )));
    }
    let mut clock_item = Writer::new();
    clock_item.item(Item::Integer(i128::from(clock)));
    let clock_item = clock_item.finish();
    let parts = Parts { clock: &clock_item, topic: Item::Text(topic), payload };
    if codec == Codec::Json && json::resolve(payload).is_some() {
        let reason = "a map {\"/\": ...} in the payload has the text of a link or of bytes in dag-json, or a link the text of \
                      something else; sign it as dag-cbor";
        return Err(Error::Encode(reason.to_owned()));
    }
    let mut bytes = Vec::new();
    write_signed(codec, &parts, parents.len(), parents.iter().copied(), &mut bytes)?;
    let signature = signing_key.sign(&bytes);
    let mut writer = Writer::new();
    writer.item(Item::List(5));
    writer.item(Item::List(3));
    writer.item(Item::Text(codec.name()));
    writer.item(Item::Text(signing_key.did()));
    writer.item(Item::Bytes(&signature));
    writer.item(Item::Text(topic));
    writer.raw(&clock_item);
    writer.item(Item::List(parents.len()));
    parents.iter().for_each(|parent| writer.item(Item::Bytes(parent)));
    writer.raw(payload);
    let value = writer.finish();
    Ok((id::key(clock, &value)?, value))
}
