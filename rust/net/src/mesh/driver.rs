//! The task that drives libp2p: executes the caller's commands and handles the swarm's events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::take;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use libp2p::core::transport::ListenerId;
use libp2p::gossipsub::{self, IdentTopic, MessageAcceptance};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, identify, mdns, ping};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::error::{Cause, Closed, lock};
use crate::limits::Counters;
use crate::mesh::backpressure::{Backpressure, admit};
use crate::mesh::behaviour::{HostBehaviour, HostBehaviourEvent, QUERY};
use crate::mesh::buckets::{Buckets, FEW_PEERS, MAX_DIALLED};
use crate::mesh::config::reachable;
use crate::mesh::dialer::Dialer;
use crate::mesh::gossip::{MIN_SCORE, SUSPENDED_SCORE};
use crate::mesh::outbox::size_of;
use crate::mesh::peer::Opening;
use crate::mesh::peer_account::PeerAccount;
use crate::mesh::pending::Origin;
use crate::mesh::scope::Scope;
use crate::mesh::shared::Shared;
use crate::mesh::streams::{bare, verdict};
use crate::mesh::validator::Answer;

/// Addresses of a peer that are remembered, and bytes of them: a message of Kademlia has 16 KiB and names six peers.
const MAX_ADDRESSES: usize = 16;
const MAX_ADDRESS_BYTES: usize = 1536;

/// Protocols of a peer that are remembered, and characters of what it calls its program.
const MAX_PROTOCOLS: usize = 128;
const MAX_AGENT_LENGTH: usize = 256;

/// Peers that a discovery looks for.
const DISCOVERED_PEERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Queries of Kademlia at a time, beyond which no peers are looked up.
const MAX_LOOKUPS: usize = 4;

/// Peers of the local network that are taken up at once.
const MAX_NEARBY: usize = 12;

/// Pings in a row that may go unanswered.
const MAX_MISSED_PINGS: u32 = 2;

/// Sentences about listeners that failed that are kept for the caller.
const MAX_FAILURES: usize = 64;

/// Bytes of messages that are handed to gossip before peers' connections have their turn.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// The time between two checks whether messages still wait for slow peers.
const BACKPRESSURE_INTERVAL: Duration = Duration::from_millis(10);

/// Messages that wait so, at most.
const MAX_WAITING: usize = 4096;

/// A message for gossip: a new one, or one that came by it and is good.
#[derive(Debug)]
enum Outgoing {
    New(Vec<u8>),
    Forward(Origin),
}

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

/// A connection that is being made on purpose.
#[derive(Debug)]
struct Dial {
    /// By the host itself, not because the caller said so.
    own: bool,
    /// Whether Kademlia gave the address.
    by_id: bool,
    /// The peer that is to answer, if it is known.
    peer_id: Option<PeerId>,
}

/// A connection that Kademlia made in a discovery.
#[derive(Debug)]
struct DiscoveryConnection {
    since: Instant,
    peer_id: PeerId,
    connection: ConnectionId,
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

    /// Return the members of the mesh.
    fn mesh(&self) -> Vec<PeerId> {
        let topic = self.topic.hash();
        let gossip = self.swarm.behaviour().gossip.as_ref();
        gossip.map(|gossip| gossip.mesh_peers(&topic).copied().collect()).unwrap_or_default()
    }

    fn answer(&mut self, (id, source): &Origin, acceptance: MessageAcceptance) {
        // False: gossipsub has forgotten the message, and will not forward it.
        if let Some(gossip) = self.swarm.behaviour_mut().gossip.as_mut() {
            let _ = gossip.report_message_validation_result(id, source, acceptance);
        }
    }

