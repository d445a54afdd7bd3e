//! The task that drives libp2p: carries out what the caller asks for, and passes on what happens.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use libp2p::core::transport::ListenerId;
use libp2p::gossipsub::{self, IdentTopic, MessageAcceptance};
use libp2p::kad::QueryInfo;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, identify, mdns, ping};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::yield_now;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::error::{Cause, Closed, lock};
use crate::limits::Counters;
use crate::mesh::behaviour::{Parts, PartsEvent, QUERY};
use crate::mesh::buckets::{Buckets, FEW, MANY};
use crate::mesh::config::reachable;
use crate::mesh::gossip::{LEFT_OUT, UNHEARD};
use crate::mesh::holding::{Holding, admit};
use crate::mesh::link::Opening;
use crate::mesh::outbox::size_of;
use crate::mesh::party::Party;
use crate::mesh::scope::Scope;
use crate::mesh::shared::Shared;
use crate::mesh::streams::{bare, verdict};
use crate::mesh::upkeep::Upkeep;
use crate::mesh::waiting::{Answer, Origin};

/// Addresses of a peer that are remembered, and bytes of them: a message of Kademlia has 16 KiB and names six peers.
const MOST_ADDRESSES: usize = 16;
const MOST_ADDRESS_BYTES: usize = 1536;

/// Protocols of a peer that are remembered, and characters of what it calls its program.
const MOST_PROTOCOLS: usize = 128;
const LONGEST_AGENT: usize = 256;

/// Peers that a walk looks for.
const WALKED: NonZeroUsize = NonZeroUsize::new(6).unwrap();

/// Peers of the local network that are taken up at once.
const MOST_NEARBY: usize = 12;

/// Streams of a connection at which nothing is done on it: one stays open for as long as it stands.
const IDLE_STREAMS: usize = 1;

/// Pings in a row that may go unanswered.
const MOST_LOST: u32 = 2;

/// Sentences about listeners that failed that are kept for the caller.
const MOST_FAILURES: usize = 64;

/// Bytes of messages that are handed to gossip before peers' connections have their turn.
const TURN: usize = 1 << 20;

/// The time between two looks whether messages still wait for peers that take less than comes.
const HOLD_LOOK: Duration = Duration::from_millis(10);

/// Messages that wait so, at most.
const MOST_HELD: usize = 4096;

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
    /// To open a stream.
    Open(Opening),
    /// To close connections to a peer.
    Close(PeerId, Vec<ConnectionId>),
    /// To pass on a message.
    Publish(Vec<u8>),
    /// To treat messages as they were judged.
    Answer(Vec<(Origin, Answer)>),
    /// To panic, as over a defect.
    #[cfg(test)]
    Panic,
}

/// libp2p, and what its upkeep needs.
pub struct Driver {
    swarm: Swarm<Parts>,
    shared: Arc<Shared>,
    commands: UnboundedReceiver<Command>,
    topic: IdentTopic,
    upkeep: Upkeep,
    kademlia: String,
    /// For how long the sizes of messages are known.
    sizes_ttl: Duration,
    round: Duration,
    /// Messages for gossip, in order.
    outgoing: VecDeque<Outgoing>,
    holding: Holding,
    /// Unanswered pings in a row.
    lost: HashMap<ConnectionId, u32>,
    /// What was dialled on purpose.
    dialled: HashMap<ConnectionId, Dial>,
    /// Connections that Kademlia made on its walks, by the time at which they were looked at last.
    visits: VecDeque<Visit>,
    /// Visits that are being closed.
    leaving: HashMap<ConnectionId, PeerId>,
}

/// A connection that is being made on purpose.
#[derive(Debug)]
struct Dial {
    /// By the host itself, not because the caller said so.
    own: bool,
    /// Who is to answer, if that is known.
    peer: Option<PeerId>,
}

/// A connection that Kademlia made on a walk.
#[derive(Debug)]
struct Visit {
    since: Instant,
    peer: PeerId,
    connection: ConnectionId,
}

