"""The one Java process that all tests of a run share, and what keeps a test's changes of its session from the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from gossiplog.spark import session
from gossiplog.spark.tasks import frame_of
from tests.spark import java, s3_server

ROOT = Path(__file__).parent.parent.parent
FEW_ROWS = {
    # Over TCP, a query of a source takes some 60 ms longer, in which nothing is computed.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    # No query here has enough rows to be worth compiling.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # It runs each stage as a job of its own, and plans the rest anew: a seventh of Java's time, for a few rows.
    "spark.sql.adaptive.enabled": "false",
    "spark.broadcast.compress": "false",
    "spark.shuffle.compress": "false",
    # Of a share of the memory otherwise: each task that aggregates would clear up to 16 MB for a few rows.
    "spark.buffer.pageSize": "1m",
    # What ended is asked for by nobody, and would be looked at by each garbage collection.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.ui.explainMode": "simple",
    # Stack traces of each call, for messages of errors that no test reads, and checks of Spark's own optimizer.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
}
"""Settings for jobs over a few rows."""


def start(folder: Path) -> SparkSession:
    """Start Spark on two cores, with few partitions after a shuffle.

    Args:
        folder: the working folder of Java and of Python's workers. A command that runs in this process and in this
            folder means the same by a relative path as they do.
    """
    # New objects have room for longer than by Java's own choice: it collects garbage less often.
    conf = FEW_ROWS | {"spark.driver.extraJavaOptions": f"{java.archived()} -Xmn400m"}
    _remember_names()
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        # Workers import functions of the tests by name.
        folders = [str(ROOT), os.environ.get("PYTHONPATH")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        for name, value in s3_server.ENVIRONMENT.items():
            patch.setenv(name, value)
        return session("local[2]", conf=conf, driver_memory="1g", name="tests")


def _remember_names() -> None:
    """Have py4j ask once for each class and package: for most names Java looks for a class in all of its files."""
    for kind in (JVMView, JavaPackage):
        kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def member(self: Any, name: str) -> Any:
        found = ask(self, name)
        if isinstance(found, (JavaClass, JavaPackage)):
            setattr(self, name, found)
        return found

    return member


def frame_of_rows(running: SparkSession, rows: Sequence[tuple[Any, ...]], columns: str) -> DataFrame:
    """Return a frame of rows, which Spark does not make in workers, at each use of it.

    Args:
        running: the session.
        rows: of it.
        columns: their names and types, as Spark's DDL has them.
    """
    return frame_of(running, rows, to_arrow_schema(StructType.fromDDL(columns)))


@contextmanager
def elsewhere(running: SparkSession, folder: Path) -> Iterator[str]:
    """Have Spark's default file system be another one in a block, whose paths lead into a folder.

    Args:
        running: the session.
        folder: for the folders of the other file system.

    Yields:
        A URI of a folder in it, which is `folder / "away"`.
    """
    # Hadoop's own mount table, a new one for each folder: a file system is made once, and kept by its name.
    name = f"other{abs(hash(str(folder)))}"
    settings = {"fs.defaultFS": f"viewfs://{name}/"}
    # Those that tests have, that relative paths begin with, and one of its own.
    for top in {folder.parts[1], "tmp", "dev", "user", "away"}:
        (folder / top).mkdir()
        settings[f"fs.viewfs.mounttable.{name}.link./{top}"] = (folder / top).as_uri()
    for setting, value in settings.items():
        running.conf.set(setting, value)
    try:
        yield f"viewfs://{name}/away"
    finally:
        for setting in settings:
            running.conf.unset(setting)


@contextmanager
def isolated(running: SparkSession) -> Iterator[None]:
    """Restore a session after a block: settings, temporary views, streams, the active session.

    Cached frames stay: a fixture of a whole module may have them.
    """
    # One call each: what is asked for setting by setting, or by a query, would cost more than many a test.
    settings = running.conf._jconf.getAllAsJava
    catalog = running._jsparkSession.sessionState().catalog()
    before, text = running.conf.getAll, settings().toString()
    try:
        yield
    finally:
        for stream in running.streams.active:
            stream.stop()
        if settings().toString() != text:
            after = running.conf.getAll
            for name in after.keys() - before.keys():
                running.conf.unset(name)
            for name, value in before.items():
                if after.get(name) != value:
                    running.conf.set(name, value)
        if not catalog.listLocalTempViews("*").isEmpty():
            for view in running.sql("SHOW VIEWS").collect():
                if view.isTemporary:
                    running.catalog.dropTempView(view.viewName)
        if SparkSession.getActiveSession() is not running:
            # The one public way to make a session the active one again.
            running.createDataFrame([], "nothing int")
