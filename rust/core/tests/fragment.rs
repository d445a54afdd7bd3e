//! Associative fragments against the tree itself, on random runs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod random;

use gossiplog_core::error::Error;
use gossiplog_core::tree::{Fragment, Hash, Key, Leaf, Node, Tree};
use random::Random;

/// Ascending leaves, of which one in so many is a boundary.
fn leaves(random: &mut Random, count: u64, one_in: u64) -> Vec<Leaf> {
    let one = |index: u64| {
        let mut hash: Hash = [0xff; 16];
        hash[8..].copy_from_slice(&random.next().to_be_bytes());
        if random.below(one_in) == 0 {
            hash[0] = 0;
        }
        Leaf { key: Key::from(&index.to_be_bytes()[..]), hash }
    };
    (1..=count).map(one).collect()
}

fn root(leaves: &[Leaf]) -> Node {
    Tree::new().insert::<Error>(leaves.to_vec(), &mut |_, _| panic!("the leaves are in memory")).unwrap().0.root()
}

fn fragment(leaves: &[Leaf]) -> Fragment {
    Fragment::new(leaves.iter().map(|leaf| (&*leaf.key, leaf.hash))).unwrap()
}

#[test]
fn random_splits_have_the_root_of_the_tree() {
    let mut random = Random(1);
    for round in 0..200 {
        let (count, one_in) = (random.below(3000), [1, 2, 8, 32][round % 4]);
        let leaves = leaves(&mut random, count, one_in);
        let mut rest = leaves.as_slice();
        let mut joined = Fragment::default();
        while !rest.is_empty() {
            let (part, after) = rest.split_at(random.below(rest.len() as u64 + 1) as usize);
            let part = Fragment::from_bytes(&fragment(part).to_bytes()).unwrap();
            joined = joined.join(&part).unwrap();
            rest = after;
        }
        assert_eq!(joined.root(), root(&leaves));
        assert_eq!(joined, fragment(&leaves));
        assert_eq!(joined.len(), count);
    }
}

#[test]
fn a_fragment_is_small_whatever_its_run() {
    let leaves = leaves(&mut Random(2), 200_000, 32);
    assert!(fragment(&leaves).to_bytes().len() < 16_000);
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut random = Random(3);
    let leaves = leaves(&mut random, 300, 4);
    let data = fragment(&leaves[100..]).to_bytes();
    for _ in 0..20_000 {
        let mut data = data.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(data.len() as u64) as usize;
            data[at] ^= 1 << random.below(8);
        }
        data.truncate(random.below(2 * data.len() as u64) as usize);
        if let Ok(read) = Fragment::from_bytes(&data) {
            assert_eq!(read.to_bytes(), data);
            read.root();
        }
    }
}

#[test]
fn counts_are_added_without_overflow() {
    // One boundary is open on each level, and any number of entries closed below it.
    let above = |first: &[u8], last: &[u8]| {
        let (first, last) = ([&[0, 0, 0, 1], first].concat(), [&[0, 0, 0, 1], last].concat());
        let open = |key: &[u8]| [&[0, 0, 0, 0, 0, 0, 0, 1], key, &[0; 16]].concat();
        [&[1], &[0xff; 8][..], &first, &last, &[2], &open(&last), &open(&first)].concat()
    };
    let (low, high) = (above(b"a", b"b"), above(b"c", b"d"));
    let (low, high) = (Fragment::from_bytes(&low).unwrap(), Fragment::from_bytes(&high).unwrap());
    assert!(low.join(&high).is_err());
}
