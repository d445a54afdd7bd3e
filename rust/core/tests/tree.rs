//! The prolly tree: canvas-js's vectors, and every way to a tree against a rebuild from scratch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod random;

use std::collections::{BTreeMap, BTreeSet};

use gossiplog_core::error::Error;
use gossiplog_core::tree::{
    ANCHOR_HASH, Hash, Key, Leaf, Node, Tree, check_children, decode_children, encode_children, is_boundary, lacking,
    leaf_hash,
};
use random::Random;
use sha2::{Digest, Sha256};

type Rows = BTreeMap<Key, Hash>;

fn leaf(key: &[u8]) -> Leaf {
    Leaf { key: key.into(), hash: leaf_hash(key, &Sha256::digest(key)) }
}

/// The entry of `trees.json` with this number.
fn entry(seed: u32, index: u32) -> Leaf {
    let digest = Sha256::digest([seed.to_be_bytes(), index.to_be_bytes()].concat());
    leaf(&digest[..20])
}

fn entries(seed: u32, range: std::ops::Range<u32>) -> Vec<Leaf> {
    range.map(|index| entry(seed, index)).collect()
}

/// The loader of a tree whose leaves are all in memory.
fn none(start: &[u8], _: Option<&[u8]>) -> Result<Vec<Leaf>, Error> {
    panic!("leaves from {start:?} were loaded, though they are in memory")
}

fn grown(tree: &Tree, leaves: Vec<Leaf>) -> Tree {
    tree.insert(leaves, &mut none).unwrap().0
}

/// A table of leaves, as a database holds it.
#[derive(Default, Clone)]
struct Table(BTreeMap<Key, Hash>);

impl Table {
    fn add(&mut self, leaves: &[Leaf]) {
        self.0.extend(leaves.iter().map(|leaf| (leaf.key.clone(), leaf.hash)));
    }

    fn load(&self, start: &[u8], end: Option<&[u8]>) -> Result<Vec<Leaf>, Error> {
        let after = self.0.range(Key::from(start)..);
        let inside = after.take_while(|(key, _)| end.is_none_or(|end| &***key < end));
        Ok(inside.map(|(key, hash)| Leaf { key: key.clone(), hash: *hash }).collect())
    }
}

fn levels(tree: &Tree) -> Vec<Vec<Node>> {
    (0..=tree.root().level).map(|level| tree.nodes(level, &mut none).unwrap()).collect()
}

/// The levels of the tree over these leaves, by the rules and nothing else.
fn by_the_rules(leaves: &BTreeMap<Key, Hash>) -> Vec<Vec<Node>> {
    let mut level = vec![Node { level: 0, key: None, hash: ANCHOR_HASH }];
    level.extend(leaves.iter().map(|(key, hash)| Node { level: 0, key: Some(key.clone()), hash: *hash }));
    let mut levels = vec![level];
    while levels.last().unwrap().len() > 1 {
        let below = levels.last().unwrap();
        let mut level = Vec::new();
        for children in below.chunk_by(|_, next| !is_boundary(&next.hash)) {
            let joined: Vec<u8> = children.iter().flat_map(|child| child.hash).collect();
            let hash = blake3::hash(&joined).as_bytes()[..16].try_into().unwrap();
            level.push(Node { level: children[0].level + 1, key: children[0].key.clone(), hash });
        }
        levels.push(level);
    }
    levels
}

fn level1(tree: &Tree) -> Vec<(Key, Hash)> {
    let nodes = tree.nodes(1, &mut none).unwrap();
    nodes.into_iter().map(|node| (node.key.unwrap_or(Key::ANCHOR), node.hash)).collect()
}

fn vectors() -> Vec<serde_json::Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/trees.json");
    let text = std::fs::read_to_string(path).unwrap();
    let vectors: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert!(vectors.len() > 10);
    vectors
}

fn hex(bytes: &[u8]) -> serde_json::Value {
    data_encoding::HEXLOWER.encode(bytes).into()
}

