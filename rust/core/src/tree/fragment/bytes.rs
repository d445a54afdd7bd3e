//! The bytes of a fragment, in which it travels between processes.
//!
//! Numbers are big-endian. A key is its length (4 bytes) and its bytes. A fragment is: the version, 1 (1 byte); the number
//! of entries (8); if that is not 0, the first and the last key, the number of levels (1), and for each level from 0: the
//! number of nodes before the first boundary (4), of each the key and the hash (16); the number of hashes of the open
//! parent (4), and if there are any, its key and the hashes.

use super::{Fragment, Hash, Key, Leaf, Level, Spine, Tail, is_boundary};
use crate::error::Error;

const VERSION: u8 = 1;
/// Each level more costs the author of made-up entries 32 times the work, so nobody comes near.
const MAX_LEVELS: u8 = 64;
/// What a node of a prefix takes at least: the length of its key, one byte of it, and its hash.
const SMALLEST_NODE: usize = 4 + 1 + size_of::<Hash>();

impl Fragment {
    /// The bytes that [`Fragment::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.count.to_be_bytes());
        let Some((first, last)) = &self.range else {
            return out;
        };
        write_key(first, &mut out);
        write_key(last, &mut out);
        out.push(self.spine.0.len() as u8);
        for level in &self.spine.0 {
            write_length(level.prefix.len(), &mut out);
            for node in &level.prefix {
                write_key(&node.key, &mut out);
                out.extend_from_slice(&node.hash);
            }
            write_length(level.tail.as_ref().map_or(0, |tail| tail.hashes.len()), &mut out);
            if let Some(tail) = &level.tail {
                write_key(&tail.key, &mut out);
                tail.hashes.iter().for_each(|hash| out.extend_from_slice(hash));
            }
        }
        out
    }

    /// Reads what [`Fragment::to_bytes`] wrote. Memory is bounded by a small multiple of the input.
    ///
    /// That the hashes are those of the entries cannot be seen from the bytes: the sender is trusted with that.
    ///
    /// # Errors
    /// [`Error::Decode`]: anything that no fragment is written as.
    pub fn from_bytes(data: &[u8]) -> Result<Fragment, Error> {
        let mut reader = Reader { data, offset: 0 };
        let [version] = reader.array()?;
        if version != VERSION {
            return Err(fail(format!("its version is {version}, expected {VERSION}"), 0));
        }
        let count = u64::from_be_bytes(reader.array()?);
        if count == 0 {
            reader.end()?;
            return Ok(Fragment::default());
        }
        let range = (reader.key()?, reader.key()?);
        let start = reader.offset;
        let [levels] = reader.array()?;
        if !(1..=MAX_LEVELS).contains(&levels) {
            return Err(fail(format!("it has {levels} levels, expected 1 to {MAX_LEVELS}"), start));
        }
        let spine = Spine((0..levels).map(|_| reader.level()).collect::<Result<_, _>>()?);
        reader.end()?;
        let fragment = Fragment { count, range: Some(range), spine };
        match fragment.contradiction() {
            Some(reason) => Err(fail(reason.into(), start)),
            None => Ok(fragment),
        }
    }

    /// Why no run of entries leads to this.
    fn contradiction(&self) -> Option<&'static str> {
        let levels = &self.spine.0;
        let within = levels.iter().find_map(Level::contradiction);
        within.or_else(|| between(levels)).or_else(|| self.ends_contradiction()).or_else(|| {
            // Every node that is seen stands for entries of its own; on level 0 it is one, and nothing was closed below it.
            let seen = levels.iter().map(|level| (level.prefix.len() + level.children().len()) as u64).sum();
            let possible = if levels.len() == 1 { self.count == seen } else { self.count >= seen };
            (!possible).then_some("its number of entries is not that of its nodes")
        })
    }

    fn ends_contradiction(&self) -> Option<&'static str> {
        let (first, last) = self.range.as_ref()?;
        let levels = &self.spine.0;
        // A level without a prefix begins with the first node of the level above.
        let begins = levels.iter().find(|level| !level.prefix.is_empty()).or(levels.last())?;
        if begins.keys().next() != Some(first) {
            return Some("its first key is not that of its first node");
        }
        let end = levels.first()?;
        let highest = end.keys().last()?;
        let is_last = if end.children().len() > 1 { last > highest } else { last == highest };
        (!is_last).then_some("its last key is not that of its last entry")
    }
}

