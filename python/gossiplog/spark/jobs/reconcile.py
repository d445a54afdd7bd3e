"""What the replicas of one log lack of each other.

Keys are compared, never values, and not all of them one by one: a first pass folds the keys of each range into a
fingerprint, and only those of ranges whose fingerprints differ are shuffled. Values are read for what is missing alone,
from whichever replica has them whole.

A fingerprint is the number of keys in the range and the exclusive or of their hashes, 128 bits under seeds that are
drawn for each run: nobody can have prepared messages that cancel out. A range is named by a key's first bytes, two of
them or, where the clock takes more than three, all of the clock but its last: so it has 256 clocks at most.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from gossiplog.errors import OptionError, TopicMismatch
from gossiplog.spark.failures import worker_errors
from gossiplog.spark.folders import filling
from gossiplog.spark.jobs.fetch_values import fetch_values
from gossiplog.spark.jobs.repair_names import SUMMARY, set_names
from gossiplog.spark.jobs.replica_keys import ComparedReplica, keys_frame, look_at_replica, parts_of
from gossiplog.spark.jobs.summary import AuthorShare, author_figures
from gossiplog.spark.source.fleet import FoundLog
from gossiplog.spark.source.locations import anchored_for, shown
from gossiplog.spark.source.opening import check_logs, unopened
from gossiplog.spark.tasks import spread

# The first byte from which on a clock takes so many bytes: a one for each that follows (wire format, "Clock").
_LONG_CLOCKS = ((8, 0xFE), (7, 0xFC), (6, 0xF8), (5, 0xF0), (4, 0xE0))
# How many of the authors of what a replica lacks are named.
_NAMED_AUTHORS = 10


@dataclass(frozen=True, slots=True)
class MissingMessages:
    """What one replica lacks of the union.

    Attributes:
        messages: how many.
        unreadable: how many of them no replica has whole; the figures below do not cover them.
        bytes: of stored values.
        first_clock: the least clock, None where nothing is readable.
        last_clock: the largest clock, None likewise.
        authors: how many there are.
        most: those with the most messages, ten at most, in descending order.
    """

    messages: int = 0
    unreadable: int = 0
    bytes: int = 0
    first_clock: int | None = None
    last_clock: int | None = None
    authors: int = 0
    most: tuple[AuthorShare, ...] = ()


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """Replicas compared.

    Attributes:
        replicas: in the order in which they were named.
        shared: how many messages all of them have.
        union: how many messages there are in one or another.
        lacks: what each replica lacks, in the order of the replicas.
        missing: the messages that some replica lacks, kept on disk: their `key`, the numbers of the `holders` and of
            the `lacking` replicas (from 0), `clock`, `author`, `size` and `value`, which are null in a row that has an
            `error`, because no holder's value is that message.
    """

    replicas: tuple[ComparedReplica, ...]
    shared: int
    union: int
    lacks: tuple[MissingMessages, ...]
    missing: DataFrame


def reconcile(session: SparkSession, *paths: str) -> ReconcileResult:
    """Compare replicas of one log, as of one state of each.

    Args:
        session: of Spark.
        paths: of the replicas, two at least; each may be a pattern.

    Raises:
        OptionError: fewer than two replicas.
        TopicMismatch: logs of different topics.
        StorageError: a replica that cannot be read; CorruptLog where it is damaged.
    """
    names = check_replicas(anchored_for(session, paths))
    with worker_errors():
        looks = spread(session, [unopened(name) for name in names], look_at_replica)
        replicas = tuple(look.replica for look in looks)
        parts = [part for number, look in enumerate(looks) for part in parts_of(number, look)]
        keys = keys_frame(session, parts, passes_over_unreadable=False).select("replica", "key")
        differing = differences(keys, len(replicas))
        missing = _missing(differing, [look.log for look in looks]).persist(StorageLevel.DISK_ONLY)
        found = missing_by_replica(missing)
        lacks = tuple(found.get(number, MissingMessages()) for number in range(len(replicas)))
    # What a replica has besides is not among those that it lacks, so each gives the same sum.
    union = replicas[0].messages + lacks[0].messages
    return ReconcileResult(replicas, union - missing.count(), union, lacks, missing)


def check_replicas(paths: Iterable[str], *, recursive: bool = False, name_filter: str | None = None) -> list[str]:
    """Return the locations of replicas.

    Args:
        paths: as `reconcile` takes them.
        recursive: as `gossiplog.spark.source.locations.locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: fewer than two replicas.
        TopicMismatch: logs of different topics.
        StorageError: a replica that cannot be read.
    """
    topics = check_logs(paths, recursive=recursive, name_filter=name_filter)
    names = list(topics)
    if len(names) < 2:
        raise OptionError(
            f"there is nothing to compare {', '.join(names) or 'nothing'} with: name two replicas or more"
        )
    known = [name for name in names if topics[name] is not None]
    for name in known[1:]:
        if topics[name] != topics[known[0]]:
            raise TopicMismatch(
                f"no replicas of one log: {shown(name)} has the topic {topics[name]!r}, {shown(known[0])}"
                f" {topics[known[0]]!r}"
            )
    return names


def differences(keys: DataFrame, replicas: int | None = None, *, broadcast_ranges: bool = True) -> DataFrame:
    """Return the keys that some replica has and another has not, ascending within each partition.

    Args:
        keys: of all replicas: the columns `replica`, a number from 0, and `key`; without `replicas` also `group`, a
            number of those that are compared with each other, and `replicas`, how many there are in the group.
        replicas: how many there are, also of those without a key; None takes the groups'.
        broadcast_ranges: the driver and each executor have room for the names of all ranges of keys that differ.

    Returns:
        The columns `key` and `holders`, an array of the numbers of those that have it, ascending.
    """
    if replicas is not None:
        keys = keys.withColumn("group", F.lit(0)).withColumn("replicas", F.lit(replicas))
    ranged = keys.withColumn("range", _range(F.col("key")))
    seeds = [int.from_bytes(os.urandom(8), signed=True) for _ in range(2)]
    hashes = [F.bit_xor(F.xxhash64(F.lit(seed), F.col("key"))) for seed in seeds]
    compared = F.struct(F.count("*"), *hashes).alias("print"), F.max("replicas").alias("replicas")
    prints = ranged.groupBy("group", "range", "replica").agg(*compared)
    unlike = (
        prints.groupBy("group", "range")
        .agg(
            F.count("*").alias("having"),
            F.max("replicas").alias("replicas"),
            F.min("print").alias("least"),
            F.max("print").alias("most"),
        )
        .where((F.col("having") < F.col("replicas")) | (F.col("least") != F.col("most")))
        .select("group", "range")
    )
    return (
        ranged.join(F.broadcast(unlike) if broadcast_ranges else unlike, ["group", "range"], "left_semi")
        .groupBy("group", "key")
        .agg(F.sort_array(F.collect_set("replica")).alias("holders"), F.max("replicas").alias("replicas"))
        .where(F.size("holders") < F.col("replicas"))
        .sortWithinPartitions("group", "key")
        .select("key", "holders")
    )


def _range(key: Column) -> Column:
    length = F.lit(2)
    # From the shortest to the longest, so that the longest is asked for first.
    for clock, first in reversed(_LONG_CLOCKS):
        length = F.when(key >= F.lit(bytes([first])), clock - 1).otherwise(length)
    return F.substring(key, F.lit(1), length)


def _missing(differing: DataFrame, logs: Sequence[FoundLog]) -> DataFrame:
    everyone = F.array(*(F.lit(number) for number in range(len(logs))))
    return fetch_values(differing, logs).withColumn("lacking", F.array_except(everyone, F.col("holders")))


def missing_by_replica(missing: DataFrame) -> dict[int, MissingMessages]:
    """Return what each replica lacks, by its number; those that lack nothing are left out.

    Args:
        missing: as `ReconcileResult` has it.
    """
    each = missing.withColumn("replica", F.explode("lacking"))
    shares = (
        each.where("error IS NULL").groupBy("replica", "author").agg(*author_figures()).persist(StorageLevel.DISK_ONLY)
    )
    figures = shares.groupBy("replica").agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("first_clock").alias("first_clock"),
        F.max("last_clock").alias("last_clock"),
        F.count("*").alias("authors"),
    )
    rank = F.row_number().over(Window.partitionBy("replica").orderBy(F.desc("messages"), "author"))
    most: dict[int, list[AuthorShare]] = {}
    for row in (
        shares.withColumn("rank", rank).where(F.col("rank") <= _NAMED_AUTHORS).orderBy("replica", "rank").collect()
    ):
        share = AuthorShare(row.author, row.messages, row.bytes, row.first_clock, row.last_clock)
        most.setdefault(row.replica, []).append(share)
    unreadable = {
        row.replica: row["count"] for row in each.where("error IS NOT NULL").groupBy("replica").count().collect()
    }
    found = {row.replica: row.asDict() for row in figures.collect()}
    shares.unpersist()
    lacks: dict[int, MissingMessages] = {}
    for replica in found.keys() | unreadable.keys():
        readable = {name: value for name, value in found.get(replica, {"messages": 0}).items() if name != "replica"}
        lost = unreadable.get(replica, 0)
        messages = readable.pop("messages") + lost
        lacks[replica] = MissingMessages(messages, lost, **readable, most=tuple(most.get(replica, ())))
    return lacks


def broken_by_replica(missing: DataFrame) -> dict[int, int]:
    """Return how many messages each replica has that none has whole, by its number; 0 is left out.

    Args:
        missing: as `ReconcileResult` has it.
    """
    held = missing.where("error IS NOT NULL").select(F.explode("holders").alias("replica"))
    return {row.replica: row["count"] for row in held.groupBy("replica").count().collect()}


def write_repairs(result: ReconcileResult, folder: str) -> tuple[str, ...]:
    """Write what each replica lacks, as far as it can be read, ascending by key.

    Args:
        result: of a comparison.
        folder: to be made; it is there when all in it is complete. `summary.json` in it is the comparison in figures.

    Returns:
        The folders in it, one for each replica, in their order: Parquet with the columns key, clock, author, value.
        They are called as the logs' files, and where two are called alike as their paths below the folder of all logs.

    Raises:
        OptionError: something is there already.
        StorageError: so is `folder` with ".partial" after it, and no process that was killed has left it.
        OSError: the folder cannot be written.
        GossipLogError: what reading the missing messages raises.
    """
    names = set_names([replica.log for replica in result.replicas])
    with filling(folder, "the repair sets", result.missing.sparkSession) as new:
        for number, name in enumerate(names):
            lacking = result.missing.where(F.array_contains("lacking", number) & F.col("error").isNull())
            new.write_parquet(lacking.select("key", "clock", "author", "value").sort("key"), name)
        new.write_text(SUMMARY, json.dumps(_summary(result, names), indent=2))
    return tuple(os.path.join(folder, name) for name in names)


def _summary(result: ReconcileResult, names: Sequence[str]) -> dict[str, object]:
    return {
        "union": result.union,
        "shared": result.shared,
        "replicas": [
            {**asdict(replica), "lacks": asdict(lack), "repair": name}
            for replica, lack, name in zip(result.replicas, result.lacks, names, strict=True)
        ],
    }
