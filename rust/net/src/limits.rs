//! What a network and its peers may use, and what was counted.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// What yamux grants every stream at its start, in bytes: the specification's figure, the same on every peer.
pub const INITIAL_WINDOW: usize = 256 * 1024;

/// What a network and its peers may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time, those that ended and were not released included.
    pub connections: usize,
    /// Streams that the peer may have open on a connection. It is sent a reset for each one more.
    pub inbound_streams: usize,
    /// Streams that this side may have open on a connection.
    pub outbound_streams: usize,
    /// Bytes that are kept in memory for a peer: received and not read, frames of gossip that are not whole, or
    /// reserved by the caller ([`crate::StreamTable::reserve_memory`]). What a frame of gossip is kept in may have
    /// twice its size. Beside them a connection has 192 KiB a stream that were written and not sent (twelve of yamux's
    /// data frames), and 8 MiB of buffers and book-keeping at most, most of it only if the peer sends very many small
    /// frames.
    pub peer_bytes: usize,
    /// Bytes that are kept so for all peers together.
    pub total_bytes: usize,
    /// How long a stream may take to agree on a protocol.
    pub negotiation: Duration,
    /// How long the end of a connection or stream may take once this side asked for it.
    pub closing: Duration,
}

impl Limits {
    /// Return bytes by which the receive windows of a connection's streams may together grow beyond their start, which
    /// they do where the round trip is long and the caller reads fast: a quarter of what a peer may have kept.
    pub fn window_growth(&self) -> usize {
        self.peer_bytes / 4
    }

    /// Return small limits, for unit tests and the fuzzer.
    #[cfg(any(test, fuzzing))]
    pub fn small() -> Self {
        Self {
            connections: 8,
            inbound_streams: 8,
            outbound_streams: 8,
            peer_bytes: 1 << 20,
            total_bytes: 1 << 20,
            negotiation: Duration::from_secs(10),
            closing: Duration::from_secs(1),
        }
    }
}

/// What a network counted since its start.
#[derive(Debug, Default)]
pub struct Counters {
    pub connections: AtomicU64,
    pub streams: AtomicU64,
    pub violations: AtomicU64,
    pub streams_over_limit: AtomicU64,
    pub streams_refused: AtomicU64,
    pub negotiations_timed_out: AtomicU64,
    pub overloads: AtomicU64,
    pub defects: AtomicU64,
    pub bytes_sent: AtomicU64,
    pub bytes_received: AtomicU64,
}

/// A reading of what a network counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were established.
    pub connections: u64,
    /// Streams on which both sides agreed on a protocol.
    pub streams: u64,
    /// Connections closed because the peer broke the rules.
    pub violations: u64,
    /// Inbound streams reset because the peer had too many.
    pub streams_over_limit: u64,
    /// Inbound streams that ended without agreement on a protocol.
    pub streams_refused: u64,
    /// Inbound streams whose negotiation took too long.
    pub negotiations_timed_out: u64,
    /// Connections closed because all peers together had too many bytes kept.
    pub overloads: u64,
    /// Connections closed by a defect of this program.
    pub defects: u64,
    /// Bytes that were written to connections this side has sockets for: those of a host over TCP with all that libp2p adds,
    /// those of WebSockets that a network has dialled as these carry them. What goes over QUIC is not counted.
    pub bytes_sent: u64,
    /// Bytes that were read from them.
    pub bytes_received: u64,
}

impl Counters {
    /// Count one more.
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Count bytes.
    pub fn add_bytes(counter: &AtomicU64, bytes: usize) {
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Return the figures now.
    pub fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            connections: read(&self.connections),
            streams: read(&self.streams),
            violations: read(&self.violations),
            streams_over_limit: read(&self.streams_over_limit),
            streams_refused: read(&self.streams_refused),
            negotiations_timed_out: read(&self.negotiations_timed_out),
            overloads: read(&self.overloads),
            defects: read(&self.defects),
            bytes_sent: read(&self.bytes_sent),
            bytes_received: read(&self.bytes_received),
        }
    }
}

/// One place of a limited number, given back when dropped.
#[derive(Debug)]
pub struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// Return a place, if there is one.
    pub fn take(used: &Arc<AtomicUsize>, limit: usize) -> Option<Self> {
        let more = |used| (used < limit).then_some(used + 1);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(Arc::clone(used)))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_come_back() {
        let used = Arc::default();
        let first = Permit::take(&used, 2).unwrap();
        let _second = Permit::take(&used, 2).unwrap();
        assert!(Permit::take(&used, 2).is_none());
        drop(first);
        assert!(Permit::take(&used, 2).is_some());
    }
}
