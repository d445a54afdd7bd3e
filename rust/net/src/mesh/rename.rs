//! A behaviour whose protocols have other names on the wire.
//!
//! canvas-js's hosts speak identify and ping under names that begin with `/canvas/`; libp2p's behaviours have their
//! names built in. All that a wrapped behaviour negotiates passes here and is renamed, and nothing else changes.

use std::task::{Context, Poll};

use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::UpgradeInfo;
use libp2p::core::{Endpoint, InboundUpgrade, OutboundUpgrade};
use libp2p::swarm::handler::{
    ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound, InboundUpgradeSend,
    ListenUpgradeError, OutboundUpgradeSend, UpgradeInfoSend,
};
use libp2p::swarm::{
    ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour, Stream,
    SubstreamProtocol, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

/// A behaviour, a handler or an upgrade, and how its protocols are named on the wire.
#[derive(Clone, Debug)]
pub struct Renamed<T> {
    inner: T,
    name: fn(&str) -> String,
}

impl<T> Renamed<T> {
    /// Name what `inner` calls `/ipfs/...` `/canvas/...`.
    pub fn to_canvas(inner: T) -> Self {
        Self { inner, name: |name| name.replacen("/ipfs/", "/canvas/", 1) }
    }
}

/// A protocol's name on the wire, and what the wrapped upgrade knows it by.
#[derive(Clone, Debug)]
pub struct Name<I> {
    inner: I,
    name: String,
}

impl<I> AsRef<str> for Name<I> {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl<U: UpgradeInfoSend> UpgradeInfo for Renamed<U> {
    type Info = Name<U::Info>;
    type InfoIter = std::vec::IntoIter<Self::Info>;

    fn protocol_info(&self) -> Self::InfoIter {
        let renamed = |inner: U::Info| Name { name: (self.name)(inner.as_ref()), inner };
        self.inner.protocol_info().map(renamed).collect::<Vec<_>>().into_iter()
    }
}

impl<U: InboundUpgradeSend> InboundUpgrade<Stream> for Renamed<U> {
    type Output = U::Output;
    type Error = U::Error;
    type Future = U::Future;

    fn upgrade_inbound(self, stream: Stream, info: Self::Info) -> Self::Future {
        self.inner.upgrade_inbound(stream, info.inner)
    }
}

impl<U: OutboundUpgradeSend> OutboundUpgrade<Stream> for Renamed<U> {
    type Output = U::Output;
    type Error = U::Error;
    type Future = U::Future;

    fn upgrade_outbound(self, stream: Stream, info: Self::Info) -> Self::Future {
        self.inner.upgrade_outbound(stream, info.inner)
    }
}

impl<H: ConnectionHandler> ConnectionHandler for Renamed<H> {
    type FromBehaviour = H::FromBehaviour;
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = Renamed<H::InboundProtocol>;
    type OutboundProtocol = Renamed<H::OutboundProtocol>;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol, Self::InboundOpenInfo> {
        let name = self.name;
        self.inner.listen_protocol().map_upgrade(|inner| Renamed { inner, name })
    }

    fn connection_keep_alive(&self) -> bool {
        self.inner.connection_keep_alive()
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Self::OutboundOpenInfo, Self::ToBehaviour>> {
        let name = self.name;
        self.inner.poll(context).map(|event| event.map_protocol(|inner| Renamed { inner, name }))
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::ToBehaviour>> {
        self.inner.poll_close(context)
    }

    fn on_behaviour_event(&mut self, event: Self::FromBehaviour) {
        self.inner.on_behaviour_event(event);
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<
            Self::InboundProtocol,
            Self::OutboundProtocol,
            Self::InboundOpenInfo,
            Self::OutboundOpenInfo,
        >,
    ) {
        use ConnectionEvent as Event;
        self.inner.on_connection_event(match event {
            Event::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol, info }) => {
                Event::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol, info })
            }
            Event::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, info }) => {
                Event::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol, info })
            }
            Event::DialUpgradeError(DialUpgradeError { info, error }) => {
                Event::DialUpgradeError(DialUpgradeError { info, error })
            }
            Event::ListenUpgradeError(ListenUpgradeError { info, error }) => {
                Event::ListenUpgradeError(ListenUpgradeError { info, error })
            }
            Event::AddressChange(change) => Event::AddressChange(change),
            Event::LocalProtocolsChange(change) => Event::LocalProtocolsChange(change),
            Event::RemoteProtocolsChange(change) => Event::RemoteProtocolsChange(change),
            // Of a later libp2p: not of a protocol, or it would have to be renamed.
            _ => return,
        });
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for Renamed<B> {
    type ConnectionHandler = Renamed<B::ConnectionHandler>;
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
        let inner = self.inner.handle_established_inbound_connection(connection, peer, local, remote)?;
        Ok(Renamed { inner, name: self.name })
    }

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        self.inner.handle_pending_outbound_connection(connection, peer, addresses, role)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        let inner = self.inner.handle_established_outbound_connection(connection, peer, address, role, port)?;
        Ok(Renamed { inner, name: self.name })
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
