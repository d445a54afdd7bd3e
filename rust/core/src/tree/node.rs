//! Nodes by value, their hashes, and the rules that an answer from another peer is held against.

use super::Key;
use crate::error::Error;

/// The first 16 bytes of a BLAKE3 hash (K of the wire format, "Prolly tree").
pub type Hash = [u8; 16];

/// The hash of the level-0 anchor: that of no bytes.
pub const ANCHOR_HASH: Hash =
    [0xaf, 0x13, 0x49, 0xb9, 0xf5, 0xf9, 0xa1, 0xa6, 0xa0, 0x40, 0x4d, 0xea, 0x36, 0xdc, 0xc9, 0x49];

/// A hash is a boundary when its first four bytes, big-endian, are below this: one in Q = 32.
const BOUNDARY: u32 = 1 << 27;

/// An entry as the tree sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The entry's key, not empty.
    pub key: Key,
    /// The hash of key and value, see [`leaf_hash`].
    pub hash: Hash,
}

/// A node of any level, by value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// 0 for leaves.
    pub level: u32,
    /// The first key that the node covers; None for the anchor of its level.
    pub key: Option<Key>,
    /// The hash of the entry at level 0, of the children's hashes above.
    pub hash: Hash,
}

/// The hash of an entry.
pub fn leaf_hash(key: &[u8], value: &[u8]) -> Hash {
    const STACK: usize = 512;
    let total = 8 + key.len() + value.len();
    // One call over joined bytes costs half of what four updates cost.
    if total <= STACK {
        let mut joined = [0; STACK];
        let (head, rest) = joined.split_at_mut(4);
        head.copy_from_slice(&length(key));
        let (head, rest) = rest.split_at_mut(key.len());
        head.copy_from_slice(key);
        let (head, rest) = rest.split_at_mut(4);
        head.copy_from_slice(&length(value));
        rest[..value.len()].copy_from_slice(value);
        return truncate(blake3::hash(&joined[..total]));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&length(key)).update(key).update(&length(value)).update(value);
    truncate(hasher.finalize())
}

/// The length as the hash of a leaf takes it; entries are far shorter than 4 GiB.
fn length(bytes: &[u8]) -> [u8; 4] {
    (bytes.len() as u32).to_be_bytes()
}

fn truncate(hash: blake3::Hash) -> Hash {
    let mut first = [0; 16];
    first.copy_from_slice(&hash.as_bytes()[..16]);
    first
}

/// Whether a node with this hash, unless it is an anchor, begins a parent.
pub fn is_boundary(hash: &Hash) -> bool {
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) < BOUNDARY
}

/// The hash of a parent of children with these hashes, joined in `buffer`.
pub(super) fn parent_hash(buffer: &mut Vec<u8>, hashes: impl Iterator<Item = Hash>) -> Hash {
    buffer.clear();
    hashes.for_each(|hash| buffer.extend_from_slice(&hash));
    truncate(blake3::hash(buffer))
}

/// Holds an untrusted answer to GetChildren against the rules of the tree.
///
/// `end` is the key at which the parent's range ends (exclusive), None at the end of the tree.
///
/// # Errors
///
/// [`Error::Tree`]: a parent of level 0 or an empty answer; a child whose level is not the parent's less one, whose key is
/// not in the range or not above the one before; a first child that has not the parent's key, or is no boundary; another
/// that is one; hashes that do not hash to the parent's.
pub fn check_children(parent: &Node, end: Option<&[u8]>, children: &[Node]) -> Result<(), Error> {
    let name = || format!("the children of {}", describe(parent.level, parent.key.as_ref()));
    let fail = |reason: String| Err(Error::Tree(format!("{}: {reason}", name())));
    let Some(level) = parent.level.checked_sub(1) else {
        return fail("a leaf has none".into());
    };
    let Some(first) = children.first() else {
        return fail("there are none, expected at least one".into());
    };
    if first.key != parent.key {
        return fail(format!("the first is {}, expected the parent's key", describe(first.level, first.key.as_ref())));
    }
    for (index, child) in children.iter().enumerate() {
        let named = || describe(child.level, child.key.as_ref());
        if child.level != level {
            return fail(format!("{} has level {}, expected {level}", named(), child.level));
        }
        match &child.key {
            None if index > 0 => return fail(format!("number {index} has no key")),
            None if level == 0 && child.hash != ANCHOR_HASH => {
                return fail("the anchor's hash is not that of no bytes".into());
            }
            None => {}
            Some(key) if key.is_anchor() => return fail(format!("number {index} has an empty key")),
            Some(key) => {
                if index > 0 && children[index - 1].key.as_ref().is_some_and(|before| before >= key) {
                    return fail(format!("{} is not above the one before it", named()));
                }
                if end.is_some_and(|end| &**key >= end) {
                    return fail(format!("{} is not below the end of the parent's range", named()));
                }
                if is_boundary(&child.hash) != (index == 0) {
                    let wrong = if index == 0 {
                        "is no boundary, as the first must be"
                    } else {
                        "is a boundary, and not the first"
                    };
                    return fail(format!("{} {wrong}", named()));
                }
            }
        }
    }
    if parent_hash(&mut Vec::new(), children.iter().map(|child| child.hash)) != parent.hash {
        return fail("they do not hash to the parent's hash".into());
    }
    Ok(())
}

pub(super) fn describe(level: u32, key: Option<&Key>) -> String {
    format!("the node {} at level {level}", key.unwrap_or(&Key::ANCHOR))
}

pub(super) fn leaf_node(leaf: &Leaf) -> Node {
    Node { level: 0, key: Some(leaf.key.clone()), hash: leaf.hash }
}
