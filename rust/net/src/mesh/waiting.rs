//! Messages that came by gossip and wait to be judged. Nothing stays: there is room for so many, and so much time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libp2p::PeerId;
use libp2p::gossipsub::{MessageAcceptance, MessageId};

use crate::error::lock;

/// Messages that may wait.
const MOST_MESSAGES: usize = 4096;

/// Bytes of messages that may wait: sixteen of the largest.
const MOST_BYTES: usize = 64 << 20;

/// How long a message may wait. gossipsub itself forgets a message after some heartbeats, and then forwards it no more.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// By its name.
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

/// What gossipsub knows a message by: its id, and who passed it on.
pub type Origin = (MessageId, PeerId);

#[derive(Debug)]
struct Asked {
    origin: Origin,
    bytes: usize,
    since: Instant,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    bytes: usize,
    /// Not taken yet: tickets and data.
    untaken: VecDeque<(u64, Vec<u8>)>,
    /// Not answered yet, by ticket, which is by age.
    asked: BTreeMap<u64, Asked>,
}

impl State {
    fn settle(&mut self, ticket: u64) -> Option<Origin> {
        let asked = self.asked.remove(&ticket)?;
        self.bytes -= asked.bytes;
        Some(asked.origin)
    }
}

/// The messages that wait.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<State>);

impl Waiting {
    /// Has a message wait. False: there is no room.
    pub fn offer(&self, origin: Origin, data: Vec<u8>, now: Instant) -> bool {
        let mut state = lock(&self.0);
        if state.asked.len() >= MOST_MESSAGES || state.bytes + data.len() > MOST_BYTES {
            return false;
        }
        state.last += 1;
        state.bytes += data.len();
        let (ticket, asked) = (state.last, Asked { origin, bytes: data.len(), since: now });
        state.asked.insert(ticket, asked);
        state.untaken.push_back((ticket, data));
        true
    }

    /// Whether there are messages to take.
    pub fn any(&self) -> bool {
        !lock(&self.0).untaken.is_empty()
    }

    /// Takes the messages, with their tickets and who passed them on.
    pub fn take(&self) -> Vec<(u64, PeerId, Vec<u8>)> {
        let mut state = lock(&self.0);
        let untaken = std::mem::take(&mut state.untaken);
        let source = |(ticket, data)| Some((ticket, state.asked.get(&ticket)?.origin.1, data));
        untaken.into_iter().filter_map(source).collect()
    }

    /// The messages that tickets stand for, without those that are answered already.
    pub fn settle(&self, answers: &[(u64, Answer)]) -> Vec<(Origin, Answer)> {
        let mut state = lock(&self.0);
        answers.iter().filter_map(|(ticket, answer)| Some((state.settle(*ticket)?, *answer))).collect()
    }

    /// Has nothing wait any more.
    pub fn clear(&self) {
        let mut state = lock(&self.0);
        *state = State { last: state.last, ..State::default() };
    }

    /// The messages that have waited too long, which wait no more.
    pub fn expired(&self, now: Instant) -> Vec<Origin> {
        let mut state = lock(&self.0);
        let mut expired = Vec::new();
        while let Some((ticket, asked)) = state.asked.first_key_value()
            && now.saturating_duration_since(asked.since) >= PATIENCE
        {
            let ticket = *ticket;
            expired.extend(state.settle(ticket));
            if state.untaken.front().is_some_and(|(untaken, _)| *untaken == ticket) {
                state.untaken.pop_front();
            }
        }
        expired
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
        let (waiting, now) = (Waiting::default(), Instant::now());
        let origins = [origin("a"), origin("b")];
        for origin in &origins {
            assert!(waiting.offer(origin.clone(), b"data".to_vec(), now));
        }
        assert!(waiting.any());
        let taken = waiting.take();
        assert_eq!(taken, [(1, origins[0].1, b"data".to_vec()), (2, origins[1].1, b"data".to_vec())]);
        assert!(!waiting.any());
        let answers = [(2, Answer::Reject), (2, Answer::Accept), (7, Answer::Accept)];
        assert_eq!(waiting.settle(&answers), [(origins[1].clone(), Answer::Reject)]);
    }

    #[test]
    fn there_is_room_for_so_many_and_so_much() {
        let (waiting, now) = (Waiting::default(), Instant::now());
        for index in 0..MOST_MESSAGES {
            assert!(waiting.offer(origin(&index.to_string()), Vec::new(), now));
        }
        assert!(!waiting.offer(origin("more"), Vec::new(), now));
        let waiting = Waiting::default();
        for index in 0..16 {
            assert!(waiting.offer(origin(&index.to_string()), vec![0; MOST_BYTES / 16], now));
        }
        assert!(!waiting.offer(origin("more"), vec![0], now));
        // Taking makes no room, answering does.
        assert_eq!(waiting.take().len(), 16);
        assert!(!waiting.offer(origin("more"), vec![0], now));
        waiting.settle(&[(1, Answer::Accept)]);
        assert!(waiting.offer(origin("more"), vec![0], now));
    }

    #[test]
    fn waits_for_so_long() {
        let (waiting, start) = (Waiting::default(), Instant::now());
        let origins = [origin("a"), origin("b"), origin("c")];
        waiting.offer(origins[0].clone(), vec![0; 10], start);
        waiting.take();
        waiting.offer(origins[1].clone(), vec![0; 10], start);
        waiting.offer(origins[2].clone(), vec![0; 10], start + Duration::from_secs(1));
        assert_eq!(waiting.expired(start + PATIENCE - Duration::from_millis(1)), []);
        assert_eq!(waiting.expired(start + PATIENCE), origins[..2]);
        assert_eq!(waiting.take(), [(3, origins[2].1, vec![0; 10])]);
        assert_eq!(waiting.settle(&[(1, Answer::Accept), (2, Answer::Accept)]), []);
    }
}
