//! Limits for the tests of networks and of hosts.

use std::time::Duration;

use gossiplog_net::Limits;

/// Small, but enough for what is not about limits.
pub fn limits() -> Limits {
    Limits {
        connections: 1024,
        inbound_streams: 16,
        outbound_streams: 16,
        peer_bytes: 32 << 20,
        total_bytes: 64 << 20,
        negotiation: Duration::from_secs(20),
        closing: Duration::from_secs(5),
    }
}
