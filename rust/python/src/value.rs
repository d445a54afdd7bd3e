//! Python values to canonical dag-cbor and back, without recursion on either side.

use gossiplog_core::cbor::events::events;
use gossiplog_core::cbor::{Item, MAX_OWN_DEPTH, Writer, key_order};
use gossiplog_core::cid;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMemoryView, PyString, PyTuple,
};

use crate::errors::{EncodeError, convert};

/// An IPLD link, in the binary form that is written.
#[pyclass(frozen, eq, hash, name = "CID", module = "gossiplog._core")]
#[derive(PartialEq, Eq, Hash)]
pub struct Cid(Vec<u8>);

#[pymethods]
impl Cid {
    #[new]
    fn new(data: &[u8]) -> PyResult<Self> {
        cid::normalize(data).map(Self).map_err(convert)
    }

    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        cid::parse(text).map(Self).map_err(convert)
    }

    fn __bytes__(&self) -> &[u8] {
        &self.0
    }

    fn __str__(&self) -> PyResult<String> {
        cid::format(&self.0).map_err(convert)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("CID.parse('{}')", self.__str__()?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().into_any(), (PyBytes::new(py, &self.0),)))
    }
}

/// A list or map whose items are still to be written.
enum Frame<'py> {
    List { items: Vec<Bound<'py, PyAny>>, done: usize },
    Map { entries: Vec<(String, Bound<'py, PyAny>)>, done: usize },
}

impl<'py> Frame<'py> {
    fn step(&self) -> String {
        match self {
            Self::List { done, .. } => format!("[{}]", done.saturating_sub(1)),
            Self::Map { entries, done } => match entries.get(done.saturating_sub(1)) {
                Some((key, _)) => format!(".{key}"),
                None => String::new(),
            },
        }
    }
}

/// Canonical dag-cbor of a Python value.
pub fn encode(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut writer = Writer::new();
    let mut stack: Vec<Frame<'_>> = Vec::new();
    let mut next = Some(value.clone());
    loop {
        if let Some(value) = next.take() {
            match encode_one(&value, &mut writer) {
                Ok(None) => {}
                Ok(Some(_)) if stack.len() >= MAX_OWN_DEPTH => {
                    let reason = format!("more than {MAX_OWN_DEPTH} lists and maps are nested");
                    return Err(EncodeError::new_err(reason));
                }
                Ok(Some(frame)) => stack.push(frame),
                Err(Refusal::Reason(reason)) => {
                    let path: String = stack.iter().map(Frame::step).collect();
                    return Err(EncodeError::new_err(format!("${path}: {reason}")));
                }
                Err(Refusal::Raised(error)) => return Err(error),
            }
        }
        match stack.last_mut() {
            None => break,
            Some(Frame::List { items, done }) => match items.get(*done) {
                Some(item) => {
                    *done += 1;
                    next = Some(item.clone());
                }
                None => {
                    stack.pop();
                }
            },
            Some(Frame::Map { entries, done }) => match entries.get(*done) {
                Some((key, item)) => {
                    *done += 1;
                    writer.item(Item::Text(key));
                    next = Some(item.clone());
                }
                None => {
                    stack.pop();
                }
            },
        }
    }
    Ok(writer.finish())
}

enum Refusal {
    Reason(String),
    Raised(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Reason(reason.into()))
}

fn text<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str, Refusal> {
    let Ok(text) = text.to_str() else {
        return refuse("a string with a lone surrogate is no text");
    };
    if text.starts_with('\u{feff}') {
        return refuse("a string begins with U+FEFF, which other peers drop");
    }
    Ok(text)
}

/// Writes a scalar, or the head of a list or map, whose items are returned.
fn encode_one<'py>(value: &Bound<'py, PyAny>, writer: &mut Writer) -> Result<Option<Frame<'py>>, Refusal> {
    if value.is_none() {
        writer.item(Item::Null);
    } else if let Ok(string) = value.cast::<PyString>() {
        writer.item(Item::Text(text(string)?));
    } else if let Ok(value) = value.cast::<PyBool>() {
        writer.item(Item::Bool(value.is_true()));
    } else if let Ok(value) = value.cast::<PyInt>() {
        let range = -(1_i128 << 64)..1_i128 << 64;
        match value.extract::<i64>().map(i128::from).or_else(|_| value.extract::<i128>()) {
            Ok(integer) if range.contains(&integer) => writer.item(Item::Integer(integer)),
            _ => return refuse("an integer must be from -2^64 to 2^64 - 1"),
        }
    } else if let Ok(value) = value.cast::<PyFloat>() {
        let value = value.value();
        if !value.is_finite() {
            return refuse(format!("{value} is no number that other peers accept"));
        }
        writer.item(Item::Float(value));
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        writer.item(Item::Bytes(bytes.as_bytes()));
    } else if let Ok(link) = value.cast::<Cid>() {
        writer.item(Item::Link(&link.get().0));
    } else if let Ok(dict) = value.cast::<PyDict>() {
        return map(dict.items().iter(), writer).map(Some);
    } else if let Ok(list) = value.cast::<PyList>() {
        writer.item(Item::List(list.len()));
        return Ok(Some(Frame::List { items: list.iter().collect(), done: 0 }));
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        writer.item(Item::List(tuple.len()));
        return Ok(Some(Frame::List { items: tuple.iter().collect(), done: 0 }));
    } else if value.cast::<PyByteArray>().is_ok() || value.cast::<PyMemoryView>().is_ok() {
        let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
        writer.item(Item::Bytes(bytes.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes()));
    } else if let Ok(mapping) = value.cast::<PyMapping>() {
        return map(mapping.items()?.iter(), writer).map(Some);
    } else {
        let name = value.get_type().fully_qualified_name()?;
        return refuse(format!(
            "a value of type {name} cannot be encoded; use None, bool, int, float, str, bytes, CID, list or dict"
        ));
    }
    Ok(None)
}

