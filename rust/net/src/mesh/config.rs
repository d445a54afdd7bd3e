//! What a host is made of, checked before anything is started.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, StreamProtocol};

use crate::error::Error;
use crate::limits::Limits;
use crate::mesh::validator::Validator;
use crate::negotiation::check_protocol;

/// Bytes of the largest frame that gossip reads or writes: canvas-js's limit.
pub const LARGEST_FRAME: usize = 4 << 20;

/// Bytes of the largest message that is published: a frame has room for it and what goes with it.
pub const LARGEST_MESSAGE: usize = LARGEST_FRAME - (64 << 10);

/// The longest topic, in bytes, so that names of protocols hold it.
const LONGEST_TOPIC: usize = 512;

/// Heartbeats for which the size of a message is known after gossipsub has forgotten it.
const SPARE_HEARTBEATS: u32 = 3;

/// Heartbeats for which messages can be kept.
const LONGEST_HISTORY: usize = 120;

/// Addresses in each list.
const MOST_ADDRESSES: usize = 256;

/// The parameters of gossipsub (gossipsub-v1.0.md, "Parameters"), with the specification's defaults.
#[derive(Clone, Debug)]
pub struct GossipConfig {
    /// What passes between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Peers that the mesh is to have.
    pub d: usize,
    /// Below so many a heartbeat adds some.
    pub d_low: usize,
    /// Above so many a heartbeat removes some.
    pub d_high: usize,
    /// Peers that a heartbeat announces messages to, at least.
    pub d_lazy: usize,
    /// For how long the peers of a topic that this side is not in are kept.
    pub fanout_ttl: Duration,
    /// Heartbeats for which a message can be asked for.
    pub mcache_len: usize,
    /// Heartbeats at which a message is announced.
    pub mcache_gossip: usize,
    /// For how long the id of a message is remembered: at least twice as long as it can be asked for, or it may travel
    /// for ever.
    pub seen_ttl: Duration,
}

impl Default for GossipConfig {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(1),
            d: 6,
            d_low: 4,
            d_high: 12,
            d_lazy: 6,
            fanout_ttl: Duration::from_secs(60),
            mcache_len: 5,
            mcache_gossip: 3,
            seen_ttl: Duration::from_secs(120),
        }
    }
}

impl GossipConfig {
    /// Return for how long the size of a message is known: some heartbeats longer than it can be requested.
    pub fn sizes_ttl(&self) -> Duration {
        self.heartbeat_interval * (self.mcache_len as u32 + SPARE_HEARTBEATS)
    }

    fn check(&self) -> Result<(), Error> {
        let Self { d, d_low, d_high, mcache_len, mcache_gossip, .. } = *self;
        if self.heartbeat_interval < Duration::from_millis(10) || self.heartbeat_interval > Duration::from_secs(60) {
            let shown = self.heartbeat_interval.as_secs_f64();
            return Err(Error::Invalid(format!("the heartbeat is {shown} s; expected 0.01 to 60 s")));
        }
        if !(d_low <= d && d <= d_high && d > 0) {
            let shown = format!("d_low is {d_low}, d {d}, d_high {d_high}");
            return Err(Error::Invalid(format!("{shown}; expected d_low <= d <= d_high and a d above 0")));
        }
        if !(0 < mcache_gossip && mcache_gossip <= mcache_len && mcache_len <= LONGEST_HISTORY) {
            let shown = format!("mcache_gossip is {mcache_gossip}, mcache_len {mcache_len}");
            return Err(Error::Invalid(format!(
                "{shown}; expected 0 < mcache_gossip <= mcache_len <= {LONGEST_HISTORY}"
            )));
        }
        let least = self.heartbeat_interval * (2 * mcache_len as u32);
        if self.seen_ttl < least {
            let (shown, least) = (self.seen_ttl.as_secs_f64(), least.as_secs_f64());
            return Err(Error::Invalid(format!(
                "seen_ttl is {shown} s; expected at least {least} s, two mcache_len of heartbeats"
            )));
        }
        Ok(())
    }
}

