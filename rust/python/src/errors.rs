//! The one place where errors of the core become the exceptions of `gossiplog.errors`.

use std::borrow::Cow;

use gossiplog_core::message::Invalid;
use gossiplog_core::{Error, id};
use pyo3::PyErr;
use pyo3::import_exception;

import_exception!(gossiplog.errors, ColumnError);
import_exception!(gossiplog.errors, ConnectionLost);
import_exception!(gossiplog.errors, DecodeError);
import_exception!(gossiplog.errors, EncodeError);
import_exception!(gossiplog.errors, InvalidMessage);
import_exception!(gossiplog.errors, NetworkError);
import_exception!(gossiplog.errors, StreamReset);
import_exception!(gossiplog.errors, TreeError);

/// What a call into the core fails with when the core calls back into Python.
pub enum Failure {
    Core(Error),
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Core(error) => convert(error),
            Failure::Python(error) => error,
        }
    }
}

/// Characters of a reason. It may show what a stranger sent: a topic, or a key, of megabytes.
const LONGEST_REASON: usize = 1000;

/// A reason that can be written to a log, or into an answer.
fn clipped(reason: &str) -> Cow<'_, str> {
    match reason.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]).into(),
        None => reason.into(),
    }
}

/// An error of the core as its exception.
pub fn convert(error: Error) -> PyErr {
    match error {
        Error::Decode { reason, offset } => DecodeError::new_err((clipped(&reason).into_owned(), offset)),
        Error::Encode(reason) => EncodeError::new_err(clipped(&reason).into_owned()),
        Error::Invalid(reason) => InvalidMessage::new_err(clipped(&reason).into_owned()),
        Error::Tree(reason) => TreeError::new_err(clipped(&reason).into_owned()),
        Error::Column(reason) => ColumnError::new_err(clipped(&reason).into_owned()),
    }
}

/// An invalid message as its exception.
pub fn invalid(invalid: &Invalid) -> PyErr {
    InvalidMessage::new_err((clipped(&invalid.reason).into_owned(), invalid.key.as_ref().map(id::encode)))
}
