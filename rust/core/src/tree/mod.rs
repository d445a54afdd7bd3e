//! The prolly tree (okra, version 3): a Merkle tree over entries in key order whose shape follows from its content.
//!
//! The rules are in the wire format, "Prolly tree". A [`Tree`] is immutable; what an insert leaves as it was is shared
//! with the tree it was made from. Level 1 and the levels above it are in memory. The leaves are in memory in a tree that
//! began with [`Tree::new`], and read through a loader in one that began with [`Tree::open`].
//!
//! A node is known by its level and its first key, and its range ends where the next node of its level begins. An entry is never
//! removed, so level-1 nodes are never either; above them a changed hash may split a node or merge it into its neighbour.

mod answer;
mod build;
mod diff;
mod fragment;
mod insert;
mod key;
mod node;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;

pub use answer::{decode_children, encode_children, lacking};
pub use diff::Diff;
pub use fragment::Fragment;
pub use key::Key;
pub use node::{ANCHOR_HASH, ChildrenCheck, Hash, Leaf, Node, check_children, is_boundary, leaf_hash};

use node::{describe, leaf_node, parent_hash};

/// What reads leaves that are not in memory: those with start <= key < end, ascending; an end of None is the end of the tree.
pub type Loader<'a, E> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<Vec<Leaf>, E> + 'a;

/// A node of level 1 or above, as its parent holds it.
#[derive(Debug, Clone)]
struct Branch {
    key: Key,
    hash: Hash,
    /// What it covers; None for a node of level 1 whose leaves are not in memory.
    block: Option<Arc<Block>>,
}

/// The children of a node. The level-0 anchor is not among the leaves: it is always the first of the anchor's.
#[derive(Debug)]
enum Block {
    Leaves(Box<[Leaf]>),
    Branches(Box<[Branch]>),
}

impl Branch {
    fn node(&self, level: u32) -> Node {
        Node { level, key: (!self.key.is_anchor()).then(|| self.key.clone()), hash: self.hash }
    }

    /// The children of a node of level 2 or above; none for one of level 1.
    fn branches(&self) -> &[Branch] {
        match self.block.as_deref() {
            Some(Block::Branches(branches)) => branches,
            Some(Block::Leaves(_)) | None => &[],
        }
    }

    /// Whether it begins a parent.
    fn is_first(&self) -> bool {
        self.key.is_anchor() || is_boundary(&self.hash)
    }
}

/// A node within a tree, and where its range ends.
#[derive(Clone, Copy)]
struct Place<'a> {
    branch: &'a Branch,
    end: Option<&'a Key>,
}

/// A prolly tree: immutable, cheap to clone, sharing structure with the trees it was made from.
#[derive(Debug, Clone)]
pub struct Tree {
    /// The root; that of an empty tree is kept as a level-1 anchor over no leaves.
    root: Branch,
    /// The root's level, 1 for an empty tree.
    height: u32,
    count: u64,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// The empty tree, which will keep its leaves in memory.
    pub fn new() -> Self {
        Self::empty(Some(Arc::new(Block::Leaves(Box::default()))))
    }

    fn empty(block: Option<Arc<Block>>) -> Self {
        let hash = parent_hash(&mut Vec::new(), std::iter::once(ANCHOR_HASH));
        Tree { root: Branch { key: Key::ANCHOR, hash, block }, height: 1, count: 0 }
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The root: the anchor of the only level that holds nothing else.
    pub fn root(&self) -> Node {
        if self.is_empty() { Node { level: 0, key: None, hash: ANCHOR_HASH } } else { self.root.node(self.height) }
    }

    /// The node of this level and first key (None or empty for the anchor), if there is one.
    ///
    /// # Errors
    ///
    /// The loader's, and [`Error::Tree`] when what it returns is not what the tree was made of.
    pub fn node<E: From<Error>>(
        &self,
        level: u32,
        key: Option<&[u8]>,
        load: &mut Loader<'_, E>,
    ) -> Result<Option<Node>, E> {
        let key = Key::from(key.unwrap_or_default());
        if level == 0 {
            if key.is_anchor() {
                return Ok(Some(Node { level, key: None, hash: ANCHOR_HASH }));
            }
            let leaves = self.leaves(self.place(1, &key), load)?;
            let found = leaves.binary_search_by(|leaf| leaf.key.cmp(&key)).ok();
            return Ok(found.map(|index| leaf_node(&leaves[index])));
        }
        Ok(self.branch(level, &key).map(|place| place.branch.node(level)))
    }

    /// The children of a node, None when there is no such node.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for level 0; the loader's, and [`Error::Tree`] when what it returns is not what the tree was
    /// made of.
    pub fn children<E: From<Error>>(
        &self,
        level: u32,
        key: Option<&[u8]>,
        load: &mut Loader<'_, E>,
    ) -> Result<Option<Vec<Node>>, E> {
        if level == 0 {
            return Err(Error::Invalid("a node of level 0 has no children".into()).into());
        }
        let Some(place) = self.branch(level, &Key::from(key.unwrap_or_default())) else {
            return Ok(None);
        };
        if level > 1 {
            return Ok(Some(place.branch.branches().iter().map(|child| child.node(level - 1)).collect()));
        }
        let leaves = self.leaves(place, load)?;
        let anchor = place.branch.key.is_anchor().then_some(Node { level: 0, key: None, hash: ANCHOR_HASH });
        Ok(Some(anchor.into_iter().chain(leaves.iter().map(leaf_node)).collect()))
    }

    /// All nodes of a level in their order, none above the root's.
    ///
    /// # Errors
    ///
    /// The loader's, and [`Error::Tree`] when what it returns is not what the tree was made of.
    pub fn nodes<E: From<Error>>(&self, level: u32, load: &mut Loader<'_, E>) -> Result<Vec<Node>, E> {
        if level > self.root().level {
            return Ok(Vec::new());
        }
        let mut branches = vec![&self.root];
        for _ in level.max(1)..self.height {
            branches = branches.into_iter().flat_map(Branch::branches).collect();
        }
        if level > 0 {
            return Ok(branches.into_iter().map(|branch| branch.node(level)).collect());
        }
        let mut nodes = vec![Node { level: 0, key: None, hash: ANCHOR_HASH }];
        for (index, branch) in branches.iter().enumerate() {
            let end = branches.get(index + 1).map(|next| &next.key);
            nodes.extend(self.leaves(Place { branch, end }, load)?.iter().map(leaf_node));
        }
        Ok(nodes)
    }

    /// The key of the node after this one on its level (1 and up), where its range ends; None for the last one, and for a
    /// level that the tree does not have.
    pub fn next_key(&self, level: u32, key: Option<&[u8]>) -> Option<Key> {
        let key = Key::from(key.unwrap_or_default());
        if level == 0 || level > self.height { None } else { self.place(level, &key).end.cloned() }
    }

    /// The last node of a level from 1 to the root's, None for another level.
    pub fn last(&self, level: u32) -> Option<Node> {
        if level == 0 || level > self.root().level {
            return None;
        }
        let mut branch = &self.root;
        for _ in level..self.height {
            branch = branch.branches().last()?;
        }
        Some(branch.node(level))
    }

    /// The node of a level (1 to the root's) whose range holds the key.
    fn place(&self, level: u32, key: &Key) -> Place<'_> {
        let mut place = Place { branch: &self.root, end: None };
        for _ in level..self.height {
            let children = place.branch.branches();
            let next = children.partition_point(|child| child.key <= *key);
            let Some(branch) = next.checked_sub(1).and_then(|index| children.get(index)) else {
                break;
            };
            place = Place { branch, end: children.get(next).map(|child| &child.key).or(place.end) };
        }
        place
    }

