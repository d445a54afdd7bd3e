//! From whatever canvas-js accepts to the canonical bytes that it would sign (wire format, "Normalising").
//!
//! Two passes over the input, neither recursive. This one checks it and finds the maps whose entries must be sorted or
//! dropped; `rewrite` writes. Both cost time in proportion to the input.
//!
//! This is for values that `normalize` leaves to it. A large map with a key `__proto__`, or one that others inherit from, still takes
//! many times its size of memory.
//!
//! Much of this follows from how JavaScript objects work. canvas-js decodes a map into an object by assignment, then
//! copies the object's own properties and encodes the copy; see `prototype` for what an entry `__proto__` does to both.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::chunks::encode_in_chunks;
use super::head::{Major, read};
use super::normalize::normalize_usual;
use super::order;
use super::passing::{Form, Passing, Pending, pend};
use super::prototype::{Chain, Elements, End, Primitive, Property, is_array_index, matters};
use super::rewrite::{Rewrite, Rewrites, Token, check_total, link_as_text, text, token, write};
use super::token::take;
use super::write::{Item, Writer};
use super::{MAX_DEPTH, key_order};
use crate::error::Error;
use crate::id::KEY_LENGTH;

/// A value that was read, as far as what holds it needs to know.
struct Seen<'a> {
    start: usize,
    kind: Kind,
    /// What lists and maps are converted to, as they were decoded and in the copy that canvas-js makes of a message before it
    /// encodes it for the signature.
    raw: Primitive<'a>,
    copy: Primitive<'a>,
    /// For a list or map under the key `__proto__`: what inherits from it.
    chain: Option<Box<Chain<'a>>>,
    faults: Faults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A boolean, number or string, which cannot be a prototype.
    Scalar,
    Null,
    Bytes(u64),
    Link,
    Container,
}

/// Why canvas-js refuses a value; it does not matter when the value is dropped.
#[derive(Debug, Default)]
struct Faults {
    /// The copy of a message cannot be encoded with it.
    encoded: Option<Error>,
    /// The copy cannot be made.
    copied: Option<Error>,
    /// It cannot be encoded as it was decoded, which is done to store it.
    stored: Option<Error>,
    /// How many bytes maps pass for as it is stored.
    stored_bytes: u64,
}

impl Faults {
    fn add(&mut self, other: Self) {
        self.encoded = self.encoded.take().or(other.encoded);
        self.copied = self.copied.take().or(other.copied);
        self.stored = self.stored.take().or(other.stored);
        self.stored_bytes += other.stored_bytes;
    }
}

/// What becomes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is encoded.
    Kept,
    /// It is the prototype of what was decoded, and dropped.
    Prototype,
    /// It is an entry `__proto__`, and the prototype of the copy.
    CopyPrototype,
}

/// What stands under a key that matters to the test for links.
#[derive(Debug, PartialEq)]
enum Mark {
    /// The canonical bytes of a boolean, number or string.
    Scalar(Vec<u8>),
    /// The hash of those of a long string.
    Long([u8; 32]),
    /// The bytes of the link that stands there, which are the same object under both keys.
    Link(usize),
    /// Bytes that are empty: canvas-js has one object for all of them.
    Empty,
    Null,
    Absent,
    /// Something that is equal to nothing else.
    Other,
}

/// A list or map that is being read.
struct Open<'a> {
    start: usize,
    remaining: u64,
    faults: Faults,
    inner: Inner<'a>,
}

enum Inner<'a> {
    List(OpenList<'a>),
    Map(Box<OpenMap<'a>>),
}

struct OpenList<'a> {
    length: u64,
    raw: Elements<'a>,
    copy: Elements<'a>,
}

/// An entry of a map, and where its key and its value stand.
struct Entry<'a> {
    key: Cow<'a, str>,
    key_start: u32,
    start: u32,
}

struct OpenMap<'a> {
    key: Cow<'a, str>,
    key_start: usize,
    entries: Vec<Entry<'a>>,
    sorted: bool,
    /// The keys so far, once they are looked up; while they ascend each is compared with the one before.
    seen: Option<HashSet<Cow<'a, str>>>,
    /// What it inherits from; none for what every object does.
    chain: Option<Box<Chain<'a>>>,
    /// What an entry `__proto__` leaves to the copy of the map that is encoded; the entries before it are the copy's own.
    prototype: Option<Option<Box<Chain<'a>>>>,
    /// Entries that the copy does not get, by where their values stand.
    uncopied: BTreeSet<usize>,
    /// What lists and maps under keys that matter are converted to, decoded and copied, by where they stand.
    converted: BTreeMap<usize, (Primitive<'a>, Primitive<'a>)>,
    has_text: bool,
    slash: Option<usize>,
    bytes: Option<usize>,
    version: Option<usize>,
    dropped: bool,
}

