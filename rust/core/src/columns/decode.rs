//! What messages hold, in columns.

use std::sync::Arc;

use arrow_array::builder::{GenericByteBuilder, ListBuilder};
use arrow_array::types::{BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, RecordBatchOptions, make_array};
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::{MISSING_VALUE, arrow, bytes, fits, rows};
use crate::error::Error;
use crate::id::{ID_LENGTH, Key};
use crate::message::{Parsed, parse};
use crate::{id, json, parallel};

/// A column that [`decode`] can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Utf8: the message's id.
    Id,
    /// Binary: its key.
    Key,
    /// Int64: its clock.
    Clock,
    /// Utf8: the topic.
    Topic,
    /// Utf8: the author's did:key in its shortest form.
    Author,
    /// Utf8: the codec of the signature.
    Codec,
    /// List of Utf8: the parents' ids, in the order in which they stand.
    Parents,
    /// List of Binary: the parents' keys, in the same order.
    ParentKeys,
    /// Utf8: the payload in dag-json; null also for the rare one that has no form in it, because of a link that is too long.
    Payload,
    /// Int64: the bytes of the value.
    Size,
    /// Boolean: whether the value is the encoding that honest peers write, see [`Parsed::is_canonical`].
    Canonical,
    /// Utf8: the id of the canonical encoding, see [`Parsed::content_key`].
    ContentId,
    /// Utf8: what makes the value no message; null for a message.
    Error,
}

impl Column {
    /// All of them, in their usual order.
    pub const ALL: [Self; 13] = [
        Self::Id,
        Self::Key,
        Self::Clock,
        Self::Topic,
        Self::Author,
        Self::Codec,
        Self::Parents,
        Self::ParentKeys,
        Self::Payload,
        Self::Size,
        Self::Canonical,
        Self::ContentId,
        Self::Error,
    ];

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Key => "key",
            Self::Clock => "clock",
            Self::Topic => "topic",
            Self::Author => "author",
            Self::Codec => "codec",
            Self::Parents => "parents",
            Self::ParentKeys => "parent_keys",
            Self::Payload => "payload",
            Self::Size => "size",
            Self::Canonical => "canonical",
            Self::ContentId => "content_id",
            Self::Error => "error",
        }
    }

    /// The column of this name.
    ///
    /// # Errors
    /// [`Error::Column`] for another name.
    pub fn from_name(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|column| column.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Column(format!("there is no column {name:?}, expected some of {names}"))
        })
    }

    fn field(self) -> Field {
        let data_type = match self {
            Self::Key => DataType::Binary,
            Self::Clock | Self::Size => DataType::Int64,
            Self::Canonical => DataType::Boolean,
            Self::Parents => DataType::new_list(DataType::Utf8, true),
            Self::ParentKeys => DataType::new_list(DataType::Binary, true),
            Self::Id | Self::Topic | Self::Author | Self::Codec | Self::Payload | Self::ContentId | Self::Error => {
                DataType::Utf8
            }
        };
        Field::new(self.name(), data_type, true)
    }
}

/// A value and the message that it holds, or what makes it none.
pub(super) type Row<'a> = Result<(&'a [u8], &'a Parsed), &'a str>;

/// One row for each value, with these columns: everything is checked but signatures. In the row of a value that is no message, all but
/// the error is null. A column that is not asked for costs nothing.
///
/// # Errors
/// [`Error::Column`]: an array of another type, no columns or one twice, more than 2 GiB of text in a column.
pub fn decode(values: &dyn Array, topic: &str, columns: &[Column]) -> Result<RecordBatch, Error> {
    if columns.is_empty() || repeats(columns) {
        return Err(Error::Column("the columns must be one or more, none of them twice".into()));
    }
    let values = rows("the values", values)?;
    in_shares(&values, &schema(columns), |share| {
        let parsed: Vec<_> = share.iter().map(|value| read(*value, topic)).collect();
        let rows = share.iter().zip(&parsed).map(|(value, parsed)| match parsed {
            Ok(parsed) => Ok((value.unwrap_or_default(), parsed)),
            Err(reason) => Err(reason.as_str()),
        });
        arrays(&rows.collect::<Vec<Row<'_>>>(), columns)
    })
}

fn read(value: Option<&[u8]>, topic: &str) -> Result<Parsed, String> {
    let value = value.ok_or(MISSING_VALUE)?;
    parse(value, topic).map_err(|invalid| invalid.reason)
}

/// Whether a column is there twice.
pub(super) fn repeats(columns: &[Column]) -> bool {
    columns.iter().enumerate().any(|(index, column)| columns[..index].contains(column))
}

fn schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|column| column.field()).collect::<Vec<_>>()))
}

