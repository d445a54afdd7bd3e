//! From where an address can be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;

/// Return the address of version 4 that one of version 6 leads to, for those that are made of one.
pub fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let ip4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // RFC 4291: mapped, and compatible; SIIT's (RFC 2765); NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // 6to4 (RFC 3056).
        | [0x2002, high, low, ..]
        // ISATAP (RFC 5214).
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => ip4(high, low),
        // Teredo (RFC 4380) has it inverted.
        [0x2001, 0, _, _, _, _, high, low] => ip4(!high, !low),
        _ => None,
    }
}

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
    /// Return the scope of an address.
    pub fn of(address: &Multiaddr) -> Self {
        match address.iter().next() {
            Some(Protocol::Ip4(ip)) => Self::of_ip4(ip),
            Some(Protocol::Ip6(ip)) => Self::of_ip6(ip),
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
        let dial_filter = |bits: u32| Self::Private(Ipv6Addr::from_bits(ip.to_bits() >> bits << bits).into());
        match ip.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Machine,
            // RFC 8215: what a network's own translators lead to. RFC 4193, and RFC 3879 of before.
            [0x64, 0xff9b, 1, ..] | [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => dial_filter(80),
            // RFC 6666: nothing answers.
            [0, 0, 0, 0, 0, 0, 0, 0] | [0x100, 0, 0, 0, ..] | [0xff00..=0xffff, ..] => Self::Nowhere,
            [0xfe80..=0xfebf, ..] => Self::Link,
            _ => embedded(ip).map_or(Self::Global, Self::of_ip4),
        }
    }

    /// Return the scope of a name, which is not resolved: what special names mean (RFC 6761, RFC 6762, RFC 8375), and
    /// those without a dot.
    fn of_name(name: &str) -> Self {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        match name.rsplit('.').next() {
            Some("localhost") => Self::Machine,
            Some("local" | "internal") => Self::Name,
            _ if name.contains('.') && !name.ends_with(".home.arpa") => Self::Global,
            _ => Self::Name,
        }
    }

    /// Return whether it is limited to a machine or a network.
    pub fn is_near(self) -> bool {
        !matches!(self, Self::Global | Self::Nowhere)
    }

    /// Return whether a peer at an address of this scope may give others one of `scope`.
    pub fn gives(self, scope: Self) -> bool {
        match scope {
            Self::Global => true,
            Self::Nowhere => false,
            Self::Name => self.is_near(),
            // A peer on this machine knows what is near.
            _ => self == scope || self == Self::Machine,
        }
    }
}

#[cfg(test)]
mod tests {
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
            ("/ip6/2a00:1450:4001:80b::200e/tcp/1", Scope::Global),
            ("/ip6/::ffff:10.1.2.3/tcp/1", private("10.1.0.0")),
            ("/ip6/::ffff:203.0.113.7/tcp/1", Scope::Global),
            ("/ip6/::ffff:0:192.168.7.9/tcp/1", private("192.168.0.0")),
            ("/ip6/::10.1.2.3/tcp/1", private("10.1.0.0")),
            ("/ip6/::2/tcp/1", Scope::Nowhere),
            ("/ip6/2002:7f00:1::1/tcp/1", Scope::Machine),
            ("/ip6/2002:a01:203:7:8::9/tcp/1", private("10.1.0.0")),
            ("/ip6/2002:cb00:7107::1/tcp/1", Scope::Global),
            ("/ip6/64:ff9b::192.168.7.9/tcp/1", private("192.168.0.0")),
            ("/ip6/64:ff9b::169.254.169.254/tcp/80", Scope::Link),
            ("/ip6/64:ff9b::203.0.113.7/tcp/1", Scope::Global),
            ("/ip6/64:ff9b:1:fffe::10.1.2.3/tcp/1", private("64:ff9b:1::")),
            // 10.1.2.3, inverted.
            ("/ip6/2001:0:4136:e378:8000:63bf:f5fe:fdfc/tcp/1", private("10.1.0.0")),
            ("/ip6/2001:db8:1:2:0:5efe:10.1.2.3/tcp/1", private("10.1.0.0")),
            ("/ip6/2001:db8:1:2:200:5efe:127.0.0.1/tcp/1", Scope::Machine),
            ("/ip6/fec0:1:2:3::4/tcp/1", private("fec0:1:2::")),
            ("/ip6/100::1/tcp/1", Scope::Nowhere),
            ("/ip6/ff02::1/tcp/1", Scope::Nowhere),
            ("/dns4/example.org/tcp/443/wss", Scope::Global),
        ];
        for (text, expected) in cases {
            assert_eq!(scope(text), expected, "{text}");
        }
    }

    #[test]
    fn peers_give_addresses_from_where_they_are() {
        let (dial_filter, far) = (private("10.1.0.0"), private("10.2.0.0"));
        for giver in [Scope::Global, dial_filter, Scope::Link, Scope::Machine] {
            assert!(giver.gives(Scope::Global));
            assert!(!giver.gives(Scope::Nowhere));
            assert_eq!(giver.gives(Scope::Name), giver != Scope::Global);
            assert_eq!(giver.gives(dial_filter), giver == dial_filter || giver == Scope::Machine);
            assert_eq!(giver.gives(far), giver == Scope::Machine);
            assert_eq!(giver.gives(Scope::Machine), giver == Scope::Machine);
        }
    }
}
