//! Which peers to be connected to, by distance.
//!
//! Kademlia sorts peers into buckets by the logarithm of their distance: the farthest one has half of all peers, the
//! next one a quarter, and so on (Maymounkov and Mazières, "Kademlia", 2002, 2.4). A host has about as many connections
//! in each: then every peer is a few steps away, and no part of the network hangs on few of them. Both ends of a
//! connection have it in a bucket of one number, so one that fills a place here fills one there.
//!
//! Here is what is decided; `dialer` says when, `driver` carries it out.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use libp2p::PeerId;
use libp2p::kad::KBucketKey;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, RngExt};

/// Connections that a host wants in each bucket, if so many peers are there.
pub const PER_BUCKET: usize = 2;

/// Fewer peers than that are too few, however they are spread: a small network has few buckets.
pub const FEW_PEERS: usize = 8;

/// A host dials no more for its buckets while it has dialled so many peers that are connected.
pub const MAX_DIALLED: usize = 32;

/// A bucket that has peers to find has about as many as all nearer ones together: beside four there, it has two or more
/// in nine of ten cases.
const FEW_NEARER: usize = 4;

/// The number of the farthest bucket: peers whose hash differs in the first bit.
const FARTHEST: u32 = 255;

/// Identities that are tried for one in a bucket. Half of them are in the farthest bucket, a quarter in the next one.
const MOST_TRIED: usize = 4096;

/// Peers of a bucket.
#[derive(Debug, Default)]
struct Bucket {
    connected: usize,
    dialling: usize,
    /// Neither, and they may be dialled now.
    free: Vec<PeerId>,
}

impl Bucket {
    fn taken(&self) -> usize {
        self.connected + self.dialling
    }

    fn reachable(&self) -> usize {
        self.taken() + self.free.len()
    }
}

/// What a host's buckets hold at a moment.
#[derive(Debug)]
pub struct Buckets {
    me: KBucketKey<PeerId>,
    buckets: BTreeMap<u32, Bucket>,
}

impl Buckets {
    /// Create empty buckets. `me`: the host.
    pub fn new(me: PeerId) -> Self {
        Self { me: me.into(), buckets: BTreeMap::new() }
    }

    /// Return the number of a peer's bucket. None: it is the host.
    fn number(&self, peer: impl Into<KBucketKey<PeerId>>) -> Option<u32> {
        self.me.distance(&peer.into()).ilog2()
    }

    fn bucket(&mut self, peer: impl Into<KBucketKey<PeerId>>) -> Option<&mut Bucket> {
        let number = self.number(peer)?;
        Some(self.buckets.entry(number).or_default())
    }

    /// Add a peer that is connected.
    pub fn add_connected(&mut self, peer: PeerId) {
        if let Some(bucket) = self.bucket(peer) {
            bucket.connected += 1;
        }
    }

    /// Add a peer that is being dialled.
    pub fn add_dialling(&mut self, peer: PeerId) {
        if let Some(bucket) = self.bucket(peer) {
            bucket.dialling += 1;
        }
    }

    /// Add a peer that may be dialled.
    pub fn add_free(&mut self, peer: impl Into<KBucketKey<PeerId>>) {
        let key = peer.into();
        let peer = *key.preimage();
        if let Some(bucket) = self.bucket(key) {
            bucket.free.push(peer);
        }
    }

    /// Return how many connections a bucket is to have: [`PER_BUCKET`], or as many more as it takes to have
    /// [`FEW_PEERS`] in all.
    fn level(&self, count: impl Fn(&Bucket) -> usize) -> usize {
        let counts: Vec<_> = self.buckets.values().map(count).collect();
        let most = counts.iter().copied().max().unwrap_or_default();
        let enough = |level: &usize| counts.iter().map(|count| count.min(level)).sum::<usize>() >= FEW_PEERS;
        (PER_BUCKET..most).find(enough).unwrap_or(most.max(PER_BUCKET))
    }

