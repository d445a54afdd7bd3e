"""The check of a log's messages, heads, tree and indexes, on all partitions at a time.

What is stored beside the messages is checked by `row_check`. One pass judges every message and makes the tree's
fragments. A parent is looked for in its child's own partition first: since keys begin with the clock, most are there.
What leaves a partition is little: defects, a fragment, parents that are not there, messages that nobody there names.
Joins over these find the parents that are nowhere, and the heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gossiplog import columns, core
from gossiplog.errors import ColumnError, CorruptLog
from gossiplog.log.arrival_check import Problem
from gossiplog.reprs import counted
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.jobs.log_metadata import LogMetadata, log_metadata
from gossiplog.spark.jobs.root import entries_fragment, in_order, joined
from gossiplog.spark.jobs.row_check import check_rows
from gossiplog.spark.source.data_source import read
from gossiplog.spark.source.locations import identity, opened
from gossiplog.storage import Storage

DEFECTS = "kind string, id string, detail string"
"""The columns of a report. The kinds:

- `value`: what is stored is no message of the log (its structure, topic or clock is wrong), or not that of its key;
- `signature`: it is, but its signature does not hold;
- `parent`: a parent is not in the log;
- `leaf`, `links`, `children`, `encoding`: such a row does not follow from the messages, or one that does is missing;
- `order`: a message is missing from the order of arrival, or came before its parents;
- `tree`: a row of the tree is not the one over its leaves;
- `head`: a message is stored as a head and is none, or the other way round;
- `file`: SQLite finds its file damaged, or does not write to it because of its header. Such a defect has no id;
- `count`, `root`, `index`: the log as a whole has another number of messages or another tree than it says, or what it
  says of itself cannot be. These have no id.
"""

_Row: TypeAlias = tuple[str, bytes | None, None, str]
_FOUND = "kind string, key binary, other binary, detail string"
_FOUND_ARROW = pa.schema([("kind", pa.string()), ("key", pa.binary()), ("other", pa.binary()), ("detail", pa.string())])
# What a partition reports beside defects: its fragment (in `other`); parents that it lacks, each with the child there.
_FRAGMENT, _OUTER, _CHILDLESS = "fragment", "outer", "childless"


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a check found.

    Attributes:
        messages: how many were checked.
        root: of the tree over their keys and values, as they are.
        defects: how many of each kind.
        report: all defects, in the columns of `DEFECTS`. It is cached: unpersist it after use.
    """

    messages: int
    root: core.Node
    defects: Mapping[str, int]
    report: DataFrame


def verify_log(session: SparkSession, location: str, topic: str | None = None) -> VerifyResult:
    """Check a log as it is now: messages that arrive meanwhile are passed over.

    Args:
        session: of Spark.
        location: of the log.
        topic: that it must have; None takes any.

    Raises:
        TopicMismatch: it has another topic.
        StorageError: it cannot be read, as a truncated file.
        SparkError: Spark gave up.
    """
    own = log_metadata(location, topic)
    with worker_errors():
        # Executors have working folders of their own.
        location = identity(location)
        problems = check_rows(session, location, own)
    messages = read(session, location, columns="seq,key,value")
    return verify(messages, own.topic, own, location=location, problems=problems, ascending=True)


