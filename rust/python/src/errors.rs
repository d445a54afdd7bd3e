//! The one place where errors of the core become the exceptions of `gossiplog.errors`.

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

/// An error of the core as its exception.
pub fn convert(error: Error) -> PyErr {
    match error {
        Error::Decode { reason, offset } => DecodeError::new_err((reason, offset)),
        Error::Encode(reason) => EncodeError::new_err(reason),
        Error::Invalid(reason) => InvalidMessage::new_err(reason),
        Error::Tree(reason) => TreeError::new_err(reason),
        Error::Column(reason) => ColumnError::new_err(reason),
    }
}

/// An invalid message as its exception.
pub fn invalid(invalid: &Invalid) -> PyErr {
    InvalidMessage::new_err((invalid.reason.clone(), invalid.key.as_ref().map(id::encode)))
}