#[test]
fn the_originals_trees_come_out_the_same() {
    for vector in vectors() {
        let seed = vector["seed"].as_u64().unwrap() as u32;
        let tree = grown(&Tree::new(), entries(seed, 0..vector["n"].as_u64().unwrap() as u32));
        assert_eq!(u64::from(tree.root().level), vector["root"]["level"].as_u64().unwrap());
        assert_eq!(hex(&tree.root().hash), vector["root"]["hash"]);
        assert_eq!(tree.len(), vector["n"].as_u64().unwrap());
        let levels = levels(&tree);
        let counts: Vec<usize> = levels.iter().map(Vec::len).collect();
        assert_eq!(serde_json::json!(counts), vector["count"]);
        if let Some(nodes) = vector["nodes"].as_array() {
            let key = |node: &Node| node.key.as_deref().map_or(serde_json::Value::Null, hex);
            let ours: Vec<_> = levels
                .iter()
                .flatten()
                .map(|node| serde_json::json!([node.level, key(node), hex(&node.hash)]))
                .collect();
            assert_eq!(&ours, nodes);
        }
    }
}

#[test]
fn one_by_one_gives_every_tree_on_the_way() {
    for seed in 1..4 {
        let mut tree = Tree::new();
        let mut leaves = BTreeMap::new();
        for index in 0..400 {
            let leaf = entry(seed, index);
            leaves.insert(leaf.key.clone(), leaf.hash);
            tree = grown(&tree, vec![leaf]);
            assert_eq!(levels(&tree), by_the_rules(&leaves));
        }
    }
}

#[test]
fn random_batches_give_the_tree_from_scratch_in_memory_and_over_a_table() {
    let mut random = Random(7);
    let mut shrunk = 0;
    for seed in 0..40 {
        let mut resident = Tree::new();
        let mut lazy = Tree::open([], 0).unwrap();
        let mut stored = Rows::new();
        let mut pending = Vec::new();
        let mut table = Table::default();
        let mut rows = Rows::new();
        let mut index = 0;
        for _ in 0..12 {
            let size = 1 << random.below(9);
            let mut batch = entries(seed, index..index + size);
            index += size;
            // Some that are there already, and the batch out of order.
            batch.extend((0..random.below(4)).map(|_| entry(seed, random.below(u64::from(index)) as u32)));
            let turn = random.below(batch.len() as u64) as usize;
            batch.rotate_left(turn);

            let before = (lazy.clone(), resident.root().level);
            let (next, changed) = resident.insert(batch.clone(), &mut none).unwrap();
            let (next_lazy, changed_lazy) =
                lazy.insert(batch.clone(), &mut |start, end| table.load(start, end)).unwrap();
            (resident, lazy) = (next, next_lazy);
            assert_eq!(changed, changed_lazy);
            assert!(changed.is_sorted_by(|left, right| left.0 < right.0));
            assert!(changed.iter().all(|(key, hash)| rows.get(key) != Some(hash)));
            table.add(&batch);
            rows.extend(changed.iter().cloned());
            shrunk += u32::from(resident.root().level < before.1);

            let expected = by_the_rules(&table.0);
            assert_eq!(levels(&resident), expected);
            assert_eq!(resident.len(), table.0.len() as u64);
            assert_eq!(rows.clone().into_iter().collect::<Vec<_>>(), level1(&resident));
            let mut load = |start: &[u8], end: Option<&[u8]>| table.load(start, end);
            for (level, nodes) in expected.iter().enumerate() {
                assert_eq!(&lazy.nodes(level as u32, &mut load).unwrap(), nodes);
            }
            let opened = Tree::open(rows.clone(), lazy.len()).unwrap();
            assert_eq!((opened.root(), opened.len()), (resident.root(), resident.len()));
            // A process that writes the rows of several inserts together.
            pending.extend(batch.iter().map(|leaf| leaf.key.clone()));
            if random.below(3) == 0 {
                stored.extend(lazy.level1(pending.iter().map(|key| &**key)));
                pending.clear();
                assert_eq!(stored, rows);
            }
        }
    }
    assert!(shrunk > 0, "no batch made a tree lower: the test does not cover it");
}

