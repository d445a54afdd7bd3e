//! A behaviour that negotiates each of its protocols under two names.
//!
//! canvas-js's hosts speak identify and ping under names that begin with `/canvas/`; libp2p's behaviours have their
//! names built in. All that a wrapped behaviour negotiates passes here and gets a second name, and nothing else changes.
//!
//! libp2p asks every handler for its names whenever a connection has nothing to do, so asking allocates nothing.

use std::array;
use std::iter::{FlatMap, Flatten};
use std::task::{Context, Poll};

use libp2p::Multiaddr;
use libp2p::core::upgrade::UpgradeInfo;
use libp2p::core::{InboundUpgrade, OutboundUpgrade};
use libp2p::swarm::handler::{
    ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound, InboundUpgradeSend,
    ListenUpgradeError, OutboundUpgradeSend, UpgradeInfoSend,
};
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, NetworkBehaviour, Stream, SubstreamProtocol, THandler};

use crate::mesh::adapters::BehaviourAdapter;

/// What peers call a protocol, by what libp2p calls it.
const ALIASES: [(&str, &str); 3] = [
    ("/ipfs/id/1.0.0", "/canvas/id/1.0.0"),
    ("/ipfs/id/push/1.0.0", "/canvas/id/push/1.0.0"),
    ("/ipfs/ping/1.0.0", "/canvas/ping/1.0.0"),
];

/// A handler or an upgrade whose protocols have two names on the wire.
#[derive(Clone, Debug)]
pub struct Aliased<T>(T);

/// A protocol, as the wrapped upgrade knows it, under its own name or the other.
#[derive(Clone, Debug)]
pub struct Name<I> {
    inner: I,
    alias: Option<&'static str>,
}

impl<I: AsRef<str>> AsRef<str> for Name<I> {
    fn as_ref(&self) -> &str {
        self.alias.unwrap_or_else(|| self.inner.as_ref())
    }
}

/// The names of one protocol, in the order in which they are proposed.
type Names<I> = Flatten<array::IntoIter<Option<Name<I>>, 2>>;

fn names<I: AsRef<str> + Clone>(inner: I) -> Names<I> {
    let alias = ALIASES.iter().find(|(name, _)| *name == inner.as_ref()).map(|(_, alias)| *alias);
    let aliased = alias.map(|alias| Name { inner: inner.clone(), alias: Some(alias) });
    [Some(Name { inner, alias: None }), aliased].into_iter().flatten()
}

impl<U: UpgradeInfoSend> UpgradeInfo for Aliased<U> {
    type Info = Name<U::Info>;
    type InfoIter = FlatMap<U::InfoIter, Names<U::Info>, fn(U::Info) -> Names<U::Info>>;

    fn protocol_info(&self) -> Self::InfoIter {
        self.0.protocol_info().flat_map(names)
    }
}

impl<U: InboundUpgradeSend> InboundUpgrade<Stream> for Aliased<U> {
    type Output = U::Output;
    type Error = U::Error;
    type Future = U::Future;

    fn upgrade_inbound(self, stream: Stream, info: Self::Info) -> Self::Future {
        self.0.upgrade_inbound(stream, info.inner)
    }
}

impl<U: OutboundUpgradeSend> OutboundUpgrade<Stream> for Aliased<U> {
    type Output = U::Output;
    type Error = U::Error;
    type Future = U::Future;

    fn upgrade_outbound(self, stream: Stream, info: Self::Info) -> Self::Future {
        self.0.upgrade_outbound(stream, info.inner)
    }
}

impl<H: ConnectionHandler> ConnectionHandler for Aliased<H> {
    type FromBehaviour = H::FromBehaviour;
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = Aliased<H::InboundProtocol>;
    type OutboundProtocol = Aliased<H::OutboundProtocol>;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol, Self::InboundOpenInfo> {
        self.0.listen_protocol().map_upgrade(Aliased)
    }

    fn connection_keep_alive(&self) -> bool {
        self.0.connection_keep_alive()
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Self::OutboundOpenInfo, Self::ToBehaviour>> {
        self.0.poll(context).map(|event| event.map_protocol(Aliased))
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::ToBehaviour>> {
        self.0.poll_close(context)
    }

    fn on_behaviour_event(&mut self, event: Self::FromBehaviour) {
        self.0.on_behaviour_event(event);
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
        self.0.on_connection_event(match event {
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
            // Of a later libp2p: not of a protocol, or it would need a second name.
            _ => return,
        });
    }
}

/// Gives the protocols of a behaviour's handlers the names that canvas-js's hosts have for them, after their own.
#[derive(Clone, Copy, Debug)]
pub struct Aliases;

impl<B: NetworkBehaviour> BehaviourAdapter<B> for Aliases {
    type Handler = Aliased<THandler<B>>;

    fn handler(&mut self, inner: THandler<B>, _: &Multiaddr) -> Self::Handler {
        Aliased(inner)
    }
}
