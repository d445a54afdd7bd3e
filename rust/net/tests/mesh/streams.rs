//! Streams between two hosts.

use gossiplog_net::{Cause, Error, Limits, StreamTable};

use crate::support::{PROTOCOL, Peer, bytes, config, limits, pair};

#[test]
fn bytes_arrive_in_both_directions_over_each_transport() {
    let quic = cfg!(feature = "quic").then_some("/ip4/127.0.0.1/udp/0/quic-v1");
    for listen in ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/tcp/0/ws"].into_iter().chain(quic) {
        let listening = gossiplog_net::Config { listen: vec![listen.to_owned()], ..config() };
        let (mut first, mut second) = pair(listening, config());
        let sent = bytes(1_000_000);
        for turn in 0..2 {
            let (from, to) = if turn == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
            let (ours, theirs) = from.stream(to);
            let (mut taken, mut received) = (0, Vec::<u8>::new());
            let mut buffer = vec![0; 100_000];
            from.until("everything is received", |from| {
                taken += from.host.write(ours, &sent[taken..]).unwrap();
                to.poll();
                if let Some(read) = to.host.read(theirs, &mut buffer).unwrap() {
                    received.extend(&buffer[..read]);
                }
                (received.len() >= sent.len()).then_some(())
            });
            assert!(received == sent);
            from.host.finish(ours).unwrap();
            assert_eq!(to.read(theirs), Ok(Vec::new()));
        }
        let counts = [&first, &second].map(|peer| peer.host.counts().unwrap().network);
        assert_eq!(counts[0].streams, 2);
        for counts in counts.iter().filter(|_| !listen.contains("quic")) {
            // Noise, yamux and the WebSocket add a little to what the streams have.
            let expected = 1_000_000..1_100_000;
            assert!(expected.contains(&counts.bytes_sent) && expected.contains(&counts.bytes_received), "{counts:?}");
        }
    }
}

#[test]
fn an_end_a_reset_and_a_lost_connection_are_distinguished() {
    let (mut first, mut second) = pair(config(), config());
    let streams: Vec<_> = (0..3).map(|_| second.stream(&mut first)).collect();
    second.write(streams[0].0, b"last words");
    second.host.finish(streams[0].0).unwrap();
    assert_eq!(first.read(streams[0].1), Ok(b"last words".to_vec()));
    assert_eq!(first.read(streams[0].1), Ok(Vec::new()));
    second.host.reset(streams[1].0).unwrap();
    assert_eq!(first.read(streams[1].1), Err(Error::Reset));
    let connection = first.connection(&second);
    second.host.stop().unwrap();
    assert!(matches!(first.read(streams[2].1), Err(Error::Lost(closed)) if closed.cause == Cause::Transport));
    assert_eq!(first.closed(connection).cause, Cause::Transport);
    assert!(matches!(first.host.open(connection, PROTOCOL), Err(Error::Lost(_))));
}

#[test]
fn closing_delivers_what_was_written() {
    for _ in 0..5 {
        let (mut first, mut second) = pair(config(), config());
        let (ours, theirs) = second.stream(&mut first);
        let there = second.connection(&first);
        // Nobody reads that: at the end, the system has bytes of it.
        first.write(theirs, &bytes(200_000));
        second.write(ours, b"last words");
        second.host.close(there).unwrap();
        assert_eq!(first.read(theirs), Ok(b"last words".to_vec()));
        assert!(matches!(first.read(theirs), Err(Error::Lost(closed)) if closed.cause == Cause::Remote));
        let closed = second.closed(there);
        assert_eq!(closed.cause, Cause::Local, "{closed:?}");
    }
}

#[test]
fn a_protocol_that_is_not_offered_is_refused() {
    let (mut first, mut second) = pair(config(), config());
    let connection = second.connection(&first);
    let stream = second.host.open(connection, "/other/1").unwrap();
    assert_eq!(second.failed(stream).cause, Cause::Refused);
    second.host.reset(stream).unwrap();
    second.stream(&mut first);
    for name in ["sync", "", "/two\nlines", &format!("/{}", "x".repeat(1024))] {
        assert!(matches!(second.host.open(connection, name), Err(Error::Invalid(_))), "{name}");
    }
}

