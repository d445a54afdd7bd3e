"""Reading logs in key-range partitions, as of one state of each, page by page as Arrow batches.

A partition opens the log for itself, wherever it runs. The state is pinned when the partitions are made: messages that
arrive later have larger sequences and are passed over, so no transaction stays open for as long as a job takes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gossiplog.errors import CursorOutdated, StorageError
from gossiplog.spark.source.batches import Columns, gathered
from gossiplog.spark.source.locations import identity, is_missing, opened
from gossiplog.spark.source.options import SCHEMA, ReadOptions
from gossiplog.spark.source.remote import is_remote, size_of

PARTITION_MESSAGES = 2**18
"""Messages in a partition, where nothing else is asked for: a quarter of a second to read, several seconds to verify.
A task costs some 70 milliseconds of its own, a third of them for the garbage collection after which PySpark's workers
take the next."""

PARTITION_BYTES = 128 * 2**20
"""Bytes of a log in a partition, at most about: as Spark's `maxPartitionBytes` for files."""
LEAST_PARTITION_BYTES = 4 * 2**20
"""Bytes of a log for which a task of its own is worth its start while processors are idle: as Spark's
`openCostInBytes`. Of messages of 300 bytes these are 10,000, which take 0.13 s of processor time with all columns; the
task takes some 0.07 s."""

MANY_MESSAGES = 250_000
"""Messages from which a read of all columns is remarked on. A count of 100,000 messages of 300 bytes takes 1.3 s of
processor time with all columns, 0.5 s with the key alone."""
# A sequence that no log has.
_ALL = 2**63 - 1
_log = logging.getLogger("gossiplog.spark")


def number_of_partitions(messages: int, size: int) -> int:
    """Return how many partitions logs are read in, where nothing else is asked for.

    Where they are small, there is one for each processor of the driver's machine; those of executors are not known to
    a data source.

    Args:
        messages: of all logs.
        size: of all logs, in bytes.
    """
    idle = min(os.cpu_count() or 1, -(-size // LEAST_PARTITION_BYTES))
    return max(idle, -(-messages // PARTITION_MESSAGES), -(-size // PARTITION_BYTES))


@dataclass(frozen=True, slots=True)
class KeyRange(InputPartition):
    """The part of a log that one task reads.

    Attributes:
        name: of the log, as the read has it.
        location: of the log, wherever the task runs.
        count: of messages in the state that is read.
        generation: of the log in that state; None of one that nobody has looked into, which is copied whole.
        size: of the log in that state, in bytes.
        start: the least key, itself included.
        end: the key before which it ends, None at the end of the log.
    """

    name: str
    location: str
    topic: str | None
    count: int
    generation: int | None
    size: int
    start: bytes
    end: bytes | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A log as it was when the partitions were made."""

    location: str
    topic: str | None
    count: int
    generation: int | None
    size: int


class LogReader(DataSourceReader):
    """Reads what the options ask for.

    Args:
        options: of the read.
        schema: the columns that are wanted.
        unasked: the schema is all columns because nothing was said of them.
    """

    def __init__(self, options: ReadOptions, schema: StructType, *, unasked: bool = False) -> None:
        self._options = options
        self._unasked = unasked
        self._columns = Columns(options, schema)

    def partitions(self) -> Sequence[KeyRange]:
        """Return ranges of keys, of about equal numbers of messages, in the order of the logs and of the keys.

        Raises:
            NotALog: a path that names no log.
            TopicMismatch: a log of another topic than the options want.
            StorageError: a log that cannot be read.
        """
        found: list[_Found] = []
        for location in self._options.locations():
            with self._passing_over_missing(location):
                found.append(self._look(location))
        total = sum(log.count for log in found if log.generation is not None)
        if self._unasked and total >= MANY_MESSAGES:
            # In a worker that plans a query: Python writes this to stderr, which Spark passes on.
            _log.warning(
                "gossiplog: this query reads all %s columns of %s messages, because Spark does not pass a Python source"
                " which of them it uses. Name those that it needs: .option('columns', 'clock,author'); '*' is all of"
                " them, without this remark.",
                len(SCHEMA),
                f"{total:,}",
            )
        wanted = self._options.partitions or number_of_partitions(total, sum(log.size for log in found))
        partitions: list[KeyRange] = []
        for log in found:
            with self._passing_over_missing(log.location):
                partitions += self._ranges(log, round(wanted * log.count / max(total, 1)))
        return partitions

    @contextmanager
    def _passing_over_missing(self, location: str) -> Iterator[None]:
        """End a block without an error where the file of its log is missing, and such logs are to be ignored."""
        try:
            yield
        except StorageError:
            if not (self._options.ignore_missing_files and is_missing(location)):
                raise
            _log.warning(
                "gossiplog: ignoreMissingFiles passes over %s, which was removed since it was listed", location
            )

    def _look(self, location: str) -> _Found:
        if is_remote(location):
            # Its task copies it, and need not do so twice.
            return _Found(location, self._options.topic, _ALL, None, size_of(location))
        with opened(location, self._options.topic) as (storage, topic), storage.reader() as reader:
            position = reader.position()
            return _Found(location, topic, position.count, position.generation, storage.size())

    def _ranges(self, log: _Found, parts: int) -> list[KeyRange]:
        first, last = self._options.bounds
        if last is not None and last <= first:
            return []
        split_keys: Sequence[bytes] = ()
        if log.generation is not None:
            with opened(log.location, log.topic) as (storage, _), storage.reader(single=True) as reader:
                split_keys = reader.split_keys(first, last, max(parts, 1))
        path = identity(log.location)
        starts, ends = [first, *split_keys], [*split_keys, last]
        return [
            KeyRange(log.location, path, log.topic, log.count, log.generation, log.size, start, end)
            for start, end in zip(starts, ends, strict=True)
        ]

    def read(self, partition: KeyRange) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the messages of a partition, ascending by key.

        Raises:
            CorruptLog: a damaged file, or with the mode failfast a damaged value.
            CursorOutdated: the log has been rebased since the partitions were made.
            StorageError: a log that cannot be read.
        """
        with self._passing_over_missing(partition.location):
            yield from self._pages(partition)

    def _pages(self, partition: KeyRange) -> Iterator[pa.RecordBatch]:
        columns = self._columns
        start = partition.start
        with opened(partition.location, partition.topic) as (storage, topic):
            with storage.reader(single=True) as reader:
                generation = reader.position().generation
            if partition.generation not in (None, generation):
                # Its sequences, up to a count of which it is read, are other messages'.
                raise CursorOutdated(
                    f"{partition.name} was rebased while it was read: run the job again",
                    partition.generation,
                    generation,
                )
            while True:
                with storage.reader(single=True) as reader:
                    with reader.scan(columns.scanned, start, partition.end, partition.count) as rows:
                        stored = gathered(rows, columns.scanned)
                    # In a damaged tree the last key may be smaller, and the next page would be this one.
                    last = pc.max(stored["key"]).as_py()
                    if last is None or last < start:
                        return
                    path, size = partition.location, partition.size
                    batch = columns.batch(partition.name, topic, stored, reader, path=path, size=size)
                yield batch
                start = last + b"\0"
