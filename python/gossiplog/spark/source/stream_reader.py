"""Following logs: micro-batches in the order of arrival.

An offset holds the sequence up to which each log has been read. Sequences have no gaps, and what has one never changes,
so the messages between two offsets are the same whenever they are read: with the offsets in Spark's checkpoint, a
restart repeats a micro-batch exactly or goes on after it.

It also holds a digest of the message with that sequence, which appends, backups and copies of the file leave as it is.
Another log in the same place has another message there, and so has a replica, in which messages arrived in another
order, unless it is by chance the same one, after others. So it also holds the origin of that message: the file in which
it got its sequence, which backups and repairs of that file name, and nothing else. And it holds the log's generation,
which distinguishes one that was rebased from another log.

The reader lives as long as the query, and remembers what it saw of each log: opening a log takes milliseconds, and a
look at the times of its files some ten microseconds. A log whose files are as they were is not opened again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from gossiplog.errors import CorruptLog, CursorOutdated, NotALog, OptionError, StorageError, TopicMismatch
from gossiplog.reprs import counted
from gossiplog.spark.source.batches import BATCH, Columns, gathered
from gossiplog.spark.source.locations import alternatives, distinct, identity, is_missing, shown
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.offsets import (
    NOTHING,
    Offset,
    Reached,
    StreamPosition,
    decode,
    digest,
    is_other_origin,
    origin,
)
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.options import SCHEMA, STREAM_OPTIONS, ReadOptions, read_options
from gossiplog.spark.source.problems import problem_of
from gossiplog.spark.source.reader import PARTITION_MESSAGES
from gossiplog.spark.source.shares import StreamPartition, Stretch, partitions, shares, work
from gossiplog.spark.tasks import parallelism
from gossiplog.storage.base import Reader, Storage
from gossiplog.storage.location import is_url
from gossiplog.storage.sqlite.files import file_of, is_settled, wal_of

# Seconds after its last change for which a file that holds no log may be on its way to one, as a copy that is made.
_ARRIVING_SECONDS = 60
_Stamp: TypeAlias = tuple[tuple[int, ...], ...]
_log = logging.getLogger("gossiplog.spark")


@dataclass(slots=True)
class _Look:
    """What was seen of a log.

    Attributes:
        stamp: of its files, just before it was opened; None where a change would not show in it.
        end: how far it goes.
        verified: what offsets hold of it, and is true.
    """

    stamp: _Stamp | None
    end: Reached
    verified: set[Reached]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs that the options name, also those that appear in a folder or fit a pattern later.

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
        self._identities: dict[str, str] = {}
        # By identities, which offsets keep: a restart may spell a path in another way.
        self._locations: dict[str, str] = {}
        self._list()
        self._looks: dict[str, _Look] = {}
        self._target: dict[str, int] | None = None
        self._end: dict[str, int] = {}
        self._passed: set[str] = set()
        self._damaged: set[str] = set()

    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint begins.

        Raises:
            NotALog: a path that names no log.
            StorageError: a log that cannot be read.
        """
        self.check_paths()
        start = self._options.starting_offsets
        if start == 0:
            return StreamPosition().encode()
        looks = self._look_at_all(StreamPosition())
        reached = {
            log: look.end if start is None else self._reach(log, min(start, look.end.sequence))
            for log, look in looks.items()
        }
        return StreamPosition(reached).encode()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return as many messages as the option maxRows says."""
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return how far a micro-batch goes that begins at an offset.

        Raises:
            StorageError: a log is gone, is another one than was read up to the offset, or cannot be read.
        """
        position = decode(start)
        self._list_again(position)
        looks = self._look_at_all(position)
        read = {log: position.logs.get(log, NOTHING).sequence for log in looks}
        self._end = {log: reached.sequence for log, reached in position.logs.items()}
        self._end.update({log: look.end.sequence for log, look in looks.items()})
        pending = {log: look.end.sequence - read[log] for log, look in looks.items()}
        if self._target is not None:
            # Those that came since are for the next query.
            pending = {log: min(self._target.get(log, 0) - read[log], pending[log]) for log in pending}
        taken, turn = {log: number for log, number in pending.items() if number > 0}, position.turn
        if isinstance(limit, ReadMaxRows):
            taken, turn = shares(pending, limit.max_rows, turn)
        reached = {log: self._reach(log, read[log] + number) for log, number in taken.items()}
        # What former versions wrote without a digest or an origin gets one.
        reached |= {
            log: self._reach(log, before.sequence)
            for log, before in position.logs.items()
            if log in looks and log not in taken and before.sequence and _lacks(before, looks[log].end)
        }
        if not reached:
            # As it is in the checkpoint: Spark compares the text.
            return start
        return StreamPosition({**position.logs, **reached}, turn).encode()

    def reportLatestOffset(self) -> Offset | None:
        """Return how many messages the logs had at the last look, for the query's progress."""
        return {"messages": sum(self._end.values())} if self._end else None

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at what the logs hold now."""
        self._target = {log: look.end.sequence for log, look in self._look_at_all(StreamPosition()).items()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[StreamPartition]:
        """Return what came between two offsets, in parts of about equal work.

        Raises:
            StorageError: a log is gone, is another one than the offsets are of, or cannot be read.
        """
        before, after, patience = decode(start).logs, decode(end).logs, self._patience()
        stretches: list[Stretch] = []
        for log, last in after.items():
            first = before.get(log, NOTHING)
            if last.sequence <= first.sequence:
                continue
            # A restart repeats a micro-batch without a look at where it begins.
            location = self._locations.get(log, log)
            if self._look(log, patience, first, last) is not None:
                stretches.append(Stretch(location, log, first.sequence, last.sequence, last))
        wanted = self._options.partitions or -(-work(stretches) // PARTITION_MESSAGES)
        return partitions(stretches, wanted)

    def read(self, partition: StreamPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the messages of a partition, of each log as they arrived.

        Raises:
            CorruptLog: a message that is not there; with the mode failfast, a damaged value.
            CursorOutdated: a log has been rebased since the micro-batch was planned.
            TopicMismatch: a log has another topic than the options want.
            StorageError: a log that cannot be read, or is another one by now.
        """
        for stretch in partition.stretches:
            try:
                yield from self._read(stretch)
            except StorageError as error:
                # One that is locked can be read when the task is run again.
                is_damaged = isinstance(error, NotALog | CorruptLog)
                if not (is_damaged and self._passes_over_damage(stretch.name, error)) and not self._passes_over(
                    stretch.location
                ):
                    raise

    def _read(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        with opened(stretch.location, self._options.topic) as (storage, topic):
            after = stretch.after
            while after < stretch.last:
                with storage.reader(single=True) as reader:
                    page = reader.arrivals(after, min(BATCH, stretch.last - after))
                    stored = gathered(iter(page), ("seq", "value"))
                    batch = self._columns.batch(stretch.name, topic, stored, reader, path=stretch.location)
                    # Its file may be another one's since the micro-batch was planned, and a log in Postgres may be
                    # rebased between two statements.
                    if (difference := _difference(stretch.name, storage, reader, stretch.end)) is not None:
                        raise difference
                # Sequences have no gaps: as many as these, up to this one, are all.
                if not page or page[-1][0] != after + len(page):
                    raise CorruptLog([f"a message after the sequence {after} is not there"])
                yield batch
                after = stored["seq"][-1].as_py()

    # Which logs there are

    def check_paths(self) -> None:
        """Check that each path named a log when it was last looked for.

        Raises:
            NotALog: one did not.
        """
        if self._unnamed is not None:
            raise self._unnamed

    def _list(self) -> None:
        """Look for the locations that the options name."""
        self._unnamed: NotALog | None = None
        self._locations = distinct(location for path in self._options.paths for location in self._named(path))
        for log, location in self._locations.items():
            if self._identities.get(location, log) != log:
                _log.warning("gossiplog: %s leads to %s now, which is a log of its own", shown(location), shown(log))
        self._identities = {location: log for log, location in self._locations.items()}

    def _named(self, path: str) -> list[str]:
        """Return the locations that a path names, also where some of its alternatives name none."""
        try:
            return replace(self._options, paths=(path,)).locations()
        except NotALog as error:
            self._unnamed = self._unnamed or error
        parts = alternatives(path)
        return [] if len(parts) == 1 else [location for part in parts for location in self._named(part)]

    def _list_again(self, position: StreamPosition) -> None:
        """Look for logs that appeared, and for those that are gone.

        Raises:
            NotALog: a path that names no log, of which none was read.
            StorageError: a log of which messages were read is gone, and the query is not to go on without it.
        """
        former = self._locations
        self._list()
        for log in sorted(position.logs.keys() - self._locations.keys()):
            read, location = position.logs[log].sequence, former.get(log, log)
            # What is there all the same is what a restart with other paths does not name.
            if read and is_missing(location) and not self._passes_over(location):
                raise _gone(log, read)
        if not (self._options.ignore_missing_files and position.logs):
            self.check_paths()

    def _passes_over(self, location: str) -> bool:
        """Return whether the query is to go on without a log that is gone, and remark on it once."""
        passes = self._options.ignore_missing_files and is_missing(location)
        if passes and location not in self._passed:
            self._passed.add(location)
            _log.warning("gossiplog: ignoreMissingFiles passes over %s, which is gone", shown(location))
        return passes

    def _passes_over_damage(self, location: str, error: StorageError) -> bool:
        """Return whether the query is to go on without a log that cannot be read, and remark on it once."""
        passes = self._options.ignore_corrupt_files
        if passes and location not in self._damaged:
            self._damaged.add(location)
            _log.warning(
                "gossiplog: ignoreCorruptFiles passes over %s: %s", shown(location), problem_of(location, error)
            )
        return passes

    # What is in them

    def _look_at_all(self, position: StreamPosition) -> dict[str, _Look]:
        """Return what is seen of each log that can be read.

        Raises:
            StorageError: a log is another one than was read, or cannot be read.
        """
        looks: dict[str, _Look] = {}
        patience = self._patience()
        for log in self._locations:
            if (look := self._look(log, patience, position.logs.get(log, NOTHING))) is not None:
                looks[log] = look
        self._looks = looks
        return looks

    def _patience(self) -> LockPatience | None:
        """Return how long locked logs are waited for: those that are passed over are asked again for the next batch."""
        return LockPatience() if self._options.ignore_corrupt_files else None

    def _look(self, log: str, patience: LockPatience | None, *reached: Reached) -> _Look | None:
        """Return what is seen of a log; None where it is passed over, or not yet there.

        Args:
            log: its identity.
            patience: as `opened` takes it.
            reached: what offsets hold of it.

        Raises:
            StorageError: it is gone, cannot be read, or is another log than that of the offsets.
        """
        location = self._locations.get(log, log)
        begun = [each for each in reached if each.sequence]
        stamp, look = _stamp(location), self._looks.get(log)
        if look is not None and stamp is not None and stamp == look.stamp and look.verified.issuperset(begun):
            return look
        name = f"{shown(location)}, which leads to {shown(log)}," if os.path.islink(location) else shown(log)
        other: StorageError | None = None
        try:
            with self._opened(log, patience) as (storage, reader):
                position = reader.position()
                for each in begun:
                    if (other := _difference(name, storage, reader, each)) is not None:
                        raise other
                end = _reached(storage, reader, position.count)
        except StorageError as error:
            if is_missing(location):
                if not begun or self._passes_over(location):
                    return None
                raise _gone(log, begun[-1].sequence) from error
            if not begun and self._waits_for(location, error):
                return None
            # What was read is in a sink: nobody passes over another log in its place, nor another topic.
            is_other = error is other or (begun and isinstance(error, TopicMismatch))
            if is_other or not self._passes_over_damage(location, error):
                raise
            return None
        self._damaged.discard(location)
        self._looks[log] = _Look(stamp, end, {*begun, end})
        return self._looks[log]

    def _waits_for(self, location: str, error: StorageError) -> bool:
        """Return whether a file that is no log may become one: it was found in a folder, and has just been changed."""
        if location in self._options.paths or not isinstance(error, NotALog | CorruptLog) or is_url(location):
            return False
        with suppress(OSError):
            return time.time() - os.stat(file_of(location)).st_mtime < _ARRIVING_SECONDS
        return False

    def _reach(self, log: str, sequence: int) -> Reached:
        """Return what an offset holds of a log that was read up to a sequence."""
        look = self._looks[log]
        if look.end.sequence == sequence:
            return look.end
        with self._opened(log) as (storage, reader):
            reached = _reached(storage, reader, sequence)
        look.verified.add(reached)
        return reached

    @contextmanager
    def _opened(self, log: str, patience: LockPatience | None = None) -> Iterator[tuple[Storage, Reader]]:
        location = self._locations.get(log, log)
        with opened(location, self._options.topic, patience) as (storage, _), storage.reader(single=True) as reader:
            yield storage, reader


def _lacks(before: Reached, end: Reached) -> bool:
    """Return whether an offset of a former version has not all that is known of a log by now."""
    return before.digest is None or (before.origin is None and end.origin is not None)


def _reached(storage: Storage, reader: Reader, sequence: int) -> Reached:
    """Return what an offset holds of a log that was read up to a sequence.

    Raises:
        CorruptLog: there is no such message. One whose value is damaged has a digest.
    """
    if sequence == 0:
        return NOTHING
    found = digest(_value(reader, sequence))
    return Reached(sequence, found, reader.position().generation, origin(storage, sequence))


def _difference(log: str, storage: Storage, reader: Reader, reached: Reached) -> StorageError | None:
    """Return the error of a log that is another one than that of which an offset holds something.

    Raises:
        CorruptLog: it has no message with that sequence.
    """
    position = reader.position()
    if reached.generation != position.generation:
        return _rebased(log, reached.generation, position.generation)
    if position.count < reached.sequence:
        was_read = counted(reached.sequence, "was", "were")
        return _another(log, f"it has {counted(position.count, 'message')}, and {was_read} read")
    if not reached.is_of(_value(reader, reached.sequence)):
        return _another(log, f"the message of sequence {reached.sequence} is not the one that was read")
    if is_other_origin(reached.origin, origin(storage, reached.sequence)):
        return _another(log, "it is no backup of the log that was read, and may have other messages than it")
    return None


def _value(reader: Reader, sequence: int) -> bytes:
    rows = reader.arrivals(sequence - 1, 1)
    if not rows or rows[0][0] != sequence:
        raise CorruptLog([f"the message of sequence {sequence} is not there"])
    return rows[0][1]


def _stamp(location: str) -> _Stamp | None:
    """Return what changes with a log's files; None where that is not known, or would not show a change made just now.

    Args:
        location: of the log. One in Postgres has no files.
    """
    if is_url(location):
        return None
    now = time.time_ns()
    found: list[tuple[int, ...]] = []
    file = file_of(location)
    for path in (file, str(wal_of(file))):
        try:
            status = os.stat(path)
        except OSError:
            continue
        if not is_settled(max(status.st_mtime_ns, status.st_ctime_ns), now):
            return None
        if status.st_size:
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(found)


def _gone(log: str, read: int) -> StorageError:
    return StorageError(
        f"{shown(log)}, of which the query has read {counted(read, 'message')}, is gone: put it back, or start the"
        " query with the option ignoreMissingFiles, with which it goes on without what it has not read of logs that are"
        " gone"
    )


def _rebased(log: str, read: int, generation: int) -> CursorOutdated:
    return CursorOutdated(
        f"{shown(log)} was rebased since the query read it (generation {generation}, the query's checkpoint is of"
        f" {read}), so that its messages are others: start the query with a new checkpointLocation and a new sink,"
        " which reads it from its start",
        read,
        generation,
    )


def _another(log: str, reason: str) -> StorageError:
    return StorageError(
        f"{shown(log)} is another log than the query has read: {reason}. Put the former file back, or start the query"
        " with a new checkpointLocation, which reads this one from its start"
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
    fewest = -(-(last - after) // _LEAST)
    if fewest > 1:
        fewest = min(parallelism(session), fewest)
    partitions = str(max(fewest, -(-(last - after) // PARTITION_MESSAGES), 1))
    options = {"path": location, "encodings": "first", "mode": "failfast", "partitions": partitions}
    reader = LogStreamReader(read_options(options, STREAM_OPTIONS), SCHEMA)
    reader.check_paths()
    log = identity(location)
    start, end = ({log: {"sequence": each, "digest": None, "generation": generation}} for each in (after, last))
    parts = list(reader.partitions(start, end))
    numbers = session.range(0, len(parts), 1, max(1, len(parts)))
    return numbers.mapInArrow(_Stretches(reader, parts), SCHEMA)


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Reads the stretches whose numbers come in."""

    reader: LogStreamReader
    parts: list[StreamPartition]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.parts[number])
