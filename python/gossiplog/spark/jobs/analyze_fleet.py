"""Many logs in figures, in one job: each log's own, all of them together, and the most conspicuous first.

A task counts the messages of its logs by author, so that what is shuffled has a row for each author of a log and of a
task. Of a message with several encodings, the one that arrived first counts. A log that cannot be read is a row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from statistics import fmean, median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gossiplog.errors import GossipLogError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import filling
from gossiplog.spark.jobs.analyze import LIMIT, MAD, MEAN_AD
from gossiplog.spark.source.batches import Columns
from gossiplog.spark.source.fleet import OPEN_WEIGHT, KeyRange, look_at, pack, split
from gossiplog.spark.source.locations import anchored_for, identity
from gossiplog.spark.source.options import ReadOptions, pruned
from gossiplog.spark.source.problems import Problem, fleet_locations, problem_of
from gossiplog.spark.source.reader import PARTITION_MESSAGES, read_range
from gossiplog.spark.tasks import spread

_TASK_WEIGHT = 2**17
_LEAST_TASKS = 4
_READ = ("clock", "author", "size", "parents")
_COUNTED = pa.schema(
    [
        ("number", pa.int32()),
        ("author", pa.string()),
        ("messages", pa.int64()),
        ("damaged", pa.int64()),
        ("bytes", pa.int64()),
        ("first_clock", pa.int64()),
        ("last_clock", pa.int64()),
        ("first", pa.int64()),
        ("merges", pa.int64()),
        ("kind", pa.string()),
        ("problem", pa.string()),
    ]
)
_COLUMNS = (
    "number int, author string, messages long, damaged long, bytes long, first_clock long, last_clock long, first long,"
    " merges long, kind string, problem string"
)
_SUMS = ("messages", "damaged", "bytes", "first", "merges")
TABLES = "analysis.json"


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One log of a fleet.

    Attributes:
        log: its location.
        topic: None where it was left out.
        problem: why it was left out; None where it was read.
        messages: how many it has, without damaged ones.
        damaged: how many have a stored value that is not theirs; nothing else covers them.
        bytes: of stored values.
        authors: how many there are.
        largest_author: messages of the author with the most.
        longest_chain: messages in the longest chain.
        first: messages without parents.
        merges: messages with several parents.
        messages_score: how unusual the number of its messages is in the fleet: the modified z-score, as that of authors
            in a log. None where all logs are alike.
        bytes_score: the same by bytes.
    """

    log: str
    topic: str | None = None
    problem: Problem | None = None
    messages: int = 0
    damaged: int = 0
    bytes: int = 0
    authors: int = 0
    largest_author: int = 0
    longest_chain: int = 0
    first: int = 0
    merges: int = 0
    messages_score: float | None = None
    bytes_score: float | None = None

    @property
    def score(self) -> float:
        """The larger of both scores."""
        return max(self.messages_score or 0.0, self.bytes_score or 0.0)


@dataclass(frozen=True, slots=True)
class FleetTotals:
    """All logs of a fleet.

    Attributes:
        logs: how many there are, those that were left out included.
        problems: how many of them were left out.
        topics: how many the others have.
        messages: of all logs; a message counts once for each replica.
        damaged: likewise.
        bytes: of stored values.
        authors: how many different ones there are.
        suspects: logs with far more messages or bytes than the others.
    """

    logs: int
    problems: int
    topics: int
    messages: int
    damaged: int
    bytes: int
    authors: int
    suspects: int


@dataclass(frozen=True, slots=True)
class FleetAnalyzeResult:
    """Many logs in figures.

    Attributes:
        totals: of all of them.
        logs: the most conspicuous first: those that were left out, then those with the most damaged messages, then
            those with the highest score, then by location.
        authors: a row for each author of each log, with the columns log, author, messages, bytes, first_clock and
            last_clock; kept on disk.
    """

    totals: FleetTotals
    logs: tuple[LogFigures, ...]
    authors: DataFrame


