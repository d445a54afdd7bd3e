//! Peers that do as they like. They run libp2p's own yamux and gossipsub, which are another's than the host's.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use futures::StreamExt;
use gossiplog_net::{Answer, StreamTable};
use libp2p::gossipsub::{self, IdentTopic, MessageAuthenticity, MessageId, ValidationMode};
use libp2p::swarm::{NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, Swarm, SwarmBuilder, identify, kad, noise, ping, tcp};
use socket2::{Domain, Socket, Type};

use crate::support::{Peer, TOPIC, config, pair};

#[derive(NetworkBehaviour)]
struct Parts {
    gossip: gossipsub::Behaviour,
    kademlia: kad::Behaviour<kad::store::MemoryStore>,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
}

/// A peer made of nothing but libp2p.
struct Stock {
    runtime: tokio::runtime::Runtime,
    swarm: Swarm<Parts>,
}

impl Stock {
    /// One that is connected to `address`.
    fn dial(address: &str) -> Self {
        Self::dial_with(address, |_| {})
    }

    /// One whose gossip is configured otherwise.
    fn dial_with(address: &str, configure: impl Fn(&mut gossipsub::ConfigBuilder)) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let within = runtime.enter();
        let mut config = gossipsub::ConfigBuilder::default();
        config
            .validation_mode(ValidationMode::Anonymous)
            .message_id_fn(|message| MessageId::new(&message.data))
            .max_transmit_size(64 << 20)
            .heartbeat_interval(Duration::from_millis(100));
        configure(&mut config);
        let gossip = gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config.build().unwrap()).unwrap();
        let mut swarm = SwarmBuilder::with_new_identity()
            .with_tokio()
            .with_tcp(tcp::Config::default(), noise::Config::new, libp2p_yamux::Config::default)
            .unwrap()
            .with_behaviour(|key| {
                let me = key.public().to_peer_id();
                let name = libp2p::StreamProtocol::try_from_owned(format!("/canvas/kad/1.0.0/{TOPIC}")).unwrap();
                Parts {
                    gossip,
                    kademlia: kad::Behaviour::with_config(me, kad::store::MemoryStore::new(me), kad::Config::new(name)),
                    identify: identify::Behaviour::new(identify::Config::new("test/1".to_owned(), key.public())),
                    ping: ping::Behaviour::default(),
                }
            })
            .unwrap()
            .with_swarm_config(|config| config.with_idle_connection_timeout(Duration::from_secs(300)))
            .build();
        swarm.dial(address.parse::<Multiaddr>().unwrap()).unwrap();
        drop(within);
        let mut stock = Self { runtime, swarm };
        stock.until(|event| matches!(event, SwarmEvent::ConnectionEstablished { .. }));
        stock
    }

    fn subscribe(&mut self, topic: &str) {
        self.swarm.behaviour_mut().gossip.subscribe(&IdentTopic::new(topic)).unwrap();
    }

    /// Runs until something happens.
    fn until(&mut self, found: impl Fn(&SwarmEvent<PartsEvent>) -> bool) {
        let Self { runtime, swarm } = self;
        runtime.block_on(async {
            let waited = async { while !found(&swarm.select_next_some().await) {} };
            tokio::time::timeout(Duration::from_secs(120), waited).await.unwrap();
        });
    }

    /// Runs while the caller waits for something else.
    fn run(&mut self) {
        let Self { runtime, swarm } = self;
        runtime.block_on(async {
            let _ = tokio::time::timeout(Duration::from_millis(5), async {
                loop {
                    swarm.select_next_some().await;
                }
            })
            .await;
        });
    }

    /// Runs until a host has what is looked for.
    fn with<T>(&mut self, peer: &mut Peer, what: &str, mut found: impl FnMut(&mut Self, &mut Peer) -> Option<T>) -> T {
        peer.until(what, |peer| {
            self.run();
            found(self, peer)
        })
    }
}

/// A host over TCP, and its address.
fn host() -> (Peer, String) {
    Peer::listening(gossiplog_net::Config { listen: vec!["/ip4/127.0.0.1/tcp/0".to_owned()], ..config() })
}

