//! Clocks, ids, dag-cbor and dag-json.

use std::borrow::Cow;

use gossiplog_core::cbor::{normalize, scan};
use gossiplog_core::id::{KEY_LENGTH, Key};
use gossiplog_core::{Error, clock, id, json};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::convert;
use crate::unlocked::{SHORT, unlocked};
use crate::value;

/// A key of 20 bytes.
pub fn key(data: &[u8]) -> PyResult<Key> {
    Key::try_from(data).map_err(|_| {
        convert(Error::Decode {
            reason: format!("a key has {KEY_LENGTH} bytes, this has {}", data.len()),
            offset: None,
        })
    })
}

/// The bytes of a clock, 0 to 2^53 - 1. Raises EncodeError for another.
#[pyfunction]
pub fn encode_clock<'py>(py: Python<'py>, clock: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let number: u64 = clock.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(py) {
            convert(Error::Encode(format!("the clock {clock} is not from 0 to 2^53 - 1")))
        } else {
            error
        }
    })?;
    let mut target = [0; 8];
    let length = clock::encode(number, &mut target).map_err(convert)?;
    Ok(PyBytes::new(py, &target[..length]))
}

/// Reads a clock from the front: (clock, bytes read). Raises DecodeError, also for a longer form than needed.
#[pyfunction]
pub fn decode_clock(data: &[u8]) -> PyResult<(u64, usize)> {
    clock::decode(data).map_err(convert)
}

/// The id of a key of 20 bytes: 32 characters, which sort as keys do. Raises DecodeError for another length.
#[pyfunction]
pub fn encode_id(key: &[u8]) -> PyResult<String> {
    Ok(id::encode(&self::key(key)?))
}

/// The key of an id. Raises DecodeError.
#[pyfunction]
pub fn decode_id<'py>(py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &id::decode(id).map_err(convert)?))
}

/// The canonical dag-cbor of None, bool, int, float, str, bytes, CID, list, tuple or dict. Raises EncodeError, naming the
/// place, for what other peers would refuse or change.
#[pyfunction]
pub fn cbor_encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(value.py(), &value::encode(value)?))
}

/// The value of dag-cbor, as canvas-js reads it: normalised. Raises DecodeError with the offset.
#[pyfunction]
pub fn cbor_decode<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let canonical = unlocked(py, data.len() > SHORT, || {
        if scan(data, 0, 0) == Some(data.len()) { Ok(Cow::Borrowed(data)) } else { normalize(data).map(Cow::Owned) }
    });
    value::decode(py, &canonical.map_err(convert)?)
}

/// The dag-json of a value, as it is signed. Raises EncodeError as cbor_encode does.
#[pyfunction]
pub fn json_encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let (py, canonical) = (value.py(), value::encode(value)?);
    let mut text = Vec::new();
    unlocked(py, canonical.len() > SHORT, || json::write(&canonical, &mut text)).map_err(convert)?;
    Ok(PyBytes::new(py, &text))
}

/// The value of a dag-json text, as bytes. Raises DecodeError with the offset.
#[pyfunction]
pub fn json_decode<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let canonical = unlocked(py, data.len() > SHORT, || json::read(data)).map_err(convert)?;
    value::decode(py, &canonical)
}
