//! From whatever the original accepts to the canonical bytes that it would sign (wire format, "Normalising").
//!
//! Two passes over the input, neither recursive. The first checks it and finds the maps whose entries must be sorted or
//! dropped; the second writes. Both cost time in proportion to the input.
//!
//! Much of this follows from how JavaScript objects work. The original decodes a map into an object by assignment, then
//! copies the object's own properties and encodes the copy; see `prototype` for what an entry `__proto__` does to both.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::float::from_half;
use super::head::{Head, Major, read};
use super::prototype::Chain;
use super::write::{Item, Writer};
use super::{MAX_DEPTH, key_order};
use crate::cid;
use crate::error::Error;

/// A value that was read, as far as the map around it needs to know.
struct Seen {
    start: usize,
    /// How its prototypes end; none for booleans, numbers and strings, which cannot be prototypes.
    chain: Option<Chain>,
    /// What the original's encoder finds under `/` and `bytes`, its test for links.
    marks: Marks,
    /// Why the original refuses to encode this value; it does not matter when the value is dropped.
    refused: Option<Error>,
}

/// What stands under a key that matters to the test for links.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    /// The canonical bytes of a boolean, number or string.
    Scalar(Vec<u8>),
    /// The bytes of the link that stands there, which are the same object under both keys.
    Link(usize),
    /// Something that is equal to nothing else.
    Other,
}

#[derive(Debug, Clone, Default)]
struct Marks {
    slash: Option<Mark>,
    bytes: Option<Mark>,
}

/// A list or map that is being read.
struct Open<'a> {
    start: usize,
    remaining: u64,
    refused: Option<Error>,
    map: Option<OpenMap<'a>>,
}

struct OpenMap<'a> {
    key: Cow<'a, str>,
    key_start: usize,
    entries: Vec<(Cow<'a, str>, usize)>,
    sorted: bool,
    /// The keys so far, once they are looked up; while they ascend each is compared with the one before.
    seen: Option<HashSet<Cow<'a, str>>>,
    chain: Chain,
    /// What an entry `__proto__` leaves to the copy of the map that is encoded.
    prototype: Option<(Option<Chain>, Marks)>,
    marks: Marks,
    dropped: bool,
}

/// How to write a map that cannot be written as it stands.
enum Rewrite<'a> {
    Entries { entries: Vec<(Cow<'a, str>, usize)>, end: usize },
    Link { at: usize, end: usize },
}

/// The canonical form of one item that fills `data`.
///
/// # Errors
/// [`Error::Decode`] with the place, for everything that the original refuses.
pub fn normalize(data: &[u8]) -> Result<Vec<u8>, Error> {
    let rewrites = check(data)?;
    write(data, &rewrites)
}

/// A string as JavaScript's TextDecoder reads it: U+FFFD for what is not UTF-8, without one U+FEFF at its start.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Cow::Owned(text) => match text.strip_prefix('\u{feff}') {
            Some(rest) => Cow::Owned(rest.to_owned()),
            None => Cow::Owned(text),
        },
    }
}

fn take<'a>(data: &'a [u8], head: &Head) -> Result<(&'a [u8], usize), Error> {
    usize::try_from(head.argument)
        .ok()
        .and_then(|length| head.end.checked_add(length))
        .and_then(|end| data.get(head.end..end).map(|slice| (slice, end)))
        .ok_or_else(|| Error::decode("the input ends within a string or bytes", data.len()))
}

fn float(head: &Head) -> f64 {
    match head.info {
        25 => from_half(head.argument as u16),
        26 => f64::from(f32::from_bits(head.argument as u32)),
        _ => f64::from_bits(head.argument),
    }
}

/// The scalar at `at`, normalised, and its end; or the head of a list or map.
enum Token<'a> {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    Link(Vec<u8>),
    List(u64),
    Map(u64),
}

