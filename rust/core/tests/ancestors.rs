//! Link records and frontiers: the bytes, every answer against a search through all ancestors, and what they cost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod random;

use std::collections::{BTreeSet, HashMap, HashSet};

use gossiplog_core::ancestors::{Linker, MAX_LOOKS, MAX_SHORTCUT, Record, frontier};
use gossiplog_core::error::Error;
use random::Random;

/// Parents by sequence - 1.
type Graph = Vec<Vec<u64>>;

fn clocks(graph: &Graph) -> Vec<u64> {
    let mut clocks: Vec<u64> = Vec::new();
    for parents in graph {
        let highest = parents.iter().map(|&parent| clocks[parent as usize - 1]).max();
        clocks.push(1 + highest.unwrap_or(0));
    }
    clocks
}

/// The records of a graph, in batches of this size, by a linker that knows no heads.
fn linked(graph: &Graph, batch: usize) -> Vec<Vec<u8>> {
    linked_above(graph, batch, |_| (HashSet::new(), HashMap::new()))
}

/// The same by one that knows the heads, as a log does.
fn linked_above_heads(graph: &Graph, batch: usize) -> Vec<Vec<u8>> {
    linked_above(graph, batch, |count| first_children(graph, count))
}

/// The heads among the first messages of a graph, and of the others the first child.
fn first_children(graph: &Graph, count: usize) -> (HashSet<u64>, HashMap<u64, u64>) {
    let mut heads: HashSet<u64> = (1..=count as u64).collect();
    let mut first_children = HashMap::new();
    for (index, parents) in graph[..count].iter().enumerate() {
        for parent in parents {
            if heads.remove(parent) {
                first_children.insert(*parent, index as u64 + 1);
            }
        }
    }
    (heads, first_children)
}

fn linked_above(
    graph: &Graph,
    batch: usize,
    known: impl Fn(usize) -> (HashSet<u64>, HashMap<u64, u64>),
) -> Vec<Vec<u8>> {
    let clocks = clocks(graph);
    let mut records: Vec<Vec<u8>> = Vec::new();
    while records.len() < graph.len() {
        let stored = records.clone();
        let mut load =
            |asked: &[u64]| Ok(asked.iter().map(|&sequence| stored[sequence as usize - 1].clone()).collect());
        let (heads, first_children) = known(stored.len());
        let mut linker: Linker<'_, Error> = Linker::new(heads, &mut load).with_first_children(first_children);
        for index in stored.len()..graph.len().min(stored.len() + batch) {
            records.push(linker.add(index as u64 + 1, clocks[index], &graph[index]).unwrap());
        }
    }
    records
}

/// What a query answered, with the calls of the loader and the records it returned.
fn asked(records: &[Vec<u8>], sequence: u64, clock: u64) -> (Vec<u64>, usize, usize) {
    let (mut calls, mut loads) = (0, 0);
    let mut load = |asked: &[u64]| {
        calls += 1;
        loads += asked.len();
        Ok(asked.iter().map(|&sequence| records[sequence as usize - 1].clone()).collect())
    };
    let found = frontier::<Error>(sequence, clock, &mut load).unwrap();
    (found, calls, loads)
}

/// All proper ancestors, by sequence - 1.
fn ancestors(graph: &Graph) -> Vec<BTreeSet<u64>> {
    let mut all: Vec<BTreeSet<u64>> = Vec::new();
    for parents in graph {
        let mut set = BTreeSet::new();
        for &parent in parents {
            set.insert(parent);
            set.extend(&all[parent as usize - 1]);
        }
        all.push(set);
    }
    all
}

/// The maximal ones among the proper ancestors at or before `clock`, by definition.
fn by_definition(clocks: &[u64], ancestors: &[BTreeSet<u64>], sequence: u64, clock: u64) -> Vec<u64> {
    let all = &ancestors[sequence as usize - 1];
    let before: Vec<u64> = all.iter().copied().filter(|&other| clocks[other as usize - 1] <= clock).collect();
    let covered: BTreeSet<u64> =
        before.iter().flat_map(|&other| ancestors[other as usize - 1].iter().copied()).collect();
    before.into_iter().filter(|other| !covered.contains(other)).collect()
}

