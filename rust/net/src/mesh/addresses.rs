//! Connections from one address: how many there may be, and which give way while many are being agreed on.
//!
//! Identities cost nothing, addresses do. So neither all places for connections nor all for handshakes go to one
//! address.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use libp2p::Multiaddr;
use libp2p::core::Transport;
use libp2p::core::transport::{DialOpts, PortUse};
use libp2p::multiaddr::Protocol;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::error::lock;
use crate::limits::Counters;
use crate::mesh::adapters::{Dialled, TransportAdapter};
use crate::mesh::metrics::HostMetrics;
use crate::mesh::scope::embedded;
use crate::sync::Mutex;

/// Connections from one address, if nothing else is said.
const USUAL: usize = 32;

/// Inbound connections that are being agreed on.
pub const MOST_PENDING: usize = 128;

/// Return what connections are counted for: an address of version 4, that in one of version 6 if it is made of one, or
/// a network of 64 bits of version 6, which is what one customer has. None: an address without a number.
pub fn source(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(match embedded(ip) {
            Some(ip) => ip.into(),
            None if ip.is_loopback() => ip.into(),
            None => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        }),
        _ => None,
    }
}

/// The connections of each address.
#[derive(Debug)]
pub struct Addresses {
    limit: Option<usize>,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

impl Addresses {
    /// Create it without connections. `limit`: of connections from one address; None for the usual one, and no limit
    /// for loopback.
    pub fn new(limit: Option<usize>) -> Self {
        Self { limit, counts: Mutex::default() }
    }

    /// Return how many an address may have.
    pub fn limit(&self, source: IpAddr) -> usize {
        self.limit.unwrap_or(if source.is_loopback() { usize::MAX } else { USUAL })
    }

    /// Return whether an address has as many connections as it may have.
    pub fn is_full(&self, source: IpAddr) -> bool {
        lock(&self.counts).get(&source).is_some_and(|count| *count >= self.limit(source))
    }

    /// Count one more connection, however many there are.
    pub fn enter(self: &Arc<Self>, source: IpAddr) -> Place {
        *lock(&self.counts).entry(source).or_default() += 1;
        Place { addresses: Arc::clone(self), source }
    }
}

/// A connection, counted for its address until dropped.
#[derive(Debug)]
pub struct Place {
    addresses: Arc<Addresses>,
    source: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.addresses.counts);
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    count: usize,
    /// By address, the oldest first: what has them give way.
    sources: HashMap<Option<IpAddr>, VecDeque<(u64, CancellationToken)>>,
}

impl State {
    fn remove(&mut self, source: Option<IpAddr>, number: u64) {
        let Some(tickets) = self.sources.get_mut(&source) else { return };
        let before = tickets.len();
        tickets.retain(|(known, _)| *known != number);
        self.count -= before - tickets.len();
        if tickets.is_empty() {
            self.sources.remove(&source);
        }
    }

    /// Remove the oldest of the address that has the most, and return it.
    fn evict(&mut self) -> Option<CancellationToken> {
        let (source, tickets) = self.sources.iter().max_by_key(|(_, tickets)| tickets.len())?;
        let (source, (number, evicted)) = (*source, tickets.front().cloned()?);
        self.remove(source, number);
        Some(evicted)
    }
}

/// The inbound connections that are being agreed on.
#[derive(Debug, Default)]
struct Pending(Mutex<State>);

impl Pending {
    /// Add a handshake. At the limit, evict the oldest of the address that has the most.
    fn enter(self: &Arc<Self>, source: Option<IpAddr>) -> Turn {
        let mut state = lock(&self.0);
        let oldest = if state.count >= MOST_PENDING { state.evict() } else { None };
        state.last += 1;
        state.count += 1;
        let (number, evicted) = (state.last, CancellationToken::new());
        state.sources.entry(source).or_default().push_back((number, evicted.clone()));
        drop(state);
        // Unlocked: this wakes its task.
        if let Some(oldest) = oldest {
            oldest.cancel();
        }
        Turn { pending: Arc::clone(self), source, number, evicted: Box::pin(evicted.cancelled_owned()) }
    }
}

/// The place of an inbound connection among those that are being agreed on.
#[derive(Debug)]
struct Turn {
    pending: Arc<Pending>,
    source: Option<IpAddr>,
    number: u64,
    /// Ready once it is to give way.
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.pending.0).remove(self.source, self.number);
    }
}

/// Limits the inbound connections of a transport by their addresses before anything is agreed on, and dials from ports
/// of its own.
#[derive(Debug)]
pub struct Gate {
    addresses: Arc<Addresses>,
    metrics: Arc<HostMetrics>,
    pending: Arc<Pending>,
}