fn token(data: &[u8], at: usize) -> Result<(Token<'_>, usize), Error> {
    let head = read(data, at)?;
    Ok(match head.major {
        Major::Unsigned => (Token::Integer(i128::from(head.argument)), head.end),
        Major::Negative => (Token::Integer(-1 - i128::from(head.argument)), head.end),
        Major::Bytes => {
            let (bytes, end) = take(data, &head)?;
            (Token::Bytes(bytes), end)
        }
        Major::Text => {
            let (bytes, end) = take(data, &head)?;
            (Token::Text(text(bytes)), end)
        }
        Major::List => (Token::List(head.argument), head.end),
        Major::Map => (Token::Map(head.argument), head.end),
        Major::Tag => {
            if head.argument != 42 {
                return Err(Error::decode(format!("tag {} is not allowed; 42 (a link) is", head.argument), at));
            }
            let inner = read(data, head.end)?;
            if inner.major != Major::Bytes {
                return Err(Error::decode("a link must hold bytes", head.end));
            }
            let (bytes, end) = take(data, &inner)?;
            let Some((0, binary)) = bytes.split_first() else {
                return Err(Error::decode("a link's bytes must begin with zero", inner.end));
            };
            let normalized = cid::normalize(binary).map_err(|error| match error {
                Error::Decode { reason, offset } => {
                    Error::Decode { reason, offset: offset.map(|offset| inner.end + 1 + offset) }
                }
                other => other,
            })?;
            (Token::Link(normalized), end)
        }
        Major::Simple => {
            let token = match head.info {
                20 => Token::Bool(false),
                21 => Token::Bool(true),
                22 | 23 => Token::Null,
                25..=27 => {
                    let value = float(&head);
                    if !value.is_finite() {
                        return Err(Error::decode("NaN and infinities are not allowed", at));
                    }
                    Token::Float(value)
                }
                _ => return Err(Error::decode("simple values are not allowed", at)),
            };
            (token, head.end)
        }
    })
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

/// The first pass.
fn check(data: &[u8]) -> Result<HashMap<usize, Rewrite<'_>>, Error> {
    let mut rewrites = HashMap::new();
    let mut stack: Vec<Open<'_>> = Vec::new();
    let mut at = 0;
    loop {
        let start = at;
        let (token, end) = token(data, start)?;
        at = end;
        let (count, is_map) = match token {
            Token::List(count) => (Some(count), false),
            Token::Map(count) => (Some(count), true),
            _ => (None, false),
        };
        let mut complete = None;
        if let Some(remaining) = count {
            if stack.len() >= MAX_DEPTH {
                return Err(Error::decode(format!("more than {MAX_DEPTH} lists and maps are nested"), start));
            }
            let map = is_map.then(OpenMap::new);
            stack.push(Open { start, remaining, refused: None, map });
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
                    None => return seen.refused.map_or(Ok(rewrites), Err),
                }
            }
            let Some(top) = stack.last_mut() else {
                return Err(Error::decode("the input ends where an item should begin", at));
            };
            if top.remaining > 0 {
                top.remaining -= 1;
                if let Some(map) = &mut top.map {
                    at = map.read_key(data, at)?;
                }
                break;
            }
            if let Some(open) = stack.pop() {
                let (seen, rewrite) = open.close(at);
                if let Some(rewrite) = rewrite {
                    rewrites.insert(seen.start, rewrite);
                }
                complete = Some(seen);
            }
        }
    }
}

impl Open<'_> {
    /// Takes in a value that is complete.
    fn add(&mut self, data: &[u8], seen: Seen) -> Result<(), Error> {
        match &mut self.map {
            None => self.refused = self.refused.take().or(seen.refused),
            Some(map) => {
                if let Some(refused) = map.assign(data, seen)? {
                    self.refused.get_or_insert(refused);
                }
            }
        }
        Ok(())
    }
}

impl Seen {
    fn scalar(start: usize, token: &Token<'_>) -> Self {
        let (chain, marks) = match token {
            Token::Null => (Some(Chain::Null), Marks::default()),
            Token::Bytes(bytes) => (Some(Chain::Bytes(bytes.len() as u64)), Marks::default()),
            Token::Link(_) => {
                let link = Some(Mark::Link(start));
                (Some(Chain::Link), Marks { slash: link.clone(), bytes: link })
            }
            _ => (None, Marks::default()),
        };
        Self { start, chain, marks, refused: None }
    }
}

impl<'a> Open<'a> {
    fn close(self, end: usize) -> (Seen, Option<Rewrite<'a>>) {
        let start = self.start;
        let Some(map) = self.map else {
            return (Seen { start, chain: Some(Chain::Object), marks: Marks::default(), refused: self.refused }, None);
        };
        let mut refused = self.refused;
        let (inherited, left) = map.prototype.unwrap_or_default();
        if [Some(map.chain), inherited].iter().any(|chain| matches!(chain, Some(Chain::Bytes(_)))) {
            refused.get_or_insert(Error::decode("a map whose __proto__ is bytes cannot be encoded", start));
        }
        let marks = Marks { slash: map.marks.slash.or(left.slash), bytes: map.marks.bytes.or(left.bytes) };
        let link = match (&marks.slash, &marks.bytes) {
            (Some(Mark::Scalar(slash)), Some(Mark::Scalar(bytes))) if slash == bytes => {
                let reason = "a map whose \"/\" equals its \"bytes\" cannot be encoded";
                refused.get_or_insert(Error::decode(reason, start));
                None
            }
            // The copy inherits from a link, and is written as that link.
            (Some(Mark::Link(slash)), Some(Mark::Link(bytes))) if slash == bytes => Some(*slash),
            _ => None,
        };
        let rewrite = match link {
            Some(at) => Some(Rewrite::Link { at, end }),
            None if map.dropped || !map.sorted => {
                let mut entries = map.entries;
                entries.sort_unstable_by(|(left, _), (right, _)| key_order(left, right));
                Some(Rewrite::Entries { entries, end })
            }
            None => None,
        };
        (Seen { start, chain: Some(map.chain), marks, refused }, rewrite)
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
            chain: Chain::Object,
            prototype: None,
            marks: Marks::default(),
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

    /// The keys so far.
    fn keys(&mut self) -> &HashSet<Cow<'a, str>> {
        self.seen.get_or_insert_with(|| self.entries.iter().map(|(key, _)| key.clone()).collect())
    }

