//! Peers that say too much by gossip, or half of it. Their frames are written by hand, on streams of a host's.

use std::time::Instant;

use gossiplog_net::{Answer, Cause, Config, Handle, Limits, StreamTable};
use sha2::{Digest, Sha256};

use crate::support::{Peer, TOPIC, config, limits};
use crate::wire::{field, frame, varint};

/// So many of everything that is told.
const MANY: u32 = 10_000;

/// A frame of gossip with one control message.
/// <https://github.com/libp2p/specs/blob/master/pubsub/gossipsub/gossipsub-v1.1.md#protobuf>
fn control(message: &[u8]) -> Vec<u8> {
    frame(&field(3, message))
}

fn topic() -> Vec<u8> {
    field(1, TOPIC.as_bytes())
}

/// Ids of messages that nobody has, under the field's number.
fn ids(number: u64) -> Vec<u8> {
    (0..MANY).flat_map(|id| field(number, &Sha256::digest(id.to_le_bytes()))).collect()
}

fn announcement() -> Vec<u8> {
    control(&field(1, &[topic(), ids(2)].concat()))
}

fn request() -> Vec<u8> {
    control(&field(2, &ids(1)))
}

fn graft() -> Vec<u8> {
    control(&field(3, &topic()))
}

fn prune() -> Vec<u8> {
    control(&field(4, &topic()))
}

/// A host that writes frames of its own on a stream to another.
struct Hostile {
    peer: Peer,
    stream: Handle,
    /// What the other knows it by.
    known: Handle,
}

impl Hostile {
    fn dial(first: &mut Peer, address: &str) -> Self {
        let mut peer = Peer::start(Config { listen: Vec::new(), ..config() });
        peer.host.dial(address).unwrap();
        let connection = peer.connection(first);
        let known = first.connection(&peer);
        // The host has a stream of gossip, too, and the last one counts: once they are in a mesh it has no more to say.
        meshed(first, &mut peer);
        let stream = peer.host.open(connection, "/meshsub/1.1.0").unwrap();
        Self { peer, stream, known }
    }

    /// Writes until everything is taken, or the stream is lost. Whether it was taken.
    fn write(&mut self, first: &mut Peer, bytes: &[u8]) -> bool {
        let (mut rest, stream) = (bytes, self.stream);
        self.peer.until("it is taken or refused", |peer| {
            first.poll();
            match peer.host.write(stream, rest) {
                Ok(taken) => rest = &rest[taken..],
                // It is not open yet.
                Err(gossiplog_net::Error::NotOpen) => {}
                Err(_) => return Some(false),
            }
            rest.is_empty().then_some(true)
        })
    }
}

/// Waits until each of two has the other in its mesh.
fn meshed(first: &mut Peer, second: &mut Peer) {
    let has = |peer: &Peer, other: &Peer| {
        let other = other.host.peer();
        peer.host
            .peers()
            .unwrap()
            .iter()
            .any(|info| info.peer_id == other && info.status.in_mesh && info.status.subscribed)
    };
    first.until("the mesh stands", |peer| {
        second.poll();
        (has(peer, second) && has(second, peer)).then_some(())
    });
}

/// What one honest peer says reaches the other.
fn still_gossip(first: &mut Peer, second: &mut Peer, data: &[u8]) {
    meshed(first, second);
    assert_eq!(second.host.publish(data.to_vec()), Ok(true));
    while first.message(Answer::Accept).data != data {}
}

fn limited(limits: Limits) -> Config {
    Config { limits, ..config() }
}

