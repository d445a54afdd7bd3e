//! What the tests share: two networks joined by a pipe, and a peer that writes yamux frames by hand.

#![allow(clippy::panic, clippy::unwrap_used, dead_code, missing_docs)]

mod limits;

use std::time::Duration;

use gossiplog_net::{Closed, Error, Event, Handle, Limits, Network, StreamTable};
use tokio::runtime::Handle as RuntimeHandle;

pub use limits::limits;

pub const PROTOCOL: &str = "/canvas/v1/com.example.test/sync";

pub fn network(limits: Limits) -> Network {
    Network::within(&RuntimeHandle::current(), limits).unwrap()
}

/// Moves bytes from one pipe's end to the other's. True if there were any.
pub fn carry(from: (&Network, Handle), to: (&Network, Handle), held: &mut Vec<u8>) -> bool {
    let mut moved = false;
    if held.is_empty() {
        let mut buffer = vec![0; 64 * 1024];
        match from.0.drain(from.1, &mut buffer) {
            Ok(Some(0)) => drop(to.0.feed_end(to.1)),
            Ok(Some(read)) => held.extend(&buffer[..read]),
            Ok(None) | Err(_) => {}
        }
    }
    if !held.is_empty() {
        match to.0.feed(to.1, held) {
            Ok(taken) => {
                moved = taken > 0;
                held.drain(..taken);
            }
            Err(_) => held.clear(),
        }
    }
    moved
}

/// A client and a server on one network, joined by a pipe.
pub struct Pair {
    pub network: Network,
    pub client: Handle,
    pub server: Handle,
    held: (Vec<u8>, Vec<u8>),
    pub events: Vec<Event>,
}

impl Pair {
    pub fn new(limits: Limits) -> Self {
        let network = network(limits);
        let client = network.attach(vec![PROTOCOL.to_owned()], true).unwrap();
        let server = network.attach(vec![PROTOCOL.to_owned()], false).unwrap();
        Self { network, client, server, held: Default::default(), events: Vec::new() }
    }

    /// Lets the tasks run, and carries what they wrote.
    pub async fn step(&mut self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let (client, server) = ((&self.network, self.client), (&self.network, self.server));
        carry(client, server, &mut self.held.0);
        carry(server, client, &mut self.held.1);
        self.events.extend(self.network.poll().unwrap());
    }

    pub async fn until<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..10_000 {
            if let Some(value) = found(self) {
                return value;
            }
            self.step().await;
        }
        panic!("it did not happen; events: {:?}", self.events);
    }

    /// An open stream: the client's end, and the server's.
    pub async fn stream(&mut self) -> (Handle, Handle) {
        let ours = self.network.open(self.client, PROTOCOL).unwrap();
        let agreed = |pair: &mut Self| (protocol_of(&pair.events, ours).is_some()).then_some(());
        self.until(agreed).await;
        let theirs = self.until(|pair| take_inbound(&mut pair.events)).await;
        (ours, theirs)
    }

    pub async fn read(&mut self, stream: Handle) -> Result<Vec<u8>, Error> {
        self.until(|pair| {
            let mut buffer = vec![0; 64 * 1024];
            pair.network.read(stream, &mut buffer).map(|read| read.map(|read| buffer[..read].to_vec())).transpose()
        })
        .await
    }

    pub async fn closed(&mut self, connection: Handle) -> Closed {
        self.until(|pair| closed_of(&pair.events, connection)).await
    }
}

pub fn protocol_of(events: &[Event], handle: Handle) -> Option<String> {
    events.iter().find_map(|event| match event {
        Event::Stream { stream, protocol: Some(protocol), .. } if *stream == handle => Some(protocol.clone()),
        _ => None,
    })
}

pub fn failure_of(events: &[Event], handle: Handle) -> Option<Closed> {
    events.iter().find_map(|event| match event {
        Event::Stream { stream, failed: Some(failed), .. } if *stream == handle => Some(failed.clone()),
        _ => None,
    })
}

pub fn closed_of(events: &[Event], handle: Handle) -> Option<Closed> {
    events.iter().find_map(|event| match event {
        Event::Connection { connection, closed: Some(closed), .. } if *connection == handle => Some(closed.clone()),
        _ => None,
    })
}

pub fn take_inbound(events: &mut Vec<Event>) -> Option<Handle> {
    let found = |event: &Event| matches!(event, Event::Stream { inbound: true, protocol: Some(_), .. });
    let index = events.iter().position(found)?;
    match events.remove(index) {
        Event::Stream { stream, .. } => Some(stream),
        Event::Connection { .. } => None,
    }
}

pub const DATA: u8 = 0;
pub const WINDOW_UPDATE: u8 = 1;
pub const PING: u8 = 2;
pub const GO_AWAY: u8 = 3;
pub const SYN: u16 = 1;
pub const ACK: u16 = 2;
pub const FIN: u16 = 4;
pub const RST: u16 = 8;

/// A yamux frame with a length of one's own choice.
pub fn header(kind: u8, flags: u16, stream: u32, length: u32) -> Vec<u8> {
    let mut frame = vec![0, kind];
    frame.extend(flags.to_be_bytes());
    frame.extend(stream.to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame
}

pub fn data(flags: u16, stream: u32, body: &[u8]) -> Vec<u8> {
    [header(DATA, flags, stream, body.len() as u32), body.to_vec()].concat()
}

/// multistream-select's messages.
pub fn lines(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| [&[line.len() as u8 + 1], line.as_bytes(), b"\n"].concat()).collect()
}

/// A server's connection, and a peer at the pipe's other end who does as it likes.
pub struct Hostile {
    pub network: Network,
    pub server: Handle,
    pub received: Vec<u8>,
    pub events: Vec<Event>,
}

impl Hostile {
    pub fn new(limits: Limits) -> Self {
        let network = network(limits);
        let server = network.attach(vec![PROTOCOL.to_owned()], false).unwrap();
        Self { network, server, received: Vec::new(), events: Vec::new() }
    }

    pub async fn settle(&mut self) {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
        self.events.extend(self.network.poll().unwrap());
    }

    /// Sends all of it, if the connection lives so long.
    pub async fn send(&mut self, mut bytes: &[u8]) {
        for _ in 0..100_000 {
            match self.network.feed(self.server, bytes) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(_) => return,
            }
            self.settle().await;
            if bytes.is_empty() {
                return;
            }
        }
        panic!("{} bytes were never taken", bytes.len());
    }

    pub fn receive(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(Some(read @ 1..)) = self.network.drain(self.server, &mut buffer) {
            self.received.extend(&buffer[..read]);
        }
    }

    pub fn closed(&self) -> Option<Closed> {
        closed_of(&self.events, self.server)
    }
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