impl Level {
    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.prefix.iter().map(|node| &node.key).chain(self.tail.as_ref().map(|tail| &tail.key))
    }

    /// The hashes of the open parent's children.
    fn children(&self) -> &[Hash] {
        self.tail.as_ref().map_or(&[], |tail| &tail.hashes)
    }

    fn contradiction(&self) -> Option<&'static str> {
        if self.keys().next().is_none() {
            return Some("a level is empty");
        }
        if !self.keys().is_sorted_by(|left, right| left < right) {
            return Some("the keys of a level do not ascend");
        }
        if self.prefix.iter().any(|node| is_boundary(&node.hash)) {
            return Some("a boundary stands before the first of its level");
        }
        let (opens, rest) = self.children().split_first()?;
        (!is_boundary(opens) || rest.iter().any(is_boundary))
            .then_some("an open parent has not just its first child as a boundary")
    }
}

/// The nodes of a level are those that closed below: from the first boundary there, and before the parent that is open.
fn between(levels: &[Level]) -> Option<&'static str> {
    let mut floor = None;
    for pair in levels.windows(2) {
        let (below, above) = (&pair[0], &pair[1]);
        let Some(open) = &below.tail else {
            return Some("a level stands above one without a boundary");
        };
        floor = below.prefix.last().map(|node| &node.key).or(floor);
        let (lowest, highest) = (above.keys().next()?, above.keys().last()?);
        if floor.is_some_and(|floor| lowest <= floor) || *highest >= open.key {
            return Some("the keys of a level are not between the ends of the level below");
        }
    }
    None
}

fn write_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u32).to_be_bytes());
}

fn write_key(key: &Key, out: &mut Vec<u8>) {
    write_length(key.len(), out);
    out.extend_from_slice(key);
}

fn fail(reason: String, offset: usize) -> Error {
    Error::decode(format!("tree fragment: {reason}"), offset)
}

struct Reader<'a> {
    data: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let taken = self.data[self.offset..].get(..length);
        let taken = taken.ok_or_else(|| fail("the data ends within it".into(), self.data.len()))?;
        self.offset += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A number of things that take at least so many bytes each, all of which must still be there.
    fn length(&mut self, smallest: usize) -> Result<usize, Error> {
        let start = self.offset;
        let length = u32::from_be_bytes(self.array()?) as usize;
        if length > (self.data.len() - self.offset) / smallest {
            return Err(fail(format!("a length of {length} goes beyond the data that is left"), start));
        }
        Ok(length)
    }

    fn key(&mut self) -> Result<Key, Error> {
        let start = self.offset;
        let length = self.length(1)?;
        if length == 0 {
            return Err(fail("a key is empty".into(), start));
        }
        Ok(Key::from(self.take(length)?))
    }

    fn level(&mut self) -> Result<Level, Error> {
        let nodes = self.length(SMALLEST_NODE)?;
        let node = |_| Ok(Leaf { key: self.key()?, hash: self.array()? });
        let prefix = (0..nodes).map(node).collect::<Result<_, Error>>()?;
        let hashes = self.length(size_of::<Hash>())?;
        if hashes == 0 {
            return Ok(Level { prefix, tail: None });
        }
        let key = self.key()?;
        let hashes = (0..hashes).map(|_| self.array()).collect::<Result<_, Error>>()?;
        Ok(Level { prefix, tail: Some(Tail { key, hashes }) })
    }

    fn end(&self) -> Result<(), Error> {
        if self.offset < self.data.len() {
            Err(fail("there are bytes after its end".into(), self.offset))
        } else {
            Ok(())
        }
    }
}