    /// Choose at most `room` peers to dial: of each bucket as many as it lacks, those that have least first.
    pub fn dials(&self, room: usize, rng: &mut impl Rng) -> Vec<PeerId> {
        let level = self.level(Bucket::reachable);
        let mut wanted = Vec::new();
        for bucket in self.buckets.values() {
            let lacks = level.saturating_sub(bucket.taken());
            let chosen = bucket.free.sample(rng, lacks).copied();
            wanted.extend((bucket.taken()..).zip(chosen));
        }
        // Of those with as many connections, the nearest first: they have the fewest peers who could dial this one.
        wanted.sort_by_key(|(taken, _)| *taken);
        wanted.into_iter().map(|(_, peer)| peer).take(room).collect()
    }

    /// Return whether enough are connected in a peer's bucket without the peer. If so, it counts no more.
    pub fn spare(&mut self, peer: PeerId) -> bool {
        let level = self.level(|bucket| bucket.connected);
        let Some(bucket) = self.bucket(peer) else { return false };
        let spared = bucket.connected > level;
        if spared {
            bucket.connected -= 1;
        }
        spared
    }

    /// Return how many places are filled of those that the host wants to be. Rises with each peer that helps.
    pub fn filled(&self) -> usize {
        let level = self.level(Bucket::reachable);
        self.buckets.values().map(|bucket| bucket.connected.min(level)).sum()
    }

    /// Return the buckets that have [`FEW_NEARER`] peers or more nearer than themselves.
    fn far(&self) -> RangeInclusive<u32> {
        let mut nearer = 0;
        for (number, bucket) in &self.buckets {
            nearer += bucket.reachable();
            if nearer >= FEW_NEARER {
                return (number + 1).min(FARTHEST)..=FARTHEST;
            }
        }
        FARTHEST..=FARTHEST
    }

    /// Buckets with fewer peers than must be there.
    fn lacking(&self) -> Vec<u32> {
        let lacks = |number: &u32| self.buckets.get(number).is_none_or(|bucket| bucket.reachable() < PER_BUCKET);
        self.far().filter(lacks).collect()
    }

    /// Return whether to look for peers soon.
    pub fn lacks(&self) -> bool {
        let taken: usize = self.buckets.values().map(Bucket::taken).sum();
        taken < FEW_PEERS || !self.lacking().is_empty()
    }

    /// Choose near which identity to look for peers in a host's first discoveries: its own, near which are the peers of
    /// all buckets that are too near to be hit by chance, and then one in each bucket, the farthest first.
    pub fn first_target(&self, discovery: u32) -> PeerId {
        match discovery {
            0 => *self.me.preimage(),
            _ => self.identity_in(FARTHEST - (discovery - 1).min(FARTHEST)),
        }
    }

    /// Choose near which identity to look for peers next: one in a bucket that lacks peers, every other time; else in
    /// any, or the host's own.
    pub fn target(&self, rng: &mut impl Rng) -> PeerId {
        let lacking = self.lacking();
        // Not always: to an attacked host, near which somebody made identities, the network seems to have millions of
        // peers.
        let number = match lacking.choose(rng) {
            Some(number) if rng.random_bool(0.5) => Some(*number),
            _ => self.far().map(Some).chain([None]).choose(rng).flatten(),
        };
        number.map_or(*self.me.preimage(), |number| self.identity_in(number))
    }