/// What a host is made of.
#[derive(Clone)]
pub struct Config {
    /// The seed of the host's Ed25519 key. Secret.
    pub identity: [u8; 32],
    /// Of gossip; Kademlia is `/canvas/kad/1.0.0/<topic>`.
    pub topic: String,
    /// What streams that peers open may speak.
    pub protocols: Vec<String>,
    /// Multiaddrs to listen on.
    pub listen: Vec<String>,
    /// Multiaddrs of peers that know others.
    pub bootstrap: Vec<String>,
    /// Multiaddrs under which others reach this host, beside those that it listens on.
    pub announce: Vec<String>,
    /// Whether to look for peers in the local network.
    pub mdns: bool,
    /// Whether the host spreads messages by gossip. Where not, it publishes and receives none, and the caller may speak
    /// gossip's protocols.
    pub gossips: bool,
    /// The parameters of gossip.
    pub gossip: GossipConfig,
    /// Streams of the caller's that stay open on a connection for as long as it does, and do not show that it is used.
    pub idle_streams: usize,
    /// Decides about messages of gossip without the caller, where it can. None: the caller decides about all.
    pub validator: Option<Arc<dyn Validator>>,
    /// Bytes that a peer may say by gossip at once and that are no message: usually [`crate::CONTROL_BYTES`]. A
    /// sixteenth of it comes back in each second.
    pub control_bytes: usize,
    /// What the host and its peers may use.
    pub limits: Limits,
    /// Connections at a time from one address, or from one network of 64 bits of IPv6; more are refused, but for those
    /// that the caller dials and those to bootstrap peers. None: 32, and any number from a loopback address.
    pub per_address: Option<usize>,
    /// The only peers that connections are kept to, beside those that `bootstrap` names; none for any peer.
    pub allowed: Vec<String>,
}

/// A [`Config`] that was checked.
pub struct Checked {
    pub key: Keypair,
    pub topic: String,
    pub protocols: Vec<StreamProtocol>,
    pub kademlia: StreamProtocol,
    pub listen: Vec<Multiaddr>,
    /// With the peer that is to answer there, if the address names one.
    pub bootstrap: Vec<(Multiaddr, Option<PeerId>)>,
    pub announce: Vec<Multiaddr>,
    pub mdns: bool,
    pub gossips: bool,
    pub gossip: GossipConfig,
    pub idle_streams: usize,
    pub validator: Option<Arc<dyn Validator>>,
    pub control_bytes: usize,
    pub limits: Limits,
    pub per_address: Option<usize>,
    /// None for any peer.
    pub allowed: Option<HashSet<PeerId>>,
}

impl Config {
    /// Check all of it.
    pub fn check(self) -> Result<Checked, Error> {
        let wrong = |error| Error::Invalid(format!("the identity is no seed of an Ed25519 key: {error}"));
        let key = Keypair::ed25519_from_bytes(self.identity).map_err(wrong)?;
        if self.topic.is_empty() || self.topic.len() > LONGEST_TOPIC || self.topic.contains('\n') {
            let reason = format!("the topic has {} bytes; expected 1 to {LONGEST_TOPIC} in one line", self.topic.len());
            return Err(Error::Invalid(reason));
        }
        self.gossip.check()?;
        let named = |address| {
            let peer = peer_of(&address);
            (address, peer)
        };
        let bootstrap: Vec<_> = addresses(&self.bootstrap)?.into_iter().map(named).collect();
        let listed = self.allowed.iter().map(|text| peer_id(text)).collect::<Result<HashSet<_>, _>>()?;
        let allowed = (!listed.is_empty()).then(|| {
            let known = bootstrap.iter().filter_map(|(_, peer)| *peer);
            listed.into_iter().chain(known).collect()
        });
        Ok(Checked {
            kademlia: protocol(format!("/canvas/kad/1.0.0/{}", self.topic))?,
            key,
            topic: self.topic,
            protocols: self.protocols.into_iter().map(protocol).collect::<Result<_, _>>()?,
            listen: addresses(&self.listen)?,
            bootstrap,
            announce: addresses(&self.announce)?,
            mdns: self.mdns,
            gossips: self.gossips,
            gossip: self.gossip,
            idle_streams: self.idle_streams,
            validator: self.validator,
            control_bytes: self.control_bytes,
            limits: self.limits,
            per_address: self.per_address,
            allowed,
        })
    }
}

fn protocol(name: String) -> Result<StreamProtocol, Error> {
    check_protocol(&name)?;
    StreamProtocol::try_from_owned(name).map_err(|error| Error::Invalid(error.to_string()))
}

fn addresses(texts: &[String]) -> Result<Vec<Multiaddr>, Error> {
    if texts.len() > MOST_ADDRESSES {
        return Err(Error::Invalid(format!("there are {} addresses; {MOST_ADDRESSES} at most", texts.len())));
    }
    texts.iter().map(|text| address(text)).collect()
}

/// Read a peer's id.
pub fn peer_id(text: &str) -> Result<PeerId, Error> {
    let shown: String = text.chars().take(100).collect();
    text.parse().map_err(|error| {
        Error::Invalid(format!("{shown:?} is no peer id: {error}; expected one as a server prints it, 12D3Koo..."))
    })
}

