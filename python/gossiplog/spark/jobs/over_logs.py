"""Work over any number of logs in at most two stages, whose tasks report what they find of each log.

In the first stage a task has many logs: it does small ones whole, and says of a large one into which parts it is to be
split. The second stage has the parts of all large logs. What a task opens it reads itself: no message goes through
Java. A log that cannot be read is a row, and ends nothing.
"""

from __future__ import annotations

import copyreg
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from gossiplog import core
from gossiplog.errors import GossipLogError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.source.fleet import (
    LEAST_MESSAGES,
    OPEN_WEIGHT,
    TASK_MESSAGES,
    FoundLog,
    KeyRange,
    OpenedLog,
    pack,
    packed,
    split_open,
)
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.opening import opened_log
from gossiplog.spark.source.problems import Problem, problem_of
from gossiplog.spark.tasks import Bundles, parallelism, placed, unpacked
from gossiplog.storage import Storage

ROWS = "log string, kind string, key binary, other binary, detail string"
"""What tasks report: defects, of which `key` is the message and `other` a parent, and what the driver makes of all
tasks."""
ROWS_ARROW = pa.schema(
    [
        ("log", pa.string()),
        ("kind", pa.string()),
        ("key", pa.binary()),
        ("other", pa.binary()),
        ("detail", pa.string()),
    ]
)
# Kinds of rows that are no defects. What they have is in `other`: a pickle, as all that Spark's workers send.
_LARGE, _FIGURES, _DONE, _UNREADABLE = "=large", "=figures", "=done", "=unreadable"
_INTERNAL = [_LARGE, _FIGURES, _DONE, _UNREADABLE]
# Messages for which it takes as long to look at their file as to check one of them.
_FILE_SHARE = 20


@dataclass(frozen=True, slots=True)
class LogPart:
    """The part of a log that a task looks at.

    Attributes:
        first: the least sequence.
        last: the largest sequence.
        start: the least key, b"" at the start of the log.
        end: the key before which it ends, None at the end of the log.
        checks_file: the task checks the log's file as a whole, too.
    """

    first: int
    last: int
    start: bytes
    end: bytes | None
    checks_file: bool = False

    @classmethod
    def of_file(cls) -> LogPart:
        """Return the part of a large log that is its file, and no message."""
        return cls(1, 0, b"", b"", checks_file=True)


class LogState(Protocol):
    """A log as it was when it was looked at."""

    @property
    def count(self) -> int:
        """Of messages."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What there is to say of a whole log.

    Attributes:
        result: anything picklable and small.
        rows: further rows of the report, without the log's name: kind, key and detail.
        problem: why there is no result, where its parts can be read and do not come to one.
    """

    result: Any = None
    rows: tuple[tuple[str, bytes | None, str], ...] = ()
    problem: Problem | None = None


class Work(Protocol):
    """What is done with each log, picklable. None of it needs Spark."""

    @property
    def checks_file(self) -> bool:
        """Whether it checks a log's file as a whole: of a large log in a task of its own."""

    def look(self, storage: Storage, log: OpenedLog) -> LogState:
        """Return what the log is, picklable; that of a large log is sent to all tasks of its parts."""

    def part(
        self, storage: Storage, log: OpenedLog, own: Any, part: LogPart
    ) -> Iterator[pa.RecordBatch | tuple[Any, ...]]:
        """Yield rows of defects in the columns of `ROWS` without `log`, and one tuple: the figures of the part."""

    def conclude(self, own: Any, figures: Sequence[Any]) -> Conclusion:
        """Return what there is to say of a log, from the figures of all parts."""


@dataclass(frozen=True, slots=True)
class LogOutcome:
    """What became of one log.

    Attributes:
        result: of `Work.conclude`, None where the log cannot be read to its end.
        problem: why; None where it can.
        kinds: how many rows of the report of each kind.
        seconds: of all tasks together.
    """

    result: Any
    problem: Problem | None
    kinds: Mapping[str, int]
    seconds: float