/// A value that was normalised.
#[derive(Debug)]
pub struct Normalized {
    /// The canonical form.
    pub bytes: Vec<u8>,
    /// The maps in it that pass for bytes, in the order in which they stand.
    pub passing: Vec<Passing>,
    /// Why canvas-js cannot store a message with this value, whose signature it would accept.
    pub unstorable: Option<Error>,
}

/// The canonical form of one item that fills `data`.
///
/// # Errors
/// [`Error::Decode`] with the place, for everything that canvas-js refuses.
pub fn normalize(data: &[u8]) -> Result<Vec<u8>, Error> {
    if let Some(bytes) = normalize_usual(data)? {
        return Ok(bytes);
    }
    let normalized = normalize_for(data, Form::Cbor)?;
    if !normalized.passing.is_empty() {
        let encoded = encode_in_chunks(&normalized.bytes, &normalized.passing);
        if encoded.map_err(|error| Error::decode(error.to_string(), 0))? != normalized.bytes {
            return Err(Error::decode("a map that passes for bytes, which encoders write past", 0));
        }
    }
    Ok(normalized.bytes)
}

/// The canonical form of a message's stored value, whose signature names the form that maps are read for.
///
/// # Errors
/// [`Error::Decode`] with the place, for everything that canvas-js refuses.
pub fn normalize_stored(data: &[u8]) -> Result<Normalized, Error> {
    if let Some(bytes) = normalize_usual(data)? {
        return Ok(Normalized { bytes, passing: Vec::new(), unstorable: None });
    }
    // What is no such value is refused for that, whatever its codec is.
    let codec = if data.starts_with(&[0x85, 0x83]) { token(data, 2).ok() } else { None };
    let is_json = matches!(codec, Some((Token::Text(codec), _)) if codec == "dag-json");
    normalize_for(data, if is_json { Form::Json } else { Form::Cbor })
}

fn normalize_for(data: &[u8], form: Form) -> Result<Normalized, Error> {
    order::check_length(data, 1)?;
    let (mut rewrites, unstorable) = check(data, form)?;
    let (bytes, passing) = write(data, &mut rewrites, form)?;
    Ok(Normalized { bytes, passing, unstorable })
}

impl Token<'_> {
    /// The canonical bytes of a boolean, number or string.
    fn comparable(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        match self {
            Token::Bool(value) => writer.item(Item::Bool(*value)),
            Token::Integer(value) => writer.item(Item::Integer(*value)),
            Token::Float(value) => writer.item(Item::Float(*value)),
            Token::Text(value) => writer.item(Item::Text(value)),
            _ => return None,
        }
        Some(writer.finish())
    }
}

/// What the scalar at `at`, which was read before, is converted to.
fn primitive(data: &[u8], at: usize) -> Primitive<'_> {
    match token(data, at) {
        Ok((Token::Null, _)) => Primitive::Null,
        Ok((Token::Bool(value), _)) => Primitive::Bool(value),
        Ok((Token::Integer(value), _)) => Primitive::of_integer(value),
        Ok((Token::Float(value), _)) => Primitive::Number(value),
        Ok((Token::Text(value), _)) => Primitive::Text(value),
        Ok((Token::Bytes(value), _)) => Primitive::of_bytes(value),
        Ok((Token::Link((value, is_version_0)), _)) => Primitive::of_link(&value, is_version_0),
        _ => Primitive::Throws,
    }
}

/// Whether the value at `at` is this number.
fn is_number(data: &[u8], at: usize, number: i128) -> bool {
    match token(data, at) {
        Ok((Token::Integer(value), _)) => value == number,
        Ok((Token::Float(value), _)) => value == number as f64,
        _ => false,
    }
}

/// What the first pass finds.
struct Output {
    form: Form,
    rewrites: Rewrites,
    /// The hashes of long scalars that maps inherit under keys that matter: read once, however many maps do.
    digests: HashMap<usize, [u8; 32]>,
}

