//! Sorting the entries of maps where they stand: by number, not by moving keys and values.
//!
//! A stranger chooses the keys, so the cost must not depend on them: sorting takes rounds of three bytes each, over machine
//! words, instead of comparing keys that share long beginnings again and again.

use std::cmp::Ordering;

use super::MAX_LENGTH;
use crate::error::Error;

/// How the keys of a map sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// dag-cbor's: shorter first, then bytewise.
    Length,
    /// JavaScript's: by UTF-16 code units.
    Utf16,
}

/// Runs of at most this many keys are compared pairwise.
const SMALL: usize = 16;

impl Order {
    /// How two keys compare.
    pub(crate) fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            Self::Length => left.len().cmp(&right.len()).then_with(|| left.cmp(right)),
            Self::Utf16 => {
                let differing = left.iter().zip(right).find(|(left, right)| left != right);
                differing.map_or(left.len().cmp(&right.len()), |(left, right)| rank(*left).cmp(&rank(*right)))
            }
        }
    }

    fn rank(self, byte: u8) -> u8 {
        if self == Self::Utf16 { rank(byte) } else { byte }
    }

    /// Three bytes of a key from `offset`, and whether more follow, as a number that sorts as they do.
    fn chunk(self, key: &[u8], offset: usize) -> u32 {
        let rest = key.get(offset..).unwrap_or(&[]);
        let byte = |index: usize| rest.get(index).map_or(0, |byte| u32::from(self.rank(*byte)));
        byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | rest.len().min(4) as u32
    }
}

/// Where a byte of UTF-8 sorts by UTF-16 code units: surrogates, the pairs of what takes four bytes, stand before U+E000,
/// which begins with 0xee.
fn rank(byte: u8) -> u8 {
    match byte {
        0xee | 0xef => byte + 5,
        0xf0..=0xf4 => byte - 2,
        _ => byte,
    }
}

/// Memory that is used for one map after the other.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    /// A round's chunk and the key's number, for each key.
    words: Vec<u64>,
    /// Runs of keys that are equal so far: from, to, and how many bytes are compared; none before the lengths are.
    runs: Vec<(usize, usize, Option<usize>)>,
}

impl Sorter {
    /// The numbers of `count` keys in the order of the keys; of equal keys the smaller number first.
    pub(crate) fn sort<'k>(&mut self, order: Order, count: usize, key: impl Fn(usize) -> &'k [u8]) -> Numbers<'_> {
        self.words.clear();
        reserve(&mut self.words, count);
        self.words.extend(0..count as u64);
        self.runs.clear();
        self.runs.push((0, count, (order == Order::Utf16).then_some(0)));
        let small = |run: &mut [u64]| {
            run.sort_unstable_by(|left, right| {
                let (left, right) = (number(*left), number(*right));
                order.compare(key(left), key(right)).then(left.cmp(&right))
            });
        };
        while let Some((from, to, compared)) = self.runs.pop() {
            let run = &mut self.words[from..to];
            if run.len() <= SMALL {
                small(run);
                continue;
            }
            for word in run.iter_mut() {
                let key = key(number(*word));
                let chunk = compared.map_or(key.len() as u32, |offset| order.chunk(key, offset));
                *word = u64::from(chunk) << 32 | *word & u64::from(u32::MAX);
            }
            run.sort_unstable();
            let next = compared.map_or(0, |offset| offset + 3);
            let mut start = from;
            for equal in run.chunk_by_mut(|left, right| left >> 32 == right >> 32) {
                let ended = compared.is_some() && equal[0] >> 32 & 7 < 4;
                if equal.len() > SMALL && !ended {
                    self.runs.push((start, start + equal.len(), Some(next)));
                } else if equal.len() > 1 && !ended {
                    small(equal);
                }
                start += equal.len();
            }
        }
        self.numbers()
    }

    /// The numbers that were sorted last.
    pub(crate) fn numbers(&self) -> Numbers<'_> {
        Numbers(self.words.iter())
    }
}

/// Numbers of keys, in the order of the keys.
#[derive(Debug, Clone)]
pub(crate) struct Numbers<'w>(std::slice::Iter<'w, u64>);

impl Iterator for Numbers<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.0.next().map(|word| number(*word))
    }
}

fn number(word: u64) -> usize {
    (word & u64::from(u32::MAX)) as usize
}

/// The maps that are not written as they stand, by the places where they begin.
///
/// Places take four bytes each: of many small maps a stranger's value can have, this is most of the memory.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// Where a map begins, above where its places do in `places`; ascending once all are there.
    maps: Vec<u64>,
    places: Vec<u32>,
}

