"""Messages of a log between two arrival sequences, as a DataFrame: of several encodings of one, the first alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from gossiplog.spark.source.locations import identity
from gossiplog.spark.source.options import STREAM_OPTIONS, read_options
from gossiplog.spark.source.reader import PARTITION_MESSAGES
from gossiplog.spark.source.schema import SCHEMA
from gossiplog.spark.source.stream_reader import LogStreamReader, Stretch

# Messages for which a task is worth its start.
_LEAST = 2**13


def changes(session: SparkSession, location: str, after: int, last: int) -> DataFrame:
    """Return the messages with sequences from after + 1 to last, in the columns of `SCHEMA`.

    Those of which another encoding arrived before are left out. The messages are always the same ones, since what has a
    sequence never changes.

    Args:
        session: of Spark.
        location: of the log.
        after: a sequence, 0 for the start of the log.
        last: a sequence that the log has.

    Raises:
        CorruptLog: on use, a damaged value.
        StorageError: the log cannot be read.
    """
    fewest = min(session.sparkContext.defaultParallelism, -(-(last - after) // _LEAST))
    partitions = str(max(fewest, -(-(last - after) // PARTITION_MESSAGES), 1))
    options = {"path": location, "encodings": "first", "mode": "failfast", "partitions": partitions}
    reader = LogStreamReader(read_options(options, STREAM_OPTIONS), SCHEMA)
    log = identity(location)
    parts = list(reader.partitions({log: after}, {log: last}))
    numbers = session.range(0, len(parts), 1, max(1, len(parts)))
    return numbers.mapInArrow(_Stretches(reader, parts), SCHEMA)


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Reads the stretches whose numbers come in."""

    reader: LogStreamReader
    parts: list[Stretch]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.parts[number])
