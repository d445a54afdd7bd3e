//! Reading one scalar, or the head of a list or map, from whatever canvas-js accepts.

use super::float::from_half;
use super::head::{Head, Major, read};
use crate::error::Error;

/// The bytes of a string, of bytes or of a link, and where they end.
pub(super) fn take<'a>(data: &'a [u8], head: &Head) -> Result<(&'a [u8], usize), Error> {
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

/// A scalar, normalised, or the head of a list or map. Strings and links as the caller reads them.
pub(super) enum Token<'a, T, L> {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(T),
    Bytes(&'a [u8]),
    Link(L),
    List(u64),
    Map(u64),
}

/// The token at `at`, and its end. `text` reads the bytes of a string, `link` those of a CID.
///
/// # Errors
/// [`Error::Decode`] with the place, for what canvas-js refuses.
#[inline]
pub(super) fn read_token<'a, T, L>(
    data: &'a [u8],
    at: usize,
    text: impl Fn(&'a [u8]) -> T,
    link: impl Fn(&'a [u8]) -> Result<L, Error>,
) -> Result<(Token<'a, T, L>, usize), Error> {
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
            let link = link(binary).map_err(|error| match error {
                Error::Decode { reason, offset } => {
                    Error::Decode { reason, offset: offset.map(|offset| inner.end + 1 + offset) }
                }
                other => other,
            })?;
            (Token::Link(link), end)
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