fn holds(graph: &Graph, batch: usize) {
    let (clocks, ancestors) = (clocks(graph), ancestors(graph));
    let records = linked(graph, batch);
    for (index, record) in records.iter().enumerate() {
        let sequence = index as u64 + 1;
        let steps = (0..63).map(|k| 1 << k).filter(|step| clocks[index] % step == 0 && *step < clocks[index]);
        let links = steps.map(|step| by_definition(&clocks, &ancestors, sequence, clocks[index] - step)).collect();
        let expected = Record { clock: clocks[index], links };
        assert_eq!(Record::decode(sequence, record).unwrap(), expected);
        assert_eq!(&expected.encode(sequence).unwrap(), record);
        for clock in 0..=clocks[index] + 1 {
            let expected = by_definition(&clocks, &ancestors, sequence, clock);
            assert_eq!(
                asked(&records, sequence, clock).0,
                expected,
                "message {sequence} at clock {clock} of {graph:?}"
            );
        }
    }
}

/// Each message names some of the last `window` messages, and now and then any at all.
fn random_graph(random: &mut Random, size: u64, window: u64, most: u64, far: u64) -> Graph {
    let mut graph: Graph = Vec::new();
    for sequence in 1..=size {
        let mut parents = Vec::new();
        for _ in 0..random.below(most + 1) {
            let reach = if random.below(100) < far { sequence - 1 } else { window.min(sequence - 1) };
            if reach > 0 {
                parents.push(sequence - 1 - random.below(reach));
            }
        }
        graph.push(parents);
    }
    graph
}

/// In each round every author names the heads of the round before: all, or each with a chance of `percent`.
fn braid(random: &mut Random, authors: u64, rounds: u64, percent: u64) -> Graph {
    let mut graph: Graph = Vec::new();
    for round in 0..rounds {
        for author in 0..authors {
            let heads = (0..authors * round.min(1)).map(|other| (round - 1) * authors + other + 1);
            let named = |head: &u64| *head == (round - 1) * authors + author + 1 || random.below(100) < percent;
            graph.push(heads.filter(named).collect());
        }
    }
    graph
}

fn chain(length: u64) -> Graph {
    (0..length).map(|before| if before == 0 { vec![] } else { vec![before] }).collect()
}

#[test]
fn records_have_the_bytes_of_the_contract() {
    let records = linked(&chain(300), 1000);
    assert_eq!(records[0], [1]);
    assert_eq!(records[1], [2, 1, 1]);
    assert_eq!(records[2], [3, 1, 1]);
    assert_eq!(records[3], [4, 1, 1, 1, 2]);
    assert_eq!(records[5], [6, 1, 1, 1, 2]);
    assert_eq!(records[255], [0x80, 0x02, 1, 1, 1, 2, 1, 4, 1, 8, 1, 16, 1, 32, 1, 64, 1, 0x80, 1]);
    // Three roots, and one that names them all, one of them twice.
    assert_eq!(linked(&vec![vec![], vec![], vec![], vec![3, 1, 2, 1]], 9)[3], [2, 3, 3, 2, 1]);
}

#[test]
fn random_graphs_answer_as_defined() {
    let mut random = Random(3);
    for round in 0..60 {
        let (size, window) = (20 + random.below(60), 1 + random.below(12));
        let most = 1 + random.below(5);
        let graph = random_graph(&mut random, size, window, most, 5 * (round % 5));
        holds(&graph, [1, 7, 1000][round as usize % 3]);
    }
}

#[test]
fn braids_and_chains_answer_as_defined() {
    let mut random = Random(5);
    for percent in [0, 20, 60, 95, 100] {
        holds(&braid(&mut random, 5, 20, percent), 17);
    }
    holds(&chain(140), 50);
    // Two chains of unequal length that meet now and then.
    let mut graph = chain(40);
    graph.push(vec![]);
    graph.extend((42..80).map(
        |sequence| {
            if sequence % 13 == 0 { vec![sequence - 1, sequence - 40] } else { vec![sequence - 1] }
        },
    ));
    graph.push(vec![40, 79]);
    graph.push(vec![40, 79, 80, 12]);
    holds(&graph, 30);
}

