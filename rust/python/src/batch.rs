//! Verifying messages by the batch, plans, and the ancestors' frontier.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use gossiplog_core::ancestors::{self, Record};
use gossiplog_core::batch::{self, CheckedValue, check, verify_signatures};
use gossiplog_core::id::Key;
use gossiplog_core::message;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyIterator, PyList, PySlice, PyTuple};

use crate::codec::key;
use crate::errors::{Failure, convert, invalid};
use crate::message::{SignedMessage, SigningKey, codec_of};
use crate::unlocked::{FEW, SHORT, unlocked};
use crate::value;

/// The verdicts over a batch of values.
#[pyclass(module = "gossiplog._core")]
pub struct Batch {
    values: Vec<PyBackedBytes>,
    verdicts: Vec<CheckedValue>,
}

fn keys<'py>(py: Python<'py>, keys: impl ExactSizeIterator<Item = Key>) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, keys.map(|key| PyBytes::new(py, &key)))
}

fn key_set(known: &Bound<'_, PyAny>) -> PyResult<HashSet<Key>> {
    known.try_iter()?.map(|item| key(item?.cast::<PyBytes>()?.as_bytes())).collect()
}

/// The verdicts on encoded messages, in their order, on all cores. `known` is given the keys, and returns those that need no
/// verdict because the log has them.
#[pyfunction]
#[pyo3(signature = (values, topic, known = None))]
pub fn verify_batch<'py>(
    py: Python<'py>,
    values: Vec<PyBackedBytes>,
    topic: &str,
    known: Option<Bound<'py, PyAny>>,
) -> PyResult<Batch> {
    let mut verdicts = py.detach(|| check(&values, topic));
    if let Some(known) = known {
        let fresh: Vec<Key> = verdicts.iter().filter_map(|verdict| verdict.fresh().map(|parsed| parsed.key)).collect();
        let known = key_set(&known.call1((keys(py, fresh.into_iter())?,))?)?;
        batch::drop_known(&mut verdicts, &known);
    }
    py.detach(|| verify_signatures(&values, &mut verdicts));
    Ok(Batch { values, verdicts })
}

/// Like verify_batch, for values that this process has just signed: everything is checked but the signatures.
#[pyfunction]
pub fn read_batch(py: Python<'_>, values: Vec<PyBackedBytes>, topic: &str) -> Batch {
    let verdicts = py.detach(|| check(&values, topic));
    Batch { values, verdicts }
}

/// The indices of the values that have another key than the one given. Values of no key, and keys of no value, are left out.
#[pyfunction]
pub fn misplaced(py: Python<'_>, keys: Vec<PyBackedBytes>, values: Vec<PyBackedBytes>) -> Vec<usize> {
    let pairs: Vec<_> = keys.iter().zip(&values).collect();
    // On this thread: the shared ones may be busy with signatures. A hash is cheap, so the lock is kept for eight times as
    // much as elsewhere.
    let size = pairs.iter().map(|(_, value)| value.len()).sum::<usize>();
    let is_long = pairs.len() > 8 * FEW || size > 8 * SHORT;
    let is_misplaced = |&(_, (key, value)): &(usize, &(&PyBackedBytes, &PyBackedBytes))| !message::has_key(value, key);
    unlocked(py, is_long, || pairs.iter().enumerate().filter(is_misplaced).map(|(index, _)| index).collect())
}