    /// The rows of level 1 (key and hash, ascending, the anchor's key being empty) that the insertion of these keys can have
    /// changed: for each, the node that holds it, and the one before, which the key may have cut off.
    pub fn level1<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Vec<(Key, Hash)> {
        let mut rows = BTreeMap::new();
        for key in keys {
            let holder = self.place(1, &Key::from(key)).branch;
            rows.insert(holder.key.clone(), holder.hash);
            if !holder.key.is_anchor() {
                let before = self.before(1, &holder.key);
                rows.insert(before.key.clone(), before.hash);
            }
        }
        rows.into_iter().collect()
    }

    /// The node of a level from 1 that has this very key.
    fn branch(&self, level: u32, key: &Key) -> Option<Place<'_>> {
        if level > self.root().level {
            return None;
        }
        Some(self.place(level, key)).filter(|place| place.branch.key == *key)
    }

    /// The leaves of a level-1 node without the anchor, from memory or checked against the node's hash.
    fn leaves<'a, E: From<Error>>(&self, place: Place<'a>, load: &mut Loader<'_, E>) -> Result<Cow<'a, [Leaf]>, E> {
        let Place { branch, end } = place;
        match branch.block.as_deref() {
            Some(Block::Leaves(leaves)) => Ok(Cow::Borrowed(leaves)),
            Some(Block::Branches(_)) => Ok(Cow::Borrowed(&[])),
            None if self.is_empty() => Ok(Cow::Borrowed(&[])),
            None => {
                let leaves = load(&branch.key, end.map(|end| &**end))?;
                check_leaves(branch, end, &leaves)?;
                Ok(Cow::Owned(leaves))
            }
        }
    }
}

/// The hash of the level-1 node with this key over these leaves.
fn leaves_hash(buffer: &mut Vec<u8>, key: &Key, leaves: &[Leaf]) -> Hash {
    let anchor = key.is_anchor().then_some(ANCHOR_HASH);
    parent_hash(buffer, anchor.into_iter().chain(leaves.iter().map(|leaf| leaf.hash)))
}

/// Holds loaded leaves against the level-1 node that they are to be the leaves of.
fn check_leaves(branch: &Branch, end: Option<&Key>, leaves: &[Leaf]) -> Result<(), Error> {
    let fail =
        |reason: &str| Err(Error::Tree(format!("the leaves loaded for {} {reason}", describe(1, Some(&branch.key)))));
    if !leaves.is_sorted_by(|left, right| left.key < right.key) {
        return fail("are not in ascending order");
    }
    // The hash is over the leaves' hashes alone: their keys are held against the node's range, which the first begins.
    let first = leaves.first().is_none_or(|leaf| branch.key.is_anchor() != (leaf.key == branch.key));
    let last = leaves.last().is_none_or(|leaf| end.is_none_or(|end| leaf.key < *end));
    if !first || !last {
        return fail("lie outside its range");
    }
    if leaves_hash(&mut Vec::new(), &branch.key, leaves) != branch.hash {
        return fail("do not hash to its hash: leaves and level 1 were stored by different commits, or are damaged");
    }
    Ok(())
}
