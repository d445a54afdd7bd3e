//! What waits in gossipsub's queue for a peer, in bytes.
//!
//! gossipsub bounds a queue by its number of messages, whatever their size, and lets nobody look into it. So its bytes
//! are estimated, never too low: a message is charged to each peer that may get it, and given back as its bytes are
//! written to the peer's stream. Charges for what gossipsub did not send after all are given back when a connection's
//! stream has nothing left to write: its task asks the stream's handler first, and the handler takes from the queue
//! until it is blocked. All connections to a peer share one queue, so what remains then is what the others are writing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::Account;
use crate::error::{Cause, Closed, lock};
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// How long a peer may take nothing of what waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a message that gossipsub has forgotten counts as where it has to count.
const SMALL: usize = 1024;

/// What gossipsub's answer to one announced message, or to one request to join the mesh, counts as in its queue.
pub const ANSWER: usize = 128;

/// What a message has in a frame of gossip beside its data and topic.
const OVERHEAD: usize = 32;

/// Return bytes that a message takes in a frame of gossip, at most.
pub fn size_of(data: usize, topic: usize) -> usize {
    data + topic + OVERHEAD
}

/// What may wait for each peer, and for all together.
#[derive(Debug)]
pub struct Queues {
    each: usize,
    all: usize,
    queued: AtomicUsize,
}

impl Queues {
    /// Create it with nothing queued. `each`: bytes for a peer, `all`: for all together.
    pub fn new(each: usize, all: usize) -> Self {
        Self { each, all, queued: AtomicUsize::new(0) }
    }

    /// Return whether so many more bytes may wait.
    pub fn fit(&self, bytes: usize) -> bool {
        self.queued.load(Ordering::Relaxed).saturating_add(bytes) <= self.all
    }
}

/// The bytes that wait for one peer, over all its connections.
#[derive(Debug)]
pub struct Outbox {
    memory: Arc<Account>,
    queues: Arc<Queues>,
    queued: AtomicUsize,
    /// Bytes that gossipsub took from its queue and that no connection has taken yet.
    writing: AtomicUsize,
    pace: Mutex<Pace>,
}

/// How fast a peer takes what waits for it.
#[derive(Debug)]
struct Pace {
    /// When it last took something, or something began to wait.
    progress: Instant,
    /// Since when more than half of what may wait did, and more than a quarter does.
    slow: Option<Instant>,
}

impl Outbox {
    /// Create an empty one. What waits in it counts as kept for the peer.
    pub fn new(memory: &Arc<Account>, queues: &Arc<Queues>, now: Instant) -> Self {
        let (memory, queues) = (Arc::clone(memory), Arc::clone(queues));
        let (queued, writing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { memory, queues, queued, writing, pace: Mutex::new(Pace { progress: now, slow: None }) }
    }

    /// Return bytes that wait.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Return whether so many more may wait. One message always may.
    pub fn fits(&self, bytes: usize) -> bool {
        let queued = self.queued();
        queued == 0 || queued.saturating_add(bytes) <= self.queues.each
    }

    /// Return how long the queue has been slow: since it was more than half full, until at most a quarter is left.
    pub fn slow_for(&self, now: Instant) -> Option<Duration> {
        let (queued, most) = (self.queued(), self.queues.each);
        let mut pace = lock(&self.pace);
        if queued <= most / 4 || (pace.slow.is_none() && queued <= most / 2) {
            pace.slow = None;
            return None;
        }
        Some(now.saturating_duration_since(*pace.slow.get_or_insert(now)))
    }

    /// Return for how long the peer has taken nothing.
    pub fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(lock(&self.pace).progress)
    }

    /// Charge bytes to the queue.
    pub fn charge(&self, bytes: usize, now: Instant) {
        if bytes > 0 {
            // In the opposite order of giving back, so that nothing is given back that was not taken.
            self.memory.add(bytes);
            self.queues.queued.fetch_add(bytes, Ordering::Relaxed);
            if self.queued.fetch_add(bytes, Ordering::Relaxed) == 0 {
                lock(&self.pace).progress = now;
            }
        }
    }

    /// Record bytes of messages that were written to the peer.
    pub fn sent(&self, bytes: usize, now: Instant) {
        let mut taken = 0;
        let less = |queued: usize| {
            taken = bytes.min(queued);
            Some(queued - taken)
        };
        let _ = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        self.give_back(taken);
        lock(&self.pace).progress = now;
    }

