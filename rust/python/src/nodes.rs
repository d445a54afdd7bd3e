//! Nodes of the prolly tree, single and in rows.

use gossiplog_core::tree::{self, Hash, Key, Leaf};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors::{TreeError, convert};
use crate::unlocked::{FEW, SHORT, unlocked};

/// Reads a hash. Raises TreeError.
pub fn read_hash(data: &[u8]) -> PyResult<Hash> {
    Hash::try_from(data)
        .map_err(|_| TreeError::new_err(format!("a hash has {} bytes, this has {}", size_of::<Hash>(), data.len())))
}

/// A node of the tree.
#[pyclass(frozen, eq, hash, module = "gossiplog._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Node(pub(crate) tree::Node);

impl Node {
    pub(crate) fn list<'py>(py: Python<'py>, nodes: Vec<tree::Node>) -> PyResult<Bound<'py, PyList>> {
        let nodes: PyResult<Vec<_>> = nodes.into_iter().map(|node| Bound::new(py, Self(node))).collect();
        PyList::new(py, nodes?)
    }
}

#[pymethods]
impl Node {
    #[new]
    fn new(level: u32, key: Option<&[u8]>, hash: &[u8]) -> PyResult<Self> {
        Ok(Self(tree::Node { level, key: key.map(Key::from), hash: read_hash(hash)? }))
    }

    #[getter]
    fn level(&self) -> u32 {
        self.0.level
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.key.as_ref().map(|key| PyBytes::new(py, key))
    }

    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.hash)
    }

    fn __repr__(&self) -> String {
        let hex = |data: &[u8]| data.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let key = self.0.key.as_ref().map_or_else(|| "None".to_owned(), |key| hex(key));
        format!("<Node level={} key={key} hash={}>", self.0.level, hex(&self.0.hash))
    }
}

/// A row that begins with a key and a hash.
pub(crate) fn leaf(row: &Bound<'_, PyAny>) -> PyResult<Leaf> {
    let row = row.cast::<PyTuple>()?;
    let (key, hash) = (row.get_item(0)?, row.get_item(1)?);
    Ok(Leaf { key: Key::from(key.cast::<PyBytes>()?.as_bytes()), hash: read_hash(hash.cast::<PyBytes>()?.as_bytes())? })
}

/// Nodes in a row, as an answer to GetChildren holds them: an object for each is made only on access.
#[pyclass(frozen, eq, module = "gossiplog._core")]
#[derive(PartialEq, Eq)]
pub struct Nodes(pub(crate) Vec<tree::Node>);

#[pymethods]
impl Nodes {
    #[new]
    pub(crate) fn new(nodes: &Bound<'_, PyAny>) -> PyResult<Self> {
        nodes.try_iter()?.map(|node| Ok(node?.cast::<Node>()?.get().0.clone())).collect::<PyResult<_>>().map(Self)
    }

    #[staticmethod]
    fn decode(py: Python<'_>, data: &[u8]) -> Option<Self> {
        unlocked(py, data.len() > SHORT, || tree::decode_children(data)).map(Self)
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &unlocked(py, self.0.len() > FEW, || tree::encode_children(&self.0)))
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> =
            self.0.iter().filter_map(|node| node.key.as_ref()).map(|key| PyBytes::new(py, key)).collect();
        PyList::new(py, keys)
    }

    fn lacking<'py>(&self, stored: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = stored.py();
        let stored = stored.try_iter()?.map(|row| leaf(&row?)).collect::<PyResult<Vec<Leaf>>>()?;
        let keys = unlocked(py, self.0.len() > FEW, || tree::lacking(&self.0, &stored)).map_err(convert)?;
        PyList::new(py, keys.into_iter().map(|key| PyBytes::new(py, key)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let nodes = Node::list(slf.py(), slf.get().0.clone())?;
        Ok(nodes.try_iter()?.into_any())
    }
}
