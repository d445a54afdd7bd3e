//! Nodes of the prolly tree, in rows.

use gossiplog_core::tree::{self, Leaf};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::convert;
use crate::tree::{Node, leaf};
use crate::unlocked::{FEW, SHORT, unlocked};

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
