//! Messages as they are stored and signed (wire format, "Message, signature, stored value").

use std::ops::Range;

use crate::cbor::{Head, Item, Major, Writer, normalize, read_head, scan};
use crate::error::Error;
use crate::id::{self, KEY_LENGTH, Key};
use crate::signature::{self, Scheme};
use crate::{clock, json, topic};

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

/// Where a message's parts stand in its stored value, every rule but the signature checked.
///
/// The ranges count in the canonical form of the value: the value itself, mostly.
pub struct Parsed {
    /// The message's key.
    pub key: Key,
    /// Its clock.
    pub clock: u64,
    /// The codec of its signature.
    pub codec: Codec,
    /// The scheme of its author's key.
    pub scheme: &'static dyn Scheme,
    /// The author's public key.
    pub public_key: Vec<u8>,
    normalized: Option<Box<[u8]>>,
    did: Range<usize>,
    signature: Range<usize>,
    topic: Range<usize>,
    clock_item: Range<usize>,
    parents: Range<usize>,
    parent_count: usize,
    payload: Range<usize>,
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
            return Err(Error::Invalid(format!(
                "{what} must have {length} elements, it has {}",
                head.argument
            )));
        }
        Ok(())
    }

    fn take(&mut self, major: Major, what: &str, kind: &str) -> Result<Range<usize>, Error> {
        let head = self.head(major, what, kind)?;
        let end = usize::try_from(head.argument)
            .ok()
            .and_then(|length| head.end.checked_add(length));
        let end = end.filter(|end| *end <= self.data.len());
        self.at = end.ok_or_else(|| Error::decode("the input ends within an item", self.data.len()))?;
        Ok(head.end..self.at)
    }

    fn text(&self, range: &Range<usize>) -> &'a str {
        // What was scanned or normalised is UTF-8.
        std::str::from_utf8(&self.data[range.clone()]).unwrap_or("")
    }
}

/// Checks everything about a stored value but its signature: that it decodes, its structure, topic, parents and clock.
///
/// # Errors
/// [`Invalid`] with the first thing that is wrong, the cheap checks first.
pub fn parse(value: &[u8], topic: &str) -> Result<Parsed, Invalid> {
    let refuse = |error: Error| Invalid {
        reason: error.to_string(),
        key: None,
    };
    let normalized = if scan(value, 0, 0) == Some(value.len()) {
        None
    } else {
        Some(normalize(value).map_err(refuse)?.into_boxed_slice())
    };
    let mut parsed = walk(normalized.as_deref().unwrap_or(value), topic).map_err(refuse)?;
    parsed.key = id::key(parsed.clock, value).map_err(refuse)?;
    parsed.normalized = normalized;
    Ok(parsed)
}

fn walk(data: &[u8], topic: &str) -> Result<Parsed, Error> {
    let mut walker = Walker { data, at: 0 };
    walker.list(5, "a message")?;
    walker.list(3, "a message's signature record")?;
    let codec = walker.take(Major::Text, "the signature's codec", "a string")?;
    let did = walker.take(Major::Text, "the public key", "a string")?;
    let signature = walker.take(Major::Bytes, "the signature", "bytes")?;
    let topic_range = walker.take(Major::Text, "the topic", "a string")?;
    let found = walker.text(&topic_range);
    if found != topic {
        return Err(Error::Invalid(format!("the topic is {found:?}, expected {topic:?}")));
    }
    let clock_start = walker.at;
    let clock = walker.head(Major::Unsigned, "the clock", "an integer from 1")?.argument;
    let clock_item = clock_start..walker.at;
    let parent_count = walker.head(Major::List, "the parents", "a list")?.argument as usize;
    let parents_start = walker.at;
    let width = parent_count.checked_mul(PARENT_WIDTH);
    let parents_end = width.and_then(|width| parents_start.checked_add(width));
    let parents = parents_start..parents_end.unwrap_or(usize::MAX);
    let entries = data.get(parents.clone()).map(|bytes| bytes.chunks_exact(PARENT_WIDTH));
    let mut largest = 0;
    match entries {
        Some(mut entries) if entries.clone().all(|entry| entry[0] == PARENT_HEAD) => {
            for entry in &mut entries {
                let (clock, _) = clock::decode_lenient(&entry[1..])
                    .map_err(|error| Error::Invalid(format!("a parent has no clock: {error}")))?;
                largest = largest.max(clock);
            }
        }
        _ => {
            return Err(Error::Invalid(format!(
                "the parents must be keys of {KEY_LENGTH} bytes"
            )));
        }
    }
    if clock != largest + 1 {
        let expected = largest + 1;
        return Err(Error::Invalid(format!(
            "the clock is {clock}, expected {expected}: 1 + the largest of the parents'"
        )));
    }
    let codec_name = walker.text(&codec);
    let Some(codec) = Codec::from_name(codec_name) else {
        return Err(Error::Invalid(format!(
            "the signature's codec is {codec_name:?}, expected dag-cbor or dag-json"
        )));
    };
    let (scheme, public_key) = signature::decode_did(walker.text(&did))?;
    if signature.len() != scheme.signature_length() {
        let (name, expected) = (scheme.name(), scheme.signature_length());
        return Err(Error::Invalid(format!(
            "an {name} signature has {expected} bytes, this has {}",
            signature.len()
        )));
    }
    let payload = parents.end..data.len();
    Ok(Parsed {
        key: [0; KEY_LENGTH],
        clock,
        codec,
        scheme,
        public_key,
        normalized: None,
        did,
        signature,
        topic: topic_range,
        clock_item,
        parents,
        parent_count,
        payload,
    })
}

