//! Messages of gossip that wait for an answer, a validator's or the caller's, limited in number, bytes and time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libp2p::PeerId;
use libp2p::gossipsub::MessageId;

use crate::error::lock;
use crate::mesh::validator::Answer;

/// Messages that may wait.
const MAX_MESSAGES: usize = 4096;

/// Bytes of messages that may wait: sixteen of the largest.
const MAX_BYTES: usize = 64 << 20;

/// Messages that are validated at once, and bytes of them, unless a single one has more.
const MAX_BATCH: usize = 1024;
const MAX_BATCH_BYTES: usize = 8 << 20;

/// How long a message may wait. gossipsub itself forgets a message after some heartbeats, and then forwards it no more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What gossipsub identifies a message by: its id, and the peer that passed it on.
pub type Origin = (MessageId, PeerId);

#[derive(Debug)]
struct PendingMessage {
    origin: Origin,
    bytes: usize,
    since: Instant,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    bytes: usize,
    /// Whether nothing will be validated any more.
    closed: bool,
    /// Whether the validator is to be called also where nothing comes.
    woken: bool,
    /// Not validated yet, where there is a validator: tickets and data.
    unvalidated: VecDeque<(u64, Vec<u8>)>,
    /// Not taken by the caller yet: tickets and data.
    unread: VecDeque<(u64, Vec<u8>)>,
    /// Not answered yet, by ticket, which is by age.
    unanswered: BTreeMap<u64, PendingMessage>,
}

impl State {
    fn answer(&mut self, ticket: u64) -> Option<Origin> {
        let unanswered = self.unanswered.remove(&ticket)?;
        self.bytes -= unanswered.bytes;
        Some(unanswered.origin)
    }
}

/// The messages that wait: for a validator, if there is one, and for the caller.
#[derive(Debug)]
pub struct PendingMessages {
    state: Mutex<State>,
    has_validator: bool,
    /// Wakes the validator.
    arrived: Condvar,
}

impl PendingMessages {
    /// Messages are validated before the caller gets them if it `has_validator`.
    pub fn new(has_validator: bool) -> Self {
        Self { state: Mutex::default(), has_validator, arrived: Condvar::new() }
    }

    /// Add a message. False: there is no room.
    pub fn push(&self, origin: Origin, data: Vec<u8>, now: Instant) -> bool {
        let mut state = lock(&self.state);
        if state.unanswered.len() >= MAX_MESSAGES || state.bytes + data.len() > MAX_BYTES {
            return false;
        }
        state.last += 1;
        state.bytes += data.len();
        let (ticket, unanswered) = (state.last, PendingMessage { origin, bytes: data.len(), since: now });
        state.unanswered.insert(ticket, unanswered);
        if self.has_validator {
            state.unvalidated.push_back((ticket, data));
            self.arrived.notify_one();
        } else {
            state.unread.push_back((ticket, data));
        }
        true
    }

    /// Have [`Self::take_unvalidated`] return, also if there is nothing.
    pub fn wake(&self) {
        if !std::mem::replace(&mut lock(&self.state).woken, true) {
            self.arrived.notify_one();
        }
    }