def verify(
    messages: DataFrame,
    topic: str,
    own: LogMetadata | None = None,
    *,
    location: str | None = None,
    problems: Sequence[Problem] = (),
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
        location: of the log, in which parents in other partitions are looked up; None joins them with all keys.
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
    found = in_order(messages.select(*wanted), ascending).mapInArrow(checked, _FOUND).persist()
    try:
        with worker_errors():
            fragments = found.where(F.col("kind") == _FRAGMENT).select("other").collect()
            whole = joined(bytes(row.other) for row in fragments)
            parts = [found.where(F.col("kind").isin("value", "signature"))]
            outer = found.where(F.col("kind") == _OUTER)
            if location is None:
                missing = _not_among(outer, messages.select("key"))
            else:
                missing = outer.mapInArrow(partial(_not_stored, location, topic), _FOUND)
            parts.append(_missing_parents(missing))
            if own is not None and own.heads is not None:
                parts += _wrong_heads(found, own.heads)
            parts.append(_local(found.sparkSession, [*_of_the_whole(whole, own), *map(_row, problems)]))
            report = reduce(DataFrame.union, parts).mapInArrow(_named, DEFECTS).persist()
            kinds = {row["kind"]: row["count"] for row in report.groupBy("kind").count().collect()}
    finally:
        found.unpersist()
    return VerifyResult(whole.count, whole.root, kinds, report)


def reports(checked: Sequence[tuple[str, VerifyResult]]) -> DataFrame:
    """Return the reports of several logs in one, with the column `log` before those of `DEFECTS`.

    Args:
        checked: one log at least, each with its location.
    """
    frames = [found.report.select(F.lit(log).alias("log"), "*") for log, found in checked]
    return reduce(DataFrame.union, frames)


def _not_among(outer: DataFrame, keys: DataFrame) -> DataFrame:
    # Few, whatever the log's length: so its keys are compared where they are read, and none is shuffled.
    named = keys.join(F.broadcast(outer.select("key").distinct()), "key", "left_semi")
    return outer.join(named, "key", "left_anti").select(*outer.columns)


def _not_stored(location: str, topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose keys are not in a log."""
    with opened(location, topic) as (storage, _):
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
    own = found.sparkSession.createDataFrame([(bytearray(key),) for key in heads], "key binary")
    named = found.where(F.col("kind") == _OUTER).select("key")
    actual = found.where(F.col("kind") == _CHILDLESS).select("key").join(named, "key", "left_anti")
    # The largest key of which a child may be lost.
    damaged = found.where(F.col("kind") == "value").agg(F.max("key").alias("largest"))
    lost = actual.join(own, "key", "left_anti").join(damaged, F.col("key") < F.col("largest"), "left_anti")
    return [
        _defect("head", lost, "no message names it as a parent, and it is not stored as a head"),
        _defect("head", own.join(actual, "key", "left_anti"), "it is stored as a head, and is none"),
    ]


def _defect(kind: str, keys: DataFrame, detail: str) -> DataFrame:
    return keys.select(F.lit(kind), "key", F.lit(None).cast("binary"), F.lit(detail))


def _row(problem: Problem) -> _Row:
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


def _local(session: SparkSession, defects: list[_Row]) -> DataFrame:
    return session.createDataFrame(
        [(kind, None if key is None else bytearray(key), other, detail) for kind, key, other, detail in defects],
        _FOUND,
    )


def check_partition(topic: str, count: int | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what a partition reports, for `mapInArrow`: rows of defects, outer parents, childless keys and a fragment.

    Args:
        topic: of the log.
        count: rows with a larger `seq` are passed over, where the batches have that column.
        batches: with the columns `key`, ascending, and `value`.
    """
    fragment = columns.Fragment()
    known: list[pa.Array] = []
    parents: list[pa.Array] = []
    children: list[pa.Array] = []
    for batch in batches:
        if count is not None and "seq" in batch.schema.names:
            batch = batch.filter(pc.less_equal(batch.column("seq"), count))
        keys, values = batch.column("key"), batch.column("value")
        verdicts = columns.verify(keys, values, topic, ["parent_keys"])
        errors, parent_keys = verdicts.column("error"), verdicts.column("parent_keys")
        sound = pc.is_valid(parent_keys)
        for kind, those in (("signature", sound), ("value", pc.invert(sound))):
            defects = pc.and_(those, pc.is_valid(errors))
            yield _found(kind, keys.filter(defects), detail=errors.filter(defects))
        complete = pc.and_(pc.is_valid(keys), pc.is_valid(values))
        entries = keys.filter(complete)
        fragment = fragment.join(entries_fragment(entries, columns.leaf_hashes(entries, values.filter(complete))))
        named = parent_keys.filter(sound)
        parents.append(pc.list_flatten(named))
        children.append(keys.filter(sound).take(pc.list_parent_indices(named)))
        known.append(keys.drop_null())
    here, there = (pa.chunked_array(arrays, pa.binary()).combine_chunks() for arrays in (known, parents))
    outer = pc.invert(pc.is_in(there, here))
    yield _found(_OUTER, there.filter(outer), pa.chunked_array(children, pa.binary()).combine_chunks().filter(outer))
    yield _found(_CHILDLESS, here.filter(pc.invert(pc.is_in(here, there))))
    yield _found(_FRAGMENT, pa.nulls(1, pa.binary()), pa.array([fragment.to_bytes()], pa.binary()))


def _found(kind: str, keys: pa.Array, other: pa.Array | None = None, detail: pa.Array | None = None) -> pa.RecordBatch:
    rows = len(keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(kind, pa.string()), rows),
            keys,
            pa.nulls(rows, pa.binary()) if other is None else other,
            pa.nulls(rows, pa.string()) if detail is None else detail,
        ],
        schema=_FOUND_ARROW,
    )


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
