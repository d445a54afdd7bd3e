"""How far jobs are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from gossiplog.spark.session import tasks


def test_the_tasks_of_jobs_that_run(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not os.path.exists(gate):
            time.sleep(0.05)
        yield from batches

    frame = spark.range(10, numPartitions=2).mapInArrow(wait, "id bigint")
    with ThreadPoolExecutor(1) as thread:
        counted = thread.submit(lambda: len(frame.collect()))
        try:
            while tasks(spark) == (0, 0):
                assert not counted.done()
            assert tasks(spark) == (0, 2)
        finally:
            gate.touch()
        assert counted.result() == 10
    while tasks(spark) != (0, 0):
        time.sleep(0.05)
