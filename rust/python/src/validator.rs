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
use pyo3::types::{PyBytes, PyList};

use crate::batch::Batch;
use crate::codec::key;

/// Messages that are taken at once: as many as a turn has of those that are stored first.
const MOST_TAKEN: usize = 1024;

/// Seconds, beyond which a time is none.
const LATEST: f64 = 1e12;

/// A validator, and what it has accepted that was not taken yet.
pub struct GossipChecks {
    validator: Validator,
    start: Instant,
    accepted: Mutex<VecDeque<AcceptedMessage>>,
    /// Has a host call it.
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
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

    /// Wake the host if something `has_become_due`.
    fn wake(&self, has_become_due: bool) {
        if has_become_due {
            let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(wake) = wake {
                wake();
            }
        }
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

    fn due(&self) -> Option<Duration> {
        self.validator.due(self.start.elapsed())
    }

    fn wake_by(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let before = self.wake.lock().unwrap_or_else(PoisonError::into_inner).replace(wake.into());
        drop(before);
    }

    fn has_accepted(&self) -> bool {
        !self.accepted().is_empty()
    }

    fn asks(&self) -> bool {
        self.validator.has_missing()
    }
}

/// Seconds as a time, which may be added to.
fn moment(now: f64) -> PyResult<Duration> {
    let is_given = (0.0..LATEST).contains(&now);
    let found = if is_given { Duration::try_from_secs_f64(now).ok() } else { None };
    found.ok_or_else(|| PyValueError::new_err(format!("now is {now}: it must be seconds, from 0 to {LATEST:e}")))
}

/// Decides which messages of gossip are accepted before they are stored.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct GossipValidator(pub(crate) Arc<GossipChecks>);

#[pymethods]
impl GossipValidator {
    #[new]
    fn new(topic: String) -> Self {
        Self(Arc::new(GossipChecks {
            validator: Validator::new(topic),
            start: Instant::now(),
            accepted: Mutex::default(),
            wake: Mutex::default(),
        }))
    }

    fn due(&self, py: Python<'_>, now: f64) -> PyResult<Option<f64>> {
        let now = moment(now)?;
        Ok(py.detach(|| self.0.validator.due(now)).map(|due| due.as_secs_f64()))
    }

    fn validate(
        &self,
        py: Python<'_>,
        messages: Vec<(u64, u64, PyBackedBytes)>,
        now: f64,
    ) -> PyResult<Vec<(u64, &'static str)>> {
        let now = moment(now)?;
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

    fn take_missing<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let missing = py.detach(|| self.0.validator.take_missing());
        PyList::new(py, missing.iter().map(|key| PyBytes::new(py, key)))
    }

    fn stored(&self, py: Python<'_>, keys: Vec<PyBackedBytes>) -> PyResult<()> {
        let keys: Vec<Key> = keys.iter().map(|item| key(item)).collect::<PyResult<_>>()?;
        py.detach(|| self.0.wake(self.0.validator.stored(keys)));
        Ok(())
    }

    fn stored_batch(&self, py: Python<'_>, batch: &Batch, indices: Vec<usize>) -> PyResult<()> {
        let keys = batch.keys_at(indices)?;
        py.detach(|| self.0.wake(self.0.validator.stored(keys)));
        Ok(())
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.wake(self.0.validator.close()));
    }

    fn finish(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let keys = batch.keys_at(0..batch.len())?;
        py.detach(|| self.0.wake(self.0.validator.finish(keys)));
        Ok(())
    }
}
