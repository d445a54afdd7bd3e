//! Inserting entries: new leaves are merged into the level-1 nodes whose ranges hold them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use rayon::prelude::*;

use super::build::Edit;
use super::{Block, Branch, Hash, Key, Leaf, Loader, Tree, is_boundary, leaves_hash};
use crate::error::Error;

/// From this many leaves on, working in parallel is worth it.
const PARALLEL: usize = 1 << 14;

impl Tree {
    /// With these entries as well: the new tree, and the level-1 rows that changed or are new, ascending; the anchor's key is empty.
    ///
    /// The leaves may come in any order, and ones that are there already change nothing. `load` reads leaves that are not in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Tree`]: an empty key; a key that is there, or in `leaves`, with another hash; loaded leaves that are not
    /// those that the tree was made of. And the loader's own.
    pub fn insert<E: From<Error>>(
        &self,
        leaves: Vec<Leaf>,
        load: &mut Loader<'_, E>,
    ) -> Result<(Tree, Vec<(Key, Hash)>), E> {
        let leaves = sort(leaves)?;
        let mut rows = Vec::new();
        let mut edits = Vec::new();
        let mut count = self.count;
        let mut buffer = Vec::new();
        let mut rest = leaves.as_slice();
        while let Some(first) = rest.first() {
            let place = self.place(1, &first.key);
            let inside = place.end.map_or(rest.len(), |end| rest.partition_point(|leaf| leaf.key < *end));
            let (fresh, after) = rest.split_at(inside);
            rest = after;
            let old = self.leaves(place, load)?;
            let merged = merge(&old, fresh)?;
            if merged.len() == old.len() {
                continue;
            }
            count += (merged.len() - old.len()) as u64;
            let resident = place.branch.block.is_some();
            let nodes = split(&place.branch.key, &merged, resident, &mut buffer);
            let unchanged = |node: &Branch| node.hash == place.branch.hash && !self.is_empty();
            rows.extend(nodes.iter().filter(|node| !unchanged(node)).map(|node| (node.key.clone(), node.hash)));
            edits.push(Edit { key: place.branch.key.clone(), nodes });
        }
        Ok((self.rebuild(edits, count), rows))
    }
}

/// The leaves in ascending order, each key once.
fn sort(mut leaves: Vec<Leaf>) -> Result<Vec<Leaf>, Error> {
    if leaves.is_sorted_by(|left, right| left.key < right.key) {
        // The usual case: `Batch.plan` hands its leaves over in order.
    } else if leaves.len() < PARALLEL {
        leaves.sort_unstable_by(|left, right| left.key.cmp(&right.key));
    } else {
        leaves.par_sort_unstable_by(|left, right| left.key.cmp(&right.key));
    }
    if leaves.first().is_some_and(|leaf| leaf.key.is_anchor()) {
        return Err(Error::Tree("an entry has an empty key".into()));
    }
    if let Some(pair) = leaves.windows(2).find(|pair| pair[0].key == pair[1].key && pair[0].hash != pair[1].hash) {
        return Err(conflict(&pair[0].key));
    }
    leaves.dedup_by(|left, right| left.key == right.key);
    Ok(leaves)
}

fn conflict(key: &Key) -> Error {
    Error::Tree(format!("the key {key} is there with another value"))
}

/// The union of two ascending lists.
fn merge<'a>(old: &[Leaf], fresh: &'a [Leaf]) -> Result<Cow<'a, [Leaf]>, Error> {
    if old.is_empty() {
        return Ok(Cow::Borrowed(fresh));
    }
    let mut merged = Vec::with_capacity(old.len() + fresh.len());
    let mut rest = old;
    for leaf in fresh {
        let below = rest.partition_point(|other| other.key < leaf.key);
        let (before, after) = rest.split_at(below);
        merged.extend_from_slice(before);
        rest = after;
        match after.first().map(|other| (other.key.cmp(&leaf.key), other.hash == leaf.hash)) {
            Some((Ordering::Equal, true)) => {}
            Some((Ordering::Equal, false)) => return Err(conflict(&leaf.key)),
            _ => merged.push(leaf.clone()),
        }
    }
    merged.extend_from_slice(rest);
    Ok(Cow::Owned(merged))
}

/// The level-1 nodes over leaves that begin with `key`, which is the anchor's or a boundary's.
fn split(key: &Key, leaves: &[Leaf], resident: bool, buffer: &mut Vec<u8>) -> Vec<Branch> {
    let node = |buffer: &mut Vec<u8>, key: &Key, span: &[Leaf]| {
        let hash = leaves_hash(buffer, key, span);
        let block = resident.then(|| Arc::new(Block::Leaves(span.into())));
        Branch { key: key.clone(), hash, block }
    };
    // The anchor is not among its leaves, a boundary is: it does not cut itself off.
    let first = usize::from(!key.is_anchor());
    let cuts: Vec<usize> = (first..leaves.len()).filter(|&index| is_boundary(&leaves[index].hash)).collect();
    let span = |(index, &cut): (usize, &usize)| &leaves[cut..cuts.get(index + 1).copied().unwrap_or(leaves.len())];
    let mut nodes = vec![node(buffer, key, &leaves[..cuts.first().copied().unwrap_or(leaves.len())])];
    if leaves.len() < PARALLEL {
        nodes.extend(cuts.iter().enumerate().map(span).map(|span| node(buffer, &span[0].key, span)));
    } else {
        let spans = cuts.par_iter().enumerate().map(span);
        nodes.par_extend(spans.map_init(Vec::new, |buffer, span| node(buffer, &span[0].key, span)));
    }
    nodes
}