    /// Wait for messages to validate, and take them, with their tickets and the peers that passed them on. None: nothing
    /// will come. `longest`: how long to wait; then there may be none, nor where it was woken.
    pub fn take_unvalidated(&self, longest: Option<Duration>) -> Option<Vec<(u64, PeerId, Vec<u8>)>> {
        let state = lock(&self.state);
        let is_waited_for = |state: &mut State| state.unvalidated.is_empty() && !state.closed && !state.woken;
        let mut state = match longest {
            None => self.arrived.wait_while(state, is_waited_for).unwrap_or_else(PoisonError::into_inner),
            Some(longest) => {
                self.arrived.wait_timeout_while(state, longest, is_waited_for).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if state.closed {
            return None;
        }
        state.woken = false;
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < MAX_BATCH
            && let Some((ticket, data)) = state.unvalidated.pop_front()
        {
            bytes += data.len();
            if let Some(unanswered) = state.unanswered.get(&ticket) {
                taken.push((ticket, unanswered.origin.1, data));
            }
            if bytes >= MAX_BATCH_BYTES {
                break;
            }
        }
        Some(taken)
    }

    /// Have the caller decide about messages that a validator did not accept.
    pub fn defer(&self, messages: impl IntoIterator<Item = (u64, Vec<u8>)>) {
        let mut state = lock(&self.state);
        for (ticket, data) in messages {
            if state.unanswered.contains_key(&ticket) {
                state.unread.push_back((ticket, data));
            }
        }
    }

    /// Return whether there are messages to take.
    pub fn has_unread(&self) -> bool {
        !lock(&self.state).unread.is_empty()
    }

    /// Take the messages, with their tickets and the peers that passed them on.
    pub fn take(&self) -> Vec<(u64, PeerId, Vec<u8>)> {
        let mut state = lock(&self.state);
        let unread = std::mem::take(&mut state.unread);
        let source = |(ticket, data)| Some((ticket, state.unanswered.get(&ticket)?.origin.1, data));
        unread.into_iter().filter_map(source).collect()
    }

    /// Remove the messages that tickets stand for, and return them without those that are answered already.
    pub fn answer(&self, answers: &[(u64, Answer)]) -> Vec<(Origin, Answer)> {
        let mut state = lock(&self.state);
        answers.iter().filter_map(|(ticket, answer)| Some((state.answer(*ticket)?, *answer))).collect()
    }

    /// Remove all messages: the host has ended, and nothing is validated any more.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        *state = State { last: state.last, closed: true, ..State::default() };
        self.arrived.notify_one();
    }

    /// Remove the messages that were not answered in time, and return them.
    pub fn expire(&self, now: Instant) -> Vec<Origin> {
        let mut state = lock(&self.state);
        let mut expire = Vec::new();
        while let Some((ticket, unanswered)) = state.unanswered.first_key_value()
            && now.saturating_duration_since(unanswered.since) >= ANSWER_TIMEOUT
        {
            let ticket = *ticket;
            expire.extend(state.answer(ticket));
        }
        if !expire.is_empty() {
            // What a validator had wait is deferred behind younger ones: tickets do not ascend.
            let State { unvalidated, unread, unanswered, .. } = &mut *state;
            for queue in [unvalidated, unread] {
                queue.retain(|(ticket, _)| unanswered.contains_key(ticket));
            }
        }
        expire
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(name: &str) -> Origin {
        (MessageId::new(name.as_bytes()), PeerId::random())
    }

    #[test]
    fn is_answered_once() {
        let (pending, now) = (PendingMessages::new(false), Instant::now());
        let origins = [origin("a"), origin("b")];
        for origin in &origins {
            assert!(pending.push(origin.clone(), b"data".to_vec(), now));
        }
        assert!(pending.has_unread());
        let taken = pending.take();
        assert_eq!(taken, [(1, origins[0].1, b"data".to_vec()), (2, origins[1].1, b"data".to_vec())]);
        assert!(!pending.has_unread());
        let answers = [(2, Answer::Reject), (2, Answer::Accept), (7, Answer::Accept)];
        assert_eq!(pending.answer(&answers), [(origins[1].clone(), Answer::Reject)]);
    }

    #[test]
    fn there_is_room_for_so_many_and_so_much() {
        let (pending, now) = (PendingMessages::new(false), Instant::now());
        for index in 0..MAX_MESSAGES {
            assert!(pending.push(origin(&index.to_string()), Vec::new(), now));
        }
        assert!(!pending.push(origin("more"), Vec::new(), now));
        let pending = PendingMessages::new(false);
        for index in 0..16 {
            assert!(pending.push(origin(&index.to_string()), vec![0; MAX_BYTES / 16], now));
        }
        assert!(!pending.push(origin("more"), vec![0], now));
        // Taking makes no room, answering does.
        assert_eq!(pending.take().len(), 16);
        assert!(!pending.push(origin("more"), vec![0], now));
        pending.answer(&[(1, Answer::Accept)]);
        assert!(pending.push(origin("more"), vec![0], now));
    }

    #[test]
    fn waits_for_so_long() {
        let (pending, start) = (PendingMessages::new(false), Instant::now());
        let origins = [origin("a"), origin("b"), origin("c")];
        pending.push(origins[0].clone(), vec![0; 10], start);
        pending.take();
        pending.push(origins[1].clone(), vec![0; 10], start);
        pending.push(origins[2].clone(), vec![0; 10], start + Duration::from_secs(1));
        assert_eq!(pending.expire(start + ANSWER_TIMEOUT - Duration::from_millis(1)), []);
        assert_eq!(pending.expire(start + ANSWER_TIMEOUT), origins[..2]);
        assert_eq!(pending.take(), [(3, origins[2].1, vec![0; 10])]);
        assert_eq!(pending.answer(&[(1, Answer::Accept), (2, Answer::Accept)]), []);
    }

    #[test]
    fn what_was_deferred_late_expires_too() {
        let (pending, start) = (PendingMessages::new(true), Instant::now());
        for name in ["a", "b", "c"] {
            pending.push(origin(name), b"data".to_vec(), start);
        }
        pending.take_unvalidated(None).unwrap();
        for ticket in [2, 3, 1] {
            pending.defer([(ticket, b"data".to_vec())]);
        }
        assert_eq!(pending.expire(start + ANSWER_TIMEOUT).len(), 3);
        assert!(!pending.has_unread() && lock(&pending.state).bytes == 0);
    }

    #[test]
    fn is_validated_before_the_caller_gets_it() {
        let (pending, start) = (PendingMessages::new(true), Instant::now());
        let origins = [origin("a"), origin("b"), origin("c"), origin("d")];
        for origin in &origins[..3] {
            pending.push(origin.clone(), b"data".to_vec(), start);
        }
        assert!(!pending.has_unread());
        let taken = pending.take_unvalidated(None).unwrap();
        assert_eq!(
            taken.iter().map(|(ticket, source, _)| (*ticket, *source)).collect::<Vec<_>>(),
            [(1, origins[0].1), (2, origins[1].1), (3, origins[2].1)]
        );
        assert_eq!(pending.answer(&[(2, Answer::Accept)]), [(origins[1].clone(), Answer::Accept)]);
        pending.defer([(1, b"data".to_vec()), (2, b"data".to_vec()), (3, b"data".to_vec())]);
        assert_eq!(pending.take().into_iter().map(|(ticket, ..)| ticket).collect::<Vec<_>>(), [1, 3]);
        // What expires is validated no more, and what expired meanwhile is deferred to nobody.
        pending.push(origins[3].clone(), b"data".to_vec(), start);
        assert_eq!(pending.expire(start + ANSWER_TIMEOUT).len(), 3);
        pending.defer([(4, b"data".to_vec())]);
        assert!(!pending.has_unread());
        pending.push(origins[0].clone(), vec![0; MAX_BATCH_BYTES], start);
        pending.push(origins[1].clone(), b"data".to_vec(), start);
        let taken = |pending: &PendingMessages| pending.take_unvalidated(None).map(|taken| taken[0].0);
        assert_eq!((taken(&pending), taken(&pending), pending.has_unread()), (Some(5), Some(6), false));
        assert_eq!(pending.take_unvalidated(Some(Duration::from_nanos(1))), Some(Vec::new()));
        pending.wake();
        pending.wake();
        assert_eq!(pending.take_unvalidated(None), Some(Vec::new()));
        pending.close();
        assert_eq!(taken(&pending), None);
    }
}
