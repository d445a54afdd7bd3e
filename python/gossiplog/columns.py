"""Messages in columns: batches as Arrow arrays, for engines that hold data so.

Each function takes binary arrays (`binary`, `large_binary` or `fixed_size_binary`, sliced or not): pyarrow's, or any
object's with `__arrow_c_array__`. They are read where they stand, on all cores, without the GIL. Rows are judged apart:
a null, or a value that is no message, does not stop the others.

This module needs pyarrow (`pip install gossiplog[arrow]`) and the compiled core; nothing else imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gossiplog import _core
from gossiplog._core import Fragment
from gossiplog.errors import ColumnError

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError("gossiplog.columns needs pyarrow: pip install gossiplog[arrow]") from error

__all__ = ["Fragment", "decode", "fragment", "gather", "leaf_hashes", "verify"]


def decode(values: Any, topic: str, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return what stored values hold, one row for each.

    Everything is checked that `core.read_batch` checks, which is all but the signatures. In the row of a value that
    is no message, all columns but `error` are null.

    Args:
        values: stored values.
        topic: of the log.
        columns: which columns to make, in this order; None for all. Others cost nothing.

    Returns:
        Of these columns, all of which may be null: `id` (string), `key` (binary), `clock` (int64), `topic`, `author`,
        `codec` (string), `parents` (list of string: ids, as they stand), `parent_keys` (list of binary), `payload`
        (string: dag-json; null also for the rare one that has no form in it, because of a link that is too long),
        `size` (int64: the value's bytes), `canonical` (bool), `content_id` (string: the id of the
        canonical encoding) and `error` (string: what makes the value no message).

    Raises:
        ColumnError: an array that is of another type or damaged; an unknown column, one twice, or none at all; more
            than 2 GiB of text in a column.
    """
    return pa.record_batch(_core.decode_columns(_array("values", values), topic, columns))


def verify(keys: Any | None, values: Any, topic: str, columns: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the verdicts over stored values: everything that `core.verify_batch` checks, signatures by the batch.

    Args:
        keys: those that the values are stored under, or None. A value that does not hash to its key is an error.
        values: stored values.
        topic: of the log.
        columns: those of `decode`, but `key` and `error`, to be made from the same look at the values.

    Returns:
        `key` (binary): as given, or else the message's own, null where the value is too broken to have one; and `error`
        (string): null for a message. A repetition is no error; a null is one. Then the columns that were asked for,
        null where the value is no message, or not that of its key: where just the signature does not hold, they are
        there.

    Raises:
        ColumnError: arrays that are of another type, of different lengths or damaged; an unknown column, or one twice;
            more than 2 GiB of text in a column.
    """
    given = None if keys is None else _array("keys", keys)
    return pa.record_batch(_core.verify_columns(given, _array("values", values), topic, columns))


def gather(
    rows: Iterator[tuple[Any, ...]], columns: Mapping[str, type[int | bytes]], most: int, size: int
) -> pa.RecordBatch:
    """Return the next rows of an iterator, as a database's driver yields them. No further row is asked for.

    Args:
        rows: tuples with an item for each column.
        columns: names, and what the items are: `int` becomes int64, `bytes` binary.
        most: rows.
        size: bytes after which no more rows are taken, though there are fewer.

    Returns:
        The columns; no rows if there are no more.

    Raises:
        ColumnError: a row of another shape; more than 2 GiB in a column.
        Exception: what the iterator raises.
    """
    return pa.record_batch(_core.gather_columns(rows, list(columns.items()), most, size))


def leaf_hashes(keys: Any, values: Any) -> pa.FixedSizeBinaryArray:
    """Return the 16-byte hashes of entries in the tree; null where the key or the value is.

    Raises:
        ColumnError: arrays that are of another type, of different lengths or damaged.
    """
    return pa.array(_core.leaf_hash_column(_array("keys", keys), _array("values", values)))


def fragment(keys: Any, hashes: Any) -> Fragment:
    """Return the tree fragment of entries whose keys ascend. That of a longer run is joined from those of its batches.

    Args:
        keys: of the entries.
        hashes: as `leaf_hashes` makes them.

    Raises:
        ColumnError: arrays that are of another type, of different lengths or damaged; nulls; hashes of another length.
        TreeError: an empty key, or one that is not above the one before it.
    """
    return _core.fragment_of_columns(_array("keys", keys), _array("hashes", hashes))


def _array(name: str, values: Any) -> pa.Array:
    """Return an array whose buffers are as long as its offsets say.

    Only pyarrow can see that: the core checks the rest.
    """
    if isinstance(values, pa.ChunkedArray):
        raise ColumnError(f"the {name} are a chunked array: give one chunk at a time, or combine_chunks() them")
    try:
        array = values if isinstance(values, pa.Array) else pa.array(values)
        array.validate()
    except (pa.ArrowException, TypeError) as error:
        raise ColumnError(f"the {name} are no Arrow array that holds together: {error}") from error
    return array
