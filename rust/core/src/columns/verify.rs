//! Verdicts in columns.

use std::sync::Arc;

use arrow_array::types::{BinaryType, Utf8Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::decode::{Column, Row, build, repeats};
use super::{MISSING_VALUE, arrow, bytes, rows, same_length};
use crate::batch::{CheckedValue, verify_signatures};
use crate::error::Error;
use crate::id::{self, Key};
use crate::message::{Invalid, parse};
use crate::parallel;

const MISSING_KEY: &str = "the key is missing: null";

/// A value, and the key that it is stored under.
struct Entry<'a> {
    stored: Option<&'a [u8]>,
    value: &'a [u8],
}

impl AsRef<[u8]> for Entry<'_> {
    fn as_ref(&self) -> &[u8] {
        self.value
    }
}

/// What [`crate::batch`] checks about each value, its signature included: its key, and an error that is null for a message that
/// every peer accepts; then columns of the message.
///
/// With keys given, the column repeats them, and a value that does not hash to its key is an error, too. Otherwise the keys are the
/// messages' own, null where a value is too broken to have one. A repetition is no error. A null is one.
///
/// The other columns are null where a value is no message or not that of its key, but not where just its signature does not hold.
///
/// # Errors
/// [`Error::Column`]: arrays of other types or of different lengths; a column twice, or one that is there anyway; more than 2 GiB of
/// text in a column.
pub fn verify(
    keys: Option<&dyn Array>,
    values: &dyn Array,
    topic: &str,
    columns: &[Column],
) -> Result<RecordBatch, Error> {
    if repeats(columns) || columns.iter().any(|column| matches!(column, Column::Key | Column::Error)) {
        return Err(Error::Column("the columns beside key and error must be others, none of them twice".into()));
    }
    let values = rows("the values", values)?;
    let keys = keys.map(|keys| rows("the keys", keys)).transpose()?;
    if let Some(keys) = &keys {
        same_length(keys.len(), "values", values.len())?;
    }
    let stored = |row: usize| keys.as_ref().and_then(|keys| keys[row]);
    let entries: Vec<Entry<'_>> = values
        .iter()
        .enumerate()
        .filter_map(|(row, value)| Some(Entry { stored: stored(row), value: (*value)? }))
        .collect();
    let mut verdicts = parallel::map(&entries, |entry| judge(entry, topic));
    // Before the signatures: what does not hold stays a message otherwise.
    let mut judged = entries.iter().zip(&verdicts);
    let found = values.iter().enumerate().map(|(row, value)| {
        let (entry, verdict) = value.and_then(|_| judged.next()).ok_or(MISSING_VALUE)?;
        match verdict {
            _ if keys.is_some() && stored(row).is_none() => Err(MISSING_KEY),
            CheckedValue::Fresh(parsed) | CheckedValue::Duplicate(parsed) => Ok((entry.value, parsed.as_ref())),
            CheckedValue::Invalid(invalid) => Err(invalid.reason.as_str()),
        }
    });
    let parts = build(&found.collect::<Vec<Row<'_>>>(), columns)?;
    verify_signatures(&entries, &mut verdicts);

    let mut verdicts = verdicts.iter();
    let verdicts: Vec<_> = values.iter().map(|value| value.and_then(|_| verdicts.next())).collect();
    let shown = |(row, verdict): (usize, &Option<&'_ CheckedValue>)| match &keys {
        Some(keys) => keys[row].map(<[u8]>::to_vec),
        None => verdict.and_then(own).map(|key| key.to_vec()),
    };
    let error = |(row, verdict): (usize, &Option<&'_ CheckedValue>)| match verdict {
        None => Some(MISSING_VALUE.to_owned()),
        Some(_) if keys.is_some() && stored(row).is_none() => Some(MISSING_KEY.to_owned()),
        Some(CheckedValue::Invalid(invalid)) => Some(invalid.reason.clone()),
        Some(CheckedValue::Fresh(_) | CheckedValue::Duplicate(_)) => None,
    };
    let keys = bytes::<BinaryType, _>(verdicts.iter().enumerate().map(shown))?;
    let errors = bytes::<Utf8Type, _>(verdicts.iter().enumerate().map(error))?;
    let field = |name, data_type| Arc::new(Field::new(name, data_type, true));
    let mut fields = vec![field("key", DataType::Binary), field("error", DataType::Utf8)];
    fields.extend(parts.schema().fields().iter().map(Arc::clone));
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(errors)];
    arrays.extend_from_slice(parts.columns());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(arrow)
}

/// The key that a value hashes to.
fn own(verdict: &CheckedValue) -> Option<&Key> {
    match verdict {
        CheckedValue::Fresh(parsed) | CheckedValue::Duplicate(parsed) => Some(&parsed.key),
        CheckedValue::Invalid(invalid) => invalid.key.as_ref(),
    }
}

/// Everything but the signature.
fn judge(entry: &Entry<'_>, topic: &str) -> CheckedValue {
    let verdict = match parse(entry.value, topic) {
        Ok(parsed) => CheckedValue::Fresh(Arc::new(parsed)),
        Err(invalid) => CheckedValue::Invalid(invalid),
    };
    match (entry.stored, own(&verdict)) {
        (Some(stored), Some(own)) if stored != own => {
            let reason = format!("the value does not hash to its key but to that of {}", id::encode(own));
            CheckedValue::Invalid(Invalid { reason, key: Some(*own) })
        }
        _ => verdict,
    }
}
