//! What yamux does not report: which streams were reset and which ended, how much memory its frames take, and what a
//! peer did wrong.
//!
//! The yamux crate reports a reset, an end and a lost connection alike as the end of the bytes; answers a violation
//! with GoAway but reads on; cannot reset a stream that was half-closed; and stores frames one by one, 64 bytes of
//! memory for one byte sent. The headers that pass by show all this. Frames:
//! <https://github.com/hashicorp/yamux/blob/master/spec.md>.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::budget::{Account, Budget};
use crate::close_signal::CloseSignal;
use crate::error::lock;

/// Bytes of a frame's header.
pub const HEADER: usize = 12;

/// Data frames that a connection may keep waiting for the caller. A peer that fills every window with frames of 128
/// bytes stays below; one that sends single bytes would use 64 times what the windows allow.
const MOST_FRAMES: usize = 1 << 16;

const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 1;
const PING: u8 = 2;
const GO_AWAY: u8 = 3;
const SYN: u16 = 1;
const FIN: u16 = 4;
const RST: u16 = 8;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u8,
    flags: u16,
    stream: u32,
    /// Of a data frame's body, in bytes; credit, ping's value or error code of others.
    length: u32,
}

impl Header {
    /// Read a header; what is wrong with it is yamux's to find.
    pub fn parse(bytes: &[u8; HEADER]) -> Self {
        let [_, kind, f0, f1, s0, s1, s2, s3, l0, l1, l2, l3] = *bytes;
        Self {
            kind,
            flags: u16::from_be_bytes([f0, f1]),
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// Return the frame that resets a stream.
    pub fn reset(stream: u32) -> [u8; HEADER] {
        let [s0, s1, s2, s3] = stream.to_be_bytes();
        let [f0, f1] = RST.to_be_bytes();
        [0, DATA, f0, f1, s0, s1, s2, s3, 0, 0, 0, 0]
    }

    /// Return whether it accuses the receiver: a GoAway with an error code.
    pub fn accuses(&self) -> bool {
        self.kind == GO_AWAY && self.length != 0
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl fmt::Display for Header {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, flags, stream, length } = self;
        write!(formatter, "yamux frame of type {kind}, flags {flags:#06x}, stream {stream}, length {length}")
    }
}

/// Finds the headers in a stream of frames, however it is cut.
#[derive(Debug, Default)]
pub struct Scanner {
    header: [u8; HEADER],
    filled: usize,
    body: u32,
}

impl Scanner {
    /// Return whether what was seen ends where a frame does.
    pub fn at_boundary(&self) -> bool {
        self.filled == 0 && self.body == 0
    }

    /// Pass over `bytes`, naming the headers that end in them.
    pub fn advance(&mut self, mut bytes: &[u8], mut found: impl FnMut(Header)) {
        while !bytes.is_empty() {
            if self.body > 0 {
                let skipped = bytes.len().min(self.body as usize);
                self.body -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = bytes.len().min(HEADER - self.filled);
            self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEADER {
                self.filled = 0;
                let header = Header::parse(&self.header);
                self.body = if header.kind == DATA { header.length } else { 0 };
                found(header);
            }
        }
    }
}

/// The state of the peer's direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer neither ended nor reset it.
    None,
    /// The peer sent all it had to.
    Finished,
    /// The peer reset it.
    Reset,
}

#[derive(Debug)]
struct Record {
    ending: Ending,
    /// Lengths of the frames that were received and not read yet.
    unread: VecDeque<u32>,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<u32, Record>,
    unread: usize,
    /// Frames of streams that were released, which yamux may keep until it can write.
    stray: usize,
    blocked: bool,
    resets: VecDeque<u32>,
    last: Option<(Header, bool)>,
    farewell: Option<u32>,
    violation: Option<String>,
    ended: bool,
}

/// The account of one connection's frames.
#[derive(Debug)]
pub struct Ledger {
    state: Mutex<State>,
    /// Bytes that are kept for the peer.
    pub account: Arc<Account>,
    /// The signal that ends the connection.
    pub close_signal: Arc<CloseSignal>,
}

impl Ledger {
    /// Create an empty one, of a connection whose peer has no other and shares in `budget`.
    pub fn new(budget: &Arc<Budget>) -> Self {
        let close_signal = Arc::default();
        let account = Arc::new(Account::open(budget, &close_signal));
        Self::sharing(account, close_signal)
    }

    /// Create an empty one, of a connection that shares its peer's account with others. `close_signal`: of them all.
    pub fn sharing(account: Arc<Account>, close_signal: Arc<CloseSignal>) -> Self {
        Self { state: Mutex::default(), account, close_signal }
    }

    /// Record the header of a frame that was received.
    pub fn received(&self, header: Header) {
        let kept = self.record(header);
        if kept > 0 {
            // Its bytes are about to follow. With the ledger unlocked: this may end connections, which wakes their
            // tasks.
            self.account.add(kept);
        }
    }

    /// Record a frame; return the bytes that are to be kept for it.
    fn record(&self, header: Header) -> usize {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let mut kept = 0;
        state.last = Some((header, state.records.contains_key(&header.stream)));
        match header.kind {
            DATA | WINDOW_UPDATE => {}
            GO_AWAY => {
                state.farewell = Some(header.length);
                return 0;
            }
            _ => return 0,
        }
        if header.has(SYN) {
            state.records.entry(header.stream).or_insert(Record { ending: Ending::None, unread: VecDeque::new() });
        }
        let carries = header.kind == DATA && header.length > 0;
        if let Some(record) = state.records.get_mut(&header.stream) {
            if header.has(RST) {
                record.ending = Ending::Reset;
            } else if header.has(FIN) && record.ending == Ending::None {
                record.ending = Ending::Finished;
            }
            if carries {
                record.unread.push_back(header.length);
                state.unread += 1;
                kept = header.length as usize;
            }
        } else if carries && state.blocked {
            state.stray += 1;
        }
        if state.unread + state.stray > MOST_FRAMES {
            let reason = format!("the peer sent {MOST_FRAMES} small yamux frames ahead of what was read");
            state.violation.get_or_insert(reason);
        }
        kept
    }

    /// Record a stream that this side opened.
    pub fn opened(&self, stream: u32) {
        lock(&self.state).records.insert(stream, Record { ending: Ending::None, unread: VecDeque::new() });
    }

    /// Record that bytes of a stream were read.
    pub fn read(&self, stream: u32, mut bytes: usize) {
        let mut state = lock(&self.state);
        let State { records, unread, .. } = &mut *state;
        let Some(record) = records.get_mut(&stream) else { return };
        self.account.subtract(bytes);
        while bytes > 0
            && let Some(first) = record.unread.front_mut()
        {
            let taken = bytes.min(*first as usize);
            bytes -= taken;
            *first -= taken as u32;
            if *first == 0 {
                record.unread.pop_front();
                *unread -= 1;
            }
        }
    }

    /// Return the state of the peer's direction of a stream.
    pub fn ending(&self, stream: u32) -> Ending {
        lock(&self.state).records.get(&stream).map_or(Ending::Reset, |record| record.ending)
    }

    /// Forget a stream that was released.
    pub fn dropped(&self, stream: u32) {
        let mut state = lock(&self.state);
        if let Some(record) = state.records.remove(&stream) {
            self.account.subtract(record.unread.iter().map(|length| *length as usize).sum());
            state.unread -= record.unread.len();
            if state.blocked {
                state.stray += record.unread.len();
            }
        }
    }

    /// Send a reset of a stream, unless the peer reset it itself. Yamux cannot, once it was half-closed.
    pub fn reset(&self, stream: u32) {
        let mut state = lock(&self.state);
        if state.records.get(&stream).is_some_and(|record| record.ending != Ending::Reset) {
            state.resets.push_back(stream);
            drop(state);
            self.close_signal.task.wake();
        }
    }

    /// Take the next stream whose reset is to be sent.
    pub fn next_reset(&self) -> Option<u32> {
        lock(&self.state).resets.pop_front()
    }

    /// Record whether written bytes wait for the peer.
    pub fn set_blocked(&self, blocked: bool) {
        let mut state = lock(&self.state);
        state.blocked = blocked;
        if !blocked {
            state.stray = 0;
        }
    }

    /// Return whether written bytes wait for the peer.
    pub fn blocked(&self) -> bool {
        lock(&self.state).blocked
    }

    /// Record that yamux is about to accuse the peer, because of the frame that it has just read.
    pub fn accused(&self) {
        let mut state = lock(&self.state);
        let reason = match state.last {
            Some((header, known)) => format!("the peer {}: {header}", offence(&header, known)),
            None => "the peer broke the rules of yamux".to_owned(),
        };
        state.violation.get_or_insert(reason);
    }

    /// Return what the peer did wrong.
    pub fn violation(&self) -> Option<String> {
        lock(&self.state).violation.clone()
    }

    /// Record that this side's direction is closed.
    pub fn end(&self) {
        lock(&self.state).ended = true;
    }

    /// Return whether this side's direction is closed.
    pub fn ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Return the code of the peer's GoAway: 0 for an end in order.
    pub fn farewell(&self) -> Option<u32> {
        lock(&self.state).farewell
    }
}

/// Return what a frame that yamux refused did wrong. `known`: its stream was open.
fn offence(header: &Header, known: bool) -> &'static str {
    match header.kind {
        PING => "answered a ping that was not sent",
        _ if header.has(SYN) && known => "opened a stream that is open",
        _ if header.has(SYN) => {
            "opened a stream with a number that is not its to use, more than its window, or one stream too many"
        }
        DATA => "sent more than a stream's window",
        WINDOW_UPDATE => "granted more than a window can hold",
        _ => "broke the rules of yamux",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, flags: u16, stream: u32, length: u32) -> Header {
        Header { kind, flags, stream, length }
    }

    fn ledger() -> Ledger {
        Ledger::new(&Arc::new(Budget::new(1 << 20, 1 << 20)))
    }

    fn bytes(header: &Header) -> Vec<u8> {
        let mut bytes = vec![0, header.kind];
        bytes.extend(header.flags.to_be_bytes());
        bytes.extend(header.stream.to_be_bytes());
        bytes.extend(header.length.to_be_bytes());
        bytes
    }

    #[test]
    fn finds_headers_however_the_bytes_are_cut() {
        let headers =
            [header(DATA, SYN, 1, 5), header(PING, SYN, 0, 9), header(DATA, FIN, 1, 0), header(DATA, 0, 3, 20)];
        let mut stream = Vec::new();
        for header in &headers {
            stream.extend(bytes(header));
            if header.kind == DATA {
                stream.extend(vec![255; header.length as usize]);
            }
        }
        for cut in 1..stream.len() {
            let (mut scanner, mut found) = (Scanner::default(), Vec::new());
            for piece in stream.chunks(cut) {
                scanner.advance(piece, |header| found.push(header));
            }
            assert_eq!(found, headers);
            assert!(scanner.at_boundary());
        }
    }

    #[test]
    fn the_frame_that_resets_reads_back() {
        assert_eq!(Header::parse(&Header::reset(77)), header(DATA, RST, 77, 0));
    }

    #[test]
    fn tells_an_end_from_a_reset() {
        let ledger = ledger();
        ledger.received(header(WINDOW_UPDATE, SYN, 1, 0));
        assert_eq!(ledger.ending(1), Ending::None);
        ledger.received(header(DATA, FIN, 1, 0));
        assert_eq!(ledger.ending(1), Ending::Finished);
        ledger.received(header(WINDOW_UPDATE, RST, 1, 0));
        assert_eq!(ledger.ending(1), Ending::Reset);
        ledger.received(header(DATA, FIN, 1, 0));
        assert_eq!(ledger.ending(1), Ending::Reset);
    }

    #[test]
    fn small_frames_are_counted_until_they_are_read() {
        let ledger = ledger();
        ledger.received(header(DATA, SYN, 1, 1));
        for _ in 1..MOST_FRAMES {
            ledger.received(header(DATA, 0, 1, 1));
        }
        ledger.read(1, 2);
        ledger.received(header(DATA, 0, 1, 2));
        ledger.received(header(DATA, 0, 1, 2));
        assert_eq!(ledger.violation(), None);
        ledger.read(1, 1);
        ledger.received(header(DATA, SYN, 3, 1));
        assert_eq!(ledger.violation(), None);
        ledger.received(header(DATA, 0, 3, 1));
        assert!(ledger.violation().unwrap().contains("small yamux frames"));
    }

    #[test]
    fn frames_of_a_dropped_stream_count_while_nothing_can_be_written() {
        let ledger = ledger();
        ledger.received(header(DATA, SYN, 1, 1));
        ledger.set_blocked(true);
        ledger.dropped(1);
        for _ in 1..MOST_FRAMES {
            ledger.received(header(DATA, 0, 1, 1));
        }
        assert_eq!(ledger.violation(), None);
        ledger.set_blocked(false);
        ledger.received(header(DATA, 0, 1, 1));
        assert_eq!(ledger.violation(), None);
    }

    #[test]
    fn a_reset_is_sent_once_and_only_to_those_that_wait_for_it() {
        let ledger = ledger();
        ledger.opened(1);
        ledger.opened(3);
        ledger.received(header(DATA, RST, 3, 0));
        ledger.reset(1);
        ledger.reset(3);
        ledger.reset(5);
        assert_eq!(ledger.next_reset(), Some(1));
        assert_eq!(ledger.next_reset(), None);
    }

    #[test]
    fn what_is_not_read_is_kept() {
        let budget = Arc::new(Budget::new(100, 100));
        let ledger = Ledger::new(&budget);
        ledger.received(header(DATA, SYN, 1, 60));
        ledger.received(header(DATA, SYN, 3, 40));
        assert_eq!(budget.held(), 100);
        ledger.read(1, 50);
        ledger.dropped(3);
        assert_eq!(budget.held(), 10);
        ledger.received(header(DATA, 0, 3, 1000));
        assert_eq!((budget.held(), ledger.close_signal.reason()), (10, None));
        ledger.received(header(DATA, 0, 1, 91));
        assert!(ledger.close_signal.reason().unwrap().reason.contains("101 bytes kept in memory"));
    }
}
