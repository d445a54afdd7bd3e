"""Logs in Apache Spark, each job beside the same work in one process without it, in the same run.

The session is local, on all cores, and warm: it has run a job before anything is timed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Results
from pyspark.sql import SparkSession

from gossiplog import spark as logs
from gossiplog.bench.stage import Stage
from gossiplog.bench.turns import Result, timed


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = logs.session(driver_memory="1g", name="benches")
    session.range(1000).selectExpr("sum(id)").collect()
    yield session
    session.stop()


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

    read()
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
