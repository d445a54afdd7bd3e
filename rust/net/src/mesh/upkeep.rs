//! Whom to dial, and when.
//!
//! A host has about [`ENOUGH`] peers: below [`FEW`] it walks to random places of Kademlia's key space every few seconds,
//! which fills all buckets alike, and dials those that it knows and is not connected to; bootstrap peers, too. After
//! that it walks only now and then. Every interval is drawn anew within a quarter, so that hosts which were started
//! together do not stay in step. Who cannot be reached is dialled again after a pause that doubles.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};
use rand::seq::IteratorRandom;

/// Fewer peers than that are too few.
pub const FEW: usize = 8;

/// So many peers are enough: gossip's mesh has six to twelve.
pub const ENOUGH: usize = 12;

/// More peers than that are too many to keep those that Kademlia connected to on its walks.
pub const MANY: usize = 32;

/// How long a walk has until the next one, while there are few peers.
const WALK: Duration = Duration::from_secs(3);

/// How long it has while there are enough.
const STROLL: Duration = Duration::from_secs(300);

/// The first pause of a peer that could not be reached.
const SHORTEST: Duration = Duration::from_secs(1);

/// The longest one.
const LONGEST: Duration = Duration::from_secs(120);

/// How long a peer is left alone that this side parted from.
const PARTED: Duration = Duration::from_secs(300);

/// Peers whose pauses are remembered.
const MOST_PAUSES: usize = 1024;

/// A duration drawn within a quarter of this one.
fn about(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.75..1.25))
}

#[derive(Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Pause {
    fn none(now: Instant) -> Self {
        Self { until: now, length: SHORTEST }
    }

    fn lengthen(&mut self, now: Instant) {
        self.until = now + about(self.length);
        self.length = LONGEST.min(self.length * 2);
    }
}

/// A bootstrap peer.
#[derive(Debug)]
struct Seed {
    address: Multiaddr,
    /// Who answers there, as far as is known.
    peer: Option<PeerId>,
    dialling: Option<ConnectionId>,
    pause: Pause,
}

/// What a host does to have peers.
#[derive(Debug)]
pub struct Upkeep {
    seeds: Vec<Seed>,
    pauses: HashMap<PeerId, Pause>,
    walk: Instant,
}

impl Upkeep {
    /// `seeds`: addresses of bootstrap peers, with who is to answer there, if that is known.
    pub fn new(seeds: Vec<(Multiaddr, Option<PeerId>)>, now: Instant) -> Self {
        let seed = |(address, peer)| Seed { address, peer, dialling: None, pause: Pause::none(now) };
        Self { seeds: seeds.into_iter().map(seed).collect(), pauses: HashMap::new(), walk: now }
    }

    /// Bootstrap peers to dial now, when `peers` are connected: their numbers and addresses.
    pub fn seeds(
        &mut self,
        now: Instant,
        peers: usize,
        connected: impl Fn(&PeerId) -> bool,
    ) -> Vec<(usize, Multiaddr)> {
        if peers >= FEW {
            return Vec::new();
        }
        let wanted = |seed: &mut Seed| {
            let idle = seed.dialling.is_none() && !seed.peer.as_ref().is_some_and(&connected);
            idle && seed.pause.until <= now
        };
        let mut due = Vec::new();
        for (number, seed) in self.seeds.iter_mut().enumerate() {
            if wanted(seed) {
                due.push((number, seed.address.clone()));
            }
        }
        due
    }

    /// A bootstrap peer is being dialled.
    pub fn dialling(&mut self, number: usize, connection: ConnectionId) {
        self.seeds[number].dialling = Some(connection);
    }

    /// Peers to dial now, when `peers` are connected: some of those that are known.
    pub fn dials(&mut self, now: Instant, peers: usize, known: impl Iterator<Item = PeerId>) -> Vec<PeerId> {
        if peers >= FEW {
            return Vec::new();
        }
        let free = known.filter(|peer| self.pauses.get(peer).is_none_or(|pause| pause.until <= now));
        let chosen = free.sample(&mut rand::rng(), ENOUGH - peers);
        for peer in &chosen {
            self.pause(*peer, now);
        }
        chosen
    }

    /// Whether to walk now, when `peers` are connected.
    pub fn walks(&mut self, now: Instant, peers: usize) -> bool {
        let due = self.walk <= now;
        if due {
            self.walk = now + about(STROLL);
        }
        if peers < FEW {
            self.walk = self.walk.min(now + about(WALK));
        }
        due
    }

    /// A connection stands.
    pub fn connected(&mut self, now: Instant, connection: ConnectionId, peer: PeerId) {
        self.pauses.remove(&peer);
        for seed in self.seeds.iter_mut().filter(|seed| seed.dialling == Some(connection)) {
            (seed.peer, seed.dialling, seed.pause) = (Some(peer), None, Pause::none(now));
        }
    }

