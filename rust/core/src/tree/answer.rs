//! Nodes on their way between two trees: the bytes of an answer to GetChildren, and what of it the other side lacks.
//!
//! The bytes are the protobuf message `Response.GetChildren` of the wire format, "Frames": a field 1 for each node, which
//! holds the level (field 1, left out when it is 0), the key (field 2, left out for the anchor) and the hash (field 3).

use super::{Hash, Key, Leaf, Node, Tree};
use crate::error::Error;
use crate::id::KEY_LENGTH;

const CHILD: u8 = 0x0a;
const LEVEL: u8 = 0x08;
const KEY: u8 = 0x12;
const HASH: u8 = 0x1a;
/// The largest level that is decoded: a root's is 64 at most, so its children's are not above.
const MAX_LEVEL: u8 = 63;
/// What a child takes that is no message: the anchor, or one of a level above 0 with a key of the usual length.
const USUAL_SIZE: usize = 44;

/// The bytes of an answer of these nodes.
pub fn encode_children(nodes: &[Node]) -> Vec<u8> {
    let mut out = Vec::with_capacity(nodes.len() * USUAL_SIZE);
    let mut child = Vec::with_capacity(USUAL_SIZE);
    for node in nodes {
        child.clear();
        if node.level > 0 {
            child.push(LEVEL);
            write_varint(node.level as usize, &mut child);
        }
        if let Some(key) = &node.key {
            write_field(KEY, key, &mut child);
        }
        write_field(HASH, &node.hash, &mut child);
        write_field(CHILD, &child, &mut out);
    }
    out
}

/// The nodes of an answer in the form that [`encode_children`] writes, with keys of the usual length. None is for bytes in
/// another form, which may be valid protobuf or not: they are for a general parser.
pub fn decode_children(mut data: &[u8]) -> Option<Vec<Node>> {
    let mut nodes = Vec::with_capacity(data.len() / USUAL_SIZE + 1);
    while !data.is_empty() {
        let (child, rest) = field(CHILD, data)?;
        nodes.push(decode_child(child)?);
        data = rest;
    }
    Some(nodes)
}

fn decode_child(mut data: &[u8]) -> Option<Node> {
    let mut level = 0;
    if let [LEVEL, byte @ 1..=MAX_LEVEL, rest @ ..] = data {
        level = u32::from(*byte);
        data = rest;
    }
    let mut key = None;
    if data.first() == Some(&KEY) {
        let (bytes, rest) = field(KEY, data)?;
        key = (bytes.len() == KEY_LENGTH).then(|| Key::from(bytes));
        key.as_ref()?;
        data = rest;
    }
    let (hash, rest) = field(HASH, data)?;
    rest.is_empty().then_some(Node { level, key, hash: Hash::try_from(hash).ok()? })
}

/// What is in a field at the beginning of the data, which has this tag and less than 128 bytes, and what follows it.
fn field(tag: u8, data: &[u8]) -> Option<(&[u8], &[u8])> {
    match data {
        [first, length @ ..=0x7f, rest @ ..] if *first == tag => rest.split_at_checked(usize::from(*length)),
        _ => None,
    }
}

fn write_field(tag: u8, data: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    write_varint(data.len(), out);
    out.extend_from_slice(data);
}

fn write_varint(mut number: usize, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The keys of those leaves that are not stored. Both ascend; of the nodes, only the anchor has no key.
///
/// # Errors
///
/// [`Error::Tree`]: a leaf that is stored with another hash.
pub fn lacking<'a>(leaves: &'a [Node], stored: &[Leaf]) -> Result<Vec<&'a Key>, Error> {
    let mut keys = Vec::new();
    let mut stored = stored.iter().peekable();
    for leaf in leaves {
        let Some(key) = &leaf.key else {
            continue;
        };
        while stored.next_if(|own| own.key < *key).is_some() {}
        match stored.next_if(|own| own.key == *key) {
            None => keys.push(key),
            Some(own) if own.hash == leaf.hash => {}
            Some(_) => {
                return Err(Error::Tree(format!(
                    "the leaf {key} has another hash than the one that is stored locally"
                )));
            }
        }
    }
    Ok(keys)
}

impl Tree {
    /// Those of the nodes, of one level from 1, that this tree does not have, each with the key where its range ends.
    ///
    /// `end` is where the last one's does, None at the end of the tree.
    pub fn differing<'a>(&self, nodes: &'a [Node], end: Option<&'a [u8]>) -> Vec<(&'a Node, Option<&'a [u8]>)> {
        let ends = nodes.iter().skip(1).map(|node| node.key.as_deref()).chain([end]);
        let own = |node: &Node| self.branch(node.level, node.key.as_ref().unwrap_or(&Key::ANCHOR));
        nodes.iter().zip(ends).filter(|(node, _)| own(node).is_none_or(|own| own.branch.hash != node.hash)).collect()
    }
}
