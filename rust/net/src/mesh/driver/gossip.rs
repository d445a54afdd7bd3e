//! Gossip in the hands of the task: what comes by it, what is given to it, and how peers stand with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use libp2p::PeerId;
use libp2p::gossipsub::{self, MessageAcceptance};

use crate::error::{Cause, Closed};
use crate::limits::Counters;
use crate::mesh::backpressure::admit;
use crate::mesh::driver::Driver;
use crate::mesh::gossip::{MIN_SCORE, SUSPENDED_SCORE};
use crate::mesh::outbox::size_of;
use crate::mesh::peer_account::PeerAccount;
use crate::mesh::pending::Origin;

/// Bytes of messages that are handed to gossip before peers' connections have their turn.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// Messages that wait so, at most.
const MAX_WAITING: usize = 4096;

/// A message for gossip: a new one, or one that came by it and is good.
#[derive(Debug)]
pub enum Outgoing {
    New(Vec<u8>),
    Forward(Origin),
}

impl Driver {
    /// Return the members of the mesh.
    pub(super) fn mesh(&self) -> Vec<PeerId> {
        let topic = self.topic.hash();
        let gossip = self.swarm.behaviour().gossip.as_ref();
        gossip.map(|gossip| gossip.mesh_peers(&topic).copied().collect()).unwrap_or_default()
    }

    pub(super) fn answer(&mut self, (id, source): &Origin, acceptance: MessageAcceptance) {
        // False: gossipsub has forgotten the message, and will not forward it.
        if let Some(gossip) = self.swarm.behaviour_mut().gossip.as_mut() {
            let _ = gossip.report_message_validation_result(id, source, acceptance);
        }
    }

    /// Hand messages to gossip, as fast as peers take them: of what comes faster, gossipsub would queue any number of
    /// bytes. Return whether the next message is to wait.
    pub(super) fn publish_outgoing(&mut self) -> bool {
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
    pub(super) fn give_to_gossip(&mut self, outgoing: Outgoing, fits: bool, now: Instant) -> bool {
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

    pub(super) fn handle_gossip_event(&mut self, event: gossipsub::Event) {
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

    pub(super) fn subscribed(&mut self, peer_id: PeerId, subscribed: bool) {
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

    /// Update the peers' scores, which are low for those that are suspended because they are slow. Drop those below the
    /// minimum, and those that take nothing.
    pub(super) fn refresh_scores(&mut self, now: Instant) {
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
}
