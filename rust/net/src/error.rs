//! Why connections and streams end, and what calls fail with.

use std::fmt::Display;
use std::sync::{Arc, PoisonError};

use thiserror::Error;

use crate::sync::{Mutex, MutexGuard};

/// What ended a connection, or kept a stream from opening.
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
    /// Return one word for programs.
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
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Closed {
    /// What ended it.
    pub cause: Cause,
    /// What happened, as a clause for people.
    pub reason: String,
    /// Of the HTTP answer that refused a WebSocket.
    pub status: Option<u16>,
}

impl Closed {
    /// Create an end with its cause.
    pub fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Self { cause, reason: reason.into(), status: None }
    }
}

/// What a call fails with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection has ended.
    #[error(transparent)]
    Lost(Closed),
    /// The peer reset the stream.
    #[error("the peer reset the stream")]
    Reset,
    /// There are as many connections as there may be.
    #[error("the {owner} has its {limit} connections: close one first")]
    ConnectionLimit {
        /// What has them: `network` or `host`.
        owner: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// There are as many streams on the connection as there may be.
    #[error("{0} streams are open on the connection: close one first")]
    StreamLimit(usize),
    /// No connection has the handle.
    #[error("there is no connection {0}, or it was released")]
    UnknownConnection(u64),
    /// No stream has the handle.
    #[error("there is no stream {0}, or it was released")]
    UnknownStream(u64),
    /// The stream is not open yet, or no longer.
    #[error("the stream is not open")]
    NotOpen,
    /// An argument cannot be used, or the call does not fit the handle's state: the text names it and what was
    /// expected.
    #[error("{0}")]
    Invalid(String),
    /// The network was stopped or has failed, or belongs to the process that forked this one.
    #[error("{0}")]
    Stopped(&'static str),
    /// The operating system or a library refused something.
    #[error("{reason}")]
    System {
        /// What was refused, and why.
        reason: String,
        /// The error as it came.
        source: Source,
    },
}

impl Error {
    /// Wrap an error of the operating system or a library. `refused`: a clause.
    pub fn system(refused: impl Display, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let source = Source(Arc::from(error.into()));
        Self::System { reason: format!("{refused}: {source}"), source }
    }
}

/// An error of the operating system or a library, shared by the copies of an [`Error`].
#[derive(Clone, Debug, Error)]
#[error(transparent)]
pub struct Source(Arc<dyn std::error::Error + Send + Sync>);

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Source {}

/// Lock a mutex. A panic under the lock fails the connection it belongs to (`Cause::Internal`), not the next caller.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