impl Driver {
    /// `sizes_ttl`: for how long the sizes of messages are known. `round`: what passes between two looks at how everything stands.
    #[expect(clippy::too_many_arguments, reason = "the parts of one whole")]
    pub fn new(
        swarm: Swarm<Parts>,
        shared: Arc<Shared>,
        commands: UnboundedReceiver<Command>,
        topic: &str,
        kademlia: &str,
        upkeep: Upkeep,
        sizes_ttl: Duration,
        round: Duration,
    ) -> Self {
        let (topic, kademlia) = (IdentTopic::new(topic), kademlia.to_owned());
        Self {
            swarm,
            shared,
            commands,
            topic,
            upkeep,
            kademlia,
            sizes_ttl,
            round,
            outgoing: VecDeque::new(),
            holding: Holding::new(Instant::now()),
            lost: HashMap::new(),
            dialled: HashMap::new(),
            visits: VecDeque::new(),
            leaving: HashMap::new(),
        }
    }

    /// Runs until the caller has gone.
    pub async fn run(mut self) {
        let mut rounds = ticker(self.round);
        loop {
            let held = self.hand_out();
            let more = !self.outgoing.is_empty();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.pass_on(event),
                _ = rounds.tick() => self.look(),
                () = yield_now(), if more && !held => {}
                () = sleep(HOLD_LOOK), if more && held => {}
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Dial(options) => {
                let (connection, peer) = (options.connection_id(), options.get_peer_id());
                // `streams` hears of a failure, even of one at once.
                if self.swarm.dial(options).is_ok() {
                    self.dialled.insert(connection, Dial { own: false, peer });
                }
            }
            Command::Open(opening) => self.swarm.behaviour_mut().streams.open(opening),
            Command::Close(peer, connections) => {
                self.upkeep.parted(Instant::now(), peer);
                for connection in connections {
                    self.swarm.behaviour_mut().streams.close(peer, connection);
                }
            }
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

    fn answer(&mut self, (id, source): &Origin, acceptance: MessageAcceptance) {
        // False: gossipsub has forgotten the message, and will not forward it any more.
        let _ = self.swarm.behaviour_mut().gossip.report_message_validation_result(id, source, acceptance);
    }

    /// Hand messages to gossip, as fast as peers take them: of what comes faster, gossipsub would queue any number of
    /// bytes. Return whether the next message is to wait.
    fn hand_out(&mut self) -> bool {
        if self.outgoing.is_empty() {
            return false;
        }
        let (now, mut bytes) = (Instant::now(), 0);
        let topic = self.topic.hash();
        let members = Arc::clone(&self.shared.members);
        let mesh = |driver: &Self| -> Vec<(PeerId, Arc<Party>)> {
            let party = |peer: &PeerId| Some((*peer, members.peer(peer)?.party().filter(Party::stays)?));
            driver.swarm.behaviour().gossip.mesh_peers(&topic).filter_map(party).collect()
        };
        let (mesh, mut subscribers) = (mesh(self), None);
        while bytes < TURN
            && let Some(first) = self.outgoing.front()
        {
            let (recipients, size): (Vec<_>, _) = match first {
                Outgoing::New(data) => {
                    // Gossipsub floods with what is published here.
                    let all: &Vec<_> = subscribers.get_or_insert_with(|| members.subscribers());
                    (all.iter().filter(|party| !party.is_left_out()).collect(), data.len())
                }
                Outgoing::Forward((id, source)) => {
                    let others = mesh.iter().filter(|(peer, _)| peer != source);
                    (others.map(|(_, party)| party).collect(), self.shared.recent.get(&id.0))
                }
            };
            let size = size_of(size, self.topic.hash().as_str().len());
            let members: Vec<_> = mesh.iter().map(|(_, party)| party).collect();
            if self.holding.waits(&recipients, &members, now) && self.outgoing.len() <= MOST_HELD {
                return true;
            }
            let fits = admit(&recipients, size, now) && self.shared.queues.fit(size * recipients.len());
            let recipients: Vec<_> = recipients.into_iter().cloned().collect();
            let Some(first) = self.outgoing.pop_front() else { break };
            if self.hand_over(first, fits, now) {
                for party in recipients {
                    party.outbox.charge(size, now);
                    // Whoever does not get it has nothing to write, and gives back what it was charged.
                    party.wake();
                }
            }
            bytes += size;
        }
        false
    }

    /// Hand a message to gossip if it `fits`. Whether gossip has it for others.
    fn hand_over(&mut self, outgoing: Outgoing, fits: bool, now: Instant) -> bool {
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
                // A duplicate, or nobody to send it to any more: the caller was told all that was known.
                let published = self.swarm.behaviour_mut().gossip.publish(self.topic.clone(), data);
                if let Ok(id) = &published {
                    Counters::add(&self.shared.metrics.published);
                    self.shared.recent.add(&id.0, length, now);
                }
                published.is_ok()
            }
            Outgoing::Forward(origin) => {
                let acceptance = if fits { MessageAcceptance::Accept } else { MessageAcceptance::Ignore };
                self.answer(&origin, acceptance);
                fits
            }
        }
    }