/// The first pass: how maps are to be written, and why the value cannot be stored.
fn check(data: &[u8], form: Form) -> Result<(Rewrites, Option<Error>), Error> {
    let mut out = Output { form, rewrites: Rewrites::default(), digests: HashMap::new() };
    let mut stack: Vec<Open<'_>> = Vec::new();
    let mut at = 0;
    loop {
        let start = at;
        let (token, end) = token(data, start)?;
        at = end;
        let mut complete = None;
        if let Token::List(remaining) | Token::Map(remaining) = token {
            if stack.len() >= MAX_DEPTH {
                return Err(Error::decode(format!("more than {MAX_DEPTH} lists and maps are nested"), start));
            }
            let inner = match token {
                Token::List(length) => Inner::List(OpenList::new(length)),
                _ => Inner::Map(Box::new(OpenMap::new())),
            };
            stack.push(Open { start, remaining, faults: Faults::default(), inner });
        } else {
            complete = Some(Seen::scalar(start, &token));
        }
        loop {
            if let Some(seen) = complete.take() {
                match stack.last_mut() {
                    Some(top) => top.add(data, seen)?,
                    None if at < data.len() => {
                        return Err(Error::decode("bytes follow the end of the item", at));
                    }
                    None => {
                        let Faults { encoded, copied, stored, stored_bytes } = seen.faults;
                        let stored = stored.or_else(|| check_total(stored_bytes, seen.start).err());
                        return encoded.or(copied).map_or(Ok((out.rewrites, stored)), Err);
                    }
                }
            }
            let Some(top) = stack.last_mut() else {
                return Err(Error::decode("the input ends where an item should begin", at));
            };
            if top.remaining > 0 {
                top.remaining -= 1;
                if let Inner::Map(map) = &mut top.inner {
                    at = map.read_key(data, at)?;
                }
                break;
            }
            if let Some(open) = stack.pop() {
                let role = match stack.last() {
                    Some(Open { inner: Inner::Map(map), .. }) => map.role(),
                    _ => Role::Kept,
                };
                complete = Some(open.close(data, at, role, &mut out));
            }
        }
    }
}

impl<'a> Open<'a> {
    /// Takes in a value that is complete.
    fn add(&mut self, data: &'a [u8], seen: Seen<'a>) -> Result<(), Error> {
        match &mut self.inner {
            Inner::List(list) => {
                list.add(data, &seen, self.remaining);
                self.faults.add(seen.faults);
                Ok(())
            }
            Inner::Map(map) => map.assign(data, seen, &mut self.faults),
        }
    }

    fn close(self, data: &'a [u8], end: usize, role: Role, out: &mut Output) -> Seen<'a> {
        match self.inner {
            Inner::List(list) => list.close(data, self.start, self.faults, role),
            Inner::Map(map) => map.close(data, self.start..end, self.faults, role, out),
        }
    }
}

impl<'a> Seen<'a> {
    fn scalar(start: usize, token: &Token<'_>) -> Self {
        let kind = match token {
            Token::Null => Kind::Null,
            Token::Bytes(bytes) => Kind::Bytes(bytes.len() as u64),
            Token::Link(_) => Kind::Link,
            _ => Kind::Scalar,
        };
        let (raw, copy) = (Primitive::Throws, Primitive::Throws);
        Self { start, kind, raw, copy, chain: None, faults: Faults::default() }
    }

    /// What the value is converted to, decoded and copied.
    fn primitives(&self, data: &'a [u8]) -> (Primitive<'a>, Primitive<'a>) {
        match self.kind {
            Kind::Container => (self.raw.clone(), self.copy.clone()),
            // The copy has a link's fields, but is none.
            Kind::Link => (primitive(data, self.start), Primitive::NotNumber),
            _ => (primitive(data, self.start), primitive(data, self.start)),
        }
    }

    /// What inherits from the value, decoded or copied; none for what cannot be a prototype.
    fn into_chain(self, role: Role) -> Option<Box<Chain<'a>>> {
        let (end, data, length) = match self.kind {
            Kind::Scalar => return None,
            Kind::Container => return self.chain,
            Kind::Null => (End::Null, None, 0),
            Kind::Bytes(length) => (End::Bytes, Some(self.start), length),
            Kind::Link if role == Role::CopyPrototype => (End::Object, Some(self.start), 0),
            Kind::Link => (End::Link, Some(self.start), 0),
        };
        Some(Box::new(Chain { data, length, ..Chain::new(end) }))
    }
}

