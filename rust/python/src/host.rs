//! The host of gossiplog-net: a peer of a libp2p network. Connections and streams are as `net` has them.

use std::sync::Arc;

use gossiplog_net::{Answer, CONTROL_BYTES, Config, GossipConfig, Notice};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::NetworkError;
use crate::net::{LimitParameters, event_object, network_counts, seconds};
use crate::streams::{Streams, convert};
use crate::validator::GossipValidator;

/// Checks that a host can use a text as an address. Raises ValueError.
#[pyfunction]
pub fn check_address(text: &str) -> PyResult<()> {
    gossiplog_net::address(text).map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Checks that a text is a peer's id. Raises ValueError.
#[pyfunction]
pub fn check_peer_id(text: &str) -> PyResult<()> {
    gossiplog_net::peer_id(text).map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A peer is connected.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct PeerEvent {
    connection: u64,
    peer_id: String,
    address: String,
    dialer: bool,
}

/// A peer's status with the topic has changed.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct MeshEvent {
    peer_id: String,
    kind: &'static str,
}

/// What concerns no single peer.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct HostEvent {
    gossip: bool,
    accepted: bool,
    asked: bool,
    listening: Vec<String>,
    failed: Vec<String>,
    refused: u64,
    denied: Vec<String>,
}

/// A message that came by gossip.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct GossipMessage {
    ticket: u64,
    connection: u64,
    peer_id: String,
    data: Py<PyBytes>,
}

/// A connected peer.
#[pyclass(frozen, get_all, module = "gossiplog._core")]
pub struct PeerInfo {
    connection: u64,
    peer_id: String,
    address: String,
    dialer: bool,
    agent: Option<String>,
    protocols: Vec<String>,
    in_mesh: bool,
    subscribed: bool,
    score: f64,
    rtt: Option<f64>,
}

fn answer(ticket: u64, name: &str) -> PyResult<(u64, Answer)> {
    let shown: String = name.chars().take(40).collect();
    let wrong = || NetworkError::new_err(format!("{shown:?} is no answer; expected accept, ignore or reject"));
    Ok((ticket, Answer::parse(name).ok_or_else(wrong)?))
}

fn object(py: Python<'_>, notice: Notice) -> PyResult<Bound<'_, PyAny>> {
    match notice {
        Notice::Event(event) => event_object(py, event),
        Notice::Peer { connection, peer_id, address, dialer } => {
            Bound::new(py, PeerEvent { connection, peer_id, address, dialer }).map(Bound::into_any)
        }
        Notice::Mesh { peer_id, kind } => Bound::new(py, MeshEvent { peer_id, kind }).map(Bound::into_any),
        Notice::Host { gossip, accepted, asked, listening, failed, refused, denied } => {
            Bound::new(py, HostEvent { gossip, accepted, asked, listening, failed, refused, denied })
                .map(Bound::into_any)
        }
    }
}

/// A libp2p host, driven on a thread of its own.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct Host {
    inner: Arc<gossiplog_net::Host>,
    #[pyo3(get)]
    streams: Py<Streams>,
}

/// `gossiplog.pubsub.gossipsub.GossipConfig`.
#[derive(FromPyObject)]
struct GossipParameters {
    heartbeat_interval: f64,
    d: usize,
    d_low: usize,
    d_high: usize,
    lazy: usize,
    fanout_ttl: f64,
    mcache_len: usize,
    mcache_gossip: usize,
    seen_ttl: f64,
}

impl TryFrom<GossipParameters> for GossipConfig {
    type Error = PyErr;

