//! Two connections of ours, joined by a pipe.

mod support;

use gossiplog_net::{Cause, Error, Limits, StreamTable};
use support::{PROTOCOL, Pair, failure_of, limits, seconds};

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[tokio::test]
async fn bytes_arrive_in_both_directions() {
    let mut pair = Pair::new(limits());
    let (ours, theirs) = pair.stream().await;
    for (from, to) in [(ours, theirs), (theirs, ours)] {
        let sent = bytes(1_000_000);
        let (mut taken, mut received) = (0, Vec::<u8>::new());
        while received.len() < sent.len() {
            taken += pair.network.write(from, &sent[taken..]).unwrap();
            pair.step().await;
            let mut buffer = vec![0; 100_000];
            if let Some(read) = pair.network.read(to, &mut buffer).unwrap() {
                received.extend(&buffer[..read]);
            }
        }
        assert!(received == sent);
    }
    pair.network.finish(ours).unwrap();
    assert_eq!(pair.read(theirs).await, Ok(Vec::new()));
    assert_eq!(pair.network.counts().unwrap().streams, 2);
}

#[tokio::test]
async fn what_nobody_reads_stops_at_the_window_and_holds_up_nobody_else() {
    let mut pair = Pair::new(limits());
    let (slow, _) = pair.stream().await;
    let (quick, reading) = pair.stream().await;
    let mut taken = 0;
    for _ in 0..200 {
        taken += pair.network.write(slow, &[0; 65536]).unwrap();
        pair.step().await;
    }
    // The window of 256 KiB (less what negotiating took), and what yamux queues.
    assert!((200 * 1024..=512 * 1024).contains(&taken), "{taken}");
    assert_eq!(pair.network.write(slow, b"x"), Ok(0));
    assert_eq!(pair.network.write(quick, b"hello"), Ok(5));
    assert_eq!(pair.read(reading).await, Ok(b"hello".to_vec()));
}

#[tokio::test]
async fn a_protocol_that_is_not_offered_is_refused() {
    let mut pair = Pair::new(limits());
    let stream = pair.network.open(pair.client, "/other/1").unwrap();
    let failed = pair.until(|pair| failure_of(&pair.events, stream)).await;
    assert_eq!(failed.cause, Cause::Refused);
    pair.network.reset(stream).unwrap();
    let (ours, theirs) = pair.stream().await;
    assert_eq!(pair.network.write(ours, b"still"), Ok(5));
    assert_eq!(pair.read(theirs).await, Ok(b"still".to_vec()));
    assert_eq!(pair.network.counts().unwrap().streams_refused, 1);
}

#[tokio::test]
async fn a_reset_is_distinguished_from_an_end() {
    let mut pair = Pair::new(limits());
    let (ours, theirs) = pair.stream().await;
    pair.network.reset(ours).unwrap();
    let reset = |pair: &mut Pair| (pair.network.write(theirs, b"?") == Err(Error::Reset)).then_some(());
    pair.until(reset).await;
    let mut buffer = [0; 10];
    assert_eq!(pair.network.read(theirs, &mut buffer), Err(Error::Reset));
    assert!(matches!(pair.network.read(ours, &mut buffer), Err(Error::UnknownStream(_))));
}

#[tokio::test]
async fn a_finished_stream_delivers_what_was_written() {
    let mut pair = Pair::new(limits());
    let (ours, theirs) = pair.stream().await;
    assert_eq!(pair.network.write(ours, b"last words"), Ok(10));
    pair.network.finish(ours).unwrap();
    assert_eq!(pair.read(theirs).await, Ok(b"last words".to_vec()));
    assert_eq!(pair.read(theirs).await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_finished_stream_that_the_peer_does_not_end_is_reset_in_time() {
    let mut pair = Pair::new(limits());
    let (ours, theirs) = pair.stream().await;
    pair.network.finish(ours).unwrap();
    assert_eq!(pair.read(theirs).await, Ok(Vec::new()));
    assert_eq!(pair.network.write(theirs, b"ignored"), Ok(7));
    pair.step().await;
    tokio::time::advance(seconds(6)).await;
    pair.step().await;
    pair.until(|pair| (pair.network.write(theirs, b"?") == Err(Error::Reset)).then_some(())).await;
}

#[tokio::test]
async fn closing_delivers_what_was_written() {
    let mut pair = Pair::new(limits());
    let (ours, theirs) = pair.stream().await;
    assert_eq!(pair.network.write(ours, b"last words"), Ok(10));
    pair.network.close(pair.client).unwrap();
    assert_eq!(pair.read(theirs).await, Ok(b"last words".to_vec()));
    assert!(matches!(pair.read(theirs).await, Err(Error::Lost(closed)) if closed.cause == Cause::Remote));
    assert_eq!(pair.closed(pair.client).await.cause, Cause::Local);
    assert_eq!(pair.closed(pair.server).await.cause, Cause::Remote);
    assert!(matches!(pair.network.open(pair.server, PROTOCOL), Err(Error::Lost(_))));
}

#[tokio::test]
async fn streams_are_limited_on_both_sides() {
    let limits = Limits { inbound_streams: 2, outbound_streams: 4, ..limits() };
    let mut pair = Pair::new(limits);
    let first = pair.stream().await;
    let second = pair.stream().await;
    let third = pair.network.open(pair.client, PROTOCOL).unwrap();
    let failed = pair.until(|pair| failure_of(&pair.events, third)).await;
    assert_eq!(failed.cause, Cause::Remote);
    pair.network.reset(third).unwrap();
    assert_eq!(pair.network.counts().unwrap().streams_over_limit, 1);
    for stream in [first.1, second.1] {
        pair.network.reset(stream).unwrap();
    }
    pair.step().await;
    let open = [pair.stream().await.0, pair.stream().await.0];
    assert!(matches!(pair.network.open(pair.client, PROTOCOL), Err(Error::StreamLimit(_))));
    pair.network.reset(open[0]).unwrap();
    pair.step().await;
    assert!(pair.network.open(pair.client, PROTOCOL).is_ok());
}

#[tokio::test]
async fn opening_and_resetting_many_streams_ends_nothing() {
    let mut pair = Pair::new(Limits { inbound_streams: 4, outbound_streams: 4, ..limits() });
    for _ in 0..500 {
        for _ in 0..6 {
            if let Ok(stream) = pair.network.open(pair.client, PROTOCOL) {
                pair.network.reset(stream).unwrap();
            }
        }
        pair.step().await;
        pair.events.clear();
    }
    pair.until(|pair| pair.network.open(pair.client, PROTOCOL).ok()).await;
    assert_eq!(pair.network.counts().unwrap().violations, 0);
}

#[tokio::test]
async fn connections_are_limited_until_they_are_released() {
    let network = support::network(Limits { connections: 1, ..limits() });
    let first = network.attach(Vec::new(), true).unwrap();
    assert!(matches!(network.attach(Vec::new(), true), Err(Error::ConnectionLimit { .. })));
    network.release(first).unwrap();
    assert!(network.attach(Vec::new(), true).is_ok());
    assert!(matches!(network.feed(first, b""), Err(Error::UnknownConnection(_))));
}

#[tokio::test]
async fn names_that_multistream_select_cannot_carry_are_refused() {
    let pair = Pair::new(limits());
    for name in ["sync", "", "/two\nlines", &format!("/{}", "x".repeat(1024))] {
        assert!(matches!(pair.network.open(pair.client, name), Err(Error::Invalid(_))), "{name}");
        assert!(matches!(pair.network.attach(vec![name.to_owned()], true), Err(Error::Invalid(_))), "{name}");
    }
}
