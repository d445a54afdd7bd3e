//! Comparing two trees: subtrees that both have are passed over whole.

use std::sync::Arc;

use super::{Block, Branch, Key, Leaf, Loader, Place, Tree};
use crate::error::Error;

/// Walks the keys that only the other tree has, ascending.
///
/// A node that both trees have, by level, key and hash, is skipped with all that is under it. Of `own`, level-1 nodes are read
/// only where a leaf of a differing node of `other` falls into their range.
#[derive(Debug)]
pub struct Diff {
    own: Tree,
    other: Tree,
    /// The way down from the root of `other`: for each level the children, and which is next.
    stack: Vec<(Arc<Block>, usize)>,
    /// Whether the root of `other` is still to be compared.
    fresh: bool,
    /// Leaves of `other` still to be looked up, the next one last.
    pending: Vec<Leaf>,
    /// The leaves of `own` up to a key, from the last level-1 node that was read.
    window: Option<(Vec<Leaf>, Option<Key>)>,
}

impl Tree {
    /// The keys that only `other` has. Costs grow with the difference.
    pub fn diff(&self, other: &Tree) -> Diff {
        let (own, other) = (self.clone(), other.clone());
        Diff { own, other, stack: Vec::new(), fresh: true, pending: Vec::new(), window: None }
    }
}

impl Diff {
    /// The next key, None at the end. The loaders read leaves of either tree that are not in memory.
    ///
    /// # Errors
    ///
    /// The loaders' own, and [`Error::Tree`] when what they return is not what a tree was made of.
    pub fn next<E: From<Error>>(
        &mut self,
        load_own: &mut Loader<'_, E>,
        load_other: &mut Loader<'_, E>,
    ) -> Result<Option<Key>, E> {
        loop {
            while let Some(leaf) = self.pending.last() {
                let key = leaf.key.clone();
                let missing = !self.own_has(&key, load_own)?;
                self.pending.pop();
                if missing {
                    return Ok(Some(key));
                }
            }
            if !self.advance(load_other)? {
                return Ok(None);
            }
        }
    }

    fn own_has<E: From<Error>>(&mut self, key: &Key, load: &mut Loader<'_, E>) -> Result<bool, E> {
        let covered = |(_, end): &(Vec<Leaf>, Option<Key>)| end.as_ref().is_none_or(|end| key < end);
        if !self.window.as_ref().is_some_and(covered) {
            let place = self.own.place(1, key);
            let leaves = self.own.leaves(place, load)?.into_owned();
            self.window = Some((leaves, place.end.cloned()));
        }
        let window = self.window.as_ref().map_or(&[][..], |(leaves, _)| leaves);
        Ok(window.binary_search_by(|leaf| leaf.key.cmp(key)).is_ok())
    }

    /// Compares the next node of `other`, and goes down where `own` has not the same; false at the end.
    fn advance<E: From<Error>>(&mut self, load: &mut Loader<'_, E>) -> Result<bool, E> {
        // The stack has the children of the root when one block is on it.
        let depth = u32::try_from(self.stack.len()).unwrap_or(u32::MAX);
        let level = self.other.height.saturating_sub(depth);
        let branch = match self.stack.last() {
            None if self.fresh => self.other.root.clone(),
            None => return Ok(false),
            Some((block, index)) => match children(block).get(*index) {
                Some(branch) => branch.clone(),
                None => {
                    self.stack.pop();
                    return Ok(true);
                }
            },
        };
        let same = level <= self.own.height && {
            let own = self.own.place(level, &branch.key).branch;
            own.key == branch.key && own.hash == branch.hash
        };
        if !same && level == 1 {
            let end = self.other.place(1, &branch.key).end;
            self.pending = self.other.leaves(Place { branch: &branch, end }, load)?.into_owned();
            self.pending.reverse();
        }
        match self.stack.last_mut() {
            Some((_, index)) => *index += 1,
            None => self.fresh = false,
        }
        if let (false, true, Some(block)) = (same, level > 1, branch.block) {
            self.stack.push((block, 0));
        }
        Ok(true)
    }
}

fn children(block: &Block) -> &[Branch] {
    match block {
        Block::Branches(branches) => branches,
        Block::Leaves(_) => &[],
    }
}