impl<'a> Elements<'a> {
    fn new() -> Self {
        Self { first: Primitive::Text(Cow::Borrowed("")), throwing: Vec::new() }
    }

    fn add(&mut self, primitive: Primitive<'a>, index: u64) {
        match primitive.element() {
            Primitive::Throws => self.throwing.push(index),
            text if index == 0 => self.first = text,
            _ => {}
        }
    }
}

impl<'a> OpenList<'a> {
    fn new(length: u64) -> Self {
        Self { length, raw: Elements::new(), copy: Elements::new() }
    }

    fn add(&mut self, data: &'a [u8], seen: &Seen<'a>, remaining: u64) {
        // Of several elements only those count that have no text.
        if self.length == 1 || matches!(seen.kind, Kind::Container | Kind::Link) {
            let (raw, copy) = seen.primitives(data);
            self.raw.add(raw, self.length - 1 - remaining);
            self.copy.add(copy, self.length - 1 - remaining);
        }
    }

    fn close(self, data: &'a [u8], start: usize, faults: Faults, role: Role) -> Seen<'a> {
        let chain = |elements: Elements<'a>| Chain {
            length: self.length,
            elements: Some(Box::new(elements)),
            ..Chain::new(End::List)
        };
        let (raw, copy) = (chain(self.raw), chain(self.copy));
        let scalar = |at| primitive(data, at);
        let (raw_text, copy_text) = (raw.join(scalar), copy.join(scalar));
        let chain = match role {
            Role::Kept => None,
            Role::Prototype => Some(Box::new(raw)),
            Role::CopyPrototype => Some(Box::new(copy)),
        };
        Seen { start, kind: Kind::Container, raw: raw_text, copy: copy_text, chain, faults }
    }
}

impl<'a> OpenMap<'a> {
    fn new() -> Self {
        Self {
            key: Cow::Borrowed(""),
            key_start: 0,
            entries: Vec::new(),
            sorted: true,
            seen: None,
            chain: None,
            prototype: None,
            uncopied: BTreeSet::new(),
            converted: BTreeMap::new(),
            has_text: false,
            slash: None,
            bytes: None,
            version: None,
            dropped: false,
        }
    }

    fn read_key(&mut self, data: &'a [u8], at: usize) -> Result<usize, Error> {
        let head = read(data, at)?;
        if head.major != Major::Text {
            return Err(Error::decode("a map key must be a string", at));
        }
        let (bytes, end) = take(data, &head)?;
        self.key = text(bytes);
        self.key_start = at;
        Ok(end)
    }

    /// What becomes of the value of the current key.
    fn role(&self) -> Role {
        if self.key != "__proto__" {
            Role::Kept
        } else if self.chain.as_deref().is_some_and(|chain| chain.end == End::Null) {
            Role::CopyPrototype
        } else {
            Role::Prototype
        }
    }

