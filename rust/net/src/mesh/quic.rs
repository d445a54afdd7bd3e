//! QUIC, whose streams are its own: what they keep before it is read is bounded by its windows, and not counted.

use std::sync::Arc;

use libp2p::core::Transport;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::quic::{self, tokio::Transport as Quic};
use libp2p::{PeerId, StreamProtocol};

use crate::error::{Cause, Closed};
use crate::limits::INITIAL_WINDOW;
use crate::mesh::accounted_connection::AccountedConnection;
use crate::mesh::config::Checked;
use crate::mesh::muxer::OWN_STREAMS;
use crate::mesh::peer_account::PeerAccounts;

impl From<quic::Error> for Closed {
    fn from(error: quic::Error) -> Self {
        Self::new(Cause::Transport, format!("the connection was lost: {error}"))
    }
}

/// Connections over UDP, encrypted by QUIC. `protocols`: that the caller speaks.
pub fn transport(
    config: &Checked,
    accounts: &Arc<PeerAccounts>,
    protocols: &Arc<[StreamProtocol]>,
) -> impl Transport<
    Output = (PeerId, StreamMuxerBox),
    Error = quic::Error,
    ListenerUpgrade = impl Send + 'static,
    Dial = impl Send + 'static,
> + Send
+ Unpin
+ 'static {
    let (accounts, protocols, limits) = (Arc::clone(accounts), Arc::clone(protocols), &config.limits);
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut quic = quic::Config::new(&config.key);
    quic.handshake_timeout = limits.negotiation;
    quic.max_concurrent_stream_limit = narrow(limits.inbound_streams + OWN_STREAMS);
    quic.max_stream_data = narrow(4 * INITIAL_WINDOW);
    quic.max_connection_data = narrow(limits.window_growth());
    Quic::new(quic).map(move |(peer, muxer), _| {
        (peer, StreamMuxerBox::new(AccountedConnection::new(muxer, accounts.enter(peer), &protocols)))
    })
}