    fn try_from(parameters: GossipParameters) -> PyResult<Self> {
        let GossipParameters { d, d_low, d_high, lazy, mcache_len, mcache_gossip, .. } = parameters;
        Ok(Self {
            heartbeat_interval: seconds("heartbeat_interval", parameters.heartbeat_interval)?,
            d,
            d_low,
            d_high,
            d_lazy: lazy,
            fanout_ttl: seconds("fanout_ttl", parameters.fanout_ttl)?,
            mcache_len,
            mcache_gossip,
            seen_ttl: seconds("seen_ttl", parameters.seen_ttl)?,
        })
    }
}

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (*, identity, topic, protocols, listen, bootstrap, announce = Vec::new(), mdns = false,
        gossips = true, gossip, idle_streams = 1, validator = None, allowed = Vec::new(), limits),
        text_signature = "(*, identity, topic, protocols, listen, bootstrap, announce=(), mdns=False, \
        gossips=True, gossip, idle_streams=1, validator=None, allowed=(), limits)")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        identity: &[u8],
        topic: String,
        protocols: Vec<String>,
        listen: Vec<String>,
        bootstrap: Vec<String>,
        announce: Vec<String>,
        mdns: bool,
        gossips: bool,
        gossip: GossipParameters,
        idle_streams: usize,
        validator: Option<&GossipValidator>,
        allowed: Vec<String>,
        limits: LimitParameters,
    ) -> PyResult<Self> {
        let length = identity.len();
        let wrong = |_| NetworkError::new_err(format!("the identity has {length} bytes; expected a seed of 32"));
        let identity = identity.try_into().map_err(wrong)?;
        let gossip = gossip.try_into()?;
        let control_bytes = CONTROL_BYTES;
        let (per_address, limits) = (limits.connections_per_address, limits.try_into()?);
        let config = Config {
            identity,
            topic,
            protocols,
            listen,
            bootstrap,
            announce,
            mdns,
            gossips,
            gossip,
            idle_streams,
            validator: validator.map(|validator| Arc::clone(&validator.0) as Arc<dyn gossiplog_net::Validator>),
            control_bytes,
            limits,
            per_address,
            allowed,
        };
        let inner = Arc::new(py.detach(|| gossiplog_net::Host::start(config)).map_err(convert)?);
        Ok(Self { streams: Streams::of(py, &inner)?, inner })
    }

    #[getter]
    fn peer_id(&self) -> String {
        self.inner.peer()
    }

    fn addresses(&self) -> PyResult<Vec<String>> {
        self.inner.addresses().map_err(convert)
    }

    fn dial(&self, address: &str) -> PyResult<u64> {
        self.inner.dial(address).map_err(convert)
    }

    fn block(&self, peer_id: &str) -> PyResult<()> {
        self.inner.block(peer_id).map_err(convert)
    }

    fn unblock(&self, peer_id: &str) -> PyResult<bool> {
        self.inner.unblock(peer_id).map_err(convert)
    }

    fn dial_peer(&self, peer_id: &str) -> PyResult<u64> {
        self.inner.dial_peer(peer_id).map_err(convert)
    }

    fn publish(&self, data: &[u8]) -> PyResult<bool> {
        self.inner.publish(data.to_vec()).map_err(convert)
    }

    fn gossip<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let message = |message: gossiplog_net::Message| {
            let gossiplog_net::Message { ticket, connection, peer_id, data } = message;
            GossipMessage { ticket, connection, peer_id, data: PyBytes::new(py, &data).unbind() }
        };
        PyList::new(py, self.inner.gossip().map_err(convert)?.into_iter().map(message).collect::<Vec<_>>())
    }

    fn validate(&self, answers: Vec<(u64, String)>) -> PyResult<()> {
        let answers = answers.iter().map(|(ticket, name)| answer(*ticket, name)).collect::<PyResult<Vec<_>>>()?;
        self.inner.validate(&answers).map_err(convert)
    }

    fn peers(&self) -> PyResult<Vec<PeerInfo>> {
        let info = |info: gossiplog_net::PeerInfo| PeerInfo {
            connection: info.connection,
            peer_id: info.peer_id,
            address: info.address,
            dialer: info.dialer,
            agent: info.status.agent,
            protocols: info.status.protocols,
            in_mesh: info.status.in_mesh,
            subscribed: info.status.subscribed,
            score: info.status.score,
            rtt: info.status.rtt,
        };
        Ok(self.inner.peers().map_err(convert)?.into_iter().map(info).collect())
    }

    fn fileno(&self) -> PyResult<i64> {
        self.inner.fileno().map_err(convert)
    }

    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let notices = self.inner.poll().map_err(convert)?;
        let events = notices.into_iter().map(|notice| object(py, notice)).collect::<PyResult<Vec<_>>>();
        PyList::new(py, events?)
    }

    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.inner.counts().map_err(convert)?;
        let figures = network_counts(py, &counts.network)?;
        figures.set_item("gossip_received", counts.gossip_received)?;
        figures.set_item("gossip_accepted", counts.gossip_accepted)?;
        figures.set_item("gossip_ignored", counts.gossip_ignored)?;
        figures.set_item("gossip_rejected", counts.gossip_rejected)?;
        figures.set_item("gossip_expired", counts.gossip_expired)?;
        figures.set_item("gossip_dropped", counts.gossip_dropped)?;
        figures.set_item("published", counts.published)?;
        figures.set_item("dials", counts.dials)?;
        figures.set_item("dials_failed", counts.dials_failed)?;
        figures.set_item("connections_refused", counts.refused)?;
        Ok(figures)
    }

    fn held(&self) -> PyResult<usize> {
        self.inner.held().map_err(convert)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.stop()).map_err(convert)
    }
}
