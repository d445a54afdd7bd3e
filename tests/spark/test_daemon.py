"""The daemon that Spark's Python workers are forked from."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from pyspark_gossiplog.daemon import compiled_first

SITE = str(Path(pyspark.__file__).parents[1])
ARCHIVES = [f"{SITE}/pyspark/python/lib/pyspark.zip", f"{SITE}/pyspark/python/lib/py4j-0.10.9.9-src.zip"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([*ARCHIVES, "/mine", SITE], ["/mine", SITE, *ARCHIVES]),
        # Of a Spark that is no package of this Python: what the archives have may be another release.
        ([ARCHIVES[0], "/mine"], [ARCHIVES[0], "/mine"]),
        (["/opt/spark/python/lib/pyspark.zip", SITE], ["/opt/spark/python/lib/pyspark.zip", SITE]),
        (["/mine.zip", "", "lib.zip", SITE], ["/mine.zip", "", "lib.zip", SITE]),
        ([], []),
    ],
)
def test_archives_of_the_package_come_last(path: list[str], expected: list[str]) -> None:
    assert compiled_first(path) == expected


def test_workers_begin_with_what_their_tasks_need(spark: SparkSession) -> None:
    """They have it from the daemon, so that it was imported once, and pyspark from the package's compiled files."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            daemon = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
            row = {
                "daemon": b"pyspark_gossiplog.daemon" in daemon,
                "frozen": gc.get_freeze_count(),
                "loaded": "gossiplog.spark.jobs.verify" in sys.modules,
                "archived": ".zip" in (pyspark.__file__ or ""),
            }
            yield pa.RecordBatch.from_pylist([row])

    (found,) = (
        spark.range(1).mapInArrow(look, "daemon boolean, frozen bigint, loaded boolean, archived boolean").collect()
    )
    assert (found.daemon, found.loaded, found.archived) == (True, True, False)
    assert found.frozen > 10_000
