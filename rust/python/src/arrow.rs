//! Arrow arrays through the PyCapsule interface: the one place with unsafe code.
//!
//! Source: "The Arrow PyCapsule Interface" and "The Arrow C data interface", arrow.apache.org/docs/format.

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_schema::DataType;
use gossiplog_core::Error;
use gossiplog_core::columns::is_binary;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::errors::convert;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

fn refuse(reason: impl ToString) -> PyErr {
    convert(Error::Column(reason.to_string()))
}

/// An array of bytes from any object with `__arrow_c_array__`, without a copy.
///
/// # Errors
/// ColumnError: another object or type, offsets that do not ascend or go beyond the last one, a wrong number of nulls. That the
/// buffers are as long as the last offset says cannot be seen from here: the interface does not state their size.
pub fn import(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let Ok(method) = object.getattr("__arrow_c_array__") else {
        let name = object.get_type().name()?;
        return Err(refuse(format!("{name} is no Arrow array: it has no __arrow_c_array__")));
    };
    let capsules = method.call0()?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = capsules.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: by the interface, capsules of these names hold these structures, which live as long as the capsules do.
    #[expect(unsafe_code, reason = "foreign memory")]
    let (schema, array) = unsafe { (schema.as_ref(), FFI_ArrowArray::from_raw(array.as_ptr())) };
    let data_type = DataType::try_from(schema).map_err(refuse)?;
    if !is_binary(&data_type) {
        return Err(refuse(format!(
            "the array has the type {data_type}, expected Binary, LargeBinary or FixedSizeBinary"
        )));
    }
    check(&array, &data_type)?;
    // SAFETY: by the interface, the buffers are as long as length, offset and offsets say; what can be checked of that
    // is checked before and after.
    #[expect(unsafe_code, reason = "foreign memory")]
    let data = unsafe { from_ffi(array, schema) }.map_err(refuse)?;
    data.validate_full().map_err(refuse)?;
    Ok(make_array(data))
}

/// What `from_ffi` takes for granted.
fn check(array: &FFI_ArrowArray, data_type: &DataType) -> PyResult<()> {
    if array.is_released() {
        return Err(refuse("the array was released, or taken by another"));
    }
    // Both are signed: a negative number would be beyond any memory.
    let end = array.len().checked_add(array.offset()).filter(|end| *end < isize::MAX as usize / 32);
    let buffers = if matches!(data_type, DataType::FixedSizeBinary(_)) { 2 } else { 3 };
    if end.is_none() || array.num_buffers() != buffers || (end > Some(0) && array.buffer(1).is_null()) {
        return Err(refuse("the array's length, offset and buffers are not those of its type"));
    }
    Ok(())
}

/// An array on its way to another library, which takes it through the PyCapsule interface without a copy.
#[pyclass(frozen, module = "gossiplog._core")]
pub struct ArrowArray(ArrayRef);

impl ArrowArray {
    pub fn new(array: impl Array + 'static) -> Self {
        Self(std::sync::Arc::new(array))
    }
}

#[pymethods]
impl ArrowArray {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, FFI_ArrowSchema::try_from(self.0.data_type()).map_err(refuse)?, SCHEMA)
    }

    /// The schema asked for is passed over, as the interface allows: who wants another casts.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        let (array, schema) = to_ffi(&self.0.to_data()).map_err(refuse)?;
        let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
        PyTuple::new(py, [schema, PyCapsule::new_with_value(py, array, ARRAY)?])
    }
}
