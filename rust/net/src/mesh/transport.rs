//! How bytes reach peers: TCP and WebSockets, encrypted with noise, and yamux over them.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use libp2p::core::Transport as _;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::core::upgrade::Version;
use libp2p::dns::tokio::Transport as Dns;
use libp2p::dns::{ResolverConfig, ResolverOpts};
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, noise, tcp, websocket};

use crate::error::Error;
use crate::limits::{Counters, Limits};
use crate::mesh::muxer::Upgrade;
use crate::mesh::party::Parties;

/// Bytes of a WebSocket's message, which is kept whole: noise's have 64 KiB, and peers may send several at once.
const LARGEST_FRAME: usize = 1 << 20;

/// Fails if somebody else listens at an address, which is not known of `::`. libp2p's listeners share a port with any other of their kind, and then each gets some of
/// the connections.
pub fn is_free(address: &Multiaddr) -> io::Result<()> {
    let mut parts = address.iter();
    let host = match parts.next() {
        Some(Protocol::Ip4(host)) => IpAddr::from(host),
        // For `::` std takes the IPv4 port, too, and libp2p does not.
        Some(Protocol::Ip6(host)) if !host.is_unspecified() => IpAddr::from(host),
        _ => return Ok(()),
    };
    match parts.next() {
        Some(Protocol::Tcp(port)) => TcpListener::bind((host, port)).map(drop),
        _ => Ok(()),
    }
}

/// The transports, for connections by `key`. `limits.negotiation` is what a connection has to be agreed on.
pub fn transport(
    key: &Keypair,
    parties: Arc<Parties>,
    limits: &Limits,
    counters: &Arc<Counters>,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, Error> {
    let mut sockets = websocket::Config::new(resolving());
    sockets.set_max_data_size(LARGEST_FRAME);
    let failure = |error| Error::System(format!("the host's key cannot be used: {error}"));
    let noise = noise::Config::new(key).map_err(failure)?;
    let (owned, counters) = (limits.clone(), Arc::clone(counters));
    let upgrade = move |peer: &PeerId, _: &_| Upgrade::new(parties.enter(*peer), &owned, &counters);
    let transport = sockets
        .or_transport(resolving())
        .upgrade(Version::V1)
        .authenticate(noise)
        .multiplex_ext(upgrade)
        .timeout(limits.negotiation)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)))
        .map_err(io::Error::other);
    Ok(transport.boxed())
}

/// TCP, to names too. A host without a list of resolvers asks nobody, and reaches addresses all the same.
fn resolving() -> Dns<tcp::tokio::Transport> {
    let tcp = || tcp::tokio::Transport::new(tcp::Config::default());
    let none = |_| Dns::custom(tcp(), ResolverConfig::default(), ResolverOpts::default());
    Dns::system(tcp()).unwrap_or_else(none)
}