/// Signs messages, the first of which follows these parents (keys), and each other one the message before it: as many
/// of the payloads as take `size` bytes, one at least.
///
/// Raises EncodeError for what no message can have, DecodeError for a parent that is no key.
#[pyfunction]
#[pyo3(signature = (signing_key, topic, parents, payloads, codec = "dag-cbor", size = None))]
pub fn sign_chain(
    py: Python<'_>,
    signing_key: &SigningKey,
    topic: &str,
    parents: Vec<PyBackedBytes>,
    payloads: &Bound<'_, PyAny>,
    codec: &str,
    size: Option<usize>,
) -> PyResult<Batch> {
    let codec = codec_of(codec)?;
    let parents = parents.iter().map(|parent| key(parent)).collect::<PyResult<Vec<_>>>()?;
    let mut encoded = Vec::new();
    let mut room = size.unwrap_or(usize::MAX);
    for payload in payloads.try_iter()? {
        let payload = value::encode(&payload?)?;
        let length = payload.len();
        encoded.push(payload);
        if length >= room {
            break;
        }
        room -= length;
    }
    let signed = py.detach(|| batch::sign_chain(topic, &parents, &encoded, &signing_key.0, codec));
    let (values, verdicts) = signed.map_err(convert)?;
    Ok(Batch::new(py, &values, verdicts))
}

impl Batch {
    /// A batch of values that Python does not have yet.
    pub fn new(py: Python<'_>, values: &[Vec<u8>], verdicts: Vec<CheckedValue>) -> Self {
        Self { values: values.iter().map(|value| PyBytes::new(py, value).into()).collect(), verdicts }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The keys of the messages at these indices, without those that are invalid.
    ///
    /// # Errors
    /// IndexError for an index of none.
    pub fn keys_at(&self, indices: impl IntoIterator<Item = usize>) -> PyResult<Vec<Key>> {
        let key = |index: usize| match self.verdicts.get(index) {
            Some(verdict) => Ok(verdict.parsed().map(|parsed| parsed.key)),
            None => Err(PyIndexError::new_err(format!("the batch has {} messages, none at {index}", self.len()))),
        };
        indices.into_iter().filter_map(|index| key(index).transpose()).collect()
    }

    /// Whether working on all of it takes longer than the interpreter's lock should be held.
    fn is_long(&self) -> bool {
        self.values.len() > FEW || self.values.iter().map(|value| value.len()).sum::<usize>() > SHORT
    }

    fn planned(&self, py: Python<'_>, plan: batch::WritePlan) -> WritePlan {
        let values = plan.order.iter().map(|index| self.values[*index].clone_ref(py)).collect();
        WritePlan { plan, values, messages: PyOnceLock::new(), leaves: PyOnceLock::new() }
    }

    fn item<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        match &self.verdicts[index] {
            CheckedValue::Fresh(parsed) | CheckedValue::Duplicate(parsed) => {
                let value = self.values[index].clone_ref(py);
                Ok(Bound::new(py, SignedMessage::new(value, Arc::clone(parsed)))?.into_any())
            }
            CheckedValue::Invalid(reason) => Ok(invalid(reason).into_value(py).into_bound(py).into_any()),
        }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.values.len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        let py = slf.py();
        let batch = slf.borrow();
        let items: PyResult<Vec<_>> = (0..batch.values.len()).map(|index| batch.item(py, index)).collect();
        PyList::new(py, items?)?.try_iter()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let range = slice.indices(self.values.len() as isize)?;
            let indices = (0..range.slicelength).map(|step| (range.start + step as isize * range.step) as usize);
            let items: PyResult<Vec<_>> = indices.map(|index| self.item(py, index)).collect();
            return Ok(PyList::new(py, items?)?.into_any());
        }
        let Ok(position) = index.extract::<isize>() else {
            return Err(PyTypeError::new_err("a batch is indexed by integers and slices"));
        };
        let length = self.values.len() as isize;
        let position = if position < 0 { position + length } else { position };
        if !(0..length).contains(&position) {
            return Err(PyIndexError::new_err(format!("the batch has {length} messages")));
        }
        self.item(py, position as usize)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let one = |verdict: &CheckedValue| match verdict {
            CheckedValue::Fresh(parsed) | CheckedValue::Duplicate(parsed) => PyBytes::new(py, &parsed.key),
            CheckedValue::Invalid(reason) => PyBytes::new(py, reason.key.as_ref().map_or(&[], |key| &key[..])),
        };
        PyList::new(py, self.verdicts.iter().map(one))
    }

    #[getter]
    fn fresh(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.fresh().is_some()).count()
    }

    #[getter]
    fn duplicates(&self) -> Vec<usize> {
        let duplicate = |(index, verdict)| matches!(verdict, &CheckedValue::Duplicate(_)).then_some(index);
        self.verdicts.iter().enumerate().filter_map(duplicate).collect()
    }

    #[getter]
    fn invalid<'py>(&self, py: Python<'py>) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let invalid = |(_, verdict): &(usize, &CheckedValue)| matches!(verdict, CheckedValue::Invalid(_));
        let indices = self.verdicts.iter().enumerate().filter(invalid).map(|(index, _)| index);
        indices.map(|index| Ok((index, self.item(py, index)?))).collect()
    }

    fn drop_known(&mut self, known: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = key_set(known)?;
        unlocked(known.py(), self.is_long(), || batch::drop_known(&mut self.verdicts, &keys));
        Ok(())
    }

    fn fresh_keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let order = unlocked(py, self.is_long(), || batch::fresh_order(&self.verdicts));
        keys(py, order.into_iter().map(|(key, _)| key))
    }

    fn parents<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let parents = unlocked(py, self.is_long(), || batch::outer_parents(&self.values, &self.verdicts));
        keys(py, parents.into_iter())
    }

    #[pyo3(signature = (sequence, parents, links, refused = None, work = None, first_children = None), text_signature = "($self, sequence, parents, links, refused=(), work=None, first_children={})")]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        sequence: u64,
        parents: &Bound<'py, PyAny>,
        links: &Bound<'py, PyAny>,
        refused: Option<&Bound<'py, PyAny>>,
        work: Option<u64>,
        first_children: Option<HashMap<u64, u64>>,
    ) -> PyResult<WritePlan> {
        let known = sequences(parents)?;
        let refused: HashSet<usize> = numbers(refused)?;
        let first_children = first_children.unwrap_or_default();
        let links = links.clone().unbind();
        let mut load = |sequences: &[u64]| Python::attach(|py| load_links(links.bind(py), sequences));
        let work = work.unwrap_or(u64::MAX);
        let plan = unlocked(py, self.is_long(), || {
            let (values, verdicts) = (&self.values, &self.verdicts);
            batch::plan::<_, Failure>(values, verdicts, sequence, &known, first_children, &refused, work, &mut load)
        })?;
        Ok(self.planned(py, plan))
    }

    fn arrived(&self, py: Python<'_>, sequence: u64, parents: &Bound<'_, PyAny>) -> PyResult<WritePlan> {
        let known = sequences(parents)?;
        let plan = unlocked(py, self.is_long(), || batch::arrived(&self.values, &self.verdicts, sequence, &known));
        let plan = plan.map_err(convert)?;
        Ok(self.planned(py, plan))
    }
}

