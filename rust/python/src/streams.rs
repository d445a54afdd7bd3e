//! Connections and streams by their handles: what a network and a host have in common.

use std::sync::{Arc, Mutex, PoisonError};

use gossiplog_net::{Error, StreamTable};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{ConnectionLost, NetworkError, StreamReset};

/// The most that one read or drain returns, in bytes, whatever is asked for.
const LARGEST_READ: usize = 1 << 20;

/// Converts an error of the network into its exception.
pub fn convert(error: Error) -> PyErr {
    match error {
        Error::Lost(closed) => ConnectionLost::new_err((closed.cause.name(), closed.reason, closed.status)),
        Error::Reset => StreamReset::new_err(Error::Reset.to_string()),
        error => NetworkError::new_err(error.to_string()),
    }
}

/// Memory that reads pass through: how much there is to read shows only afterwards.
#[derive(Default)]
pub struct ReadBuffer(Mutex<Vec<u8>>);

impl ReadBuffer {
    /// Returns what `read` reads, at most `limit` bytes.
    pub fn read<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
        read: impl FnOnce(&mut [u8]) -> Result<Option<usize>, Error>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if limit == 0 {
            return Err(NetworkError::new_err("the limit is 0; expected a number of bytes above 0"));
        }
        let limit = limit.min(LARGEST_READ);
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < limit {
            buffer.resize(limit, 0);
        }
        let length = read(&mut buffer[..limit]).map_err(convert)?;
        Ok(length.map(|length| PyBytes::new(py, &buffer[..length])))
    }
}

/// The connections of a network or a host, and their streams.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct Streams {
    table: Arc<dyn StreamTable>,
    buffer: ReadBuffer,
}

impl Streams {
    /// Binds a table.
    pub fn of<T: StreamTable + 'static>(py: Python<'_>, table: &Arc<T>) -> PyResult<Py<Self>> {
        let table: Arc<dyn StreamTable> = Arc::<T>::clone(table);
        Py::new(py, Self { table, buffer: ReadBuffer::default() })
    }
}

#[pymethods]
impl Streams {
    fn close(&self, connection: u64) -> PyResult<()> {
        self.table.close(connection).map_err(convert)
    }

    fn release(&self, connection: u64) -> PyResult<()> {
        self.table.release(connection).map_err(convert)
    }

    fn open(&self, connection: u64, protocol: &str) -> PyResult<u64> {
        self.table.open(connection, protocol).map_err(convert)
    }

    fn read<'py>(&self, py: Python<'py>, stream: u64, limit: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.buffer.read(py, limit, |buffer| self.table.read(stream, buffer))
    }

    #[pyo3(signature = (stream, data, start = 0))]
    fn write(&self, stream: u64, data: &[u8], start: usize) -> PyResult<usize> {
        self.table.write(stream, data.get(start..).unwrap_or_default()).map_err(convert)
    }

    fn reserve_memory(&self, stream: u64, bytes: usize) -> PyResult<()> {
        self.table.reserve_memory(stream, bytes).map_err(convert)
    }

    fn finish(&self, stream: u64) -> PyResult<()> {
        self.table.finish(stream).map_err(convert)
    }

    fn reset(&self, stream: u64) -> PyResult<()> {
        self.table.reset(stream).map_err(convert)
    }
}
