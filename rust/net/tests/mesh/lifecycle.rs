//! Starting and stopping.

use std::net::TcpListener;
use std::time::Duration;

use gossiplog_net::{Config, Error, GossipConfig, Host, Notice};

use crate::support::{Peer, config, pair};

#[test]
fn starts_and_stops_many_times() {
    for _ in 0..20 {
        let (first, mut second) = pair(config(), config());
        let connection = second.connection(&first);
        first.host.stop().unwrap();
        second.closed(connection);
        second.host.stop().unwrap();
        second.host.stop().unwrap();
        for result in [
            first.host.poll().map(|_| ()),
            first.host.publish(Vec::new()).map(|_| ()),
            second.host.fileno().map(|_| ()),
        ] {
            assert!(matches!(result, Err(Error::Stopped(_))), "{result:?}");
        }
    }
}

#[test]
fn the_port_is_free_again_after_stopping() {
    let (peer, address) = Peer::listening(config());
    let address = address.split("/p2p/").next().unwrap().to_owned();
    peer.host.stop().unwrap();
    let (_again, listening) = Peer::listening(Config { listen: vec![address.clone()], ..config() });
    assert!(listening.starts_with(&address));
}

#[test]
fn a_host_is_its_identity() {
    let same = config();
    let (first, again) = (Peer::start(same.clone()), Peer::start(same));
    assert_eq!(first.host.peer(), again.host.peer());
    assert!(first.host.peer().starts_with("12D3Koo"));
    assert_ne!(Peer::start(config()).host.peer(), first.host.peer());
}

#[test]
fn what_cannot_be_used_is_refused_before_anything_starts() {
    let cases = [
        Config { topic: String::new(), ..config() },
        Config { topic: "t".repeat(1000), ..config() },
        Config { protocols: vec!["no slash".to_owned()], ..config() },
        Config { listen: vec!["localhost:80".to_owned()], ..config() },
        Config { bootstrap: vec!["/ip4/127.0.0.1".to_owned()], ..config() },
        Config { announce: vec!["/unix/socket".to_owned()], ..config() },
        Config {
            gossip: GossipConfig { heartbeat_interval: Duration::from_secs(3600), ..GossipConfig::default() },
            ..config()
        },
    ];
    for case in cases {
        assert!(matches!(Host::start(case), Err(Error::Invalid(_))));
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", taken.local_addr().unwrap().port());
    let error = Host::start(Config { listen: vec![address.clone()], ..config() }).unwrap_err();
    assert!(matches!(&error, Error::System { reason, .. } if reason.contains(&address)), "{error:?}");
}

fn has_ipv6() -> bool {
    TcpListener::bind("[::1]:0").is_ok()
}

#[test]
fn a_port_of_one_family_is_free_in_the_other() {
    let (_first, address) = Peer::listening(Config { listen: vec!["/ip4/0.0.0.0/tcp/0".to_owned()], ..config() });
    let port = address.split('/').nth(4).unwrap();
    let other = Host::start(Config { listen: vec![format!("/ip6/::/tcp/{port}")], ..config() });
    assert_eq!(other.is_ok(), has_ipv6(), "{other:?}");
}

#[test]
fn two_hosts_do_not_share_a_port() {
    for host in ["/ip4/127.0.0.1", "/ip4/0.0.0.0", "/ip6/::1", "/ip6/::"] {
        let on = |port: &str| Config { listen: vec![format!("{host}/tcp/{port}/ws")], ..config() };
        if !has_ipv6() && host.starts_with("/ip6") {
            assert!(matches!(Host::start(on("0")), Err(Error::System { .. })));
            continue;
        }
        let (_first, address) = Peer::listening(on("0"));
        let port = address.split('/').nth(4).unwrap();
        let error = Host::start(on(port)).unwrap_err();
        let said = format!("cannot listen on {host}/tcp/{port}/ws: Address already in use");
        assert!(matches!(&error, Error::System { reason, .. } if reason.contains(&said)), "{error:?}");
    }
}

#[test]
fn new_addresses_are_reported() {
    let both = vec!["/ip4/127.0.0.1/tcp/0".to_owned(), "/ip4/127.0.0.1/tcp/0/ws".to_owned()];
    let mut peer = Peer::start(Config { listen: both, ..config() });
    peer.until("it listens on both", |peer| (peer.host.addresses().unwrap().len() == 2).then_some(()));
    let told = |peer: &mut Peer| {
        let listening = peer.notices.iter().filter_map(|notice| match notice {
            Notice::Host { listening, .. } => Some(listening.clone()),
            _ => None,
        });
        let mut listening: Vec<_> = listening.flatten().collect();
        listening.sort();
        (listening.len() == 2).then_some(listening)
    };
    let mut told = peer.until("both are told", told);
    let own = format!("/p2p/{}", peer.host.peer());
    assert!(told.iter().all(|address| address.ends_with(&own)), "{told:?}");
    let mut addresses = peer.host.addresses().unwrap();
    addresses.sort();
    told.sort();
    assert_eq!(told, addresses);
}