def _node_parts(node: core.Node) -> tuple[Callable[..., core.Node], tuple[int, bytes | None, bytes]]:
    return core.Node, (node.level, node.key, node.hash)


# The compiled core's do not say themselves how they travel between processes.
copyreg.pickle(core.Node, _node_parts)


def over_logs(
    session: SparkSession, work: Work, logs: Sequence[FoundLog], shaped: Callable[[DataFrame], DataFrame]
) -> tuple[dict[str, LogOutcome], DataFrame]:
    """Do the work over logs.

    Args:
        session: of Spark.
        work: what is done.
        logs: with names of their own; they need not have been opened.
        shaped: makes a report of the rows of defects, in the columns of `ROWS`.

    Returns:
        What became of the logs, by their names, in their order; and the report, which is cached.

    Raises:
        SparkError: Spark gave up.
    """
    with worker_errors():
        cores = parallelism(session)
        total = sum(log.messages for log in logs)
        most = min(max(total // cores, LEAST_MESSAGES), TASK_MESSAGES)
        weighed = [_Weighed(log, OPEN_WEIGHT + (log.messages if log.messages <= most else 0)) for log in logs]
        groups = [[each.log for each in group] for group in packed(weighed, cores)]
        is_patient = len(logs) == 1
        first = placed(session, groups).mapInArrow(WholeLogs(work, most, is_patient), ROWS).persist()
        frames, known = [first], KnownLogs()
        try:
            large = known.take(_internal_rows(first))
            if large:
                parts = placed(session, placed_parts(large, logs))
                frames.append(parts.mapInArrow(LogParts(work, is_patient), ROWS).persist())
                known.take(_internal_rows(frames[1]))
            rows = known.conclude(work, large)
            report = shaped(_report(session, frames, rows))
            if known.defects:
                # While what it is made of is still there.
                report.persist().count()
            else:
                report = _empty(report)
        finally:
            for frame in frames:
                frame.unpersist()
    return {log.name: known.outcome(log.name) for log in logs}, report


def _internal_rows(frame: DataFrame) -> list[tuple[str, str, bytes]]:
    rows = frame.where(F.col("kind").isin(_INTERNAL)).select("log", "kind", "other").collect()
    return [(row.log, row.kind, bytes(row.other)) for row in rows]


@dataclass(frozen=True, slots=True)
class _Weighed:
    log: FoundLog
    weight: int


@dataclass(frozen=True, slots=True)
class LargeLog:
    """A log that is to be split.

    Attributes:
        log: in the state in which it was opened.
        own: what the work says of it.
        parts: of the log.
    """

    log: OpenedLog
    own: Any
    parts: Sequence[LogPart]


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part of a log, with what its task needs to know of the log."""

    log: OpenedLog
    own: Any
    part: LogPart
    weight: int


def parts_of(ranges: Sequence[KeyRange], count: int) -> list[LogPart]:
    """Return a part for each range of a log, which have about equal numbers of its sequences, too.

    Args:
        ranges: all of them.
        count: of messages.
    """
    bounds = [count * part // len(ranges) for part in range(len(ranges) + 1)]
    return [
        LogPart(before + 1, last, each.start, each.end)
        for (before, last), each in zip(pairwise(bounds), ranges, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class WholeLogs:
    """Does the small ones of a task's logs, and looks at the large ones.

    Attributes:
        work: what is done.
        most: messages of a log that is not split.
        is_patient: whether a log is waited for that another process has locked, as one alone is.
    """

    work: Work
    most: int
    is_patient: bool = False

    def __call__(self, batches: Bundles) -> Iterator[pa.RecordBatch]:
        patience = None if self.is_patient else LockPatience()
        for log in unpacked(batches):
            yield from self._log(log, patience)

    def _log(self, log: FoundLog, patience: LockPatience | None) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        kinds: dict[str, int] = {}
        try:
            with opened_log(log, patience) as (storage, found):
                own = self.work.look(storage, found)
                count = own.count
                ranges = split_open(storage, found, -(-count // self.most))
                if len(ranges) > 1:
                    parts = parts_of(ranges, count)
                    if self.work.checks_file:
                        parts.append(LogPart.of_file())
                    yield _internal(log.name, _LARGE, LargeLog(found, own, parts))
                    return
                figures: list[Any] = []
                for row in self.work.part(storage, found, own, LogPart(1, count, b"", None, self.work.checks_file)):
                    if isinstance(row, pa.RecordBatch):
                        yield _counted(log.name, row, kinds)
                    else:
                        figures.append(row)
                done = self.work.conclude(own, figures)
        except (GossipLogError, OSError) as error:
            problem = problem_of(log.location, error, log.name)
            yield _internal(log.name, _UNREADABLE, (problem, kinds, time.perf_counter() - started))
            return
        if done.rows:
            yield _counted(log.name, rows_batch(done.rows), kinds)
        seconds = time.perf_counter() - started
        if done.problem is None:
            yield _internal(log.name, _DONE, LogOutcome(done.result, None, kinds, seconds))
        else:
            yield _internal(log.name, _UNREADABLE, (done.problem, kinds, seconds))


@dataclass(frozen=True, slots=True)
class LogParts:
    """Does the parts of large logs that a task has.

    Attributes:
        work: as `WholeLogs` has it.
        is_patient: likewise.
    """

    work: Work
    is_patient: bool = False

    def __call__(self, batches: Bundles) -> Iterator[pa.RecordBatch]:
        patience = None if self.is_patient else LockPatience()
        for placed_part in unpacked(batches):
            yield from self._part(placed_part, patience)

    def _part(self, placed_part: PlacedPart, patience: LockPatience | None) -> Iterator[pa.RecordBatch]:
        started, log = time.perf_counter(), placed_part.log
        kinds: dict[str, int] = {}
        figures: Any = None
        try:
            with opened_log(log, patience) as (storage, found):
                for row in self.work.part(storage, found, placed_part.own, placed_part.part):
                    if isinstance(row, pa.RecordBatch):
                        yield _counted(log.name, row, kinds)
                    else:
                        figures = row
        except (GossipLogError, OSError) as error:
            problem = problem_of(log.location, error, log.name)
            yield _internal(log.name, _UNREADABLE, (problem, kinds, time.perf_counter() - started))
            return
        yield _internal(log.name, _FIGURES, (figures, kinds, time.perf_counter() - started))


def _internal(log: str, kind: str, content: object) -> pa.RecordBatch:
    row = {"log": log, "kind": kind, "key": None, "other": pickle.dumps(content), "detail": None}
    return pa.RecordBatch.from_pylist([row], ROWS_ARROW)


def rows_batch(rows: Sequence[tuple[str, bytes | None, str]]) -> pa.RecordBatch:
    """Return rows of defects: kind, key and detail."""
    found = [{"kind": kind, "key": key, "other": None, "detail": detail} for kind, key, detail in rows]
    return pa.RecordBatch.from_pylist(found, pa.schema(list(ROWS_ARROW)[1:]))


def _counted(log: str, found: pa.RecordBatch, kinds: dict[str, int]) -> pa.RecordBatch:
    """Return rows with the name of their log, once they are counted."""
    for kind in found.column("kind").to_pylist():
        kinds[kind] = kinds.get(kind, 0) + 1
    return pa.RecordBatch.from_arrays([pa.repeat(pa.scalar(log, pa.string()), len(found)), *found], schema=ROWS_ARROW)


def placed_parts(large: Mapping[str, LargeLog], logs: Sequence[FoundLog]) -> list[list[PlacedPart]]:
    """Return the parts of large logs in groups for tasks.

    Args:
        large: these logs, by name.
        logs: all logs.
    """
    files: list[PlacedPart] = []
    others: list[PlacedPart] = []
    for each in (large[log.name] for log in logs if log.name in large):
        for part in each.parts:
            if part.checks_file:
                files.append(PlacedPart(each.log, each.own, part, OPEN_WEIGHT + each.own.count // _FILE_SHARE))
            else:
                others.append(PlacedPart(each.log, each.own, part, OPEN_WEIGHT + part.last - part.first))
    # What takes the longest begins first: one task looks at a file, however large it is.
    return pack(files, -(-sum(file.weight for file in files) // TASK_MESSAGES)) + pack(others, len(others))


class KnownLogs:
    """What tasks have said of logs that is no defect."""

    def __init__(self) -> None:
        self._outcomes: dict[str, LogOutcome] = {}
        self._figures: dict[str, list[tuple[Any, Mapping[str, int], float]]] = {}
        self._problems: dict[str, tuple[Problem, dict[str, int], float]] = {}
        self.defects = 0

    def take(self, rows: Iterable[tuple[str, str, bytes]]) -> dict[str, LargeLog]:
        """Take what the tasks of a stage have said, and return the logs that are to be split, by name.

        Args:
            rows: log, kind and `other` of those that are no defects; what else there is is passed over.
        """
        large: dict[str, LargeLog] = {}
        for name, kind, other in rows:
            if kind == _LARGE:
                large[name] = pickle.loads(other)
            elif kind == _DONE:
                self._outcomes[name] = pickle.loads(other)
            elif kind == _FIGURES:
                self._figures.setdefault(name, []).append(pickle.loads(other))
            elif kind == _UNREADABLE:
                problem, kinds, seconds = pickle.loads(other)
                first, before, spent = self._problems.get(name, (problem, {}, 0.0))
                self._problems[name] = first, _sum([before, kinds]), spent + seconds
        return large

    def conclude(self, work: Work, large: Mapping[str, LargeLog]) -> list[_Row]:
        """Conclude of the logs that were split, and return the rows of the report that come of it."""
        rows: list[_Row] = []
        for name, each in large.items():
            parts = self._figures.get(name, [])
            kinds = _sum([kinds for _, kinds, _ in parts])
            seconds = sum(seconds for _, _, seconds in parts)
            if name in self._problems:
                problem, others, spent = self._problems[name]
                self._problems[name] = problem, _sum([others, kinds]), spent + seconds
                continue
            done = work.conclude(each.own, [figures for figures, _, _ in parts])
            kinds = _sum([kinds, *({kind: 1} for kind, _, _ in done.rows)])
            rows += [(name, kind, key, detail) for kind, key, detail in done.rows]
            if done.problem is None:
                self._outcomes[name] = LogOutcome(done.result, None, kinds, seconds)
            else:
                self._problems[name] = done.problem, kinds, seconds
        for name, (problem, kinds, seconds) in self._problems.items():
            rows.append((name, "log", None, str(problem)))
            self._outcomes[name] = LogOutcome(None, problem, _sum([kinds, {"log": 1}]), seconds)
        self.defects = sum(sum(outcome.kinds.values()) for outcome in self._outcomes.values())
        return rows

    def outcome(self, name: str) -> LogOutcome:
        """Return what became of a log."""
        return self._outcomes[name]


_Row: TypeAlias = tuple[str, str, bytes | None, str]


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for kind, number in each.items():
            total[kind] = total.get(kind, 0) + number
    return total


def _report(session: SparkSession, frames: Sequence[DataFrame], rows: Sequence[_Row]) -> DataFrame:
    found = [{"log": log, "kind": kind, "key": key, "detail": detail} for log, kind, key, detail in rows]
    local = session.createDataFrame(pa.Table.from_pylist(found, ROWS_ARROW), ROWS)
    for frame in frames:
        local = local.union(frame.where(~F.col("kind").isin(_INTERNAL)))
    return local


def _empty(frame: DataFrame) -> DataFrame:
    """Return a frame with these columns, whose rows no task has to look for."""
    columns = to_arrow_schema(frame.schema)
    return frame.sparkSession.createDataFrame(columns.empty_table(), frame.schema)