/// These columns of messages.
///
/// # Errors
/// [`Error::Column`]: more than 2 GiB of text in a column.
pub(super) fn build(rows: &[Row<'_>], columns: &[Column]) -> Result<RecordBatch, Error> {
    in_shares(rows, &schema(columns), |share| arrays(share, columns))
}

/// What `part` makes of consecutive shares of the items, put together.
fn in_shares<T: Sync>(
    items: &[T],
    schema: &SchemaRef,
    part: impl Fn(&[T]) -> Result<Vec<ArrayRef>, Error> + Sync + Send,
) -> Result<RecordBatch, Error> {
    let batch = |rows: usize, columns: Vec<ArrayRef>| {
        // There may be no columns.
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(arrow)
    };
    let mut parts = parallel::shares(items, part).into_iter().collect::<Result<Vec<_>, Error>>()?;
    if parts.len() == 1 {
        return batch(items.len(), parts.remove(0));
    }
    let joined = |column: usize| concatenated(&parts.iter().map(|arrays| arrays[column].to_data()).collect::<Vec<_>>());
    batch(items.len(), (0..schema.fields().len()).map(joined).collect::<Result<_, _>>().map_err(arrow)?)
}

/// One array with the rows of these, which have one type. arrow-select has the same, and compiles for a third of the time that this crate
/// takes.
fn concatenated(arrays: &[ArrayData]) -> Result<ArrayRef, ArrowError> {
    let rows = arrays.iter().map(ArrayData::len).sum();
    let mut whole = MutableArrayData::new(arrays.iter().collect(), false, rows);
    for (index, array) in arrays.iter().enumerate() {
        whole.try_extend(index, 0, array.len())?;
    }
    Ok(make_array(whole.freeze()))
}

fn arrays(rows: &[Row<'_>], columns: &[Column]) -> Result<Vec<ArrayRef>, Error> {
    columns.iter().map(|column| array(*column, rows)).collect()
}

/// What `part` makes of each message; None in the rows of values that are none.
fn each<'a, T>(rows: &'a [Row<'a>], part: impl Fn(&'a [u8], &'a Parsed) -> T) -> impl Iterator<Item = Option<T>> {
    rows.iter().map(move |row| row.ok().map(|(value, parsed)| part(value, parsed)))
}

fn array(column: Column, rows: &[Row<'_>]) -> Result<ArrayRef, Error> {
    Ok(match column {
        Column::Id => texts(each(rows, |_, parsed| id::encode(&parsed.key)))?,
        Column::Key => Arc::new(bytes::<BinaryType, _>(each(rows, |_, parsed| parsed.key))?),
        Column::Clock => Arc::new(Int64Array::from_iter(each(rows, |_, parsed| parsed.clock as i64))),
        Column::Topic => texts(each(rows, |value, parsed| parsed.topic(value)))?,
        Column::Author => texts(each(rows, |value, parsed| parsed.did(value)))?,
        Column::Codec => texts(each(rows, |_, parsed| parsed.codec.name()))?,
        Column::Parents => Arc::new(parents::<Utf8Type, _>(rows, id::encode)?),
        Column::ParentKeys => Arc::new(parents::<BinaryType, _>(rows, Key::clone)?),
        Column::Payload => texts(each(rows, |value, parsed| payload(parsed.payload(value))).map(Option::flatten))?,
        Column::Size => Arc::new(Int64Array::from_iter(each(rows, |value, _| value.len() as i64))),
        Column::Canonical => Arc::new(BooleanArray::from_iter(each(rows, |_, parsed| parsed.is_canonical()))),
        Column::ContentId => texts(each(rows, |value, parsed| id::encode(&parsed.content_key(value))))?,
        Column::Error => texts(rows.iter().map(|row| row.err()))?,
    })
}

fn texts<T: AsRef<str>>(items: impl Iterator<Item = Option<T>>) -> Result<ArrayRef, Error> {
    Ok(Arc::new(bytes::<Utf8Type, _>(items)?))
}

fn payload(canonical: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(2 * canonical.len());
    json::write(canonical, &mut text).ok()?;
    String::from_utf8(text).ok()
}

fn parents<T: ByteArrayType<Offset = i32>, N: AsRef<T::Native>>(
    rows: &[Row<'_>],
    name: impl Fn(&Key) -> N,
) -> Result<ListArray, Error> {
    let mut lists = ListBuilder::new(GenericByteBuilder::<T>::new());
    for row in rows {
        if let Ok((value, parsed)) = row {
            for parent in parsed.parents(value) {
                fits(lists.values().values_slice(), ID_LENGTH)?;
                lists.values().append_value(name(&parent));
            }
        }
        lists.append(row.is_ok());
    }
    Ok(lists.finish())
}
