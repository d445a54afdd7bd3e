//! What differs over QUIC: streams are its own, and so is the end of a connection.

use gossiplog_net::{Answer, Cause, Config, Error, StreamTable};

use crate::support::{Peer, bytes, config, pair};

fn listening() -> Config {
    Config { listen: vec!["/ip4/127.0.0.1/udp/0/quic-v1".to_owned()], ..config() }
}

#[test]
fn gossip_travels_over_quic() {
    let (mut first, mut second) = pair(listening(), listening());
    first.meshed(1);
    second.meshed(1);
    let data = bytes(1_000_000);
    assert_eq!(first.host.publish(data.clone()), Ok(true));
    assert!(second.message(Answer::Accept).data == data);
    assert!(second.host.peers().unwrap()[0].address.ends_with("/quic-v1"));
}

#[test]
fn a_released_connection_ends_for_both() {
    let (mut first, mut second) = pair(listening(), listening());
    let (there, here) = (second.connection(&first), first.connection(&second));
    second.host.release(there).unwrap();
    assert_eq!(first.closed(here).cause, Cause::Transport);
    assert!(first.host.peers().unwrap().is_empty());
}

#[test]
fn two_hosts_do_not_share_a_port() {
    let (_first, address) = Peer::listening(listening());
    let address = address.split("/p2p/").next().unwrap().to_owned();
    let error = gossiplog_net::Host::start(Config { listen: vec![address.clone()], ..config() }).unwrap_err();
    assert!(matches!(&error, Error::System { reason, .. } if reason.contains(&address)), "{error:?}");
}