/// A host, its address, and an honest peer of its.
fn honest(listening: Config) -> (Peer, String, Peer) {
    let (mut first, address) = Peer::listening(listening);
    let mut second = Peer::start(Config { listen: Vec::new(), ..config() });
    second.host.dial(&address).unwrap();
    second.connection(&first);
    first.connection(&second);
    (first, address, second)
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn gossip_made_by_hand_harms_nobody() {
    let (mut first, address, mut second) = honest(config());
    let forever = [topic(), varint(3 << 3), varint(u64::MAX)].concat();
    let made = [
        announcement().repeat(20),
        request().repeat(20),
        graft().repeat(MANY as usize),
        prune().repeat(MANY as usize),
        control(&field(4, &forever)),
        control(&field(9, &[0; 1000])),
        control(&[0xff; 1000]),
        [varint(u64::MAX), vec![0; 1000]].concat(),
        [varint(4 << 20), vec![0; 100_000]].concat(),
        vec![0xff; 100_000],
    ];
    for bytes in made {
        Hostile::dial(&mut first, &address).write(&mut first, &bytes);
    }
    still_gossip(&mut first, &mut second, b"unharmed");
    assert_eq!(first.host.counts().unwrap().network.defects, 0);
}

fn subscription(topic: &str) -> Vec<u8> {
    field(1, &[vec![8, 1], field(2, topic.as_bytes())].concat())
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn a_peer_that_floods_gossip_is_dropped() {
    // So little that the slowest machine spends it faster than it comes back.
    let (mut first, address, mut second) = honest(Config { control_bytes: 256 << 10, ..config() });
    let topics: Vec<_> = (0..MANY).map(|number| subscription(&format!("topic {number}"))).collect();
    let floods = [
        graft().repeat(1000),
        prune().repeat(1000),
        announcement(),
        request(),
        control(&field(5, &ids(1))),
        [graft(), prune()].concat().repeat(1000),
        topics.iter().flat_map(|topic| frame(topic)).collect(),
        frame(&topics.concat()),
        vec![0; 1000],
    ];
    for (number, bytes) in floods.iter().enumerate() {
        let mut hostile = Hostile::dial(&mut first, &address);
        while hostile.write(&mut first, bytes) {}
        let closed = first.closed(hostile.known);
        assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
        assert!(closed.reason.contains("more by gossip"), "{closed:?}");
        still_gossip(&mut first, &mut second, format!("unharmed {number}").as_bytes());
    }
    assert_eq!(first.host.counts().unwrap().network.defects, 0);
}

#[test]
fn a_peer_that_grafts_again_and_again_after_a_prune_is_dropped() {
    let (mut first, address, mut second) = honest(Config { control_bytes: 256 << 10, ..config() });
    let mut hostile = Hostile::dial(&mut first, &address);
    let bytes = [frame(&subscription(TOPIC)), prune(), graft().repeat(20)].concat();
    while hostile.write(&mut first, &bytes) {}
    let closed = first.closed(hostile.known);
    assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
    assert!(closed.reason.contains("more by gossip"), "{closed:?}");
    still_gossip(&mut first, &mut second, b"unharmed");
}

#[test]
fn half_a_frame_counts_as_kept_for_its_peer() {
    let (mut first, address, mut second) = honest(limited(Limits { peer_bytes: 1 << 20, ..limits() }));
    let mut hostile = Hostile::dial(&mut first, &address);
    let half = [varint(4 << 20), field(2, &vec![0; 3 << 20])].concat();
    hostile.write(&mut first, &half[..500_000]);
    first.until("it is kept", |peer| (peer.host.held().unwrap() == 500_000).then_some(()));
    hostile.write(&mut first, &half[500_000..]);
    let closed = first.closed(hostile.known);
    assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
    assert!(closed.reason.contains("not whole messages yet"), "{closed:?}");
    first.until("nothing is kept", |peer| (peer.host.held().unwrap() == 0).then_some(()));
    still_gossip(&mut first, &mut second, b"unharmed");
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn half_frames_of_many_peers_stay_within_the_budget_of_all() {
    let total = 8 << 20;
    let (mut first, address, mut second) =
        honest(limited(Limits { peer_bytes: 4 << 20, total_bytes: total, ..limits() }));
    let half = [varint(4 << 20), field(2, &vec![0; 3 << 20])].concat();
    let mut hostile: Vec<_> = (0..6).map(|_| Hostile::dial(&mut first, &address)).collect();
    for hostile in &mut hostile {
        hostile.write(&mut first, &half);
        assert!(first.host.held().unwrap() <= total);
    }
    // Those that hold the most are ended, and never more than the budget is held.
    first.until("four are ended", |peer| {
        let counts = peer.host.counts().unwrap();
        assert!(peer.host.held().unwrap() <= total);
        (counts.network.overloads >= 4).then_some(())
    });
    let known =
        |peer: &Peer, hostile: &Hostile| peer.host.peers().unwrap().iter().any(|info| info.connection == hostile.known);
    assert_eq!(hostile.iter().filter(|hostile| known(&first, hostile)).count(), 2);
    still_gossip(&mut first, &mut second, b"unharmed");
}

#[test]
fn a_peer_that_changes_its_subscription_too_often_is_dropped() {
    let (mut first, address, mut second) = honest(config());
    let mut hostile = Hostile::dial(&mut first, &address);
    let unsubscribed = field(1, &[vec![8, 0], field(2, TOPIC.as_bytes())].concat());
    let bytes = [frame(&subscription(TOPIC)), frame(&unsubscribed)].concat().repeat(1000);
    while hostile.write(&mut first, &bytes) {}
    let closed = first.closed(hostile.known);
    assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
    assert!(closed.reason.contains("changed its subscription"), "{closed:?}");
    still_gossip(&mut first, &mut second, b"unharmed");
}

/// A host that subscribes and answers pings, and reads none of the gossip that it gets: its caller takes the streams.
fn deaf() -> Config {
    let versions = ["1.0.0", "1.1.0", "1.2.0", "1.3.0"];
    let protocols = versions.map(|version| format!("/meshsub/{version}")).to_vec();
    Config { listen: Vec::new(), protocols, ..config() }
}

fn has_member(peer: &mut Peer, member: &Peer) {
    let member = member.host.peer();
    let is_member =
        |info: &gossiplog_net::PeerInfo| info.peer_id == member && info.status.in_mesh && info.status.subscribed;
    peer.until("it is a member", |peer| peer.host.peers().unwrap().iter().any(is_member).then_some(()));
}

fn overloaded(peer: &Peer, handle: Handle) -> bool {
    peer.events().any(|event| {
        let gossiplog_net::Event::Connection { connection, closed: Some(closed), .. } = event else { return false };
        *connection == handle && closed.cause == Cause::Overload
    })
}

/// Answers the messages that have come; return how many.
fn ignored(peer: &mut Peer) -> u32 {
    let answers: Vec<_> = peer.messages.drain(..).map(|message| (message.ticket, Answer::Ignore)).collect();
    peer.host.validate(&answers).unwrap();
    answers.len() as u32
}

fn numbered(length: usize, number: u32) -> Vec<u8> {
    let mut data = vec![0; length];
    data[..4].copy_from_slice(&number.to_le_bytes());
    data
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn a_member_that_never_reads_is_ended_and_harms_nobody() {
    let (mut first, address, mut second) = honest(config());
    let mut hostile = Peer::start(deaf());
    hostile.host.dial(&address).unwrap();
    let known = first.connection(&hostile);
    meshed(&mut first, &mut second);
    has_member(&mut first, &hostile);
    // Of the budget, half is for what waits in gossip's queues, and half of a peer's share for what waits for it.
    let (total, mut sent, mut got) = (limits().total_bytes, 0, 0);
    first.until("the member is ended", |peer| {
        if peer.host.publish(numbered(3 << 20, sent)).unwrap() {
            sent += 1;
        }
        hostile.poll();
        second.poll();
        got += ignored(&mut second);
        assert!(peer.host.held().unwrap() <= total / 2);
        overloaded(peer, known).then_some(())
    });
    assert!(sent >= 5);
    // Or it would come again.
    hostile.host.stop().unwrap();
    // Whoever reads gets everything.
    second.until("all has come", |peer| {
        first.poll();
        got += ignored(peer);
        (got == sent).then_some(())
    });
    assert_eq!(first.host.counts().unwrap().gossip_dropped, 0);
    first.until("nothing is kept", |peer| (peer.host.held().unwrap() == 0).then_some(()));
    still_gossip(&mut first, &mut second, b"unharmed");
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn a_member_that_is_slower_than_others_is_suspended_and_stays_connected() {
    let (mut first, address, mut second) = honest(config());
    let mut slow = Peer::start(deaf());
    slow.host.dial(&address).unwrap();
    let known = first.connection(&slow);
    meshed(&mut first, &mut second);
    has_member(&mut first, &slow);
    // More than half of what may wait for it, and then a little at a time.
    let (mut sent, mut got) = (0, 0);
    first.until("it is left out", |peer| {
        let length = if sent < 3 { 3 << 20 } else { 10 };
        sent += u32::from(peer.host.publish(numbered(length, sent)).unwrap());
        slow.poll();
        second.poll();
        got += ignored(&mut second);
        let peers = peer.host.peers().unwrap();
        let info = peers.iter().find(|info| info.connection == known).unwrap();
        (!info.status.in_mesh && info.status.score < -160.0).then_some(())
    });
    second.until("all has come", |peer| {
        first.poll();
        got += ignored(peer);
        (got == sent).then_some(())
    });
    assert!(!overloaded(&first, known));
    assert_eq!(first.host.counts().unwrap().gossip_dropped, 0);
}

#[test]
fn the_only_member_is_not_ended_for_being_slow() {
    let (mut first, address) = Peer::listening(config());
    let mut slow = Peer::start(deaf());
    slow.host.dial(&address).unwrap();
    let known = first.connection(&slow);
    has_member(&mut first, &slow);
    let mut sent = 0;
    first.until("some is left out", |peer| {
        sent += u32::from(peer.host.publish(numbered(3 << 20, sent)).unwrap());
        slow.poll();
        assert!(peer.host.held().unwrap() <= limits().peer_bytes / 2);
        (peer.host.counts().unwrap().gossip_dropped > 3).then_some(())
    });
    assert!(!overloaded(&first, known));
}

#[test]
fn a_peer_that_requests_more_messages_than_it_takes_is_dropped() {
    let (mut first, address, mut second) = honest(config());
    let mut hostile = Peer::start(deaf());
    hostile.host.dial(&address).unwrap();
    let (known, connection) = (first.connection(&hostile), hostile.connection(&first));
    meshed(&mut first, &mut second);
    has_member(&mut first, &hostile);
    let mut stream = hostile.host.open(connection, "/meshsub/1.1.0").unwrap();
    let data = numbered(3 << 20, 7);
    first.host.publish(data.clone()).unwrap();
    assert!(second.message(Answer::Ignore).data == data);
    // Three times at most does gossipsub give a message to a peer, but each request is charged.
    let id = Sha256::digest(&data);
    let bytes = control(&field(2, &field(1, &id)));
    first.until("it is ended", |peer| {
        hostile.poll();
        // The host's own stream of gossip may come later, and then the host listens to that alone.
        if hostile.host.write(stream, &bytes) == Err(gossiplog_net::Error::Reset) {
            stream = hostile.host.open(connection, "/meshsub/1.1.0").unwrap();
        }
        overloaded(peer, known).then_some(())
    });
    still_gossip(&mut first, &mut second, b"unharmed");
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn a_peer_that_announces_messages_and_takes_no_requests_is_dropped() {
    let (mut first, address, mut second) = honest(config());
    let mut hostile = Peer::start(deaf());
    hostile.host.dial(&address).unwrap();
    let (known, connection) = (first.connection(&hostile), hostile.connection(&first));
    has_member(&mut first, &hostile);
    // Until nothing that this side writes gets through any more.
    let mut stream = hostile.host.open(connection, "/meshsub/1.1.0").unwrap();
    let mut number = 0u32;
    let mut announcement = || {
        let ids = (0..1000).flat_map(|_| {
            number += 1;
            field(2, &Sha256::digest(number.to_le_bytes()))
        });
        control(&field(1, &[topic(), ids.collect()].concat()))
    };
    let (mut bytes, mut written) = (announcement(), 0);
    let closed = first.until("it is ended", |peer| {
        hostile.poll();
        match hostile.host.write(stream, &bytes[written..]) {
            Ok(taken) => written += taken,
            // The host's own stream of gossip may come later, and then the host listens to that alone.
            Err(gossiplog_net::Error::Reset) => {
                stream = hostile.host.open(connection, "/meshsub/1.1.0").unwrap();
                written = 0;
            }
            Err(_) => {}
        }
        if written == bytes.len() {
            (bytes, written) = (announcement(), 0);
        }
        assert!(peer.host.held().unwrap() <= limits().peer_bytes);
        peer.events().find_map(|event| match event {
            gossiplog_net::Event::Connection { connection, closed, .. } if *connection == known => closed.clone(),
            _ => None,
        })
    });
    assert_eq!(closed.cause, Cause::Overload, "{closed:?}");
    hostile.host.stop().unwrap();
    first.until("nothing is kept", |peer| (peer.host.held().unwrap() == 0).then_some(()));
    still_gossip(&mut first, &mut second, b"unharmed");
}

/// `cargo test -p gossiplog-net --test mesh floods_of -- --include-ignored --nocapture` prints the figures.
#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn floods_of_announcements_and_requests_are_read_up_to_an_allowance() {
    // A quarter of what a peer may say by default: a slow machine, too, spends it faster than it comes back.
    let allowed = 4 << 20;
    for (name, bytes) in [("announcements", announcement()), ("requests", request())] {
        let (mut first, address, mut second) = honest(Config { control_bytes: allowed, ..config() });
        let mut hostile = Hostile::dial(&mut first, &address);
        let (mut taken, mut most, begin) = (0, 0, Instant::now());
        while hostile.write(&mut first, &bytes) {
            taken += bytes.len();
            most = most.max(first.host.held().unwrap());
            assert!(taken < 20 * allowed, "{name}: {taken} bytes");
        }
        let seconds = begin.elapsed().as_secs_f64();
        assert_eq!(first.closed(hostile.known).cause, Cause::Violation);
        assert!(most <= limits().peer_bytes, "{name}: {most} bytes are held");
        println!("{name}: disconnected after {taken} bytes in {seconds:.1} s, of which {most} were held at the most");
        still_gossip(&mut first, &mut second, name.as_bytes());
    }
}

#[test]
fn requests_for_messages_that_nobody_has_cost_neither_side() {
    let (mut first, address, mut second) = honest(config());
    let mut other = Hostile::dial(&mut first, &address);
    for _ in 0..5 {
        assert!(other.write(&mut first, &request()));
        // Half of a request, at most.
        assert!(first.host.held().unwrap() < request().len());
    }
    still_gossip(&mut first, &mut second, b"unharmed");
    assert_eq!(first.host.peers().unwrap().len(), 2);
}

#[test]
fn a_peer_that_names_messages_by_malformed_ids_is_dropped() {
    let (mut first, address, mut second) = honest(config());
    for id in [vec![7; 4], vec![7; 100_000]] {
        for (list, number) in [(1, 2), (2, 1), (5, 1)] {
            let mut hostile = Hostile::dial(&mut first, &address);
            let bytes = control(&field(list, &field(number, &id)));
            hostile.write(&mut first, &bytes);
            let closed = first.closed(hostile.known);
            assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
            assert!(closed.reason.contains("ids of messages have 32"), "{closed:?}");
        }
    }
    still_gossip(&mut first, &mut second, b"unharmed");
}
