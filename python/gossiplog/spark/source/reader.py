"""Reading logs in key-range partitions, as of one state of each, page by page as Arrow batches.

A partition opens its logs for itself, wherever it runs. Their states are pinned when the partitions are made: messages
that arrive later have larger sequences and are passed over, so no transaction stays open for as long as a job takes. Of
very many logs those that are not split are opened where they are read alone, each in the state that it has then.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from gossiplog.errors import StorageError, TopicMismatch
from gossiplog.spark.source.batches import Columns, columns_of, gathered
from gossiplog.spark.source.fleet import Bundle, FoundLog, KeyRange, OpenedLog, pack, packed
from gossiplog.spark.source.locations import shown
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.marks import check_generation
from gossiplog.spark.source.opening import look_at, opened_log, split, unopened
from gossiplog.spark.source.options import SCHEMA, ReadOptions
from gossiplog.spark.source.problems import Problem, problem_of
from gossiplog.spark.source.remote import is_remote
from gossiplog.spark.tasks import Bundles, parallelism, placed, unpacked
from gossiplog.storage import Storage

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
OPENED_LOGS = 256
"""Logs of which all are opened to plan a read, half a second of processor time. Of more those alone that are split."""
# In place of no partition at all, for which Spark makes one of its own.
_NOTHING = Bundle(())
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

    def partitions(self) -> Sequence[Bundle]:
        """Return ranges of keys, of about equal numbers of messages, in the order of the logs and of the keys.

        Raises:
            NotALog: a path that names no log.
            TopicMismatch: a log of another topic than the options want.
            StorageError: a log that cannot be read.
        """
        first, last = self._options.bounds
        if last is not None and last <= first:
            return [_NOTHING]
        patience = self._patience()
        found = self._found(patience)
        total = sum(log.count if isinstance(log, OpenedLog) else log.messages for log in found)
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
        share = wanted / max(sum(log.messages for log in found), 1)
        ranges: list[KeyRange] = []
        for log in found:
            ranges += self._split(log, round(share * log.messages), first, last, patience)
        return [Bundle(tuple(group)) for group in pack(ranges, wanted)] or [_NOTHING]

    def _patience(self) -> LockPatience | None:
        """Return how long locked logs are waited for: of those that are passed over there may be many."""
        return LockPatience() if self._options.ignore_corrupt_files else None

    def _found(self, patience: LockPatience | None) -> list[FoundLog]:
        """Return the logs, of very many without opening those of which the size is known: their tasks do that."""
        locations = self._options.locations()
        if len(locations) <= OPENED_LOGS:
            return [self._looked_at(location, patience) for location in locations]
        logs = [unopened(location, self._options.topic) for location in locations]
        return [log if log.size or is_remote(log.name) else self._looked_at(log.name, patience) for log in logs]

    def _looked_at(self, location: str, patience: LockPatience | None) -> FoundLog:
        """Return a log in the state that it has; as it is found where the task that reads it may pass over it."""
        try:
            return look_at(location, self._options.topic, patience)
        except StorageError as error:
            self._check_passes_over(location, error)
            return unopened(location, self._options.topic)

    def _split(
        self, log: FoundLog, parts: int, first: bytes, last: bytes | None, patience: LockPatience | None
    ) -> list[KeyRange]:
        try:
            return split(log, parts, first, last, patience)
        except StorageError as error:
            self._check_passes_over(log.location, error)
            return split(unopened(log.name, log.topic), 1, first, last)

    def _check_passes_over(self, location: str, error: StorageError) -> Problem:
        """Return what is wrong with a log that is to be passed over; raise the error where it is not."""
        problem = problem_of(location, error)
        is_other = isinstance(error, TopicMismatch) or problem.kind == "replaced"
        ignored = self._options.ignore_corrupt_files and not is_other
        if not (self._options.ignore_missing_files if problem.kind == "missing" else ignored):
            raise error
        return problem

    def read(self, partition: Bundle) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the messages of a partition, of each log ascending by key.

        Raises:
            CorruptLog: a damaged file, or with the mode failfast a damaged value.
            CursorOutdated: a log has been rebased since the partitions were made.
            TopicMismatch: a log has another topic than the options want.
            StorageError: a log that cannot be read.
        """
        patience = self._patience()
        for part in partition.ranges:
            log = part.log
            try:
                yield from read_range(self._columns, part, patience)
            except StorageError as error:
                problem = self._check_passes_over(log.location, error)
                if problem.kind == "missing":
                    why = "ignoreMissingFiles passes over %s, which was removed since it was listed"
                    _log.warning(f"gossiplog: {why}", shown(log.name))
                    continue
                # In a worker: Python writes this to stderr, which is the executor's.
                _log.warning("gossiplog: ignoreCorruptFiles passes over the rest of %s: %s", shown(log.name), problem)
                if self._columns.has_problems:
                    yield self._columns.problem(log.name, str(problem), path=log.location, size=log.size)


def read_range(columns: Columns, part: KeyRange, patience: LockPatience | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range, ascending by key.

    Args:
        columns: that are wanted.
        part: of a log.
        patience: as `opened_log` takes it.

    Raises:
        CorruptLog: a damaged file, or with the mode failfast a damaged value.
        CursorOutdated: the log has been rebased since the range was made.
        TopicMismatch: the log has another topic.
        StorageError: the log cannot be read.
    """
    with opened_log(part.log, patience) as (storage, log):
        yield from pages(columns, storage, log, part.start, part.end)


def ranges_frame(session: SparkSession, ranges: Sequence[KeyRange], schema: StructType) -> DataFrame:
    """Return the messages of ranges in some columns, of each log in the state in which it was found.

    Args:
        session: of Spark.
        ranges: of logs that were opened.
        schema: the columns.

    Raises: on use, as `read_range` does.
    """
    columns = columns_of(*schema.fieldNames())
    return placed(session, packed(ranges, parallelism(session))).mapInArrow(partial(_read_ranges, columns), schema)


def _read_ranges(columns: Columns, batches: Bundles) -> Iterator[pa.RecordBatch]:
    for part in unpacked(batches):
        yield from read_range(columns, part)


def pages(
    columns: Columns, storage: Storage, log: OpenedLog, start: bytes = b"", end: bytes | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range of a log that is open, ascending by key.

    Args:
        columns: that are wanted.
        storage: of the log.
        log: in the state that is read.
        start: the least key, itself included.
        end: the key before which the range ends, None at the end of the log.

    Raises:
        CorruptLog: as `read_range` does.
        CursorOutdated: likewise.
        StorageError: likewise.
    """
    while True:
        with storage.reader(single=True) as reader:
            with reader.scan(columns.scanned, start, end, log.count) as rows:
                stored = gathered(rows, columns.scanned)
            # In a damaged tree the last key may be smaller, and the next page would be this one.
            last = pc.max(stored["key"]).as_py()
            batch = None
            if last is not None and last >= start:
                batch = columns.batch(log.name, log.topic, stored, reader, path=log.location, size=log.size)
            # After the rows, since a log in Postgres may be rebased between two statements.
            check_generation(log.name, log.mark, reader.position().generation)
        if batch is None:
            return
        yield batch
        start = last + b"\0"
