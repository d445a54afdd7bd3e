"""A cluster of two executors on this machine, Spark's `local-cluster`: they share nothing but files with the driver."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from gossiplog.spark import session
from tests.spark import java
from tests.spark.shared import FEW_ROWS, ROOT

EXECUTORS = 2
MASTER = f"local-cluster[{EXECUTORS},1,1024]"
_BACKEND = b"CoarseGrainedExecutorBackend"
# Of a new executor; a machine that is busy may take its time.
_START_SECONDS = 600


# Executors import functions of the tests by name.
_FOLDERS = os.pathsep.join([str(ROOT / "python"), str(ROOT)])


def java_variables() -> dict[str, str]:
    """Return the variables of a process that starts Spark."""
    return {"JDK_JAVA_OPTIONS": java.OPTIONS, "SPARK_SUBMIT_OPTS": java.archived()}


def _settings() -> dict[str, str]:
    return FEW_ROWS | {
        "spark.executorEnv.PYTHONPATH": _FOLDERS,
        "spark.executor.extraJavaOptions": java.archived(),
        # However many are killed, there are new ones.
        "spark.deploy.maxExecutorRetries": "-1",
    }


def remove_work(application: str) -> None:
    """Remove what the executors of an application printed, which is in Spark's own folder."""
    shutil.rmtree(Path(pyspark.__file__).parent / "work" / application)


@contextmanager
def cluster() -> Iterator[SparkSession]:
    """Provide a block with a session. The environment of this process is not restored."""
    os.environ |= java_variables() | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": _FOLDERS}
    running = session(MASTER, conf=_settings())
    application = running.sparkContext.applicationId
    try:
        yield running
    finally:
        running.stop()
        remove_work(application)


def executors(running: SparkSession, least: int) -> list[int]:
    """Return the processes of the executors, the oldest first, once so many are there."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        found = _processes(running)
        # The driver's own is among them.
        known = running.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        if min(len(found), known) >= least:
            return found
        time.sleep(0.1)
    raise AssertionError(f"no new executor within {_START_SECONDS} seconds")


def _processes(running: SparkSession) -> list[int]:
    gateway = running.sparkContext._gateway
    assert gateway is not None
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        # Gone meanwhile.
        with suppress(OSError):
            parent, started = _parent_and_start(process)
            if parent == gateway.proc.pid and _BACKEND in (process / "cmdline").read_bytes():
                found.append((started, int(process.name)))
    return [process for _, process in sorted(found)]


def _parent_and_start(process: Path) -> tuple[int, int]:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])
