//! Finding peers, and keeping them.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gossiplog_net::{Cause, Config, Event, Notice, StreamTable};
use libp2p::PeerId;
use sha2::{Digest, Sha256};

use crate::support::{Peer, config};

#[test]
fn peers_that_know_one_find_each_other() {
    let (bootstrap, address) = Peer::listening(config());
    let joining = || Peer::start(Config { bootstrap: vec![address.clone()], ..config() });
    let mut peers: Vec<_> = (0..7).map(|_| joining()).collect();
    peers.push(bootstrap);
    let start = Instant::now();
    loop {
        peers.iter_mut().for_each(Peer::poll);
        let counts: Vec<_> = peers.iter().map(|peer| peer.host.peers().unwrap().len()).collect();
        if counts.iter().all(|count| *count >= 4) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{counts:?}");
        sleep(Duration::from_millis(10));
    }
}

/// Whether a datagram to mDNS's group comes back to this machine.
fn has_multicast() -> bool {
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let probe = || -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.send_to(b"probe", (group, socket.local_addr()?.port()))?;
        socket.recv(&mut [0; 5]).map(|_| ())
    };
    probe().is_ok()
}

#[test]
fn peers_in_one_local_network_find_each_other() {
    if !has_multicast() {
        eprintln!("not tried: multicast does not come back to this machine");
        return;
    }
    // Multicast goes out by the interface of a network and comes back to the machine; loopback has none.
    let near = || Config { listen: vec!["/ip4/0.0.0.0/tcp/0".to_owned()], mdns: true, ..config() };
    let (mut first, mut second) = (Peer::start(near()), Peer::start(near()));
    second.connection(&first);
    first.connection(&second);
    assert!(first.host.counts().unwrap().dials + second.host.counts().unwrap().dials > 0);
}

#[test]
fn a_bootstrap_peer_that_is_not_there_yet_is_dialled_again() {
    let seed = config();
    let (first, address) = Peer::listening(seed.clone());
    let at = address.split("/p2p/").next().unwrap().to_owned();
    first.host.stop().unwrap();
    let back = || Peer::start(Config { listen: vec![at.clone()], ..seed.clone() });
    // Once by its identity, once without.
    for bootstrap in [&address, &at] {
        let mut peer = Peer::start(Config { bootstrap: vec![bootstrap.clone()], ..config() });
        peer.until("it has tried", |peer| (peer.host.counts().unwrap().dials_failed > 0).then_some(()));
        let found = back();
        let connection = peer.connection(&found);
        // And again when it was lost.
        found.host.stop().unwrap();
        peer.closed(connection);
        peer.host.release(connection).unwrap();
        let found = back();
        peer.connection(&found);
        found.host.stop().unwrap();
    }
}

#[test]
fn a_peer_identifies_itself() {
    let (mut first, mut second) = crate::support::pair(config(), config());
    let info = first.until("it is identified and pinged", |peer| {
        let known = |info: &gossiplog_net::PeerInfo| info.status.agent.is_some() && info.status.rtt.is_some();
        peer.host.peers().unwrap().into_iter().find(known)
    });
    assert_eq!((info.peer_id, info.dialer), (second.host.peer(), false));
    assert!(info.status.agent.unwrap().starts_with("gossiplog/"));
    for name in ["/canvas/kad/1.0.0/com.example.test", "/canvas/id/1.0.0", "/ipfs/id/1.0.0", "/canvas/ping/1.0.0"] {
        assert!(info.status.protocols.contains(&name.to_owned()), "{:?}", info.status.protocols);
    }
    assert!(info.address.starts_with("/ip4/127.0.0.1/tcp/"), "{}", info.address);
    assert!((0.0..60.0).contains(&info.status.rtt.unwrap()));
    second.poll();
    assert!(second.host.peers().unwrap()[0].dialer);
}

#[test]
fn a_peer_is_reported_before_its_connection() {
    let (mut first, second) = crate::support::pair(config(), config());
    first.poll();
    let told = first
        .notices
        .iter()
        .position(|notice| matches!(notice, Notice::Peer { peer_id, .. } if *peer_id == second.host.peer()));
    let established = |notice: &Notice| matches!(notice, Notice::Event(Event::Connection { established: true, .. }));
    let established = first.notices.iter().position(established);
    assert_eq!(told.map(|index| index + 1), established);
}

#[test]
fn a_peer_that_the_caller_dropped_is_not_dialled_at_once() {
    let (mut bootstrap, address) = Peer::listening(config());
    let mut peer = Peer::start(Config { bootstrap: vec![address], ..config() });
    let connection = peer.connection(&bootstrap);
    let there = bootstrap.connection(&peer);
    peer.host.close(connection).unwrap();
    assert_eq!(peer.closed(connection).cause, Cause::Local);
    bootstrap.closed(there);
    let dials = peer.host.counts().unwrap().dials;
    // Whoever comes next shows that time has passed.
    let (other, address) = Peer::listening(config());
    let handle = peer.host.dial(&address).unwrap();
    peer.until("another stands", |peer| peer.established(handle).then_some(()));
    peer.until("it is pinged", |peer| peer.host.peers().unwrap().first().and_then(|info| info.status.rtt));
    assert_eq!(peer.host.counts().unwrap().dials, dials);
    // The other side may dial: it was not it that parted.
    let peers = peer.host.peers().unwrap();
    let dialled: Vec<String> = peers.iter().filter(|info| info.dialer).map(|info| info.peer_id.clone()).collect();
    assert_eq!(dialled, [other.host.peer()], "{peers:?}");
}

