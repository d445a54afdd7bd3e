//! How bytes reach peers: TCP and WebSockets, encrypted with noise, and yamux over them; with the feature `quic`, QUIC.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use libp2p::core::Transport;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::core::upgrade::Version;
use libp2p::dns::tokio::Transport as Dns;
use libp2p::dns::{ResolverConfig, ResolverOpts};
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, StreamProtocol, noise, tcp, websocket};
use socket2::{Domain, Socket, Type};

use crate::error::Error;
use crate::limits::Counters;
use crate::mesh::adapters::AdaptedTransport;
use crate::mesh::config::Checked;
use crate::mesh::counted::Counted;
use crate::mesh::dial_filter::{DialFilter, NameFilter, ScopeFilter};
use crate::mesh::muxer::Upgrade;
use crate::mesh::peer_account::PeerAccounts;

/// Bytes of a WebSocket's message, which is kept whole: noise's have 64 KiB, and peers may send several at once.
const LARGEST_FRAME: usize = 1 << 20;

/// Fail if another program listens at an address. libp2p's listeners share a port with any other of their kind, and
/// then each gets some of the connections. (Those of QUIC do not.)
pub fn is_free(address: &Multiaddr) -> io::Result<()> {
    let mut parts = address.iter();
    let host = match parts.next() {
        Some(Protocol::Ip4(host)) => IpAddr::from(host),
        Some(Protocol::Ip6(host)) => IpAddr::from(host),
        _ => return Ok(()),
    };
    let Some(Protocol::Tcp(port)) = parts.next() else { return Ok(()) };
    let address = SocketAddr::new(host, port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // As libp2p does: the same port of IPv4 is another.
        socket.set_only_v6(true)?;
    }
    // Or connections that have just ended would count. Windows would share the port over it.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

/// Return the transports of a host. `dial_filter`: what names that strangers give may lead to.
/// `config.limits.negotiation` is what a connection has to be agreed on.
pub fn transport(
    config: &Checked,
    accounts: &Arc<PeerAccounts>,
    counters: &Arc<Counters>,
    dial_filter: &Arc<DialFilter>,
) -> Result<Boxed<(PeerId, StreamMuxerBox)>, Error> {
    let mut sockets = websocket::Config::new(counted(dial_filter, counters));
    sockets.set_max_data_size(LARGEST_FRAME);
    let failure = |error| Error::system("the host's key cannot be used", error);
    let noise = noise::Config::new(&config.key).map_err(failure)?;
    let protocols: Arc<[StreamProtocol]> = config.protocols.clone().into();
    let upgrade = {
        let (accounts, protocols) = (Arc::clone(accounts), Arc::clone(&protocols));
        let (limits, counters) = (config.limits.clone(), Arc::clone(counters));
        move |peer: &PeerId, _: &_| Upgrade::new(accounts.enter(*peer), &protocols, &limits, &counters)
    };
    let transport = sockets
        .or_transport(counted(dial_filter, counters))
        .upgrade(Version::V1)
        .authenticate(noise)
        .multiplex_ext(upgrade)
        .timeout(config.limits.negotiation)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    // QUIC first: the others take any address, and fail on it later.
    #[cfg(feature = "quic")]
    let transport = crate::mesh::quic::transport(config, accounts, &protocols)
        .or_transport(transport)
        .map(|reached, _| reached.into_inner());
    Ok(transport.map_err(io::Error::other).boxed())
}

type Tcp = tcp::tokio::Transport;
type Strange = Dns<AdaptedTransport<Tcp, ScopeFilter>>;

/// Create a TCP transport that resolves names, and counts bytes.
fn counted(
    dial_filter: &Arc<DialFilter>,
    counters: &Arc<Counters>,
) -> impl Transport<Output = Counted<tcp::tokio::TcpStream>, Error: Send + Sync, Dial: Send, ListenerUpgrade: Send>
+ Send
+ Unpin
+ 'static {
    let counters = Arc::clone(counters);
    resolving(dial_filter).map(move |pipe, _| Counted::new(pipe, Arc::clone(&counters)))
}

/// Create a TCP transport that resolves names.
fn resolving(dial_filter: &Arc<DialFilter>) -> AdaptedTransport<Dns<Tcp>, NameFilter<Strange>> {
    let tcp = || Tcp::new(tcp::Config::default());
    let strange = dns(|| AdaptedTransport::new(tcp(), ScopeFilter(Arc::clone(dial_filter))));
    AdaptedTransport::new(dns(tcp), NameFilter { strange, filter: Arc::clone(dial_filter) })
}

/// Resolve names. A host without a list of resolvers asks nobody, and reaches addresses all the same.
fn dns<T>(inner: impl Fn() -> T) -> Dns<T> {
    let none = |_| Dns::custom(inner(), ResolverConfig::default(), ResolverOpts::default());
    Dns::system(inner()).unwrap_or_else(none)
}
