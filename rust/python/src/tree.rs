//! The prolly tree.

use gossiplog_core::tree::{self, Hash, Key, Leaf};
use gossiplog_core::{Error, parallel};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{Failure, convert};
use crate::nodes::{Node, Nodes, leaf, read_hash};
use crate::unlocked::{FEW, unlocked};

/// The hash of an entry of the tree: 16 bytes.
#[pyfunction]
pub fn leaf_hash<'py>(py: Python<'py>, key: &[u8], value: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &tree::leaf_hash(key, value))
}

/// Whether a hash begins a new node of the level above.
#[pyfunction]
pub fn is_boundary(hash: &[u8]) -> PyResult<bool> {
    Ok(tree::is_boundary(&read_hash(hash)?))
}

/// Holds an untrusted answer to GetChildren against the rules of the tree. Raises TreeError.
#[pyfunction]
pub fn check_children(parent: &Node, end: Option<&[u8]>, children: &Bound<'_, PyAny>) -> PyResult<()> {
    with_nodes(children, |nodes| {
        unlocked(children.py(), nodes.len() > FEW, || tree::check_children(&parent.0, end, nodes)).map_err(convert)
    })
}

fn with_nodes<T>(children: &Bound<'_, PyAny>, work: impl FnOnce(&[tree::Node]) -> PyResult<T>) -> PyResult<T> {
    match children.cast::<Nodes>() {
        Ok(nodes) => work(&nodes.get().0),
        Err(_) => work(&Nodes::new(children)?.0),
    }
}

/// `check_children` for an answer that comes in parts: it holds none of them.
#[pyclass(module = "gossiplog._core")]
pub struct ChildrenCheck(tree::ChildrenCheck);

#[pymethods]
impl ChildrenCheck {
    #[new]
    fn new(parent: &Node, end: Option<&[u8]>) -> PyResult<Self> {
        tree::ChildrenCheck::new(parent.0.clone(), end).map(Self).map_err(convert)
    }

    fn add(&mut self, children: &Bound<'_, PyAny>) -> PyResult<()> {
        with_nodes(children, |nodes| unlocked(children.py(), nodes.len() > FEW, || self.0.add(nodes)).map_err(convert))
    }

    #[getter]
    fn count(&self) -> usize {
        self.0.count()
    }

    #[getter]
    fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    fn finish(&self) -> PyResult<()> {
        self.0.finish().map_err(convert)
    }
}

fn load(leaves: Option<&Bound<'_, PyAny>>, start: &[u8], end: Option<&[u8]>) -> Result<Vec<Leaf>, Failure> {
    let Some(leaves) = leaves else {
        return Err(Error::Tree("this tree does not hold its leaves: the call needs a loader".to_owned()).into());
    };
    let py = leaves.py();
    let rows = leaves.call1((PyBytes::new(py, start), end.map(|end| PyBytes::new(py, end))))?;
    let rows = rows.try_iter()?.map(|row| leaf(&row?)).collect::<PyResult<Vec<_>>>();
    Ok(rows?)
}

/// Like `load`, from work without the interpreter's lock.
fn load_locked(leaves: Option<&Py<PyAny>>, start: &[u8], end: Option<&[u8]>) -> Result<Vec<Leaf>, Failure> {
    Python::attach(|py| load(leaves.map(|leaves| leaves.bind(py)), start, end))
}

fn rows(level1: &Bound<'_, PyAny>) -> PyResult<Vec<(Key, Hash)>> {
    level1.try_iter()?.map(|row| leaf(&row?).map(|leaf| (leaf.key, leaf.hash))).collect()
}

fn row_list<'py>(py: Python<'py>, rows: &[(Key, Hash)]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, rows.iter().map(|(key, hash)| (PyBytes::new(py, key), PyBytes::new(py, hash))))
}

/// A prolly tree.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct Tree(tree::Tree);

#[pymethods]
impl Tree {
    #[new]
    fn new() -> Self {
        Self(tree::Tree::new())
    }

    #[staticmethod]
    fn open(level1: &Bound<'_, PyAny>, count: u64) -> PyResult<Self> {
        let rows = rows(level1)?;
        unlocked(level1.py(), rows.len() > FEW, || tree::Tree::open(rows, count)).map(Self).map_err(convert)
    }

    #[pyo3(signature = (entries, leaves = None))]
    fn insert(&self, entries: &Bound<'_, PyAny>, leaves: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let py = entries.py();
        let entry = |item: PyResult<Bound<'_, PyAny>>| item?.extract::<(PyBackedBytes, PyBackedBytes)>();
        let entries: Vec<(PyBackedBytes, PyBackedBytes)> = entries.try_iter()?.map(entry).collect::<PyResult<_>>()?;
        let hashed = py.detach(|| {
            parallel::map(&entries, |(key, value)| Leaf { key: Key::from(&**key), hash: tree::leaf_hash(key, value) })
        });
        Ok(Self(self.grow(py, hashed, leaves)?.0))
    }

