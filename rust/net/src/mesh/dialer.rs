//! When to dial, and when to discover peers.
//!
//! `buckets` decides which peers a host lacks. It dials those that it knows, and discovers others through Kademlia:
//! every few seconds while it lacks some, ever more rarely as long as that finds nobody new, and now and then with
//! enough. Below [`FEW_PEERS`] peers it dials bootstrap peers, too. Every interval is drawn anew within a quarter, so
//! that hosts which were started together do not stay in step. A peer that cannot be reached is dialled again after a
//! backoff that doubles.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};

use crate::mesh::buckets::FEW_PEERS;

/// The time between discoveries while there are few peers, at least.
const DISCOVERY_INTERVAL_FEW_PEERS: Duration = Duration::from_secs(3);

/// Discoveries that follow one another as if there were few peers: a host that knows nobody near it does not know what
/// it lacks.
const FIRST_DISCOVERIES: u32 = 4;

/// The time between discoveries with enough peers, and at most.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(300);

/// The first backoff of a peer that could not be reached.
const MIN_BACKOFF: Duration = Duration::from_secs(1);

/// The longest one.
const MAX_BACKOFF: Duration = Duration::from_secs(120);

/// The backoff of a peer that this side dropped.
const DROPPED_BACKOFF: Duration = Duration::from_secs(300);

/// A peer that closes a connection sooner does not let this host in.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Backoffs that are remembered.
const MAX_BACKOFFS: usize = 1024;

/// Return a duration drawn within a quarter of this one.
fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.75..1.25))
}

#[derive(Debug)]
struct Backoff {
    until: Instant,
    length: Duration,
}

impl Backoff {
    fn none(now: Instant) -> Self {
        Self { until: now, length: MIN_BACKOFF }
    }

    fn lengthen(&mut self, now: Instant) {
        self.until = now + jittered(self.length);
        self.length = MAX_BACKOFF.min(self.length * 2);
    }
}

/// A bootstrap peer.
#[derive(Debug)]
struct BootstrapPeer {
    address: Multiaddr,
    /// The peer that answers there, as far as is known.
    peer: Option<PeerId>,
    dialling: Option<ConnectionId>,
    connected: Instant,
    backoff: Backoff,
}

/// What a host does to have peers.
#[derive(Debug)]
pub struct Dialer {
    bootstrap: Vec<BootstrapPeer>,
    backoffs: HashMap<PeerId, Backoff>,
    next_discovery: Instant,
    discoveries: u32,
    /// From the next discovery to the one after it, if peers are still lacking.
    interval: Duration,
    /// Whether peers were lacking, and how many were found.
    lacked_peers: bool,
    found: usize,
}

impl Dialer {
    /// Create a dialer. `bootstrap`: addresses of bootstrap peers, with the peer that is to answer there, if it is
    /// known.
    pub fn new(bootstrap: Vec<(Multiaddr, Option<PeerId>)>, now: Instant) -> Self {
        let entry = |(address, peer)| BootstrapPeer {
            address,
            peer,
            dialling: None,
            connected: now,
            backoff: Backoff::none(now),
        };
        Self {
            bootstrap: bootstrap.into_iter().map(entry).collect(),
            backoffs: HashMap::new(),
            next_discovery: now,
            discoveries: 0,
            interval: DISCOVERY_INTERVAL_FEW_PEERS,
            lacked_peers: false,
            found: 0,
        }
    }

    /// Return the bootstrap peers to dial now, when `peers` are connected: their numbers and addresses.
    pub fn bootstrap(
        &mut self,
        now: Instant,
        peers: usize,
        connected: impl Fn(&PeerId) -> bool,
    ) -> Vec<(usize, Multiaddr)> {
        if peers >= FEW_PEERS {
            return Vec::new();
        }
        let wanted = |entry: &mut BootstrapPeer| {
            let idle = entry.dialling.is_none() && !entry.peer.as_ref().is_some_and(&connected);
            idle && entry.backoff.until <= now
        };
        let mut due = Vec::new();
        for (number, entry) in self.bootstrap.iter_mut().enumerate() {
            if wanted(entry) {
                due.push((number, entry.address.clone()));
            }
        }
        due
    }

