//! Why a connection's yamux stopped.

use yamux::{ConnectionError, FrameDecodeError};

use crate::error::{Cause, Closed};
use crate::ledger::Ledger;

/// Return why yamux stopped, with an error or at the end of the bytes: what is known from elsewhere is closer to the
/// cause. `explanation`: of the transport, if it has one.
pub fn verdict(ledger: &Ledger, explanation: Option<Closed>, error: Option<&ConnectionError>) -> Closed {
    if let Some(reason) = ledger.violation() {
        return Closed::new(Cause::Violation, reason);
    }
    if let Some(closed) = explanation {
        return closed;
    }
    match (error, ledger.farewell()) {
        (_, Some(0)) => Closed::new(Cause::Remote, "the peer closed the connection"),
        (_, Some(code)) => {
            Closed::new(Cause::Remote, format!("the peer closed the connection with error {code} of yamux"))
        }
        (Some(ConnectionError::Decode(FrameDecodeError::Io(_)) | ConnectionError::Io(_)), _) => {
            Closed::new(Cause::Transport, "the bytes of the connection stopped in the middle of a yamux frame")
        }
        (Some(ConnectionError::Decode(error)), _) => {
            Closed::new(Cause::Violation, format!("the peer sent what is no yamux frame: {error}"))
        }
        (Some(error), _) => Closed::new(Cause::Violation, format!("the peer broke the rules of yamux: {error}")),
        (None, None) => Closed::new(Cause::Transport, "the bytes of the connection ended without a farewell"),
    }
}
