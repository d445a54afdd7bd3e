//! Messages in columns.

use arrow_array::StructArray;
use gossiplog_core::columns::{self, Column};
use pyo3::prelude::*;

use crate::arrow::{ArrowArray, import};
use crate::errors::convert;
use crate::fragment::Fragment;

/// The columns of a batch of values.
#[pyfunction]
#[pyo3(signature = (values, topic, columns = None))]
pub fn decode_columns(values: &Bound<'_, PyAny>, topic: &str, columns: Option<Vec<String>>) -> PyResult<ArrowArray> {
    let wanted = columns.map_or_else(|| Ok(Column::ALL.to_vec()), |names| named(&names))?;
    let array = import(values)?;
    let batch = values.py().detach(|| columns::decode(&array, topic, &wanted)).map_err(convert)?;
    Ok(ArrowArray::new(StructArray::from(batch)))
}

fn named(names: &[String]) -> PyResult<Vec<Column>> {
    names.iter().map(|name| Column::from_name(name)).collect::<Result<_, _>>().map_err(convert)
}

/// The verdicts over a batch of values.
#[pyfunction]
pub fn verify_columns(
    keys: Option<&Bound<'_, PyAny>>,
    values: &Bound<'_, PyAny>,
    topic: &str,
    columns: Vec<String>,
) -> PyResult<ArrowArray> {
    let wanted = named(&columns)?;
    let keys = keys.map(import).transpose()?;
    let array = import(values)?;
    let batch = values.py().detach(|| columns::verify(keys.as_deref(), &array, topic, &wanted)).map_err(convert)?;
    Ok(ArrowArray::new(StructArray::from(batch)))
}

/// The leaf hashes of a batch of entries.
#[pyfunction]
pub fn leaf_hash_column(keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
    let (own, array) = (import(keys)?, import(values)?);
    keys.py().detach(|| columns::leaf_hashes(&own, &array)).map(ArrowArray::new).map_err(convert)
}

/// The tree fragment of a batch of entries.
#[pyfunction]
pub fn fragment_of_columns(keys: &Bound<'_, PyAny>, hashes: &Bound<'_, PyAny>) -> PyResult<Fragment> {
    let (own, array) = (import(keys)?, import(hashes)?);
    keys.py().detach(|| columns::fragment(&own, &array)).map(Fragment).map_err(convert)
}
