//! Rows of a database, as its driver yields them, in columns.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int64Builder};
use arrow_array::{ArrayRef, RecordBatch, StructArray};
use arrow_schema::{Field, Schema};
use gossiplog_core::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyTuple, PyType};

use crate::arrow::ArrowArray;
use crate::errors::convert;

enum Column {
    Integers(Int64Builder),
    Bytes(BinaryBuilder),
}

impl Column {
    fn new(kind: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = kind.py();
        if kind.is(py.get_type::<PyInt>()) {
            return Ok(Self::Integers(Int64Builder::new()));
        }
        if kind.is(py.get_type::<PyBytes>()) {
            return Ok(Self::Bytes(BinaryBuilder::new()));
        }
        Err(refuse(format!("a column cannot be of the type {kind}, expected int or bytes")))
    }

    /// Takes an item, and says how many bytes it adds.
    fn push(&mut self, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        match self {
            Self::Integers(builder) => {
                builder.append_value(item.extract()?);
                Ok(size_of::<i64>())
            }
            Self::Bytes(builder) => {
                let bytes = item.cast::<PyBytes>()?.as_bytes();
                if builder.values_slice().len() + bytes.len() > i32::MAX as usize {
                    return Err(refuse("a column would have more than 2 GiB: gather fewer bytes at once"));
                }
                builder.append_value(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Integers(mut builder) => Arc::new(builder.finish()),
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
        }
    }
}

fn refuse(reason: impl Into<String>) -> PyErr {
    convert(Error::Column(reason.into()))
}

/// The next rows of an iterator: so many, or fewer if they exceed so many bytes.
#[pyfunction]
pub fn gather_columns(
    rows: &Bound<'_, PyAny>,
    columns: Vec<(String, Bound<'_, PyType>)>,
    most: usize,
    size: usize,
) -> PyResult<ArrowArray> {
    let mut parts = columns.iter().map(|(_, kind)| Column::new(kind)).collect::<PyResult<Vec<_>>>()?;
    let (mut taken, mut bytes) = (0, 0);
    let mut rows = rows.try_iter()?;
    while taken < most && bytes <= size {
        let Some(row) = rows.next() else { break };
        let row = row?;
        let row = row.cast::<PyTuple>()?;
        if row.len() != parts.len() {
            let (found, expected) = (row.len(), parts.len());
            return Err(refuse(format!("row {taken} has {found} items, expected {expected}")));
        }
        for (part, (item, (name, _))) in parts.iter_mut().zip(row.iter_borrowed().zip(&columns)) {
            bytes += part.push(&item).map_err(|error| refuse(format!("row {taken}, column {name:?}: {error}")))?;
        }
        taken += 1;
    }
    let arrays: Vec<_> = parts.into_iter().map(Column::finish).collect();
    let field = |((name, _), array): (&(String, _), &ArrayRef)| Field::new(name, array.data_type().clone(), true);
    let schema = Schema::new(columns.iter().zip(&arrays).map(field).collect::<Vec<_>>());
    let batch = RecordBatch::try_new(Arc::new(schema), arrays).map_err(|error| refuse(error.to_string()))?;
    Ok(ArrowArray::new(StructArray::from(batch)))
}
