//! Associative fragments of the prolly tree.

use gossiplog_core::tree;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::convert;
use crate::nodes::{Node, leaf};
use crate::unlocked::{FEW, SHORT, unlocked};

/// What a run of neighbouring entries contributes to a tree.
#[pyclass(frozen, eq, module = "gossiplog._core")]
#[derive(PartialEq, Eq)]
pub struct Fragment(pub(crate) tree::Fragment);

#[pymethods]
impl Fragment {
    #[new]
    #[pyo3(signature = (leaves = None), text_signature = "(leaves=())")]
    fn new(py: Python<'_>, leaves: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let rows = leaves.map(|leaves| leaves.try_iter()?.map(|row| leaf(&row?)).collect::<PyResult<Vec<_>>>());
        let rows = rows.transpose()?.unwrap_or_default();
        let made = || tree::Fragment::new(rows.iter().map(|leaf| (&*leaf.key, leaf.hash)));
        unlocked(py, rows.len() > FEW, made).map(Self).map_err(convert)
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        unlocked(py, data.len() > SHORT, || tree::Fragment::from_bytes(data)).map(Self).map_err(convert)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    fn join(&self, right: &Self) -> PyResult<Self> {
        self.0.join(&right.0).map(Self).map_err(convert)
    }

    #[getter]
    fn root(&self) -> Node {
        Node(self.0.root())
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.len()
    }

    #[getter]
    fn first<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.range().map(|(first, _)| PyBytes::new(py, first))
    }

    #[getter]
    fn last<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.range().map(|(_, last)| PyBytes::new(py, last))
    }
}