def analyze_fleet(
    spark: SparkSession, *paths: str, recursive: bool = False, name_filter: str | None = None
) -> FleetAnalyzeResult:
    """Analyse many logs.

    Args:
        spark: the session.
        paths: of logs; each may be a pattern or a folder. One that names no file is a log with a problem.
        recursive: as `gossiplog.spark.source.locations.locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: a path that no location can be.
        NotALog: a pattern that no file fits.
        SparkError: Spark gave up.
    """
    anchors = anchored_for(spark, paths)
    found, problems = fleet_locations(anchors, recursive=recursive, name_filter=name_filter)
    with worker_errors():
        named = [_Named(location, identity(location)) for location in found]
        plans: list[list[KeyRange]] = []
        for plan in chain.from_iterable(spread(spark, pack(named, _tasks(named)), _plans)):
            if isinstance(plan, list):
                plans.append(plan)
            else:
                problems[plan[0]] = plan[1]
        parts = [_Part(number, part, part.weight) for number, plan in enumerate(plans) for part in plan]
        groups = pack(parts, _tasks(parts))
        numbers = spark.range(0, len(groups), 1, max(len(groups), 1))
        counted = numbers.mapInArrow(_Count(groups), _COLUMNS).persist(StorageLevel.DISK_ONLY)
        logs = [plan[0].log for plan in plans]
        broken = counted.where("problem IS NOT NULL").select("number", "kind", "problem").collect()
        problems |= {logs[row.number].name: Problem(row.kind, row.problem) for row in broken}
        left = sorted({row.number for row in broken})
        by_author = (
            counted.where(~F.col("number").isin(left) & F.col("problem").isNull())
            .groupBy("number", "author")
            .agg(
                *(F.sum(name).alias(name) for name in _SUMS),
                F.min("first_clock").alias("first_clock"),
                F.max("last_clock").alias("last_clock"),
            )
            .persist(StorageLevel.DISK_ONLY)
        )
        figures = _figures(by_author)
        different = by_author.where("author IS NOT NULL").select("author").distinct().count()
        names = spark.createDataFrame([(number, log.name) for number, log in enumerate(logs)], "number int, log string")
        authors = (
            by_author.where("author IS NOT NULL")
            .join(F.broadcast(names), "number")
            .select("log", "author", "messages", "bytes", "first_clock", "last_clock")
        )
        counted.unpersist()
    rows = [
        replace(LogFigures(log.name, log.topic), **figures.get(number, {}))
        for number, log in enumerate(logs)
        if log.name not in problems
    ]
    return _result(rows, problems, different, authors)


def _result(rows: list[LogFigures], problems: dict[str, Problem], authors: int, frame: DataFrame) -> FleetAnalyzeResult:
    scores = zip(scores_of([row.messages for row in rows]), scores_of([row.bytes for row in rows]), strict=True)
    rows = [replace(row, messages_score=one, bytes_score=other) for row, (one, other) in zip(rows, scores, strict=True)]
    every = [LogFigures(log, problem=problem) for log, problem in problems.items()] + rows
    every.sort(key=lambda row: (row.problem is None, -row.damaged, -row.score, row.log))
    totals = FleetTotals(
        logs=len(every),
        problems=len(problems),
        topics=len({row.topic for row in rows}),
        messages=sum(row.messages for row in rows),
        damaged=sum(row.damaged for row in rows),
        bytes=sum(row.bytes for row in rows),
        authors=authors,
        suspects=sum(row.score > LIMIT for row in rows),
    )
    return FleetAnalyzeResult(totals, tuple(every), frame)


def scores_of(values: Sequence[int]) -> list[float | None]:
    """Return the modified z-scores of the logarithms of values; None for each where all are alike.

    Nothing has the logarithm of one: an empty log is as usual as one with a single message.
    """
    logarithms = [math.log(max(value, 1)) for value in values]
    if not logarithms:
        return []
    middle = median(logarithms)
    distances = [each - middle for each in logarithms]
    if spread_of := median(map(abs, distances)):
        return [MAD * distance / spread_of for distance in distances]
    if mean := fmean(map(abs, distances)):
        return [distance / (MEAN_AD * mean) for distance in distances]
    return [None] * len(distances)


