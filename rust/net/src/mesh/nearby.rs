//! Addresses that strangers give are dialled if anybody could reach them. Those of this machine, of its local network and
//! of a private one are dialled once a peer was connected from there: or a stranger's answer would have a host talk to
//! whatever listens behind its owner's firewall.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

/// Private networks that peers were connected from which are remembered.
const MOST_NEAR: usize = 256;

/// From where an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// From everywhere.
    Global,
    /// From a private network: 16 bits of an address of version 4, 48 of version 6.
    Private(IpAddr),
    /// From one link.
    Link,
    /// From a local network, by a name that means something there alone.
    Name,
    /// From its machine.
    Machine,
    /// From nowhere.
    Nowhere,
}

impl Scope {
    /// The scope of an address.
    pub fn of(address: &Multiaddr) -> Self {
        match address.iter().next() {
            Some(Protocol::Ip4(ip)) => Self::of_ip4(ip),
            Some(Protocol::Ip6(ip)) => ip.to_ipv4_mapped().map_or_else(|| Self::of_ip6(ip), Self::of_ip4),
            Some(Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name)) => Self::of_name(&name),
            _ => Self::Nowhere,
        }
    }

    fn of_ip4(ip: Ipv4Addr) -> Self {
        let [first, second, ..] = ip.octets();
        match first {
            127 => Self::Machine,
            169 if second == 254 => Self::Link,
            // RFC 6598: between a provider and its customers.
            100 if second & 0xc0 == 64 => Self::Private(Ipv4Addr::new(first, second, 0, 0).into()),
            _ if ip.is_private() => Self::Private(Ipv4Addr::new(first, second, 0, 0).into()),
            0 | 224.. => Self::Nowhere,
            _ => Self::Global,
        }
    }

    fn of_ip6(ip: Ipv6Addr) -> Self {
        match ip {
            Ipv6Addr::LOCALHOST => Self::Machine,
            Ipv6Addr::UNSPECIFIED => Self::Nowhere,
            _ if ip.is_multicast() => Self::Nowhere,
            _ if ip.is_unicast_link_local() => Self::Link,
            _ if ip.is_unique_local() => Self::Private(Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80).into()),
            _ => Self::Global,
        }
    }

    /// Of a name, which nobody has looked up: what special names mean (RFC 6761, RFC 6762, RFC 8375), and those without a
    /// dot.
    fn of_name(name: &str) -> Self {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        match name.rsplit('.').next() {
            Some("localhost") => Self::Machine,
            Some("local" | "internal") => Self::Name,
            _ if name.contains('.') && !name.ends_with(".home.arpa") => Self::Global,
            _ => Self::Name,
        }
    }

    /// Whether only some can reach what has it.
    fn is_near(self) -> bool {
        !matches!(self, Self::Global | Self::Nowhere)
    }

    /// Whether a peer at an address of this scope may give others one of `scope`.
    pub fn gives(self, scope: Self) -> bool {
        match scope {
            Self::Global => true,
            Self::Nowhere => false,
            Self::Name => self.is_near(),
            // Whoever is on this machine knows what is near.
            _ => self == scope || self == Self::Machine,
        }
    }
}

/// A behaviour whose addresses come from strangers.
pub struct Nearby<B> {
    /// The behaviour.
    pub inner: B,
    near: HashSet<Scope>,
}

impl<B> Nearby<B> {
    /// Wrap a behaviour. Only global addresses are dialled until a peer connects from nearby.
    pub fn new(inner: B) -> Self {
        Self { inner, near: HashSet::new() }
    }

    fn met(&mut self, address: &Multiaddr) {
        let scope = Scope::of(address);
        if scope.is_near() && self.near.len() < MOST_NEAR {
            self.near.insert(scope);
        }
    }

