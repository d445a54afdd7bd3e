//! Agreeing on the protocol of a new stream: multistream-select, `/multistream/1.0.0`, in a limited time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use multistream_select::{
    Negotiated, NegotiationError, ProtocolError, Version, dialer_select_proto, listener_select_proto,
};

use crate::error::{Cause, Closed, Error};
use crate::link::Link;
use crate::muxed::Muxed;
use crate::slot::Slot;
use crate::stream::Agreed;

/// The longest name of a protocol, in bytes: multistream-select's frames hold no more than 16 KiB, and nobody needs
/// nearly that.
const LONGEST_PROTOCOL: usize = 1024;

/// How a negotiation ended.
#[derive(Debug)]
pub enum Outcome {
    /// Both sides agreed on a protocol.
    Agreed(String, Box<Agreed>),
    /// The stream came to nothing.
    Failed(Closed),
    /// It took too long.
    TimedOut(Closed),
}

/// A negotiation under way, or a stream that is being finished: what a connection's task has to see through.
pub type Task = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What such a task came to.
#[derive(Debug)]
pub enum Done {
    /// On a stream that the peer opened.
    Inbound(Outcome),
    /// On one that the caller opened, with its handle.
    Outbound(u64, Arc<Slot>, Outcome),
    /// A stream is finished.
    Finished,
}

/// Answer the peer's proposals.
pub fn listen(link: Arc<Link>, stream: Muxed, number: u32, protocols: Arc<[String]>) -> Task {
    Box::pin(async move {
        let names: Vec<String> = protocols.to_vec();
        Done::Inbound(within(&link, number, listener_select_proto(stream, names)).await)
    })
}

/// Propose a protocol.
pub fn propose(link: Arc<Link>, stream: Muxed, number: u32, handle: u64, slot: Arc<Slot>, protocol: String) -> Task {
    Box::pin(async move {
        let selection = dialer_select_proto(stream, [protocol], Version::V1);
        Done::Outbound(handle, slot, within(&link, number, selection).await)
    })
}

async fn within(
    link: &Arc<Link>,
    number: u32,
    selection: impl Future<Output = Result<(String, Negotiated<Muxed>), NegotiationError>>,
) -> Outcome {
    let limit = link.shared.limits.negotiation;
    match tokio::time::timeout(limit, selection).await {
        Ok(Ok((protocol, bytes))) => Outcome::Agreed(protocol, Box::new(Agreed::new(bytes, number, link))),
        Ok(Err(error)) => Outcome::Failed(judge(&error)),
        Err(_) => {
            let reason = format!("the peer did not agree on a protocol within {} s", limit.as_secs_f64());
            Outcome::TimedOut(Closed::new(Cause::Transport, reason))
        }
    }
}

/// Return whether a failed negotiation was the peer's fault.
fn judge(error: &NegotiationError) -> Closed {
    match error {
        NegotiationError::Failed => Closed::new(Cause::Refused, "the peer does not offer the protocol"),
        // A stream that was reset or ended halfway; a length beyond two bytes is InvalidData.
        NegotiationError::ProtocolError(ProtocolError::IoError(error))
            if error.kind() != io::ErrorKind::InvalidData =>
        {
            Closed::new(Cause::Remote, "the peer ended the stream before both agreed on a protocol")
        }
        NegotiationError::ProtocolError(error) => {
            Closed::new(Cause::Violation, format!("the peer broke the rules of multistream-select: {error}"))
        }
    }
}

/// Return whether multistream-select can carry the name.
pub fn check_protocol(protocol: &str) -> Result<(), Error> {
    if protocol.starts_with('/') && !protocol.contains('\n') && protocol.len() <= LONGEST_PROTOCOL {
        return Ok(());
    }
    let shown: String = protocol.chars().take(40).collect();
    let rule = format!("it begins with a slash and has at most {LONGEST_PROTOCOL} bytes in one line");
    Err(Error::Invalid(format!("{shown:?} is not the name of a protocol: {rule}")))
}