def write_fleet_analysis(result: FleetAnalyzeResult, folder: str) -> None:
    """Write an analysis: `analysis.json` has the totals and the logs, the folder `authors` their authors as Parquet.

    Args:
        result: of many logs.
        folder: to be made; it is there when all in it is complete.

    Raises:
        OptionError: something is there already.
        StorageError: as `gossiplog.spark.folders.building`.
        OSError: the folder cannot be written.
    """
    with filling(folder, "the report", result.authors.sparkSession) as new:
        new.write_parquet(result.authors, "authors")
        new.write_text(TABLES, json.dumps(fleet_tables(result), indent=2))


def fleet_tables(result: FleetAnalyzeResult) -> dict[str, Any]:
    """Return everything but the frame, as JSON has it."""
    return {"totals": asdict(result.totals), "logs": list(map(asdict, result.logs))}


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    location: str
    weight: int = OPEN_WEIGHT


@dataclass(frozen=True, slots=True)
class _Part:
    """A range of the log with a number."""

    number: int
    part: KeyRange
    weight: int


def _tasks(items: Sequence[_Named] | Sequence[_Part]) -> int:
    return max(1, min(len(items), max(_LEAST_TASKS, sum(item.weight for item in items) // _TASK_WEIGHT)))


def _plans(logs: Sequence[_Named]) -> list[list[KeyRange] | tuple[str, Problem]]:
    """Return the ranges of each log; of one that cannot be read, why."""
    found: list[list[KeyRange] | tuple[str, Problem]] = []
    for log in logs:
        try:
            seen = replace(look_at(log.location), name=log.name)
            found.append(split(seen, -(-(seen.count or 0) // PARTITION_MESSAGES)))
        except GossipLogError as error:
            found.append((log.name, problem_of(log.location, error)))
    return found


@dataclass(frozen=True, slots=True)
class _Count:
    """Counts the messages of those of the groups of parts whose numbers come in."""

    groups: list[list[_Part]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.groups[number]:
                    yield count_part(part.number, part.part)


def count_part(number: int, part: KeyRange) -> pa.RecordBatch:
    """Return a row for each author in a range, damaged messages having none; one with a problem where it is unreadable.

    Args:
        number: of the log.
        part: of the log.
    """
    options = ReadOptions((part.log.location,), encodings="first", columns=pruned(_READ))
    columns = Columns(options, options.columns)
    try:
        counts = [_count(batch) for batch in read_range(columns, part)]
    except GossipLogError as error:
        problem = problem_of(part.log.location, error)
        return pa.RecordBatch.from_pylist([{"number": number, "kind": problem.kind, "problem": problem.text}], _COUNTED)
    if not counts:
        return pa.RecordBatch.from_pylist([], _COUNTED)
    rows = _sums(pa.concat_tables(counts))
    return pa.RecordBatch.from_pylist([{"number": number, **row} for row in rows.to_pylist()], _COUNTED)


def _count(batch: pa.RecordBatch) -> pa.Table:
    clock = batch["clock"]
    sound = pc.is_valid(clock)
    parents = pc.list_value_length(batch["parents"])
    columns = {
        "author": batch["author"],
        "messages": sound.cast(pa.int64()),
        "damaged": pc.invert(sound).cast(pa.int64()),
        "bytes": pc.if_else(sound, batch["size"], 0),
        "first_clock": clock,
        "last_clock": clock,
        "first": pc.fill_null(pc.equal(parents, 0), False).cast(pa.int64()),
        "merges": pc.fill_null(pc.greater(parents, 1), False).cast(pa.int64()),
    }
    return _sums(pa.table(columns))


def _sums(table: pa.Table) -> pa.Table:
    kinds = [*((name, "sum") for name in _SUMS), ("first_clock", "min"), ("last_clock", "max")]
    found = table.group_by("author").aggregate(kinds)
    return found.rename_columns({f"{name}_{kind}": name for name, kind in kinds})


def _figures(by_author: DataFrame) -> dict[int, dict[str, Any]]:
    """Return the figures of each log that has a message, by its number."""
    figures = by_author.groupBy("number").agg(
        *(F.sum(name).alias(name) for name in _SUMS),
        F.count("author").alias("authors"),
        F.max("messages").alias("largest_author"),
        F.coalesce(F.max("last_clock"), F.lit(0)).alias("longest_chain"),
    )
    found = {row.number: row.asDict() for row in figures.collect()}
    return {number: {name: value for name, value in row.items() if name != "number"} for number, row in found.items()}
