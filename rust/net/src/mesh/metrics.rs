//! What a host counts.

use crate::limits::Counts;
use crate::sync::{AtomicU64, Ordering};

/// What a host counts beside what [`crate::limits::Counters`] do.
#[derive(Debug, Default)]
pub struct HostMetrics {
    pub received: AtomicU64,
    pub accepted: AtomicU64,
    pub ignored: AtomicU64,
    pub rejected: AtomicU64,
    pub expired: AtomicU64,
    pub dropped: AtomicU64,
    pub published: AtomicU64,
    pub dials: AtomicU64,
    pub dials_failed: AtomicU64,
    pub refused: AtomicU64,
}

impl HostMetrics {
    /// Read all of them. `network`: of connections and streams.
    pub fn read(&self, network: Counts) -> HostCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HostCounts {
            network,
            gossip_received: read(&self.received),
            gossip_accepted: read(&self.accepted),
            gossip_ignored: read(&self.ignored),
            gossip_rejected: read(&self.rejected),
            gossip_expired: read(&self.expired),
            gossip_dropped: read(&self.dropped),
            published: read(&self.published),
            dials: read(&self.dials),
            dials_failed: read(&self.dials_failed),
            refused: read(&self.refused),
        }
    }
}

/// A reading of what a host counted since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCounts {
    /// Of connections and streams. What libp2p does not report is 0: streams that were refused or never agreed on.
    pub network: Counts,
    /// Messages that came by gossip, for the first time each.
    pub gossip_received: u64,
    /// Messages that the caller accepted.
    pub gossip_accepted: u64,
    /// Messages that the caller ignored.
    pub gossip_ignored: u64,
    /// Messages that the caller rejected.
    pub gossip_rejected: u64,
    /// Messages that waited too long to be judged.
    pub gossip_expired: u64,
    /// Messages for which there was no room.
    pub gossip_dropped: u64,
    /// Messages that were published.
    pub published: u64,
    /// Peers that the host dialled by itself.
    pub dials: u64,
    /// Those that it did not reach.
    pub dials_failed: u64,
    /// Connections that were refused, because there were as many from their address as there may be, or because their
    /// peer is not allowed.
    pub refused: u64,
}