fn sequences(parents: &Bound<'_, PyAny>) -> PyResult<HashMap<Key, u64>> {
    let pair = |item: Bound<'_, PyAny>| {
        let (parent, sequence): (Bound<'_, PyBytes>, u64) = item.extract()?;
        Ok((key(parent.as_bytes())?, sequence))
    };
    parents.cast::<pyo3::types::PyMapping>()?.items()?.iter().map(pair).collect()
}

fn numbers<'py, T>(numbers: Option<&Bound<'py, PyAny>>) -> PyResult<HashSet<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr> + Eq + Hash,
{
    match numbers {
        Some(numbers) => numbers.try_iter()?.map(|number| number?.extract()).collect(),
        None => Ok(HashSet::new()),
    }
}

fn load_links(links: &Bound<'_, PyAny>, sequences: &[u64]) -> Result<Vec<Vec<u8>>, Failure> {
    let rows = links.call1((PyList::new(links.py(), sequences)?,))?;
    let rows = rows.try_iter()?.map(|row| Ok(row?.cast::<PyBytes>()?.as_bytes().to_vec()));
    Ok(rows.collect::<PyResult<Vec<_>>>()?)
}

/// What one transaction writes for a batch.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct WritePlan {
    plan: batch::WritePlan,
    values: Vec<PyBackedBytes>,
    // Made once: writers and followers of the log read them several times.
    messages: PyOnceLock<Py<PyList>>,
    leaves: PyOnceLock<Py<PyList>>,
}

