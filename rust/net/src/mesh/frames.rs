//! Count the bytes of a stream that gossipsub keeps, and those that are no messages, as they pass.
//!
//! gossipsub reads a frame whole before it looks at it, so half of one stays in memory for as long as the peer likes.
//! It also handles any number of control messages and ids. This module parses only the lengths of frames and the
//! tags of their fields; gossipsub interprets them. A stream speaks gossip once
//! multistream-select names it on it: <https://github.com/multiformats/multistream-select>. Frames:
//! <https://github.com/libp2p/specs/blob/master/pubsub/README.md#the-rpc>.

use std::sync::Arc;

use libp2p::StreamProtocol;

use crate::mesh::outbox::{ControlSummary, Id};

/// What the names of gossipsub's protocols begin with, whatever their version, and those of floodsub's: their frames
/// are alike.
const GOSSIP: [&[u8]; 2] = [b"/meshsub/", b"/floodsub/"];

/// The longest message of multistream-select, in bytes: its lengths have two.
const LONGEST_LINE: u64 = (1 << 14) - 1;

/// The fields of a frame that are a message, and what gossipsub calls a control message.
const MESSAGE: u64 = 2;
const CONTROL: u64 = 3;

/// The fields of a control message: messages are announced and asked for, …
const IHAVE: u64 = 1;
const IWANT: u64 = 2;
/// … somebody asks to join the mesh, leaves it or refuses, …
const GRAFT: u64 = 3;
const PRUNE: u64 = 4;
/// … and messages are not wanted.
const IDONTWANT: u64 = 5;

/// Bytes that a frame, each of its fields and each id count as, beside their own: they cost work however small they
/// are.
const EACH: usize = 32;

/// Bytes that the id of a message counts as which is not wanted: gossipsub compares it with all that waits for the
/// peer.
const UNWANTED: usize = 1024;

/// One direction of a stream, as far as it was read.
#[derive(Debug)]
pub struct Frames {
    state: State,
    /// Protocols that are not libp2p's own, and whose bytes are anybody's.
    others: Arc<[StreamProtocol]>,
}

#[derive(Debug)]
enum State {
    /// Both sides may still be agreeing on a protocol.
    Agreeing(Lines),
    Gossip(Frame),
    Other,
}

impl Frames {
    /// Create it for a new stream. `others`: the protocols whose streams are not looked into.
    pub fn new(others: &Arc<[StreamProtocol]>) -> Self {
        Self { state: State::Agreeing(Lines::default()), others: Arc::clone(others) }
    }

    /// Take bytes that were read. Return what they cost beside messages, in bytes.
    pub fn advance(&mut self, mut bytes: &[u8]) -> usize {
        while let State::Agreeing(lines) = &mut self.state
            && let Some((first, rest)) = bytes.split_first()
        {
            bytes = rest;
            let Some(line) = lines.advance(*first) else { continue };
            let name = line.strip_suffix(b"\n").unwrap_or(&line);
            // The caller's first: it may speak gossip, and then counts itself what that costs.
            if line.is_empty() || self.others.iter().any(|other| other.as_ref().as_bytes() == name) {
                self.state = State::Other;
            } else if GOSSIP.iter().any(|prefix| name.starts_with(prefix)) {
                self.state = State::Gossip(Frame::default());
            }
        }
        match &mut self.state {
            State::Gossip(frame) => frame.advance(bytes),
            _ => 0,
        }
    }

    /// Return whether both sides agreed on gossip.
    pub fn are_gossip(&self) -> bool {
        matches!(self.state, State::Gossip(_))
    }

    /// Take what the peer has named in control messages since the last call.
    pub fn take_control(&mut self) -> ControlSummary {
        match &mut self.state {
            State::Gossip(frame) => std::mem::take(&mut frame.control.summary),
            _ => ControlSummary::default(),
        }
    }

    /// Return bytes of a frame that is not whole.
    pub fn kept(&self) -> usize {
        match &self.state {
            State::Gossip(frame) => frame.seen,
            _ => 0,
        }
    }
}

/// The messages of multistream-select.
#[derive(Debug, Default)]
struct Lines {
    length: Varint,
    left: u64,
    line: Vec<u8>,
}