    /// Record that a bootstrap peer is being dialled.
    pub fn dialling(&mut self, number: usize, connection: ConnectionId) {
        self.bootstrap[number].dialling = Some(connection);
    }

    /// Return whether a peer may be dialled now.
    pub fn may_dial(&self, now: Instant, peer: &PeerId) -> bool {
        self.backoffs.get(peer).is_none_or(|backoff| backoff.until <= now)
    }

    /// Record that a peer is being dialled: it is not dialled again before its backoff is over.
    pub fn dialled(&mut self, now: Instant, peer: PeerId) {
        self.remember(peer, now).lengthen(now);
    }

    /// Return whether to start a discovery now. `lacks`: there are fewer peers than the host wants. `found`: rises with
    /// each peer that helps.
    pub fn is_discovery_due(&mut self, now: Instant, lacks: bool, found: usize) -> bool {
        let lacks = lacks || self.discoveries < FIRST_DISCOVERIES;
        if lacks && (!self.lacked_peers || found > self.found) {
            self.interval = DISCOVERY_INTERVAL_FEW_PEERS;
            self.next_discovery = self.next_discovery.min(now + jittered(DISCOVERY_INTERVAL_FEW_PEERS));
        }
        (self.lacked_peers, self.found) = (lacks, found);
        let due = self.next_discovery <= now;
        if due {
            self.next_discovery = now + jittered(if lacks { self.interval } else { DISCOVERY_INTERVAL });
            self.interval = DISCOVERY_INTERVAL.min(self.interval * 2);
            self.discoveries = self.discoveries.saturating_add(1);
        }
        due
    }

    /// Return which of the first discoveries has just started, from 0 on. None: a later one.
    pub fn first_discovery(&self) -> Option<u32> {
        (1..=FIRST_DISCOVERIES).contains(&self.discoveries).then(|| self.discoveries - 1)
    }

    /// Record that a connection is established.
    pub fn connected(&mut self, now: Instant, connection: ConnectionId, peer: PeerId) {
        self.backoffs.remove(&peer);
        for entry in self.bootstrap.iter_mut().filter(|entry| entry.dialling == Some(connection)) {
            (entry.peer, entry.dialling, entry.connected) = (Some(peer), None, now);
            // How long the next one is shows when the connection ends.
            entry.backoff.until = now;
        }
    }

    /// Record that a peer's last connection is closed: one that closes them at once is dialled ever more rarely.
    pub fn disconnected(&mut self, now: Instant, peer: &PeerId) {
        // One that this side dropped has a longer backoff already.
        let is_due = |entry: &&mut BootstrapPeer| entry.peer.as_ref() == Some(peer) && entry.backoff.until <= now;
        for entry in self.bootstrap.iter_mut().filter(is_due) {
            if now < entry.connected + AT_ONCE {
                entry.backoff.lengthen(now);
            } else {
                entry.backoff = Backoff::none(now);
            }
        }
    }

    /// Record that a dial failed.
    pub fn failed(&mut self, now: Instant, connection: ConnectionId) {
        for entry in self.bootstrap.iter_mut().filter(|entry| entry.dialling == Some(connection)) {
            entry.dialling = None;
            entry.backoff.lengthen(now);
        }
    }

    /// Record that this side dropped a peer: the caller closed it, or the peer broke the rules.
    pub fn dropped(&mut self, now: Instant, peer: PeerId) {
        let backoff = || Backoff { until: now + DROPPED_BACKOFF, length: MAX_BACKOFF };
        for entry in self.bootstrap.iter_mut().filter(|entry| entry.peer == Some(peer)) {
            entry.backoff = backoff();
        }
        self.remember(peer, now).until = now + DROPPED_BACKOFF;
    }

    /// Allow a peer to be dialled at once, whatever its backoff.
    pub fn forgive(&mut self, now: Instant, peer: &PeerId) {
        self.backoffs.remove(peer);
        for entry in self.bootstrap.iter_mut().filter(|entry| entry.peer.as_ref() == Some(peer)) {
            entry.backoff = Backoff::none(now);
        }
    }

