//! A host of a libp2p network: connections to peers, each with many streams by protocol name, gossip on one topic, and
//! peers found through Kademlia.
//!
//! A [`Host`] speaks as [`crate::Network`] does, and counts and limits alike: connections run over the same watched
//! yamux, and streams are the same slots in the caller's hands.
//!
//! | module | holds |
//! | --- | --- |
//! | `config` | what a host is made of, checked |
//! | `scope`, `dial_filter` | from where an address can be reached; which addresses of strangers are dialled |
//! | `metrics`, `notice` | what a host counts; events and readings for the caller |
//! | `rate_limiter`, `outbox`, `peer_account` | rates; what gossip queues for a peer; a peer's account over all its connections |
//! | `backpressure` | whether messages wait for slow peers |
//! | `adapters` | behaviours and transports that change a little of another one |
//! | `addresses` | how many connections an address may have |
//! | `frames`, `accounted_connection`, `muxer` | what gossip costs and keeps; a connection charged to the account; yamux for libp2p |
//! | `transport`, `quic`, `counted` | the transports; the bytes of a connection |
//! | `peer`, `peer_table` | a peer in the caller's hands, its connections and streams; all of them |
//! | `streams`, `aliases` | the behaviour that opens and accepts streams; behaviours whose protocols have two names |
//! | `gossip`, `validator`, `pending` | how gossip is configured; who decides about messages; those that wait for that |
//! | `buckets`, `dialer` | which peers to be connected to; when to dial, and to discover peers |
//! | `behaviour`, `shared`, `driver` | libp2p's behaviours, combined; what calls and the task share; the task |
//! | `validation` | the thread that asks a validator |
//! | `host` | the calls, and the runtime |

mod accounted_connection;
mod adapters;
mod addresses;
mod aliases;
mod backpressure;
mod behaviour;
mod buckets;
mod config;
mod counted;
mod dial_filter;
mod dialer;
mod driver;
pub(crate) mod frames;
mod gossip;
mod host;
mod metrics;
mod muxer;
mod notice;
mod outbox;
mod peer;
mod peer_account;
mod peer_table;
mod pending;
#[cfg(feature = "quic")]
mod quic;
mod rate_limiter;
mod scope;
mod shared;
mod streams;
mod transport;
mod validation;
mod validator;

pub use config::{Config, GossipConfig, LARGEST_MESSAGE, address, peer_id};
pub use host::Host;
pub use metrics::HostCounts;
pub use notice::{Message, Notice, PeerInfo};
pub use peer::PeerStatus;
pub use rate_limiter::CONTROL_BYTES;
pub use validator::{Answer, Publication, Validator};
