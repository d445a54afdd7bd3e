//! Messages as the HTTP API exchanges them.

use std::sync::{Mutex, PoisonError};

use gossiplog_core::Error;
use gossiplog_core::message;
use gossiplog_core::message_json::{self, MessageText};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::{convert, invalid};
use crate::message::codec_of;

/// The dag-json of stored messages, in pieces.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct MessageJson {
    values: Vec<PyBackedBytes>,
    count: usize,
    is_list: bool,
    held: usize,
    state: Mutex<State>,
}

struct State {
    /// What is still to be written, the next at the end.
    rest: Vec<MessageText>,
    begun: bool,
    ended: bool,
}

enum Refusal {
    Core(Error),
    Invalid(message::Invalid),
}

/// The messages before the first that has no dag-json form.
fn open(values: &[PyBackedBytes], topic: &str) -> Result<Vec<MessageText>, Refusal> {
    let mut texts = Vec::with_capacity(values.len());
    for value in values {
        let parsed = message::parse(value, topic).map_err(Refusal::Invalid)?;
        match MessageText::new(value, parsed) {
            Ok(text) => texts.push(text),
            Err(error) if texts.is_empty() => return Err(Refusal::Core(error)),
            Err(_) => break,
        }
    }
    Ok(texts)
}

#[pymethods]
impl MessageJson {
    #[new]
    #[pyo3(signature = (values, topic, is_list = true))]
    fn new(py: Python<'_>, values: Vec<PyBackedBytes>, topic: &str, is_list: bool) -> PyResult<Self> {
        let opened = py.detach(|| open(&values, topic));
        let mut texts = opened.map_err(|refusal| match refusal {
            Refusal::Core(error) => convert(error),
            Refusal::Invalid(reason) => invalid(&reason),
        })?;
        if !is_list && texts.len() != 1 {
            return Err(convert(Error::Encode(format!("there are {} messages: expected a single one", texts.len()))));
        }
        let count = texts.len();
        let held = values.iter().map(|value| value.len()).chain(texts.iter().map(MessageText::held)).sum();
        texts.reverse();
        Ok(Self { values, count, is_list, held, state: Mutex::new(State { rest: texts, begun: false, ended: false }) })
    }

    #[getter]
    fn count(&self) -> usize {
        self.count
    }

    #[getter]
    fn held(&self) -> usize {
        self.held
    }

    fn read<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        let piece = py.detach(|| self.write(limit.max(1))).map_err(convert)?;
        Ok(PyBytes::new(py, &piece))
    }
}

impl MessageJson {
    fn write(&self, limit: usize) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { rest, begun, ended } = &mut *state;
        while out.len() < limit && !*ended {
            if self.is_list && !*begun {
                out.push(b'[');
            }
            *begun = true;
            let done = self.count - rest.len();
            match (rest.last_mut(), self.values.get(done)) {
                (Some(text), Some(value)) => {
                    if text.write(value, &mut out, limit)? {
                        rest.pop();
                        if !rest.is_empty() {
                            out.push(b',');
                        }
                    }
                }
                _ => {
                    if self.is_list {
                        out.push(b']');
                    }
                    *ended = true;
                }
            }
        }
        Ok(out)
    }
}

/// The stored value of the message in a line of an export, not verified. Raises DecodeError.
#[pyfunction]
pub fn read_message_line(py: Python<'_>, line: PyBackedBytes) -> PyResult<Py<PyBytes>> {
    let value = py.detach(|| message_json::read_line(&line)).map_err(convert)?;
    Ok(PyBytes::new(py, &value).unbind())
}

/// The canonical stored value of a message that was sent as the map which `MessageJson` writes, in dag-json or dag-cbor. Its
/// signature is not verified. Raises DecodeError.
#[pyfunction]
pub fn read_message_map(py: Python<'_>, data: PyBackedBytes, codec: &str) -> PyResult<Py<PyBytes>> {
    let codec = codec_of(codec)?;
    let value = py.detach(|| message_json::read_map(&data, codec)).map_err(convert)?;
    Ok(PyBytes::new(py, &value).unbind())
}
