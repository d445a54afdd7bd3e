//! Making trees: from replaced level-1 nodes up to a root, level by level.
//!
//! One algorithm serves both: a tree from stored rows, and an insert. It goes from below, and only reads the old tree.
//! Given what replaces the touched nodes of a level, it makes the children of each touched parent. Where they no longer begin
//! with a boundary, the parent merges into its left neighbour, touched or not; where there is a boundary inside, it splits.

use std::sync::Arc;

use super::{Block, Branch, Hash, Key, Tree, is_boundary, parent_hash};
use crate::error::Error;

/// What takes the place of a node of the old tree: itself with another hash, several, or none (it merged to the left).
pub(super) struct Edit {
    /// The old node's key.
    pub(super) key: Key,
    pub(super) nodes: Vec<Branch>,
}

/// Neighbouring old parents whose children are joined before they are split again.
struct Group<'a> {
    parents: Vec<&'a Key>,
    children: Vec<Branch>,
}

impl Tree {
    /// From stored level-1 rows (key, hash), strictly ascending, the anchor's key being empty, and the number of entries.
    /// The leaves stay where they are.
    ///
    /// # Errors
    ///
    /// [`Error::Tree`]: rows out of order or without an anchor, no rows for a count above 0, or rows for a count of 0.
    pub fn open(level1: impl IntoIterator<Item = (Key, Hash)>, count: u64) -> Result<Tree, Error> {
        let rows: Vec<(Key, Hash)> = level1.into_iter().collect();
        if let Some(pair) = rows.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(Error::Tree(format!("level-1 row {} is not above the one before it", pair[1].0)));
        }
        if rows.first().is_some_and(|(key, _)| !key.is_anchor()) {
            return Err(Error::Tree("the level-1 rows do not begin with the anchor's".into()));
        }
        if (count == 0) != rows.is_empty() {
            return Err(Error::Tree(format!("{} level-1 rows cannot cover {count} entries", rows.len())));
        }
        let nodes: Vec<Branch> = rows.into_iter().map(|(key, hash)| Branch { key, hash, block: None }).collect();
        let edit = (!nodes.is_empty()).then_some(Edit { key: Key::ANCHOR, nodes });
        Ok(Tree::empty(None).rebuild(edit.into_iter().collect(), count))
    }

    /// The tree with level-1 nodes replaced; `edits` ascend, and each has at least one node.
    pub(super) fn rebuild(&self, mut edits: Vec<Edit>, count: u64) -> Tree {
        let mut buffer = Vec::new();
        for level in 2..=self.height {
            edits = self.lift(level, edits, &mut buffer);
        }
        let mut height = self.height;
        // At the root's level there is one old node, so at most one edit.
        let mut nodes = edits.pop().map_or_else(|| vec![self.root.clone()], |edit| edit.nodes);
        while nodes.len() > 1 {
            nodes = split(nodes, &mut buffer);
            height += 1;
        }
        let mut root = nodes.pop().unwrap_or_else(|| self.root.clone());
        while let [only] = root.branches() {
            root = only.clone();
            height -= 1;
        }
        Tree { root, height, count }
    }

    /// From the edits of the level below to those of this one.
    fn lift(&self, level: u32, edits: Vec<Edit>, buffer: &mut Vec<u8>) -> Vec<Edit> {
        let mut lifted = Vec::with_capacity(edits.len());
        let mut group: Option<Group<'_>> = None;
        let mut edits = edits.into_iter().peekable();
        while let Some(edit) = edits.peek() {
            let place = self.place(level, &edit.key);
            let old = place.branch.branches();
            let mut children = Vec::with_capacity(old.len() + edit.nodes.len());
            let mut copied = 0;
            while let Some(edit) = edits.next_if(|edit| place.end.is_none_or(|end| edit.key < *end)) {
                let index = old.partition_point(|child| child.key < edit.key);
                children.extend_from_slice(&old[copied..index]);
                children.extend(edit.nodes);
                copied = index + 1;
            }
            children.extend_from_slice(&old[copied..]);
            let key = &place.branch.key;
            if children.first().is_some_and(Branch::is_first) {
                close(group.take(), &mut lifted, buffer);
                group = Some(Group { parents: vec![key], children });
            } else {
                let left = self.before(level, key);
                if group.as_ref().is_none_or(|group| group.parents.last() != Some(&&left.key)) {
                    close(group.take(), &mut lifted, buffer);
                }
                let group =
                    group.get_or_insert_with(|| Group { parents: vec![&left.key], children: left.branches().to_vec() });
                group.parents.push(key);
                group.children.append(&mut children);
            }
        }
        close(group, &mut lifted, buffer);
        lifted
    }

    /// The node of a level before the one with this key, which is not the anchor's.
    pub(super) fn before(&self, level: u32, key: &Key) -> &Branch {
        let mut branch = &self.root;
        for _ in level..self.height {
            let children = branch.branches();
            let next = children.partition_point(|child| child.key < *key);
            match next.checked_sub(1).and_then(|index| children.get(index)) {
                Some(child) => branch = child,
                None => break,
            }
        }
        branch
    }
}

/// Adds the edits of a group's parents: all new ones stand for the first, the others are gone.
fn close(group: Option<Group<'_>>, edits: &mut Vec<Edit>, buffer: &mut Vec<u8>) {
    let Some(group) = group else { return };
    let mut nodes = split(group.children, buffer);
    edits.extend(group.parents.into_iter().map(|key| Edit { key: key.clone(), nodes: std::mem::take(&mut nodes) }));
}

/// The parents of consecutive nodes, the first of which is the anchor or a boundary.
fn split(children: Vec<Branch>, buffer: &mut Vec<u8>) -> Vec<Branch> {
    let cuts = children.iter().skip(1).filter(|child| is_boundary(&child.hash)).count();
    if cuts == 0 {
        return vec![parent(children, buffer)];
    }
    let mut parents = Vec::with_capacity(cuts + 1);
    let mut span: Vec<Branch> = Vec::new();
    for child in children {
        if !span.is_empty() && is_boundary(&child.hash) {
            parents.push(parent(std::mem::take(&mut span), buffer));
        }
        span.push(child);
    }
    parents.push(parent(span, buffer));
    parents
}

fn parent(children: Vec<Branch>, buffer: &mut Vec<u8>) -> Branch {
    let hash = parent_hash(buffer, children.iter().map(|child| child.hash));
    let key = children.first().map_or(Key::ANCHOR, |child| child.key.clone());
    Branch { key, hash, block: Some(Arc::new(Block::Branches(children.into()))) }
}