    /// The keys so far.
    fn keys(&mut self) -> &HashSet<Cow<'a, str>> {
        self.seen.get_or_insert_with(|| self.entries.iter().map(|entry| entry.key.clone()).collect())
    }

    /// Assigns a value to the current key.
    fn assign(&mut self, data: &'a [u8], seen: Seen<'a>, faults: &mut Faults) -> Result<(), Error> {
        let role = self.role();
        let key = std::mem::take(&mut self.key);
        let at = self.key_start;
        let duplicate = |key: &str| Error::decode(format!("the map key {key:?} stands twice"), at);
        if role == Role::Prototype {
            self.dropped = true;
            if let Some(chain) = seen.into_chain(role) {
                self.chain = Some(chain);
            }
            return Ok(());
        }
        if role == Role::CopyPrototype {
            self.dropped = true;
            if self.prototype.is_some() {
                return Err(duplicate(&key));
            }
            let mut seen = seen;
            // It is stored, but not signed.
            faults.add(Faults { encoded: None, ..std::mem::take(&mut seen.faults) });
            self.prototype = Some(seen.into_chain(role));
            return Ok(());
        }
        if let Some(chain) = self.chain.as_deref() {
            let (blocks, swallows) = (chain.blocks(&key), chain.swallows(&key));
            if (blocks || swallows) && self.keys().contains(&key) {
                return Err(duplicate(&key));
            }
            if blocks {
                return Err(Error::decode(format!("the map key {key:?} cannot be set behind such a __proto__"), at));
            }
            if swallows {
                self.dropped = true;
                if seen.primitives(data).0.number().is_none() {
                    return Err(Error::decode(format!("the value of {key:?} cannot be converted to a number"), at));
                }
                return Ok(());
            }
        }
        if self.entries.last().is_some_and(|last| key_order(&last.key, &key).is_ge()) {
            self.sorted = false;
            self.keys();
        }
        if let Some(keys) = &mut self.seen
            && !keys.insert(key.clone())
        {
            return Err(duplicate(&key));
        }
        if matters(&key) {
            self.note(data, &key, &seen, faults);
        }
        order::reserve(&mut self.entries, 1);
        self.entries.push(Entry { key, key_start: at as u32, start: seen.start as u32 });
        faults.add(seen.faults);
        Ok(())
    }

    /// Remembers what matters of an entry to objects that inherit from the map, and to its copy.
    fn note(&mut self, data: &'a [u8], key: &str, seen: &Seen<'a>, faults: &mut Faults) {
        match key {
            "/" => self.slash = Some(seen.start),
            "bytes" => self.bytes = Some(seen.start),
            "version" => self.version = Some(seen.start),
            "toString" => self.has_text = true,
            _ => {}
        }
        if matches!(seen.kind, Kind::Container | Kind::Link) {
            self.converted.insert(seen.start, seen.primitives(data));
        }
        // The copy has its indices first, whatever their order was.
        if let Some(Some(prototype)) = &self.prototype
            && !is_array_index(key)
        {
            let swallows = prototype.swallows(key);
            if prototype.blocks(key) || (swallows && seen.primitives(data).1.number().is_none()) {
                let reason = format!("the map key {key:?} cannot be set in the copy");
                faults.copied.get_or_insert(Error::decode(reason, self.key_start));
            }
            if swallows {
                self.uncopied.insert(seen.start);
            }
        }
    }

    /// The entries that matter to objects that inherit from the map, added to what it inherits from.
    fn extend(&self, chain: Option<Box<Chain<'a>>>, is_copy: bool) -> Box<Chain<'a>> {
        let mut chain = chain.unwrap_or_else(|| Box::new(Chain::new(End::Object)));
        for Entry { key, start, .. } in &self.entries {
            let start = *start as usize;
            if !matters(key) || (is_copy && self.uncopied.contains(&start)) {
                continue;
            }
            let converted = self.converted.get(&start);
            let primitive = converted.map(|(raw, copy)| if is_copy { copy } else { raw }).cloned();
            chain.keys.insert(key.clone(), Property { start, primitive });
        }
        chain
    }

    fn close(
        mut self: Box<Self>,
        data: &'a [u8],
        place: Range<usize>,
        mut faults: Faults,
        role: Role,
        out: &mut Output,
    ) -> Seen<'a> {
        let (start, end) = (place.start, place.end);
        let scalar = |at| primitive(data, at);
        let own = if self.has_text { Primitive::Throws } else { Primitive::NotNumber };
        let inherits = self.chain.is_some();
        let mut raw = None;
        if inherits || role == Role::Prototype {
            let chain = self.chain.take();
            raw = Some(self.extend(chain, false));
        }
        // What is a prototype is not converted itself.
        let raw_text = match raw.as_deref() {
            _ if role != Role::Kept => Primitive::Throws,
            Some(chain) if chain.end == End::Link => link_text(data, chain),
            Some(chain) => chain.primitive(scalar),
            None => own.clone(),
        };
        let passes = raw.as_deref().is_some_and(|chain| chain.end == End::Bytes);
        let mut copy = None;
        if !passes && (self.prototype.is_some() || role == Role::CopyPrototype) {
            let prototype = self.prototype.take().flatten();
            copy = Some(self.extend(prototype, true));
        }
        let copy_text = match copy.as_deref() {
            _ if passes || role != Role::Kept => raw_text.clone(),
            Some(chain) => chain.primitive(scalar),
            None => own,
        };
        let mut rewrite = None;
        if role != Role::Prototype {
            if passes {
                // The map is its own copy.
                faults = Faults::default();
            }
            if let Some(raw) = raw.as_deref() {
                if passes {
                    match pass(data, raw, Form::Json, start) {
                        Ok(pending) => faults.stored_bytes = pending.count,
                        Err(error) => faults.stored = Some(error),
                    }
                } else if is_stored_as_link(data, raw, &mut out.digests) {
                    faults.stored_bytes = 0;
                    let reason = "a map that passes for a link, without the text of one, cannot be stored";
                    faults.stored =
                        if link_data(data, raw).is_some() { None } else { Some(Error::decode(reason, start)) };
                }
            } else if [self.slash, self.bytes].iter().all(|at| is_empty_bytes(data, *at)) {
                // It is stored as a link, and nothing within it is.
                faults.stored = None;
                faults.stored_bytes = 0;
            }
            let signed = if passes { raw.as_deref() } else { copy.as_deref() };
            // What is not signed may pass for anything.
            if role == Role::Kept || signed.is_none_or(|chain| chain.end != End::Bytes) {
                rewrite = self.rewrite(data, signed, start, &mut faults, out);
            }
        }
        let chain = match role {
            Role::Kept => None,
            Role::CopyPrototype if !passes => copy,
            _ => raw,
        };
        if let Some(rewrite) = rewrite {
            out.rewrites.replace(start, end, rewrite);
        } else if self.dropped || !self.sorted {
            self.entries.sort_unstable_by(|left, right| key_order(&left.key, &right.key));
            out.rewrites.reorder(start, end, self.entries.iter().map(|entry| entry.key_start));
        }
        Seen { start, kind: Kind::Container, raw: raw_text, copy: copy_text, chain, faults }
    }

    /// How the copy is encoded, unless entry by entry.
    fn rewrite(
        &self,
        data: &'a [u8],
        copy: Option<&Chain<'a>>,
        start: usize,
        faults: &mut Faults,
        out: &mut Output,
    ) -> Option<Rewrite> {
        let form = out.form;
        if let Some(copy) = copy.filter(|copy| copy.end == End::Bytes) {
            return match pass(data, copy, form, start) {
                Ok(pending) => {
                    faults.encoded = None;
                    Some(Rewrite::Bytes(Box::new(pending)))
                }
                Err(error) => {
                    faults.encoded = Some(error);
                    None
                }
            };
        }
        let link = copy.and_then(|copy| copy.data);
        let inherited = |key| copy?.keys.get(key).map(|found| found.start);
        let slash = Mark::of(data, self.slash.or_else(|| inherited("/")), link, &mut out.digests);
        let bytes = Mark::of(data, self.bytes.or_else(|| inherited("bytes")), link, &mut out.digests);
        match (&slash, &bytes) {
            (Mark::Scalar(_) | Mark::Long(_), _) if slash == bytes => {
                let reason = "a map whose \"/\" equals its \"bytes\" cannot be encoded";
                faults.encoded.get_or_insert(Error::decode(reason, start));
                if self.slash.is_some() && self.bytes.is_some() {
                    // So it is as the map was decoded.
                    faults.stored.get_or_insert(Error::decode(reason, start));
                }
                None
            }
            // The entries of what is written as a link are not encoded.
            (Mark::Empty, Mark::Empty) => {
                faults.encoded = None;
                let as_version_0 = match copy {
                    Some(copy) => has_version_0(data, copy),
                    None => self.version.is_some_and(|at| is_number(data, at, 0)),
                };
                Some(match form {
                    Form::Cbor => Rewrite::EmptyLink,
                    Form::Json => Rewrite::Text(if as_version_0 { "" } else { "b" }.into()),
                })
            }
            // The copy inherits from a link, and is written as that link.
            (Mark::Link(at), Mark::Link(_)) => {
                faults.encoded = None;
                let at = *at;
                let Ok((Token::Link((link, _)), _)) = token(data, at) else { return None };
                let as_version_0 = copy.is_some_and(|copy| has_version_0(data, copy));
                match link_as_text(&link, as_version_0, form) {
                    Ok(None) => Some(Rewrite::Link(at)),
                    Ok(Some(text)) => Some(Rewrite::Text(text)),
                    Err(error) => {
                        faults.encoded = Some(Error::decode(error.to_string(), start));
                        None
                    }
                }
            }
            _ => None,
        }
    }
}

