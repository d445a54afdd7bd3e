"""The check of a log's messages, heads, tree and indexes, and of any number of logs, on all cores.

A log is checked where it is: a task opens it, looks at a range of its keys (`message_check`) and at what is stored
beside the messages (`row_check`), and asks the log itself for what lies in other ranges. A small log is one range. What
leaves a task is little: defects, a fragment of the tree, and counts, of which a root comes.

A frame of messages, wherever it comes from, is checked by joins: for the parents that are nowhere, and the heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gossiplog import core
from gossiplog.errors import ColumnError, CorruptLog
from gossiplog.log import arrival_check
from gossiplog.reprs import counted
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.jobs.log_metadata import LogMetadata, log_figures
from gossiplog.spark.jobs.message_check import CHILDLESS, FOUND, FOUND_ARROW, FRAGMENT, OUTER, check_partition
from gossiplog.spark.jobs.over_logs import Conclusion, LogPart, over_logs, rows_batch
from gossiplog.spark.jobs.root import in_order, joined
from gossiplog.spark.jobs.row_check import check_heads, check_rows
from gossiplog.spark.source.batches import columns_of
from gossiplog.spark.source.fleet import FoundLog, OpenedLog
from gossiplog.spark.source.marks import check_mark
from gossiplog.spark.source.opening import look_at, opened_log, unopened
from gossiplog.spark.source.problems import Problem, fleet_logs, problem_error
from gossiplog.spark.source.reader import pages
from gossiplog.storage import Storage

DEFECTS = "kind string, id string, detail string"
"""The columns of a report. The kinds:

- `value`: what is stored is no message of the log (its structure, topic or clock is wrong), or not that of its key, or
  nothing is;
- `signature`: it is, but its signature does not hold;
- `parent`: a parent is not in the log;
- `leaf`, `links`, `children`, `encoding`: such a row does not follow from the messages, or one that does is missing;
- `order`: a message is missing from the order of arrival, or came before its parents;
- `tree`: a row of the tree is not the one over its leaves;
- `head`: a message is stored as a head and is none, or the other way round;
- `file`: SQLite finds its file damaged, or does not write to it because of its header. Such a defect has no id;
- `log`: of several logs, this one cannot be read, or not to its end: it is missing, no log, of another topic, locked,
  or too damaged. Such a defect has no id;
- `count`, `root`, `index`: the log as a whole has another number of messages or another tree than it says, or what it
  says of itself cannot be. These have no id.
"""

_LOST_HEAD = "no message names it as a parent, and it is not stored as a head"
# Keys that are looked up together.
_LOOKED_UP = 1000
_Row: TypeAlias = tuple[str, bytes | None, None, str]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a check found.

    Attributes:
        messages: how many have a key and a value.
        root: of the tree over their keys and values, as they are.
        defects: how many of each kind.
        report: all defects, in the columns of `DEFECTS`. It is cached: unpersist it after use.
    """

    messages: int
    root: core.Node
    defects: Mapping[str, int]
    report: DataFrame


@dataclass(frozen=True, slots=True)
class LogVerifyResult:
    """What a check found of one of several logs.

    Attributes:
        log: its location.
        messages: how many have a key and a value; None where the log cannot be read to its end.
        root: of the tree over their keys and values, as they are; None likewise.
        defects: how many of each kind.
        problem: why it cannot be read to its end; None where it can.
        seconds: that tasks took for it, one after the other.
    """

    log: str
    messages: int | None
    root: core.Node | None
    defects: Mapping[str, int]
    problem: Problem | None
    seconds: float

    @property
    def defect_count(self) -> int:
        """How many defects there are, of all kinds."""
        return sum(self.defects.values())


@dataclass(frozen=True, slots=True)
class FleetVerifyResult:
    """What a check of several logs found.

    Attributes:
        logs: each, the worst first: those that cannot be read, then by the number of their defects.
        report: all defects, in the columns of `DEFECTS` after that of the `log`. It is cached: unpersist it after use.
    """

    logs: tuple[LogVerifyResult, ...]
    report: DataFrame