    /// Assigns a value to the current key. Returns why the map cannot be encoded because of it.
    fn assign(&mut self, data: &[u8], seen: Seen) -> Result<Option<Error>, Error> {
        let key = std::mem::take(&mut self.key);
        let at = self.key_start;
        let duplicate = |key: &str| Error::decode(format!("the map key {key:?} stands twice"), at);
        if key == "__proto__" {
            self.dropped = true;
            if self.chain != Chain::Null {
                self.chain = seen.chain.unwrap_or(self.chain);
            } else if self.prototype.is_some() {
                return Err(duplicate(&key));
            } else {
                self.prototype = Some((seen.chain, seen.marks));
            }
            return Ok(None);
        }
        let (blocks, swallows) = (self.chain.blocks(&key), self.chain.swallows(&key));
        if (blocks || swallows) && self.keys().contains(&key) {
            return Err(duplicate(&key));
        }
        if blocks {
            return Err(Error::decode(format!("the map key {key:?} cannot be set behind such a __proto__"), at));
        }
        if swallows {
            self.dropped = true;
            return Ok(None);
        }
        if self.entries.last().is_some_and(|(last, _)| key_order(last, &key).is_ge()) {
            self.sorted = false;
            self.keys();
        }
        if let Some(keys) = &mut self.seen
            && !keys.insert(key.clone())
        {
            return Err(duplicate(&key));
        }
        match &*key {
            "/" => self.marks.slash = Some(mark(data, seen.start)?),
            "bytes" => self.marks.bytes = Some(mark(data, seen.start)?),
            _ => {}
        }
        self.entries.push((key, seen.start));
        Ok(seen.refused)
    }
}

/// The mark of the value at `start`, which was read before.
fn mark(data: &[u8], start: usize) -> Result<Mark, Error> {
    let (token, _) = token(data, start)?;
    Ok(token.comparable().map_or(Mark::Other, Mark::Scalar))
}

/// A map's entries that are still to be written.
enum Writing<'r, 'a> {
    /// They stand one behind the other.
    InPlace { remaining: u64, is_map: bool },
    /// They are picked out; afterwards the input goes on at `end`.
    Picked { entries: std::slice::Iter<'r, (Cow<'a, str>, usize)>, end: usize },
}

/// The second pass.
fn write(data: &[u8], rewrites: &HashMap<usize, Rewrite<'_>>) -> Result<Vec<u8>, Error> {
    let mut writer = Writer::new();
    let mut stack: Vec<Writing<'_, '_>> = Vec::new();
    let mut at = 0;
    loop {
        let start = at;
        let (token, end) = token(data, start)?;
        at = end;
        match (&token, rewrites.get(&start)) {
            (Token::Map(_), Some(Rewrite::Entries { entries, end })) => {
                writer.item(Item::Map(entries.len()));
                stack.push(Writing::Picked { entries: entries.iter(), end: *end });
            }
            (Token::Map(_), Some(Rewrite::Link { at: link, end })) => {
                if let (Token::Link(cid), _) = self::token(data, *link)? {
                    writer.item(Item::Link(&cid));
                }
                at = *end;
            }
            (Token::Map(count), None) => {
                writer.item(Item::Map(*count as usize));
                stack.push(Writing::InPlace { remaining: *count, is_map: true });
            }
            (Token::List(count), _) => {
                writer.item(Item::List(*count as usize));
                stack.push(Writing::InPlace { remaining: *count, is_map: false });
            }
            (Token::Null, _) => writer.item(Item::Null),
            (Token::Bool(value), _) => writer.item(Item::Bool(*value)),
            (Token::Integer(value), _) => writer.item(Item::Integer(*value)),
            (Token::Float(value), _) => writer.item(Item::Float(*value)),
            (Token::Text(value), _) => writer.item(Item::Text(value)),
            (Token::Bytes(value), _) => writer.item(Item::Bytes(value)),
            (Token::Link(value), _) => writer.item(Item::Link(value)),
        }
        loop {
            match stack.last_mut() {
                None => return Ok(writer.finish()),
                Some(Writing::InPlace { remaining: 0, .. }) => {
                    stack.pop();
                }
                Some(Writing::InPlace { remaining, is_map }) => {
                    *remaining -= 1;
                    if *is_map && let (Token::Text(key), end) = self::token(data, at)? {
                        writer.item(Item::Text(&key));
                        at = end;
                    }
                    break;
                }
                Some(Writing::Picked { entries, end }) => match entries.next() {
                    Some((key, value)) => {
                        writer.item(Item::Text(key));
                        at = *value;
                        break;
                    }
                    None => {
                        at = *end;
                        stack.pop();
                    }
                },
            }
        }
    }
}