    /// Return an identity that is in a bucket; the host's own if none is found by chance.
    fn identity_in(&self, number: u32) -> PeerId {
        let mut tried = (0..MOST_TRIED).map(|_| PeerId::random());
        tried.find(|peer| self.number(*peer) == Some(number)).unwrap_or(*self.me.preimage())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use libp2p::multihash::Multihash;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn rng() -> StdRng {
        StdRng::seed_from_u64(16)
    }

    /// Return a host's buckets, and so many peers of each, the farthest first.
    fn network<const N: usize>(counts: [usize; N]) -> (Buckets, [Vec<PeerId>; N]) {
        let buckets = Buckets::new(PeerId::random());
        let mut peers = counts.map(|_| Vec::new());
        while peers.iter().zip(counts).any(|(peers, count)| peers.len() < count) {
            let peer = PeerId::random();
            let index = (FARTHEST - buckets.number(peer).unwrap()) as usize;
            if index < N && peers[index].len() < counts[index] {
                peers[index].push(peer);
            }
        }
        (buckets, peers)
    }

    #[test]
    fn buckets_are_those_of_kademlia() {
        let (me, mut counts) = (PeerId::random(), [0; 3]);
        let buckets = Buckets::new(me);
        for _ in 0..1000 {
            let number = buckets.number(PeerId::random()).unwrap();
            if let Some(count) = counts.get_mut((FARTHEST - number) as usize) {
                *count += 1;
            }
        }
        assert_eq!(buckets.number(me), None);
        let [first, second, third] = counts;
        assert!((400..600).contains(&first) && (180..320).contains(&second) && (70..180).contains(&third));
        let other = PeerId::random();
        assert_eq!(buckets.number(other), Buckets::new(other).number(me));
    }

    #[test]
    fn each_bucket_gets_what_it_lacks() {
        let (mut buckets, [far, next, dial_filter, last]) = network([20, 10, 4, 2]);
        far[..5].iter().for_each(|peer| buckets.add_connected(*peer));
        buckets.add_connected(next[0]);
        buckets.add_dialling(dial_filter[0]);
        for peers in [&far[5..], &next[1..], &dial_filter[1..], &last] {
            peers.iter().for_each(|peer| buckets.add_free(*peer));
        }
        let dials = buckets.dials(MAX_DIALLED, &mut rng());
        // What has least comes first, and then what is nearest.
        assert!(last.contains(&dials[0]) && last.contains(&dials[1]), "{dials:?}");
        assert!(dial_filter[1..].contains(&dials[2]) && next[1..].contains(&dials[3]), "{dials:?}");
        assert_eq!(dials.len(), 4);
        assert_eq!(buckets.dials(2, &mut rng()), dials[..2]);
        assert_eq!(buckets.dials(0, &mut rng()), []);
    }

    #[test]
    fn peers_of_a_bucket_are_chosen_by_chance() {
        let (mut buckets, [far, next]) = network([20, 20]);
        [far, next].concat().iter().for_each(|peer| buckets.add_free(*peer));
        let mut rng = rng();
        let chosen: HashSet<_> = (0..200).flat_map(|_| buckets.dials(MAX_DIALLED, &mut rng)).collect();
        assert_eq!(chosen.len(), 40);
    }

    #[test]
    fn where_few_buckets_have_peers_each_gets_more() {
        for (counts, expected) in [([20, 20], 2 * FEW_PEERS / 2), ([20, 1], 1 + FEW_PEERS - 1), ([3, 2], 5)] {
            let (mut buckets, peers) = network(counts);
            peers.concat().iter().for_each(|peer| buckets.add_free(*peer));
            assert_eq!(buckets.dials(MAX_DIALLED, &mut rng()).len(), expected, "{counts:?}");
        }
    }

    #[test]
    fn a_connection_is_spare_where_its_bucket_has_enough_and_there_are_not_few() {
        let (mut buckets, [far, next, dial_filter, _]) = network([20, 10, 4, 1]);
        far[..6].iter().for_each(|peer| buckets.add_connected(*peer));
        assert!(!buckets.spare(far[0]));
        next[..2].iter().for_each(|peer| buckets.add_connected(*peer));
        dial_filter[..4].iter().for_each(|peer| buckets.add_connected(*peer));
        assert!(!buckets.spare(next[0]));
        let spared =
            |peers: &[PeerId], buckets: &mut Buckets| peers.iter().filter(|peer| buckets.spare(**peer)).count();
        assert_eq!(spared(&dial_filter, &mut buckets), 1);
        assert_eq!(spared(&far[..6], &mut buckets), 3);
        assert_eq!(spared(&[far, next, dial_filter].concat(), &mut buckets), 0);
    }

    #[test]
    fn a_bucket_lacks_peers_where_nearer_ones_have_many() {
        let (mut buckets, [far, _, dial_filter, last]) = network([20, 0, 6, 2]);
        assert!(buckets.lacks());
        dial_filter[4..].iter().chain(&last).for_each(|peer| buckets.add_connected(*peer));
        assert_eq!(buckets.lacking(), [FARTHEST - 1, FARTHEST]);
        far[..2].iter().for_each(|peer| buckets.add_connected(*peer));
        assert_eq!(buckets.lacking(), [FARTHEST - 1]);
        let (mut buckets, [far, _, last]) = network([20, 0, 3]);
        last.iter().chain(&far[..5]).for_each(|peer| buckets.add_connected(*peer));
        // There may be nobody in the one that is empty.
        assert_eq!(buckets.lacking(), [0; 0]);
        assert!(!buckets.lacks());
    }

    #[test]
    fn places_are_filled_by_those_that_help() {
        let (mut buckets, [far, dial_filter]) = network([20, 9]);
        for (peers, expected) in [(&far[..3], 3), (&far[3..], 8), (&dial_filter[..1], 8), (&dial_filter[1..], 8)] {
            peers.iter().for_each(|peer| buckets.add_connected(*peer));
            assert_eq!(buckets.filled(), expected);
        }
    }

    #[test]
    fn every_bucket_is_looked_in_and_more_often_one_that_lacks_peers() {
        let (mut buckets, [far, _, dial_filter, last]) = network([8, 0, 6, 2]);
        [far, dial_filter, last].concat().iter().for_each(|peer| buckets.add_connected(*peer));
        let (mut rng, mut counts) = (rng(), BTreeMap::new());
        for _ in 0..600 {
            *counts.entry(buckets.number(buckets.target(&mut rng))).or_insert(0) += 1;
        }
        let numbers: Vec<_> = counts.keys().copied().collect();
        assert_eq!(numbers, [None, Some(FARTHEST - 1), Some(FARTHEST)]);
        assert!(counts[&Some(FARTHEST - 1)] > 300, "{counts:?}");
        assert!(counts.values().all(|count| *count > 60), "{counts:?}");
    }

    #[test]
    fn the_first_discoveries_are_at_the_host_and_in_the_farthest_buckets() {
        let buckets = Buckets::new(PeerId::random());
        let numbers: Vec<_> = (0..4).map(|discovery| buckets.number(buckets.first_target(discovery))).collect();
        assert_eq!(numbers, [None, Some(FARTHEST), Some(FARTHEST - 1), Some(FARTHEST - 2)]);
    }

    #[test]
    fn a_bucket_that_no_identity_hits_by_chance_is_looked_for_at_the_host() {
        let me = PeerId::random();
        let mut buckets = Buckets::new(me);
        buckets.buckets.insert(100, Bucket { connected: FEW_PEERS, ..Bucket::default() });
        let mut rng = rng();
        let targets: Vec<_> = (0..20).map(|_| buckets.target(&mut rng)).collect();
        assert!(targets.iter().filter(|target| **target == me).count() > 10);
    }

    /// Connect a host that has fewer than eight peers in the simplest way: dial some of all that it knows, until it has
    /// twelve.
    fn dial_any(taken: usize, free: &[PeerId], rng: &mut StdRng) -> Vec<PeerId> {
        free.sample(rng, if taken < FEW_PEERS { 12 - taken } else { 0 }).copied().collect()
    }

    /// The hosts of a network by number, and whom each is connected to.
    struct Network {
        peers: Vec<PeerId>,
        joined: Vec<BTreeSet<usize>>,
    }

    impl Network {
        /// Have so many hosts, which know twenty peers of each bucket, dial in turn until nobody lacks one.
        fn new(size: usize, by_bucket: bool) -> Self {
            let mut rng = rng();
            let identity = |rng: &mut StdRng| {
                let mut bytes = [0; 32];
                rng.fill_bytes(&mut bytes);
                PeerId::from_multihash(Multihash::wrap(0, &bytes).unwrap()).unwrap()
            };
            let peers: Vec<_> = (0..size).map(|_| identity(&mut rng)).collect();
            let mut network = Self { joined: vec![BTreeSet::new(); size], peers };
            let tables: Vec<_> = (0..size).map(|host| network.table(host, &mut rng)).collect();
            let mut rests = false;
            while !rests {
                rests = true;
                for (host, table) in tables.iter().enumerate() {
                    for peer in network.dials(host, table, by_bucket, &mut rng) {
                        let other = network.peers.iter().position(|known| *known == peer).unwrap();
                        network.joined[host].insert(other);
                        network.joined[other].insert(host);
                        rests = false;
                    }
                }
            }
            network
        }

        fn number(&self, host: usize, other: usize) -> Option<u32> {
            Buckets::new(self.peers[host]).number(self.peers[other])
        }

        fn table(&self, host: usize, rng: &mut StdRng) -> Vec<usize> {
            let mut sizes = BTreeMap::new();
            let mut others = (0..self.peers.len()).sample(rng, self.peers.len());
            others.retain(|other| {
                let Some(number) = self.number(host, *other) else { return false };
                let size = sizes.entry(number).or_insert(0);
                *size += 1;
                *size <= 20
            });
            others
        }

        fn dials(&self, host: usize, table: &[usize], by_bucket: bool, rng: &mut StdRng) -> Vec<PeerId> {
            let free = table.iter().filter(|other| !self.joined[host].contains(other));
            let free: Vec<_> = free.map(|other| self.peers[*other]).collect();
            if !by_bucket {
                return dial_any(self.joined[host].len(), &free, rng);
            }
            let mut buckets = Buckets::new(self.peers[host]);
            self.joined[host].iter().for_each(|other| buckets.add_connected(self.peers[*other]));
            free.iter().for_each(|peer| buckets.add_free(*peer));
            buckets.dials(MAX_DIALLED, rng)
        }

        /// By bucket, the farthest first: of each host that has peers there, how many are connected, and how many there
        /// are.
        fn places(&self) -> Vec<Vec<(usize, usize)>> {
            let mut places: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for host in 0..self.peers.len() {
                let mut counts: BTreeMap<_, (usize, usize)> = BTreeMap::new();
                for other in (0..self.peers.len()).filter(|other| *other != host) {
                    let (connected, all) = counts.entry(self.number(host, other)).or_default();
                    *connected += usize::from(self.joined[host].contains(&other));
                    *all += 1;
                }
                counts.into_iter().for_each(|(number, counts)| places.entry(number).or_default().push(counts));
            }
            places.into_values().rev().collect()
        }

        /// Return the connections between a host and the farthest one; None if one cannot be reached.
        fn depth(&self, host: usize) -> Option<usize> {
            let (mut reached, mut last, mut depth) = (BTreeSet::from([host]), BTreeSet::from([host]), 0);
            while reached.len() < self.joined.len() {
                let next = last.iter().flat_map(|host| &self.joined[*host]).copied();
                last = next.filter(|host| !reached.contains(host)).collect();
                if last.is_empty() {
                    return None;
                }
                reached.extend(&last);
                depth += 1;
            }
            Some(depth)
        }
    }

    /// Prints, with `--nocapture`, the second table of docs/mesh.md.
    #[test]
    fn two_hundred_hosts_are_a_few_connections_apart() {
        for (size, by_bucket) in [(64, false), (64, true), (200, false), (200, true)] {
            let network = Network::new(size, by_bucket);
            let mut counts: Vec<_> = network.joined.iter().map(BTreeSet::len).collect();
            counts.sort_unstable();
            let depths: Option<Vec<_>> = (0..size).map(|host| network.depth(host)).collect();
            let diameter = depths.unwrap().into_iter().max().unwrap();
            let places = network.places();
            let mean = |counts: &Vec<(usize, usize)>| {
                counts.iter().map(|(connected, _)| *connected as f64).sum::<f64>() / counts.len() as f64
            };
            let means: Vec<_> = places.iter().take(6).map(mean).collect();
            let shown: Vec<_> = means.iter().map(|mean| format!("{mean:.1}")).collect();
            let rule = if by_bucket { "by bucket" } else { "any known" };
            let (least, median, most) = (counts[0], counts[size / 2], counts[size - 1]);
            println!("| {size} | {rule} | {} | {least}, {median}, {most} | {diameter} |", shown.join(" | "));
            assert!(diameter <= 4 && least >= FEW_PEERS);
            if by_bucket {
                let has_enough = |(connected, all): &(usize, usize)| *connected >= PER_BUCKET.min(*all);
                assert!(places.iter().flatten().all(has_enough));
                assert!(means[..4].iter().all(|mean| (2.0..4.2).contains(mean)), "{means:?}");
            }
        }
    }
}