#[test]
fn keys_of_any_length_are_kept_and_ordered() {
    let mut random = Random(11);
    let mut leaves = BTreeMap::new();
    for _ in 0..3000 {
        let key: Vec<u8> = (0..1 + random.below(40)).map(|_| random.below(3) as u8).collect();
        leaves.insert(Key::from(key.as_slice()), leaf(&key).hash);
    }
    let batch = leaves.iter().map(|(key, hash)| Leaf { key: key.clone(), hash: *hash }).rev().collect();
    let tree = grown(&Tree::new(), batch);
    let nodes = by_the_rules(&leaves);
    assert_eq!(levels(&tree), nodes);
    let mut bytewise: Vec<Vec<u8>> = leaves.keys().map(|key| key.to_vec()).collect();
    bytewise.sort();
    let kept: Vec<Vec<u8>> = nodes[0].iter().filter_map(|node| node.key.as_deref()).map(<[u8]>::to_vec).collect();
    assert_eq!(kept, bytewise);
}

#[test]
fn reads_agree_with_the_levels() {
    let leaves = entries(5, 0..3000);
    let mut table = Table::default();
    table.add(&leaves);
    let resident = grown(&Tree::new(), leaves);
    let lazy = Tree::open(level1(&resident), resident.len()).unwrap();
    let levels = by_the_rules(&table.0);
    let mut load = |start: &[u8], end: Option<&[u8]>| table.load(start, end);
    for (level, nodes) in levels.iter().enumerate() {
        for (index, node) in nodes.iter().enumerate() {
            let (key, level) = (node.key.as_deref(), level as u32);
            assert_eq!(lazy.node(level, key, &mut load).unwrap().as_ref(), Some(node));
            if level == 0 {
                continue;
            }
            let end = nodes.get(index + 1).and_then(|next| next.key.clone());
            assert_eq!(lazy.next_key(level, key), end);
            let children = lazy.children(level, key, &mut load).unwrap().unwrap();
            check_children(node, end.as_deref(), &children).unwrap();
            assert_eq!(resident.children(level, key, &mut none).unwrap().unwrap(), children);
        }
        if level > 0 {
            assert_eq!(lazy.last(level as u32).as_ref(), nodes.last());
        }
    }
    let root = lazy.root();
    let absent = entry(6, 0);
    assert_eq!(lazy.node(0, Some(&absent.key), &mut load).unwrap(), None);
    assert_eq!(lazy.node(1, Some(&absent.key), &mut load).unwrap(), None);
    assert_eq!(lazy.children(2, Some(&absent.key), &mut load).unwrap(), None);
    assert_eq!(lazy.node(root.level + 1, None, &mut load).unwrap(), None);
    assert_eq!(lazy.children(u32::MAX, None, &mut load).unwrap(), None);
    assert_eq!(lazy.nodes(root.level + 1, &mut load).unwrap(), []);
    assert_eq!((lazy.last(0), lazy.last(root.level + 1)), (None, None));
    assert!(matches!(lazy.children(0, None, &mut load), Err(Error::Invalid(_))));
}

#[test]
fn the_empty_tree_is_its_level_0_anchor() {
    let anchor = Node { level: 0, key: None, hash: ANCHOR_HASH };
    for tree in [Tree::new(), Tree::open([], 0).unwrap()] {
        assert_eq!((tree.root(), tree.len(), tree.is_empty()), (anchor.clone(), 0, true));
        assert_eq!(tree.nodes(0, &mut none).unwrap(), std::slice::from_ref(&anchor));
        assert_eq!(tree.nodes(1, &mut none).unwrap(), []);
        assert_eq!(tree.node(0, None, &mut none).unwrap(), Some(anchor.clone()));
        assert_eq!(tree.node(0, Some(b"k"), &mut none).unwrap(), None);
        assert_eq!(tree.node(1, None, &mut none).unwrap(), None);
        assert_eq!(tree.children(1, None, &mut none).unwrap(), None);
        assert_eq!((tree.last(1), tree.next_key(1, None)), (None, None));
        assert_eq!(tree.insert(vec![], &mut none).unwrap().1, []);
    }
}

#[test]
fn repetitions_change_nothing_and_conflicts_are_named() {
    let leaves = entries(9, 0..100);
    let tree = grown(&Tree::new(), leaves.clone());
    let (same, rows) = tree.insert([&leaves[3..20], &leaves[3..9]].concat(), &mut none).unwrap();
    assert_eq!((same.root(), same.len(), rows), (tree.root(), 100, vec![]));

    let name = data_encoding::HEXLOWER.encode(&leaves[50].key);
    let other = Leaf { key: leaves[50].key.clone(), hash: [7; 16] };
    for (tree, batch) in [(&tree, vec![other.clone()]), (&Tree::new(), vec![other.clone(), leaves[50].clone()])] {
        let Err(Error::Tree(reason)) = tree.insert(batch, &mut none) else { panic!("the conflict went unseen") };
        assert!(reason.contains(&name), "{reason}");
    }
    let empty = Leaf { key: Key::ANCHOR, hash: [7; 16] };
    assert!(matches!(tree.insert(vec![empty], &mut none), Err(Error::Tree(_))));
}