/// Read a multiaddr that the transports can reach: an IP address or a name, TCP, and a WebSocket or nothing; or, with
/// the feature `quic`, an IP address and QUIC.
pub fn address(text: &str) -> Result<Multiaddr, Error> {
    let shown: String = text.chars().take(100).collect();
    let example = "/ip4/127.0.0.1/tcp/4001/ws or /dns4/example.org/tcp/4001";
    let invalid = |reason: &dyn std::fmt::Display| {
        Error::Invalid(format!("{shown:?} is no address that a host can use: {reason}; expected one such as {example}"))
    };
    let address: Multiaddr = text.parse().map_err(|error: libp2p::multiaddr::Error| invalid(&error))?;
    if reachable(&address) {
        return Ok(address);
    }
    let quic = address.iter().any(|protocol| protocol == Protocol::QuicV1);
    Err(match (quic, cfg!(feature = "quic")) {
        (true, false) => invalid(&"it is QUIC, and this build has the cargo feature `quic` off"),
        (true, true) => invalid(&"QUIC is an IP address, /udp/PORT and /quic-v1"),
        (false, _) => invalid(&"it is not TCP or a WebSocket"),
    })
}

/// Return whether the transports can reach an address.
pub fn reachable(address: &Multiaddr) -> bool {
    let mut protocols = address.iter();
    let host = protocols.next();
    let ip = matches!(host, Some(Protocol::Ip4(_) | Protocol::Ip6(_)));
    let name = matches!(host, Some(Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_)));
    let port = protocols.next();
    if cfg!(feature = "quic") && matches!(port, Some(Protocol::Udp(_))) {
        let quic = protocols.next() == Some(Protocol::QuicV1);
        return ip && quic && protocols.all(|protocol| matches!(protocol, Protocol::P2p(_)));
    }
    let tcp = matches!(port, Some(Protocol::Tcp(_)));
    let rest = protocols.all(|protocol| {
        matches!(protocol, Protocol::Ws(_) | Protocol::Wss(_) | Protocol::Tls | Protocol::Sni(_) | Protocol::P2p(_))
    });
    (ip || name) && tcp && rest
}

/// Return the peer that an address leads to, if it names one.
pub fn peer_of(address: &Multiaddr) -> Option<PeerId> {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => Some(peer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_tcp_and_websockets() {
        let peer = "12D3KooWQYV9dGMFoRzNStwpXztXaBUjtPqi6aU76ZgUriHhKust";
        for good in [
            "/ip4/127.0.0.1/tcp/0".to_owned(),
            "/ip6/::1/tcp/4001/ws".to_owned(),
            format!("/dns4/example.org/tcp/443/wss/p2p/{peer}"),
            format!("/dns/example.org/tcp/443/tls/ws/p2p/{peer}"),
        ] {
            assert!(address(&good).is_ok(), "{good}");
        }
        for bad in ["", "127.0.0.1:4001", "/ip4/127.0.0.1/udp/4001", "/ip4/1.2.3.4", "/ip4/1.2.3/tcp/1"] {
            assert!(matches!(address(bad), Err(Error::Invalid(_))), "{bad}");
        }
        let relayed = format!("/ip4/127.0.0.1/tcp/1/p2p/{peer}/p2p-circuit");
        assert!(address(&relayed).is_err());
    }

    #[test]
    fn addresses_of_quic_need_the_feature() {
        let on = cfg!(feature = "quic");
        for good in ["/ip4/127.0.0.1/udp/4001/quic-v1", "/ip6/::1/udp/0/quic-v1"] {
            assert_eq!(address(good).is_ok(), on, "{good}");
        }
        for bad in
            ["/ip4/127.0.0.1/tcp/4001/quic-v1", "/dns4/example.org/udp/1/quic-v1", "/ip4/1.2.3.4/udp/1/quic-v1/ws"]
        {
            let error = address(bad).unwrap_err().to_string();
            assert_eq!(error.contains("cargo feature `quic`"), !on, "{error}");
        }
    }

    #[test]
    fn parameters_of_gossip_that_contradict_each_other_are_refused() {
        let usual = GossipConfig::default();
        assert!(usual.check().is_ok());
        assert!(GossipConfig { seen_ttl: Duration::from_secs(10), ..usual.clone() }.check().is_ok());
        for wrong in [
            GossipConfig { d: 3, ..usual.clone() },
            GossipConfig { d: 13, ..usual.clone() },
            GossipConfig { d: 0, d_low: 0, ..usual.clone() },
            GossipConfig { mcache_gossip: 0, ..usual.clone() },
            GossipConfig { mcache_gossip: 6, ..usual.clone() },
            GossipConfig { mcache_len: 121, ..usual.clone() },
            GossipConfig { seen_ttl: Duration::from_millis(9_999), ..usual.clone() },
            GossipConfig { heartbeat_interval: Duration::from_millis(9), ..usual },
        ] {
            assert!(matches!(wrong.check(), Err(Error::Invalid(_))), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_names_its_peer_last() {
        let peer = PeerId::random();
        let address: Multiaddr = format!("/ip4/127.0.0.1/tcp/1/ws/p2p/{peer}").parse().unwrap();
        assert_eq!(peer_of(&address), Some(peer));
        assert_eq!(peer_of(&"/ip4/127.0.0.1/tcp/1".parse().unwrap()), None);
    }
}