    fn pass_on(&mut self, event: SwarmEvent<PartsEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.pass_on_part(event),
            SwarmEvent::NewListenAddr { address, .. } => self.shared.listening(address),
            SwarmEvent::ExpiredListenAddr { address, .. } => self.shared.silent(&address),
            SwarmEvent::ListenerClosed { listener_id, addresses, reason } => {
                addresses.iter().for_each(|address| self.shared.silent(address));
                if let Err(error) = reason {
                    self.complain(listener_id, &addresses, &error);
                }
            }
            SwarmEvent::ListenerError { listener_id, error } => self.complain(listener_id, &[], &error),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let now = Instant::now();
                if self.dialled.remove(&connection_id).is_none() && endpoint.is_dialer() {
                    self.visits.push_back(Visit { since: now, peer: peer_id, connection: connection_id });
                }
                self.upkeep.connected(now, connection_id, peer_id);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                self.lost.remove(&connection_id);
                self.leaving.remove(&connection_id);
                self.visits.retain(|visit| visit.connection != connection_id);
                let now = Instant::now();
                if verdict(cause.as_ref()).cause == Cause::Violation {
                    self.upkeep.parted(now, peer_id);
                }
                // Also where the caller closed it. Or the next walk would connect to it.
                if !self.upkeep.may_dial(now, &peer_id) {
                    self.swarm.behaviour_mut().kademlia.inner.remove_peer(&peer_id);
                }
                self.shared.tell_of(peer_id);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, .. } => {
                self.upkeep.failed(Instant::now(), connection_id);
                if self.dialled.remove(&connection_id).is_some_and(|dial| dial.own) {
                    Counters::add(&self.shared.metrics.dials_failed);
                }
            }
            _ => {}
        }
    }

    fn complain(&self, listener: ListenerId, addresses: &[Multiaddr], error: &std::io::Error) {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let which = if addresses.is_empty() { listener.to_string() } else { addresses.join(", ") };
        let mut notices = lock(&self.shared.notices);
        if notices.failed.len() < MOST_FAILURES {
            notices.failed.push(format!("{which} listens no more: {error}"));
        }
        drop(notices);
        self.shared.tell();
    }

    fn pass_on_part(&mut self, event: PartsEvent) {
        match event {
            PartsEvent::Gossip(event) => self.pass_on_gossip(event),
            PartsEvent::Identify(identify::Event::Received { peer_id, info, .. })
            | PartsEvent::CanvasIdentify(identify::Event::Received { peer_id, info, .. }) => {
                self.identified(peer_id, info);
            }
            PartsEvent::Ping(event) | PartsEvent::CanvasPing(event) => self.pinged(&event),
            PartsEvent::Mdns(mdns::Event::Discovered(found)) => {
                for (peer, address) in found.into_iter().take(MOST_NEARBY) {
                    self.swarm.behaviour_mut().kademlia.inner.add_address(&peer, address.clone());
                    if self.shared.members.connections() < FEW {
                        self.dial(DialOpts::peer_id(peer).addresses(vec![address]).build());
                    }
                }
            }
            _ => {}
        }
    }

    fn pass_on_gossip(&mut self, event: gossipsub::Event) {
        match event {
            gossipsub::Event::Message { propagation_source, message_id, message } => {
                let metrics = &self.shared.metrics;
                Counters::add(&metrics.received);
                let (now, origin) = (Instant::now(), (message_id, propagation_source));
                self.shared.recent.add(&origin.0.0, message.data.len(), now);
                if self.shared.waiting.offer(origin.clone(), message.data, now) {
                    self.shared.tell();
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

    fn subscribed(&mut self, peer: PeerId, subscribed: bool) {
        if !self.shared.members.subscribe(&peer, subscribed) {
            return;
        }
        if let Some(link) = self.shared.members.peer(&peer) {
            if let Some(party) = link.party() {
                party.toggled(Instant::now());
            }
            // Of this peer alone: whoever subscribes often must not cost what all together do.
            let in_mesh = self.swarm.behaviour().gossip.mesh_peers(&self.topic.hash()).any(|member| *member == peer);
            link.stand(|standing| standing.in_mesh = in_mesh);
        }
        self.shared.tell_of(peer);
    }

    /// A peer said who it is. Where others reach it goes into Kademlia's table, if it takes part.
    fn identified(&mut self, peer: PeerId, info: identify::Info) {
        let Some(link) = self.shared.members.peer(&peer) else { return };
        let (Some(known), Some(party)) = (link.known(), link.party()) else { return };
        party.introduced(Instant::now());
        let from = Scope::of(&known.address);
        let serves = info.protocols.iter().any(|protocol| protocol.as_ref() == self.kademlia);
        let mut protocols: Vec<_> = info.protocols.iter().take(MOST_PROTOCOLS).map(ToString::to_string).collect();
        protocols.sort_unstable();
        protocols.dedup();
        link.stand(|standing| {
            standing.agent = Some(info.agent_version.chars().take(LONGEST_AGENT).collect());
            standing.protocols = protocols;
        });
        let wanted = |address: &&Multiaddr| reachable(address) && from.gives(Scope::of(address));
        let mut bytes = 0;
        let fits = |address: &Multiaddr| {
            bytes += address.len();
            bytes <= MOST_ADDRESS_BYTES
        };
        let listed = info.listen_addrs.iter().filter(wanted).map(bare).take(MOST_ADDRESSES);
        let listed: Vec<_> = listed.take_while(fits).collect();
        if serves && !listed.is_empty() {
            self.list(&peer, listed, known.dialer.then_some(&known.address));
        }
    }

    /// Put addresses of a peer into Kademlia's table instead of those that are there, but for the one where it was reached.
    fn list(&mut self, peer: &PeerId, listed: Vec<Multiaddr>, reached: Option<&Multiaddr>) {
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        let mut old = Vec::new();
        if let Some(bucket) = kademlia.kbucket(*peer) {
            let entry = bucket.iter().find(|entry| entry.node.key.preimage() == peer);
            old.extend(entry.iter().flat_map(|entry| entry.node.value.iter().map(bare)));
        }
        old.retain(|address| !listed.contains(address) && Some(address) != reached);
        for address in listed {
            kademlia.add_address(peer, address);
        }
        // Afterwards: with its last address, the peer would go.
        for address in old {
            kademlia.remove_address(peer, &address);
        }
    }

    fn pinged(&mut self, event: &ping::Event) {
        match &event.result {
            Ok(rtt) => {
                self.lost.remove(&event.connection);
                if let Some(link) = self.shared.members.peer(&event.peer) {
                    link.stand(|standing| standing.rtt = Some(rtt.as_secs_f64()));
                }
            }
            // Where nothing gets through any more, a ping after the first has no stream to go out on.
            Err(ping::Failure::Timeout | ping::Failure::Other { .. }) => {
                let lost = self.lost.entry(event.connection).or_default();
                *lost += 1;
                if *lost >= MOST_LOST {
                    self.swarm.close_connection(event.connection);
                }
            }
            // One of the two names, and not the other.
            Err(ping::Failure::Unsupported) => {}
        }
    }

    /// Sees how everything stands, and does what is due.
    fn look(&mut self) {
        let now = Instant::now();
        for origin in self.shared.waiting.expired(now) {
            Counters::add(&self.shared.metrics.expired);
            self.answer(&origin, MessageAcceptance::Ignore);
        }
        self.shared.recent.expire(self.sizes_ttl, now);
        self.shared.tell_of_refused();
        self.grade(now);
        let peers = self.shared.members.connections();
        let members = Arc::clone(&self.shared.members);
        for (number, address) in self.upkeep.seeds(now, peers, |peer| members.peer(peer).is_some()) {
            let options = DialOpts::from(address);
            self.upkeep.dialling(number, options.connection_id());
            self.shared.members.trust(options.connection_id());
            self.dial(options);
        }
        let mut buckets = self.buckets(now);
        let pending = self.swarm.network_info().connection_counters().num_pending_outgoing() as usize;
        let outbound = members.peers().iter().filter_map(|link| link.known()).filter(|known| known.dialer).count();
        // With what is pending, or a slow network would be dialled to pieces.
        for peer in buckets.dials(MANY.saturating_sub(outbound + pending), &mut rand::rng()) {
            self.upkeep.dials(now, peer);
            self.dial(DialOpts::peer_id(peer).condition(PeerCondition::DisconnectedAndNotDialing).build());
        }
        let kademlia = &mut self.swarm.behaviour_mut().kademlia.inner;
        let idle = kademlia.iter_queries().next().is_none() && kademlia.kbuckets().next().is_some();
        if idle && self.upkeep.walks(now, buckets.lacks(), buckets.filled()) {
            kademlia.get_n_closest_peers(buckets.target(&mut rand::rng()), WALKED);
        }
        // While its table is small, Kademlia looks up this host whenever a peer comes, so that it knows those nearest to it, and
        // then peers in every bucket.
        if peers + pending >= FEW {
            let own = self.shared.peer;
            for mut query in kademlia.iter_queries_mut() {
                if matches!(query.info(), QueryInfo::Bootstrap { peer, .. } if *peer != own) {
                    query.finish();
                }
            }
        }
        self.leave(&mut buckets, now);
    }

    /// What the buckets hold now: who is connected, and who is in Kademlia's table.
    fn buckets(&mut self, now: Instant) -> Buckets {
        let mut buckets = Buckets::new(self.shared.peer);
        let connected: HashSet<_> =
            self.shared.members.peers().iter().filter_map(|link| Some(link.known()?.peer)).collect();
        let leaving: HashSet<_> = self.leaving.values().collect();
        let dialling: HashSet<_> =
            self.dialled.values().filter_map(|dial| dial.peer).filter(|peer| !connected.contains(peer)).collect();
        connected.iter().filter(|peer| !leaving.contains(peer)).for_each(|peer| buckets.add_connected(*peer));
        dialling.iter().for_each(|peer| buckets.add_dialling(*peer));
        for bucket in self.swarm.behaviour_mut().kademlia.inner.kbuckets() {
            for key in bucket.iter().map(|entry| entry.node.key) {
                let peer = key.preimage();
                if !connected.contains(peer) && !dialling.contains(peer) && self.upkeep.may_dial(now, peer) {
                    buckets.add_free(*key);
                }
            }
        }
        buckets
    }

    /// Close connections that walks have made, where their buckets have enough without them, once the walk is over and nothing is
    /// done on them.
    fn leave(&mut self, buckets: &mut Buckets, now: Instant) {
        let over = |visit: &Visit| now.saturating_duration_since(visit.since) > QUERY;
        while self.visits.front().is_some_and(over)
            && let Some(visit) = self.visits.pop_front()
        {
            let Some(link) = self.shared.members.peer(&visit.peer) else { continue };
            if link.streams() > IDLE_STREAMS {
                self.visits.push_back(Visit { since: now, ..visit });
            } else if buckets.spare(visit.peer) {
                self.leaving.insert(visit.connection, visit.peer);
                self.swarm.close_connection(visit.connection);
            }
        }
    }

    /// How gossip stands with each peer. Whoever is unheard is parted from, and who takes nothing; who is slow for too long
    /// is left out for a while.
    fn grade(&mut self, now: Instant) {
        let gossip = &mut self.swarm.behaviour_mut().gossip;
        let topic = self.topic.hash();
        let mesh: Vec<_> = gossip.mesh_peers(&topic).copied().collect();
        for link in self.shared.members.peers() {
            let (Some(known), Some(party)) = (link.known(), link.party()) else { continue };
            let in_mesh = mesh.contains(&known.peer);
            party.readmit(now);
            let slowness = if party.is_left_out() { LEFT_OUT } else { 0.0 };
            gossip.set_application_score(&known.peer, slowness);
            let score = gossip.peer_score(&known.peer).unwrap_or_default();
            if score - slowness < UNHEARD {
                let reason = format!("too many of the peer's messages were rejected: its score is {score:.0}");
                link.end(Closed::new(Cause::Violation, reason));
            }
            if let Some(closed) = party.outbox.stalled(now) {
                link.end(closed);
            }
            let mut changed = false;
            link.stand(|standing| {
                changed = standing.in_mesh != in_mesh;
                (standing.in_mesh, standing.score) = (in_mesh, score);
            });
            if changed {
                self.shared.tell_of(known.peer);
            }
        }
    }

    fn dial(&mut self, options: DialOpts) {
        let (connection, peer) = (options.connection_id(), options.get_peer_id());
        Counters::add(&self.shared.metrics.dials);
        if self.swarm.dial(options).is_ok() {
            self.dialled.insert(connection, Dial { own: true, peer });
        } else {
            self.upkeep.failed(Instant::now(), connection);
            self.shared.members.unreachable(connection, Closed::new(Cause::Transport, "it was not dialled"));
            Counters::add(&self.shared.metrics.dials_failed);
        }
    }
}

fn ticker(period: Duration) -> Interval {
    let mut ticker = interval(period);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}
