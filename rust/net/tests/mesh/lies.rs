//! Peers that lie to Kademlia and identify: about themselves, and about others.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use gossiplog_net::{Answer, Cause, Config, Handle, StreamTable};
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::support::{Peer, TOPIC, config};
use crate::wire::{field, fields, frame, number};

/// What one answer of Kademlia may have, in bytes.
const LARGEST_ANSWER: usize = 16 << 10;

fn kademlia() -> String {
    format!("/canvas/kad/1.0.0/{TOPIC}")
}

fn address(ip: Ipv4Addr, port: u16) -> Multiaddr {
    Multiaddr::empty().with(Protocol::Ip4(ip)).with(Protocol::Tcp(port))
}

/// A peer in an answer of Kademlia: <https://github.com/libp2p/specs/blob/master/kad-dht/README.md#rpc-messages>.
fn told(peer: &PeerId, addresses: impl Iterator<Item = Multiaddr>) -> Vec<u8> {
    let addresses = addresses.flat_map(|address| field(2, &address.to_vec()));
    field(8, &[field(1, &peer.to_bytes()), addresses.collect()].concat())
}

/// A message that asks for peers, or answers with some.
fn find_node(rest: &[u8]) -> Vec<u8> {
    frame(&[&[8, 4], rest].concat())
}

/// What identify says: <https://github.com/libp2p/specs/blob/master/identify/README.md#the-identify-message>.
fn introduction(addresses: impl Iterator<Item = Multiaddr>, rest: &[u8]) -> Vec<u8> {
    let addresses = addresses.flat_map(|address| field(2, &address.to_vec()));
    frame(&[addresses.collect(), field(3, kademlia().as_bytes()), rest.to_vec()].concat())
}

/// Writes to a new stream, and ends it. Whether it could.
fn send(from: &mut Peer, to: &mut Peer, connection: Handle, protocol: &str, bytes: &[u8]) -> bool {
    let Ok(stream) = from.host.open(connection, protocol) else { return false };
    let mut rest = bytes;
    from.until("it is taken or refused", |peer| {
        to.poll();
        match peer.host.write(stream, rest) {
            Ok(taken) => rest = &rest[taken..],
            // It is not open yet.
            Err(gossiplog_net::Error::NotOpen) => {}
            Err(_) => return Some(false),
        }
        let is_lost = |event: &gossiplog_net::Event| matches!(event, gossiplog_net::Event::Stream { stream: lost, failed: Some(_), .. } if *lost == stream);
        if peer.events().any(is_lost) {
            return Some(false);
        }
        if !rest.is_empty() {
            return None;
        }
        peer.host.finish(stream).unwrap();
        Some(true)
    })
}

/// What a host answers who asks for peers: their addresses.
fn ask(peer: &mut Peer, asker: &mut Peer, connection: Handle) -> HashMap<PeerId, Vec<Multiaddr>> {
    let stream = asker.host.open(connection, &kademlia()).unwrap();
    let request = find_node(&field(2, &PeerId::random().to_bytes()));
    asker.until("it is asked", |asker| {
        peer.poll();
        match asker.host.write(stream, &request) {
            Ok(taken) => (taken == request.len()).then_some(()),
            Err(gossiplog_net::Error::NotOpen) => None,
            error => panic!("{error:?}"),
        }
    });
    let mut read = Vec::new();
    let answer = asker.until("it answers", |asker| {
        peer.poll();
        let mut buffer = vec![0; LARGEST_ANSWER];
        if let Some(length) = asker.host.read(stream, &mut buffer).unwrap() {
            read.extend(&buffer[..length]);
        }
        let (length, rest) = number(&read)?;
        (rest.len() == length as usize).then(|| rest.to_vec())
    });
    let peers = fields(&answer).into_iter().filter(|(field, _)| *field == 8).map(|(_, peer)| {
        let addresses = fields(peer).into_iter().filter(|(field, _)| *field == 2);
        let addresses = addresses.map(|(_, address)| Multiaddr::try_from(address.to_vec()).unwrap());
        (PeerId::from_bytes(fields(peer)[0].1).unwrap(), addresses.collect())
    });
    peers.collect()
}

/// Listens at all loopback addresses; return the port, and what tells which of them were dialled.
fn listener() -> (u16, Receiver<Ipv4Addr>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, dialled) = channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            if let Ok(IpAddr::V4(ip)) = socket.and_then(|socket| socket.local_addr()).map(|address| address.ip())
                && sender.send(ip).is_err()
            {
                break;
            }
        }
    });
    (port, dialled)
}

