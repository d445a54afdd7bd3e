//! The task that drives libp2p: executes the caller's commands and handles the swarm's events.

mod discovery;
mod gossip;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use libp2p::core::transport::ListenerId;
use libp2p::gossipsub::{IdentTopic, MessageAcceptance};
use libp2p::swarm::dial_opts::DialOpts;
use libp2p::swarm::{ConnectionId, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, identify, mdns, ping};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::error::{Cause, Closed, lock};
use crate::limits::Counters;
use crate::mesh::backpressure::Backpressure;
use crate::mesh::behaviour::{HostBehaviour, HostBehaviourEvent};
use crate::mesh::buckets::FEW_PEERS;
use crate::mesh::dialer::Dialer;
use crate::mesh::driver::discovery::{Dial, DiscoveryConnection};
use crate::mesh::driver::gossip::Outgoing;
use crate::mesh::peer::Opening;
use crate::mesh::pending::Origin;
use crate::mesh::shared::Shared;
use crate::mesh::streams::verdict;
use crate::mesh::validator::Answer;

/// Peers of the local network that are taken up at once.
const MAX_NEARBY: usize = 12;

/// Pings in a row that may go unanswered.
const MAX_MISSED_PINGS: u32 = 2;

/// Sentences about listeners that failed that are kept for the caller.
const MAX_FAILURES: usize = 64;

/// The time between two checks whether messages still wait for slow peers.
const BACKPRESSURE_INTERVAL: Duration = Duration::from_millis(10);

/// What the caller asks for.
#[derive(Debug)]
pub enum Command {
    /// To connect.
    Dial(DialOpts),
    /// To connect to a peer where Kademlia has it; where it does not, to look it up, for the next time.
    DialPeer(PeerId, DialOpts),
    /// To open a stream.
    Open(Opening),
    /// To close connections to a peer.
    Close(PeerId, Vec<ConnectionId>),
    /// To dial a peer again that was blocked.
    Forgive(PeerId),
    /// To pass on a message.
    Publish(Vec<u8>),
    /// To treat messages as they were judged.
    Answer(Vec<(Origin, Answer)>),
    /// To panic, as over a defect.
    #[cfg(test)]
    Panic,
}

/// libp2p, and the state it needs to find peers.
pub struct Driver {
    swarm: Swarm<HostBehaviour>,
    shared: Arc<Shared>,
    commands: UnboundedReceiver<Command>,
    topic: IdentTopic,
    dialer: Dialer,
    kademlia: String,
    /// For how long the sizes of messages are known.
    sizes_ttl: Duration,
    tick_interval: Duration,
    /// Streams of a connection that is idle.
    idle_streams: usize,
    /// Messages for gossip, in order.
    outgoing: VecDeque<Outgoing>,
    backpressure: Backpressure,
    /// Unanswered pings in a row.
    missed_pings: HashMap<ConnectionId, u32>,
    /// What was dialled on purpose.
    dialled: HashMap<ConnectionId, Dial>,
    /// Connections that Kademlia made in its discoveries, by the time at which they were looked at last.
    discovered: VecDeque<DiscoveryConnection>,
    /// Discovery connections that are being closed.
    closing: HashMap<ConnectionId, PeerId>,
}

impl Driver {
    /// Create the task's state. `sizes_ttl`: for how long the sizes of messages are known. `tick_interval`: the time
    /// between two ticks. `idle_streams`: those of a connection that is idle.
    #[expect(clippy::too_many_arguments, reason = "the parts of one whole")]
    pub fn new(
        swarm: Swarm<HostBehaviour>,
        shared: Arc<Shared>,
        commands: UnboundedReceiver<Command>,
        topic: &str,
        kademlia: &str,
        dialer: Dialer,
        sizes_ttl: Duration,
        tick_interval: Duration,
        idle_streams: usize,
    ) -> Self {
        let (topic, kademlia) = (IdentTopic::new(topic), kademlia.to_owned());
        Self {
            swarm,
            shared,
            commands,
            topic,
            dialer,
            kademlia,
            sizes_ttl,
            tick_interval,
            idle_streams,
            outgoing: VecDeque::new(),
            backpressure: Backpressure::new(Instant::now()),
            missed_pings: HashMap::new(),
            dialled: HashMap::new(),
            discovered: VecDeque::new(),
            closing: HashMap::new(),
        }
    }