fn is_empty_bytes(data: &[u8], at: Option<usize>) -> bool {
    at.is_some_and(|at| matches!(token(data, at), Ok((Token::Bytes([]), _))))
}

impl Mark {
    /// What stands at `at`, or what is inherited from a link.
    fn of(data: &[u8], at: Option<usize>, link: Option<usize>, digests: &mut HashMap<usize, [u8; 32]>) -> Self {
        if let Some(at) = at.filter(|at| is_long_text(data, *at)) {
            let hash = || {
                *blake3::hash(&token(data, at).ok().and_then(|(token, _)| token.comparable()).unwrap_or_default())
                    .as_bytes()
            };
            return Self::Long(*digests.entry(at).or_insert_with(hash));
        }
        match (at.map(|at| token(data, at)), link) {
            (Some(Ok((Token::Null, _))), _) => Self::Null,
            (Some(Ok((Token::Bytes([]), _))), _) => Self::Empty,
            (Some(Ok((token, _))), _) => token.comparable().map_or(Self::Other, Self::Scalar),
            (Some(Err(_)), _) => Self::Other,
            (None, Some(link)) => Self::Link(link),
            (None, None) => Self::Absent,
        }
    }
}

fn pass<'a>(data: &'a [u8], chain: &Chain<'a>, form: Form, start: usize) -> Result<Pending, Error> {
    let is_byte = |at| is_byte(data, at);
    let is_width = |at| is_number(data, at, KEY_LENGTH as i128);
    pend(chain, form, |at| primitive(data, at), is_byte, is_width)
        .ok_or_else(|| Error::decode("a map whose __proto__ is bytes cannot be encoded with such a length", start))
}