#[test]
fn a_long_chain_takes_a_logarithm_of_loads() {
    let length: u64 = 1 << 15;
    let records = linked(&chain(length), length as usize);
    let mut random = Random(9);
    for _ in 0..200 {
        let sequence = 2 + random.below(length - 1);
        let clock = 1 + random.below(sequence - 1);
        let (found, calls, loads) = asked(&records, sequence, clock);
        assert_eq!(found, [clock]);
        assert!(calls <= 2 * 15 && loads <= 2 * 15, "{calls} calls, {loads} loads");
    }
}

#[test]
fn a_braid_takes_a_logarithm_of_calls() {
    let mut random = Random(13);
    for percent in [100, 70] {
        let records = linked(&braid(&mut random, 16, 500, percent), 1000);
        for _ in 0..50 {
            let sequence = 17 + random.below(16 * 499);
            let round = 1 + (sequence - 1) / 16;
            let clock = 1 + random.below(round - 1);
            let (found, calls, loads) = asked(&records, sequence, clock);
            assert!(found.iter().all(|&other| 1 + (other - 1) / 16 == clock));
            assert!(calls <= 2 * 9 && loads <= 2 * 9 * 16, "{calls} calls, {loads} loads");
        }
    }
}

#[test]
fn wide_histories_expand_no_message_twice() {
    // A thousand chains of unequal length, joined by one message, and chains on top of that.
    let (wide, mut graph, mut heads) = (1000, Graph::new(), Vec::new());
    for width in 0..wide {
        graph.push(vec![]);
        for _ in 0..width % 7 {
            graph.push(vec![graph.len() as u64]);
        }
        heads.push(graph.len() as u64);
    }
    graph.push(heads.clone());
    let join = graph.len() as u64;
    for _ in 0..50 {
        graph.push(vec![graph.len() as u64]);
    }
    let records = linked(&graph, 500);
    let (found, _, _) = asked(&records, join, u64::MAX);
    assert_eq!(found, heads);
    let (found, _, loads) = asked(&records, graph.len() as u64, 1);
    assert_eq!(found.len(), wide as usize);
    assert!(loads <= graph.len(), "{loads} loads");
}

