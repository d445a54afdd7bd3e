//! Associative fragments: a prolly tree's root from sorted runs of entries that are read apart, by several threads or machines.
//!
//! A fragment stands for a run of entries that are neighbours in key order. Which parent a node falls under is
//! decided by the last boundary before it (see [`is_boundary`]), so inside a run everything between two boundaries closes
//! locally, on all levels. What depends on the neighbours is little: on each level, the nodes before the first boundary,
//! whose parent begins further left, and the span after the last one, which may go on to the right. That is all that
//! a fragment holds, about 5 KB for a million entries.
//!
//! Joining is a concatenation, level by level from below. The right one's open start goes into the left one's open end.
//! If the right one has a boundary, it closes that end: this makes a node of the level above, which may itself be a
//! boundary there, and so on up. Joining is associative, and the empty fragment is its neutral element; the root comes from joining
//! onto the anchor, which begins a parent on every level.
//!
//! Source: the tree's own rules (wire format, "Prolly tree"), read as a monoid, in the manner of parallel prefix sums
//! (G. E. Blelloch, "Prefix Sums and Their Applications", 1990).

mod bytes;

use super::node::parent_hash;
use super::{ANCHOR_HASH, Hash, Key, Leaf, Node, is_boundary};
use crate::error::Error;

/// What a run of neighbouring entries contributes to a tree: immutable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragment {
    count: u64,
    /// The first and the last key; None without entries.
    range: Option<(Key, Key)>,
    spine: Spine,
}

/// The open ends of all levels, from 0; the level above one without a tail is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Spine(Vec<Level>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Level {
    /// The nodes before the first that begins a parent.
    prefix: Vec<Leaf>,
    /// The last parent, which is still open.
    tail: Option<Tail>,
}

/// A parent that more children may follow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tail {
    key: Key,
    /// Of its children; the first is a boundary, or the anchor.
    hashes: Vec<Hash>,
}

impl Tail {
    fn close(self, buffer: &mut Vec<u8>) -> Leaf {
        Leaf { hash: parent_hash(buffer, self.hashes.into_iter()), key: self.key }
    }
}

impl Spine {
    fn level(&mut self, level: usize) -> &mut Level {
        if self.0.len() <= level {
            self.0.resize_with(level + 1, Level::default);
        }
        &mut self.0[level]
    }

    /// Adds a node at the right end of a level, and what that closes on the levels above.
    fn push(&mut self, mut level: usize, mut node: Leaf, buffer: &mut Vec<u8>) {
        loop {
            let ends = self.level(level);
            if !node.key.is_anchor() && !is_boundary(&node.hash) {
                match &mut ends.tail {
                    Some(tail) => tail.hashes.push(node.hash),
                    None => ends.prefix.push(node),
                }
                return;
            }
            let Some(closed) = ends.tail.replace(Tail { key: node.key, hashes: vec![node.hash] }) else {
                return;
            };
            node = closed.close(buffer);
            level += 1;
        }
    }

    /// Adds another spine at the right end.
    fn append(&mut self, right: &Spine, buffer: &mut Vec<u8>) {
        for (level, ends) in right.0.iter().enumerate() {
            for node in &ends.prefix {
                self.push(level, node.clone(), buffer);
            }
            if let Some(tail) = &ends.tail
                && let Some(closed) = self.level(level).tail.replace(tail.clone())
            {
                self.push(level + 1, closed.close(buffer), buffer);
            }
        }
    }
}

impl Fragment {
    /// The fragment of these entries (key and leaf hash), whose keys must ascend.
    ///
    /// # Errors
    /// [`Error::Tree`]: an empty key, or one that is not above the one before it.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a [u8], Hash)>) -> Result<Self, Error> {
        let mut buffer = Vec::new();
        let mut spine = Spine::default();
        let mut count = 0;
        let (mut first, mut last): (Option<&[u8]>, &[u8]) = (None, &[]);
        for (key, hash) in entries {
            if key <= last {
                return Err(out_of_order(last, key));
            }
            first.get_or_insert(key);
            last = key;
            count += 1;
            spine.push(0, Leaf { key: key.into(), hash }, &mut buffer);
        }
        Ok(Self { count, range: first.map(|first| (first.into(), last.into())), spine })
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first and the last key; None without entries.
    pub fn range(&self) -> Option<(&Key, &Key)> {
        self.range.as_ref().map(|(first, last)| (first, last))
    }

    /// The fragment of this one's entries and of those of `right`, all of which must be above.
    ///
    /// # Errors
    /// [`Error::Tree`]: the two overlap.
    pub fn join(&self, right: &Fragment) -> Result<Fragment, Error> {
        let (Some((first, end)), Some((start, last))) = (&self.range, &right.range) else {
            return Ok(if self.is_empty() { right.clone() } else { self.clone() });
        };
        if start <= end {
            return Err(Error::Tree(format!(
                "the fragments overlap: the left one ends at {end}, the right one begins at {start}; sort entries by key \
                 and leave out repetitions, then join from left to right"
            )));
        }
        let Some(count) = self.count.checked_add(right.count) else {
            return Err(Error::Tree("the fragments have more than 2^64 - 1 entries together".into()));
        };
        let mut spine = self.spine.clone();
        spine.append(&right.spine, &mut Vec::new());
        Ok(Fragment { count, range: Some((first.clone(), last.clone())), spine })
    }

    /// The root of the tree that has these entries and no others.
    pub fn root(&self) -> Node {
        let mut buffer = Vec::new();
        let mut spine = Spine::default();
        spine.push(0, Leaf { key: Key::ANCHOR, hash: ANCHOR_HASH }, &mut buffer);
        spine.append(&self.spine, &mut buffer);
        let mut level = 0;
        loop {
            // The anchor opened a tail on every level that was reached.
            match spine.level(level).tail.take() {
                Some(tail) if !tail.key.is_anchor() || tail.hashes.len() > 1 => {
                    level += 1;
                    spine.push(level, tail.close(&mut buffer), &mut buffer);
                }
                top => {
                    let hash = top.and_then(|tail| tail.hashes.first().copied()).unwrap_or(ANCHOR_HASH);
                    return Node { level: level as u32, key: None, hash };
                }
            }
        }
    }
}

fn out_of_order(before: &[u8], key: &[u8]) -> Error {
    if key.is_empty() {
        return Error::Tree("an entry has an empty key".into());
    }
    let (before, key) = (Key::from(before), Key::from(key));
    Error::Tree(format!(
        "the key {key} is not above the one before it, {before}: keys must ascend, without repetitions"
    ))
}
