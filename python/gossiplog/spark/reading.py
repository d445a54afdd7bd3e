"""Reading logs in key-range partitions, as of one state of each, page by page as Arrow batches.

A partition opens the log for itself, wherever it runs. The state is pinned when the partitions are made: messages that
arrive later have larger sequences and are passed over, so no transaction stays open for as long as a job takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from gossiplog.errors import CorruptLog
from gossiplog.spark.decoding import decode, encode_ids
from gossiplog.spark.locations import locations, opened
from gossiplog.spark.options import ReadOptions
from gossiplog.spark.schema import STORED

# A few seconds' work for a task: starting one costs some tens of milliseconds.
_PARTITION_MESSAGES = 2**17
# Messages in a batch, where their values do not end the page before.
_BATCH = 2**14


@dataclass(frozen=True, slots=True)
class KeyRange(InputPartition):
    """The part of a log that one task reads.

    Attributes:
        location: of the log.
        topic: of the log.
        count: of messages in the state that is read.
        start: the least key, itself included.
        end: the key before which it ends, None at the end of the log.
    """

    location: str
    topic: str
    count: int
    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A log as it was when the partitions were made."""

    location: str
    topic: str
    count: int


class LogReader(DataSourceReader):
    """Reads what the options ask for.

    Args:
        options: of the read.
        schema: the columns that are wanted.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = Columns(schema, options.mode, options.authors)

    def partitions(self) -> Sequence[KeyRange]:
        """Ranges of keys, of about equal numbers of messages, in the order of the logs and of the keys.

        Raises:
            NotALog: a path that names no log.
            TopicMismatch: a log of another topic than the options want.
            StorageError: a log that cannot be read.
        """
        found = [self._look(location) for location in locations(self._options.paths)]
        total = sum(log.count for log in found)
        wanted = self._options.partitions or -(-total // _PARTITION_MESSAGES)
        return [
            partition for log in found for partition in self._ranges(log, round(wanted * log.count / max(total, 1)))
        ]

    def _look(self, location: str) -> _Found:
        with opened(location, self._options.topic) as (storage, topic), storage.reader() as reader:
            return _Found(location, topic, reader.position().count)

    def _ranges(self, log: _Found, parts: int) -> list[KeyRange]:
        first, last = self._options.bounds
        if last is not None and last <= first:
            return []
        with opened(log.location, log.topic) as (storage, _), storage.reader(single=True) as reader:
            dividers = reader.dividers(first, last, max(parts, 1))
        starts, ends = [first, *dividers], [*dividers, last]
        return [
            KeyRange(log.location, log.topic, log.count, start, end) for start, end in zip(starts, ends, strict=True)
        ]

    def read(self, partition: KeyRange) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The messages of a partition, ascending by key.

        Raises:
            CorruptLog: a damaged file, or with the mode failfast a damaged value.
            StorageError: a log that cannot be read.
        """
        start = partition.start
        with opened(partition.location, partition.topic) as (storage, _):
            while True:
                with storage.reader(single=True) as reader:
                    if self._columns.values:
                        rows = reader.scan(start, partition.end, _BATCH, partition.count)
                        sequences, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
                    else:
                        pairs = reader.scan_keys(start, partition.end, _BATCH, partition.count)
                        sequences, keys = zip(*pairs, strict=True) if pairs else ((), ())
                        values = ()
                if not keys:
                    return
                yield self._columns.batch(partition.location, partition.topic, sequences, keys, values)
                start = keys[-1] + b"\0"


class Columns:
    """Makes batches of some columns.

    Args:
        schema: the columns that are wanted.
        mode: "permissive" or "failfast", for values that are damaged.
        authors: whose messages are wanted; None takes all.

    Attributes:
        values: whether stored values are needed at all.
    """

    def __init__(self, schema: StructType, mode: str, authors: Sequence[str] | None) -> None:
        self._names = schema.fieldNames()
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._failfast = mode == "failfast"
        self._authors = None if authors is None else pa.array(authors, pa.string())
        self._decodes = not STORED.issuperset(self._names) or authors is not None or self._failfast
        self.values = self._decodes or not {"value", "size"}.isdisjoint(self._names)

    def batch(
        self, location: str, topic: str, sequences: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]
    ) -> pa.RecordBatch:
        """The columns of messages of one log, one row each.

        Raises:
            CorruptLog: a damaged value, in the mode failfast.
        """
        columns: dict[str, pa.Array] = {"key": pa.array(keys, pa.binary()), "seq": pa.array(sequences, pa.int64())}
        if self.values:
            columns["value"] = pa.array(values, pa.binary())
            columns["size"] = pc.binary_length(columns["value"])
        if self._decodes:
            columns |= self._decoded(columns["value"], columns["key"], location, topic)
        if "log" in self._names:
            columns["log"] = pa.repeat(pa.scalar(location, pa.string()), len(keys))
        arrays = [columns[field.name].cast(field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if self._authors is None else batch.filter(pc.is_in(columns["author"], self._authors))

    def _decoded(self, values: pa.Array, keys: pa.Array, location: str, topic: str) -> dict[str, pa.Array]:
        decoded = decode(values, topic)
        # Damaged is a value that is no message, and one that is another message than its key says.
        sound = pc.fill_null(pc.equal(decoded["key"], keys), False)
        damaged = pc.indices_nonzero(pc.invert(sound))
        columns = {name: decoded[name] for name in decoded.schema.names if name != "key"}
        if len(damaged) == 0:
            return columns
        ids = encode_ids(keys.to_pylist())
        if self._failfast:
            names = [ids[index] or f"with the key {keys[index].as_py().hex()}" for index in damaged.to_pylist()]
            raise CorruptLog([f"{location}: the stored value of message {name} is not that message" for name in names])
        columns = {name: pc.if_else(sound, column, None) for name, column in columns.items()}
        return columns | {"id": pa.array(ids, pa.string())}