    #[pyo3(signature = (entries, leaves = None))]
    fn insert_leaves<'py>(
        &self,
        entries: &Bound<'py, PyList>,
        leaves: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Self, Bound<'py, PyList>)> {
        let py = entries.py();
        let hashed = entries.iter().map(|row| leaf(&row)).collect::<PyResult<Vec<_>>>()?;
        let (tree, rows) = self.grow(py, hashed, leaves)?;
        Ok((Self(tree), row_list(py, &rows)?))
    }

    fn level1<'py>(&self, py: Python<'py>, keys: Vec<PyBackedBytes>) -> PyResult<Bound<'py, PyList>> {
        row_list(py, &self.0.level1(keys.iter().map(|key| &**key)))
    }

    #[getter]
    fn root(&self) -> Node {
        Node(self.0.root())
    }

    #[pyo3(signature = (level, key, leaves = None))]
    fn node(&self, level: u32, key: Option<&[u8]>, leaves: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Node>> {
        let mut load = |start: &[u8], end: Option<&[u8]>| load(leaves, start, end);
        Ok(self.0.node::<Failure>(level, key, &mut load)?.map(Node))
    }

    #[pyo3(signature = (level, key, leaves = None))]
    fn children<'py>(
        &self,
        py: Python<'py>,
        level: u32,
        key: Option<&[u8]>,
        leaves: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        Node::list(py, self.span(level, key, leaves)?.0)
    }

    #[pyo3(signature = (level, key, leaves = None))]
    fn span(&self, level: u32, key: Option<&[u8]>, leaves: Option<&Bound<'_, PyAny>>) -> PyResult<Nodes> {
        if level == 0 {
            return Err(PyValueError::new_err("a node of level 0 has no children"));
        }
        // With the interpreter's lock, as in `unlocked`: a node has some thirty children.
        let mut load = |start: &[u8], end: Option<&[u8]>| load(leaves, start, end);
        match self.0.children::<Failure>(level, key, &mut load)? {
            Some(nodes) => Ok(Nodes(nodes)),
            None => Err(PyKeyError::new_err(format!("there is no node with this key at level {level}"))),
        }
    }

    fn differing<'py>(
        &self,
        py: Python<'py>,
        nodes: &Nodes,
        end: Option<&[u8]>,
    ) -> Vec<(Node, Option<Bound<'py, PyBytes>>)> {
        let found = unlocked(py, nodes.0.len() > FEW, || self.0.differing(&nodes.0, end));
        found.into_iter().map(|(node, end)| (Node(node.clone()), end.map(|end| PyBytes::new(py, end)))).collect()
    }

    #[pyo3(signature = (level, leaves = None))]
    fn nodes<'py>(
        &self,
        py: Python<'py>,
        level: u32,
        leaves: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let own = leaves.map(|leaves| leaves.clone().unbind());
        let mut load = |start: &[u8], end: Option<&[u8]>| load_locked(own.as_ref(), start, end);
        Node::list(py, py.detach(|| self.0.nodes::<Failure>(level, &mut load))?)
    }

    fn next_key<'py>(&self, py: Python<'py>, level: u32, key: Option<&[u8]>) -> Option<Bound<'py, PyBytes>> {
        self.0.next_key(level, key).map(|key| PyBytes::new(py, &key))
    }

    fn last(&self, level: u32) -> PyResult<Node> {
        let highest = self.0.root().level;
        let missing = || PyValueError::new_err(format!("level {level} is not from 1 to the root's level, {highest}"));
        self.0.last(level).map(Node).ok_or_else(missing)
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    #[pyo3(signature = (other, leaves = None, other_leaves = None))]
    fn diff(&self, other: &Self, leaves: Option<Py<PyAny>>, other_leaves: Option<Py<PyAny>>) -> Diff {
        Diff { diff: self.0.diff(&other.0), leaves, other_leaves }
    }
}

impl Tree {
    fn grow(
        &self,
        py: Python<'_>,
        entries: Vec<Leaf>,
        leaves: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(tree::Tree, Vec<(Key, Hash)>)> {
        let own = leaves.map(|leaves| leaves.clone().unbind());
        let mut load = |start: &[u8], end: Option<&[u8]>| load_locked(own.as_ref(), start, end);
        Ok(unlocked(py, entries.len() > FEW, || self.0.insert::<Failure>(entries, &mut load))?)
    }
}

/// Walks the keys that only the other tree has.
#[pyclass(module = "gossiplog._core")]
pub struct Diff {
    diff: tree::Diff,
    leaves: Option<Py<PyAny>>,
    other_leaves: Option<Py<PyAny>>,
}

#[pymethods]
impl Diff {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (own, other) =
            (self.leaves.as_ref().map(|it| it.bind(py)), self.other_leaves.as_ref().map(|it| it.bind(py)));
        let mut load_own = |start: &[u8], end: Option<&[u8]>| load(own, start, end);
        let mut load_other = |start: &[u8], end: Option<&[u8]>| load(other, start, end);
        let key = self.diff.next::<Failure>(&mut load_own, &mut load_other)?;
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }
}