#[test]
fn a_comb_of_parents_is_reduced_in_steps_along_its_back() {
    // A chain, a tooth on each of its messages, and one message that names all teeth: none is another's ancestor.
    let back = 900;
    let mut graph = chain(back);
    graph.extend((1..=back).map(|sequence| vec![sequence]));
    graph.push((back + 1..=2 * back).collect());
    let records = linked(&graph, 2000);
    let (found, calls, loads) = asked(&records, 2 * back + 1, u64::MAX);
    assert_eq!(found, graph[2 * back as usize]);
    assert!(calls == 1 && loads == 1, "{calls} calls, {loads} loads");
    let (found, _, loads) = asked(&records, 2 * back + 1, back);
    assert_eq!(found, (back..2 * back).collect::<Vec<_>>());
    assert!(loads <= graph.len(), "{loads} loads");
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn a_chain_on_many_heads_does_not_store_their_width_again_and_again() {
    let (wide, long) = (MAX_SHORTCUT as u64 + 44, 400);
    let mut graph: Graph = (0..wide).map(|_| vec![]).collect();
    graph.push((1..=wide).collect());
    for _ in 0..long {
        graph.push(vec![graph.len() as u64]);
    }
    let records = linked(&graph, 100);
    for record in &records[wide as usize + 1..] {
        assert!(record.len() < 60, "{} bytes", record.len());
    }
    let clocks = clocks(&graph);
    let ancestors = ancestors(&graph);
    let last = graph.len() as u64;
    for clock in 0..=clocks[graph.len() - 1] {
        let (found, _, _) = asked(&records, last, clock);
        assert_eq!(found, by_definition(&clocks, &ancestors, last, clock));
    }
}

#[test]
fn a_chain_whose_messages_follow_many_roots_each_looks_at_no_more_than_these() {
    // The roots that each message follows arrived before all of the chain.
    let (wide, long) = (MAX_SHORTCUT as u64 - 1, 64);
    let mut graph: Graph = (0..wide * long).map(|_| vec![]).collect();
    for message in 0..long {
        let mut parents: Vec<u64> = (message * wide + 1..=(message + 1) * wide).collect();
        parents.extend((message > 0).then_some(graph.len() as u64));
        graph.push(parents);
    }
    let clocks = clocks(&graph);
    let records = linked_above_heads(&graph, 100);
    let mut load =
        |asked: &[u64]| Ok::<_, Error>(asked.iter().map(|&sequence| records[sequence as usize - 1].clone()).collect());
    for index in (wide * long) as usize..graph.len() {
        let mut linker = Linker::new(graph[index].iter().copied(), &mut load);
        assert_eq!(linker.add(index as u64 + 1, clocks[index], &graph[index]).unwrap(), records[index]);
        assert!(linker.work() <= 3 * wide, "{} looks for message {index}", linker.work());
    }
}

#[test]
fn two_chains_at_once_on_the_same_roots_look_at_their_last_messages_alone() {
    let (wide, long) = (31, 300);
    let mut graph: Graph = (0..wide * long).map(|_| vec![]).collect();
    for message in 0..2 * long {
        let mut parents: Vec<u64> = (message / 2 * wide + 1..=(message / 2 + 1) * wide).collect();
        parents.extend((message > 1).then_some(graph.len() as u64 - 1));
        graph.push(parents);
    }
    let clocks = clocks(&graph);
    let records = linked_above_heads(&graph, 100);
    let mut load =
        |asked: &[u64]| Ok::<_, Error>(asked.iter().map(|&sequence| records[sequence as usize - 1].clone()).collect());
    for index in graph.len() - 50..graph.len() {
        let (heads, first_children) = first_children(&graph, index);
        let mut linker = Linker::new(heads, &mut load).with_first_children(first_children);
        assert_eq!(linker.add(index as u64 + 1, clocks[index], &graph[index]).unwrap(), records[index]);
        assert!(linker.work() <= 32 * wide, "{} looks for message {index}", linker.work());
        assert_eq!(Record::decode(index as u64 + 1, &records[index]).unwrap().links[0], graph[index]);
    }
}

#[test]
fn a_long_chain_whose_messages_follow_a_few_roots_each_looks_at_no_more_than_it_may() {
    // Two such chains, which every message joins: which roots of one are ancestors of the other has to be searched.
    let (wide, long) = (4, 1200);
    let mut graph: Graph = (0..2 * wide * long).map(|_| vec![]).collect();
    for message in 0..2 * long {
        let mut parents: Vec<u64> = (message * wide + 1..=(message + 1) * wide).collect();
        parents.extend((message > 1).then_some(graph.len() as u64 - 1));
        parents.extend((message % 2 == 1).then_some(graph.len() as u64));
        graph.push(parents);
    }
    let clocks = clocks(&graph);
    let records = linked_above_heads(&graph, 100);
    let mut load =
        |asked: &[u64]| Ok::<_, Error>(asked.iter().map(|&sequence| records[sequence as usize - 1].clone()).collect());
    let mut most = 0;
    for index in graph.len() - 300..graph.len() {
        // As a process finds it that has just begun, and knows no first children.
        let mut linker = Linker::new(graph[index].iter().copied(), &mut load);
        linker.add(index as u64 + 1, clocks[index], &graph[index]).unwrap();
        most = most.max(linker.work());
        let (heads, first_children) = first_children(&graph, index);
        let mut linker = Linker::new(heads, &mut load).with_first_children(first_children);
        assert_eq!(linker.add(index as u64 + 1, clocks[index], &graph[index]).unwrap(), records[index]);
        assert!(linker.work() <= MAX_LOOKS + 3 * MAX_SHORTCUT as u64, "{} looks", linker.work());
    }
    assert!((MAX_LOOKS..MAX_LOOKS + 3 * MAX_SHORTCUT as u64).contains(&most), "{most} looks");
    // Roots are in every set that was stored, so they are found at any clock.
    let last = graph.len() as u64;
    let (found, _, _) = asked(&records, last, 1);
    assert_eq!(found.len() as u64, 2 * wide * long);
}

/// The record as it is where which of the parents are ancestors of others was not found out.
fn without_sets(clock: u64, parents: &[u64]) -> Record {
    let sets = (0..63).map(|k| 1 << k).filter(|step| clock.is_multiple_of(*step) && *step < clock).count();
    let parents: BTreeSet<u64> = parents.iter().copied().collect();
    let mut links = vec![vec![]; sets];
    links.extend(Some(parents.into_iter().collect::<Vec<u64>>()).filter(|parents| !parents.is_empty()));
    Record { clock, links }
}

#[test]
fn records_with_parents_in_place_of_sets_answer_as_defined() {
    let mut random = Random(11);
    for round in 0..40 {
        let (size, window) = (20 + random.below(50), 1 + random.below(12));
        let graph = random_graph(&mut random, size, window, 4, 5 * (round % 5));
        let (clocks, ancestors) = (clocks(&graph), ancestors(&graph));
        let whole = linked(&graph, 1000);
        let mut records = whole.clone();
        for (index, parents) in graph.iter().enumerate() {
            if random.below(2) == 0 {
                records[index] = without_sets(clocks[index], parents).encode(index as u64 + 1).unwrap();
            }
        }
        for (index, parents) in graph.iter().enumerate() {
            let sequence = index as u64 + 1;
            let mut load =
                |asked: &[u64]| Ok::<_, Error>(asked.iter().map(|&each| records[each as usize - 1].clone()).collect());
            let mut linker = Linker::new([], &mut load);
            assert_eq!(linker.add(sequence, clocks[index], parents).unwrap(), whole[index], "{sequence} of {graph:?}");
            for clock in 0..=clocks[index] {
                let expected = by_definition(&clocks, &ancestors, sequence, clock);
                assert_eq!(asked(&records, sequence, clock).0, expected, "{sequence} at {clock} of {graph:?}");
            }
        }
    }
}

#[test]
fn parents_that_may_be_ancestors_of_others_are_looked_for_no_longer_than_they_may() {
    // A message with a child, and a chain whose messages follow roots that arrived before it.
    let (wide, long) = (8, 2000);
    let mut graph: Graph = vec![vec![], vec![1]];
    graph.extend((0..wide * long).map(|_| vec![]));
    for message in 0..long {
        let mut parents: Vec<u64> = (message * wide + 3..message * wide + wide + 3).collect();
        parents.extend((message > 0).then_some(graph.len() as u64));
        graph.push(parents);
    }
    let tip = graph.len() as u64;
    graph.push(vec![1, tip]);
    graph.push(vec![3, tip]);
    let (clocks, records) = (clocks(&graph), linked_above_heads(&graph, graph.len() - 2));
    for (index, expected) in [(graph.len() - 2, vec![1, tip]), (graph.len() - 1, vec![tip])] {
        let sequence = index as u64 + 1;
        assert_eq!(Record::decode(sequence, &records[index]).unwrap(), without_sets(clocks[index], &graph[index]));
        let mut load =
            |asked: &[u64]| Ok::<_, Error>(asked.iter().map(|&each| records[each as usize - 1].clone()).collect());
        let mut linker = Linker::new([], &mut load);
        linker.add(sequence, clocks[index], &graph[index]).unwrap();
        assert!(linker.work() <= MAX_LOOKS + 2 * MAX_SHORTCUT as u64, "{} looks", linker.work());
        assert_eq!(asked(&records, sequence, u64::MAX).0, expected);
    }
}

#[test]
fn many_unrelated_parents_are_linked_in_one_go() {
    // Chains of different lengths, so that every parent has a clock of its own and is tested against those above it.
    let (chains, length) = (300, 20);
    let mut graph = Graph::new();
    let mut heads = Vec::new();
    for chain in 0..chains {
        graph.push(vec![]);
        for _ in 0..chain % length {
            graph.push(vec![graph.len() as u64]);
        }
        heads.push(graph.len() as u64);
    }
    let parents: Vec<u64> = (1..=graph.len() as u64).collect();
    graph.push(parents);
    let records = linked(&graph, graph.len());
    let (found, _, _) = asked(&records, graph.len() as u64, u64::MAX);
    assert_eq!(found, heads);
}

#[test]
fn damaged_records_are_refused() {
    let refused = |sequence: u64, data: &[u8]| matches!(Record::decode(sequence, data), Err(Error::Decode { .. }));
    assert!(!refused(9, &[2, 2, 3, 1]));
    assert!(refused(9, &[]));
    assert!(refused(9, &[0]));
    assert!(refused(9, &[0x81, 0x00]));
    assert!(refused(9, &[2]));
    assert!(refused(9, &[2, 0]));
    assert!(!refused(9, &[2, 0, 2, 3, 1]));
    assert!(refused(9, &[2, 0, 0]));
    assert!(refused(9, &[4, 0, 1, 3, 1, 1]));
    assert!(!refused(9, &[4, 0, 0, 1, 1]));
    assert!(refused(9, &[2, 2, 3]));
    assert!(refused(9, &[2, 2, 3, 3]));
    assert!(refused(9, &[2, 2, 1, 3]));
    assert!(refused(9, &[2, 1, 0]));
    assert!(refused(9, &[2, 1, 9]));
    assert!(refused(9, &[2, 1, 1, 1]));
    assert!(refused(9, &[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1]));
    assert!(refused(9, &[0xff; 10]));
    // 2^53 is no clock, 2^53 - 1 is.
    assert!(refused(9, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1]));
    assert!(!refused(9, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 1]));

    let mut random = Random(17);
    let records = linked(&braid(&mut random, 5, 40, 70), 1000);
    for (index, record) in records.iter().enumerate() {
        for end in 0..record.len() {
            assert!(refused(index as u64 + 1, &record[..end]));
        }
        for _ in 0..20 {
            let mut data = record.clone();
            data[random.below(record.len() as u64) as usize] = random.next() as u8;
            if let Ok(read) = Record::decode(index as u64 + 1, &data) {
                assert_eq!(read.encode(index as u64 + 1).unwrap(), data);
            }
        }
    }
}

