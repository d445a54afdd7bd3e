//! Opening and accepting streams, as a part of libp2p: which connections there are is known here first.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::UpgradeInfo;
use libp2p::core::{Endpoint, InboundUpgrade, OutboundUpgrade};
use libp2p::swarm::behaviour::{ConnectionClosed, DialFailure};
use libp2p::swarm::handler::{
    ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound, StreamUpgradeError,
};
use libp2p::swarm::{
    ConnectionDenied, ConnectionError, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, DialError, FromSwarm,
    NetworkBehaviour, NotifyHandler, Stream, StreamProtocol, SubstreamProtocol, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId, TransportError};

use crate::error::{Cause, Closed};
use crate::mesh::peer::{Opening, PeerConnection, Remote};
use crate::mesh::peer_table::PeerTable;

/// Streams by protocol name, of all peers.
pub struct Streams {
    peer_table: Arc<PeerTable>,
    protocols: Arc<[StreamProtocol]>,
    opening: VecDeque<Opening>,
    closing: VecDeque<(PeerId, ConnectionId)>,
    waker: Option<Waker>,
}

impl Streams {
    /// Offer `protocols` on the streams that peers open.
    pub fn new(peer_table: Arc<PeerTable>, protocols: Vec<StreamProtocol>) -> Self {
        let protocols = protocols.into();
        Self { peer_table, protocols, opening: VecDeque::new(), closing: VecDeque::new(), waker: None }
    }

    /// Open a stream on any of its peer's connections.
    pub fn open(&mut self, opening: Opening) {
        self.opening.push_back(opening);
        self.wake();
    }

    /// Close a connection to a peer; what was written goes out first.
    pub fn close(&mut self, peer_id: PeerId, connection: ConnectionId) {
        self.closing.push_back((peer_id, connection));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn handler(&self, connection: ConnectionId, remote: Remote) -> Result<Handler, ConnectionDenied> {
        let peer_connection = self.peer_table.connected(connection, remote).map_err(ConnectionDenied::new)?;
        Ok(Handler { peer_connection, protocols: Arc::clone(&self.protocols), opening: VecDeque::new(), waker: None })
    }
}

impl NetworkBehaviour for Streams {
    type ConnectionHandler = Handler;
    type ToSwarm = Infallible;

