//! Streams by protocol name, many on a connection: yamux, and multistream-select on each of its streams, over a
//! WebSocket or any byte pipe ("Streams" of the wire format). Nothing here knows about logs or Python.
//!
//! A [`Network`] drives its connections on a thread of its own. The thread that uses it never waits: calls take or give
//! what is there at the moment, and [`Network::poll`] says, after a file descriptor became readable, which connections
//! and streams to try again. Nothing queues behind a caller that does not come: bytes stay within yamux's windows and
//! within the pipe, and news of one handle coalesce into one event.
//!
//! | module | holds |
//! | --- | --- |
//! | `error` | why things end, and what calls fail with |
//! | `wake`, `inbox` | the socket pair and the set of what is ready |
//! | `halt`, `budget` | having a connection end; the bytes that peers make this side keep, and who has too many |
//! | `ledger`, `watched` | what yamux does not tell: resets, ends, violations; read off the frames' headers |
//! | `verdict` | why a connection's yamux stopped |
//! | `slot`, `table` | a stream in the caller's hands; connections and streams by handle |
//! | `link` | a connection, as the caller and its task share it |
//! | `muxed`, `stream` | a stream of yamux; one whose protocol is agreed on |
//! | `sync` | what threads share values by |
//! | `negotiation`, `connection` | agreeing on a stream's protocol; the task that drives a connection |
//! | `shown` | URLs without their secrets |
//! | `tls`, `websocket` | the client's end of a WebSocket |
//! | `network` | the handles, and the runtime |
//! | `fuzzing` | what strangers' bytes do to the parts that read them, for tests |
//! | `mesh` | hosts of libp2p networks: gossip, finding peers, and the same streams |

#![forbid(unsafe_code)]

mod budget;
mod connection;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod halt;
mod inbox;
mod ledger;
mod limits;
mod link;
mod mesh;
mod muxed;
mod negotiation;
mod network;
mod shown;
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
    Answer, CHATTER, Config, GossipConfig, Host, HostCounts, LARGEST_MESSAGE, Message, Notice, PeerInfo, address,
    peer_id,
};
pub use network::Network;
pub use shown::shown;
pub use table::StreamTable;
pub use websocket::Target;
