//! A peer that does as it likes: its connection is closed with a reason, and nothing else is harmed.

mod support;

use gossiplog_net::{Cause, Event, Incident, Limits, StreamTable};
use support::{
    ACK, DATA, FIN, GO_AWAY, Hostile, PING, PROTOCOL, Pair, RST, SYN, WINDOW_UPDATE, data, header, limits, lines,
    seconds, take_inbound,
};

const WINDOW: usize = 256 * 1024;

fn incidents(events: &[Event], kind: &str) -> Vec<Incident> {
    let told = |event: &Event| match event {
        Event::Connection { incidents, .. } => incidents.clone(),
        Event::Stream { .. } => Vec::new(),
    };
    events.iter().flat_map(told).filter(|incident| incident.kind == kind).collect()
}

/// Opens stream `number` and agrees on the protocol.
fn negotiated(number: u32) -> Vec<u8> {
    data(SYN, number, &lines(&["/multistream/1.0.0", PROTOCOL]))
}

#[tokio::test]
async fn violations_are_named_and_end_the_connection() {
    let many = |frame: &dyn Fn(u32) -> Vec<u8>| (0..300).flat_map(frame).collect::<Vec<u8>>();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (header(9, 0, 0, 0), "no yamux frame"),
        ([&[1], &header(PING, SYN, 0, 0)[1..]].concat(), "no yamux frame"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "no yamux frame"),
        (header(DATA, SYN, 1, 1 << 30), "too large"),
        (data(SYN, 1, &vec![0; WINDOW + 1]), "more than its window"),
        ([negotiated(1), data(0, 1, &vec![0; WINDOW])].concat(), "sent more than a stream's window"),
        (many(&|_| [negotiated(1), data(0, 1, &[0; 1000])].concat()), "opened a stream that is open"),
        (data(SYN, 2, b""), "not its to use"),
        ([negotiated(1), header(WINDOW_UPDATE, 0, 1, u32::MAX)].concat(), "granted more than a window can hold"),
        (header(PING, ACK, 0, 77), "answered a ping that was not sent"),
        (data(SYN, 1, &lines(&["/multistream/2.0.0"])), "rules of multistream-select"),
        (data(SYN, 1, &[0xff; 100]), "rules of multistream-select"),
        (data(SYN, 1, b"\x05GET /"), "rules of multistream-select"),
    ];
    for (bytes, reason) in cases {
        let mut peer = Hostile::new(limits());
        peer.send(&bytes).await;
        peer.settle().await;
        let closed = peer.closed().unwrap_or_else(|| panic!("not closed: {reason}"));
        assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
        assert!(closed.reason.contains(reason), "{:?} is not about {reason:?}", closed.reason);
        assert_eq!(peer.network.counts().unwrap().violations, 1);
    }
}

#[tokio::test]
async fn an_accusation_is_passed_on() {
    let mut peer = Hostile::new(limits());
    peer.send(&header(GO_AWAY, 0, 0, 1)).await;
    peer.settle().await;
    let closed = peer.closed().unwrap();
    assert_eq!(
        (closed.cause, closed.reason.as_str()),
        (Cause::Remote, "the peer closed the connection with error 1 of yamux")
    );
}

#[tokio::test]
async fn single_bytes_do_not_fill_the_memory() {
    let mut peer = Hostile::new(limits());
    peer.send(&negotiated(1)).await;
    let flood: Vec<u8> = (0..70_000).flat_map(|_| data(0, 1, b"x")).collect();
    peer.send(&flood).await;
    let closed = peer.closed().unwrap();
    assert!(closed.reason.contains("small yamux frames"), "{closed:?}");
}

#[tokio::test]
async fn single_bytes_that_are_read_are_no_offence() {
    let mut peer = Hostile::new(limits());
    peer.send(&negotiated(1)).await;
    let stream = take_inbound(&mut peer.events).unwrap();
    let (some, mut buffer) = (data(0, 1, b"x").repeat(1000), vec![0; 1000]);
    for _ in 0..70 {
        peer.send(&some).await;
        assert_eq!(peer.network.read(stream, &mut buffer), Ok(Some(1000)));
    }
    assert_eq!(peer.closed(), None);
}