    /// Hand messages to gossip, as fast as peers take them: of what comes faster, gossipsub would queue any number of
    /// bytes. Return whether the next message is to wait.
    fn publish_outgoing(&mut self) -> bool {
        if self.outgoing.is_empty() {
            return false;
        }
        let (now, mut bytes) = (Instant::now(), 0);
        let peer_table = Arc::clone(&self.shared.peer_table);
        let mesh = |driver: &Self| -> Vec<(PeerId, Arc<PeerAccount>)> {
            let account =
                |peer_id: &PeerId| Some((*peer_id, peer_table.peer(peer_id)?.account().filter(PeerAccount::is_open)?));
            driver.mesh().iter().filter_map(account).collect()
        };
        let (mesh, mut subscribers) = (mesh(self), None);
        while bytes < MAX_BATCH_BYTES
            && let Some(first) = self.outgoing.front()
        {
            let (recipients, size): (Vec<_>, _) = match first {
                Outgoing::New(data) => {
                    // Gossipsub floods with what is published here.
                    let all: &Vec<_> = subscribers.get_or_insert_with(|| peer_table.subscribers());
                    (all.iter().filter(|account| !account.is_suspended()).collect(), data.len())
                }
                Outgoing::Forward((id, source)) => {
                    let others = mesh.iter().filter(|(peer_id, _)| peer_id != source);
                    (others.map(|(_, account)| account).collect(), self.shared.recent.get(&id.0))
                }
            };
            let size = size_of(size, self.topic.hash().as_str().len());
            let mesh_accounts: Vec<_> = mesh.iter().map(|(_, account)| account).collect();
            if self.backpressure.must_wait(&recipients, &mesh_accounts, now) && self.outgoing.len() <= MAX_WAITING {
                return true;
            }
            let fits = admit(&recipients, size, now) && self.shared.queues.fit(size * recipients.len());
            let recipients: Vec<_> = recipients.into_iter().cloned().collect();
            let Some(first) = self.outgoing.pop_front() else { break };
            if self.give_to_gossip(first, fits, now) {
                for account in recipients {
                    account.outbox.charge(size, now);
                    // A peer that does not get it has nothing to write, and gives back what it was charged.
                    account.wake();
                }
            }
            bytes += size;
        }
        false
    }

