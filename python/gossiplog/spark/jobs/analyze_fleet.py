"""Many logs in figures, in one job: each log's own, all of them together, and the most conspicuous first.

A task has many logs, and analyses each whole, in its own process (`log_analysis`). A log that is too large for that is
analysed by `analyze`, on all cores, after the others. What reaches the driver is figures and, of the logs that
stand out, what plots and tables of a page show. A log that cannot be read is a row.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from functools import reduce
from math import log as ln
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from gossiplog.errors import GossipLogError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import filling
from gossiplog.spark.jobs.analyze import COLUMNS, LIMIT, AnalyzeResult, Totals, analyze
from gossiplog.spark.jobs.fleet_figures import DETAILED, FleetAnalyzeResult, FleetTotals, LogFigures
from gossiplog.spark.jobs.fleet_page import fleet_page
from gossiplog.spark.jobs.log_analysis import LogAnalysis, analyze_log, modified_scores
from gossiplog.spark.jobs.report import PAGE, TABLES
from gossiplog.spark.source.fleet import FoundLog, KeyRange, OpenedLog, packed, split_open
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.opening import opened_log
from gossiplog.spark.source.options import pruned
from gossiplog.spark.source.problems import Problem, fleet_logs, problem_of
from gossiplog.spark.source.reader import number_of_partitions, ranges_frame
from gossiplog.spark.tasks import Bundles, parallelism, placed, unpacked

WHOLE_MESSAGES = 2**18
"""Messages of a log up to which a task has room for it: some 80 MB."""
# What tasks report: a row for each log, with its figures, its problem or that it is large, and one with the rest; and
# rows of authors, forks and encodings.
_ROWS = pa.schema(
    [
        ("log", pa.string()),
        ("kind", pa.string()),
        ("author", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("first_clock", pa.int64()),
        ("last_clock", pa.int64()),
        ("first", pa.list_(pa.string())),
        ("content_id", pa.string()),
        ("number", pa.int64()),
        ("id", pa.string()),
        ("seq", pa.int64()),
        ("size", pa.int64()),
        ("content", pa.binary()),
    ]
)
_LARGE_COLUMNS = pruned(column for column in COLUMNS if column != "payload")
_FIGURES, _PROBLEM, _LARGE, _DETAILS = "figures", "problem", "large", "details"
_FRAMES: Mapping[str, tuple[str, ...]] = {
    "authors": ("author", "messages", "bytes", "first_clock", "last_clock"),
    "forks": ("author", "messages", "first"),
    "alternative_encodings": ("content_id", "number", "id", "seq", "size"),
}


def analyze_fleet(
    session: SparkSession,
    *paths: str,
    topic: str | None = None,
    recursive: bool = False,
    name_filter: str | None = None,
) -> FleetAnalyzeResult:
    """Analyse many logs.

    Args:
        session: of Spark.
        paths: of logs; each may be a pattern or a folder. One that names no file is a log with a problem.
        topic: that all logs must have; None takes any.
        recursive: as `gossiplog.spark.source.locations.locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: a path that no location can be.
        NotALog: a pattern that no file fits.
        SparkError: Spark gave up.
    """
    logs, problems = fleet_logs(session, paths, topic=topic, recursive=recursive, name_filter=name_filter)
    with worker_errors():
        counted = placed(session, packed(logs, parallelism(session))).mapInArrow(_analyzed, from_arrow_schema(_ROWS))
        counted = counted.persist(StorageLevel.DISK_ONLY)
        figures: dict[str, LogFigures] = {}
        large: dict[str, tuple[OpenedLog, Sequence[KeyRange]]] = {}
        for row in (
            counted.where(F.col("kind").isin(_FIGURES, _PROBLEM, _LARGE)).select("log", "kind", "content").collect()
        ):
            if row.kind == _LARGE:
                large[row.log] = pickle.loads(row.content)
            elif row.kind == _PROBLEM:
                problems[row.log] = pickle.loads(row.content)
            else:
                figures[row.log] = pickle.loads(row.content)
        frames = {name: [_frame(counted, name)] for name in _FRAMES}
        details: dict[str, AnalyzeResult] = {}
        for name, (log, ranges) in sorted(large.items()):
            messages = ranges_frame(session, ranges, _LARGE_COLUMNS)
            try:
                result = analyze(messages, location=log.location, count=log.count)
            except GossipLogError as error:
                problems[name] = problem_of(log.location, error, name)
                continue
            largest = result.authors[0].messages if result.authors else 0
            figures[name] = _figures_of(name, log.topic, result.totals, largest)
            for kind, columns in _FRAMES.items():
                frames[kind].append(result.frames[kind].select(F.lit(name).alias("log"), *columns))
            details[name] = replace(result, frames={})
        whole = {kind: reduce(DataFrame.union, several) for kind, several in frames.items()}
        authors = whole["authors"].select("author").distinct().count()
        rows, totals = _compared([*figures.values()], problems, authors)
        kept = _kept_details(counted, [row for row in rows if row.remarks and row.problem is None][:DETAILED], details)
    return FleetAnalyzeResult(totals, rows, kept, whole, (counted,))


def _frame(counted: DataFrame, name: str) -> DataFrame:
    return counted.where(F.col("kind") == name).select("log", *_FRAMES[name])


def _kept_details(
    counted: DataFrame, logs: Sequence[LogFigures], details: Mapping[str, AnalyzeResult]
) -> dict[str, AnalyzeResult]:
    """Return the analyses of some logs, in their order."""
    names = [row.log for row in logs]
    wanted = F.col("log").isin(names) & (F.col("kind") == _DETAILS)
    found = {row.log: pickle.loads(row.content) for row in counted.where(wanted).select("log", "content").collect()}
    found |= details
    return {name: found[name] for name in names}


def _figures_of(log: str, topic: str, totals: Totals, largest: int) -> LogFigures:
    own = {each.name for each in fields(LogFigures)}
    counts: dict[str, Any] = {name: value or 0 for name, value in asdict(totals).items() if name in own}
    return LogFigures(log, topic, largest_author=largest, **counts)


def _compared(
    figures: Sequence[LogFigures], problems: Mapping[str, Problem], authors: int
) -> tuple[tuple[LogFigures, ...], FleetTotals]:
    """Return the logs in their order, with their scores, and all of them together."""
    scores = zip(*(scores_of([getattr(row, name) for row in figures]) for name in ("messages", "bytes")), strict=True)
    rows = [
        replace(row, messages_score=one, bytes_score=other) for row, (one, other) in zip(figures, scores, strict=True)
    ]
    every = [LogFigures(log, problem=problem) for log, problem in problems.items()] + rows
    every.sort(key=lambda row: (row.problem is None, -row.damaged, -row.forked, -row.reencoded, -row.score, row.log))
    totals = FleetTotals(
        logs=len(every),
        problems=len(problems),
        topics=len({row.topic for row in rows}),
        messages=sum(row.messages for row in rows),
        damaged=sum(row.damaged for row in rows),
        bytes=sum(row.bytes for row in rows),
        authors=authors,
        forked=sum(row.forked > 0 for row in rows),
        reencoded=sum(row.reencoded > 0 for row in rows),
        suspects=sum(row.score > LIMIT for row in rows),
        conspicuous=sum(bool(row.remarks) for row in every),
    )
    return tuple(every), totals


def scores_of(values: Sequence[int]) -> list[float | None]:
    """Return the modified z-scores of the logarithms of values; None for each where all are alike.

    Nothing has the logarithm of one: an empty log is as usual as one with a single message.
    """
    logarithms = np.array([ln(max(value, 1)) for value in values])
    return modified_scores(logarithms - np.median(logarithms)) if len(values) else []


def write_fleet_analysis(result: FleetAnalyzeResult, folder: str, title: str = "Logs") -> None:
    """Write an analysis to a folder: `report.html`, `analysis.json`, and the frames as Parquet, a folder each.

    Args:
        result: of many logs.
        folder: to be made; it is there when all in it is complete.
        title: of the page: which logs it is about.

    Raises:
        OptionError: something is there already.
        StorageError: as `gossiplog.spark.folders.building`.
        OSError: the folder cannot be written.
    """
    now = datetime.now(UTC)
    with filling(folder, "the report", result.frames["authors"].sparkSession) as new:
        for name, frame in result.frames.items():
            new.write_parquet(frame, name)
        new.write_text(PAGE, fleet_page(result, title, now))
        facts = {"title": title, "date": now.isoformat(timespec="seconds")}
        new.write_text(TABLES, json.dumps({**facts, **fleet_tables(result)}, indent=2))


def fleet_tables(result: FleetAnalyzeResult) -> dict[str, Any]:
    """Return everything but frames and details, as JSON has it."""
    return {"totals": asdict(result.totals), "logs": list(map(asdict, result.logs))}


def _analyzed(batches: Bundles) -> Iterator[pa.RecordBatch]:
    patience = LockPatience()
    for log in unpacked(batches):
        yield from analysis_rows(log, patience)


def analysis_rows(log: FoundLog, patience: LockPatience | None = None) -> Iterator[pa.RecordBatch]:
    """Yield what is reported of a log, in one piece: nothing of one that cannot be read but its problem.

    Args:
        log: to be opened.
        patience: as `gossiplog.spark.source.opening.opened` takes it.
    """
    try:
        with opened_log(log, patience) as (storage, seen):
            if seen.count > WHOLE_MESSAGES:
                ranges = split_open(storage, seen, number_of_partitions(seen.count, seen.size))
                yield from _rows(log.name, _LARGE, [{"content": pickle.dumps((seen, ranges))}])
                return
            found = analyze_log(storage, seen)
    except (GossipLogError, OSError) as error:
        yield from _rows(log.name, _PROBLEM, [{"content": pickle.dumps(problem_of(log.location, error, log.name))}])
        return
    largest = found.result.authors[0].messages if found.result.authors else 0
    figures = _figures_of(log.name, seen.topic, found.result.totals, largest)
    yield from _rows(log.name, _FIGURES, [{"content": pickle.dumps(figures)}])
    yield from _rows(log.name, _DETAILS, [{"content": pickle.dumps(found.result)}])
    yield from _tables(log.name, found)


def _tables(log: str, found: LogAnalysis) -> Iterator[pa.RecordBatch]:
    yield from _rows(log, "authors", found.authors.to_pylist())
    yield from _rows(log, "forks", [asdict(fork) for fork in found.forks])
    yield from _rows(log, "alternative_encodings", found.encodings.to_pylist())


def _rows(log: str, kind: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    if whole := [{"log": log, "kind": kind, **row} for row in rows]:
        yield pa.RecordBatch.from_pylist(whole, _ROWS)