#[test]
fn a_peer_that_speaks_only_floodsub_gets_and_gives_every_message() {
    let (mut first, address) = host();
    let mut stock = Stock::dial_with(&address, |config| {
        config.protocol_id("/floodsub/1.0.0", gossipsub::Version::V1_0);
    });
    stock.subscribe(TOPIC);
    stock.with(&mut first, "its subscription", |_, peer| {
        peer.host.peers().unwrap().iter().any(|info| info.status.subscribed).then_some(())
    });
    assert_eq!(first.host.publish(b"to floodsub".to_vec()), Ok(true));
    stock.until(|event| {
        let SwarmEvent::Behaviour(PartsEvent::Gossip(gossipsub::Event::Message { message, .. })) = event else {
            return false;
        };
        message.data == b"to floodsub"
    });
    stock.swarm.behaviour_mut().gossip.publish(IdentTopic::new(TOPIC), b"from floodsub".to_vec()).unwrap();
    let got = stock.with(&mut first, "its message", |_, peer| peer.host.gossip().unwrap().pop());
    assert_eq!(got.data, b"from floodsub");
    assert!(!first.host.peers().unwrap()[0].status.in_mesh);
}

fn still_gossip(first: &mut Peer, second: &mut Peer) {
    first.meshed(1);
    second.meshed(1);
    assert_eq!(second.host.publish(b"unharmed".to_vec()), Ok(true));
    assert_eq!(first.message(Answer::Accept).data, b"unharmed");
}

#[test]
fn a_peer_of_nothing_but_libp2p_is_understood() {
    let (mut peer, address) = host();
    let mut stock = Stock::dial(&address);
    stock.subscribe(TOPIC);
    stock.with(&mut peer, "the mesh stands", |_, peer| {
        peer.host.peers().unwrap().iter().any(|info| info.status.in_mesh && info.status.subscribed).then_some(())
    });
    peer.host.publish(b"from here".to_vec()).unwrap();
    stock.until(|event| {
        matches!(event, SwarmEvent::Behaviour(PartsEvent::Gossip(gossipsub::Event::Message { message, .. })) if message.data == b"from here")
    });
    stock.swarm.behaviour_mut().gossip.publish(IdentTopic::new(TOPIC), b"from there".to_vec()).unwrap();
    let data = stock.with(&mut peer, "a message comes", |_, peer| peer.messages.pop().map(|message| message.data));
    assert_eq!(data, b"from there");
}

#[test]
fn ten_thousand_topics_are_passed_over() {
    let (mut peer, address) = host();
    let mut stock = Stock::dial(&address);
    for number in 0..10_000 {
        stock.subscribe(&format!("topic {number}"));
    }
    stock.subscribe(TOPIC);
    for _ in 0..20 {
        stock.run();
        peer.poll();
    }
    let mut other = Peer::start(config());
    other.host.dial(&address).unwrap();
    let connection = other.connection(&peer);
    still_gossip(&mut peer, &mut other);
    assert!(!other.events().any(|event| matches!(event, gossiplog_net::Event::Connection { connection: ended, closed: Some(_), .. } if *ended == connection)));
    let told = peer.notices.iter().filter(|notice| matches!(notice, gossiplog_net::Notice::Mesh { .. })).count();
    assert!(told <= 8, "{told} notices");
}

#[test]
fn a_message_that_is_too_large_is_not_read() {
    let (mut peer, address) = host();
    let mut stock = Stock::dial(&address);
    stock.subscribe(TOPIC);
    stock.with(&mut peer, "it subscribed", |_, peer| {
        peer.host.peers().unwrap().iter().any(|info| info.status.subscribed).then_some(())
    });
    let publish = |stock: &mut Stock, data: Vec<u8>| {
        stock.swarm.behaviour_mut().gossip.publish(IdentTopic::new(TOPIC), data).ok().map(|_| ())
    };
    stock.with(&mut peer, "it is sent", |stock, _| publish(stock, vec![7; 4_000_000]));
    let large = stock.with(&mut peer, "it comes", |_, peer| peer.messages.pop());
    assert_eq!(large.data.len(), 4_000_000);
    stock.with(&mut peer, "it is sent", |stock, _| publish(stock, vec![7; 9 << 20]));
    for _ in 0..20 {
        stock.run();
        peer.poll();
    }
    assert_eq!(peer.host.counts().unwrap().gossip_received, 1);
    let mut other = Peer::start(config());
    other.host.dial(&address).unwrap();
    still_gossip(&mut peer, &mut other);
}

