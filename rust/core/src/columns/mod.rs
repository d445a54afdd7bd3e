//! Messages in columns: Arrow arrays in, Arrow arrays out, for engines that hold data so.
//!
//! What comes in is looked at where it stands, not copied. Rows are judged apart: one that is null, or no message, does not stop
//! the others. Work goes to all cores, as in `batch`.

mod decode;
mod verify;

use arrow_array::builder::GenericByteBuilder;
use arrow_array::types::ByteArrayType;
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, GenericByteArray, LargeBinaryArray};
use arrow_schema::{ArrowError, DataType};

use crate::error::Error;
use crate::parallel;
use crate::tree::{Fragment, Hash, leaf_hash};

pub use decode::{Column, decode};
pub use verify::verify;

const MISSING_VALUE: &str = "the value is missing: null";

/// The rows of a binary array; None for null.
///
/// # Errors
/// [`Error::Column`] for an array of another type.
fn rows<'a>(name: &str, array: &'a dyn Array) -> Result<Vec<Option<&'a [u8]>>, Error> {
    let any = array.as_any();
    if let Some(array) = any.downcast_ref::<BinaryArray>() {
        return Ok(array.iter().collect());
    }
    if let Some(array) = any.downcast_ref::<LargeBinaryArray>() {
        return Ok(array.iter().collect());
    }
    if let Some(array) = any.downcast_ref::<FixedSizeBinaryArray>() {
        return Ok(array.iter().collect());
    }
    let found = array.data_type();
    Err(Error::Column(format!("{name} have the type {found}, expected Binary, LargeBinary or FixedSizeBinary")))
}

/// Whether an array of this type is one of bytes, as the functions here take them.
pub fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_))
}

fn same_length(keys: usize, name: &str, others: usize) -> Result<(), Error> {
    if keys == others {
        return Ok(());
    }
    Err(Error::Column(format!("there are {keys} keys and {others} {name}: they must be as many")))
}

/// Arrays that Arrow itself refuses to make: too large for their type's offsets.
fn arrow(error: ArrowError) -> Error {
    Error::Column(format!("the columns cannot be made ({error}): give fewer values at once"))
}

/// The array of these items.
///
/// # Errors
/// [`Error::Column`]: more than 2 GiB.
fn bytes<T: ByteArrayType<Offset = i32>, I: AsRef<T::Native>>(
    items: impl Iterator<Item = Option<I>>,
) -> Result<GenericByteArray<T>, Error> {
    let mut builder = GenericByteBuilder::<T>::new();
    for item in items {
        let item: Option<&T::Native> = item.as_ref().map(AsRef::as_ref);
        let size = item.map_or(0, |native| AsRef::<[u8]>::as_ref(native).len());
        fits(builder.values_slice(), size)?;
        builder.append_option(item);
    }
    Ok(builder.finish())
}

/// Asked before anything is appended to a column: Arrow's builders panic where 32-bit offsets overflow.
fn fits(column: &[u8], more: usize) -> Result<(), Error> {
    if column.len() + more > i32::MAX as usize {
        return Err(Error::Column("a column would have more than 2 GiB: give fewer values at once".into()));
    }
    Ok(())
}

/// The leaf hash of each entry; null where the key or the value is.
///
/// # Errors
/// [`Error::Column`]: arrays of other types, or of different lengths.
pub fn leaf_hashes(keys: &dyn Array, values: &dyn Array) -> Result<FixedSizeBinaryArray, Error> {
    let (keys, values) = (rows("the keys", keys)?, rows("the values", values)?);
    same_length(keys.len(), "values", values.len())?;
    let entries: Vec<_> = keys.into_iter().zip(values).collect();
    let hashes = parallel::map(&entries, |(key, value)| Some(leaf_hash((*key)?, (*value)?)));
    FixedSizeBinaryArray::try_from_sparse_iter_with_size(hashes.into_iter(), size_of::<Hash>() as i32).map_err(arrow)
}

/// The tree fragment of entries that ascend by key, from their keys and leaf hashes.
///
/// # Errors
/// [`Error::Column`]: arrays of other types or of different lengths, nulls, hashes of another length; and those of [`Fragment::new`].
pub fn fragment(keys: &dyn Array, hashes: &dyn Array) -> Result<Fragment, Error> {
    let (keys, hashes) = (rows("the keys", keys)?, rows("the hashes", hashes)?);
    same_length(keys.len(), "hashes", hashes.len())?;
    let mut entries = Vec::with_capacity(keys.len());
    for (row, (key, hash)) in keys.into_iter().zip(hashes).enumerate() {
        let (key, hash) = (present(row, "key", key)?, present(row, "hash", hash)?);
        let hash = Hash::try_from(hash).map_err(|_| {
            let expected = size_of::<Hash>();
            Error::Column(format!("the hash of row {row} has {} bytes, expected {expected}", hash.len()))
        })?;
        entries.push((key, hash));
    }
    Fragment::new(entries)
}

fn present<'a>(row: usize, name: &str, item: Option<&'a [u8]>) -> Result<&'a [u8], Error> {
    item.ok_or_else(|| Error::Column(format!("row {row} has no {name}: null")))
}
