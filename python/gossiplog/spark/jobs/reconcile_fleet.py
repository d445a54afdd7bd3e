"""What the replicas of many logs lack of each other: those of each topic are compared among themselves, all in one job.

A first stage opens every log, and says which topic and which root it has. Replicas whose roots and numbers of messages
agree have the same messages, so that nothing more is read of a topic whose replicas all agree: of a sound fleet these
are nearly all. The keys of the others are compared as `reconcile` does it.

A log that cannot be read is a row of the result, and its topic's other replicas are compared without it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gossiplog.errors import StorageError
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import filling
from gossiplog.spark.jobs.fetch_values import fetch_values
from gossiplog.spark.jobs.reconcile import MissingMessages, broken_by_replica, differences, missing_by_replica
from gossiplog.spark.jobs.repair_names import SUMMARY, hub_names
from gossiplog.spark.jobs.replica_keys import ComparedReplica, FleetLook, ReplicaLook, keys_frame, parts_of
from gossiplog.spark.source.fleet import TASK_MESSAGES, FoundLog, packed
from gossiplog.spark.source.locks import LockPatience
from gossiplog.spark.source.opening import opened
from gossiplog.spark.source.problems import Problem, fleet_logs, parse_problem
from gossiplog.spark.source.remote import is_remote
from gossiplog.spark.tasks import frame_of, parallelism, spread_groups

FEW_RANGES = 2**19
"""Ranges of keys for which the driver has room: some 100 bytes each."""
# About as many as a log of ten million messages has.
_MOST_RANGES_OF_A_LOG = 2**17
# Logs up to which a command looks at each before Spark starts: two milliseconds each.
_LOOKED_AT = 100
_HUB = "hub"
_LOG = "log"
_GROUPS = pa.schema([("replica", pa.int32()), ("group", pa.int32()), ("replicas", pa.int32())])
_MEMBERS = pa.schema([("group", pa.int32()), ("members", pa.list_(pa.int32()))])
_NAMES = pa.schema([("number", pa.int32()), (_HUB, pa.string()), (_LOG, pa.string())])


@dataclass(frozen=True, slots=True)
class FleetReplica:
    """A log of a fleet, beside the other replicas of its topic.

    Attributes:
        log: its location.
        replica: as it was compared; None where it was left out.
        replicas: how many of its topic were compared, itself included; 1 is compared with nothing.
        shared: how many messages all of these have.
        union: how many messages one or another of them has.
        lacks: what it lacks of these.
        damaged: how many messages it has that no replica has whole.
        problem: why it was left out; None where it was compared.
    """

    log: str
    replica: ComparedReplica | None
    replicas: int = 0
    shared: int = 0
    union: int = 0
    lacks: MissingMessages = field(default_factory=MissingMessages)
    damaged: int = 0
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """A fleet in figures.

    Attributes:
        logs: how many there are, those that were left out included.
        problems: how many of them were left out.
        topics: how many topics the others have.
        differing: topics whose replicas do not all have the same messages.
        alone: topics of which there is one replica.
        lacking: replicas that lack something that can be read.
        damaged: replicas that have messages that no replica has whole.
        messages: how many messages they lack, a message once for each replica.
        unreadable: how many of these no replica has whole.
    """

    logs: int
    problems: int
    topics: int
    differing: int
    alone: int
    lacking: int
    damaged: int
    messages: int
    unreadable: int


@dataclass(frozen=True, slots=True)
class FleetReconcileResult:
    """Replicas of many logs, compared topic by topic.

    Attributes:
        summary: in figures.
        logs: the worst first: those that were left out, then those with the most damaged messages, then those that lack
            the most, then by location.
        missing: the messages that some replica lacks, kept on disk: as `ReconcileResult.missing`, where a replica's
            number is its place in `numbered`.
        numbered: the locations by these numbers.
    """

    summary: FleetSummary
    logs: tuple[FleetReplica, ...]
    missing: DataFrame
    numbered: tuple[str, ...]


def reconcile_fleet(
    session: SparkSession,
    *paths: str,
    topic: str | None = None,
    recursive: bool = False,
    name_filter: str | None = None,
) -> FleetReconcileResult:
    """Compare the replicas of each topic among themselves, as of one state of each.

    Args:
        session: of Spark.
        paths: of logs of any topics; each may be a pattern or a folder. One that names no file is a log with a problem.
        topic: that all logs must have; None takes any, and compares the replicas of each topic.
        recursive: as `gossiplog.spark.source.locations.locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: a path that no location can be.
        NotALog: a pattern that no file fits.
        SparkError: Spark gave up.
    """
    logs, problems = fleet_logs(session, paths, topic=topic, recursive=recursive, name_filter=name_filter)
    with worker_errors():
        looks: list[ReplicaLook] = []
        for look in spread_groups(session, packed(logs, parallelism(session)), FleetLook()):
            if isinstance(look, ReplicaLook):
                looks.append(look)
            else:
                problems[look[0]] = look[1]
        return _compare(session, looks, problems)


def is_fleet(locations: Sequence[str]) -> bool:
    """Return whether logs are to be compared topic by topic: several topics with several replicas, or unreadable logs.

    More than a hundred logs are a fleet in any case, and nothing is looked at.
    """
    if len(locations) > _LOOKED_AT:
        return True
    topics: list[str] = []
    patience = LockPatience() if len(locations) > 1 else None
    for location in locations:
        if is_remote(location):
            continue
        try:
            with opened(location, patience=patience) as (_, topic):
                topics.append(topic)
        except StorageError:
            return True
    # Nothing but different logs is a mistake.
    return 1 < len({*topics}) < len(topics)


def _compare(session: SparkSession, looks: Sequence[ReplicaLook], problems: dict[str, Problem]) -> FleetReconcileResult:
    numbered = [look.replica for look in looks]
    topics: dict[str, list[int]] = defaultdict(list)
    for number, replica in enumerate(numbered):
        topics[replica.topic].append(number)
    unlike = [numbers for numbers in topics.values() if not _agree([numbered[number] for number in numbers])]
    parts = [part for numbers in unlike for number in numbers for part in parts_of(number, looks[number])]
    keys = keys_frame(session, parts, passes_over_unreadable=True).persist(StorageLevel.DISK_ONLY)
    left_out = {row.replica: Problem(row.kind, row.problem) for row in keys.where("problem IS NOT NULL").collect()}
    # A small log has nearly as many ranges as messages.
    ranges = sum(min(max(numbered[number].messages for number in numbers), _MOST_RANGES_OF_A_LOG) for numbers in unlike)
    logs = [look.log for look in looks]
    missing = _missing(keys, logs, _groups(topics.values(), left_out), broadcast_ranges=ranges <= FEW_RANGES)
    if unread := {row.number: parse_problem(row.error) for row in _unread(missing).collect()}:
        missing = _without(missing, [*unread])
        left_out |= unread
    lacks = missing_by_replica(missing)
    held = missing.groupBy(F.element_at("holders", 1).alias("first_holder")).count().collect()
    damaged = broken_by_replica(missing) if any(lack.unreadable for lack in lacks.values()) else {}
    keys.unpersist()
    problems |= {numbered[number].log: problem for number, problem in left_out.items()}
    by_holder = {row.first_holder: row["count"] for row in held}
    return _result(numbered, _groups(topics.values(), left_out), lacks, by_holder, damaged, problems, missing)


def _agree(replicas: Sequence[ComparedReplica]) -> bool:
    """Return whether replicas have the same messages, by what each says of itself."""
    return len({(replica.messages, replica.level, replica.root) for replica in replicas}) == 1


def _groups(topics: Iterable[Sequence[int]], left_out: Collection[int]) -> list[list[int]]:
    """Return the replicas that are compared among themselves, those of each topic."""
    groups = [[number for number in numbers if number not in left_out] for numbers in topics]
    return [group for group in groups if group]


def _missing(
    keys: DataFrame, logs: Sequence[FoundLog], groups: Sequence[Sequence[int]], *, broadcast_ranges: bool
) -> DataFrame:
    """Return what replicas lack of the others in their groups, and logs that cannot be read any more, kept on disk.

    Args:
        keys: as `keys_frame` returns them.
        logs: all of them.
        groups: of those that are compared.
        broadcast_ranges: as `differences` takes it.
    """
    rows = [(number, group, len(numbers)) for group, numbers in enumerate(groups) for number in numbers]
    grouped = F.broadcast(frame_of(keys.sparkSession, rows, _GROUPS))
    members = F.broadcast(frame_of(keys.sparkSession, [*enumerate(groups)], _MEMBERS))
    compared = keys.where("problem IS NULL").select("replica", "key").join(grouped, "replica")
    return (
        fetch_values(differences(compared, broadcast_ranges=broadcast_ranges), logs, passes_over_unreadable=True)
        .withColumn("replica", F.element_at("holders", 1))
        .join(grouped, "replica")
        .join(members, "group")
        .withColumn("lacking", F.array_except("members", "holders"))
        .drop("replica", "group", "replicas", "members")
        .persist(StorageLevel.DISK_ONLY)
    )


def _unread(missing: DataFrame) -> DataFrame:
    """Return the logs that cannot be read any more since their keys were, with the columns number and error."""
    return missing.where("key IS NULL").select(F.element_at("holders", 1).alias("number"), "error").distinct()


def _without(missing: DataFrame, numbers: Sequence[int]) -> DataFrame:
    """Return what is missing of a comparison without some replicas, no half of which counts; it takes its place."""
    others = F.array(*map(F.lit, numbers))
    rest = (
        missing.where("key IS NOT NULL")
        .withColumn("holders", F.array_except("holders", others))
        .withColumn("lacking", F.array_except("lacking", others))
        .where((F.size("holders") > 0) & (F.size("lacking") > 0))
        .persist(StorageLevel.DISK_ONLY)
    )
    # While that of which it is made is still there.
    rest.count()
    missing.unpersist()
    return rest


def _result(
    numbered: Sequence[ComparedReplica],
    groups: Sequence[Sequence[int]],
    lacks: Mapping[int, MissingMessages],
    held: Mapping[int, int],
    damaged: Mapping[int, int],
    problems: Mapping[str, Problem],
    missing: DataFrame,
) -> FleetReconcileResult:
    rows = [FleetReplica(log, None, problem=problem) for log, problem in problems.items()]
    differing = 0
    for numbers in groups:
        # Of each missing message the first holder is one of the topic's replicas.
        lost = sum(held.get(number, 0) for number in numbers)
        differing += lost > 0
        for number in numbers:
            lack = lacks.get(number, MissingMessages())
            # What a replica has besides is not among those that it lacks, so each gives the same sum.
            union = numbered[number].messages + lack.messages
            replica = numbered[number]
            shared = union - lost
            broken = damaged.get(number, 0)
            rows.append(FleetReplica(replica.log, replica, len(numbers), shared, union, lack, broken))
    rows.sort(key=lambda row: (row.problem is None, -row.damaged, -row.lacks.messages, row.log))
    sizes = [len(numbers) for numbers in groups]
    summary = FleetSummary(
        logs=len(rows),
        problems=len(problems),
        topics=len(sizes),
        differing=differing,
        alone=sizes.count(1),
        lacking=sum(row.lacks.messages > row.lacks.unreadable for row in rows),
        damaged=sum(row.damaged > 0 for row in rows),
        messages=sum(row.lacks.messages for row in rows),
        unreadable=sum(row.lacks.unreadable for row in rows),
    )
    return FleetReconcileResult(summary, tuple(rows), missing, tuple(replica.log for replica in numbered))


def write_fleet_repairs(result: FleetReconcileResult, folder: str) -> dict[str, str]:
    """Write what each replica lacks, as far as it can be read, ascending by key.

    Args:
        result: of a comparison.
        folder: to be made; it is there when all in it is complete. `summary.json` in it is the comparison in figures,
            and has the repairs by hub.

    Returns:
        By the locations of those that lack something, the folders in it, `hub=HUB/log=FILE`: Parquet with the columns
        key, clock, author, value. The hub is the log's folder below the one that all logs have in common.

    Raises:
        OptionError: something is there already.
        StorageError: so is `folder` with ".partial" after it, and no process that was killed has left it.
        OSError: the folder cannot be written.
        GossipLogError: what reading the missing messages raises.
    """
    lacking = [row.log for row in result.logs if row.lacks.messages > row.lacks.unreadable]
    logs = sorted(row.log for row in result.logs)
    # Of all logs, so that a hub is called the same whatever its logs lack today.
    called = dict(zip(logs, hub_names(logs), strict=True))
    folders = {log: f"{_HUB}={called[log][0]}/{_LOG}={called[log][1]}" for log in lacking}
    numbers = {log: number for number, log in enumerate(result.numbered)}
    session = result.missing.sparkSession
    named = [(numbers[log], *called[log]) for log in lacking]
    names = frame_of(session, named, _NAMES)
    rows = (
        result.missing.where("error IS NULL")
        .select("key", "clock", "author", "value", F.explode("lacking").alias("number"))
        .join(F.broadcast(names), "number")
        .drop("number")
        # In ranges of keys: one replica may lack most of all messages, and the files of each ascend.
        .repartitionByRange(max(-(-result.summary.messages // TASK_MESSAGES), 1), _HUB, _LOG, "key")
        .sortWithinPartitions(_HUB, _LOG, "key")
    )
    with filling(folder, "the repair sets", session) as new:
        if folders:
            new.write_parquet(rows, partition_by=(_HUB, _LOG))
        hubs: dict[str, dict[str, str]] = {}
        for log, name in folders.items():
            hubs.setdefault(called[log][0], {})[log] = name
        figures = {**asdict(result.summary), "hubs": hubs, "logs": fleet_rows(result, folders)}
        new.write_text(SUMMARY, json.dumps(figures, indent=2))
    return {log: os.path.join(folder, name) for log, name in folders.items()}


def fleet_rows(result: FleetReconcileResult, repairs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the logs of a comparison as JSON has them, with their repairs by location."""
    rows = []
    for row in result.logs:
        found = row.replica
        rows.append(
            {
                "log": row.log,
                "topic": None if found is None else found.topic,
                "problem": None if row.problem is None else asdict(row.problem),
                "root": None if found is None else {"level": found.level, "hash": found.root},
                "messages": None if found is None else found.messages,
                "replicas": row.replicas,
                "shared": row.shared,
                "lacks": asdict(row.lacks),
                "damaged": row.damaged,
                "repair": repairs.get(row.log),
            }
        )
    return rows
