//! What the core does with bytes of a stranger, for any bytes: the targets of `make fuzz-rust`, and of `tests/fuzz.rs`.

use gossiplog_core::batch::{CheckedValue, check, fresh_order, outer_parents, verify_signatures};
use gossiplog_core::cbor::events::events;
use gossiplog_core::cbor::{Writer, normalize, scan};
use gossiplog_core::id::{self, Key};
use gossiplog_core::json;
use gossiplog_core::message::{Codec, Parsed, parse, sign};
use gossiplog_core::message_json::{MessageText, read_line, read_map};
use gossiplog_core::signature::SigningKey;
use gossiplog_core::tree::{Leaf, Node, Tree, check_children, decode_children, encode_children, lacking};

/// The topic of all messages.
pub const TOPIC: &str = "fuzz";

/// Reads dag-cbor: what is canonical stays as it is, and what is not becomes canonical.
pub fn cbor(data: &[u8]) {
    let mut items = events(data);
    while matches!(items.next_item(), Ok(Some(_))) {}
    let normalized = normalize(data);
    if scan(data, 0, 0) == Some(data.len()) {
        assert!(normalized.is_ok_and(|made| made == data), "canonical bytes were changed");
        written(data);
    } else if let Ok(made) = normalized
        // Some links of version 0 are accepted, and written as what is none.
        && scan(&made, 0, 0) == Some(made.len())
    {
        assert_eq!(normalize(&made).ok(), Some(made.clone()), "normalised twice");
        written(&made);
    }
}

/// Canonical bytes as dag-json, whole and in pieces, and read again.
fn written(canonical: &[u8]) {
    let mut whole = Vec::new();
    if json::write(canonical, &mut whole).is_err() {
        return;
    }
    if let Ok(mut text) = json::Text::new(canonical) {
        let (mut pieces, mut limit) = (Vec::new(), 1);
        while let Ok(false) = text.write(canonical, &mut pieces, limit) {
            limit = pieces.len() + 1;
        }
        assert!(pieces == whole, "pieces differ from the whole");
    }
    let meant = json::resolve(canonical);
    if let Some(meant) = &meant {
        let mut text = Vec::new();
        assert!(json::write(meant, &mut text).is_ok() && text == whole, "another text for what was resolved");
        assert_eq!(json::resolve(meant), None, "resolved twice");
    }
    if let Ok(read) = json::read(&whole) {
        let mut text = Vec::new();
        assert!(json::write(&read, &mut text).is_ok(), "what was read has no text");
    }
}

/// Reads dag-json: what comes out is canonical, and its text is read as the same.
pub fn json(data: &[u8]) {
    let Ok(read) = json::read(data) else { return };
    assert_eq!(scan(&read, 0, 0), Some(read.len()), "JSON is read as what is not canonical");
    let mut text = Vec::new();
    // Some links have no text that is written.
    if json::write(&read, &mut text).is_ok() {
        assert_eq!(json::read(&text).ok(), Some(read), "the text of what was read is read otherwise");
    }
    _ = read_map(data, Codec::Json);
    _ = read_line(data);
}

/// Verifies a stored value; of an odd first byte, one with the rest as its payload.
pub fn message(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if first % 2 == 0 {
        verify(rest);
        _ = read_map(rest, Codec::Cbor);
        return;
    }
    let codec = if first % 4 == 1 { Codec::Cbor } else { Codec::Json };
    let key = SigningKey::new(&[7; 32]);
    if let Ok((_, mut value)) = sign(TOPIC, 1, &[], &[0xf6], &key, codec) {
        value.pop();
        value.extend_from_slice(rest);
        verify(&value);
    }
}

fn verify(value: &[u8]) {
    if let Ok(parsed) = parse(value, TOPIC) {
        read(value, &parsed);
        if let Ok(mut text) = MessageText::new(value, parsed) {
            let (mut out, mut limit) = (Vec::new(), 1000);
            while let Ok(false) = text.write(value, &mut out, limit) {
                limit = out.len() + 1000;
            }
        }
    }
    let values = [value, value];
    let mut verdicts = check(&values, TOPIC);
    verify_signatures(&values, &mut verdicts);
    let count = verdicts.iter().filter(|verdict| matches!(verdict, CheckedValue::Fresh(_))).count();
    assert_eq!(fresh_order(&verdicts).len(), count);
    outer_parents(&values, &verdicts);
}

/// A message says the same in its canonical encoding.
fn read(value: &[u8], parsed: &Parsed) {
    let mut signed = Vec::new();
    let is_signed = parsed.signed_bytes(value, &mut signed).is_ok();
    _ = parsed.verify_parts(value);
    let content = parsed.content_key(value);
    assert_eq!(parsed.is_canonical(), content == parsed.key);
    let canonical = canonical(value, parsed);
    let Ok(again) = parse(&canonical, TOPIC) else {
        // A link that nobody reads again.
        return;
    };
    assert_eq!((again.key, again.content_key(&canonical)), (content, content), "another content");
    assert!(again.is_canonical() && again.payload(&canonical) == parsed.payload(value));
    let mut signed_again = Vec::new();
    if is_signed && again.signed_bytes(&canonical, &mut signed_again).is_ok() {
        assert!(signed == signed_again, "the canonical encoding is signed otherwise");
    }
}

/// The encoding that honest peers write.
fn canonical(value: &[u8], parsed: &Parsed) -> Vec<u8> {
    use gossiplog_core::cbor::Item;
    let mut writer = Writer::new();
    writer.item(Item::List(5));
    writer.item(Item::List(3));
    writer.item(Item::Text(parsed.codec.name()));
    writer.item(Item::Text(&parsed.did(value)));
    writer.item(Item::Bytes(parsed.signature(value)));
    writer.item(Item::Text(parsed.topic(value)));
    writer.item(Item::Integer(parsed.clock.into()));
    let parents: Vec<Key> = parsed.parents(value).collect();
    writer.item(Item::List(parents.len()));
    parents.iter().for_each(|parent| writer.item(Item::Bytes(parent)));
    writer.raw(parsed.payload(value));
    let made = writer.finish();
    assert_eq!(id::key(parsed.clock, &made).ok(), Some(parsed.content_key(value)), "another key");
    made
}

/// Reads an answer to GetChildren, and holds it against the rules and against what is stored.
pub fn answer(data: &[u8]) {
    let Some(nodes) = decode_children(data) else { return };
    assert!(encode_children(&nodes) == data, "another form");
    let Some(first) = nodes.first() else { return };
    let parent = Node { level: first.level + 1, key: first.key.clone(), hash: first.hash };
    let end = nodes.last().and_then(|node| node.key.as_deref());
    for end in [None, end] {
        _ = check_children(&parent, end, &nodes);
    }
    let stored = |node: &Node| node.key.clone().map(|key| Leaf { key, hash: node.hash });
    let mut leaves: Vec<Leaf> = nodes.iter().filter_map(stored).collect();
    _ = lacking(&nodes, &leaves);
    leaves.dedup_by(|left, right| left.key == right.key);
    if leaves.is_sorted_by(|left, right| left.key < right.key) {
        assert!(lacking(&nodes, &leaves).is_ok_and(|keys| keys.is_empty()) || leaves.len() < nodes.len());
    }
    _ = Tree::new().differing(&nodes, end);
}