    /// Record that a stream has so many bytes to write, and had `before` at the last call.
    pub fn write(&self, before: usize, bytes: usize) {
        self.writing.fetch_add(bytes, Ordering::Relaxed);
        self.writing.fetch_sub(before, Ordering::Relaxed);
    }

    /// Record that gossipsub's queue is empty: nothing is queued but what is being written.
    pub fn drained(&self) {
        self.shrink(self.writing.load(Ordering::Relaxed));
    }

    /// Empty the queue.
    pub fn clear(&self) {
        self.shrink(0);
    }

    fn shrink(&self, left: usize) {
        if self.queued() > left {
            let before = self.queued.fetch_min(left, Ordering::Relaxed);
            self.give_back(before.saturating_sub(left));
        }
    }

    fn give_back(&self, bytes: usize) {
        self.queues.queued.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.subtract(bytes);
    }

    /// Return the error for a peer for which too much is queued.
    pub fn overflow(&self) -> Closed {
        let (queued, limit) = (self.queued(), self.queues.each);
        let reason = format!("the peer reads gossip too slowly: {queued} bytes are queued, the limit is {limit}");
        Closed::new(Cause::Overload, reason)
    }

    /// Return the error for a peer that has taken nothing for too long.
    pub fn stalled(&self, now: Instant) -> Option<Closed> {
        let queued = self.queued();
        (queued > 0 && self.idle_for(now) >= PATIENCE).then(|| {
            let seconds = PATIENCE.as_secs();
            let reason = format!("the peer took nothing by gossip for {seconds} s, and {queued} bytes wait for it");
            Closed::new(Cause::Overload, reason)
        })
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A connection's stream of gossip to the peer, as far as it shows whether something waits to be written.
#[derive(Debug, Default)]
pub struct Outlet {
    /// Streams on which both sides agreed; gossipsub has one.
    pub open: AtomicUsize,
    /// Those whose last bytes are not flushed.
    pub writing: AtomicUsize,
}

impl Outlet {
    /// Return whether gossipsub would write at once what it had.
    pub fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0 && self.writing.load(Ordering::Relaxed) == 0
    }
}

/// The id of a message: the SHA-256 of its data.
pub type Id = [u8; 32];

/// What a peer said in control messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ControlSummary {
    /// Messages that it asked for.
    pub requested: Vec<Id>,
    /// Messages that it announced.
    pub announced: Vec<Id>,
    /// How often it asked to join the mesh.
    pub grafts: usize,
    /// How often it left the mesh, or refused.
    pub prunes: usize,
    /// The length of what was no id, in bytes.
    pub malformed: Option<usize>,
}

#[derive(Debug, Default)]
struct State {
    sizes: HashMap<Id, usize>,
    order: VecDeque<(Instant, Id)>,
}

/// The sizes of the messages that gossipsub hands out when peers ask for them.
#[derive(Debug, Default)]
pub struct Recent(Mutex<State>);

impl Recent {
    /// Record the size of a message that gossipsub has.
    pub fn add(&self, id: &[u8], bytes: usize, now: Instant) {
        let Ok(id) = Id::try_from(id) else { return };
        let mut state = lock(&self.0);
        if state.sizes.insert(id, bytes).is_none() {
            state.order.push_back((now, id));
        }
    }

    /// Return the size of a message; of one that is forgotten, what it counts as.
    pub fn get(&self, id: &[u8]) -> usize {
        let id = Id::try_from(id).ok();
        id.and_then(|id| lock(&self.0).sizes.get(&id).copied()).unwrap_or(SMALL)
    }

    /// Forget what was added `kept` ago: what gossipsub has forgotten.
    pub fn expire(&self, kept: Duration, now: Instant) {
        let mut state = lock(&self.0);
        while let Some((since, id)) = state.order.front().copied()
            && now.saturating_duration_since(since) >= kept
        {
            state.order.pop_front();
            state.sizes.remove(&id);
        }
    }

