//! Gossip that is accepted before it is stored: `gossiplog_core::validator`, for a host and for Python.

use std::collections::VecDeque;
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gossiplog_core::batch::drop_repetitions;
use gossiplog_core::id::Key;
use gossiplog_core::validator::{self as core, AcceptedMessage, Decision, Validator};
use gossiplog_net::Publication;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::batch::Batch;
use crate::codec::key;

/// Messages that are taken at once: as many as a turn has of those that are stored first.
const MOST_TAKEN: usize = 1024;

/// A validator, and what it has accepted that was not taken yet.
pub struct GossipChecks {
    validator: Validator,
    start: Instant,
    accepted: Mutex<VecDeque<AcceptedMessage>>,
}

impl Debug for GossipChecks {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("GossipChecks").finish_non_exhaustive()
    }
}

impl GossipChecks {
    fn accepted(&self) -> MutexGuard<'_, VecDeque<AcceptedMessage>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, publications: Vec<core::Publication>, now: Duration) -> Vec<(core::Publication, Decision)> {
        let validated = self.validator.validate(publications, now);
        self.accepted().extend(validated.accepted);
        validated.decisions
    }
}

impl gossiplog_net::Validator for GossipChecks {
    fn validate(&self, messages: Vec<(u64, Publication)>) -> Vec<(u64, Publication, bool)> {
        let given = |(ticket, Publication { source, data })| core::Publication { ticket, source, data };
        let decided = |(core::Publication { ticket, source, data }, decision)| {
            (ticket, Publication { source, data }, decision != Decision::Defer)
        };
        let publications = messages.into_iter().map(given).collect();
        self.decide(publications, self.start.elapsed()).into_iter().map(decided).collect()
    }

    fn waits(&self) -> bool {
        self.validator.waits()
    }

    fn has_accepted(&self) -> bool {
        !self.accepted().is_empty()
    }
}

/// Decides which messages of gossip are accepted before they are stored.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct GossipValidator(pub(crate) Arc<GossipChecks>);

#[pymethods]
impl GossipValidator {
    #[new]
    fn new(topic: String) -> Self {
        let (validator, start, accepted) = (Validator::new(topic), Instant::now(), Mutex::default());
        Self(Arc::new(GossipChecks { validator, start, accepted }))
    }

    #[getter]
    fn waits(&self) -> bool {
        self.0.validator.waits()
    }

    fn validate(
        &self,
        py: Python<'_>,
        messages: Vec<(u64, u64, PyBackedBytes)>,
        now: f64,
    ) -> PyResult<Vec<(u64, &'static str)>> {
        let wrong = |error| PyValueError::new_err(format!("now is {now}: {error}"));
        let now = Duration::try_from_secs_f64(now).map_err(wrong)?;
        let publication = |(ticket, source, data): (u64, u64, PyBackedBytes)| core::Publication {
            ticket,
            source,
            data: data.to_vec(),
        };
        let decisions = py.detach(|| self.0.decide(messages.into_iter().map(publication).collect(), now));
        let name = |(publication, decision): (core::Publication, Decision)| match decision {
            Decision::Accept => (publication.ticket, "accept"),
            Decision::Known => (publication.ticket, "known"),
            Decision::Defer => (publication.ticket, "defer"),
        };
        let mut named: Vec<_> = decisions.into_iter().map(name).collect();
        named.sort_unstable();
        Ok(named)
    }

    fn take(&self, py: Python<'_>) -> Option<(Batch, Vec<u64>)> {
        let mut waiting = self.0.accepted();
        let count = waiting.len().min(MOST_TAKEN);
        let accepted: Vec<_> = waiting.drain(..count).collect();
        drop(waiting);
        if accepted.is_empty() {
            return None;
        }
        let (mut sources, mut values, mut verdicts) = (Vec::new(), Vec::new(), Vec::new());
        for AcceptedMessage { source, value, verdict } in accepted {
            sources.push(source);
            values.push(value);
            verdicts.push(verdict);
        }
        // What was forgotten before it was taken may have been accepted again.
        drop_repetitions(&mut verdicts);
        Some((Batch::new(py, &values, verdicts), sources))
    }

    fn stored(&self, keys: Vec<PyBackedBytes>) -> PyResult<()> {
        let keys: Vec<Key> = keys.iter().map(|item| key(item)).collect::<PyResult<_>>()?;
        self.0.validator.stored(keys);
        Ok(())
    }

    fn stored_batch(&self, batch: &Batch, indices: Vec<usize>) {
        self.0.validator.stored(indices.into_iter().filter_map(|index| batch.key(index)));
    }

    fn close(&self) {
        self.0.validator.close();
    }

    fn finish(&self, batch: &Batch) {
        self.0.validator.finish((0..batch.len()).filter_map(|index| batch.key(index)));
    }
}
