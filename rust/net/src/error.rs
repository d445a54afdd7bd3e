//! Why connections and streams end, and what calls fail with.

use std::fmt;
use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// Who or what ended a connection, or kept a stream from opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This side asked for it.
    Local,
    /// The peer ended it in order.
    Remote,
    /// The peer does not offer the protocol, or lets nobody in as this side asked.
    Refused,
    /// The server asks for a token, or for another one.
    Token,
    /// The server answered that it cannot serve this side now.
    Unavailable,
    /// The peer broke the rules of a protocol: it is to blame.
    Violation,
    /// The bytes stopped coming, or never came: nobody can be blamed.
    Transport,
    /// This side keeps too much in memory for its peers together: nobody can be blamed.
    Overload,
    /// A defect of this program.
    Internal,
}

impl Cause {
    /// One word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Refused => "refused",
            Self::Token => "token",
            Self::Unavailable => "unavailable",
            Self::Violation => "violation",
            Self::Transport => "transport",
            Self::Overload => "overload",
            Self::Internal => "internal",
        }
    }
}

/// How something ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Who ended it.
    pub cause: Cause,
    /// What happened, as a clause for people.
    pub reason: String,
    /// Of the HTTP answer that refused a WebSocket.
    pub status: Option<u16>,
}

impl Closed {
    /// An end with its cause.
    pub fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self { cause, reason: reason.into(), status: None }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.reason)
    }
}

impl std::error::Error for Closed {}

/// What a call fails with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The connection has ended.
    Lost(Closed),
    /// The peer reset the stream.
    Reset,
    /// A limit of this side is reached.
    Limit(String),
    /// An argument cannot be used, or the call does not fit the handle's state.
    Invalid(String),
    /// The network was stopped, or belongs to the process that forked this one.
    Stopped(String),
    /// The operating system refused something.
    System(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(closed) => closed.fmt(formatter),
            Self::Reset => formatter.write_str("the peer reset the stream"),
            Self::Limit(reason) | Self::Invalid(reason) | Self::Stopped(reason) | Self::System(reason) => {
                formatter.write_str(reason)
            }
        }
    }
}

impl std::error::Error for Error {}

/// Locks. A panic under the lock fails the connection it belongs to (`Cause::Internal`), not whoever comes next.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
