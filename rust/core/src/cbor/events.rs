//! Reading canonical bytes, item by item, in the order in which they stand.

use super::head::{Major, read};
use super::write::Item;
use crate::error::Error;

/// The items of canonical dag-cbor, lists and maps as heads before what they hold.
///
/// Bytes that [`super::scan`] has not approved give errors or unnormalised items, never a panic.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    data: &'a [u8],
    at: usize,
}

/// The items of `data`.
pub fn events(data: &[u8]) -> Events<'_> {
    Events { data, at: 0 }
}

impl<'a> Events<'a> {
    /// Where the next item begins.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Goes on from `position`, where an item begins.
    pub fn seek(&mut self, position: usize) {
        self.at = position.min(self.data.len());
    }

    /// The next item, or none at the end.
    ///
    /// # Errors
    /// [`Error::Decode`] for what is not canonical.
    pub fn next_item(&mut self) -> Result<Option<Item<'a>>, Error> {
        if self.at >= self.data.len() {
            return Ok(None);
        }
        let start = self.at;
        let head = read(self.data, start)?;
        self.at = head.end;
        let item = match head.major {
            Major::Unsigned => Item::Integer(i128::from(head.argument)),
            Major::Negative => Item::Integer(-1 - i128::from(head.argument)),
            Major::Bytes => Item::Bytes(self.take(head.argument)?),
            Major::Text => Item::Text(
                std::str::from_utf8(self.take(head.argument)?)
                    .map_err(|_| Error::decode("a string is not UTF-8", start))?,
            ),
            Major::List => Item::List(head.argument as usize),
            Major::Map => Item::Map(head.argument as usize),
            Major::Tag => {
                let inner = read(self.data, head.end)?;
                self.at = inner.end;
                match (head.argument, inner.major, self.take(inner.argument)?.split_first()) {
                    (42, Major::Bytes, Some((0, cid))) => Item::Link(cid),
                    _ => return Err(Error::decode("a tag that is no link", start)),
                }
            }
            Major::Simple => match head.info {
                20 => Item::Bool(false),
                21 => Item::Bool(true),
                22 => Item::Null,
                27 => Item::Float(f64::from_bits(head.argument)),
                _ => return Err(Error::decode("a constant that is not canonical", start)),
            },
        };
        Ok(Some(item))
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Error> {
        let rest = &self.data[self.at..];
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let taken = taken.ok_or_else(|| Error::decode("the input ends within an item", self.data.len()))?;
        self.at += taken.len();
        Ok(taken)
    }
}
