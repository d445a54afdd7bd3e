//! Yamux for libp2p, under the ledger's eyes: what `crate::connection` does for the streams of a WebSocket.
//!
//! libp2p's own neither distinguishes a reset from an end nor reports what a peer did wrong, and limits the bytes that a peer makes
//! this side keep by stream, not by peer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::iter::{Once, once};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use futures::io::{AsyncRead, AsyncWrite};
use libp2p::StreamProtocol;
use libp2p::core::UpgradeInfo;
use libp2p::core::muxing::{StreamMuxer, StreamMuxerEvent};
use libp2p::core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade};
use tokio::time::{Sleep, sleep};
use yamux::{ConnectionError, Mode};

use crate::error::{Cause, Closed};
use crate::ledger::Ledger;
use crate::limits::{Counters, INITIAL_WINDOW, Limits, Permit};
use crate::mesh::accounted_connection::AccountedConnection;
use crate::mesh::peer_account::PeerAccount;
use crate::muxed::Muxed;
use crate::verdict::verdict;
use crate::watched::Watched;

/// Streams that each side may have open for libp2p's own protocols, beside those that the limits allow: Kademlia's
/// handler answers 32 at a time, and identify, ping and gossipsub have a few.
pub const OWN_STREAMS: usize = 64;

/// Agrees on yamux for one connection to a peer.
#[derive(Clone)]
pub struct Upgrade {
    account: Arc<PeerAccount>,
    protocols: Arc<[StreamProtocol]>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl Upgrade {
    /// Create the upgrade of a connection to `account`. `protocols`: that the caller speaks.
    pub fn new(
        account: Arc<PeerAccount>,
        protocols: &Arc<[StreamProtocol]>,
        limits: &Limits,
        counters: &Arc<Counters>,
    ) -> Self {
        Self { account, protocols: Arc::clone(protocols), limits: limits.clone(), counters: Arc::clone(counters) }
    }

    fn muxer<T: AsyncRead + AsyncWrite + Unpin>(self, pipe: T, mode: Mode) -> AccountedConnection<Muxer<T>> {
        let Self { account, protocols, limits, counters } = self;
        let ledger = Arc::new(Ledger::sharing(Arc::clone(&account.memory), Arc::clone(&account.close_signal)));
        // One more than may be open: a stream too many is there until its reset is written.
        let streams = limits.inbound_streams + limits.outbound_streams + 2 * OWN_STREAMS + 1;
        let mut config = yamux::Config::default();
        config.set_max_num_streams(streams);
        config.set_max_connection_receive_window(Some(streams * INITIAL_WINDOW + limits.window_growth()));
        let muxer = Muxer {
            yamux: yamux::Connection::new(Watched::lingering(pipe, Arc::clone(&ledger)), config, mode),
            ledger,
            account: Arc::clone(&account),
            arrived: VecDeque::new(),
            inbound: Arc::default(),
            outbound: Arc::default(),
            closing: None,
            limits,
            counters,
        };
        AccountedConnection::new(muxer, account, &protocols)
    }
}

impl UpgradeInfo for Upgrade {
    type Info = &'static str;
    type InfoIter = Once<&'static str>;

    fn protocol_info(&self) -> Self::InfoIter {
        once("/yamux/1.0.0")
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> InboundConnectionUpgrade<T> for Upgrade {
    type Output = AccountedConnection<Muxer<T>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Self::Error>>;

    fn upgrade_inbound(self, pipe: T, _: Self::Info) -> Self::Future {
        ready(Ok(self.muxer(pipe, Mode::Server)))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> OutboundConnectionUpgrade<T> for Upgrade {
    type Output = AccountedConnection<Muxer<T>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Self::Error>>;

    fn upgrade_outbound(self, pipe: T, _: Self::Info) -> Self::Future {
        ready(Ok(self.muxer(pipe, Mode::Client)))
    }
}

/// The streams of one connection.
pub struct Muxer<T> {
    yamux: yamux::Connection<Watched<T>>,
    ledger: Arc<Ledger>,
    account: Arc<PeerAccount>,
    /// The peer's, until libp2p takes them. One task drives all of this: nobody has to be woken.
    arrived: VecDeque<Muxed>,
    inbound: Arc<AtomicUsize>,
    outbound: Arc<AtomicUsize>,
    closing: Option<Pin<Box<Sleep>>>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Muxer<T> {
    /// Move everything on that can be moved on now.
    fn advance(&mut self, context: &mut Context<'_>) -> Result<(), Closed> {
        loop {
            match self.yamux.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => self.accept(stream),
                Poll::Ready(Some(Err(error))) => return Err(self.ended(Some(&error))),
                Poll::Ready(None) => return Err(self.ended(None)),
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn accept(&mut self, stream: yamux::Stream) {
        match Permit::take(&self.inbound, self.limits.inbound_streams + OWN_STREAMS) {
            Some(permit) => self.arrived.push_back(Muxed::new(stream, Arc::clone(&self.ledger), permit)),
            None => {
                // Dropping it resets it.
                self.ledger.dropped(stream.id().val());
                Counters::add(&self.counters.streams_over_limit);
            }
        }
    }

    fn open(&mut self, context: &mut Context<'_>) -> Poll<Result<Muxed, Closed>> {
        // While written bytes wait, yamux may still count streams that were dropped, and one beyond its limit would end
        // the connection.
        if self.ledger.blocked() {
            return Poll::Pending;
        }
        let limit = self.limits.outbound_streams + OWN_STREAMS;
        let Some(permit) = Permit::take(&self.outbound, limit) else { return Poll::Pending };
        match self.yamux.poll_new_outbound(context) {
            Poll::Ready(Ok(stream)) => {
                self.ledger.opened(stream.id().val());
                Poll::Ready(Ok(Muxed::new(stream, Arc::clone(&self.ledger), permit)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.ended(Some(&error)))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn ended(&self, error: Option<&ConnectionError>) -> Closed {
        verdict(&self.ledger, self.account.close_signal.reason(), error)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> StreamMuxer for Muxer<T> {
    type Substream = Muxed;
    type Error = Closed;

    fn poll_inbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Muxed, Closed>> {
        self.advance(context)?;
        self.arrived.pop_front().map_or(Poll::Pending, |stream| Poll::Ready(Ok(stream)))
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Muxed, Closed>> {
        self.open(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let limit = self.limits.closing;
        let late = self.closing.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context).is_ready();
        if late && self.ledger.ended() {
            return Poll::Ready(Ok(()));
        }
        if late {
            return Poll::Ready(Err(Closed::new(Cause::Transport, "the peer did not take what was written")));
        }
        self.yamux.poll_close(context).map_err(|error| self.ended(Some(&error)))
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<StreamMuxerEvent, Closed>> {
        self.advance(context)?;
        Poll::Pending
    }
}