/// A peer that answers in place of Kademlia.
fn liar() -> Peer {
    Peer::start(Config { protocols: vec![kademlia()], ..config() })
}

/// Answers the next request of Kademlia with `answer`.
fn answer(liar: &mut Peer, answer: &[u8]) {
    let (stream, _) = liar.inbound();
    liar.until("it reads the request", |liar| liar.host.read(stream, &mut [0; 1000]).unwrap());
    liar.write(stream, answer);
    liar.host.finish(stream).unwrap();
}

fn is_request(event: &gossiplog_net::Event) -> bool {
    matches!(event, gossiplog_net::Event::Stream { inbound: true, protocol: Some(_), .. })
}

fn connect(first: &mut Peer, address: &str, other: &mut Peer) -> Handle {
    other.host.dial(address).unwrap();
    first.connection(other);
    other.connection(first)
}

fn still_gossip(first: &mut Peer, second: &mut Peer) {
    first.meshed(1);
    second.meshed(1);
    assert_eq!(second.host.publish(b"unharmed".to_vec()), Ok(true));
    assert_eq!(first.message(Answer::Accept).data, b"unharmed");
    assert_eq!(first.host.counts().unwrap().network.defects, 0);
}

#[test]
fn lies_about_others_are_dialled_within_bounds_and_displace_nobody() {
    let (mut first, at) = Peer::listening(config());
    let (mut honest, mut liar) = (Peer::start(config()), liar());
    let connection = connect(&mut first, &at, &mut honest);
    let id = |peer: &Peer| peer.host.peer().parse::<PeerId>().unwrap();
    let (first_id, honest_id) = (id(&first), id(&honest));
    let (port, dialled) = listener();
    let many = |number: u8, count: u16| {
        (0..count).map(move |index| {
            let [high, low] = index.to_be_bytes();
            address(Ipv4Addr::new(127, number, high + 1, low), port)
        })
    };
    let made_up: Vec<_> = (0..4).map(|_| PeerId::random()).collect();
    // Each takes four numbers of networks for itself.
    let lies: [&dyn Fn(u8) -> Vec<u8>; 3] = [
        // Thousands of addresses of peers that do not exist.
        &|network| (network..).zip(&made_up).flat_map(|(number, peer)| told(peer, many(number, 300))).collect(),
        // Another's, and this host's own.
        &|network| {
            [told(&honest_id, many(7, 300)), told(&first_id, many(8, 300)), told(&made_up[0], many(network, 300))]
                .concat()
        },
        // More peers than anybody dials.
        &|network| (0..160).flat_map(|_| told(&PeerId::random(), many(network, 5))).collect(),
    ];
    let (mut networks, mut counts, mut crowds) = ((10..).step_by(4), HashMap::<u8, usize>::new(), HashSet::new());
    let start = Instant::now();
    connect(&mut first, &at, &mut liar);
    for (kind, lies) in lies.iter().enumerate() {
        let mut told = Vec::new();
        // Kademlia begins queries that the host ends at once (`WithoutBootstrap`): their requests are out, and nobody
        // takes the answers.
        while !told.iter().any(|network| counts.contains_key(network)) {
            let network = networks.next().unwrap();
            let lies = lies(network);
            assert!(lies.len() < LARGEST_ANSWER - 10);
            answer(&mut liar, &find_node(&lies));
            told.extend(network..network + 4);
            if kind == 2 {
                crowds.insert(network);
            }
            liar.until("an address is dialled, or it is asked again", |liar| {
                for ip in dialled.try_iter() {
                    *counts.entry(ip.octets()[1]).or_default() += 1;
                }
                let is_dialled = told.iter().any(|network| counts.contains_key(network));
                (is_dialled || liar.events().any(is_request)).then_some(())
            });
        }
    }
    answer(&mut liar, &find_node(&[0xff; 1000]));
    answer(&mut liar, &find_node(&[]));
    // Who is still at it is seen.
    while let Ok(ip) = dialled.recv_timeout(Duration::from_secs(1)) {
        *counts.entry(ip.octets()[1]).or_default() += 1;
    }
    // One host dials at most 256 addresses at once, and as many again in each minute.
    let most = 256.0 * (1.0 + start.elapsed().as_secs_f64() / 60.0);
    let most = |network| if crowds.contains(network) { most as usize } else { 16 };
    assert!(counts.iter().all(|(network, count)| *count <= most(network)), "{counts:?}");
    assert!(!counts.contains_key(&7) && !counts.contains_key(&8), "{counts:?}");
    let known = ask(&mut first, &mut honest, connection);
    assert!(made_up.iter().all(|peer| !known.contains_key(peer)));
    assert!(!known.contains_key(&first_id));
    // No peer gets itself in an answer: another one asks for the honest peer.
    let mut asker = Peer::start(config());
    let connection = connect(&mut first, &at, &mut asker);
    let known = ask(&mut first, &mut asker, connection);
    let own: Multiaddr = honest.host.addresses().unwrap()[0].parse().unwrap();
    assert_eq!(known[&honest_id], [own]);
    still_gossip(&mut first, &mut honest);
}

