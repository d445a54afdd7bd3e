//! The network of gossiplog-net: handles are integers, events small frozen objects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gossiplog_net::{Counts, Event, Incident, Limits, Target};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::NetworkError;
use crate::streams::{ReadBuffer, Streams, convert};

/// A number of seconds above 0.
pub fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    let wrong = || NetworkError::new_err(format!("{name} is {seconds}; expected a number of seconds above 0"));
    Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero()).ok_or_else(wrong)
}

/// A URL without what may be a secret.
#[pyfunction]
pub fn redacted_url(url: &str) -> String {
    gossiplog_net::redacted_url(url)
}

/// How a connection or stream ended.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
#[derive(Clone)]
pub struct Closed {
    cause: &'static str,
    reason: String,
    status: Option<u16>,
}

impl From<gossiplog_net::Closed> for Closed {
    fn from(closed: gossiplog_net::Closed) -> Self {
        Self { cause: closed.cause.name(), reason: closed.reason, status: closed.status }
    }
}

#[pymethods]
impl Closed {
    fn __repr__(&self) -> String {
        format!("<Closed cause={:?} reason={:?}>", self.cause, self.reason)
    }
}

/// What happened to a connection since the last poll.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct ConnectionEvent {
    connection: u64,
    established: bool,
    /// Names and values of headers.
    hello: Vec<(String, String)>,
    readable: bool,
    writable: bool,
    /// Kind, how often, and what the peer did the last time.
    incidents: Vec<(&'static str, u64, String)>,
    closed: Option<Closed>,
}

/// What happened to a stream since the last poll.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct StreamEvent {
    stream: u64,
    connection: u64,
    protocol: Option<String>,
    inbound: bool,
    readable: bool,
    writable: bool,
    failed: Option<Closed>,
}

/// Connections and their streams, driven on a thread of their own.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct Network {
    inner: Arc<gossiplog_net::Network>,
    #[pyo3(get)]
    streams: Py<Streams>,
    buffer: ReadBuffer,
}

/// News of a connection or a stream as its event.
pub fn event_object(py: Python<'_>, event: Event) -> PyResult<Bound<'_, PyAny>> {
    match event {
        Event::Connection { connection, established, hello, readable, writable, incidents, closed } => {
            let closed = closed.map(Closed::from);
            let incident = |Incident { kind, count, text }| (kind, count, text);
            let incidents = incidents.into_iter().map(incident).collect();
            let event = ConnectionEvent { connection, established, hello, readable, writable, incidents, closed };
            Bound::new(py, event).map(Bound::into_any)
        }
        Event::Stream { stream, connection, protocol, inbound, readable, writable, failed } => {
            let failed = failed.map(Closed::from);
            let event = StreamEvent { stream, connection, protocol, inbound, readable, writable, failed };
            Bound::new(py, event).map(Bound::into_any)
        }
    }
}

/// Figures by their names.
pub fn network_counts<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let figures = PyDict::new(py);
    figures.set_item("connections", counts.connections)?;
    figures.set_item("streams", counts.streams)?;
    figures.set_item("violations", counts.violations)?;
    figures.set_item("streams_over_limit", counts.streams_over_limit)?;
    figures.set_item("streams_refused", counts.streams_refused)?;
    figures.set_item("negotiations_timed_out", counts.negotiations_timed_out)?;
    figures.set_item("overloads", counts.overloads)?;
    figures.set_item("defects", counts.defects)?;
    figures.set_item("bytes_sent", counts.bytes_sent)?;
    figures.set_item("bytes_received", counts.bytes_received)?;
    Ok(figures)
}

/// `gossiplog.net.transport.limits.Limits`.
#[derive(FromPyObject)]
pub struct LimitParameters {
    connections: usize,
    pub connections_per_address: Option<usize>,
    streams: u16,
    peer_bytes: usize,
    total_bytes: usize,
    negotiation_seconds: f64,
    closing_seconds: f64,
}

impl TryFrom<LimitParameters> for Limits {
    type Error = PyErr;

    fn try_from(parameters: LimitParameters) -> PyResult<Self> {
        Ok(Self {
            connections: parameters.connections,
            inbound_streams: parameters.streams.into(),
            outbound_streams: parameters.streams.into(),
            peer_bytes: parameters.peer_bytes,
            total_bytes: parameters.total_bytes,
            negotiation: seconds("negotiation_seconds", parameters.negotiation_seconds)?,
            closing: seconds("closing_seconds", parameters.closing_seconds)?,
        })
    }
}

#[pymethods]
impl Network {
    #[new]
    fn new(py: Python<'_>, limits: LimitParameters) -> PyResult<Self> {
        let inner = Arc::new(gossiplog_net::Network::start(limits.try_into()?).map_err(convert)?);
        Ok(Self { streams: Streams::of(py, &inner)?, inner, buffer: ReadBuffer::default() })
    }

    fn fileno(&self) -> PyResult<i64> {
        self.inner.fileno().map_err(convert)
    }

    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let events = self.inner.poll().map_err(convert)?.into_iter();
        PyList::new(py, events.map(|event| event_object(py, event)).collect::<PyResult<Vec<_>>>()?)
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        network_counts(py, &self.inner.counts().map_err(convert)?)
    }

    fn held(&self) -> PyResult<usize> {
        self.inner.held().map_err(convert)
    }

    fn set_external_bytes(&self, bytes: usize) -> PyResult<()> {
        self.inner.set_external_bytes(bytes).map_err(convert)
    }

    fn attach(&self, protocols: Vec<String>, client: bool) -> PyResult<u64> {
        self.inner.attach(protocols, client).map_err(convert)
    }

    #[pyo3(signature = (url, protocols, headers = Vec::new(), ca_file = None, connect_timeout = 10.0, keepalive = 20.0,
        max_message = 1 << 20),
        text_signature = "($self, url, protocols, headers=(), ca_file=None, connect_timeout=10.0, keepalive=20.0, \
        max_message=1048576)")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn dial(
        &self,
        url: String,
        protocols: Vec<String>,
        headers: Vec<(String, String)>,
        ca_file: Option<PathBuf>,
        connect_timeout: f64,
        keepalive: f64,
        max_message: usize,
    ) -> PyResult<u64> {
        let connect = seconds("connect_timeout", connect_timeout)?;
        let keepalive = seconds("keepalive", keepalive)?;
        let target = Target { url, headers, ca_file, connect, keepalive, message: max_message };
        self.inner.dial(target, protocols).map_err(convert)
    }

    #[pyo3(signature = (connection, data, start = 0))]
    fn feed(&self, connection: u64, data: &[u8], start: usize) -> PyResult<usize> {
        self.inner.feed(connection, data.get(start..).unwrap_or_default()).map_err(convert)
    }

    fn feed_eof(&self, connection: u64) -> PyResult<()> {
        self.inner.feed_end(connection).map_err(convert)
    }

    fn drain<'py>(&self, py: Python<'py>, connection: u64, limit: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.buffer.read(py, limit, |buffer| self.inner.drain(connection, buffer))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.stop()).map_err(convert)
    }
}
