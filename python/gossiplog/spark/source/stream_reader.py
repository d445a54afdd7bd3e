"""Following logs: micro-batches in the order of arrival.

An offset holds the sequence up to which each log has been read. Sequences have no gaps, and what has one never changes,
so the messages between two offsets are the same whenever they are read: with the offsets in Spark's checkpoint, a
restart repeats a micro-batch exactly or goes on after it.

It also holds a digest of the message with that sequence, which appends, backups and copies of the file leave as it is.
Another log in the same place has another message there, and so has a replica, in which messages arrived in another
order. The first message would not distinguish replicas. And it holds the log's generation, which distinguishes one that
was rebased from another log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from gossiplog.errors import CorruptLog, CursorOutdated, OptionError, StorageError
from gossiplog.reprs import counted
from gossiplog.spark.source.batches import BATCH, Columns, gathered
from gossiplog.spark.source.locations import identity, opened
from gossiplog.spark.source.options import SCHEMA, STREAM_OPTIONS, ReadOptions, read_options
from gossiplog.spark.source.reader import PARTITION_MESSAGES
from gossiplog.storage.base import Reader

Offset: TypeAlias = dict[str, Any]
"""How far each log was read, by its identity: `{"sequence": 10, "digest": "…", "generation": 0}`. Former versions wrote
no generation, or a plain integer, which is a sequence without a digest."""
_DIGEST_BYTES = 16


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
        if "log_size" in schema.fieldNames():
            # A micro-batch that is repeated has to be the same.
            raise OptionError("a stream has no column log_size, which changes while it follows the log")
        self._options = options
        self._columns = Columns(options, schema)
        # By identities, which offsets keep: a restart may spell a path in another way.
        self._locations = {identity(location): location for location in options.locations()}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint begins."""
        return {log: self._reached(log, self._options.starting_offsets) for log in self._locations}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return as many messages as the option maxRows says."""
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far a micro-batch goes that begins at an offset.

        Raises:
            StorageError: a log is another one than was read up to the offset, or cannot be read.
        """
        counts = {log: self._count(log, start.get(log, 0)) for log in self._locations}
        if self._target is not None:
            # Those that came since are for the next query.
            counts = {log: min(count, self._target[log]) for log, count in counts.items()}
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        offset = dict(start)
        for left, (log, count) in zip(range(len(counts), 0, -1), counts.items(), strict=True):
            read, digest, _ = _parts(offset.get(log, 0))
            # An equal share of the room that is left, so that a busy log does not keep the others waiting.
            taken = max(count - read, 0) if room is None else min(max(count - read, 0), -(-room // left))
            if taken or digest is None:
                offset[log] = self._reached(log, read + taken)
            room = None if room is None else room - taken
        return offset

    def reportLatestOffset(self) -> Offset:
        """Return how far the logs go, for the query's progress."""
        return {log: self._reached(log) for log in self._locations}

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at what the logs hold now."""
        self._target = {log: self._count(log, 0) for log in self._locations}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Stretch]:
        """Return what came between two offsets, in parts of about equal size.

        Raises:
            StorageError: a log is another one than the offsets are of, or cannot be read.
        """
        stretches = [(log, _parts(start.get(log, 0))[0], _parts(last)[0]) for log, last in end.items()]
        total = sum(last - after for _, after, last in stretches)
        wanted = self._options.partitions or -(-total // PARTITION_MESSAGES)
        parts: list[Stretch] = []
        for log, after, last in stretches:
            if last <= after:
                continue
            # A restart repeats a micro-batch without a look at where it begins.
            self._count(log, start.get(log, 0), end[log])
            size = last - after
            number = min(max(1, round(wanted * size / total)), size)
            bounds = [after + size * part // number for part in range(number + 1)]
            parts += [Stretch(self._locations.get(log, log), log, *pair) for pair in pairwise(bounds)]
        return parts

    def read(self, partition: Stretch) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the messages of a partition, as they arrived.

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
                    batch = self._columns.batch(partition.name, topic, stored, reader, path=partition.location)
                yield batch
                after = stored["seq"][-1].as_py()

    def _count(self, log: str, *reached: Any) -> int:
        """Return how many messages a log has.

        Args:
            log: its identity.
            reached: what offsets hold of it.

        Raises:
            StorageError: it is another log than that of the offsets.
        """
        with self._reader(log) as reader:
            count = reader.position().count
            generation = reader.position().generation
            for sequence, digest, read in map(_parts, reached):
                if sequence and read != generation:
                    raise _rebased(log, read, generation)
                if count < sequence:
                    raise _another(
                        log, f"it has {counted(count, 'message')}, and {counted(sequence, 'was', 'were')} read"
                    )
                if digest is not None and _digest(reader, sequence) != digest:
                    raise _another(log, f"the message of sequence {sequence} is not the one that was read")
        return count

    def _reached(self, log: str, sequence: int | None = None) -> dict[str, Any]:
        """Return what an offset holds of a log.

        Args:
            log: its identity.
            sequence: up to which it was read; None, and what exceeds it, stands for the log's end.
        """
        with self._reader(log) as reader:
            position = reader.position()
            last = position.count if sequence is None else min(sequence, position.count)
            return {"sequence": last, "digest": _digest(reader, last), "generation": position.generation}

    @contextmanager
    def _reader(self, log: str) -> Iterator[Reader]:
        location = self._locations.get(log, log)
        with opened(location, self._options.topic) as (storage, _), storage.reader(single=True) as reader:
            yield reader


def _parts(reached: Any) -> tuple[int, str | None, int]:
    """Return the sequence, the digest and the generation that an offset holds of a log.

    Those of former versions have no digest, or no generation, which is 0.
    """
    if isinstance(reached, int):
        return reached, None, 0
    return reached["sequence"], reached["digest"], reached.get("generation", 0)


def _digest(reader: Reader, sequence: int) -> str:
    """Return the digest of the stored message with a sequence, and that of empty bytes for 0.

    Raises:
        CorruptLog: there is no such message. A value that is damaged has a digest.
    """
    rows = reader.arrivals(sequence - 1, 1) if sequence else [(0, b"")]
    if not rows or rows[0][0] != sequence:
        raise CorruptLog([f"the message of sequence {sequence} is not there"])
    return blake2b(rows[0][1], digest_size=_DIGEST_BYTES).hexdigest()


def _rebased(log: str, read: int, generation: int) -> CursorOutdated:
    return CursorOutdated(
        f"{log} was rebased since the query read it (generation {generation}, the query's checkpoint is of {read}), so"
        " that its messages are others: start the query with a new checkpointLocation and a new sink, which reads it"
        " from its start",
        read,
        generation,
    )


def _another(log: str, reason: str) -> StorageError:
    return StorageError(
        f"{log} is another log than the query has read: {reason}. Put the former file back, or start the query with a"
        " new checkpointLocation, which reads this one from its start"
    )


# Messages for which a task is worth its start.
_LEAST = 2**13


def changes(session: SparkSession, location: str, after: int, last: int, generation: int = 0) -> DataFrame:
    """Return the messages with sequences from after + 1 to last, in the columns of `SCHEMA`.

    Those of which another encoding arrived before are left out. The messages are always the same ones, since what has a
    sequence never changes.

    Args:
        session: of Spark.
        location: of the log.
        after: a sequence, 0 for the start of the log.
        last: a sequence that the log has.
        generation: of the log when it had them.

    Raises:
        CorruptLog: on use, a damaged value.
        CursorOutdated: the log has been rebased since.
        StorageError: the log cannot be read.
    """
    fewest = min(session.sparkContext.defaultParallelism, -(-(last - after) // _LEAST))
    partitions = str(max(fewest, -(-(last - after) // PARTITION_MESSAGES), 1))
    options = {"path": location, "encodings": "first", "mode": "failfast", "partitions": partitions}
    reader = LogStreamReader(read_options(options, STREAM_OPTIONS), SCHEMA)
    log = identity(location)
    start, end = ({log: {"sequence": each, "digest": None, "generation": generation}} for each in (after, last))
    parts = list(reader.partitions(start, end))
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