#[tokio::test]
async fn thousands_of_streams_are_reset_beyond_the_limit() {
    let mut peer = Hostile::new(limits());
    for number in (1..10_000).step_by(2) {
        peer.send(&data(SYN, number, b"")).await;
        peer.receive();
    }
    peer.settle().await;
    assert_eq!(peer.closed(), None);
    let resets = peer.received.chunks(12).filter(|frame| frame[1..4] == [DATA, 0, RST as u8]).count();
    assert_eq!(resets, 5000 - limits().inbound_streams);
    let told: u64 = incidents(&peer.events, "streams_over_limit").iter().map(|incident| incident.count).sum();
    assert_eq!(told, resets as u64);
    assert_eq!(peer.network.counts().unwrap().streams_over_limit, resets as u64);
}

#[tokio::test]
async fn one_that_reads_nothing_is_read_no_further() {
    let mut peer = Hostile::new(limits());
    let flood: Vec<u8> = (1..40_000).step_by(2).flat_map(|number| data(SYN, number, b"x")).collect();
    let mut taken = 0;
    for _ in 0..200 {
        taken += peer.network.feed(peer.server, &flood[taken..]).unwrap();
        peer.settle().await;
    }
    assert!(taken < flood.len());
    assert_eq!(peer.closed(), None);
    // Once it reads, yamux gets its word out: one stream too many.
    peer.receive();
    peer.settle().await;
    assert_eq!(peer.closed().unwrap().cause, Cause::Violation);
}

#[tokio::test(start_paused = true)]
async fn slow_negotiations_are_given_up() {
    let mut peer = Hostile::new(Limits { negotiation: seconds(10), ..limits() });
    let slow = limits().inbound_streams as u32;
    for index in 0..slow {
        peer.send(&data(SYN, 2 * index + 1, b"\x13/multi")).await;
    }
    for _ in 0..9 {
        tokio::time::advance(seconds(1)).await;
        // A byte now and then gains no time.
        peer.send(&data(0, 1, b"s")).await;
        assert_eq!(peer.network.counts().unwrap().negotiations_timed_out, 0);
    }
    tokio::time::advance(seconds(2)).await;
    peer.settle().await;
    assert_eq!(peer.network.counts().unwrap().negotiations_timed_out, u64::from(slow));
    let told = incidents(&peer.events, "negotiations_timed_out");
    assert_eq!(told.iter().map(|incident| incident.count).sum::<u64>(), u64::from(slow));
    assert_eq!(told[0].text, "it did not agree on a stream's protocol within 10 s");
    peer.send(&negotiated(101)).await;
    peer.settle().await;
    assert!(take_inbound(&mut peer.events).is_some());
    assert_eq!(peer.closed(), None);
}

#[tokio::test]
async fn protocols_that_are_not_offered_are_reported() {
    let mut peer = Hostile::new(limits());
    peer.send(&data(SYN | FIN, 1, &lines(&["/multistream/1.0.0", "/another"]))).await;
    peer.settle().await;
    assert_eq!(peer.network.counts().unwrap().streams_refused, 1);
    let told = incidents(&peer.events, "streams_refused");
    assert_eq!((told.len(), told[0].count), (1, 1));
    assert!(told[0].text.ends_with(PROTOCOL), "{}", told[0].text);
    assert_eq!(peer.closed(), None);
}

#[tokio::test]
async fn a_peer_that_fills_every_window_is_dropped() {
    let mut peer = Hostile::new(Limits { peer_bytes: 10 * WINDOW, ..limits() });
    let body = vec![0; WINDOW - 100];
    for number in (1..40).step_by(2) {
        peer.send(&[negotiated(number), data(0, number, &body)].concat()).await;
    }
    peer.settle().await;
    let closed = peer.closed().unwrap();
    assert_eq!(closed.cause, Cause::Violation);
    assert!(closed.reason.contains("bytes kept in memory"), "{closed:?}");
    assert_eq!(peer.network.counts().unwrap().violations, 1);
}

#[tokio::test]
async fn what_the_caller_holds_counts_until_it_lets_go() {
    let mut peer = Hostile::new(Limits { peer_bytes: WINDOW, ..limits() });
    peer.send(&negotiated(1)).await;
    let stream = take_inbound(&mut peer.events).unwrap();
    peer.network.reserve_memory(stream, WINDOW).unwrap();
    peer.network.reserve_memory(stream, 1000).unwrap();
    assert_eq!(peer.network.held(), Ok(1000));
    peer.network.reset(stream).unwrap();
    peer.settle().await;
    assert_eq!(peer.network.held(), Ok(0));
    peer.send(&negotiated(3)).await;
    let stream = take_inbound(&mut peer.events).unwrap();
    peer.network.reserve_memory(stream, WINDOW + 1).unwrap();
    peer.settle().await;
    assert_eq!(peer.closed().unwrap().cause, Cause::Violation);
}

