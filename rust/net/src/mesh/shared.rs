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
use crate::mesh::link::Standing;
use crate::mesh::members::Members;
use crate::mesh::metrics::HostMetrics;
use crate::mesh::nearby::Near;
use crate::mesh::outbox::{Queues, Recent};
use crate::mesh::told::Notice;
use crate::mesh::waiting::Waiting;

/// What concerns no single peer, since the caller last asked.
#[derive(Debug, Default)]
pub struct Notices {
    addresses: BTreeSet<Multiaddr>,
    listening: BTreeSet<Multiaddr>,
    /// As sentences.
    pub failed: Vec<String>,
    /// Connections that were refused until the caller was last told.
    refused: u64,
    /// Peers that may stand otherwise with the topic than the caller was last told.
    changed: HashSet<PeerId>,
    /// How the caller was last told that peers stand: in the mesh, subscribed. Without those that are neither.
    told: HashMap<PeerId, (bool, bool)>,
}

/// What the caller and libp2p's task share.
#[derive(Debug)]
pub struct Shared {
    pub members: Arc<Members>,
    /// What addresses that strangers give may lead to.
    pub near: Arc<Near>,
    pub waiting: Waiting,
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
    /// All that its end means for others has been told to the inbox.
    pub over: AtomicBool,
    /// This host.
    pub peer: PeerId,
    /// Stands for the host itself: its news are what concerns no single peer.
    pub own: Handle,
}

impl Shared {
    /// Wakes the caller: there is something that concerns no single peer, or all.
    pub fn tell(&self) {
        self.inbox.tell(self.own, |news| news.readable = true);
    }

    /// Wakes the caller if connections were refused since it was last told.
    pub fn tell_of_refused(&self) {
        if lock(&self.notices).refused < self.metrics.refused.load(Ordering::Relaxed) {
            self.tell();
        }
    }

    /// Wakes the caller: a peer stands otherwise with the topic, or is gone.
    pub fn tell_of(&self, peer: PeerId) {
        lock(&self.notices).changed.insert(peer);
        self.tell();
    }

    /// libp2p's task has ended before its time: nothing is connected any more, or will be.
    pub fn fail(&self, reason: &'static str) {
        // Set before anybody is woken: whoever looks then finds the reason.
        let _ = self.failure.set(reason);
        let mut notices = lock(&self.notices);
        notices.addresses.clear();
        let Notices { changed, told, .. } = &mut *notices;
        changed.extend(told.keys());
        drop(notices);
        // Nobody takes or answers them any more.
        self.waiting.clear();
        self.members.fail(&Closed::new(Cause::Internal, reason));
        self.over.store(true, Ordering::Release);
        self.tell();
    }

    /// The host listens on one more address.
    pub fn listening(&self, address: Multiaddr) {
        let mut notices = lock(&self.notices);
        notices.listening.insert(address.clone());
        notices.addresses.insert(address);
        drop(notices);
        self.tell();
    }

    /// The host listens on an address no more.
    pub fn silent(&self, address: &Multiaddr) {
        let mut notices = lock(&self.notices);
        notices.listening.remove(address);
        notices.addresses.remove(address);
    }

    /// The addresses that the host listens on.
    pub fn addresses(&self) -> Vec<String> {
        lock(&self.notices).addresses.iter().map(|address| self.own(address)).collect()
    }

    fn own(&self, address: &Multiaddr) -> String {
        address.clone().with(Protocol::P2p(self.peer)).to_string()
    }

    /// Takes what concerns no single peer, and how each stands with the topic if that has changed.
    pub fn take_notices(&self, notices: &mut Vec<Notice>) {
        let changed = std::mem::take(&mut lock(&self.notices).changed);
        let standing = |peer: PeerId| {
            let Standing { in_mesh, subscribed, .. } = self.members.peer(&peer).map(|link| link.standing())?;
            Some((in_mesh, subscribed))
        };
        let denied = self.members.take_denied();
        let now: Vec<_> = changed.into_iter().map(|peer| (peer, standing(peer).unwrap_or_default())).collect();
        let mut news = lock(&self.notices);
        for (peer, (in_mesh, subscribed)) in now {
            let before = if in_mesh || subscribed {
                news.told.insert(peer, (in_mesh, subscribed))
            } else {
                news.told.remove(&peer)
            };
            let before = before.unwrap_or_default();
            let mut tell = |kind| notices.push(Notice::Mesh { peer: peer.to_string(), kind });
            if before.1 != subscribed {
                tell(if subscribed { "subscribe" } else { "unsubscribe" });
            }
            if before.0 != in_mesh {
                tell(if in_mesh { "graft" } else { "prune" });
            }
        }
        let listening: Vec<_> = std::mem::take(&mut news.listening).iter().map(|address| self.own(address)).collect();
        let failed = std::mem::take(&mut news.failed);
        let gossip = self.waiting.any();
        let refused = self.metrics.refused.load(Ordering::Relaxed);
        let refused = refused - std::mem::replace(&mut news.refused, refused);
        if gossip || !listening.is_empty() || !failed.is_empty() || refused > 0 || !denied.is_empty() {
            notices.push(Notice::Host { gossip, listening, failed, refused, denied });
        }
    }
}