    /// Run until the caller has gone.
    pub async fn run(mut self) {
        let mut ticks = ticker(self.tick_interval);
        loop {
            let held = self.publish_outgoing();
            let more = !self.outgoing.is_empty();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.execute(command),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.handle_event(event),
                _ = ticks.tick() => self.tick(),
                () = yield_now(), if more && !held => {}
                () = sleep(BACKPRESSURE_INTERVAL), if more && held => {}
            }
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Dial(options) => {
                let (connection, peer_id) = (options.connection_id(), options.get_peer_id());
                // A discovery may have found it already.
                if let Some(peer) = peer_id.and_then(|peer_id| self.shared.peer_table.peer(&peer_id)) {
                    peer.announce();
                }
                // `streams` hears of a failure, even of one at once.
                if self.swarm.dial(options).is_ok() {
                    self.dialled.insert(connection, Dial { own: false, by_id: false, peer_id });
                }
            }
            Command::DialPeer(peer_id, options) => {
                let connection = options.connection_id();
                // A discovery may have found it already.
                if let Some(peer) = self.shared.peer_table.peer(&peer_id) {
                    peer.announce();
                }
                let known = self.swarm.behaviour_mut().kademlia.inner.kbucket(peer_id);
                let known =
                    known.is_some_and(|bucket| bucket.iter().any(|entry| entry.node.key.preimage() == &peer_id));
                if !known && self.shared.peer_table.peer(&peer_id).is_none() {
                    let reason = "no address of the peer is known yet: it is being looked up";
                    self.shared.peer_table.unreachable(connection, Closed::new(Cause::Transport, reason));
                    self.look_up(peer_id);
                } else if self.swarm.dial(options).is_ok() {
                    self.dialled.insert(connection, Dial { own: false, by_id: true, peer_id: Some(peer_id) });
                }
            }
            Command::Open(opening) => self.swarm.behaviour_mut().streams.open(opening),
            Command::Close(peer_id, connections) => {
                self.dialer.dropped(Instant::now(), peer_id);
                for connection in connections {
                    self.swarm.behaviour_mut().streams.close(peer_id, connection);
                }
            }
            Command::Forgive(peer_id) => self.dialer.forgive(Instant::now(), &peer_id),
            Command::Publish(data) => self.outgoing.push_back(Outgoing::New(data)),
            Command::Answer(answers) => {
                for (origin, answer) in answers {
                    let metrics = &self.shared.metrics;
                    Counters::add(match answer {
                        Answer::Accept => &metrics.accepted,
                        Answer::Ignore => &metrics.ignored,
                        Answer::Reject => &metrics.rejected,
                    });
                    match answer {
                        Answer::Accept => self.outgoing.push_back(Outgoing::Forward(origin)),
                        answer => self.answer(&origin, answer.into()),
                    }
                }
            }
            #[cfg(test)]
            Command::Panic => std::panic::panic_any("a test's fault"),
        }
    }

    fn handle_event(&mut self, event: SwarmEvent<HostBehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.handle_behaviour_event(event),
            SwarmEvent::NewListenAddr { address, .. } => self.shared.listening(address),
            SwarmEvent::ExpiredListenAddr { address, .. } => self.shared.not_listening(&address),
            SwarmEvent::ListenerClosed { listener_id, addresses, reason } => {
                addresses.iter().for_each(|address| self.shared.not_listening(address));
                if let Err(error) = reason {
                    self.report_listener_error(listener_id, &addresses, &error);
                }
            }
            SwarmEvent::ListenerError { listener_id, error } => self.report_listener_error(listener_id, &[], &error),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let now = Instant::now();
                let dial = self.dialled.remove(&connection_id);
                // What was dialled where Kademlia had it is kept while it is used, as what a discovery has made.
                if dial.as_ref().is_none_or(|dial| dial.by_id) && endpoint.is_dialer() {
                    self.discovered.push_back(DiscoveryConnection { since: now, peer_id, connection: connection_id });
                }
                if (dial.is_some() || !endpoint.is_dialer())
                    && let Some(peer) = self.shared.peer_table.peer(&peer_id)
                {
                    peer.announce();
                }
                self.dialer.connected(now, connection_id, peer_id);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, num_established, .. } => {
                self.missed_pings.remove(&connection_id);
                self.closing.remove(&connection_id);
                self.discovered.retain(|visit| visit.connection != connection_id);
                let now = Instant::now();
                if verdict(cause.as_ref()).cause == Cause::Violation {
                    self.dialer.dropped(now, peer_id);
                } else if num_established == 0 {
                    self.dialer.disconnected(now, &peer_id);
                }
                // Also where the caller closed it. Or the next discovery would connect to it.
                if !self.dialer.may_dial(now, &peer_id) {
                    self.swarm.behaviour_mut().kademlia.inner.remove_peer(&peer_id);
                }
                self.shared.notify_peer(peer_id);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, .. } => {
                self.dialer.failed(Instant::now(), connection_id);
                if self.dialled.remove(&connection_id).is_some_and(|dial| dial.own) {
                    Counters::add(&self.shared.metrics.dials_failed);
                }
            }
            _ => {}
        }
    }

    fn report_listener_error(&self, listener: ListenerId, addresses: &[Multiaddr], error: &std::io::Error) {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let which = if addresses.is_empty() { listener.to_string() } else { addresses.join(", ") };
        let mut notices = lock(&self.shared.notices);
        if notices.failed.len() < MAX_FAILURES {
            notices.failed.push(format!("{which} listens no more: {error}"));
        }
        drop(notices);
        self.shared.notify();
    }

    fn handle_behaviour_event(&mut self, event: HostBehaviourEvent) {
        match event {
            HostBehaviourEvent::Gossip(event) => self.handle_gossip_event(event),
            HostBehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                self.identified(peer_id, info);
            }
            HostBehaviourEvent::Ping(event) => self.pinged(&event),
            HostBehaviourEvent::Mdns(mdns::Event::Discovered(found)) => {
                for (peer_id, address) in found.into_iter().take(MAX_NEARBY) {
                    self.swarm.behaviour_mut().kademlia.inner.add_address(&peer_id, address.clone());
                    if self.shared.peer_table.connections() < FEW_PEERS {
                        self.dial(DialOpts::peer_id(peer_id).addresses(vec![address]).build());
                    }
                }
            }
            _ => {}
        }
    }

    fn pinged(&mut self, event: &ping::Event) {
        match &event.result {
            Ok(rtt) => {
                self.missed_pings.remove(&event.connection);
                if let Some(peer) = self.shared.peer_table.peer(&event.peer) {
                    peer.update_status(|status| status.rtt = Some(rtt.as_secs_f64()));
                }
            }
            // Where nothing gets through, a ping after the first has no stream to go out on.
            Err(ping::Failure::Timeout | ping::Failure::Other { .. }) => {
                let missed_pings = self.missed_pings.entry(event.connection).or_default();
                *missed_pings += 1;
                if *missed_pings >= MAX_MISSED_PINGS {
                    self.swarm.close_connection(event.connection);
                }
            }
            // One of the two names, and not the other.
            Err(ping::Failure::Unsupported) => {}
        }
    }

    /// Do what is due: expire messages, update scores, dial, discover.
    fn tick(&mut self) {
        let now = Instant::now();
        for origin in self.shared.pending.expire(now) {
            Counters::add(&self.shared.metrics.expired);
            self.answer(&origin, MessageAcceptance::Ignore);
        }
        self.shared.recent.expire(self.sizes_ttl, now);
        self.shared.notify_refused();
        self.refresh_scores(now);
        self.discover(now);
    }
}

fn ticker(period: Duration) -> Interval {
    let mut ticker = interval(period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}