impl Gate {
    /// Create one without connections. `metrics`: count what it refuses.
    pub fn new(addresses: &Arc<Addresses>, metrics: &Arc<HostMetrics>) -> Self {
        Self { addresses: Arc::clone(addresses), metrics: Arc::clone(metrics), pending: Arc::default() }
    }
}

impl<T> TransportAdapter<T> for Gate
where
    T: Transport<Error = io::Error>,
    T::ListenerUpgrade: Unpin,
{
    type Upgrade = Admission<T::ListenerUpgrade>;

    fn dial(&mut self, inner: &mut T, address: Multiaddr, options: DialOpts) -> Dialled<T> {
        // From the port that is listened on, a dial fails where a connection from there to the same port has just
        // ended.
        inner.dial(address, DialOpts { port_use: PortUse::New, ..options })
    }

    fn accept(&mut self, upgrade: T::ListenerUpgrade, remote: &Multiaddr) -> Self::Upgrade {
        let source = source(remote);
        if source.is_some_and(|source| self.addresses.is_full(source)) {
            Counters::add(&self.metrics.refused);
            return Admission(None);
        }
        Admission(Some((upgrade, self.pending.enter(source))))
    }
}

/// An inbound connection that is being agreed on, unless it was not admitted.
pub struct Admission<F>(Option<(F, Turn)>);

impl<T, F: Future<Output = io::Result<T>> + Unpin> Future for Admission<F> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let refused = |reason| Poll::Ready(Err(io::Error::other(reason)));
        let Some((upgrade, turn)) = &mut self.0 else {
            return refused("there are as many connections from the address as there may be");
        };
        if turn.evicted.as_mut().poll(context).is_ready() {
            return refused("others wait, and the address has the most connections that are not agreed on");
        }
        Pin::new(upgrade).poll(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_a_number_or_a_network_of_version_six() {
        let of = |text: &str| source(&text.parse().unwrap());
        assert_eq!(of("/ip4/10.0.0.1/tcp/1/ws"), Some(ip("10.0.0.1")));
        assert_eq!(of("/ip6/2001:db8:1:2:3:4:5:6/tcp/1"), Some(ip("2001:db8:1:2::")));
        assert_eq!(of("/ip6/::ffff:10.0.0.1/tcp/1"), Some(ip("10.0.0.1")));
        assert_eq!(of("/ip6/2002:a00:1:7::8/tcp/1"), Some(ip("10.0.0.1")));
        assert_eq!(of("/ip6/64:ff9b::10.0.0.1/tcp/1"), Some(ip("10.0.0.1")));
        assert_eq!(of("/ip6/::1/tcp/1"), Some(ip("::1")));
        assert_eq!(of("/dns4/example.org/tcp/1"), None);
    }

    #[test]
    fn connections_from_an_address_are_limited_and_loopback_is_not_unless_asked() {
        let (usual, own) = (Arc::new(Addresses::new(None)), Arc::new(Addresses::new(Some(2))));
        let places: Vec<_> = (0..USUAL).map(|_| usual.enter(ip("10.0.0.1"))).collect();
        assert!(usual.is_full(ip("10.0.0.1")) && !usual.is_full(ip("10.0.0.2")));
        let _local: Vec<_> = (0..1000).map(|_| usual.enter(ip("127.0.0.1"))).collect();
        assert!(!usual.is_full(ip("127.0.0.1")));
        let local = [own.enter(ip("127.0.0.1")), own.enter(ip("127.0.0.1"))];
        assert!(own.is_full(ip("127.0.0.1")));
        drop((places, local));
        assert!(!usual.is_full(ip("10.0.0.1")) && !own.is_full(ip("127.0.0.1")));
        assert!(lock(&own.counts).is_empty());
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_way() {
        let pending = Arc::<Pending>::default();
        let evicted = |turn: &mut Turn| (&mut turn.evicted).now_or_never().is_some();
        let mut others: Vec<_> = (0..8).map(|number| pending.enter(Some(ip(&format!("10.0.0.{number}"))))).collect();
        let mut greedy: Vec<_> = (0..1000).map(|_| pending.enter(Some(ip("10.0.1.1")))).collect();
        let mut late = pending.enter(Some(ip("10.0.0.9")));
        assert!(!others.iter_mut().any(evicted) && !evicted(&mut late));
        let left = MOST_PENDING - others.len() - 1;
        assert_eq!(greedy.iter_mut().position(|turn| !evicted(turn)), Some(greedy.len() - left));
        assert_eq!(lock(&pending.0).count, MOST_PENDING);
        drop((others, greedy, late));
        let state = lock(&pending.0);
        assert_eq!((state.count, state.sources.len()), (0, 0));
    }
}
