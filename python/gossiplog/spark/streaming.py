"""Following logs: micro-batches in the order of arrival.

An offset holds the sequence up to which each log has been read. Sequences have no gaps, and what has one never changes,
so the messages between two offsets are the same whenever they are read: with the offsets in Spark's checkpoint, a
restart repeats a micro-batch exactly or goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from gossiplog.errors import CorruptLog
from gossiplog.spark.batches import BATCH, Columns, gathered
from gossiplog.spark.locations import identity, locations, opened
from gossiplog.spark.options import ReadOptions
from gossiplog.spark.reading import PARTITION_MESSAGES


@dataclass(frozen=True, slots=True)
class Stretch(InputPartition):
    """The part of a log's arrivals that one task reads.

    Attributes:
        name: of the log, as the query has it.
        location: of the log, wherever the task runs.
        after: the sequence after which it begins.
        last: its last sequence.
    """

    name: str
    location: str
    after: int
    last: int


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs that the options name; patterns are matched when the query starts.

    Args:
        options: of the read.
        schema: the columns that are wanted.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = Columns(options, schema)
        # By identities, which offsets keep: a restart may spell a path in another way.
        self._locations = {identity(location): location for location in locations(options.paths)}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """Where a query without a checkpoint begins."""
        start = self._options.starting_offsets
        counts = self._counts()
        return counts if start is None else {log: min(start, count) for log, count in counts.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many messages as the option maxRows says."""
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How far a micro-batch goes that begins at an offset.

        Raises:
            CorruptLog: a log has fewer messages than were read of it: it is another file than it was.
        """
        counts = self._counts()
        for log, count in counts.items():
            if count < (read := start.get(log, 0)):
                raise CorruptLog(
                    [f"{log} has {count} messages, and {read} were read of it: it is another log than it was"]
                )
        if self._target is not None:
            # Those that came since are for the next query.
            counts = {log: min(count, self._target[log]) for log, count in counts.items()}
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        offset = dict(start)
        for left, (log, count) in zip(range(len(counts), 0, -1), counts.items(), strict=True):
            read = offset.get(log, 0)
            # An equal share of the room that is left, so that a busy log does not keep the others waiting.
            taken = max(count - read, 0) if room is None else min(max(count - read, 0), -(-room // left))
            offset[log] = read + taken
            room = None if room is None else room - taken
        return offset

    def reportLatestOffset(self) -> dict[str, int]:
        """How far the logs go, for the query's progress."""
        return self._counts()

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the query at what the logs hold now."""
        self._target = self._counts()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Stretch]:
        """What came between two offsets, in parts of about equal size."""
        stretches = [(log, start.get(log, 0), last) for log, last in end.items()]
        total = sum(last - after for _, after, last in stretches)
        wanted = self._options.partitions or -(-total // PARTITION_MESSAGES)
        parts: list[Stretch] = []
        for log, after, last in stretches:
            size = last - after
            number = min(max(1, round(wanted * size / max(total, 1))), size)
            bounds = [after + size * part // number for part in range(number + 1)] if number else []
            parts += [Stretch(self._locations.get(log, log), log, *pair) for pair in pairwise(bounds)]
        return parts

    def read(self, partition: Stretch) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """The messages of a partition, as they arrived.

        Raises:
            CorruptLog: a message that is not there; with the mode failfast, a damaged value.
            TopicMismatch: the log has another topic than the options want.
            StorageError: a log that cannot be read.
        """
        with opened(partition.location, self._options.topic) as (storage, topic):
            after = partition.after
            while after < partition.last:
                with storage.reader(single=True) as reader:
                    page = reader.arrivals(after, min(BATCH, partition.last - after))
                    # Sequences have no gaps: as many as these, up to this one, are all.
                    if not page or page[-1][0] != after + len(page):
                        raise CorruptLog([f"{partition.name}: a message after the sequence {after} is not there"])
                    stored = gathered(iter(page), ("seq", "value"))
                    batch = self._columns.batch(partition.name, topic, stored, reader)
                yield batch
                after = stored["seq"][-1].as_py()

    def _counts(self) -> dict[str, int]:
        """How many messages each log has."""
        counts: dict[str, int] = {}
        for log, location in self._locations.items():
            with opened(location, self._options.topic) as (storage, _), storage.reader(single=True) as reader:
                counts[log] = reader.position().count
        return counts