    fn remember(&mut self, peer: PeerId, now: Instant) -> &mut Backoff {
        if self.backoffs.len() >= MAX_BACKOFFS {
            self.backoffs.retain(|_, backoff| backoff.until > now);
        }
        if self.backoffs.len() >= MAX_BACKOFFS {
            self.backoffs.clear();
        }
        self.backoffs.entry(peer).or_insert_with(|| Backoff::none(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "/ip4/127.0.0.1/tcp/4001/ws";

    fn dialer(now: Instant) -> Dialer {
        Dialer::new(vec![(ADDRESS.parse().unwrap(), None)], now)
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
        let mut dialer = dialer(start);
        let mut dials = Vec::new();
        for second in 0..3600 {
            let now = start + seconds(second);
            for (number, _) in dialer.bootstrap(now, 0, |_| false) {
                dials.push(second);
                let id = connection();
                dialer.dialling(number, id);
                assert_eq!(dialer.bootstrap(now, 0, |_| false), []);
                dialer.failed(now, id);
            }
        }
        assert!((28..60).contains(&dials.len()), "{dials:?}");
        assert!(dials[..4].iter().all(|second| *second < 20), "{dials:?}");
        let widest = dials.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(widest <= Some(151), "{dials:?}");
    }

    #[test]
    fn a_bootstrap_peer_that_closes_connections_at_once_is_dialled_ever_more_rarely() {
        let (start, peer, mut now) = (Instant::now(), PeerId::random(), Instant::now());
        let mut dialer = Dialer::new(vec![(ADDRESS.parse().unwrap(), None)], start);
        let mut dials = 0;
        while now < start + seconds(60) {
            for (number, _) in dialer.bootstrap(now, 0, |_| false) {
                dials += 1;
                let id = connection();
                dialer.dialling(number, id);
                dialer.connected(now, id, peer);
                dialer.disconnected(now, &peer);
            }
            now += Duration::from_millis(250);
        }
        assert!((5..=9).contains(&dials), "{dials}");
        // Once one has stood, it is dialled as soon as it is gone.
        now += MAX_BACKOFF * 2;
        let id = connection();
        dialer.dialling(0, id);
        dialer.connected(now, id, peer);
        dialer.disconnected(now + AT_ONCE, &peer);
        assert_eq!(dialer.bootstrap(now + AT_ONCE, 0, |_| false).len(), 1);
        dialer.dialling(0, id);
        dialer.connected(now + AT_ONCE, id, peer);
        dialer.disconnected(now + AT_ONCE, &peer);
        assert_eq!(dialer.bootstrap(now + AT_ONCE + MIN_BACKOFF * 2, 0, |_| false).len(), 1);
    }

    #[test]
    fn a_bootstrap_peer_that_answered_is_dialled_when_it_is_gone() {
        let now = Instant::now();
        let (mut dialer, peer, id) = (dialer(now), PeerId::random(), connection());
        let (number, _) = dialer.bootstrap(now, 0, |_| false)[0];
        dialer.dialling(number, id);
        dialer.connected(now, id, peer);
        assert_eq!(dialer.bootstrap(now, 1, |known| *known == peer), []);
        assert_eq!(dialer.bootstrap(now, FEW_PEERS, |_| false), []);
        assert_eq!(dialer.bootstrap(now, 1, |_| false).len(), 1);
        dialer.dropped(now, peer);
        // It was dropped at once: its pause is that of a peer which was dropped.
        dialer.disconnected(now, &peer);
        assert_eq!(dialer.bootstrap(now + DROPPED_BACKOFF - seconds(1), 1, |_| false), []);
        assert_eq!(dialer.bootstrap(now + DROPPED_BACKOFF, 1, |_| false).len(), 1);
    }

    #[test]
    fn a_known_peer_is_dialled_again_after_a_pause_that_doubles() {
        let start = Instant::now();
        let (mut dialer, peer) = (dialer(start), PeerId::random());
        let mut dials = Vec::new();
        for second in 0..3600 {
            let now = start + seconds(second);
            if dialer.may_dial(now, &peer) {
                dialer.dialled(now, peer);
                dials.push(second);
            }
        }
        assert!((28..60).contains(&dials.len()), "{dials:?}");
        assert!(dialer.may_dial(start, &PeerId::random()));
        let now = start + seconds(3600);
        dialer.connected(now, connection(), peer);
        assert!(dialer.may_dial(now, &peer));
        dialer.dropped(now, peer);
        assert!(!dialer.may_dial(now, &peer) && dialer.may_dial(now + DROPPED_BACKOFF, &peer));
    }

    #[test]
    fn a_peer_that_is_forgiven_is_dialled_at_once() {
        let now = Instant::now();
        let (mut dialer, peer, id) = (dialer(now), PeerId::random(), connection());
        dialer.dialling(0, id);
        dialer.connected(now, id, peer);
        dialer.dropped(now, peer);
        assert!(!dialer.may_dial(now, &peer) && dialer.bootstrap(now, 0, |_| false).is_empty());
        dialer.forgive(now, &PeerId::random());
        assert!(!dialer.may_dial(now, &peer) && dialer.bootstrap(now, 0, |_| false).is_empty());
        dialer.forgive(now, &peer);
        assert!(dialer.may_dial(now, &peer));
        assert_eq!(dialer.bootstrap(now, 0, |_| false).len(), 1);
    }

    #[test]
    fn pauses_are_not_remembered_without_end() {
        let now = Instant::now();
        let mut dialer = dialer(now);
        for _ in 0..10 * MAX_BACKOFFS {
            dialer.dropped(now, PeerId::random());
        }
        assert!(dialer.backoffs.len() <= MAX_BACKOFFS);
    }

    /// Return the seconds at which discoveries start. `lacks`, `found`: as the host reports them.
    fn discoveries(dialer: &mut Dialer, start: Instant, lacks: bool, found: impl Fn(u64) -> usize) -> Vec<u64> {
        (0..3600).filter(|second| dialer.is_discovery_due(start + seconds(*second), lacks, found(*second))).collect()
    }

    #[test]
    fn discoveries_go_on_with_enough_peers() {
        let start = Instant::now();
        let mut dialer = dialer(start);
        let discoveries = discoveries(&mut dialer, start, false, |_| 20);
        let (first, later) = discoveries.split_at(FIRST_DISCOVERIES as usize);
        assert!(first.last().is_some_and(|second| *second < 30), "{first:?}");
        assert!((9..=17).contains(&later.len()), "{later:?}");
    }

    #[test]
    fn the_first_discoveries_are_numbered() {
        let mut now = Instant::now();
        let mut dialer = dialer(now);
        assert_eq!(dialer.first_discovery(), None);
        for number in 0..FIRST_DISCOVERIES {
            assert!(dialer.is_discovery_due(now, false, 0));
            assert_eq!(dialer.first_discovery(), Some(number));
            now += DISCOVERY_INTERVAL * 2;
        }
        assert!(dialer.is_discovery_due(now, false, 0));
        assert_eq!(dialer.first_discovery(), None);
    }

    #[test]
    fn discoveries_are_frequent_while_they_find_missing_peers() {
        let start = Instant::now();
        let discoveries = discoveries(&mut dialer(start), start, true, |second| second as usize / 2);
        assert!((900..1600).contains(&discoveries.len()), "{discoveries:?}");
    }

    #[test]
    fn discoveries_that_find_nobody_become_rare() {
        let start = Instant::now();
        let mut dialer = dialer(start);
        let first = discoveries(&mut dialer, start, true, |_| 3);
        assert!((12..30).contains(&first.len()), "{first:?}");
        assert!(first[..4].iter().all(|second| *second < 30), "{first:?}");
        // One more peer is found, or there were enough meanwhile.
        let (start, mut now) = (start + seconds(3600), start + seconds(3600));
        assert!(discoveries(&mut dialer, start, true, |_| 4)[0] < 5);
        now += seconds(3600);
        dialer.is_discovery_due(now, false, 4);
        assert!(discoveries(&mut dialer, now, true, |_| 4)[0] < 5);
    }
}
