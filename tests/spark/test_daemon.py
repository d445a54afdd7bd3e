"""The daemon that Spark's Python workers are forked from, and how the processes begin that are not."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import gossiplog.spark
from pyspark_gossiplog.paths import compiled_first

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


def test_a_link_to_the_package_names_the_same(tmp_path: Path) -> None:
    """As `.venv` may be one: Spark has the archives by that name, and Python the package by the folder's own."""
    link = tmp_path / "packages"
    link.symlink_to(SITE)
    linked = [archive.replace(SITE, str(link)) for archive in ARCHIVES]
    assert compiled_first([*linked, "/mine", SITE]) == ["/mine", SITE, *linked]
    assert compiled_first([*ARCHIVES, str(link)]) == [str(link), *ARCHIVES]


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


class Planned(DataSource):
    """Has a row: where the process that plans it has PySpark from, and whether its daemon has loaded what it needs."""

    def schema(self) -> str:
        return "place string, preloaded boolean"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PlannedReader()


class PlannedReader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        preloaded = gc.get_freeze_count() > 10_000 and "gossiplog.spark.jobs.verify" in sys.modules
        return [InputPartition((pyspark.__file__, preloaded))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, bool]]:
        yield partition.value


def test_what_plans_a_read_has_what_it_needs_from_compiled_files(spark: SparkSession) -> None:
    """Spark starts other daemons for it than ours."""
    spark.dataSource.register(Planned)
    (row,) = spark.read.format("Planned").load().collect()
    assert (row.place, row.preloaded) == (pyspark.__file__, True)


CONF = str(Path(gossiplog.spark.__file__).parent / "conf")


@pytest.mark.slow
@pytest.mark.parametrize("theirs", [True, False])
def test_a_program_that_customizes_its_python_still_does(theirs: bool, tmp_path: Path) -> None:
    """Whether the user has such a module, or nobody.

    Our daemon is not imported: of a module that is there, Python remarks on it where it is to run it.
    """
    if theirs:
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.theirs = True\n")
    known = "'sitecustomize' in sys.modules, 'pyspark_gossiplog.daemon' in sys.modules"
    program = f"import sys, pyspark; print(hasattr(sys, 'theirs'), pyspark.__file__, {known})"
    path = [*ARCHIVES, CONF, str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == ([str(theirs), pyspark.__file__, "True", "False"], "")


def test_a_python_without_the_package_begins_as_ever() -> None:
    hidden = "sys.modules.update(pyspark_gossiplog=None); sys.modules.pop('sitecustomize', None)"
    program = f"import sys; {hidden}; sys.path.insert(0, {CONF!r}); import sitecustomize"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