#[test]
fn records_that_no_message_has_are_not_written() {
    for record in [
        Record { clock: 0, links: vec![] },
        Record { clock: 2, links: vec![] },
        Record { clock: 2, links: vec![vec![]] },
        Record { clock: 2, links: vec![vec![5]] },
        Record { clock: 4, links: vec![vec![], vec![2], vec![3]] },
        Record { clock: 4, links: vec![vec![3], vec![2], vec![3]] },
        Record { clock: 2, links: vec![vec![3, 2]] },
        Record { clock: 3, links: vec![vec![2], vec![1]] },
    ] {
        assert!(matches!(record.encode(5), Err(Error::Encode(_))), "{record:?}");
    }
}

#[test]
fn messages_out_of_order_and_wrong_clocks_are_refused() {
    let mut load = |_: &[u64]| Err(Error::Invalid("no such message".into()));
    let mut linker = Linker::new([], &mut load);
    linker.add(1, 1, &[]).unwrap();
    let refused = [(1, 1, &[][..]), (2, 2, &[2]), (2, 2, &[3]), (2, 2, &[0]), (2, 3, &[1]), (2, 2, &[]), (0, 1, &[])];
    for (sequence, clock, parents) in refused {
        assert!(
            matches!(linker.add(sequence, clock, parents), Err(Error::Invalid(_))),
            "{sequence} {clock} {parents:?}"
        );
    }
    assert_eq!(linker.add(9, 2, &[5]), Err(Error::Invalid("no such message".into())));
    assert_eq!(linker.add(2, 2, &[1]), Ok(vec![2, 1, 1]));

    let mut few = |_: &[u64]| Ok::<_, Error>(vec![]);
    assert!(matches!(frontier(5, 1, &mut few), Err(Error::Decode { .. })));
    let mut damaged = |_: &[u64]| Ok::<_, Error>(vec![vec![2, 7]]);
    assert!(matches!(frontier(5, 1, &mut damaged), Err(Error::Decode { .. })));
}
