//! Recognising canonical bytes in one pass, the fast path of nearly every message.

use super::head::{Major, read};
use super::{MAX_DEPTH, float};
use crate::cid;

/// An open list or map.
struct Open {
    /// The items still to come; a map's key and value are one each.
    remaining: u64,
    /// For a map: where its last key's bytes stand.
    last_key: Option<(usize, usize)>,
    /// For a map: where the value of its key `/` stands.
    slash: Option<(usize, usize)>,
    is_map: bool,
}

/// Where the canonical item at `at` ends; none if it is anything but canonical (broken, refused, or merely accepted).
///
/// `open` is how many lists and maps around it are open already.
pub fn scan(data: &[u8], at: usize, open: usize) -> Option<usize> {
    let mut stack: Vec<Open> = Vec::new();
    let mut at = at;
    loop {
        let start = at;
        let (end, children) = scalar(data, start)?;
        at = end;
        if let Some((count, is_map)) = children {
            if stack.len() + open >= MAX_DEPTH {
                return None;
            }
            stack.push(Open { remaining: count, last_key: None, slash: None, is_map });
        } else if let Some(map) = stack.last_mut().filter(|top| top.is_map) {
            check_slash(map, data, start, end)?;
        }
        // Close what is complete; then, in a map, read the next key.
        loop {
            let Some(top) = stack.last_mut() else {
                return Some(at);
            };
            if top.remaining > 0 {
                top.remaining -= 1;
                if top.is_map {
                    at = key(top, data, at)?;
                }
                break;
            }
            stack.pop();
        }
    }
}

/// The end of a scalar, or the end of a head with the number of entries.
#[inline]
fn scalar(data: &[u8], at: usize) -> Option<(usize, Option<(u64, bool)>)> {
    let head = read(data, at).ok()?;
    let take = |from: usize, length: u64| {
        let end = from.checked_add(usize::try_from(length).ok()?)?;
        data.get(from..end).map(|slice| (slice, end))
    };
    let end = match head.major {
        Major::Unsigned | Major::Negative => head.end,
        Major::Bytes => take(head.end, head.argument)?.1,
        Major::Text => {
            let (text, end) = take(head.end, head.argument)?;
            canonical_text(text)?;
            end
        }
        Major::List => return Some((head.end, Some((head.argument, false)))),
        Major::Map => return Some((head.end, Some((head.argument, true)))),
        Major::Tag => {
            let inner = read(data, head.end).ok()?;
            if head.argument != 42 || inner.major != Major::Bytes {
                return None;
            }
            let (link, end) = take(inner.end, inner.argument)?;
            let (zero, cid) = link.split_first()?;
            if *zero != 0 || !cid::is_normalized(cid) {
                return None;
            }
            end
        }
        Major::Simple => match head.info {
            20..=22 => head.end,
            27 => {
                let value = f64::from_bits(head.argument);
                if !value.is_finite() || float::canonical(value).is_some() {
                    return None;
                }
                head.end
            }
            _ => return None,
        },
    };
    Some((end, None))
}

fn canonical_text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.starts_with('\u{feff}')).then_some(text)
}

fn key(map: &mut Open, data: &[u8], at: usize) -> Option<usize> {
    let head = read(data, at).ok()?;
    let end = head.end.checked_add(usize::try_from(head.argument).ok()?)?;
    let text = canonical_text(data.get(head.end..end)?)?;
    if head.major != Major::Text || text == "__proto__" {
        return None;
    }
    if let Some((from, to)) = map.last_key {
        let last = &data[from..to];
        let ascends = last.len() < text.len() || (last.len() == text.len() && last < text.as_bytes());
        if !ascends {
            return None;
        }
    }
    map.last_key = Some((head.end, end));
    Some(end)
}

/// Remembers the scalar of `/`, and refuses that of `bytes` if it is the same: canvas-js takes such a map for a link.
fn check_slash(map: &mut Open, data: &[u8], start: usize, end: usize) -> Option<()> {
    let (from, to) = map.last_key?;
    // Links, and bytes but for empty ones, are never the same to canvas-js; null counts as absent.
    let comparable = matches!(data[start] >> 5, 0 | 1 | 3) || matches!(data[start], 0x40 | 0xf4 | 0xf5 | 0xfb);
    match &data[from..to] {
        b"/" if comparable => map.slash = Some((start, end)),
        b"bytes" if map.slash.is_some_and(|(a, b)| data[a..b] == data[start..end]) => return None,
        _ => {}
    }
    Some(())
}
