//! Events and readings that a host gives to the caller.

use crate::inbox::{Event, Handle};
use crate::mesh::peer::PeerStatus;

/// What happened since the last [`crate::Host::poll`].
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Of a connection or a stream, as [`crate::Network`] reports it.
    Event(Event),
    /// A peer is connected; comes before the event that says its connection is established.
    Peer {
        /// The peer's handle.
        connection: Handle,
        /// Its identity.
        peer_id: String,
        /// Its end of the first connection.
        address: String,
        /// This side dialled the first connection.
        dialer: bool,
    },
    /// A peer's status with the topic has changed.
    Mesh {
        /// Its identity.
        peer_id: String,
        /// `graft` or `prune`, `subscribe` or `unsubscribe`.
        kind: &'static str,
    },
    /// What concerns no single peer.
    Host {
        /// There are messages to take.
        gossip: bool,
        /// The validator has accepted messages that are to be taken from it.
        accepted: bool,
        /// The validator lacks something that is to be looked up for it.
        asked: bool,
        /// New addresses that the host listens on.
        listening: Vec<String>,
        /// Listeners that failed, as sentences.
        failed: Vec<String>,
        /// Connections that were refused, because there were as many from their address as there may be, or because
        /// their peer is not allowed.
        refused: u64,
        /// Peers that were refused because they are not allowed; of very many, the first.
        denied: Vec<String>,
    },
}

/// A message that came by gossip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Names it in the answer.
    pub ticket: u64,
    /// The handle of the peer that passed it on; 0 if that has disconnected.
    pub connection: Handle,
    /// The peer that passed it on.
    pub peer_id: String,
    /// What it says.
    pub data: Vec<u8>,
}

/// A connected peer.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// Its handle.
    pub connection: Handle,
    /// Its identity.
    pub peer_id: String,
    /// Its end of the first connection.
    pub address: String,
    /// This side dialled the first connection.
    pub dialer: bool,
    /// What it says of itself, and its status with the topic.
    pub status: PeerStatus,
}