#[pymethods]
impl WritePlan {
    #[getter]
    fn order(&self) -> Vec<usize> {
        self.plan.order.clone()
    }

    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyList>> {
        let row = |((value, links), sequence): ((&PyBackedBytes, &Vec<u8>), u64)| {
            (sequence, value, PyBytes::new(py, links)).into_pyobject(py)
        };
        let rows = || {
            let rows = self.values.iter().zip(&self.plan.links).zip(self.plan.first..);
            let rows: PyResult<Vec<Bound<'py, PyTuple>>> = rows.map(row).collect();
            Ok(PyList::new(py, rows?)?.unbind())
        };
        self.messages.get_or_try_init(py, rows).map(|rows| rows.bind(py))
    }

    #[getter]
    fn leaves<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyList>> {
        let row = |((key, hash), sequence): (&(Key, [u8; 16]), u64)| {
            (PyBytes::new(py, key), PyBytes::new(py, hash), sequence).into_pyobject(py)
        };
        let rows = || {
            let rows: PyResult<Vec<Bound<'py, PyTuple>>> =
                self.plan.leaves.iter().zip(self.plan.first..).map(row).collect();
            Ok(PyList::new(py, rows?)?.unbind())
        };
        self.leaves.get_or_try_init(py, rows).map(|rows| rows.bind(py))
    }

    #[getter]
    fn alternatives<'py>(&self, py: Python<'py>) -> Vec<(u64, Bound<'py, PyBytes>)> {
        self.plan.alternatives.iter().map(|(sequence, content)| (*sequence, PyBytes::new(py, content))).collect()
    }

    #[getter]
    fn children(&self) -> Vec<(u64, u64)> {
        self.plan.children.clone()
    }

    #[getter]
    fn heads_added<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, u64)> {
        self.plan.heads_added.iter().map(|(key, sequence)| (PyBytes::new(py, key), *sequence)).collect()
    }

    #[getter]
    fn heads_removed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        keys(py, self.plan.heads_removed.iter().copied())
    }

    #[getter]
    fn orphans<'py>(&self, py: Python<'py>) -> PyResult<Vec<(usize, Bound<'py, PyList>)>> {
        let one = |(index, missing): &(usize, Vec<Key>)| Ok((*index, keys(py, missing.iter().copied())?));
        self.plan.orphans.iter().map(one).collect()
    }

    #[getter]
    fn late(&self) -> Vec<usize> {
        self.plan.late.clone()
    }
}

/// The sequences, ascending, of a message's maximal proper ancestors at or before a clock.
#[pyfunction]
pub fn frontier(sequence: u64, clock: u64, links: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let (py, links) = (links.py(), links.clone().unbind());
    let mut load = |sequences: &[u64]| Python::attach(|py| load_links(links.bind(py), sequences));
    Ok(py.detach(|| ancestors::frontier::<Failure>(sequence, clock, &mut load))?)
}

/// Whether one message is a proper ancestor of another, both by their sequences.
#[pyfunction]
pub fn is_ancestor(ancestor: u64, sequence: u64, links: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (py, links) = (links.py(), links.clone().unbind());
    let mut load = |sequences: &[u64]| Python::attach(|py| load_links(links.bind(py), sequences));
    Ok(py.detach(|| ancestors::is_ancestor::<Failure>(ancestor, sequence, &mut load))?)
}

/// What a link record holds: the clock, and the link sets over the distances 1, 2, 4, …
#[pyfunction]
pub fn link_record(sequence: u64, record: &[u8]) -> PyResult<(u64, Vec<Vec<u64>>)> {
    let record = Record::decode(sequence, record).map_err(convert)?;
    Ok((record.clock, record.links))
}
