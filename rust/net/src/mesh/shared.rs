//! What the caller's calls and libp2p's task share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};

use crate::budget::Budget;
use crate::error::{Cause, Closed, lock};
use crate::inbox::{Handle, Inbox};
use crate::limits::Counters;
use crate::mesh::dial_filter::DialFilter;
use crate::mesh::metrics::HostMetrics;
use crate::mesh::notice::Notice;
use crate::mesh::outbox::{Queues, Recent};
use crate::mesh::peer::PeerStatus;
use crate::mesh::peer_table::PeerTable;
use crate::mesh::pending::PendingMessages;
use crate::mesh::validator::Validator;

/// What concerns no single peer, since the caller last asked.
#[derive(Debug, Default)]
pub struct Notices {
    addresses: BTreeSet<Multiaddr>,
    listening: BTreeSet<Multiaddr>,
    /// As sentences.
    pub failed: Vec<String>,
    /// Connections that were refused until the last report.
    refused: u64,
    /// Peers whose status with the topic may differ from what was last reported.
    changed: HashSet<PeerId>,
    /// The peers' status as last reported: in the mesh, subscribed. Without those that are neither.
    reported: HashMap<PeerId, (bool, bool)>,
}

/// What the caller and libp2p's task share.
#[derive(Debug)]
pub struct Shared {
    pub peer_table: Arc<PeerTable>,
    /// What addresses that strangers give may lead to.
    pub dial_filter: Arc<DialFilter>,
    pub pending: Arc<PendingMessages>,
    /// Decides about gossip without the caller, where it can.
    pub validator: Option<Arc<dyn Validator>>,
    /// Sizes of the messages that peers may ask for.
    pub recent: Arc<Recent>,
    /// What of gossip may wait for peers.
    pub queues: Arc<Queues>,
    pub notices: Mutex<Notices>,
    pub metrics: Arc<HostMetrics>,
    /// Bytes of messages that wait until libp2p's task takes them.
    pub outgoing: AtomicUsize,
    pub inbox: Arc<Inbox>,
    pub counters: Arc<Counters>,
    pub budget: Arc<Budget>,
    /// Why libp2p's task has ended before its time, if it has.
    pub failure: OnceLock<&'static str>,
    /// All that its end means for others has been reported to the inbox.
    pub over: AtomicBool,
    /// This host.
    pub peer_id: PeerId,
    /// Stands for the host itself: its news are what concerns no single peer.
    pub own: Handle,
}

impl Shared {
    /// Wake the caller: there is something that concerns no single peer.
    pub fn notify(&self) {
        self.inbox.notify(self.own, |news| news.readable = true);
    }

    /// Wake the caller if connections were refused since the last report.
    pub fn notify_refused(&self) {
        if lock(&self.notices).refused < self.metrics.refused.load(Ordering::Relaxed) {
            self.notify();
        }
    }

    /// Wake the caller: a peer's status with the topic changed, or it is gone.
    pub fn notify_peer(&self, peer_id: PeerId) {
        lock(&self.notices).changed.insert(peer_id);
        self.notify();
    }

    /// Fail the host: libp2p's task has panicked, and nothing is connected, or will be.
    pub fn fail(&self, reason: &'static str) {
        // Set before anybody is woken, who then finds the reason.
        let _ = self.failure.set(reason);
        let mut notices = lock(&self.notices);
        notices.addresses.clear();
        let Notices { changed, reported, .. } = &mut *notices;
        changed.extend(reported.keys());
        drop(notices);
        // Nobody takes or answers them.
        self.pending.close();
        self.peer_table.fail(&Closed::new(Cause::Internal, reason));
        self.over.store(true, Ordering::Release);
        self.notify();
    }

    /// Add an address that the host listens on.
    pub fn listening(&self, address: Multiaddr) {
        let mut notices = lock(&self.notices);
        notices.listening.insert(address.clone());
        notices.addresses.insert(address);
        drop(notices);
        self.notify();
    }

    /// Remove an address that the host listened on.
    pub fn not_listening(&self, address: &Multiaddr) {
        let mut notices = lock(&self.notices);
        notices.listening.remove(address);
        notices.addresses.remove(address);
    }

    /// Return the addresses that the host listens on.
    pub fn addresses(&self) -> Vec<String> {
        lock(&self.notices).addresses.iter().map(|address| self.own(address)).collect()
    }

    fn own(&self, address: &Multiaddr) -> String {
        address.clone().with(Protocol::P2p(self.peer_id)).to_string()
    }

    /// Take what concerns no single peer, and the changes of peers' status with the topic.
    pub fn take_notices(&self, notices: &mut Vec<Notice>) {
        let changed = std::mem::take(&mut lock(&self.notices).changed);
        let status = |peer_id: PeerId| {
            let PeerStatus { in_mesh, subscribed, .. } = self.peer_table.peer(&peer_id).map(|peer| peer.status())?;
            Some((in_mesh, subscribed))
        };
        let denied = self.peer_table.take_denied();
        let now: Vec<_> = changed.into_iter().map(|peer_id| (peer_id, status(peer_id).unwrap_or_default())).collect();
        let mut news = lock(&self.notices);
        for (peer_id, (in_mesh, subscribed)) in now {
            let before = if in_mesh || subscribed {
                news.reported.insert(peer_id, (in_mesh, subscribed))
            } else {
                news.reported.remove(&peer_id)
            };
            let before = before.unwrap_or_default();
            let mut notify = |kind| notices.push(Notice::Mesh { peer_id: peer_id.to_string(), kind });
            if before.1 != subscribed {
                notify(if subscribed { "subscribe" } else { "unsubscribe" });
            }
            if before.0 != in_mesh {
                notify(if in_mesh { "graft" } else { "prune" });
            }
        }
        let listening: Vec<_> = std::mem::take(&mut news.listening).iter().map(|address| self.own(address)).collect();
        let failed = std::mem::take(&mut news.failed);
        let gossip = self.pending.has_unread();
        let accepted = self.validator.as_ref().is_some_and(|validator| validator.has_accepted());
        let asked = self.validator.as_ref().is_some_and(|validator| validator.asks());
        let refused = self.metrics.refused.load(Ordering::Relaxed);
        let refused = refused - std::mem::replace(&mut news.refused, refused);
        let is_any = !listening.is_empty() || !failed.is_empty() || refused > 0 || !denied.is_empty();
        if gossip || accepted || asked || is_any {
            notices.push(Notice::Host { gossip, accepted, asked, listening, failed, refused, denied });
        }
    }
}