def verify_log(session: SparkSession, location: str, topic: str | None = None) -> VerifyResult:
    """Check a log as it is now: messages that arrive meanwhile are passed over.

    Args:
        session: of Spark.
        location: of the log.
        topic: that it must have; None takes any.

    Raises:
        TopicMismatch: it has another topic.
        CorruptLog: it is too damaged to be read to its end, as a truncated file.
        StorageError: it cannot be read for another reason.
        SparkError: Spark gave up.
    """
    outcomes, report = over_logs(session, VerifyWork(), [look_at(location, topic)], _report)
    (found,) = outcomes.values()
    if found.problem is not None:
        report.unpersist()
        raise problem_error(location, found.problem)
    messages, root = found.result
    return VerifyResult(messages, root, found.kinds, report)


def verify_fleet(
    session: SparkSession,
    *paths: str,
    topic: str | None = None,
    recursive: bool = False,
    name_filter: str | None = None,
) -> FleetVerifyResult:
    """Check any number of logs in one job, each as it is when it is opened.

    A log that is missing, is none, has another topic, is locked or too damaged to be read to its end has a defect of
    the kind `log`.

    Args:
        session: of Spark.
        paths: of the logs; each may be a pattern or a folder. One that names no file is a log with a defect.
        topic: that they must have; None takes any.
        recursive: as `gossiplog.spark.source.locations.locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: a path that no location can be.
        NotALog: a pattern that no file fits, or a folder without files.
        SparkError: Spark gave up.
    """
    listed, missing = fleet_logs(session, paths, topic=topic, recursive=recursive, name_filter=name_filter)
    logs = [*listed, *(unopened(path, topic) for path in missing)]
    outcomes, report = over_logs(session, VerifyWork(), logs, _report_of_logs)
    results: list[LogVerifyResult] = []
    for log, found in outcomes.items():
        messages, root = found.result or (None, None)
        results.append(LogVerifyResult(log, messages, root, found.kinds, found.problem, found.seconds))
    results.sort(key=lambda each: (each.problem is None, -each.defect_count))
    return FleetVerifyResult(tuple(results), report)


def _report(rows: DataFrame) -> DataFrame:
    return rows.select("kind", "key", "other", "detail").mapInArrow(_named, DEFECTS)


def _report_of_logs(rows: DataFrame) -> DataFrame:
    return rows.mapInArrow(_named_of_logs, f"log string, {DEFECTS}")


_READ = columns_of("seq", "key", "value")


@dataclass(frozen=True, slots=True)
class _Figures:
    """What a part of a log comes to, beside its defects.

    Attributes:
        fragment: of the tree over its keys and values.
        children: rows of the index of the children.
        lost_heads: keys that are not stored as heads, and are some if that index is sound.
    """

    fragment: bytes
    children: arrival_check.ChildCounts
    lost_heads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class VerifyWork:
    """Checks a log, or a part of it, in one process."""

    @property
    def checks_file(self) -> bool:
        """True: SQLite checks it."""
        return True

    def look(self, storage: Storage, log: OpenedLog) -> LogMetadata:
        """Return what a log says of itself, but for what its parts look at."""
        return log_figures(storage, log.topic)

    def part(
        self, storage: Storage, log: OpenedLog, own: LogMetadata, part: LogPart
    ) -> Iterator[pa.RecordBatch | tuple[_Figures]]:
        """Yield defects, and the figures of the part."""
        # It may have grown since it was opened.
        log = replace(log, count=own.count)
        messages = pages(_READ, storage, log, part.start, part.end)
        kinds: dict[str, list[pa.RecordBatch]] = {FRAGMENT: [], OUTER: [], CHILDLESS: []}
        for found in check_partition(own.topic, own.count, messages):
            kind = found.column("kind")[0].as_py() if len(found) else ""
            if kind in kinds:
                kinds[kind].append(found)
            elif kind:
                yield found
        missing = [_missing(storage, outer) for outer in kinds[OUTER]]
        problems, children = check_rows(storage, own, part)
        childless = pa.chunked_array([found.column("key") for found in kinds[CHILDLESS]], pa.binary())
        wrong, lost = check_heads(storage, own, part, childless)
        problems += wrong
        # What was held against the messages may be rows of others.
        check_mark(log.name, storage, log.mark)
        yield from missing
        if problems:
            yield rows_batch([(problem.kind, problem.key, problem.text) for problem in problems])
        (fragment,) = kinds[FRAGMENT]
        yield (_Figures(fragment.column("other")[0].as_py(), children, lost),)

    def conclude(self, own: LogMetadata, figures: Sequence[tuple[_Figures]]) -> Conclusion:
        """Return the number of messages and the root, and what is wrong with the log as a whole."""
        parts = [part for (part,) in figures]
        whole = joined(part.fragment for part in parts)
        children = arrival_check.ChildCounts(
            sum(part.children.expected for part in parts),
            sum(part.children.stored for part in parts),
            any(part.children.unknown for part in parts),
        )
        rows = [(kind, key, detail) for kind, key, _, detail in _of_the_whole(whole, own)]
        if (problem := children.problem()) is not None:
            rows.append((problem.kind, problem.key, problem.text))
        else:
            rows += [("head", key, _LOST_HEAD) for part in parts for key in part.lost_heads]
        return Conclusion((whole.count, whole.root), tuple(rows))


