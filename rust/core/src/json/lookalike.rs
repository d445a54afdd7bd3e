//! Maps that have the text of a link or of bytes.
//!
//! dag-json has no other text for a map `{"/": "<CID>"}` than for the link, and for `{"/": {"bytes": "<base64>"}}` than for the bytes. So
//! a signature over that text holds for both.

use data_encoding::BASE64_NOPAD;

use crate::cbor::events::{Events, events};
use crate::cbor::{Item, Writer};
use crate::cid;

/// The start of such a map in canonical bytes: a map of one entry with the key `/`.
const OPENING: [u8; 3] = [0xa1, 0x61, b'/'];

/// Canonical dag-cbor in which every map that has the text of a link or of bytes is that link or those bytes; none where there is no such
/// map.
///
/// `canonical` must be canonical; of other bytes the result means nothing.
pub fn resolve(canonical: &[u8]) -> Option<Vec<u8>> {
    if !canonical.windows(OPENING.len()).any(|window| window == OPENING) {
        return None;
    }
    let mut resolved: Option<Writer> = None;
    let mut copied = 0;
    let mut items = events(canonical);
    loop {
        let start = items.position();
        match items.next_item() {
            Ok(Some(Item::Map(1))) => {
                let mut ahead = items.clone();
                if let Some(value) = reserved(&mut ahead) {
                    let writer = resolved.get_or_insert_with(Writer::new);
                    writer.raw(&canonical[copied..start]);
                    writer.item(value.item());
                    items = ahead;
                    copied = items.position();
                }
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    let mut writer = resolved?;
    writer.raw(&canonical[copied..]);
    Some(writer.finish())
}

/// What a map stands for.
enum Reserved {
    Link(Vec<u8>),
    Bytes(Vec<u8>),
}

impl Reserved {
    fn item(&self) -> Item<'_> {
        match self {
            Self::Link(link) => Item::Link(link),
            Self::Bytes(bytes) => Item::Bytes(bytes),
        }
    }
}

/// What the entry of a map of one stands for whose text is that of a link or of bytes, to the letter.
fn reserved(entry: &mut Events<'_>) -> Option<Reserved> {
    let Ok(Some(Item::Text("/"))) = entry.next_item() else {
        return None;
    };
    match entry.next_item() {
        Ok(Some(Item::Text(text))) => {
            // Other multibases are read, but never written.
            let link = text.starts_with(['b', 'Q']).then(|| cid::parse(text).ok()).flatten()?;
            (cid::format(&link).ok()? == text).then_some(Reserved::Link(link))
        }
        Ok(Some(Item::Map(1))) => {
            let (Ok(Some(Item::Text("bytes"))), Ok(Some(Item::Text(text)))) = (entry.next_item(), entry.next_item())
            else {
                return None;
            };
            // The decoder takes one text for each sequence of bytes.
            BASE64_NOPAD.decode(text.as_bytes()).ok().map(Reserved::Bytes)
        }
        _ => None,
    }
}
