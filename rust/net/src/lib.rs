//! Streams by protocol name, many on a connection: yamux, and multistream-select on each of its streams, over a
//! WebSocket or any byte pipe ("Streams" of the wire format). Nothing here knows about logs or Python.
//!
//! A [`Network`] drives its connections on a thread of its own. The thread that uses it never waits: calls take or give
//! what is there at the moment, and [`Network::poll`] returns, after a file descriptor became readable, which
//! connections and streams to try again. Nothing queues for a caller that does not poll: bytes stay within yamux's
//! windows and within the pipe, and news of one handle coalesce into one event.
//!
//! Each line may use those above it (`tests/test_rust_modules.py` forbids circles):
//!
//! | module | holds |
//! | --- | --- |
//! | `sync`, `error` | locks and atomics, which the tests of interleavings replace; why things end, and what calls fail with |
//! | `wake`, `inbox` | the socket pair; the set of what is ready |
//! | `close_signal`, `budget`, `limits` | ending a connection; the memory that peers use; limits and counters |
//! | `ledger`, `watched` | what yamux does not report: resets, ends, violations; read off the frames' headers |
//! | `verdict` | why a connection's yamux stopped |
//! | `slot`, `table` | a stream in the caller's hands; connections and streams by handle |
//! | `link` | a connection, as the caller and its task share it |
//! | `muxed`, `stream`, `negotiation` | a stream of yamux; one whose protocol is agreed on; agreeing on it |
//! | `connection` | the task that drives a connection |
//! | `redacted_url`, `tls`, `websocket` | URLs without their secrets; the client's end of a WebSocket |
//! | `network` | the handles, and the runtime |
//! | `mesh` | hosts of libp2p networks: gossip, finding peers, and the same streams |
//! | `fuzzing` | targets that feed any bytes to the parts that read them |

#![forbid(unsafe_code)]

mod budget;
mod close_signal;
mod connection;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod ledger;
mod limits;
mod link;
mod mesh;
mod muxed;
mod negotiation;
mod network;
mod redacted_url;
mod slot;
mod stream;
mod sync;
mod table;
mod tls;
mod verdict;
mod wake;
mod watched;
mod websocket;

pub use error::{Cause, Closed, Error};
pub use inbox::{Event, Handle, Incident};
pub use limits::{Counts, Limits};
pub use mesh::{
    Answer, CONTROL_BYTES, Config, GossipConfig, Host, HostCounts, LARGEST_MESSAGE, Message, Notice, PeerInfo,
    PeerStatus, Publication, Validator, address, peer_id,
};
pub use network::Network;
pub use redacted_url::redacted_url;
pub use table::StreamTable;
pub use websocket::Target;
