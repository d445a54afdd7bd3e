//! When to dial, and when to look for peers.
//!
//! `buckets` says whom a host lacks. It dials those that it knows, and walks to others through Kademlia: every few seconds
//! while it lacks some, ever more rarely as long as that finds nobody new, and now and then with all that it wants. Below
//! [`FEW`] peers it dials bootstrap peers, too. Every interval is drawn anew within a quarter, so that hosts which were
//! started together do not stay in step. Who cannot be reached is dialled again after a pause that doubles.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};

use crate::mesh::buckets::FEW;

/// How long a walk has until the next one, while peers are lacking.
const WALK: Duration = Duration::from_secs(3);

/// How long it has with enough, and at most.
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
    /// From the next walk to the one after it, if peers are still lacking.
    stride: Duration,
    /// Whether peers were lacking, and how many were found.
    lacked: bool,
    found: usize,
}

impl Upkeep {
    /// `seeds`: addresses of bootstrap peers, with who is to answer there, if that is known.
    pub fn new(seeds: Vec<(Multiaddr, Option<PeerId>)>, now: Instant) -> Self {
        let seed = |(address, peer)| Seed { address, peer, dialling: None, pause: Pause::none(now) };
        Self {
            seeds: seeds.into_iter().map(seed).collect(),
            pauses: HashMap::new(),
            walk: now,
            stride: WALK,
            lacked: false,
            found: 0,
        }
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

    /// Whether a peer may be dialled now.
    pub fn may_dial(&self, now: Instant, peer: &PeerId) -> bool {
        self.pauses.get(peer).is_none_or(|pause| pause.until <= now)
    }

    /// A peer is being dialled: it is not dialled again before its pause is over.
    pub fn dials(&mut self, now: Instant, peer: PeerId) {
        self.remember(peer, now).lengthen(now);
    }

    /// Whether to walk now. `lacks`: there are fewer peers than the host wants. `found`: rises with each peer that helps.
    pub fn walks(&mut self, now: Instant, lacks: bool, found: usize) -> bool {
        if lacks && (!self.lacked || found > self.found) {
            self.stride = WALK;
            self.walk = self.walk.min(now + about(WALK));
        }
        (self.lacked, self.found) = (lacks, found);
        let due = self.walk <= now;
        if due {
            self.walk = now + about(if lacks { self.stride } else { STROLL });
            self.stride = STROLL.min(self.stride * 2);
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
    fn a_known_peer_is_dialled_again_after_a_pause_that_doubles() {
        let start = Instant::now();
        let (mut upkeep, peer) = (upkeep(start), PeerId::random());
        let mut dials = Vec::new();
        for second in 0..3600 {
            let now = start + seconds(second);
            if upkeep.may_dial(now, &peer) {
                upkeep.dials(now, peer);
                dials.push(second);
            }
        }
        assert!((28..60).contains(&dials.len()), "{dials:?}");
        assert!(upkeep.may_dial(start, &PeerId::random()));
        let now = start + seconds(3600);
        upkeep.connected(now, connection(), peer);
        assert!(upkeep.may_dial(now, &peer));
        upkeep.parted(now, peer);
        assert!(!upkeep.may_dial(now, &peer) && upkeep.may_dial(now + PARTED, &peer));
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

    /// The seconds at which a host walks that lacks peers until one, and finds so many by each.
    fn walks(upkeep: &mut Upkeep, start: Instant, lacks: bool, found: impl Fn(u64) -> usize) -> Vec<u64> {
        (0..3600).filter(|second| upkeep.walks(start + seconds(*second), lacks, found(*second))).collect()
    }

    #[test]
    fn walks_go_on_with_enough_peers() {
        let start = Instant::now();
        let walks = walks(&mut upkeep(start), start, false, |_| 20);
        assert!((9..=17).contains(&walks.len()), "{walks:?}");
    }

    #[test]
    fn walks_are_frequent_while_they_find_peers_that_are_lacking() {
        let start = Instant::now();
        let walks = walks(&mut upkeep(start), start, true, |second| second as usize / 2);
        assert!((900..1600).contains(&walks.len()), "{walks:?}");
    }

    #[test]
    fn walks_that_find_nobody_become_rare() {
        let start = Instant::now();
        let mut upkeep = upkeep(start);
        let first = walks(&mut upkeep, start, true, |_| 3);
        assert!((12..30).contains(&first.len()), "{first:?}");
        assert!(first[..4].iter().all(|second| *second < 30), "{first:?}");
        // One more peer is found, or there were enough meanwhile.
        let (start, mut now) = (start + seconds(3600), start + seconds(3600));
        assert!(walks(&mut upkeep, start, true, |_| 4)[0] < 5);
        now += seconds(3600);
        upkeep.walks(now, false, 4);
        assert!(walks(&mut upkeep, now, true, |_| 4)[0] < 5);
    }
}