#[test]
fn streams_are_limited_on_both_sides() {
    let limited = Limits { inbound_streams: 2, outbound_streams: 4, ..limits() };
    let few = || gossiplog_net::Config { limits: limited.clone(), ..config() };
    let (mut first, mut second) = pair(few(), few());
    let connection = second.connection(&first);
    let open = [second.stream(&mut first), second.stream(&mut first)];
    // Agreed on, since that is libp2p's to do, and reset then.
    let third = second.host.open(connection, PROTOCOL).unwrap();
    second.until("the third stream is reset", |peer| {
        let gone = match peer.host.write(third, b"?") {
            Err(Error::Reset) => true,
            Err(Error::NotOpen) | Ok(_) => false,
            Err(error) => panic!("{error}"),
        };
        gone.then_some(())
    });
    assert_eq!(first.host.counts().unwrap().network.streams_over_limit, 1);
    second.host.open(connection, PROTOCOL).unwrap();
    assert!(matches!(second.host.open(connection, PROTOCOL), Err(Error::StreamLimit(_))));
    second.host.reset(third).unwrap();
    for (ours, theirs) in open {
        second.host.reset(ours).unwrap();
        first.host.reset(theirs).unwrap();
    }
    second.stream(&mut first);
}

#[test]
fn what_nobody_reads_is_kept_within_the_peers_budget() {
    let tight = Limits { peer_bytes: 300_000, ..limits() };
    let (mut first, mut second) = pair(gossiplog_net::Config { limits: tight, ..config() }, config());
    let connection = first.connection(&second);
    let streams: Vec<_> = (0..3).map(|_| second.stream(&mut first)).collect();
    second.until("it is dropped", |peer| {
        for (ours, _) in &streams {
            let _ = peer.host.write(*ours, &[0; 65536]);
        }
        first.poll();
        first
            .events()
            .any(|event| matches!(event, gossiplog_net::Event::Connection { closed: Some(_), .. }))
            .then_some(())
    });
    let closed = first.closed(connection);
    assert_eq!(closed.cause, Cause::Violation);
    assert!(closed.reason.contains("bytes kept in memory"), "{closed:?}");
    assert_eq!(first.host.counts().unwrap().network.violations, 1);
    first.host.release(connection).unwrap();
    assert_eq!(first.host.held(), Ok(0));
}

#[test]
fn what_the_caller_holds_counts() {
    let tight = Limits { peer_bytes: 1 << 20, ..limits() };
    let (mut first, mut second) = pair(gossiplog_net::Config { limits: tight, ..config() }, config());
    let (_, theirs) = second.stream(&mut first);
    // Asked for before it ends: the other host may dial again at once.
    let connection = first.connection(&second);
    first.host.reserve_memory(theirs, 1000).unwrap();
    assert!(first.host.held().unwrap() >= 1000);
    first.host.reserve_memory(theirs, (1 << 20) + 1).unwrap();
    assert_eq!(first.closed(connection).cause, Cause::Violation);
}

#[test]
fn one_peer_has_one_handle_however_often_it_is_dialled() {
    let (mut first, address) = Peer::listening(config());
    let mut second = Peer::start(config());
    let dialled = second.host.dial(&address).unwrap();
    assert_eq!(second.connection(&first), dialled);
    let bare = address.split("/p2p/").next().unwrap();
    for address in [&address, bare] {
        let again = second.host.dial(address).unwrap();
        let closed = second.closed(again);
        assert_eq!(
            (closed.cause, closed.reason),
            (Cause::Local, format!("the peer is connected already: connection {dialled}"))
        );
        second.host.release(again).unwrap();
    }
    first.connection(&second);
    assert_eq!(first.host.peers().unwrap().len(), 1);
    second.stream(&mut first);
    second.host.release(dialled).unwrap();
    first.until("all its connections are gone", |peer| peer.host.peers().unwrap().is_empty().then_some(()));
}

#[test]
fn a_peer_that_cannot_be_reached_is_reported() {
    let mut peer = Peer::start(config());
    let (other, address) = Peer::listening(config());
    let handle = peer.host.dial("/ip4/127.0.0.1/tcp/1/ws").unwrap();
    let closed = peer.closed(handle);
    assert_eq!(closed.cause, Cause::Transport);
    assert!(closed.reason.contains("refused"), "{closed:?}");
    let bare = address.split("/p2p/").next().unwrap();
    let stranger = Peer::start(config());
    let wrong = peer.host.dial(&format!("{bare}/p2p/{}", stranger.host.peer())).unwrap();
    let closed = peer.closed(wrong);
    assert_eq!(closed.cause, Cause::Refused);
    assert!(closed.reason.contains(&other.host.peer()), "{closed:?}");
    let own = peer.until("it listens", |peer| peer.host.addresses().unwrap().first().cloned());
    // Closed before it stands, it never does.
    let early = peer.host.dial(&address).unwrap();
    peer.host.close(early).unwrap();
    assert_eq!(peer.closed(early).cause, Cause::Local);
    for bad in [&own, "", "localhost:80", "/ip4/127.0.0.1/udp/1"] {
        assert!(matches!(peer.host.dial(bad), Err(Error::Invalid(_))), "{bad}");
    }
}