#[tokio::test]
async fn many_connections_together_lose_the_one_that_has_most() {
    // And a little more, for agreeing on the protocol.
    let total_bytes = 100 * WINDOW + 1000;
    let mut peer = Hostile::new(Limits { total_bytes, ..limits() });
    let (mut frame, mut ended) = (negotiated(1), Vec::new());
    frame.extend(data(0, 1, &vec![0; WINDOW / 2]));
    let others: Vec<_> = (0..300).map(|_| peer.network.attach(vec![PROTOCOL.to_owned()], false).unwrap()).collect();
    for connection in &others {
        let mut rest = &frame[..];
        while !rest.is_empty() {
            // Until it is the one that ends.
            let Ok(taken) = peer.network.feed(*connection, rest) else { break };
            rest = &rest[taken..];
            peer.settle().await;
        }
        ended = others.iter().filter_map(|other| support::closed_of(&peer.events, *other)).collect();
        assert!(peer.network.held().unwrap() <= total_bytes);
    }
    assert_eq!(ended.len(), 100);
    assert!(ended.iter().all(|closed| closed.cause == Cause::Overload), "{ended:?}");
    assert_eq!(peer.network.counts().unwrap().overloads, 100);
    // Whoever has little is left alone.
    peer.send(&negotiated(1)).await;
    assert!(take_inbound(&mut peer.events).is_some());
    assert_eq!(peer.closed(), None);
}

/// Xorshift: the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn frame(&mut self) -> Vec<u8> {
        let kinds = [DATA, DATA, DATA, WINDOW_UPDATE, PING, GO_AWAY, 9];
        let fatal = self.below(40) == 0;
        let kind = kinds[self.below(if fatal { 7 } else { 5 }) as usize];
        let flags = [0, 0, SYN, ACK, FIN, RST, SYN | FIN, SYN | RST, 0xffff][self.below(9) as usize];
        let stream = [self.below(12), 2 * self.below(8) + 1, self.below(1 << 32)][self.below(3) as usize] as u32;
        let body = match self.below(6) {
            0 => lines(&["/multistream/1.0.0", PROTOCOL]),
            1 => lines(&["/multistream/1.0.0", "/none", "ls"]),
            2 => (0..self.below(40)).map(|_| self.0 as u8).collect(),
            3 => vec![0; self.below(WINDOW as u64) as usize],
            _ => Vec::new(),
        };
        match kind {
            DATA if self.below(50) > 0 => data(flags, stream, &body),
            _ => header(kind, flags, stream, [0, 1, self.below(1 << 32)][self.below(3) as usize] as u32),
        }
    }
}

#[tokio::test]
async fn random_frames_harm_nobody_else() {
    let mut pair = Pair::new(limits());
    let (ours, theirs) = pair.stream().await;
    let (mut ended, mut inbound) = (0, 0);
    for seed in 1..=400 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let hostile = pair.network.attach(vec![PROTOCOL.to_owned()], seed % 2 == 0).unwrap();
        let mut buffer = vec![0; WINDOW];
        'connection: for _ in 0..60 {
            let frame = random.frame();
            let mut rest = &frame[..];
            for _ in 0..20 {
                let Ok(taken) = pair.network.feed(hostile, rest) else { break 'connection };
                rest = &rest[taken..];
                pair.step().await;
                if random.below(3) > 0 {
                    let _ = pair.network.drain(hostile, &mut buffer);
                }
                if rest.is_empty() {
                    break;
                }
            }
            if let Some(stream) = take_inbound(&mut pair.events) {
                inbound += 1;
                let _ = pair.network.read(stream, &mut buffer);
                let _ = pair.network.write(stream, &buffer);
                match random.below(3) {
                    0 => pair.network.reset(stream).unwrap(),
                    1 => pair.network.finish(stream).unwrap(),
                    _ => {}
                }
            }
        }
        pair.network.feed_end(hostile).unwrap();
        pair.step().await;
        ended += u32::from(support::closed_of(&pair.events, hostile).is_some());
        pair.network.release(hostile).unwrap();
        pair.events.clear();
    }
    // The test is worth something only if both happen often.
    assert!(ended > 100 && inbound > 20, "{ended} ended, {inbound} inbound");
    assert_eq!(pair.network.counts().unwrap().defects, 0);
    assert_eq!(pair.network.write(ours, b"unharmed"), Ok(8));
    assert_eq!(pair.read(theirs).await, Ok(b"unharmed".to_vec()));
}