    /// Return bytes that gossipsub may queue for a peer that said so: messages that it asked for, if gossipsub has
    /// them, requests for those that it announced, if gossipsub has not, and refusals.
    pub fn queued_for(&self, summary: &ControlSummary) -> usize {
        let ControlSummary { requested, announced, grafts, .. } = summary;
        if requested.is_empty() && announced.is_empty() {
            return ANSWER * grafts;
        }
        let state = lock(&self.0);
        let unknown = announced.iter().filter(|id| !state.sizes.contains_key(*id)).count();
        requested.iter().filter_map(|id| state.sizes.get(id)).sum::<usize>() + ANSWER * (unknown + grafts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn outbox(limit: usize, now: Instant) -> (Outbox, Arc<Budget>) {
        let (budget, queues) = (Arc::new(Budget::new(1000, 1000)), Arc::new(Queues::new(limit, 1000)));
        (Outbox::new(&Arc::new(Account::open(&budget, &Arc::default())), &queues, now), budget)
    }

    #[test]
    fn what_waits_for_all_is_bounded_too() {
        let (budget, queues) = (Arc::new(Budget::new(1000, 1000)), Arc::new(Queues::new(100, 150)));
        let open = || Outbox::new(&Arc::new(Account::open(&budget, &Arc::default())), &queues, Instant::now());
        let (first, second) = (open(), open());
        first.charge(100, Instant::now());
        second.charge(20, Instant::now());
        assert!(queues.fit(30) && !queues.fit(31));
        drop(first);
        assert!(queues.fit(130) && !queues.fit(131));
    }

    #[test]
    fn what_waits_counts_until_it_is_written() {
        let now = Instant::now();
        let (outbox, budget) = outbox(100, now);
        // One message may always wait, however large it is.
        assert!(outbox.fits(500));
        outbox.charge(60, now);
        assert!(outbox.fits(40) && !outbox.fits(41));
        assert_eq!(budget.held(), 60);
        outbox.sent(20, now);
        assert_eq!((outbox.queued(), budget.held()), (40, 40));
        // What was not charged, or has been given back already.
        outbox.sent(1000, now);
        assert_eq!((outbox.queued(), budget.held()), (0, 0));
        outbox.charge(70, now);
        outbox.drained();
        outbox.drained();
        assert_eq!((outbox.queued(), budget.held()), (0, 0));
    }

    #[test]
    fn a_peer_is_slow_until_most_has_gone() {
        let start = Instant::now();
        let (outbox, _) = outbox(100, start);
        let second = |second| start + Duration::from_secs(second);
        outbox.charge(50, start);
        assert_eq!(outbox.slow_for(start), None);
        outbox.charge(1, start);
        assert_eq!(outbox.slow_for(second(1)), Some(Duration::ZERO));
        outbox.sent(25, second(2));
        assert_eq!(outbox.slow_for(second(2)), Some(Duration::from_secs(1)));
        outbox.sent(1, second(3));
        assert_eq!(outbox.slow_for(second(3)), None);
        outbox.charge(25, start);
        assert_eq!(outbox.slow_for(second(4)), None);
    }

    #[test]
    fn a_peer_that_takes_nothing_has_stalled() {
        let start = Instant::now();
        let (outbox, _) = outbox(100, start);
        let later = start + 10 * PATIENCE;
        assert_eq!(outbox.stalled(later), None);
        outbox.charge(10, later);
        assert_eq!(outbox.stalled(later + PATIENCE / 2), None);
        outbox.sent(1, later + PATIENCE / 2);
        outbox.charge(10, later + PATIENCE / 2);
        assert_eq!(outbox.stalled(later + PATIENCE), None);
        assert_eq!(outbox.stalled(later + 2 * PATIENCE).map(|closed| closed.cause), Some(Cause::Overload));
    }

    #[test]
    fn sizes_are_remembered_as_long_as_messages_are() {
        let (recent, start, heartbeat) = (Recent::default(), Instant::now(), Duration::from_secs(1));
        recent.add(&[1; 32], 5000, start);
        recent.add(&[1; 32], 5000, start + heartbeat);
        recent.add(&[2; 32], 10, start);
        recent.add(&[3; 5], 5000, start);
        let requested = |ids: &[u8]| {
            let requested = ids.iter().map(|id| [*id; 32]).collect();
            recent.queued_for(&ControlSummary { requested, ..ControlSummary::default() })
        };
        assert_eq!(requested(&[1, 1, 2]), 10_010);
        // Of those that gossipsub does not have, it sends nothing.
        assert_eq!(requested(&[7, 8, 9]), 0);
        let announced = vec![[1; 32], [8; 32], [9; 32]];
        assert_eq!(
            recent.queued_for(&ControlSummary { announced, grafts: 3, ..ControlSummary::default() }),
            5 * ANSWER
        );
        let kept = 8 * heartbeat;
        recent.expire(kept, start + 7 * heartbeat);
        assert_eq!(requested(&[1]), 5000);
        recent.expire(kept, start + kept);
        assert_eq!((requested(&[1]), recent.get(&[1; 32])), (0, SMALL));
        assert!(lock(&recent.0).order.is_empty());
    }
}
