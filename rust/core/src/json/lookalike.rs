//! Values that have the text of others.
//!
//! dag-json has no other text for a map `{"/": "<CID>"}` than for the link, and for `{"/": {"bytes": "<base64>"}}` than for the bytes. So
//! a signature over that text holds for both. And some links have a text that is read as no link, or as another one: a version 0 whose
//! base58 does not begin with `Q`.

use data_encoding::BASE64_NOPAD;

use crate::cbor::events::{Events, events};
use crate::cbor::{Item, Writer};
use crate::cid;

/// The start of such a map in canonical bytes: a map of one entry with the key `/`.
const OPENING: [u8; 3] = [0xa1, 0x61, b'/'];
/// The start of a map that looks as bytes do: the same, with a map of one entry with the key `bytes`.
const BYTES: [u8; 10] = *b"\xa1\x61/\xa1\x65bytes";
/// The start of a link.
const LINK: [u8; 2] = [0xd8, 0x2a];
/// How links of version 0 begin that are usual: SHA-256, 32 bytes of digest. Their text begins with `Qm`.
const USUAL: [u8; 2] = [0x12, 0x20];
const USUAL_LENGTH: usize = 34;

/// Canonical dag-cbor in which every value is what its text in dag-json is read as: a map that has the text of a link or of bytes is that
/// link or those bytes, and a link with a text of something else is that. None where all values are that already.
///
/// `canonical` must be canonical; of other bytes the result means nothing.
pub fn resolve(canonical: &[u8]) -> Option<Vec<u8>> {
    if !has(canonical, &OPENING) && !has(canonical, &LINK) {
        return None;
    }
    let mut resolved: Option<Writer> = None;
    let mut copied = 0;
    let mut items = events(canonical);
    loop {
        let start = items.position();
        let value = match items.next_item() {
            Ok(Some(Item::Map(1))) => {
                let mut ahead = items.clone();
                let value = reserved(&mut ahead);
                if value.is_some() {
                    items = ahead;
                }
                value
            }
            Ok(Some(Item::Link(link))) => misread(link),
            Ok(Some(_)) => None,
            Ok(None) | Err(_) => break,
        };
        if let Some(value) = value {
            let writer = resolved.get_or_insert_with(Writer::new);
            writer.raw(&canonical[copied..start]);
            value.write(writer);
            copied = items.position();
        }
    }
    let mut writer = resolved?;
    writer.raw(&canonical[copied..]);
    Some(writer.finish())
}

/// Whether the text of these canonical bytes in dag-json is read by nobody: a map in it looks as bytes do, and holds no base64.
pub fn is_unreadable(canonical: &[u8]) -> bool {
    if !has(canonical, &BYTES) {
        return false;
    }
    let mut items = events(canonical);
    while let Ok(Some(item)) = items.next_item() {
        if matches!(item, Item::Map(1)) && looks_as_bytes(&mut items.clone()) && reserved(&mut items.clone()).is_none()
        {
            return true;
        }
    }
    false
}

fn has(canonical: &[u8], opening: &[u8]) -> bool {
    canonical.windows(opening.len()).any(|window| window == opening)
}

fn looks_as_bytes(entry: &mut Events<'_>) -> bool {
    matches!(entry.next_item(), Ok(Some(Item::Text("/"))))
        && matches!(entry.next_item(), Ok(Some(Item::Map(1))))
        && matches!(entry.next_item(), Ok(Some(Item::Text("bytes"))))
}

/// What a text is read as.
enum Meaning {
    Link(Vec<u8>),
    Bytes(Vec<u8>),
    /// A map of `/` and this text.
    Map(String),
}

impl Meaning {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Link(link) => writer.item(Item::Link(link)),
            Self::Bytes(bytes) => writer.item(Item::Bytes(bytes)),
            Self::Map(text) => {
                writer.raw(&OPENING);
                writer.item(Item::Text(text));
            }
        }
    }
}

/// The link that has this text, to the letter. Other multibases are read, but never written.
fn link_of(text: &str) -> Option<Vec<u8>> {
    let link = text.starts_with(['b', 'Q']).then(|| cid::parse(text).ok()).flatten()?;
    (cid::format(&link).ok()? == text).then_some(link)
}

/// What the text of a link is read as; none if it is this link, or has no text.
fn misread(link: &[u8]) -> Option<Meaning> {
    if (link.len() == USUAL_LENGTH && link.starts_with(&USUAL)) || !cid::is_version_0(link) && cid::is_normalized(link)
    {
        return None;
    }
    let text = cid::format(link).ok()?;
    match link_of(&text) {
        Some(read) if read == link => None,
        Some(read) => Some(Meaning::Link(read)),
        None => Some(Meaning::Map(text)),
    }
}

/// What the entry of a map of one stands for whose text is that of a link or of bytes, to the letter.
fn reserved(entry: &mut Events<'_>) -> Option<Meaning> {
    let Ok(Some(Item::Text("/"))) = entry.next_item() else {
        return None;
    };
    match entry.next_item() {
        Ok(Some(Item::Text(text))) => link_of(text).map(Meaning::Link),
        Ok(Some(Item::Map(1))) => {
            let (Ok(Some(Item::Text("bytes"))), Ok(Some(Item::Text(text)))) = (entry.next_item(), entry.next_item())
            else {
                return None;
            };
            // The decoder takes one text for each sequence of bytes.
            BASE64_NOPAD.decode(text.as_bytes()).ok().map(Meaning::Bytes)
        }
        _ => None,
    }
}