    fn handle_pending_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer_id: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        // Those that are only known by their address are checked when they say who they are.
        match peer_id.map_or(Ok(()), |peer_id| self.peer_table.check_allowed(&peer_id)) {
            Ok(()) => Ok(Vec::new()),
            Err(closed) => Err(ConnectionDenied::new(closed)),
        }
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer_id: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handler(connection, Remote { peer_id, address: bare(remote), dialer: false })
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer_id: PeerId,
        address: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.handler(connection, Remote { peer_id, address: bare(address), dialer: true })
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        match event {
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, cause, .. }) => {
                self.peer_table.disconnected(peer_id, connection_id, &verdict(cause));
            }
            FromSwarm::DialFailure(DialFailure { connection_id, error, .. }) => {
                self.peer_table.unreachable(connection_id, explain(error));
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        if let Some((peer_id, connection)) = self.closing.pop_front() {
            let connection = libp2p::swarm::CloseConnection::One(connection);
            return Poll::Ready(ToSwarm::CloseConnection { peer_id, connection });
        }
        if let Some(event) = self.opening.pop_front() {
            let (peer_id, handler) = (event.peer_id, NotifyHandler::One(event.connection));
            return Poll::Ready(ToSwarm::NotifyHandler { peer_id, handler, event });
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Return an address without the peer that it leads to.
pub fn bare(address: &Multiaddr) -> Multiaddr {
    address.iter().filter(|protocol| !matches!(protocol, libp2p::multiaddr::Protocol::P2p(_))).collect()
}

/// Return how a connection ended.
pub fn verdict(cause: Option<&ConnectionError>) -> Closed {
    match cause {
        None => Closed::new(Cause::Local, "this side closed the connection"),
        Some(ConnectionError::KeepAliveTimeout) => Closed::new(Cause::Local, "nobody used the connection"),
        Some(ConnectionError::IO(error)) => {
            let ended = error.get_ref().and_then(|error| error.downcast_ref::<Closed>());
            let lost = || Closed::new(Cause::Transport, format!("the connection was lost: {error}"));
            ended.cloned().unwrap_or_else(lost)
        }
    }
}

/// Return why a peer could not be reached.
fn explain(error: &DialError) -> Closed {
    match error {
        DialError::Transport(attempts) => {
            let reasons = attempts.iter().map(|(address, error)| match error {
                TransportError::MultiaddrNotSupported(_) => format!("{address} is not supported"),
                TransportError::Other(error) => format!("{address}: {}", root(error)),
            });
            let reasons: Vec<_> = reasons.take(3).collect();
            Closed::new(Cause::Transport, format!("the peer cannot be reached: {}", reasons.join("; ")))
        }
        DialError::WrongPeerId { obtained, .. } => {
            Closed::new(Cause::Refused, format!("another peer answered: {obtained}"))
        }
        DialError::LocalPeerId { .. } | DialError::NoAddresses => {
            Closed::new(Cause::Refused, "the address leads to this host itself")
        }
        DialError::Denied { cause } => {
            let reason = format!("this side does not want the connection: {}", root(cause));
            Closed::new(Cause::Transport, reason)
        }
        error => Closed::new(Cause::Transport, error.to_string()),
    }
}

/// Return the text of the innermost error, which is the most specific.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The streams of one connection.
pub struct Handler {
    peer_connection: Arc<PeerConnection>,
    protocols: Arc<[StreamProtocol]>,
    opening: VecDeque<Opening>,
    waker: Option<Waker>,
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Opening;
    type ToBehaviour = Infallible;
    type InboundProtocol = Offer;
    type OutboundProtocol = Offer;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Opening;

    fn listen_protocol(&self) -> SubstreamProtocol<Offer> {
        SubstreamProtocol::new(Offer(Arc::clone(&self.protocols)), ())
            .with_timeout(self.peer_connection.limits().negotiation)
    }

    fn connection_keep_alive(&self) -> bool {
        // Peers are kept whether or not anything is said: the caller closes what it does not want.
        true
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Offer, Opening, Infallible>> {
        while let Some(opening) = self.opening.pop_front() {
            match StreamProtocol::try_from_owned(opening.protocol.clone()) {
                Ok(protocol) => {
                    let offer = Offer([protocol].into());
                    let protocol =
                        SubstreamProtocol::new(offer, opening).with_timeout(self.peer_connection.limits().negotiation);
                    return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
                }
                Err(error) => opening.failed(Closed::new(Cause::Internal, error.to_string())),
            }
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn on_behaviour_event(&mut self, opening: Opening) {
        self.opening.push_back(opening);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<Offer, Offer, (), Opening>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: (stream, name), .. }) => {
                self.peer_connection.accept(stream, name.to_string());
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: (stream, _), info }) => {
                info.agreed(stream, &self.peer_connection);
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let limit = self.peer_connection.limits().negotiation.as_secs_f64();
                info.failed(match error {
                    StreamUpgradeError::Timeout => {
                        let reason = format!("the peer did not agree on a protocol within {limit} s");
                        Closed::new(Cause::Transport, reason)
                    }
                    StreamUpgradeError::NegotiationFailed => {
                        Closed::new(Cause::Refused, "the peer does not offer the protocol")
                    }
                    StreamUpgradeError::Io(_) => {
                        Closed::new(Cause::Remote, "the peer ended the stream before both agreed on a protocol")
                    }
                    StreamUpgradeError::Apply(never) => match never {},
                });
            }
            // Of streams that the peer opened and that speak nothing offered here, libp2p does not report.
            _ => {}
        }
    }
}

/// The protocols that a stream may speak; agreeing on one is all there is to it.
#[derive(Clone, Debug)]
pub struct Offer(Arc<[StreamProtocol]>);

impl UpgradeInfo for Offer {
    type Info = StreamProtocol;
    type InfoIter = Offered;

    fn protocol_info(&self) -> Self::InfoIter {
        Offered { protocols: Arc::clone(&self.0), next: 0 }
    }
}

/// The protocols of an offer, one after the other. libp2p asks for them whenever a connection has nothing to do.
pub struct Offered {
    protocols: Arc<[StreamProtocol]>,
    next: usize,
}

impl Iterator for Offered {
    type Item = StreamProtocol;

    fn next(&mut self) -> Option<StreamProtocol> {
        let protocol = self.protocols.get(self.next).cloned();
        self.next += 1;
        protocol
    }
}

impl InboundUpgrade<Stream> for Offer {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Self::Error>>;

    fn upgrade_inbound(self, stream: Stream, name: StreamProtocol) -> Self::Future {
        ready(Ok((stream, name)))
    }
}

impl OutboundUpgrade<Stream> for Offer {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Self::Error>>;

    fn upgrade_outbound(self, stream: Stream, name: StreamProtocol) -> Self::Future {
        ready(Ok((stream, name)))
    }
}
