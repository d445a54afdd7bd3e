//! Hosts on this machine's loopback: real sockets, real gossip, real Kademlia.
//!
//! Nothing sleeps for luck: tests wait for what is to happen, with deadlines that only a hanging host misses.

#![allow(clippy::panic, clippy::unwrap_used)]

mod gossip;
mod hostile;
mod lifecycle;
mod peers;
mod streams;
mod support;