#[test]
fn what_peers_want_stored_is_not() {
    let (mut peer, address) = host();
    let mut stock = Stock::dial(&address);
    let id = peer.host.peer().parse().unwrap();
    stock.swarm.behaviour_mut().kademlia.add_address(&id, address.parse().unwrap());
    for number in 0..100u32 {
        let key = kad::RecordKey::new(&number.to_le_bytes());
        let record = kad::Record::new(key.clone(), vec![0; 1000]);
        stock.swarm.behaviour_mut().kademlia.put_record_to(record, [id].into_iter(), kad::Quorum::One);
    }
    let key = kad::RecordKey::new(&7u32.to_le_bytes());
    stock.swarm.behaviour_mut().kademlia.remove_record(&key);
    stock.until(|event| {
        matches!(
            event,
            SwarmEvent::Behaviour(PartsEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                result: kad::QueryResult::PutRecord(Ok(_)),
                ..
            }))
        )
    });
    peer.poll();
    stock.swarm.behaviour_mut().kademlia.get_record(key);
    stock.until(|event| {
        matches!(
            event,
            SwarmEvent::Behaviour(PartsEvent::Kademlia(kad::Event::OutboundQueryProgressed {
                result: kad::QueryResult::GetRecord(Err(kad::GetRecordError::NotFound { .. })),
                ..
            }))
        )
    });
}

#[test]
fn sockets_that_say_nothing_or_nonsense_keep_nobody_out() {
    let (mut peer, address) = host();
    let port: u16 = address.split('/').nth(4).unwrap().parse().unwrap();
    let sockets: Vec<_> = (0..100)
        .map(|number| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            if number % 2 == 0 {
                // Refused once the host has read the first of it.
                let _ = socket.write_all(&[0xff; 1000]);
            }
            socket
        })
        .collect();
    let start = Instant::now();
    let mut other = Peer::start(config());
    other.host.dial(&address).unwrap();
    other.connection(&peer);
    still_gossip(&mut peer, &mut other);
    assert!(start.elapsed() < Duration::from_secs(100));
    assert_eq!(peer.host.peers().unwrap().len(), 1);
    drop(sockets);
}

#[test]
fn connections_are_limited() {
    let few = gossiplog_net::Limits { connections: 2, ..crate::support::limits() };
    let (mut first, mut second) = pair(gossiplog_net::Config { limits: few, ..config() }, config());
    let address = first.host.addresses().unwrap()[0].clone();
    let mut third = Peer::start(config());
    let handle = third.host.dial(&address).unwrap();
    third.connection(&first);
    let mut fourth = Peer::start(config());
    let refused = fourth.host.dial(&address).unwrap();
    fourth.closed(refused);
    assert_eq!(first.host.peers().unwrap().len(), 2);
    assert!(matches!(first.host.dial("/ip4/127.0.0.1/tcp/1"), Err(gossiplog_net::Error::ConnectionLimit { .. })));
    third.host.release(handle).unwrap();
    let gone = first.until("the third is gone", |peer| {
        peer.events().find_map(|event| match event {
            gossiplog_net::Event::Connection { connection, closed: Some(_), .. } => Some(*connection),
            _ => None,
        })
    });
    first.host.release(gone).unwrap();
    let again = fourth.host.dial(&address).unwrap();
    fourth.until("there is room again", |peer| peer.established(again).then_some(()));
    second.poll();
}

