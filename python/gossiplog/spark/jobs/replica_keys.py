"""Replicas as they are compared: what a task sees of each when it opens it, and their keys, in parts for tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from gossiplog.errors import CorruptLog, GossipLogError
from gossiplog.spark.jobs.log_metadata import indexed_heads, log_figures
from gossiplog.spark.source.batches import columns_of
from gossiplog.spark.source.fleet import FoundLog, KeyRange, OpenedLog, packed, split_open
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.opening import opened_log
from gossiplog.spark.source.problems import Problem, lost_entries, problem_of
from gossiplog.spark.source.reader import PARTITION_MESSAGES, pages
from gossiplog.spark.tasks import Bundles, parallelism, placed, unpacked

_READ = columns_of("key")
_KEYS = pa.schema([("replica", pa.int32()), ("key", pa.binary()), ("kind", pa.string()), ("problem", pa.string())])


@dataclass(frozen=True, slots=True)
class ComparedReplica:
    """A log as it is compared with others of its topic.

    Attributes:
        log: its location.
        topic: its own.
        messages: how many it has.
        level: of the root of its tree.
        root: the root's hash, hexadecimal.
    """

    log: str
    topic: str
    messages: int
    level: int
    root: str


@dataclass(frozen=True, slots=True)
class ReplicaLook:
    """What a task sees of a log when it opens it.

    Attributes:
        replica: as it is compared.
        log: in that state.
        ranges: of the log, of about PARTITION_MESSAGES messages each.
    """

    replica: ComparedReplica
    log: OpenedLog
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class FleetLook:
    """Looks at logs of a fleet; of one that cannot be read, says why.

    Attributes:
        patience: of a task, each of which has a copy.
    """

    patience: LockPatience = field(default_factory=LockPatience)

    def __call__(self, log: FoundLog) -> ReplicaLook | tuple[str, Problem]:
        try:
            return look_at_replica(log, self.patience)
        except (GossipLogError, OSError) as error:
            return log.name, problem_of(log.location, error, log.name)


def look_at_replica(log: FoundLog, patience: LockPatience | None = None) -> ReplicaLook:
    """Return what is seen of a log, which is taken for what it says of itself.

    Its root follows from the index that its writers keep.

    Args:
        log: to be opened.
        patience: as `gossiplog.spark.source.opening.opened` takes it.

    Raises:
        CorruptLog: it contradicts itself.
        StorageError: it cannot be read.
    """
    with opened_log(log, patience) as (storage, found):
        own = log_figures(storage, found.topic)
        if own.root is None:
            raise CorruptLog([str(own.problem)], advice="")
        with storage.reader(single=True) as reader:
            keys = reader.number(None, None, own.count)
            if keys != own.count:
                raise CorruptLog([lost_entries(keys, own.count)])
        found = replace(found, count=own.count)
        ranges = split_open(storage, found, -(-own.count // PARTITION_MESSAGES))
    replica = ComparedReplica(log.name, own.topic, own.count, own.root.level, own.root.hash.hex())
    return ReplicaLook(replica, found, tuple(ranges))


@dataclass(frozen=True, slots=True)
class KeysPart:
    """Keys that one task reads.

    Attributes:
        number: of the replica.
        range: of its log.
    """

    number: int
    range: KeyRange

    @property
    def weight(self) -> int:
        """About how many messages it costs as much as."""
        return self.range.weight


def parts_of(number: int, look: ReplicaLook) -> list[KeysPart]:
    """Return the parts of a replica with a number."""
    return [KeysPart(number, each) for each in look.ranges]


def keys_frame(session: SparkSession, parts: Sequence[KeysPart], *, passes_over_unreadable: bool) -> DataFrame:
    """Return the keys of parts, with the numbers of their replicas.

    Args:
        session: of Spark.
        parts: of all replicas.
        passes_over_unreadable: have a row with a problem for a part that cannot be read; otherwise it is an error.

    Returns:
        The columns replica, key, kind and problem; the last two, of a `Problem`, are null where there is a key.
    """
    placed_parts = placed(session, packed(parts, parallelism(session)))
    return placed_parts.mapInArrow(partial(_task, passes_over_unreadable), from_arrow_schema(_KEYS))


def _task(passes_over_unreadable: bool, batches: Bundles) -> Iterator[pa.RecordBatch]:
    patience = LockPatience() if passes_over_unreadable else None
    for part in unpacked(batches):
        yield from keys_or_problem(part, patience) if passes_over_unreadable else keys_of(part, patience)


def keys_of(part: KeysPart, patience: LockPatience | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the keys of a part of a log in the state that was looked at.

    The heads that are stored in the range are checked, too.

    Args:
        part: of the log.
        patience: as `gossiplog.spark.source.opening.opened` takes it.

    Raises:
        CorruptLog: the heads are damaged, or the file.
        StorageError: the log cannot be read, or has another state.
    """
    with opened_log(part.range.log, patience) as (storage, found):
        with storage.reader() as reader:
            for _ in indexed_heads(reader, part.range.start, part.range.end):
                pass
        for batch in pages(_READ, storage, found, part.range.start, part.range.end):
            yield _key_rows(part.number, batch.column("key").drop_null())


def keys_or_problem(part: KeysPart, patience: LockPatience | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the keys of a part as `keys_of` does, and a row with a problem where it raises."""
    try:
        yield from keys_of(part, patience)
    except (GossipLogError, OSError) as error:
        log = part.range.log
        problem = problem_of(log.location, error, log.name)
        row = {"replica": part.number, "key": None, "kind": problem.kind, "problem": problem.text}
        yield pa.RecordBatch.from_pylist([row], _KEYS)


def _key_rows(number: int, keys: pa.Array) -> pa.RecordBatch:
    nothing = pa.nulls(len(keys), pa.string())
    replicas = pa.repeat(pa.scalar(number, pa.int32()), len(keys))
    return pa.RecordBatch.from_arrays([replicas, keys, nothing, nothing], schema=_KEYS)
