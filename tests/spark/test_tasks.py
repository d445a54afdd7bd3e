"""Work spread over tasks, how far jobs are, and that nothing else asks the process of Java."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import gossiplog
from gossiplog.spark.tasks import followed, parallelism, placed, spread, spread_groups
from tests.spark.in_tasks import double


def test_the_tasks_of_jobs_that_run(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not os.path.exists(gate):
            time.sleep(0.05)
        yield from batches

    frame = spark.range(10, numPartitions=2).mapInArrow(wait, "id bigint")
    with ThreadPoolExecutor(1) as thread, followed(spark) as look:
        counted = thread.submit(lambda: len(frame.collect()))
        try:
            while look() == (0, 0):
                assert not counted.done()
            assert look() == (0, 2)
        finally:
            gate.touch()
        assert counted.result() == 10
        while look() != (0, 0):
            time.sleep(0.05)


def test_parts_are_spread_in_their_order(spark: SparkSession) -> None:
    assert spread(spark, [3, 1, 2], double) == [6, 2, 4]
    assert spread(spark, [], double) == []


def test_groups_are_tasks_that_get_nothing_else(spark: SparkSession) -> None:
    groups = [[1, 2, 3], [4], [5, 6]]
    assert sorted(spread_groups(spark, groups, double)) == [2, 4, 6, 8, 10, 12]
    assert spread_groups(spark, [], double) == []
    # One row a partition: what a task is sent has no other group in it.
    rows = placed(spark, groups).select(F.spark_partition_id().alias("part"), "task").collect()
    assert sorted((row.part, row.task) for row in rows) == [(0, 0), (1, 1), (2, 2)]


def test_how_many_tasks_run_at_a_time(spark: SparkSession) -> None:
    assert parallelism(spark) == spark.sparkContext.defaultParallelism == 2


# What of a session has Java behind it, and is not there over Spark Connect.
JAVA_ONLY = {"sparkContext", "_jvm", "_jsparkSession", "_jdf", "_jsc", "_sc", "rdd"}
# Where Spark offers nothing else: a session's start, what is known of a session that has a context, and other file
# systems, which are refused over Spark Connect.
ASK_JAVA = {"spark/folders.py", "spark/java_process.py", "spark/session.py", "spark/tasks.py"}
PACKAGE = Path(gossiplog.__file__).parent


@pytest.mark.parametrize("path", [*PACKAGE.glob("spark/**/*.py"), *PACKAGE.glob("cli/**/*.py")], ids=str)
def test_jobs_ask_nothing_of_java(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & JAVA_ONLY
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    if path.relative_to(PACKAGE).as_posix() not in ASK_JAVA:
        assert asked == set()
        assert "SparkContext" not in named