impl Parsed {
    /// Whether the value is the canonical encoding of its message.
    pub fn is_canonical(&self) -> bool {
        self.normalized.is_none()
    }

    fn data<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        self.normalized.as_deref().unwrap_or(value)
    }

    /// The author's did:key, as the message names it.
    pub fn did<'a>(&'a self, value: &'a [u8]) -> &'a str {
        std::str::from_utf8(&self.data(value)[self.did.clone()]).unwrap_or("")
    }

    /// The topic.
    pub fn topic<'a>(&'a self, value: &'a [u8]) -> &'a str {
        std::str::from_utf8(&self.data(value)[self.topic.clone()]).unwrap_or("")
    }

    /// The signature's bytes.
    pub fn signature<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        &self.data(value)[self.signature.clone()]
    }

    /// The payload in canonical dag-cbor.
    pub fn payload<'a>(&'a self, value: &'a [u8]) -> &'a [u8] {
        &self.data(value)[self.payload.clone()]
    }

    /// The parents' keys, in the order in which they stand.
    pub fn parents<'a>(&'a self, value: &'a [u8]) -> impl Iterator<Item = Key> + 'a {
        self.data(value)[self.parents.clone()]
            .chunks_exact(PARENT_WIDTH)
            .map(|entry| {
                let mut key = [0; KEY_LENGTH];
                key.copy_from_slice(&entry[1..]);
                key
            })
    }

    /// Appends what the signature must hold over.
    ///
    /// # Errors
    /// [`Error`] where the message has no form in its codec.
    pub fn signed_bytes(&self, value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let data = self.data(value);
        let topic = Item::Text(self.topic(value));
        let parts = Parts {
            clock: &data[self.clock_item.clone()],
            topic,
            payload: self.payload(value),
        };
        signed_bytes(self.codec, &parts, self.parent_count, self.parents(value), out)
    }
}

struct Parts<'a> {
    clock: &'a [u8],
    topic: Item<'a>,
    payload: &'a [u8],
}

/// The map `{topic, clock, parents, payload}`, assembled from encoded parts; the keys stand in dag-cbor's order.
fn signed_bytes(
    codec: Codec,
    parts: &Parts<'_>,
    count: usize,
    parents: impl Iterator<Item = Key>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut writer = Writer::new();
    writer.item(Item::Map(4));
    writer.item(Item::Text("clock"));
    writer.raw(parts.clock);
    writer.item(Item::Text("topic"));
    writer.item(parts.topic);
    writer.item(Item::Text("parents"));
    writer.item(Item::List(count));
    for key in parents {
        writer.item(Item::Text(&id::encode(&key)));
    }
    writer.item(Item::Text("payload"));
    writer.raw(parts.payload);
    let cbor = writer.finish();
    match codec {
        Codec::Cbor => {
            out.extend_from_slice(&cbor);
            Ok(())
        }
        Codec::Json => json::write(&cbor, out),
    }
}

/// Signs a message with Ed25519: its key and stored value.
///
/// `payload` is canonical dag-cbor; `parents` may come in any order and repeat, and are written in ascending order.
///
/// # Errors
/// [`Error::Encode`] for a topic that no log has and a clock that is not 1 + the largest of the parents' clocks.
pub fn sign(
    topic: &str,
    clock: u64,
    parents: &[Key],
    payload: &[u8],
    private_key: &[u8; 32],
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
    let parts = Parts {
        clock: &clock_item,
        topic: Item::Text(topic),
        payload,
    };
    let mut bytes = Vec::new();
    signed_bytes(codec, &parts, parents.len(), parents.iter().copied(), &mut bytes)?;
    let signature = signature::sign(private_key, &bytes);
    let did = signature::encode_did(&signature::public_key(private_key));
    let mut writer = Writer::new();
    writer.item(Item::List(5));
    writer.item(Item::List(3));
    writer.item(Item::Text(codec.name()));
    writer.item(Item::Text(&did));
    writer.item(Item::Bytes(&signature));
    writer.item(Item::Text(topic));
    writer.raw(&clock_item);
    writer.item(Item::List(parents.len()));
    parents.iter().for_each(|parent| writer.item(Item::Bytes(parent)));
    writer.raw(payload);
    let value = writer.finish();
    Ok((id::key(clock, &value)?, value))
}
