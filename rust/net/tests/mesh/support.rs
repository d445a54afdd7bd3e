//! What the tests share: hosts, and waiting for their notices.

#[path = "../support/limits.rs"]
mod limits;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use gossiplog_net::{
    Answer, CONTROL_BYTES, Closed, Config, Error, Event, GossipConfig, Handle, Host, Message, Notice, StreamTable,
};

pub use limits::limits;

pub const PROTOCOL: &str = "/canvas/v1/com.example.test/sync";
pub const TOPIC: &str = "com.example.test";

/// Long enough for any machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// A host of its own identity that listens on loopback, over a WebSocket.
pub fn config() -> Config {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let mut identity = [0; 32];
    identity[..8].copy_from_slice(&LAST.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    // Who looks for peers in the local network finds those of other runs, too.
    identity[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    Config {
        identity,
        topic: TOPIC.to_owned(),
        protocols: vec![PROTOCOL.to_owned()],
        listen: vec!["/ip4/127.0.0.1/tcp/0/ws".to_owned()],
        bootstrap: Vec::new(),
        announce: Vec::new(),
        mdns: false,
        gossips: true,
        gossip: GossipConfig { heartbeat_interval: Duration::from_millis(100), ..GossipConfig::default() },
        idle_streams: 1,
        validator: None,
        control_bytes: CONTROL_BYTES,
        limits: limits(),
        per_address: None,
        allowed: Vec::new(),
    }
}

/// A host, and all its notices.
pub struct Peer {
    pub host: Host,
    pub notices: Vec<Notice>,
    pub messages: Vec<Message>,
}

impl Peer {
    pub fn start(config: Config) -> Self {
        Self { host: Host::start(config).unwrap(), notices: Vec::new(), messages: Vec::new() }
    }

    /// One that listens already, and its address.
    pub fn listening(config: Config) -> (Self, String) {
        let mut peer = Self::start(config);
        let address = peer.until("it listens", |peer| peer.host.addresses().unwrap().first().cloned());
        (peer, address)
    }

    pub fn poll(&mut self) {
        for notice in self.host.poll().unwrap() {
            if matches!(notice, Notice::Host { gossip: true, .. }) {
                self.messages.extend(self.host.gossip().unwrap());
            }
            self.notices.push(notice);
        }
    }

    pub fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.poll();
            if let Some(value) = found(self) {
                return value;
            }
            assert!(start.elapsed() < DEADLINE, "waited in vain until {what}; notices: {:?}", self.notices);
            sleep(Duration::from_millis(2));
        }
    }

    /// The handle of the peer that `other` is.
    pub fn connection(&mut self, other: &Self) -> Handle {
        let other = other.host.peer();
        let connected = |peer: &mut Self| {
            let peers = peer.host.peers().unwrap();
            peers.iter().find(|info| info.peer_id == other).map(|info| info.connection)
        };
        let handle = self.until("the peers are connected", connected);
        self.until("its connection is established", |peer| peer.established(handle).then_some(handle))
    }

    pub fn established(&self, handle: Handle) -> bool {
        self.events().any(
            |event| matches!(event, Event::Connection { connection, established: true, .. } if *connection == handle),
        )
    }

    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.notices.iter().filter_map(|notice| match notice {
            Notice::Event(event) => Some(event),
            _ => None,
        })
    }

    /// How a connection ended, once it has.
    pub fn closed(&mut self, handle: Handle) -> Closed {
        self.until("the connection is closed", |peer| {
            peer.events().find_map(|event| match event {
                Event::Connection { connection, closed, .. } if *connection == handle => closed.clone(),
                _ => None,
            })
        })
    }

    /// Why a stream could not be opened, once that is reported.
    pub fn failed(&mut self, handle: Handle) -> Closed {
        self.until("the stream fails", |peer| {
            peer.events().find_map(|event| match event {
                Event::Stream { stream, failed, .. } if *stream == handle => failed.clone(),
                _ => None,
            })
        })
    }

    /// A stream that the peer opened, once it is reported. Each is found once.
    pub fn inbound(&mut self) -> (Handle, String) {
        self.until("the peer opens a stream", |peer| {
            let inbound = |notice: &Notice| {
                matches!(notice, Notice::Event(Event::Stream { inbound: true, protocol: Some(_), .. }))
            };
            let index = peer.notices.iter().position(inbound)?;
            match peer.notices.remove(index) {
                Notice::Event(Event::Stream { stream, protocol: Some(protocol), .. }) => Some((stream, protocol)),
                _ => None,
            }
        })
    }

    /// A stream that is open on both sides.
    pub fn stream(&mut self, other: &mut Self) -> (Handle, Handle) {
        let connection = self.connection(other);
        let ours = self.host.open(connection, PROTOCOL).unwrap();
        let (theirs, protocol) = other.inbound();
        assert_eq!(protocol, PROTOCOL);
        self.until("the stream is open", |peer| {
            peer.events()
                .any(|event| matches!(event, Event::Stream { stream, protocol: Some(_), .. } if *stream == ours))
                .then_some(())
        });
        (ours, theirs)
    }

    pub fn read(&mut self, stream: Handle) -> Result<Vec<u8>, Error> {
        self.until("there is something to read", |peer| {
            let mut buffer = vec![0; 1 << 16];
            peer.host.read(stream, &mut buffer).map(|read| read.map(|read| buffer[..read].to_vec())).transpose()
        })
    }

    pub fn write(&mut self, stream: Handle, mut bytes: &[u8]) {
        self.until("everything is written", |peer| {
            bytes = &bytes[peer.host.write(stream, bytes).unwrap()..];
            bytes.is_empty().then_some(())
        });
    }

    /// Waits until so many peers of the mesh get what is published.
    pub fn meshed(&mut self, count: usize) {
        self.until("the mesh stands", |peer| {
            let peers = peer.host.peers().unwrap();
            (peers.iter().filter(|info| info.status.in_mesh && info.status.subscribed).count() >= count).then_some(())
        });
    }

    /// The next message that comes by gossip, answered.
    pub fn message(&mut self, answer: Answer) -> Message {
        let message =
            self.until("a message comes", |peer| (!peer.messages.is_empty()).then(|| peer.messages.remove(0)));
        self.host.validate(&[(message.ticket, answer)]).unwrap();
        message
    }
}

/// Two hosts, the second of which dialled the first.
pub fn pair(first: Config, second: Config) -> (Peer, Peer) {
    let (mut first, address) = Peer::listening(first);
    let mut second = Peer::start(second);
    second.host.dial(&address).unwrap();
    second.connection(&first);
    first.connection(&second);
    (first, second)
}

pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}
