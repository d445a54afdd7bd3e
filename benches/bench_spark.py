"""Logs in Apache Spark, each job beside the same work in one process without it, in the same run.

The session is local, on all cores, and warm: it has run each job a few times before that is timed.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from conftest import Results
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import gossiplog.log
from gossiplog import columns, core
from gossiplog import spark as logs
from gossiplog.cli.bench.stage import TOPIC, Result, Stage, timed

_BATCH = 10_000
# Java compiles what it runs again and again: a job is at its usual speed after so many messages.
_WARM = 5_000_000
# Messages a second, and for how many seconds.
_RATE, _SECONDS, _STEP = 5000, 20, 0.1


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = logs.session(driver_memory="1g", name="benches")
    session.range(1000).selectExpr("sum(id)").collect()
    yield session
    session.stop()


def warm(job: Callable[[], None], size: int) -> None:
    for _ in range(0, _WARM, size):
        job()


def plain_read(path: Path) -> float:
    """The seconds that one SQLite connection takes to read every key and value in the order of the keys."""

    def read() -> None:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT key, value FROM gossiplog_leaves JOIN gossiplog_messages USING (seq) ORDER BY key"
            )
            for _ in rows:
                pass

    return timed(read)


def test_read(spark: SparkSession, stage: Stage, results: Results) -> None:
    path = stage.logs.full("mixed", stage.mixed)
    turns = stage.turns

    def read() -> None:
        frame = logs.read(spark, str(path), columns="key,value")
        frame.write.format("noop").mode("overwrite").save()

    warm(read, stage.size)
    turns.run(read, lambda: plain_read(path))
    share = 1 / turns.ratio
    results.add(
        Result(
            f"Spark: read {stage.size:,} messages to noop, key and value only",
            "60 % of one plain SQLite reader, in total",
            f"{share:.0%}",
            share >= 0.6,
            turns.seconds,
            turns.floor_seconds,
            f"{stage.size / turns.seconds:,.0f}/s beside {stage.size / turns.floor_seconds:,.0f}/s",
        )
    )


def _verify_batches(values: list[bytes]) -> float:
    """The seconds that the core takes to verify values in batches of the best size, on all cores."""

    def verify() -> None:
        for at in range(0, len(values), _BATCH):
            core.verify_batch(values[at : at + _BATCH], TOPIC)

    return timed(verify)


def test_signatures(spark: SparkSession, stage: Stage, results: Results) -> None:
    path, turns = stage.logs.full("mixed", stage.mixed), stage.turns

    # In here, it travels to the workers, which do not find this file.
    def errors(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield columns.verify(batch.column("key"), batch.column("value"), TOPIC).select(["error"])

    def verify() -> None:
        frame = logs.read(spark, str(path), columns="key,value").mapInArrow(errors, "error string")
        assert frame.where("error is not null").count() == 0

    warm(verify, stage.size)
    turns.run(verify, lambda: _verify_batches(stage.mixed))
    results.add(_share(stage, "read and verify in `mapInArrow`", 0.65, turns.ratio, turns.seconds, turns.floor_seconds))


def test_verify(spark: SparkSession, stage: Stage, results: Results) -> None:
    path, turns = stage.logs.full("mixed", stage.mixed), stage.turns

    def verify() -> None:
        found = logs.verify_log(spark, str(path))
        assert (found.messages, found.defects) == (stage.size, {})
        found.report.unpersist()

    warm(verify, stage.size)
    turns.run(verify, lambda: _verify_batches(stage.mixed))
    results.add(_share(stage, "the whole job `verify`", 0.4, turns.ratio, turns.seconds, turns.floor_seconds))


def _share(stage: Stage, work: str, least: float, ratio: float, seconds: float, floor: float) -> Result:
    return Result(
        f"Spark: {work}, {stage.size:,} messages",
        f"{least:.0%} of the rate of the core's `verify_batch`, on all cores, values in memory",
        f"{1 / ratio:.0%}",
        1 / ratio >= least,
        seconds,
        floor,
        f"{stage.size / seconds:,.0f}/s beside {stage.size / floor:,.0f}/s",
    )


def test_root(spark: SparkSession, stage: Stage, results: Results) -> None:
    path, turns = stage.logs.full("mixed", stage.mixed), stage.turns
    with gossiplog.log.open(path) as log:
        own = log.root

    def entries(partitions: int) -> DataFrame:
        return logs.read(spark, str(path), columns="key,value", partitions=partitions)

    def alone() -> None:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT key, value FROM gossiplog_leaves JOIN gossiplog_messages USING (seq) ORDER BY key"
            )
            assert core.Tree().insert(rows.fetchall()).root == own

    # These warm the session, too.
    for partitions in (1, 4, 16):
        assert logs.root(entries(partitions), ascending=True).node == own
    turns.run(lambda: logs.root(entries(8), ascending=True), lambda: timed(alone))
    results.add(
        Result(
            f"Spark: `root` of {stage.size:,} messages, on two cores",
            "2x reading them and building the tree in one process; equal to the log's own over 1, 4 and 16 partitions",
            f"{turns.ratio:.2f}x; equal",
            turns.ratio <= 2,
            turns.seconds,
            turns.floor_seconds,
            f"{turns.seconds:.1f} s beside {turns.floor_seconds:.1f} s",
        )
    )


def test_streaming(
    spark: SparkSession, history: Callable[[str, int], list[bytes]], results: Results, tmp_path: Path
) -> None:
    """From the commit of a message to its micro-batch, while messages are inserted at a steady rate."""
    values = history("mixed", _RATE * _SECONDS)
    share = int(_RATE * _STEP)
    committed: list[float] = []
    lags: list[float] = []

    def taken(frame: DataFrame, number: int) -> None:
        (first,) = frame.agg(F.min("seq")).first() or (None,)
        if first is not None:
            # The oldest of a batch has waited longest.
            lags.append(time.monotonic() - committed[(first - 1) // share])

    path = tmp_path / "log.db"
    with gossiplog.log.open(path, topic=TOPIC) as log:
        frame = spark.readStream.format("gossiplog").option("columns", "seq,key,value").load(str(path))
        query = frame.writeStream.foreachBatch(taken).option("checkpointLocation", str(tmp_path / "at")).start()

        def insert() -> None:
            start = time.monotonic()
            for turn in range(len(values) // share):
                time.sleep(max(0.0, start + turn * _STEP - time.monotonic()))
                committed.append(time.monotonic())
                log.insert_many(values[turn * share : (turn + 1) * share])

        thread = Thread(target=insert)
        thread.start()
        thread.join()
        query.processAllAvailable()
        query.stop()
    # The first ones wait for Spark to compile the query.
    steady = lags[len(lags) // 4 :]
    results.add(
        Result(
            f"Spark: a stream that follows {_RATE:,} messages/s",
            "lag below 1 s",
            f"{max(steady):.2f} s at most",
            max(steady) < 1,
            statistics.median(steady),
            None,
            f"median {statistics.median(steady):.2f} s, from the insert to the end of the micro-batch, over"
            f" {len(steady)} micro-batches after the first {len(lags) - len(steady)}",
        )
    )