impl Lines {
    /// Take one more byte. Return a line once it is complete; an empty one for what is none.
    fn advance(&mut self, byte: u8) -> Option<Vec<u8>> {
        if self.left == 0 {
            match self.length.advance(byte)? {
                Some(length @ 1..=LONGEST_LINE) => self.left = length,
                _ => return Some(Vec::new()),
            }
            return None;
        }
        self.line.push(byte);
        self.left -= 1;
        (self.left == 0).then(|| std::mem::take(&mut self.line))
    }
}

/// A frame of gossip: its length, then fields of protocol buffers.
#[derive(Debug, Default)]
pub struct Frame {
    part: Part,
    number: Varint,
    /// Bytes that were read of it.
    seen: usize,
    /// Bytes that are still to come.
    left: usize,
    /// Bytes of messages, in this frame and those before.
    messages: usize,
    control: Control,
}

/// What a field of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Message,
    Control,
    Other,
}

#[derive(Clone, Copy, Debug, Default)]
enum Part {
    #[default]
    Length,
    Key,
    Number,
    Size(Field),
    Body {
        left: usize,
        field: Field,
    },
}

/// What cannot be read: gossipsub refuses it when it is whole.
const REST: Part = Part::Body { left: usize::MAX, field: Field::Other };

impl Frame {
    /// Pass over bytes that this side wrote; return how many of them are of messages, and how many answers to what the
    /// peer announced and asked for they hold.
    pub fn written(&mut self, bytes: &[u8]) -> (usize, usize) {
        self.advance(bytes);
        let summary = std::mem::take(&mut self.control.summary);
        (std::mem::take(&mut self.messages), summary.requested.len() + summary.prunes)
    }

    fn advance(&mut self, mut bytes: &[u8]) -> usize {
        let mut cost = 0;
        while let Some(first) = bytes.first() {
            if let Part::Body { left, field } = &mut self.part {
                let taken = bytes.len().min(self.left).min(*left);
                *left -= taken;
                match field {
                    Field::Message => self.messages += taken,
                    Field::Control => cost += self.control.advance(&bytes[..taken]),
                    Field::Other => {}
                }
                cost += if *field == Field::Message { 0 } else { taken };
                if *left == 0 {
                    self.part = Part::Key;
                }
                self.left -= taken;
                self.seen += taken;
                bytes = &bytes[taken..];
            } else {
                cost += 1 + self.byte(*first);
                bytes = &bytes[1..];
            }
            if self.left == 0 && !matches!(self.part, Part::Length) {
                let control = Control { summary: std::mem::take(&mut self.control.summary), ..Control::default() };
                *self = Self { messages: self.messages, control, ..Self::default() };
            }
        }
        cost
    }

    /// Take one more byte of a number. Return the cost of what begins with it.
    fn byte(&mut self, byte: u8) -> usize {
        self.seen += 1;
        let inside = !matches!(self.part, Part::Length);
        self.left -= usize::from(inside);
        let Some(number) = self.number.advance(byte) else { return 0 };
        let size = number.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let Some((number, size)) = number.zip(size) else {
            // Without a length there is no next frame either.
            self.left = if inside { self.left } else { usize::MAX };
            self.part = REST;
            return EACH;
        };
        match self.part {
            Part::Length => {
                (self.left, self.part) = (size, Part::Key);
                return EACH;
            }
            Part::Key => {
                self.part = match number & 7 {
                    0 => Part::Number,
                    1 => Part::Body { left: 8, field: Field::Other },
                    2 => Part::Size(match number >> 3 {
                        MESSAGE => Field::Message,
                        CONTROL => Field::Control,
                        _ => Field::Other,
                    }),
                    5 => Part::Body { left: 4, field: Field::Other },
                    _ => REST,
                };
                return EACH;
            }
            Part::Size(field) if size > 0 => {
                if field == Field::Control {
                    self.control.begin();
                }
                self.part = Part::Body { left: size, field };
            }
            _ => self.part = Part::Key,
        }
        0
    }
}

/// The ids of messages in control messages.
#[derive(Debug, Default)]
struct Control {
    summary: ControlSummary,
    part: ControlPart,
    number: Varint,
    /// What is being read of a list of ids: its field and the bytes that are still to come; None outside of one.
    inside: Option<(u64, usize)>,
    id: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum ControlPart {
    #[default]
    Key,
    Number,
    Size {
        field: u64,
    },
    Skip {
        left: usize,
    },
    Id {
        left: usize,
    },
}

impl Control {
    /// Begin a control message.
    fn begin(&mut self) {
        *self = Self { summary: std::mem::take(&mut self.summary), ..Self::default() };
    }

