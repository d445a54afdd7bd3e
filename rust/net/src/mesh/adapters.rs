//! Behaviours and transports that change a little of another one, which gets all the rest.

use std::pin::Pin;
use std::task::{Context, Poll};

use libp2p::core::transport::{DialOpts, ListenerId, PortUse, TransportError, TransportEvent};
use libp2p::core::{Endpoint, Transport};
use libp2p::swarm::{
    ConnectionDenied, ConnectionHandler, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

/// What an [`AdaptedBehaviour`] changes of the behaviour in it.
pub trait BehaviourAdapter<B: NetworkBehaviour>: 'static {
    /// The handler of a connection.
    type Handler: ConnectionHandler<FromBehaviour = THandlerInEvent<B>, ToBehaviour = THandlerOutEvent<B>>;

    /// Return the handler of a connection that was established with `remote`. `inner`: the behaviour's own.
    fn handler(&mut self, inner: THandler<B>, remote: &Multiaddr) -> Self::Handler;

    /// Return the addresses to dial, of those that the behaviour gives for a connection.
    fn select(&mut self, _: ConnectionId, given: Vec<Multiaddr>) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        Ok(given)
    }

    /// Note that the behaviour dials by itself. The addresses to dial are asked for next.
    fn dials(&mut self, _: ConnectionId) {}

    /// Change what the behaviour is about to do; called before each of its polls.
    fn before_poll(&mut self, _: &mut B) {}
}

/// A behaviour of which an adapter changes a little.
pub struct AdaptedBehaviour<B, A> {
    /// The behaviour.
    pub inner: B,
    adapter: A,
}

impl<B, A> AdaptedBehaviour<B, A> {
    /// Wrap a behaviour.
    pub fn new(inner: B, adapter: A) -> Self {
        Self { inner, adapter }
    }
}

impl<B: NetworkBehaviour, A: BehaviourAdapter<B>> NetworkBehaviour for AdaptedBehaviour<B, A> {
    type ConnectionHandler = A::Handler;
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
    ) -> Result<A::Handler, ConnectionDenied> {
        let inner = self.inner.handle_established_inbound_connection(connection, peer, local, remote)?;
        Ok(self.adapter.handler(inner, remote))
    }

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let given = self.inner.handle_pending_outbound_connection(connection, peer, addresses, role)?;
        self.adapter.select(connection, given)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<A::Handler, ConnectionDenied> {
        let inner = self.inner.handle_established_outbound_connection(connection, peer, address, role, port)?;
        Ok(self.adapter.handler(inner, address))
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        self.inner.on_swarm_event(event);
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<B>) {
        self.inner.on_connection_handler_event(peer, connection, event);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<B::ToSwarm, THandlerInEvent<B>>> {
        self.adapter.before_poll(&mut self.inner);
        let event = self.inner.poll(context);
        if let Poll::Ready(ToSwarm::Dial { opts }) = &event {
            self.adapter.dials(opts.connection_id());
        }
        event
    }
}

/// What a transport returns for a dial.
pub type Dialled<T> = Result<<T as Transport>::Dial, TransportError<<T as Transport>::Error>>;

/// What an [`AdaptedTransport`] changes of the transport in it.
pub trait TransportAdapter<T: Transport> {
    /// What an inbound connection becomes before it is agreed on.
    type Upgrade: Future<Output = Result<T::Output, T::Error>>;

    /// Dial, by `inner` or otherwise.
    fn dial(&mut self, inner: &mut T, address: Multiaddr, options: DialOpts) -> Dialled<T>;

    /// Take an inbound connection from `remote`.
    fn accept(&mut self, upgrade: T::ListenerUpgrade, remote: &Multiaddr) -> Self::Upgrade;
}

/// A transport of which an adapter changes a little. It listens where the one in it does.
#[derive(Debug)]
pub struct AdaptedTransport<T, A> {
    inner: T,
    adapter: A,
}

impl<T, A> AdaptedTransport<T, A> {
    /// Wrap a transport.
    pub fn new(inner: T, adapter: A) -> Self {
        Self { inner, adapter }
    }
}

impl<T: Transport + Unpin, A: TransportAdapter<T> + Unpin> Transport for AdaptedTransport<T, A> {
    type Output = T::Output;
    type Error = T::Error;
    type ListenerUpgrade = A::Upgrade;
    type Dial = T::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<T::Error>> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Dialled<T> {
        self.adapter.dial(&mut self.inner, address, options)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TransportEvent<A::Upgrade, T::Error>> {
        let Self { inner, adapter } = &mut *self;
        Pin::new(inner).poll(context).map(|event| {
            let remote = match &event {
                TransportEvent::Incoming { send_back_addr, .. } => send_back_addr.clone(),
                _ => Multiaddr::empty(),
            };
            event.map_upgrade(|upgrade| adapter.accept(upgrade, &remote))
        })
    }
}
