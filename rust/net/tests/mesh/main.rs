//! Hosts on this machine's loopback: real sockets, real gossip, real Kademlia.
//!
//! Nothing sleeps for luck: tests wait for what is to happen, with deadlines that only a hanging host misses.

#![allow(clippy::panic, clippy::unwrap_used)]

mod flood;
mod gossip;
mod hostile;
mod lies;
mod lifecycle;
mod peers;
#[cfg(feature = "quic")]
mod quic;
mod streams;
mod support;
mod wire;