    fn is_dialled(&self, address: &Multiaddr) -> bool {
        match Scope::of(address) {
            Scope::Global => true,
            Scope::Nowhere => false,
            Scope::Name => !self.near.is_empty(),
            scope => self.near.contains(&scope),
        }
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for Nearby<B> {
    type ConnectionHandler = B::ConnectionHandler;
    type ToSwarm = B::ToSwarm;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.inner.handle_pending_inbound_connection(connection, local, remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.met(remote);
        self.inner.handle_established_inbound_connection(connection, peer, local, remote)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let mut found = self.inner.handle_pending_outbound_connection(connection, peer, addresses, role)?;
        found.retain(|address| self.is_dialled(address));
        Ok(found)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.met(address);
        self.inner.handle_established_outbound_connection(connection, peer, address, role, port)
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        self.inner.on_connection_handler_event(peer, connection, event);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.inner.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use libp2p::StreamProtocol;
    use libp2p::kad::store::MemoryStore;
    use libp2p::kad::{Behaviour, Config};

    use super::*;

    fn address(text: &str) -> Multiaddr {
        text.parse().unwrap()
    }

    fn scope(text: &str) -> Scope {
        Scope::of(&address(text))
    }

    fn private(text: &str) -> Scope {
        Scope::Private(text.parse().unwrap())
    }

    #[test]
    fn addresses_can_be_reached_from_somewhere() {
        let cases = [
            ("/ip4/127.0.0.1/tcp/1", Scope::Machine),
            ("/ip4/127.8.0.1/tcp/1", Scope::Machine),
            ("/ip6/::1/tcp/1", Scope::Machine),
            ("/ip6/::ffff:127.0.0.1/tcp/1", Scope::Machine),
            ("/dns4/localhost/tcp/1", Scope::Machine),
            ("/dns4/LOCALHOST./tcp/1", Scope::Machine),
            ("/dns/a.localhost/tcp/1", Scope::Machine),
            ("/ip4/10.1.2.3/tcp/1", private("10.1.0.0")),
            ("/ip4/192.168.7.9/tcp/1", private("192.168.0.0")),
            ("/ip4/172.31.0.1/tcp/1", private("172.31.0.0")),
            ("/ip4/172.32.0.1/tcp/1", Scope::Global),
            ("/ip4/100.64.0.1/tcp/1", private("100.64.0.0")),
            ("/ip4/100.128.0.1/tcp/1", Scope::Global),
            ("/ip6/fd00:1:2:3::4/tcp/1", private("fd00:1:2::")),
            ("/ip4/169.254.169.254/tcp/80", Scope::Link),
            ("/ip6/fe80::1/tcp/1", Scope::Link),
            ("/dns4/printer.local/tcp/1", Scope::Name),
            ("/ip4/0.0.0.0/tcp/1", Scope::Nowhere),
            ("/ip4/255.255.255.255/tcp/1", Scope::Nowhere),
            ("/ip4/224.0.0.1/tcp/1", Scope::Nowhere),
            ("/ip6/::/tcp/1", Scope::Nowhere),
            ("/dns4/router/tcp/1", Scope::Name),
            ("/ip4/203.0.113.7/tcp/1", Scope::Global),
            ("/ip6/2001:db8::1/tcp/1", Scope::Global),
            ("/dns4/example.org/tcp/443/wss", Scope::Global),
        ];
        for (text, expected) in cases {
            assert_eq!(scope(text), expected, "{text}");
        }
    }

    #[test]
    fn peers_give_addresses_from_where_they_are() {
        let (near, far) = (private("10.1.0.0"), private("10.2.0.0"));
        for giver in [Scope::Global, near, Scope::Link, Scope::Machine] {
            assert!(giver.gives(Scope::Global));
            assert!(!giver.gives(Scope::Nowhere));
            assert_eq!(giver.gives(Scope::Name), giver != Scope::Global);
            assert_eq!(giver.gives(near), giver == near || giver == Scope::Machine);
            assert_eq!(giver.gives(far), giver == Scope::Machine);
            assert_eq!(giver.gives(Scope::Machine), giver == Scope::Machine);
        }
    }

    #[test]
    fn what_is_near_is_dialled_once_somebody_was_connected_from_there() {
        let (me, peer) = (PeerId::random(), PeerId::random());
        let config = Config::new(StreamProtocol::new("/kad"));
        let mut nearby = Nearby::new(Behaviour::with_config(me, MemoryStore::new(me), config));
        let known =
            ["/ip4/127.0.0.1/tcp/1", "/ip4/10.1.2.3/tcp/2", "/ip4/169.254.169.254/tcp/80", "/ip4/203.0.113.7/tcp/3"];
        for text in known {
            nearby.inner.add_address(&peer, address(text));
        }
        let connection = ConnectionId::new_unchecked(1);
        let dialled = |nearby: &mut Nearby<_>| {
            let dialled = nearby.handle_pending_outbound_connection(connection, Some(peer), &[], Endpoint::Dialer);
            let port = |address: &Multiaddr| match address.iter().nth(1) {
                Some(Protocol::Tcp(port)) => port,
                _ => 0,
            };
            dialled.unwrap().iter().map(port).collect::<Vec<_>>()
        };
        assert_eq!(dialled(&mut nearby), [3]);
        for (remote, expected) in [
            ("/ip4/198.51.100.1/tcp/9", vec![3]),
            ("/ip4/10.2.0.1/tcp/9", vec![3]),
            ("/ip4/10.1.9.9/tcp/9", vec![2, 3]),
            ("/ip6/::1/tcp/9", vec![1, 2, 3]),
        ] {
            let (local, remote) = (address("/ip4/10.0.0.1/tcp/1"), address(remote));
            drop(nearby.handle_established_inbound_connection(connection, PeerId::random(), &local, &remote).unwrap());
            assert_eq!(dialled(&mut nearby), expected, "{remote}");
        }
    }
}