#[test]
fn new_addresses_of_a_peer_take_the_place_of_its_old_ones() {
    let (mut first, at) = Peer::listening(config());
    let (mut liar, mut asker) = (Peer::start(config()), Peer::start(config()));
    let asked = connect(&mut first, &at, &mut asker);
    let connection = connect(&mut first, &at, &mut liar);
    let id: PeerId = liar.host.peer().parse().unwrap();
    let mut last = 0;
    for push in 0..30_u8 {
        let addresses = (0..100).map(|index| address(Ipv4Addr::new(127, 1, push, index + 1), 1));
        let long = Multiaddr::empty().with(Protocol::Dns4("a".repeat(3000).into())).with(Protocol::Tcp(1));
        let addresses = addresses.chain((push % 3 == 1).then_some(long));
        assert!(send(&mut liar, &mut first, connection, "/ipfs/id/push/1.0.0", &introduction(addresses, &[])));
        last = push;
    }
    let known = first.until("the last ones are known", |first| {
        let known = ask(first, &mut asker, asked).remove(&id)?;
        let last = Protocol::Ip4(Ipv4Addr::new(127, 1, last, 1));
        known.iter().any(|address| address.iter().next() == Some(last.clone())).then_some(known)
    });
    assert_eq!(known.len(), 16, "{known:?}");
    still_gossip(&mut first, &mut asker);
}

#[test]
#[ignore = "takes half a second of processor time: `make test` runs it"]
fn a_peer_that_sends_identify_too_often_is_dropped() {
    let (mut first, at) = Peer::listening(config());
    let (mut honest, mut liar) = (Peer::start(config()), Peer::start(config()));
    connect(&mut first, &at, &mut honest);
    let connection = connect(&mut first, &at, &mut liar);
    let known = first.connection(&liar);
    let push = introduction(std::iter::empty(), &[]);
    while send(&mut liar, &mut first, connection, "/ipfs/id/push/1.0.0", &push) {}
    let closed = first.closed(known);
    assert_eq!(closed.cause, Cause::Violation, "{closed:?}");
    assert!(closed.reason.contains("said who it is"), "{closed:?}");
    still_gossip(&mut first, &mut honest);
}

#[test]
fn lies_about_itself_change_nothing_for_others() {
    let (mut first, at) = Peer::listening(config());
    let (mut honest, mut liar) = (Peer::start(config()), Peer::start(config()));
    connect(&mut first, &at, &mut honest);
    let connection = connect(&mut first, &at, &mut liar);
    let known = first.connection(&liar);
    let key = libp2p::identity::Keypair::generate_ed25519().public().encode_protobuf();
    let protocols: Vec<_> = (0..300).flat_map(|number: u32| field(3, format!("/{number}").as_bytes())).collect();
    let private = Multiaddr::empty().with(Protocol::Ip4(Ipv4Addr::new(10, 0, 0, 1))).with(Protocol::Tcp(1));
    let none = std::iter::empty::<Multiaddr>;
    let pushes = [
        introduction(none(), &field(1, &key)),
        introduction(none(), &field(1, &[7; 100])),
        introduction(none(), &field(4, &private.to_vec())),
        introduction(none(), &field(4, &[0xff; 500])),
        introduction(none(), &field(2, &[0xff; 500])),
        introduction(none(), &protocols),
        introduction(none(), &field(6, &[b'a'; 3000])),
        frame(&[0xff; 3000]),
        frame(&vec![0; 1 << 20]),
        vec![0xff; 1000],
    ];
    for push in &pushes {
        for protocol in ["/ipfs/id/push/1.0.0", "/canvas/id/push/1.0.0"] {
            send(&mut liar, &mut first, connection, protocol, push);
        }
    }
    let own = first.host.addresses().unwrap();
    let peers = first.host.peers().unwrap();
    let info = peers.iter().find(|info| info.connection == known);
    if let Some(info) = info {
        assert_eq!(info.peer_id, liar.host.peer());
        assert!(
            info.status.protocols.len() <= 128 && info.status.agent.as_ref().is_none_or(|agent| agent.len() <= 256)
        );
    }
    assert_eq!(first.host.addresses().unwrap(), own);
    still_gossip(&mut first, &mut honest);
}