/// Strings of more bytes are compared by their hashes.
const LONG: u64 = 1 << 10;

fn is_long_text(data: &[u8], at: usize) -> bool {
    read(data, at).is_ok_and(|head| head.major == Major::Text && head.argument > LONG)
}

/// Whether the value at `at` is a whole number from 0 to 255.
fn is_byte(data: &[u8], at: usize) -> bool {
    match token(data, at) {
        Ok((Token::Integer(value), _)) => (0..256).contains(&value),
        Ok((Token::Float(value), _)) => value.fract() == 0.0 && (0.0..256.0).contains(&value),
        _ => false,
    }
}

/// Whether a map passes for a link as it was decoded: nothing that is in it is stored.
fn is_stored_as_link(data: &[u8], raw: &Chain<'_>, digests: &mut HashMap<usize, [u8; 32]>) -> bool {
    let link = raw.data.filter(|_| raw.end == End::Link);
    let mut mark = |key: &str| Mark::of(data, raw.keys.get(key).map(|found| found.start), link, digests);
    let (slash, bytes) = (mark("/"), mark("bytes"));
    let equal = slash == bytes && slash != Mark::Other;
    match raw.end {
        End::Link => equal || !raw.keys.contains_key("asCID"),
        _ => equal && !matches!(slash, Mark::Null | Mark::Absent),
    }
}

/// The bytes from which a link, or a map that passes for one, is written as text; none where that throws.
fn link_data<'a>(data: &'a [u8], chain: &Chain<'_>) -> Option<Cow<'a, [u8]>> {
    // What is no link, but has the fields of one, is made one first.
    if chain.end == End::Link && chain.keys.contains_key("toString") {
        return None;
    }
    let at = chain.keys.get("bytes").map_or(chain.data, |found| Some(found.start))?;
    match token(data, at) {
        Ok((Token::Bytes(bytes), _)) => Some(Cow::Borrowed(bytes)),
        Ok((Token::Link((link, _)), _)) if !chain.keys.contains_key("bytes") => Some(Cow::Owned(link)),
        _ => None,
    }
}

/// What a map that inherits from a link is converted to.
fn link_text<'a>(data: &'a [u8], chain: &Chain<'a>) -> Primitive<'a> {
    let Some(bytes) = link_data(data, chain) else { return Primitive::Throws };
    Primitive::of_link(&bytes, has_version_0(data, chain))
}

/// Whether the text of a link, or of a map that passes for one, is that of a version 0.
fn has_version_0(data: &[u8], chain: &Chain<'_>) -> bool {
    match chain.keys.get("version") {
        Some(version) => is_number(data, version.start, 0),
        None => match chain.data.map(|at| token(data, at)) {
            Some(Ok((Token::Link((_, is_version_0)), _))) => is_version_0,
            _ => false,
        },
    }
}