#[test]
fn rows_that_no_tree_has_are_refused() {
    let tree = grown(&Tree::new(), entries(2, 0..500));
    let rows = level1(&tree);
    let refused = |rows: &[(Key, Hash)], count| matches!(Tree::open(rows.to_vec(), count), Err(Error::Tree(_)));
    assert!(refused(&rows[1..], 500));
    assert!(refused(&[&rows[..1], &rows[..1]].concat(), 500));
    assert!(refused(&rows.iter().rev().cloned().collect::<Vec<_>>(), 500));
    assert!(refused(&[], 1));
    assert!(refused(&rows, 0));
}

#[test]
fn loaded_leaves_are_held_against_their_node() {
    let tree = grown(&Tree::new(), entries(2, 0..500));
    let lazy = Tree::open(level1(&tree), 500).unwrap();
    let mut table = Table::default();
    table.add(&entries(2, 0..500));
    let damages: [fn(&mut Vec<Leaf>); 5] = [
        |leaves| drop(leaves.pop()),
        |leaves| leaves.reverse(),
        |leaves| leaves[1].hash[0] ^= 1,
        |leaves| leaves.push(leaf(&[0xff; 20])),
        |leaves| leaves.insert(0, Leaf { key: Key::ANCHOR, hash: ANCHOR_HASH }),
    ];
    for damage in damages {
        let mut load = |start: &[u8], end: Option<&[u8]>| {
            let mut leaves = table.load(start, end)?;
            damage(&mut leaves);
            Ok(leaves)
        };
        let absent = entry(6, 0);
        assert!(matches!(lazy.children(1, None, &mut load), Err(Error::Tree(_))));
        assert!(matches!(lazy.insert(vec![absent], &mut load), Err(Error::Tree(_))));
    }
    let mut failing = |_: &[u8], _: Option<&[u8]>| Err(Error::Invalid("the disk is gone".into()));
    assert_eq!(lazy.nodes(0, &mut failing), Err(Error::Invalid("the disk is gone".into())));
}

#[test]
fn answers_that_break_the_rules_are_refused() {
    let tree = grown(&Tree::new(), entries(4, 0..5000));
    for level in 1..=tree.root().level {
        for parent in tree.nodes(level, &mut none).unwrap() {
            let end = tree.next_key(level, parent.key.as_deref());
            let good = tree.children(level, parent.key.as_deref(), &mut none).unwrap().unwrap();
            check_children(&parent, end.as_deref(), &good).unwrap();
            let refused =
                |children: &[Node]| matches!(check_children(&parent, end.as_deref(), children), Err(Error::Tree(_)));
            assert!(refused(&[]));
            assert!(refused(&good[1..]));
            let changed = |change: &dyn Fn(&mut Vec<Node>)| {
                let mut children = good.clone();
                change(&mut children);
                children
            };
            let last = good.len() - 1;
            assert!(refused(&changed(&|children| children[last].level += 1)));
            assert!(refused(&changed(&|children| children[last].hash[15] ^= 1)));
            assert!(refused(&changed(&|children| children.push(children[last].clone()))));
            assert!(refused(&changed(&|children| children[0].key = Some(Key::ANCHOR))));
            if last > 0 {
                assert!(refused(&changed(&|children| children[last].key = None)));
                assert!(refused(&changed(&|children| children[last].hash[..4].fill(0))));
                assert!(refused(&changed(&|children| children.swap(0, last))));
                let below = good[last].key.as_deref();
                assert!(matches!(check_children(&parent, below, &good), Err(Error::Tree(_))));
            }
        }
    }
    let leaf = Node { level: 0, key: None, hash: ANCHOR_HASH };
    assert!(matches!(check_children(&leaf, None, std::slice::from_ref(&leaf)), Err(Error::Tree(_))));
}

