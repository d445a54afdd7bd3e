//! A host of a libp2p network: connections to peers, each with many streams by protocol name, gossip on one topic, and
//! peers found through Kademlia.
//!
//! A [`Host`] speaks as [`crate::Network`] does, and counts and limits alike: connections run over the same watched
//! yamux, and streams are the same slots in the caller's hands.
//!
//! | module | holds |
//! | --- | --- |
//! | `config` | what a host is made of, checked |
//! | `party`, `allowance` | a peer's account over all its connections, and how much it may say beside messages |
//! | `frames`, `guarded`, `muxer` | what gossip costs and keeps; a connection under the account's eyes; yamux for libp2p |
//! | `outbox`, `holding` | what of gossip waits for a peer; whether messages wait for slow ones |
//! | `addresses` | how many connections an address may have |
//! | `transport`, `quic` | the transports |
//! | `scope`, `nearby` | from where an address can be reached; which of those that strangers give are dialled |
//! | `rename` | behaviours whose protocols have other names on the wire |
//! | `link`, `members` | a peer in the caller's hands, its connections and streams; who is there |
//! | `streams` | opening and accepting streams |
//! | `gossip`, `waiting` | how gossip is configured; messages that wait to be judged |
//! | `buckets`, `upkeep` | whom to be connected to; when to dial, and to look for peers |
//! | `behaviour`, `driver` | libp2p's parts, joined; the task that drives them |
//! | `told`, `shared` | what the caller is told; what its calls and the task share |
//! | `host` | the calls, and the runtime |

mod addresses;
mod allowance;
mod behaviour;
mod buckets;
mod config;
mod driver;
pub(crate) mod frames;
mod gossip;
mod guarded;
mod holding;
mod host;
mod link;
mod members;
mod metrics;
mod muxer;
mod nearby;
mod outbox;
mod party;
#[cfg(feature = "quic")]
mod quic;
mod rename;
mod scope;
mod shared;
mod streams;
mod told;
mod transport;
mod upkeep;
mod waiting;

pub use allowance::CHATTER;
pub use config::{Config, GossipConfig, LARGEST_MESSAGE, address, peer_id};
pub use host::Host;
pub use metrics::HostCounts;
pub use told::{Message, Notice, PeerInfo};
pub use waiting::Answer;