/// The canonical bytes of a boolean, number or string, or of bytes that are empty: canvas-js has those but once.
fn scalar(value: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    let comparable = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBool>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>();
    let is_bytes = value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.cast::<PyMemoryView>().is_ok();
    let mut writer = Writer::new();
    let written = (comparable || is_bytes) && matches!(encode_one(value, &mut writer), Ok(None));
    let scalar = written.then(|| writer.finish());
    scalar.filter(|written| comparable || *written == [0x40])
}

fn map<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>, writer: &mut Writer) -> Result<Frame<'py>, Refusal> {
    let mut entries = Vec::new();
    for item in items {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let Ok(key) = key.cast::<PyString>() else {
            let name = key.get_type().name()?;
            return refuse(format!("a map key must be a string, this is of type {name}"));
        };
        let key = text(key)?;
        if key == "__proto__" {
            return refuse("the map key __proto__ is dropped by other peers");
        }
        entries.push((key.to_owned(), value));
    }
    entries.sort_by(|(left, _), (right, _)| key_order(left, right));
    if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return refuse("a map key stands twice");
    }
    let under = |name: &str| entries.iter().find(|(key, _)| key == name).and_then(|(_, value)| scalar(value));
    if let (Some(slash), Some(bytes)) = (under("/"), under("bytes"))
        && slash == bytes
    {
        return refuse("the map's \"/\" equals its \"bytes\": other peers take that for a link and refuse it");
    }
    writer.item(Item::Map(entries.len()));
    Ok(Frame::Map { entries, done: 0 })
}

/// Items that are decoded before other threads may run: there may be millions.
const DECODED_AT_ONCE: usize = 1 << 12;

/// The Python value of canonical dag-cbor.
pub fn decode<'py>(py: Python<'py>, canonical: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let mut items = events(canonical);
    let mut stack: Vec<Open<'py, '_>> = Vec::new();
    let cut_off = || PyValueError::new_err("the input ends where an item should begin");
    let mut count = 0_usize;
    loop {
        count += 1;
        if count.is_multiple_of(DECODED_AT_ONCE) {
            py.detach(|| ());
        }
        let item = items.next_item().map_err(convert)?.ok_or_else(cut_off)?;
        let mut complete = match item {
            Item::List(remaining) => {
                stack.push(Open { built: Built::List(PyList::empty(py)), key: None, remaining });
                None
            }
            Item::Map(remaining) => {
                stack.push(Open { built: Built::Map(PyDict::new(py)), key: None, remaining });
                None
            }
            scalar => Some(decode_scalar(py, scalar)?),
        };
        loop {
            let Some(top) = stack.last_mut() else {
                return complete.ok_or_else(cut_off);
            };
            if let Some(value) = complete.take() {
                match &top.built {
                    Built::List(list) => list.append(value)?,
                    Built::Map(dict) => dict.set_item(top.key.take().unwrap_or(""), value)?,
                }
            }
            if top.remaining > 0 {
                top.remaining -= 1;
                if matches!(top.built, Built::Map(_)) {
                    let Some(Item::Text(key)) = items.next_item().map_err(convert)? else {
                        return Err(cut_off());
                    };
                    top.key = Some(key);
                }
                break;
            }
            complete = stack.pop().map(|open| match open.built {
                Built::List(list) => list.into_any(),
                Built::Map(dict) => dict.into_any(),
            });
        }
    }
}

/// A list or map that is being built.
struct Open<'py, 'a> {
    built: Built<'py>,
    key: Option<&'a str>,
    remaining: usize,
}

enum Built<'py> {
    List(Bound<'py, PyList>),
    Map(Bound<'py, PyDict>),
}

fn decode_scalar<'py>(py: Python<'py>, item: Item<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match item {
        Item::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Item::Integer(value) => match i64::try_from(value) {
            Ok(value) => value.into_pyobject(py)?.into_any(),
            Err(_) => value.into_pyobject(py)?.into_any(),
        },
        Item::Float(value) => PyFloat::new(py, value).into_any(),
        Item::Text(value) => PyString::new(py, value).into_any(),
        Item::Bytes(value) => PyBytes::new(py, value).into_any(),
        Item::Link(value) => Bound::new(py, Cid(value.to_vec()))?.into_any(),
        Item::Null | Item::List(_) | Item::Map(_) => py.None().into_bound(py),
    })
}