#[test]
fn what_a_peer_does_on_one_of_two_connections_ends_both() {
    let strict = gossiplog_net::Config { control_bytes: 100_000, ..config() };
    let (mut first, address) = Peer::listening(strict);
    // One identity on two machines.
    let config = gossiplog_net::Config { listen: Vec::new(), ..config() };
    let mut same = [Peer::start(config.clone()), Peer::start(config)];
    let connections = same.each_mut().map(|peer| {
        peer.host.dial(&address).unwrap();
        peer.connection(&first)
    });
    let known = first.connection(&same[0]);
    let mut stream = same[1].host.open(connections[1], "/meshsub/1.1.0").unwrap();
    let closed = first.until("it is cut off", |peer| {
        same.iter_mut().for_each(Peer::poll);
        // The host's own stream of gossip may come later, and then the host listens to that alone.
        if same[1].host.write(stream, &[0; 1000]) == Err(gossiplog_net::Error::Reset) {
            stream = same[1].host.open(connections[1], "/meshsub/1.1.0").unwrap();
        }
        peer.events().find_map(|event| match event {
            gossiplog_net::Event::Connection { connection, closed, .. } if *connection == known => closed.clone(),
            _ => None,
        })
    });
    assert_eq!(closed.cause, gossiplog_net::Cause::Violation, "{closed:?}");
    for (peer, connection) in same.iter_mut().zip(connections) {
        peer.closed(connection);
    }
    // One that comes again has an account of its own, and is listed.
    same[0].host.dial(&address).unwrap();
    let again = first.connection(&same[0]);
    assert_ne!(again, known);
    first.until("it is listed and subscribed", |peer| {
        let peers = peer.host.peers().unwrap();
        peers.iter().any(|info| info.connection == again && info.status.subscribed).then_some(())
    });
}

#[test]
fn half_open_connections_of_one_address_keep_nobody_out() {
    let (mut peer, address) = Peer::listening(config());
    let port: u16 = address.split('/').nth(4).unwrap().parse().unwrap();
    let target = SocketAddr::from(([127, 0, 0, 1], port));
    // More than may be agreed on at once, from an address of their own.
    let sockets: Vec<_> = (0..300)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
            socket.connect(&target.into()).unwrap();
            TcpStream::from(socket)
        })
        .collect();
    let mut other = Peer::start(config());
    other.host.dial(&address).unwrap();
    let start = Instant::now();
    let connection = other.connection(&peer);
    // Much less than the time after which half-open connections are given up.
    assert!(start.elapsed() < crate::support::limits().negotiation / 2);
    still_gossip(&mut peer, &mut other);
    assert!(other.established(connection));
    drop(sockets);
}

#[test]
fn not_all_identities_of_one_address_join() {
    let few = gossiplog_net::Config { per_address: Some(4), ..config() };
    let (mut peer, address) = Peer::listening(few);
    let mut others: Vec<_> =
        (0..12).map(|_| Peer::start(gossiplog_net::Config { listen: Vec::new(), ..config() })).collect();
    let mut refused = 0;
    for other in &mut others {
        let handle = other.host.dial(&address).unwrap();
        let joined = other.until("it is let in or not", |other| {
            peer.poll();
            let closed = |event: &gossiplog_net::Event| {
                matches!(event, gossiplog_net::Event::Connection { connection, closed: Some(_), .. } if *connection == handle)
            };
            if other.events().any(closed) { Some(false) } else { other.established(handle).then_some(true) }
        });
        refused += usize::from(!joined);
    }
    assert_eq!((refused, peer.host.peers().unwrap().len()), (8, 4));
    assert_eq!(peer.host.counts().unwrap().refused, 8);
    peer.until("that is told", |peer| {
        let told = peer.notices.iter().map(|notice| match notice {
            gossiplog_net::Notice::Host { refused, .. } => *refused,
            _ => 0,
        });
        (told.sum::<u64>() == 8).then_some(())
    });
    others[0].host.stop().unwrap();
    peer.until("there is room again", |peer| (peer.host.peers().unwrap().len() == 3).then_some(()));
    let handle = others[11].host.dial(&address).unwrap();
    others[11].until("it is let in", |other| other.established(handle).then_some(()));
}