    /// Take more bytes of a control message; return what their ids cost. What gossipsub cannot read it refuses as a
    /// whole: nothing is missed.
    fn advance(&mut self, mut bytes: &[u8]) -> usize {
        let mut cost = 0;
        while let Some(first) = bytes.first() {
            let (was_inside, most) = (self.inside.is_some(), self.inside.map_or(usize::MAX, |(_, left)| left));
            let taken = match &mut self.part {
                ControlPart::Skip { left } | ControlPart::Id { left } => {
                    let taken = bytes.len().min(*left).min(most);
                    *left -= taken;
                    taken
                }
                _ => 1,
            };
            match self.part {
                ControlPart::Skip { left } => self.part = if left == 0 { ControlPart::Key } else { self.part },
                ControlPart::Id { left } => {
                    self.id.extend(&bytes[..taken]);
                    if left == 0 {
                        self.found();
                    }
                }
                _ => cost += self.byte(*first),
            }
            bytes = &bytes[taken..];
            if was_inside {
                self.leave(taken);
            }
        }
        cost
    }

    /// Record an id that is complete.
    fn found(&mut self) {
        let id = Id::try_from(std::mem::take(&mut self.id).as_slice());
        match self.inside {
            Some((IHAVE, _)) => self.summary.announced.extend(id),
            Some((IWANT, _)) => self.summary.requested.extend(id),
            _ => {}
        }
        self.part = ControlPart::Key;
    }

    /// Count bytes of a list.
    fn leave(&mut self, bytes: usize) {
        if let Some((_, inside)) = &mut self.inside {
            *inside -= bytes;
            if *inside == 0 {
                (self.inside, self.part, self.number) = (None, ControlPart::Key, Varint::default());
                self.id.clear();
            }
        }
    }

