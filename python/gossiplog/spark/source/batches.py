"""Stored messages as the record batches that Spark was promised."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from gossiplog import core
from gossiplog.columns import decode, gather
from gossiplog.errors import CorruptLog
from gossiplog.log import encodings
from gossiplog.spark.source.options import METADATA, SCHEMA, STORED, ReadOptions, pruned
from gossiplog.storage.base import Reader, ScanColumn

BATCH = 2**13
"""Messages in a batch, at most."""
_BATCH_BYTES = 2**22
_STORED: Mapping[ScanColumn, type[int | bytes]] = {"seq": int, "key": bytes, "value": bytes}
_DECODED = [name for name in SCHEMA.fieldNames() if name not in STORED]


def gathered(rows: Iterator[tuple[Any, ...]], names: Sequence[ScanColumn]) -> pa.RecordBatch:
    """Return the next rows of a log, as many as a batch has; none at their end.

    Args:
        rows: as a storage reads them.
        names: of a row's parts.
    """
    return gather(rows, {name: _STORED[name] for name in names}, BATCH, _BATCH_BYTES)


class Columns:
    """Makes batches of some columns.

    A value that is no message, or another than its key says, is damaged: every column that would be decoded from it is
    null. With the mode dropmalformed its row is left out, with failfast it is an error.

    Args:
        options: of the read.
        schema: the columns that are wanted.

    Attributes:
        schema: of the batches.
        scanned: what has to be read of the stored messages, the key always.
        has_problems: whether a log that cannot be read has a row that says why.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._failfast = options.mode == "failfast"
        self._drops_damaged = options.mode == "dropmalformed"
        self._first_alone = options.encodings == "first"
        self._authors = None if options.authors is None else pa.array(options.authors, pa.string())
        wanted = {*schema.fieldNames(), *(() if options.authors is None else ("author",))}
        self._decoded = [name for name in _DECODED if name in wanted]
        # What is the same in every row of a log.
        self._constants = [name for name in ("log", *METADATA.fieldNames()) if name in wanted]
        self._wants_size = "size" in wanted
        self.has_problems = "log_problem" in wanted
        self._decodes = bool(self._decoded) or options.mode != "permissive"
        values = self._decodes or not {"value", "size"}.isdisjoint(wanted)
        self.scanned: list[ScanColumn] = ["key"]
        if values:
            self.scanned.append("value")
        if "seq" in wanted or self._failfast or self._first_alone:
            self.scanned.append("seq")

    def batch(
        self,
        location: str,
        topic: str,
        stored: pa.RecordBatch,
        reader: Reader,
        *,
        path: str | None = None,
        size: int | None = None,
    ) -> pa.RecordBatch:
        """Return the columns of messages of one log, one row each.

        Messages of other authors and other encodings than are wanted have no row, nor have damaged ones where these are
        left out.

        Args:
            location: of the log.
            topic: of the log.
            stored: the columns that are in `scanned`; without keys, the values' own are taken.
            reader: of the log, in this state or a later one.
            path: of the log, for the column `log_path`.
            size: of the log, for the column `log_size`.

        Raises:
            CorruptLog: a damaged value, in the mode failfast.
        """
        columns = dict(zip(stored.schema.names, stored.columns, strict=True))
        if self._wants_size:
            columns["size"] = pc.binary_length(columns["value"])
        sound: pa.BooleanArray | None = None
        if self._decodes or "key" not in columns:
            sound = self._decode(columns, topic)
        constants = {"log": location, "log_path": path, "log_size": size, "log_problem": None}
        for name in self._constants:
            columns[name] = pa.repeat(pa.scalar(constants[name], self.schema.field(name).type), len(stored))
        arrays = [columns[field.name].cast(field.type) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        wanted: list[pa.BooleanArray] = []
        if self._drops_damaged and sound is not None:
            wanted.append(sound)
        if self._authors is not None:
            wanted.append(pc.is_in(columns["author"], self._authors))
        if self._first_alone and (duplicates := _duplicates(reader, columns["seq"], columns["key"])):
            wanted.append(pc.invert(pc.is_in(columns["seq"], pa.array(duplicates, pa.int64()))))
        return batch.filter(reduce(pc.and_, wanted)) if wanted else batch

    def problem(self, location: str, text: str, *, path: str | None = None, size: int | None = None) -> pa.RecordBatch:
        """Return the row of a log that cannot be read.

        Args:
            location: of the log.
            text: why.
            path: as `batch` takes it.
            size: likewise.
        """
        row = {"log": location, "log_path": path, "log_size": size, "log_problem": text}
        return pa.RecordBatch.from_pylist([row], self.schema)

    def _decode(self, columns: dict[str, pa.Array], topic: str) -> pa.BooleanArray | None:
        """Add the decoded columns, and the key where there is none; return which rows are sound, None if all are."""
        decoded = decode(columns["value"], topic, ["key", *self._decoded])
        columns.update({name: decoded[name] for name in self._decoded})
        keys = columns.setdefault("key", decoded["key"])
        sound = pc.fill_null(pc.equal(decoded["key"], keys), False)
        damaged = pc.indices_nonzero(pc.invert(sound))
        if len(damaged) == 0:
            return None
        if self._failfast:
            raise CorruptLog(_damage(columns["seq"].take(damaged), keys.take(damaged)))
        columns.update({name: pc.if_else(sound, columns[name], None) for name in self._decoded})
        if "id" in self._decoded:
            # What a damaged message is called is known from its key.
            columns["id"] = pc.replace_with_mask(columns["id"], pc.invert(sound), _ids(keys.take(damaged)))
        return sound


def columns_of(*names: str) -> Columns:
    """Return what makes batches of some columns of all messages of a log, whether damaged or not."""
    return Columns(ReadOptions(()), pruned(names))


def _duplicates(reader: Reader, sequences: pa.Array, keys: pa.Array) -> Collection[int]:
    """Return the sequences of those of the messages of which another encoding arrived before."""
    if not reader.position().alternative:
        return ()
    numbers = sequences.to_pylist()
    contents = {sequence: key for sequence, key in zip(numbers, keys.to_pylist(), strict=True) if key is not None}
    contents |= reader.contents(numbers)
    # Most messages have no other encoding: nothing more is looked up for them.
    several = reader.alternatives([*{*contents.values()}])
    contents = {sequence: content for sequence, content in contents.items() if content in several}
    return [*encodings.stored_duplicates(reader, contents)] if contents else ()


def _ids(keys: pa.Array) -> pa.Array:
    """Return the ids of stored keys; null for one that is no key, as a damaged file may have it."""
    known = (key if key is not None and len(key) == core.KEY_LENGTH else None for key in keys.to_pylist())
    return pa.array([None if key is None else core.encode_id(key) for key in known], pa.string())


def _damage(sequences: pa.Array, keys: pa.Array) -> list[str]:
    # The caller adds which log it is.
    named = zip(sequences.to_pylist(), _ids(keys).to_pylist(), strict=True)
    return [
        f"what is stored of message {id or 'without an id'}, of sequence {sequence}, is not that message"
        for sequence, id in named
    ]