    /// Give a message to gossip if it `fits`. Return whether gossip has it for others.
    fn give_to_gossip(&mut self, outgoing: Outgoing, fits: bool, now: Instant) -> bool {
        let metrics = &self.shared.metrics;
        if !fits {
            Counters::add(&metrics.dropped);
        }
        match outgoing {
            Outgoing::New(data) => {
                let length = data.len();
                self.shared.outgoing.fetch_sub(length, Ordering::Relaxed);
                if !fits {
                    return false;
                }
                // A duplicate, or nobody is left to send it to: the caller knows all that was known.
                let topic = self.topic.clone();
                let gossip = self.swarm.behaviour_mut().gossip.as_mut();
                let published = gossip.and_then(|gossip| gossip.publish(topic, data).ok());
                if let Some(id) = &published {
                    Counters::add(&self.shared.metrics.published);
                    self.shared.recent.add(&id.0, length, now);
                }
                published.is_some()
            }
            Outgoing::Forward(origin) => {
                let acceptance = if fits { MessageAcceptance::Accept } else { MessageAcceptance::Ignore };
                self.answer(&origin, acceptance);
                fits
            }
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
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                self.missed_pings.remove(&connection_id);
                self.closing.remove(&connection_id);
                self.discovered.retain(|visit| visit.connection != connection_id);
                let now = Instant::now();
                if verdict(cause.as_ref()).cause == Cause::Violation {
                    self.dialer.dropped(now, peer_id);
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

    fn handle_gossip_event(&mut self, event: gossipsub::Event) {
        match event {
            gossipsub::Event::Message { propagation_source, message_id, message } => {
                let metrics = &self.shared.metrics;
                Counters::add(&metrics.received);
                let (now, origin) = (Instant::now(), (message_id, propagation_source));
                if let Some(peer) = self.shared.peer_table.peer(&propagation_source) {
                    peer.announce();
                }
                self.shared.recent.add(&origin.0.0, message.data.len(), now);
                if self.shared.pending.push(origin.clone(), message.data, now) {
                    // A validator wakes the caller where there is something left for it.
                    if self.shared.validator.is_none() {
                        self.shared.notify();
                    }
                } else {
                    Counters::add(&metrics.dropped);
                    self.answer(&origin, MessageAcceptance::Ignore);
                }
            }
            gossipsub::Event::Subscribed { peer_id, .. } => self.subscribed(peer_id, true),
            gossipsub::Event::Unsubscribed { peer_id, .. } => self.subscribed(peer_id, false),
            _ => {}
        }
    }

    fn subscribed(&mut self, peer_id: PeerId, subscribed: bool) {
        if !self.shared.peer_table.subscribe(&peer_id, subscribed) {
            return;
        }
        if let Some(peer) = self.shared.peer_table.peer(&peer_id) {
            if let Some(account) = peer.account() {
                account.changed_subscription(Instant::now());
            }
            // Of this peer alone: frequent subscriptions must not cost what all peers together do.
            let in_mesh = self.mesh().contains(&peer_id);
            peer.update_status(|status| status.in_mesh = in_mesh);
        }
        self.shared.notify_peer(peer_id);
    }

    /// Record what a peer says of itself. Its addresses go into Kademlia's table, if it takes part.
    fn identified(&mut self, peer_id: PeerId, info: identify::Info) {
        let Some(peer) = self.shared.peer_table.peer(&peer_id) else { return };
        let (Some(remote), Some(account)) = (peer.remote(), peer.account()) else { return };
        account.was_identified(Instant::now());
        let from = Scope::of(&remote.address);
        let serves = info.protocols.iter().any(|protocol| protocol.as_ref() == self.kademlia);
        let mut protocols: Vec<_> = info.protocols.iter().take(MAX_PROTOCOLS).map(ToString::to_string).collect();
        protocols.sort_unstable();
        protocols.dedup();
        peer.update_status(|status| {
            status.agent = Some(info.agent_version.chars().take(MAX_AGENT_LENGTH).collect());
            status.protocols = protocols;
        });
        let wanted = |address: &&Multiaddr| reachable(address) && from.gives(Scope::of(address));
        let mut bytes = 0;
        let fits = |address: &Multiaddr| {
            bytes += address.len();
            bytes <= MAX_ADDRESS_BYTES
        };
        let listed = info.listen_addrs.iter().filter(wanted).map(bare).take(MAX_ADDRESSES);
        let listed: Vec<_> = listed.take_while(fits).collect();
        if serves && !listed.is_empty() {
            self.update_addresses(&peer_id, listed, remote.dialer.then_some(&remote.address));
        }
    }

    /// Put addresses of a peer into Kademlia's table instead of those that are there, but for the one where it was
    /// reached.
    fn update_addresses(&mut self, peer_id: &PeerId, listed: Vec<Multiaddr>, reached: Option<&Multiaddr>) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        let mut old = Vec::new();
        if let Some(bucket) = kademlia.kbucket(*peer_id) {
            let entry = bucket.iter().find(|entry| entry.node.key.preimage() == peer_id);
            old.extend(entry.iter().flat_map(|entry| entry.node.value.iter().map(bare)));
        }
        old.retain(|address| !listed.contains(address) && Some(address) != reached);
        for address in listed {
            kademlia.add_address(peer_id, address);
        }
        // Afterwards: with its last address, the peer would go.
        for address in old {
            kademlia.remove_address(peer_id, &address);
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
        let peers = self.shared.peer_table.connections();
        let peer_table = Arc::clone(&self.shared.peer_table);
        for (number, address) in self.dialer.bootstrap(now, peers, |peer_id| peer_table.peer(peer_id).is_some()) {
            let options = DialOpts::from(address);
            self.dialer.dialling(number, options.connection_id());
            self.shared.peer_table.trust(options.connection_id());
            self.dial(options);
        }
        let mut buckets = self.buckets(now);
        let pending = self.swarm.network_info().connection_counters().num_pending_outgoing() as usize;
        let outbound =
            peer_table.peers().iter().filter_map(|peer| peer.remote()).filter(|remote| remote.dialer).count();
        // With what is pending, or a slow network would be dialled to pieces.
        for peer_id in buckets.dials(MAX_DIALLED.saturating_sub(outbound + pending), &mut rand::rng()) {
            self.dialer.dialled(now, peer_id);
            self.dial(DialOpts::peer_id(peer_id).condition(PeerCondition::DisconnectedAndNotDialing).build());
        }
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        let idle = kademlia.iter_queries().next().is_none() && kademlia.kbuckets().next().is_some();
        if idle && self.dialer.is_discovery_due(now, buckets.lacks(), buckets.filled()) {
            let first = self.dialer.first_discovery().map(|discovery| buckets.first_target(discovery));
            let target = first.unwrap_or_else(|| buckets.target(&mut rand::rng()));
            kademlia.get_n_closest_peers(target, DISCOVERED_PEERS);
        }
        self.judge_discovered(&mut buckets, now);
    }

    /// Return what the buckets hold now: who is connected, and who is in Kademlia's table.
    fn buckets(&mut self, now: Instant) -> Buckets {
        let mut buckets = Buckets::new(self.shared.peer_id);
        let connected: HashSet<_> =
            self.shared.peer_table.peers().iter().filter_map(|peer| Some(peer.remote()?.peer_id)).collect();
        let closing: HashSet<_> = self.closing.values().collect();
        let dialling: HashSet<_> = self
            .dialled
            .values()
            .filter_map(|dial| dial.peer_id)
            .filter(|peer_id| !connected.contains(peer_id))
            .collect();
        connected
            .iter()
            .filter(|peer_id| !closing.contains(peer_id))
            .for_each(|peer_id| buckets.add_connected(*peer_id));
        dialling.iter().for_each(|peer_id| buckets.add_dialling(*peer_id));
        for bucket in self.swarm.behaviour_mut().kademlia.inner.kbuckets() {
            for key in bucket.iter().map(|entry| entry.node.key) {
                let peer_id = key.preimage();
                if !connected.contains(peer_id) && !dialling.contains(peer_id) && self.dialer.may_dial(now, peer_id) {
                    buckets.add_free(*key);
                }
            }
        }
        buckets
    }

    /// Announce peers that a discovery has found to the caller, once it is over, or close the connections to them where
    /// their buckets have enough without them. Of those that the caller knows already, close what is not used.
    fn judge_discovered(&mut self, buckets: &mut Buckets, now: Instant) {
        let is_discovering = self.swarm.behaviour_mut().kademlia.inner.iter_queries().next().is_some();
        for visit in take(&mut self.discovered) {
            let Some(peer) = self.shared.peer_table.peer(&visit.peer_id) else { continue };
            let is_over = now.saturating_duration_since(visit.since) > QUERY;
            let waits = if peer.is_announced() { !is_over } else { is_discovering && !is_over };
            if waits {
                self.discovered.push_back(visit);
            } else if peer.streams() > self.idle_streams {
                self.discovered.push_back(DiscoveryConnection { since: now, ..visit });
            } else if buckets.spare(visit.peer_id) {
                self.closing.insert(visit.connection, visit.peer_id);
                self.swarm.close_connection(visit.connection);
            } else {
                peer.announce();
            }
        }
    }

    /// Update the peers' scores. Drop those below the minimum and those that take nothing; suspend those that are slow
    /// for too long is left out for a while.
    fn refresh_scores(&mut self, now: Instant) {
        let mesh = self.mesh();
        let Some(gossip) = self.swarm.behaviour_mut().gossip.as_mut() else { return };
        for peer in self.shared.peer_table.peers() {
            let (Some(remote), Some(account)) = (peer.remote(), peer.account()) else { continue };
            let in_mesh = mesh.contains(&remote.peer_id);
            account.resume(now);
            let slowness = if account.is_suspended() { SUSPENDED_SCORE } else { 0.0 };
            gossip.set_application_score(&remote.peer_id, slowness);
            let score = gossip.peer_score(&remote.peer_id).unwrap_or_default();
            if score - slowness < MIN_SCORE {
                let reason = format!("too many of the peer's messages were rejected: its score is {score:.0}");
                peer.end(Closed::new(Cause::Violation, reason));
            }
            if let Some(closed) = account.outbox.stalled(now) {
                peer.end(closed);
            }
            let mut changed = false;
            peer.update_status(|status| {
                changed = status.in_mesh != in_mesh;
                (status.in_mesh, status.score) = (in_mesh, score);
            });
            if changed {
                peer.announce();
                self.shared.notify_peer(remote.peer_id);
            }
        }
    }

    /// Look a peer up, unless as many are being looked up as may be. Kademlia connects to those that it asks.
    fn look_up(&mut self, peer_id: PeerId) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        if kademlia.iter_queries().count() < MAX_LOOKUPS && kademlia.kbuckets().next().is_some() {
            kademlia.get_n_closest_peers(peer_id.to_bytes(), DISCOVERED_PEERS);
        }
    }

    fn dial(&mut self, options: DialOpts) {
        let (connection, peer_id) = (options.connection_id(), options.get_peer_id());
        Counters::add(&self.shared.metrics.dials);
        if self.swarm.dial(options).is_ok() {
            self.dialled.insert(connection, Dial { own: true, by_id: false, peer_id });
        } else {
            self.dialer.failed(Instant::now(), connection);
            self.shared.peer_table.unreachable(connection, Closed::new(Cause::Transport, "it was not dialled"));
            Counters::add(&self.shared.metrics.dials_failed);
        }
    }
}

fn ticker(period: Duration) -> Interval {
    let mut ticker = interval(period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}