    /// A peer that was dialled was not reached.
    pub fn failed(&mut self, now: Instant, connection: ConnectionId) {
        for seed in self.seeds.iter_mut().filter(|seed| seed.dialling == Some(connection)) {
            seed.dialling = None;
            seed.pause.lengthen(now);
        }
    }

    /// This side parted from a peer: the caller wanted it, or the peer broke the rules.
    pub fn parted(&mut self, now: Instant, peer: PeerId) {
        let pause = || Pause { until: now + PARTED, length: LONGEST };
        for seed in self.seeds.iter_mut().filter(|seed| seed.peer == Some(peer)) {
            seed.pause = pause();
        }
        self.remember(peer, now).until = now + PARTED;
    }

    fn pause(&mut self, peer: PeerId, now: Instant) {
        self.remember(peer, now).lengthen(now);
    }

    fn remember(&mut self, peer: PeerId, now: Instant) -> &mut Pause {
        if self.pauses.len() >= MOST_PAUSES {
            self.pauses.retain(|_, pause| pause.until > now);
        }
        if self.pauses.len() >= MOST_PAUSES {
            self.pauses.clear();
        }
        self.pauses.entry(peer).or_insert_with(|| Pause::none(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "/ip4/127.0.0.1/tcp/4001/ws";

    fn upkeep(now: Instant) -> Upkeep {
        Upkeep::new(vec![(ADDRESS.parse().unwrap(), None)], now)
    }

    fn connection() -> ConnectionId {
        ConnectionId::new_unchecked(rand::random_range(0..usize::MAX))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_bootstrap_peer_is_dialled_again_ever_more_rarely() {
        let start = Instant::now();
        let mut upkeep = upkeep(start);
        let mut dials = Vec::new();
        for second in 0..3600 {
            let now = start + seconds(second);
            for (number, _) in upkeep.seeds(now, 0, |_| false) {
                dials.push(second);
                let id = connection();
                upkeep.dialling(number, id);
                assert_eq!(upkeep.seeds(now, 0, |_| false), []);
                upkeep.failed(now, id);
            }
        }
        assert!((28..60).contains(&dials.len()), "{dials:?}");
        assert!(dials[..4].iter().all(|second| *second < 20), "{dials:?}");
        let widest = dials.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest <= Some(151), "{dials:?}");
    }

    #[test]
    fn a_bootstrap_peer_that_answered_is_dialled_when_it_is_gone() {
        let now = Instant::now();
        let (mut upkeep, peer, id) = (upkeep(now), PeerId::random(), connection());
        let (number, _) = upkeep.seeds(now, 0, |_| false)[0];
        upkeep.dialling(number, id);
        upkeep.connected(now, id, peer);
        assert_eq!(upkeep.seeds(now, 1, |known| *known == peer), []);
        assert_eq!(upkeep.seeds(now, FEW, |_| false), []);
        assert_eq!(upkeep.seeds(now, 1, |_| false).len(), 1);
        upkeep.parted(now, peer);
        assert_eq!(upkeep.seeds(now, 1, |_| false), []);
        assert_eq!(upkeep.seeds(now + PARTED, 1, |_| false).len(), 1);
    }

    #[test]
    fn known_peers_are_dialled_while_there_are_few() {
        let now = Instant::now();
        let mut upkeep = upkeep(now);
        let known: Vec<_> = (0..100).map(|_| PeerId::random()).collect();
        assert_eq!(upkeep.dials(now, FEW, known.iter().copied()), []);
        let first = upkeep.dials(now, 3, known.iter().copied());
        assert_eq!(first.len(), ENOUGH - 3);
        let second = upkeep.dials(now, 3, known.iter().copied());
        assert!(first.iter().all(|peer| !second.contains(peer)));
        assert_eq!(upkeep.dials(now, 3, first.iter().copied()), []);
        assert_eq!(upkeep.dials(now + seconds(2), 3, first.iter().copied()).len(), first.len());
    }

    #[test]
    fn pauses_are_not_remembered_without_end() {
        let now = Instant::now();
        let mut upkeep = upkeep(now);
        for _ in 0..10 * MOST_PAUSES {
            upkeep.parted(now, PeerId::random());
        }
        assert!(upkeep.pauses.len() <= MOST_PAUSES);
    }

    #[test]
    fn walks_often_only_while_there_are_few_peers() {
        let start = Instant::now();
        for (peers, expected) in [(0, 300..450), (FEW, 3..6)] {
            let mut upkeep = upkeep(start);
            let walks = (0..1200).filter(|second| upkeep.walks(start + seconds(*second), peers)).count();
            assert!(expected.contains(&walks), "{walks} with {peers} peers");
        }
    }
}
