//! A stream whose protocol is agreed on, and the end of one in order.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::io::{AsyncRead, AsyncWrite};
use multistream_select::Negotiated;
use tokio::time::timeout;

use crate::error::Closed;
use crate::link::Link;
use crate::muxed::Muxed;
use crate::slot::StreamTransport;

/// End this side's direction and passes over what the peer still sends, until the peer ends its own; resets the stream
/// if that takes longer than `limit`.
pub async fn finish(mut carrier: Box<dyn StreamTransport>, limit: Duration) {
    let ended = async {
        let closed = poll_fn(|context| Pin::new(&mut carrier).poll_close(context)).await;
        let mut passed = vec![0; 4096];
        let mut read = |context: &mut Context<'_>| Pin::new(&mut carrier).poll_read(context, &mut passed);
        while closed.is_ok() && matches!(poll_fn(&mut read).await, Ok(1..)) {}
    };
    if timeout(limit, ended).await.is_err() {
        carrier.reset();
    }
}

/// A stream of a [`Link`], with its number on the connection.
#[derive(Debug)]
pub struct Agreed {
    bytes: Negotiated<Muxed>,
    number: u32,
    link: Arc<Link>,
}

impl Agreed {
    /// Wrap a negotiated stream. `number`: its number on the connection of `link`.
    pub fn new(bytes: Negotiated<Muxed>, number: u32, link: &Arc<Link>) -> Self {
        Self { bytes, number, link: Arc::clone(link) }
    }
}

impl StreamTransport for Agreed {
    fn closed(&self) -> Option<Closed> {
        self.link.closed()
    }

    fn end(&self, closed: Closed) {
        self.link.end(closed);
    }

    fn reset(self: Box<Self>) {
        self.link.ledger.reset(self.number);
    }
}

impl AsyncRead for Agreed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_read(context, buffer)
    }
}

impl AsyncWrite for Agreed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_close(context)
    }
}
