//! Gossipsub of rust-libp2p between nodes on loopback (WebSocket, noise, yamux), all in one process: messages of 300 bytes from one
//! node after another, which nobody verifies or stores.
//!
//! Usage: `bare-gossip NODES MESSAGES RATE NEIGHBOURS`, a rate of 0 being as fast as possible; each node is connected to so many others,
//! an even number below that of the nodes. Prints a line of JSON: the seconds from publishing to
//! each delivery at p50 and p95, how many deliveries there were, and the seconds that all took.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use futures::StreamExt;
use libp2p::gossipsub::{self, IdentTopic, MessageAcceptance, MessageAuthenticity, MessageId, ValidationMode};
use libp2p::swarm::SwarmEvent;
use libp2p::{Multiaddr, Swarm, SwarmBuilder, noise, tcp, yamux};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep_until, timeout};

const MESSAGE_BYTES: usize = 300;
/// For grafts, which heartbeats of a second make.
const FORMING: Duration = Duration::from_secs(6);
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;
type Node = Swarm<gossipsub::Behaviour>;

enum Command {
    Dial(Multiaddr),
    Publish(Vec<u8>),
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, messages, rate, neighbours] = arguments.as_slice() else {
        return Err("usage: bare-gossip NODES MESSAGES RATE NEIGHBOURS".into());
    };
    let (nodes, neighbours): (usize, usize) = (nodes.parse()?, neighbours.parse()?);
    if neighbours % 2 != 0 || neighbours >= nodes {
        return Err("NEIGHBOURS: expected an even number below NODES".into());
    }
    run(nodes, messages.parse()?, rate.parse()?, neighbours).await
}

async fn run(nodes: usize, messages: usize, rate: f64, neighbours: usize) -> Result<(), Failure> {
    let start = Instant::now();
    let topic = IdentTopic::new("bench");
    let (delivered, mut deliveries) = unbounded_channel();
    let (mut senders, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let mut node = node()?;
        node.behaviour_mut().subscribe(&topic)?;
        node.listen_on("/ip4/127.0.0.1/tcp/0/ws".parse()?)?;
        let address = loop {
            if let SwarmEvent::NewListenAddr { address, .. } = node.select_next_some().await {
                break address;
            }
        };
        let (sender, commands) = unbounded_channel();
        tokio::spawn(drive(node, topic.clone(), commands, start, delivered.clone()));
        senders.push(sender);
        addresses.push(address);
    }
    for node in 0..nodes {
        for other in (1..=neighbours / 2).map(|step| (node + step) % nodes) {
            senders[node].send(Command::Dial(addresses[other].clone()))?;
        }
    }
    tokio::time::sleep(FORMING).await;
    let begun = Instant::now();
    for number in 0..messages {
        if rate > 0.0 {
            sleep_until((begun + Duration::from_secs_f64(number as f64 / rate)).into()).await;
        }
        let mut data = vec![0; MESSAGE_BYTES];
        data[..8].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_le_bytes());
        data[8..16].copy_from_slice(&(number as u64).to_le_bytes());
        senders[number % nodes].send(Command::Publish(data))?;
    }
    let mut latencies = Vec::new();
    let expected = messages * (nodes - 1);
    while latencies.len() < expected {
        match timeout(PATIENCE, deliveries.recv()).await {
            Ok(Some(latency)) => latencies.push(latency),
            _ => break,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies.get((share * latencies.len() as f64) as usize).copied().unwrap_or(f64::INFINITY);
    println!(
        "{{\"p50\": {}, \"p95\": {}, \"deliveries\": {}, \"expected\": {expected}, \"seconds\": {seconds}}}",
        at(0.5),
        at(0.95),
        latencies.len()
    );
    Ok(())
}

fn node() -> Result<Node, Failure> {
    let config = gossipsub::ConfigBuilder::default()
        .validation_mode(ValidationMode::Anonymous)
        .message_id_fn(|message| MessageId::from(Sha256::digest(&message.data).to_vec()))
        .validate_messages()
        .build()?;
    let idle = Duration::from_secs(600);
    Ok(SwarmBuilder::with_new_identity()
        .with_tokio()
        .with_other_transport(|keys| -> Result<_, Failure> {
            let transport = libp2p::websocket::Config::new(tcp::tokio::Transport::new(tcp::Config::default()));
            Ok(libp2p::Transport::upgrade(transport, libp2p::core::upgrade::Version::V1)
                .authenticate(noise::Config::new(keys)?)
                .multiplex(yamux::Config::default()))
        })?
        .with_behaviour(|_| gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config).map_err(Failure::from))?
        .with_swarm_config(|swarm| swarm.with_idle_connection_timeout(idle))
        .build())
}

async fn drive(
    mut node: Node,
    topic: IdentTopic,
    mut commands: UnboundedReceiver<Command>,
    start: Instant,
    delivered: UnboundedSender<f64>,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Dial(address)) => node.dial(address)?,
                Some(Command::Publish(data)) => {
                    node.behaviour_mut().publish(topic.clone(), data)?;
                }
                None => return Ok(()),
            },
            event = node.select_next_some() => {
                if let SwarmEvent::Behaviour(gossipsub::Event::Message { propagation_source, message_id, message }) = event {
                    let accept = MessageAcceptance::Accept;
                    node.behaviour_mut().report_message_validation_result(&message_id, &propagation_source, accept);
                    let sent = message.data.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
                    delivered.send(start.elapsed().as_secs_f64() - sent as f64 / 1e9)?;
                }
            }
        }
    }
}