def _missing(storage: Storage, outer: pa.RecordBatch) -> pa.RecordBatch:
    """Return a defect for each parent that is not in a log, from rows of parents and their children."""
    keys = outer.column("key")
    found: list[bytes] = []
    unique = pc.unique(keys).to_pylist()
    for at in range(0, len(unique), _LOOKED_UP):
        found += _stored(storage, unique[at : at + _LOOKED_UP])
    missing = outer.filter(pc.invert(pc.is_in(keys, pa.array(found, pa.binary()))))
    parents, children = missing.column("key"), missing.column("other")
    kinds = pa.repeat(pa.scalar("parent", pa.string()), len(missing))
    return pa.RecordBatch.from_arrays([kinds, children, parents, missing.column("detail")], schema=outer.schema)


def verify(
    messages: DataFrame,
    topic: str,
    own: LogMetadata | None = None,
    *,
    location: str | None = None,
    problems: Sequence[arrival_check.Problem] = (),
    ascending: bool = False,
) -> VerifyResult:
    """Check messages, and against them what their log says of itself.

    Of messages these are the values against their keys, their rules, clocks and signatures, and their parents; of the
    log, its heads, its number of messages and its root.

    A message's clock is checked against its parents' keys, which begin with their clocks. Where a value is damaged,
    what it named as its parents is not known: a message with a smaller key that nobody else names is no defect then.

    Args:
        messages: with the columns `key` and `value`; with `seq`, those after `own.count` are passed over.
        topic: of the log.
        own: what the log says of itself; None looks at messages and parents alone.
        location: of the log, in which parents in other partitions are looked up; None joins them with all keys. With
            `own`, it must be the log of which that is.
        problems: that were found elsewhere, to be reported as well.
        ascending: as for `root`.

    Raises:
        ColumnError: a frame without these columns.
        TreeError: a key that comes twice.
        SparkError: Spark gave up.
        GossipLogError: as reading the frames raises it.
    """
    if not {"key", "value"} <= set(messages.columns):
        raise ColumnError(f"the frame has no columns key and value: it has {', '.join(messages.columns)}")
    wanted = [name for name in ("key", "value", "seq") if name in messages.columns]
    count = None if own is None else own.count
    checked = partial(check_partition, topic, count)
    found = in_order(messages.select(*wanted), ascending).mapInArrow(checked, FOUND).persist()
    try:
        with worker_errors():
            fragments = found.where(F.col("kind") == FRAGMENT).select("other").collect()
            whole = joined(bytes(row.other) for row in fragments)
            parts = [found.where(F.col("kind").isin("value", "signature"))]
            outer = found.where(F.col("kind") == OUTER)
            if location is None:
                missing = _not_among(outer, messages.select("key"))
            else:
                log = unopened(location, topic)
                if own is not None and own.mark is not None:
                    log = OpenedLog(log.name, log.location, own.topic, log.size, own.count, own.mark)
                missing = outer.mapInArrow(partial(_not_stored, log), FOUND)
            parts.append(_missing_parents(missing))
            if own is not None and own.heads is not None:
                parts += _wrong_heads(found, own.heads)
            parts.append(_local(found.sparkSession, [*_of_the_whole(whole, own), *map(_row, problems)]))
            report = reduce(DataFrame.union, parts).mapInArrow(_named, DEFECTS).persist()
            kinds = {row["kind"]: row["count"] for row in report.groupBy("kind").count().collect()}
    finally:
        found.unpersist()
    return VerifyResult(whole.count, whole.root, kinds, report)


