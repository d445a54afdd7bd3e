//! Writing the canonical bytes of unusual values: the second pass of `unusual`.

use std::borrow::Cow;

use super::order::reserve;
use super::passing::{Form, MAX_PASSING_BYTES, Passing, Pending};
use super::token::{self, read_token};
use super::write::{Item, Writer};
use crate::cid;
use crate::error::Error;

/// How to write a map that is written neither as it stands nor by other entries.
#[derive(Debug)]
pub(super) enum Rewrite {
    /// As the link that stands there.
    Link(usize),
    /// As a link without bytes, which no link is read from.
    EmptyLink,
    /// As a link whose text is that of another version.
    Text(String),
    Bytes(Box<Pending>),
}

/// The maps that cannot be written as they stand.
///
/// Places take four bytes each, as in `order`: of many small maps a stranger's value can have, this is most of the memory.
#[derive(Debug, Default)]
pub(super) struct Rewrites {
    /// Where a map begins, above where `entries` or `others` say how it is written; ascending once all are there.
    maps: Vec<u64>,
    /// For each map that is written by entries: where it ends, how many they are, and where their keys stand.
    entries: Vec<u32>,
    /// The others, with where they end.
    others: Vec<(usize, Rewrite)>,
}

/// Set in what `maps` says of those in `others`.
const OTHER: u64 = 1 << 31;

impl Rewrites {
    /// Has the map from `start` to `end` written with the entries whose keys stand at these places.
    pub fn reorder(&mut self, start: usize, end: usize, keys: impl ExactSizeIterator<Item = u32>) {
        self.add(start, self.entries.len() as u64);
        reserve(&mut self.entries, 2 + keys.len());
        self.entries.extend([end as u32, keys.len() as u32]);
        self.entries.extend(keys);
    }

    /// Has the map from `start` to `end` written in another way.
    pub fn replace(&mut self, start: usize, end: usize, rewrite: Rewrite) {
        self.add(start, OTHER | self.others.len() as u64);
        reserve(&mut self.others, 1);
        self.others.push((end, rewrite));
    }

    fn add(&mut self, start: usize, how: u64) {
        reserve(&mut self.maps, 1);
        self.maps.push((start as u64) << 32 | how);
    }

    fn find(&self, start: usize) -> Option<How<'_>> {
        let at = self.maps.partition_point(|map| ((map >> 32) as usize) < start);
        let how = *self.maps.get(at).filter(|map| (**map >> 32) as usize == start)? & u64::from(u32::MAX);
        if how & OTHER != 0 {
            let (end, rewrite) = self.others.get((how & !OTHER) as usize)?;
            return Some(How::Other(*end, rewrite));
        }
        let [end, count, keys @ ..] = self.entries.get(how as usize..)? else { return None };
        Some(How::Entries { end: *end as usize, keys: keys.get(..*count as usize)? })
    }
}

enum How<'r> {
    Entries { end: usize, keys: &'r [u32] },
    Other(usize, &'r Rewrite),
}

/// A string as JavaScript's TextDecoder reads it: U+FFFD for what is not UTF-8, without one U+FEFF at its start.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Cow::Owned(text) => match text.strip_prefix('\u{feff}') {
            Some(rest) => Cow::Owned(rest.to_owned()),
            None => Cow::Owned(text),
        },
    }
}

/// A link is normalised, and whether it is of version 0 stands beside it.
pub(super) type Token<'a> = token::Token<'a, Cow<'a, str>, (Vec<u8>, bool)>;

pub(super) fn token(data: &[u8], at: usize) -> Result<(Token<'_>, usize), Error> {
    read_token(data, at, text, |cid| Ok((cid::normalize(cid)?, cid::has_version_0(cid))))
}

/// A map's entries that are still to be written.
enum Writing<'r> {
    /// They stand one behind the other.
    InPlace { remaining: u64, is_map: bool },
    /// They are picked out by their keys; afterwards the input goes on at `end`.
    Picked { keys: std::slice::Iter<'r, u32>, end: usize },
}

/// The text of a link whose bytes would be read, in dag-json, as those of another version.
pub(super) fn link_as_text(link: &[u8], as_version_0: bool, form: Form) -> Result<Option<String>, Error> {
    if form == Form::Cbor || as_version_0 == cid::is_version_0(link) {
        return Ok(None);
    }
    cid::format_as(link, as_version_0).map(Some)
}

/// Writes what dag-json does not distinguish from the link of this text.
fn write_text(writer: &mut Writer, text: &str) {
    writer.item(Item::Map(1));
    writer.item(Item::Text("/"));
    writer.item(Item::Text(text));
}

/// Refuses more bytes than all maps of a message together may pass for.
pub(super) fn check_total(total: u64, at: usize) -> Result<(), Error> {
    if total <= MAX_PASSING_BYTES {
        return Ok(());
    }
    Err(Error::decode(format!("maps that pass for more than {MAX_PASSING_BYTES} bytes"), at))
}

/// The canonical form of what was checked, and the maps in it that pass for bytes.
///
/// # Errors
/// [`Error::Decode`] for a link without text, and for maps that pass for too many bytes.
pub(super) fn write(data: &[u8], rewrites: &mut Rewrites, form: Form) -> Result<(Vec<u8>, Vec<Passing>), Error> {
    // They were added where they end.
    rewrites.maps.sort_unstable();
    let mut writer = Writer::new();
    let mut passing = Vec::new();
    let mut total = 0;
    let mut stack: Vec<Writing<'_>> = Vec::new();
    let mut at = 0;
    loop {
        let start = at;
        let (token, end) = token(data, start)?;
        at = end;
        let how = if matches!(token, Token::Map(_)) { rewrites.find(start) } else { None };
        match (&token, how) {
            (Token::Map(_), Some(How::Entries { end, keys })) => {
                writer.item(Item::Map(keys.len()));
                stack.push(Writing::Picked { keys: keys.iter(), end });
            }
            (Token::Map(_), Some(How::Other(end, rewrite))) => {
                match rewrite {
                    Rewrite::Link(link) => {
                        if let (Token::Link((cid, _)), _) = self::token(data, *link)? {
                            writer.item(Item::Link(&cid));
                        }
                    }
                    Rewrite::EmptyLink => writer.item(Item::Link(&[])),
                    Rewrite::Text(text) => write_text(&mut writer, text),
                    Rewrite::Bytes(pending) => {
                        total += pending.count;
                        check_total(total, start)?;
                        let base = match self::token(data, pending.data)? {
                            (Token::Bytes(base), _) => base,
                            _ => &[],
                        };
                        let (length, is_key) = (pending.length.clone(), pending.is_key);
                        passing.push(Passing { at: writer.position(), length, is_key });
                        writer.item(Item::Bytes(&pending.make(base)));
                    }
                }
                at = end;
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
            (Token::Link((value, is_version_0)), _) => match link_as_text(value, *is_version_0, form) {
                Ok(None) => writer.item(Item::Link(value)),
                Ok(Some(text)) => write_text(&mut writer, &text),
                Err(error) => return Err(Error::decode(error.to_string(), start)),
            },
        }
        loop {
            match stack.last_mut() {
                None => return Ok((writer.finish(), passing)),
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
                Some(Writing::Picked { keys, end }) => match keys.next() {
                    Some(key) => {
                        if let (Token::Text(key), end) = self::token(data, *key as usize)? {
                            writer.item(Item::Text(&key));
                            at = end;
                        }
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
