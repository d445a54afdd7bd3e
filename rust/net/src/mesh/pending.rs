//! Messages of gossip that wait for the caller's answer, limited in number, bytes and time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libp2p::PeerId;
use libp2p::gossipsub::{MessageAcceptance, MessageId};

use crate::error::lock;

/// Messages that may wait.
const MAX_MESSAGES: usize = 4096;

/// Bytes of messages that may wait: sixteen of the largest.
const MAX_BYTES: usize = 64 << 20;

/// How long a message may wait. gossipsub itself forgets a message after some heartbeats, and then forwards it no more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What the caller makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is good, and is forwarded.
    Accept,
    /// It is not forwarded, and held against nobody.
    Ignore,
    /// It is not forwarded, and held against the peer that passed it on.
    Reject,
}

impl Answer {
    /// Parse the name of an answer.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "accept" => Some(Self::Accept),
            "ignore" => Some(Self::Ignore),
            "reject" => Some(Self::Reject),
            _ => None,
        }
    }
}

impl From<Answer> for MessageAcceptance {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Accept => Self::Accept,
            Answer::Ignore => Self::Ignore,
            Answer::Reject => Self::Reject,
        }
    }
}

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
    /// Not taken yet: tickets and data.
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

/// The messages that wait.
#[derive(Debug, Default)]
pub struct PendingMessages(Mutex<State>);

impl PendingMessages {
    /// Add a message. False: there is no room.
    pub fn push(&self, origin: Origin, data: Vec<u8>, now: Instant) -> bool {
        let mut state = lock(&self.0);
        if state.unanswered.len() >= MAX_MESSAGES || state.bytes + data.len() > MAX_BYTES {
            return false;
        }
        state.last += 1;
        state.bytes += data.len();
        let (ticket, unanswered) = (state.last, PendingMessage { origin, bytes: data.len(), since: now });
        state.unanswered.insert(ticket, unanswered);
        state.unread.push_back((ticket, data));
        true
    }

    /// Return whether there are messages to take.
    pub fn has_unread(&self) -> bool {
        !lock(&self.0).unread.is_empty()
    }

    /// Take the messages, with their tickets and the peers that passed them on.
    pub fn take(&self) -> Vec<(u64, PeerId, Vec<u8>)> {
        let mut state = lock(&self.0);
        let unread = std::mem::take(&mut state.unread);
        let source = |(ticket, data)| Some((ticket, state.unanswered.get(&ticket)?.origin.1, data));
        unread.into_iter().filter_map(source).collect()
    }

    /// Remove the messages that tickets stand for, and return them without those that are answered already.
    pub fn answer(&self, answers: &[(u64, Answer)]) -> Vec<(Origin, Answer)> {
        let mut state = lock(&self.0);
        answers.iter().filter_map(|(ticket, answer)| Some((state.answer(*ticket)?, *answer))).collect()
    }

    /// Remove all messages.
    pub fn clear(&self) {
        let mut state = lock(&self.0);
        *state = State { last: state.last, ..State::default() };
    }

    /// Remove the messages that were not answered in time, and return them.
    pub fn expire(&self, now: Instant) -> Vec<Origin> {
        let mut state = lock(&self.0);
        let mut expire = Vec::new();
        while let Some((ticket, unanswered)) = state.unanswered.first_key_value()
            && now.saturating_duration_since(unanswered.since) >= ANSWER_TIMEOUT
        {
            let ticket = *ticket;
            expire.extend(state.answer(ticket));
            if state.unread.front().is_some_and(|(unread, _)| *unread == ticket) {
                state.unread.pop_front();
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
        let (pending, now) = (PendingMessages::default(), Instant::now());
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
        let (pending, now) = (PendingMessages::default(), Instant::now());
        for index in 0..MAX_MESSAGES {
            assert!(pending.push(origin(&index.to_string()), Vec::new(), now));
        }
        assert!(!pending.push(origin("more"), Vec::new(), now));
        let pending = PendingMessages::default();
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
        let (pending, start) = (PendingMessages::default(), Instant::now());
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
}