#[test]
fn differences_are_those_of_the_sets() {
    let mut random = Random(21);
    for round in 0..60 {
        let shared = random.below(3000) as u32;
        let mut pair = Vec::new();
        for side in 0..2 {
            let mut leaves = entries(100 + round, 0..shared);
            leaves.extend(entries(200 + 2 * round + side, 0..(random.below(4) * random.below(300)) as u32));
            let resident = grown(&Tree::new(), leaves.clone());
            let mut table = Table::default();
            table.add(&leaves);
            let lazy =
                if leaves.is_empty() { Tree::new() } else { Tree::open(level1(&resident), resident.len()).unwrap() };
            pair.push((resident, lazy, table));
        }
        let [own, other] = pair.as_slice() else { unreachable!() };
        let keys = |table: &Table| table.0.keys().cloned().collect::<BTreeSet<_>>();
        let expected: Vec<Key> = keys(&other.2).difference(&keys(&own.2)).cloned().collect();

        let mut walk = own.0.diff(&other.0);
        let found: Vec<Key> = std::iter::from_fn(|| walk.next(&mut none, &mut none).unwrap()).collect();
        assert_eq!(found, expected);

        let mut loads = 0;
        let mut walk = own.1.diff(&other.1);
        let found: Vec<Key> = std::iter::from_fn(|| {
            let loads = std::cell::Cell::from_mut(&mut loads);
            let mut load_own = |start: &[u8], end: Option<&[u8]>| {
                loads.set(loads.get() + 1);
                own.2.load(start, end)
            };
            let mut load_other = |start: &[u8], end: Option<&[u8]>| {
                loads.set(loads.get() + 1);
                other.2.load(start, end)
            };
            walk.next(&mut load_own, &mut load_other).unwrap()
        })
        .collect();
        assert_eq!(found, expected);
        let differing = own.2.0.len() + other.2.0.len() - 2 * shared as usize;
        assert!(loads <= 4 * differing, "{loads} loads for {differing} differing keys");
    }
}

#[test]
fn a_walk_over_answers_finds_what_is_lacking() {
    let shared = entries(7, 0..3000);
    let added = entries(8, 0..40);
    let own = grown(&Tree::new(), shared.clone());
    let other = grown(&own, added.clone());
    let mut stored = shared;
    stored.sort_by(|left, right| left.key.cmp(&right.key));

    let mut found = Vec::new();
    let mut differing = vec![(other.root(), None::<Key>)];
    while let Some((node, end)) = differing.pop() {
        let children = other.children::<Error>(node.level, node.key.as_deref(), &mut none).unwrap().unwrap();
        let answer = decode_children(&encode_children(&children)).unwrap();
        assert_eq!(answer, children);
        if node.level == 1 {
            found.extend(lacking(&answer, &stored).unwrap().into_iter().cloned());
        } else {
            let below = own.differing(&answer, end.as_deref());
            differing.extend(below.into_iter().map(|(child, end)| (child.clone(), end.map(Key::from))));
        }
    }
    found.sort();
    let mut expected: Vec<Key> = added.into_iter().map(|leaf| leaf.key).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn answers_in_another_form_are_left_to_a_general_parser() {
    let node = |level, key: Option<&[u8]>| Node { level, key: key.map(Key::from), hash: [9; 16] };
    let usual = encode_children(&[node(0, None), node(63, Some(&[7; 20]))]);
    assert_eq!(decode_children(&usual).unwrap().len(), 2);
    for end in 1..usual.len() {
        assert_eq!(decode_children(&usual[..end]).is_some(), end == 20, "{end} bytes");
    }
    for unusual in [node(64, None), node(1 << 20, None), node(0, Some(&[])), node(1, Some(&[7; 300]))] {
        assert_eq!(decode_children(&encode_children(&[unusual])), None);
    }
    assert_eq!(decode_children(&[&usual[..], &[0x48, 1]].concat()), None);
}

#[test]
fn a_leaf_with_another_hash_than_the_stored_one_is_named() {
    let stored = leaf(b"key");
    let told = Node { level: 0, key: Some(stored.key.clone()), hash: [0; 16] };
    assert!(lacking(&[told], &[stored]).unwrap_err().to_string().contains("6b6579"));
}

#[test]
fn a_tree_of_one_thread_serves_another() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Tree>();
}