/// Entries that are still to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picked {
    next: usize,
    stop: usize,
    end: usize,
}

/// Checks that places fit into four bytes, with a bit to spare, in what is `times` as long as `data`.
///
/// # Errors
/// [`Error::Decode`] for what is too long.
pub(crate) fn check_length(data: &[u8], times: usize) -> Result<(), Error> {
    let longest = MAX_LENGTH / times;
    if data.len() > longest {
        return Err(Error::decode(format!("there are more than {longest} bytes"), longest));
    }
    Ok(())
}

impl Rewrites {
    /// Has the map at `start` written with all its entries, whose keys stand at these places.
    pub(crate) fn reorder(&mut self, start: usize, count: usize, keys: impl Iterator<Item = u32>) {
        reserve(&mut self.maps, 1);
        reserve(&mut self.places, count);
        self.maps.push((start as u64) << 32 | self.places.len() as u64);
        self.places.extend(keys);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// Ready to be looked into.
    pub(crate) fn finish(&mut self) -> Lookup<'_> {
        // They were added where they end.
        self.maps.sort_unstable();
        self.maps.shrink_to_fit();
        self.places.shrink_to_fit();
        Lookup { rewrites: self, next: 0 }
    }
}

/// Finds rewrites; in the order of the maps without searching.
pub(crate) struct Lookup<'r> {
    rewrites: &'r Rewrites,
    next: usize,
}

impl Lookup<'_> {
    /// How the map at `start` is written, whose head says that it has `count` entries; none if it is as it stands.
    pub(crate) fn find(&mut self, start: usize, count: usize) -> Option<Picked> {
        let maps = &self.rewrites.maps;
        let begins = |index: usize| maps.get(index).map(|map| (map >> 32) as usize);
        let after = self.next.checked_sub(1).and_then(begins).is_none_or(|before| before < start);
        if !(after && begins(self.next).is_none_or(|next| start <= next)) {
            self.next = maps.partition_point(|map| ((map >> 32) as usize) < start);
        }
        if begins(self.next) != Some(start) {
            return None;
        }
        let from = maps[self.next] as u32 as usize;
        self.next += 1;
        Some(Picked { next: from, stop: from + count, end: start })
    }

    /// Where the key of the next entry stands, after what ended at `at`; or, as an error, where the input goes on.
    pub(crate) fn advance(&self, picked: &mut Picked, at: usize) -> Result<usize, usize> {
        // The last one read need not be the last that stands there.
        picked.end = picked.end.max(at);
        if picked.next == picked.stop {
            return Err(picked.end);
        }
        picked.next += 1;
        Ok(self.place(picked.next - 1))
    }

    fn place(&self, index: usize) -> usize {
        self.rewrites.places.get(index).map_or(0, |place| *place as usize)
    }
}

/// Makes room for `more` items; a quarter of the length at least, so that no more than that is kept in vain.
pub(crate) fn reserve<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.len() / 4));
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Sorter};

    fn number(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn keys_sort_as_comparing_them_does() {
        let mut state = 1;
        let letters =
            ["", "a", "b", "\0", "\u{7f}", "é", "\u{d7ff}", "\u{e000}", "\u{ffff}", "\u{10000}", "\u{10ffff}"];
        let mut sorter = Sorter::default();
        for count in [0, 1, 2, 16, 17, 40, 500] {
            for longest in [1, 3, 20] {
                let prefix = "x".repeat(number(&mut state) as usize % 12);
                let mut key = || {
                    let parts = number(&mut state) as usize % (longest + 1);
                    let letters: String =
                        (0..parts).map(|_| letters[number(&mut state) as usize % letters.len()]).collect();
                    prefix.clone() + &letters
                };
                let keys: Vec<String> = (0..count).map(|_| key()).collect();
                let mut by_length: Vec<usize> = (0..count).collect();
                by_length.sort_by_key(|number| (keys[*number].len(), &keys[*number]));
                let sorted = sorter.sort(Order::Length, count, |number| keys[number].as_bytes());
                assert_eq!(sorted.collect::<Vec<_>>(), by_length);
                let mut by_units: Vec<usize> = (0..count).collect();
                by_units.sort_by_key(|number| keys[*number].encode_utf16().collect::<Vec<_>>());
                let sorted = sorter.sort(Order::Utf16, count, |number| keys[number].as_bytes());
                assert_eq!(sorted.collect::<Vec<_>>(), by_units);
            }
        }
    }
}