def _not_among(outer: DataFrame, keys: DataFrame) -> DataFrame:
    # Few, whatever the log's length: so its keys are compared where they are read, and none is shuffled.
    named = keys.join(F.broadcast(outer.select("key").distinct()), "key", "left_semi")
    return outer.join(named, "key", "left_anti").select(*outer.columns)


def _not_stored(log: FoundLog, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose keys are not in a log."""
    with opened_log(log) as (storage, _):
        for batch in batches:
            found = _stored(storage, pc.unique(batch.column("key")).to_pylist())
            yield batch.filter(pc.invert(pc.is_in(batch.column("key"), pa.array(found, pa.binary()))))


def _stored(storage: Storage, keys: Sequence[bytes]) -> list[bytes]:
    """Return those of the keys that have a leaf."""
    try:
        with storage.reader(single=True) as reader:
            return [*reader.sequences(keys)]
    except CorruptLog:
        # A leaf whose sequence is damaged is there, and `row_check` names it.
        if len(keys) == 1:
            return [*keys]
    return [found for key in keys for found in _stored(storage, [key])]


def _missing_parents(missing: DataFrame) -> DataFrame:
    return missing.select(
        F.lit("parent"), F.col("other").alias("key"), F.col("key").alias("other"), "detail"
    ).distinct()


def _wrong_heads(found: DataFrame, heads: tuple[bytes, ...]) -> list[DataFrame]:
    own = found.sparkSession.createDataFrame(pa.table({"key": pa.array(heads, pa.binary())}), "key binary")
    named = found.where(F.col("kind") == OUTER).select("key")
    actual = found.where(F.col("kind") == CHILDLESS).select("key").join(named, "key", "left_anti")
    # The largest key of which a child may be lost.
    damaged = found.where(F.col("kind") == "value").agg(F.max("key").alias("largest"))
    lost = actual.join(own, "key", "left_anti").join(damaged, F.col("key") < F.col("largest"), "left_anti")
    return [
        _defect("head", lost, _LOST_HEAD),
        _defect("head", own.join(actual, "key", "left_anti"), "it is stored as a head, and is none"),
    ]


def _defect(kind: str, keys: DataFrame, detail: str) -> DataFrame:
    return keys.select(F.lit(kind), "key", F.lit(None).cast("binary"), F.lit(detail))


def _row(problem: arrival_check.Problem) -> _Row:
    return problem.kind, problem.key, None, problem.text


def _of_the_whole(whole: core.Fragment, own: LogMetadata | None) -> Iterator[_Row]:
    if own is None:
        return
    yield from map(_row, own.stray)
    if own.problem is not None:
        yield "index", None, None, own.problem
    if whole.count != own.count:
        found = counted(whole.count, "message has", "messages have")
        yield "count", None, None, f"{found} a key and a value; the log says that it has {own.count:,}"
    if own.root is not None and whole.root != own.root:
        yield "root", None, None, f"the root of the messages is {_text(whole.root)}, the log's own is {_text(own.root)}"


def _text(node: core.Node) -> str:
    return f"{node.hash.hex()} at level {node.level}"


def _local(session: SparkSession, defects: Sequence[_Row]) -> DataFrame:
    names = FOUND_ARROW.names
    rows = [dict(zip(names, row, strict=True)) for row in defects]
    return session.createDataFrame(pa.Table.from_pylist(rows, FOUND_ARROW), FOUND)


def _named_of_logs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        (named,) = _named([batch.drop_columns(["log"])])
        yield pa.RecordBatch.from_arrays([batch.column("log"), *named], ["log", *named.schema.names])


def _named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield defects with ids in place of keys: there are few, and nothing else names a key."""
    for batch in batches:
        rows = [_defect_row(*row.values()) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, pa.schema([(name, pa.string()) for name in ("kind", "id", "detail")]))


def _defect_row(kind: str, key: bytes | None, other: bytes | None, detail: str | None) -> dict[str, str | None]:
    id = core.encode_id(key) if key is not None and len(key) == core.KEY_LENGTH else None
    if other is not None:
        detail = f"its parent {core.encode_id(other)} is not in the log"
    if key is not None and id is None:
        detail = f"{detail} (the key is {key.hex()[:80]})"
    return {"kind": kind, "id": id, "detail": detail}
