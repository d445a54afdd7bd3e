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
    let mut check = ChildrenCheck::new(parent.clone(), end)?;
    check.add(children)?;
    check.finish()
}

/// [`check_children`] for an answer that comes in parts: it holds none of them.
#[derive(Debug)]
pub struct ChildrenCheck {
    parent: Node,
    level: u32,
    end: Option<Key>,
    count: usize,
    last: Option<Key>,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
}

impl ChildrenCheck {
    /// For the children of a node whose range ends at `end` (exclusive), None at the end of the tree.
    ///
    /// # Errors
    ///
    /// [`Error::Tree`]: a parent of level 0.
    pub fn new(parent: Node, end: Option<&[u8]>) -> Result<Self, Error> {
        let Some(level) = parent.level.checked_sub(1) else {
            return Err(Error::Tree(format!("{}: a leaf has none", children_of(&parent))));
        };
        let end = end.map(Key::from);
        Ok(Self { parent, level, end, count: 0, last: None, hasher: blake3::Hasher::new(), buffer: Vec::new() })
    }

    /// Takes the next children.
    ///
    /// # Errors
    ///
    /// As [`check_children`], but for what only the whole answer can show.
    pub fn add(&mut self, children: &[Node]) -> Result<(), Error> {
        self.buffer.clear();
        for child in children {
            self.check(child)?;
            self.count += 1;
            self.last.clone_from(&child.key);
            self.buffer.extend_from_slice(&child.hash);
        }
        self.hasher.update(&self.buffer);
        Ok(())
    }

    /// How many children there were.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether these are all of them.
    pub fn is_complete(&self) -> bool {
        self.count > 0 && truncate(self.hasher.finalize()) == self.parent.hash
    }

    /// Ends the answer.
    ///
    /// # Errors
    ///
    /// [`Error::Tree`]: there were none, or they do not hash to the parent's hash.
    pub fn finish(&self) -> Result<(), Error> {
        if self.count == 0 {
            return self.fail("there are none, expected at least one");
        }
        if !self.is_complete() {
            return self.fail("they do not hash to the parent's hash");
        }
        Ok(())
    }

    fn check(&self, child: &Node) -> Result<(), Error> {
        let named = || describe(child.level, child.key.as_ref());
        let is_first = self.count == 0;
        if is_first && child.key != self.parent.key {
            return self.fail(&format!("the first is {}, expected the parent's key", named()));
        }
        if child.level != self.level {
            return self.fail(&format!("{} has level {}, expected {}", named(), child.level, self.level));
        }
        let Some(key) = &child.key else {
            return match () {
                () if !is_first => self.fail(&format!("number {} has no key", self.count)),
                () if self.level == 0 && child.hash != ANCHOR_HASH => {
                    self.fail("the anchor's hash is not that of no bytes")
                }
                () => Ok(()),
            };
        };
        if key.is_anchor() {
            return self.fail(&format!("number {} has an empty key", self.count));
        }
        if self.last.as_ref().is_some_and(|before| before >= key) {
            return self.fail(&format!("{} is not above the one before it", named()));
        }
        if self.end.as_ref().is_some_and(|end| key >= end) {
            return self.fail(&format!("{} is not below the end of the parent's range", named()));
        }
        match (is_first, is_boundary(&child.hash)) {
            (true, false) => self.fail(&format!("{} is no boundary, as the first must be", named())),
            (false, true) => self.fail(&format!("{} is a boundary, and not the first", named())),
            _ => Ok(()),
        }
    }

    fn fail(&self, reason: &str) -> Result<(), Error> {
        Err(Error::Tree(format!("{}: {reason}", children_of(&self.parent))))
    }
}

fn children_of(parent: &Node) -> String {
    format!("the children of {}", describe(parent.level, parent.key.as_ref()))
}

pub(super) fn describe(level: u32, key: Option<&Key>) -> String {
    format!("the node {} at level {level}", key.unwrap_or(&Key::ANCHOR))
}

pub(super) fn leaf_node(leaf: &Leaf) -> Node {
    Node { level: 0, key: Some(leaf.key.clone()), hash: leaf.hash }
}