#[test]
fn a_peer_that_was_cut_off_is_not_dialled_again_at_once() {
    let (mut bootstrap, address) = Peer::listening(config());
    // Nobody is there; what is tried again shows that time has passed.
    let nobody = "/ip4/127.0.0.1/tcp/1".to_owned();
    // Not even the subscription may be said.
    let strict = Config { listen: Vec::new(), bootstrap: vec![address, nobody], control_bytes: 1, ..config() };
    let mut peer = Peer::start(strict);
    let closed = peer.until("it is cut off", |peer| {
        bootstrap.poll();
        peer.events().find_map(|event| match event {
            Event::Connection { closed, .. } => closed.clone(),
            _ => None,
        })
    });
    assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
    let failed = peer.host.counts().unwrap().dials_failed;
    // All that the host dialled failed, but for the first time.
    peer.until("others alone are tried again", |peer| {
        let counts = peer.host.counts().unwrap();
        (counts.dials_failed >= failed + 2 && counts.dials == counts.dials_failed + 1).then_some(())
    });
}

/// The bucket in which two hosts have each other, 0 for the farthest.
fn bucket(one: &str, other: &str) -> u32 {
    let key = |peer: &str| Sha256::digest(peer.parse::<PeerId>().unwrap().to_bytes());
    let mut differing = key(one).into_iter().zip(key(other)).map(|(one, other)| one ^ other).enumerate();
    let (index, bits) = differing.find(|(_, bits)| *bits != 0).unwrap();
    8 * u32::try_from(index).unwrap() + bits.leading_zeros()
}

/// For each bucket, how many peers are connected, and how many there are.
fn buckets(peer: &Peer, all: &[String]) -> BTreeMap<u32, (usize, usize)> {
    let (own, mut found) = (peer.host.peer(), BTreeMap::new());
    let connected: HashSet<_> = peer.host.peers().unwrap().into_iter().map(|info| info.peer_id.clone()).collect();
    for other in all.iter().filter(|other| **other != own) {
        let (here, there) = found.entry(bucket(&own, other)).or_insert((0, 0));
        *here += usize::from(connected.contains(other));
        *there += 1;
    }
    found
}

#[test]
#[ignore = "32 hosts take twenty seconds of processor time; `make test` has them: cargo test -- --include-ignored"]
fn a_host_has_peers_in_every_bucket_and_leaves_those_that_it_needs_no_more() {
    const HOSTS: usize = 32;
    let (bootstrap, address) = Peer::listening(config());
    let mut peers = vec![bootstrap];
    for _ in 1..HOSTS {
        let mut peer = Peer::start(Config { bootstrap: vec![address.clone()], ..config() });
        peer.until("it has joined", |peer| (!peer.host.peers().unwrap().is_empty()).then_some(()));
        peers.push(peer);
    }
    let all: Vec<_> = peers.iter().map(|peer| peer.host.peer()).collect();
    let start = Instant::now();
    loop {
        peers.iter_mut().for_each(Peer::poll);
        // The bootstrap peer is left by nobody.
        let found: Vec<_> = peers[1..].iter().map(|peer| buckets(peer, &all)).collect();
        let mut counts = found.iter().flat_map(BTreeMap::values);
        let farthest: usize = found.iter().map(|buckets| buckets.get(&0).map_or(0, |(here, _)| *here)).sum();
        if counts.all(|(here, there)| *here >= 2.min(*there)) && farthest < 6 * found.len() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{found:?}");
        sleep(Duration::from_millis(50));
    }
    // Discoveries visit others, of whom the caller learns nothing where they dialled.
    let visits: u64 = peers.iter().map(|peer| peer.host.counts().unwrap().network.connections).sum();
    let reported: usize = peers
        .iter()
        .map(|peer| peer.events().filter(|event| matches!(event, Event::Connection { established: true, .. })).count())
        .sum();
    assert!((reported as u64) < visits, "{reported} of {visits} connections were reported");
}

#[test]
fn a_peer_that_kademlia_has_is_dialled_by_its_id() {
    let (mut bootstrap, address) = Peer::listening(config());
    let (mut other, _) = Peer::listening(Config { bootstrap: vec![address.clone()], ..config() });
    let mut peer = Peer::start(Config { listen: Vec::new(), ..config() });
    let id = other.host.peer();
    // Nobody is known yet, so nobody can be asked.
    let unknown = peer.host.dial_peer(&id).unwrap();
    let closed = peer.closed(unknown);
    assert_eq!((closed.cause, closed.reason.contains("is being looked up")), (Cause::Transport, true), "{closed:?}");
    assert!(peer.host.dial_peer(&peer.host.peer()).is_err());
    assert!(peer.host.dial_peer("12D3").is_err());
    bootstrap.connection(&other);
    peer.host.dial(&address).unwrap();
    let start = Instant::now();
    loop {
        for each in [&mut peer, &mut other, &mut bootstrap] {
            each.poll();
        }
        let handle = peer.host.dial_peer(&id).unwrap();
        if peer.host.peers().unwrap().iter().any(|info| info.peer_id == id) {
            break;
        }
        sleep(Duration::from_millis(100));
        peer.poll();
        if peer.host.peers().unwrap().iter().all(|info| info.connection != handle) {
            peer.host.release(handle).unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", peer.notices);
    }
}