    /// Take one more byte of a number. Return the cost of an id that begins with it.
    fn byte(&mut self, byte: u8) -> usize {
        let Some(number) = self.number.advance(byte) else { return 0 };
        let skip = |left: usize| if left == 0 { ControlPart::Key } else { ControlPart::Skip { left } };
        let number = number.unwrap_or(u64::MAX);
        let size = usize::try_from(number).unwrap_or(usize::MAX);
        let mut cost = 0;
        self.part = match (self.part, self.inside) {
            (ControlPart::Key, _) => match number & 7 {
                0 => ControlPart::Number,
                1 => skip(8),
                2 => ControlPart::Size { field: number >> 3 },
                5 => skip(4),
                _ => skip(usize::MAX),
            },
            (ControlPart::Size { field: list @ (IHAVE | IWANT | IDONTWANT) }, None) if size > 0 => {
                self.inside = Some((list, size));
                ControlPart::Key
            }
            (ControlPart::Size { field: action @ (GRAFT | PRUNE) }, None) => {
                self.summary.grafts += usize::from(action == GRAFT);
                self.summary.prunes += usize::from(action == PRUNE);
                skip(size)
            }
            // An announcement's first field is its topic.
            (ControlPart::Size { field }, Some((list, _))) if field == if list == IHAVE { 2 } else { 1 } => {
                cost = if list == IDONTWANT { UNWANTED } else { EACH };
                if size == size_of::<Id>() {
                    ControlPart::Id { left: size }
                } else {
                    self.summary.malformed = Some(size);
                    skip(size)
                }
            }
            (ControlPart::Size { .. }, _) => skip(size),
            _ => ControlPart::Key,
        };
        cost
    }
}

/// A number of seven bits a byte, the lowest first.
#[derive(Debug, Default)]
struct Varint {
    number: u64,
    shift: u32,
}

impl Varint {
    /// Take one more byte. Return the number once it is complete; None inside if it has too many bytes.
    fn advance(&mut self, byte: u8) -> Option<Option<u64>> {
        if self.shift > 63 {
            *self = Self::default();
            return Some(None);
        }
        self.number |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        (byte & 0x80 == 0).then(|| Some(std::mem::take(self).number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [varint(bytes.len() as u64), bytes.to_vec()].concat()
    }

    fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
        [varint(number << 3 | 2), prefixed(bytes)].concat()
    }

    fn stream(names: &[&str]) -> Vec<u8> {
        ["/multistream/1.0.0"].iter().chain(names).flat_map(|name| prefixed(format!("{name}\n").as_bytes())).collect()
    }

    fn frames() -> Frames {
        let others: Arc<[StreamProtocol]> = Arc::new([StreamProtocol::new("/sync")]);
        Frames::new(&others)
    }

    /// Return what the bytes cost, and what is kept after each, cut so.
    fn read(frames: &mut Frames, bytes: &[u8], cut: usize) -> usize {
        bytes.chunks(cut).map(|piece| frames.advance(piece)).sum()
    }

    #[test]
    fn half_a_frame_is_kept_until_the_rest_comes() {
        let frame = prefixed(&[field(2, &[1; 300]), field(3, &[2; 40]), field(2, &[3; 5])].concat());
        for cut in 1..400 {
            let mut frames = frames();
            read(&mut frames, &stream(&["/foo", "/meshsub/1.1.0"]), cut);
            assert_eq!(frames.kept(), 0);
            let (head, tail) = frame.split_at(cut.min(frame.len() - 1));
            // A length, three keys and sizes, and 40 bytes that are no message.
            let expected = 2 + (1 + 2) + (1 + 1 + 40) + (1 + 1) + 4 * EACH;
            let cost = read(&mut frames, head, cut);
            assert_eq!(frames.kept(), head.len());
            assert_eq!(cost + read(&mut frames, tail, cut), expected);
            assert_eq!(frames.kept(), 0);
            assert_eq!(read(&mut frames, &frame.repeat(3), cut), 3 * expected);
            assert_eq!(frames.kept(), 0);
        }
    }

    #[test]
    fn other_streams_are_not_looked_into() {
        let gossip = [stream(&["/meshsub/1.1.0"]), prefixed(&[7; 100])[..50].to_vec()].concat();
        let mut frames = frames();
        assert_eq!(read(&mut frames, &[stream(&["/foo", "/sync"]), gossip.clone()].concat(), 7), 0);
        assert_eq!(frames.kept(), 0);
        // Nor is what follows a line that multistream-select refuses.
        let mut frames = self::frames();
        assert_eq!(read(&mut frames, &[varint(1 << 20), gossip].concat(), 7), 0);
        assert_eq!(frames.kept(), 0);
    }

    #[test]
    fn small_frames_and_fields_cost_more_than_their_bytes() {
        let mut frames = frames();
        read(&mut frames, &stream(&["/meshsub/1.2.0"]), 100);
        assert_eq!(frames.advance(&[0; 1000]), 1000 * (1 + EACH));
        assert_eq!(frames.advance(&prefixed(&field(2, b"").repeat(100))), 200 + 2 + 101 * EACH);
    }

    #[test]
    fn floodsub_is_gossip() {
        let mut frames = frames();
        read(&mut frames, &stream(&["/floodsub/1.0.0"]), 100);
        assert!(frames.are_gossip());
    }

    #[test]
    fn messages_that_are_asked_for_are_found() {
        let ids: Vec<Id> = (0..5).map(|number| [number; 32]).collect();
        let asked = |ids: &[Id]| field(2, &ids.iter().flat_map(|id| field(1, id)).collect::<Vec<_>>());
        let announced = [field(1, &ids[4]), field(2, &ids[0])].concat();
        let others = [field(1, &announced), field(5, &field(1, &ids[1])), vec![7 << 3, 5], field(2, &[])].concat();
        let unknown = field(2, &field(3, &[9; 32]));
        let control = [asked(&ids[..2]), others.clone(), unknown, asked(&ids[2..3])].concat();
        let frame = prefixed(
            &[field(2, &field(2, &asked(&ids))), field(3, &control), field(1, &control), field(3, &asked(&ids[3..]))]
                .concat(),
        );
        for cut in 1..frame.len() {
            let mut frames = frames();
            read(&mut frames, &stream(&["/meshsub/1.1.0"]), cut);
            assert!(frames.are_gossip());
            read(&mut frames, &frame.repeat(2), cut);
            let requested = [&ids[..], &ids].concat();
            let announced = vec![ids[0]; 2];
            assert_eq!(frames.take_control(), ControlSummary { requested, announced, ..ControlSummary::default() });
            assert_eq!(frames.take_control(), ControlSummary::default());
        }
    }

    #[test]
    fn joins_and_leaves_are_counted() {
        let topic = field(1, b"topic");
        let control = [field(3, &topic), field(4, &topic), field(3, b""), field(1, &field(3, &topic))].concat();
        let mut frames = frames();
        read(&mut frames, &stream(&["/meshsub/1.1.0"]), 7);
        read(&mut frames, &prefixed(&field(3, &control)).repeat(2), 3);
        assert_eq!(frames.take_control(), ControlSummary { grafts: 4, prunes: 2, ..ControlSummary::default() });
    }

    #[test]
    fn malformed_ids_are_reported() {
        for (list, id) in [(1, 2), (2, 1), (5, 1)] {
            for length in [0, 1, 31, 33, 1000] {
                let mut frames = frames();
                read(&mut frames, &stream(&["/meshsub/1.1.0"]), 7);
                read(&mut frames, &prefixed(&field(3, &field(list, &field(id, &vec![7; length])))), 5);
                assert_eq!(
                    frames.take_control(),
                    ControlSummary { malformed: Some(length), ..ControlSummary::default() }
                );
            }
        }
    }

    #[test]
    fn ids_cost_more_than_their_bytes() {
        for (list, id, each) in [(1, 2, EACH), (2, 1, EACH), (5, 1, UNWANTED)] {
            let mut frames = frames();
            read(&mut frames, &stream(&["/meshsub/1.1.0"]), 100);
            let frame = prefixed(&field(3, &field(list, &field(id, &[7; 32]).repeat(100))));
            assert_eq!(read(&mut frames, &frame, 11), frame.len() + 2 * EACH + 100 * each);
        }
    }

    #[test]
    fn requests_that_cannot_be_read_end_with_their_field() {
        let nonsense = [&[0xff; 40][..], &field(2, &[8; 100])[..50], &[2 << 3 | 2, 0x7f, 1 << 3 | 2, 32]];
        for nonsense in nonsense {
            let mut frames = frames();
            read(&mut frames, &stream(&["/meshsub/1.1.0"]), 7);
            let good = field(3, &field(2, &field(1, &[4; 32])));
            read(&mut frames, &prefixed(&[field(3, nonsense), good].concat()), 5);
            assert_eq!(frames.take_control().requested, [[4; 32]], "{nonsense:?}");
        }
    }

    #[test]
    fn bytes_of_messages_are_distinguished() {
        let mut frame = Frame::default();
        let bytes =
            prefixed(&[field(1, &[1; 50]), field(2, &[1; 300]), field(3, &[2; 40]), field(2, &[3; 5])].concat());
        let written = bytes.repeat(3).chunks(100).map(|piece| frame.written(piece).0).sum::<usize>();
        assert_eq!(written, 3 * 305);
        let asked = field(2, &field(1, &[7; 32]).repeat(9));
        let answers = prefixed(&field(3, &[asked, field(4, &field(1, b"topic"))].concat()));
        assert_eq!(answers.chunks(10).map(|piece| frame.written(piece).1).sum::<usize>(), 10);
    }

    #[test]
    fn nonsense_is_kept_and_costs() {
        let forever = [0xff; 1000];
        let cases = [
            prefixed(&[1; 999])[..500].to_vec(),
            prefixed(&[0xff; 999])[..500].to_vec(),
            prefixed(&[&varint(2 << 3 | 3)[..], &[0; 999]].concat())[..500].to_vec(),
            prefixed(&[&varint(9 << 3 | 2)[..], &varint(u64::MAX), &[0; 999]].concat())[..500].to_vec(),
            [&varint(u64::MAX)[..], &[0x12; 500]].concat(),
            forever.to_vec(),
        ];
        for nonsense in cases {
            let mut frames = frames();
            read(&mut frames, &stream(&["/meshsub/1.2.0"]), 100);
            assert!(frames.advance(&nonsense) >= 500, "{nonsense:?}");
            assert_eq!(frames.kept(), nonsense.len(), "{nonsense:?}");
        }
    }
}
