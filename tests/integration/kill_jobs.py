"""Kills the driver, or a task, of each job of Spark at many places, and runs it again; run by test_kill_jobs.py.

    python -m tests.integration.kill_jobs FOLDER [--every N] [JOB...]

A driver is a fork of this process, with a session of a Java process that runs already: so none has to be started for
each place, and tasks of a driver that is gone go on for a while, as they do on a cluster. A driver is killed before its
step 1, 1 + N, 1 + 2N, ..., and while tasks of some of its queries run. A step is a query, or what Python's audit hooks
report of files in the job's folder. A task is killed after its first batch, which in `local` mode ends the job. After
each kill another driver looks at what is there: a result that has its name must be whole. Then it runs the job again,
whose result must be that of a run that nothing disturbed, with nothing left beside it.

The test gives PORT and SECRET of its own Java in the environment; else one is started. Prints JSON: for each job, its
steps and kills, and how many of them left a whole result.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark import SparkConf, SparkContext, SparkJobInfo, java_gateway
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

import gossiplog
from gossiplog import Signer, spark
from gossiplog.errors import SparkError
from gossiplog.spark.folders import write_parquet
from gossiplog.spark.jobs import analyze_fleet, components, report
from tests.integration.kill_rebase import in_a_fork
from tests.spark.conftest import TOPIC, make_replicas
from tests.spark.killing import killing

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
OUTPUT = "output"
_KILLED = -signal.SIGKILL
_FILES = frozenset(["open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect"])
_QUERIES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (DataFrame, ("collect", "count", "take", "isEmpty", "toArrow", "toLocalIterator")),
    (DataFrameWriter, ("parquet", "save")),
)
# What a report says of the time at which it was made.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?")


# The jobs, each with its result in a form that can be compared


def read(session: SparkSession, folder: Path) -> Any:
    frame = spark.read(session, f"{folder}/logs/*.db", columns="log,clock,author,size")
    # What a task of a read is killed in.
    passed = frame.mapInArrow(lambda batches: batches, frame.schema)
    return [asdict(row) for row in spark.summarize(write_parquet(passed, str(folder / OUTPUT)))]


def logs_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("logs/*.db"))


def verify(session: SparkSession, folder: Path) -> Any:
    found = spark.verify_fleet(session, *logs_in(folder))
    write_parquet(found.report, str(folder / OUTPUT))
    assert all(each.messages for each in found.logs)
    return sorted((each.log, each.messages, dict(each.defects), each.problem) for each in found.logs)


def root(session: SparkSession, folder: Path) -> Any:
    found = spark.fleet_roots(session, *logs_in(folder))
    assert all(each.messages for each in found)
    return sorted((each.log, each.node.hash.hex() if each.node else each.problem) for each in found)


def reconcile(session: SparkSession, folder: Path) -> Any:
    found = spark.reconcile(session, *(f"{folder}/logs/{name}.db" for name in ("one", "two", "three")))
    spark.write_repairs(found, str(folder / OUTPUT))
    return [found.union, found.shared, [asdict(lack) for lack in found.lacks]]


def reconcile_fleet(session: SparkSession, folder: Path) -> Any:
    found = spark.reconcile_fleet(session, f"{folder}/logs")
    written = spark.write_fleet_repairs(found, str(folder / OUTPUT))
    return [asdict(found.summary), sorted((row.log, row.lacks.messages) for row in found.logs), sorted(written)]


def analyze(session: SparkSession, folder: Path) -> Any:
    frame = spark.read(session, f"{folder}/logs/one.db")
    found = spark.analyze(frame.mapInArrow(lambda batches: batches, frame.schema))
    spark.write_report(found, str(folder / OUTPUT), "one.db")
    return report.tables(found)


def analyze_logs(session: SparkSession, folder: Path) -> Any:
    found = spark.analyze_fleet(session, f"{folder}/logs")
    spark.write_fleet_analysis(found, str(folder / OUTPUT))
    return analyze_fleet.fleet_tables(found)


def connected(session: SparkSession, folder: Path) -> Any:
    """Components, in the staging folder that `ingest` has for them and clears before."""
    components._FEW = 4
    shutil.rmtree(folder / "staging", ignore_errors=True)
    edges = (
        session.range(40)
        .selectExpr("id as a", "id - id % 10 as b")
        .mapInArrow(lambda batches: batches, "a bigint, b bigint")
    )
    found = components.components(edges, str(folder / "staging")).collect()
    shutil.rmtree(folder / "staging")
    return sorted((row.node, row.component) for row in found)


JOBS: dict[str, Callable[[SparkSession, Path], Any]] = {
    function.__name__: function
    for function in (read, verify, root, reconcile, reconcile_fleet, analyze, analyze_logs, connected)
}


# Drivers


def driver(group: str) -> SparkSession:
    """Return a session of the Java process that runs already, for this fork, whose queries are in a group."""
    gateway: Any = java_gateway.launch_gateway()
    java = gateway.jvm
    context = java.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        java.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jvm=java, _jconf=context.getConf())
    session = SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf))
    session.sparkContext.setJobGroup(group, "killed")
    return session


def running_jobs(session: SparkSession, group: str) -> list[SparkJobInfo]:
    """Return the jobs of a group that run."""
    tracker = session.sparkContext.statusTracker()
    known = (tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group))
    return [job for job in known if job is not None and job.status == "RUNNING"]


class Steps:
    """Counts the steps of this process, and kills it before one of them, or while a query runs.

    Args:
        session: of the driver.
        group: of its queries.
        folder: in which files count.
        before: the step before which it is killed, from 1; 0 for none.
        during: the query in which it is killed, from 1; 0 for none.
    """

    def __init__(self, session: SparkSession, group: str, folder: Path, before: int = 0, during: int = 0) -> None:
        self.names: list[str] = []
        self.queries = 0
        self._session = session
        self._group = group
        self._folder = str(folder)
        self._before = before
        self._during = during
        for kind, names in _QUERIES:
            for name in names:
                setattr(kind, name, self._counted(name, getattr(kind, name)))
        sys.addaudithook(self._hear)

    def _counted(self, name: str, query: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(query)
        def counted(*args: Any, **options: Any) -> Any:
            self._step(f"query {name}")
            self.queries += 1
            if self.queries != self._during:
                return query(*args, **options)
            threading.Thread(target=self._kill_in_a_task, daemon=True).start()
            query(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        return counted

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILES and arguments and str(arguments[0]).startswith(self._folder):
            self._step(f"{event} {str(arguments[0])[len(self._folder) :]}")

    def _step(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._before:
            os.kill(os.getpid(), signal.SIGKILL)

    def _kill_in_a_task(self) -> None:
        tracker = self._session.sparkContext.statusTracker()
        while True:
            for job in running_jobs(self._session, self._group):
                stages = (tracker.getStageInfo(number) for number in job.stageIds)
                if any(stage is not None and stage.numActiveTasks for stage in stages):
                    os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)


def run(name: str, session: SparkSession, folder: Path) -> str:
    """Run a job, and return its result and what it has written."""
    found = json.dumps([JOBS[name](session, folder), contents(folder / OUTPUT)], default=str, sort_keys=True)
    return _TIME.sub("TIME", found.replace(str(folder), ""))


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in the files of a folder; of Parquet the rows, in any order."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith((".", "_")):
            continue
        place = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path).read()
            found.setdefault(os.path.dirname(place), []).extend(map(str, table.to_pylist()))
            found[os.path.dirname(place)].sort()
        else:
            found[place] = path.read_text(encoding="utf-8")
    return found


def check(name: str, folder: Path, expected: str, session: SparkSession) -> None:
    """Look at what a kill left, run the job again, and compare; note whether its result was there."""
    output = folder / OUTPUT
    is_there = output.exists()
    if is_there:
        found = _TIME.sub("TIME", json.dumps(contents(output), sort_keys=True).replace(str(folder), ""))
        if json.loads(found) != json.loads(expected)[1]:
            raise AssertionError("a part of a result was taken for whole")
        shutil.rmtree(output)
    if (again := run(name, session, folder)) != expected:
        raise AssertionError(f"the job has another result when it runs again: {again[:2000]} and not {expected[:2000]}")
    left = {path.name for path in folder.iterdir()} - {"logs", OUTPUT, "temporary", "found"}
    left |= {path.name for path in (folder / "temporary").iterdir()}
    left |= {
        path.name
        for path in (folder / "logs").iterdir()
        if path.suffix not in (".db", ".db-shm", ".db-wal", ".db-count")
    }
    if left:
        raise AssertionError(f"files are left: {sorted(left)}")
    (folder / "found").write_text(str(int(is_there)), encoding="ascii")


def end_queries(session: SparkSession, group: str) -> None:
    """End what the former driver's Java would have ended with itself."""
    while running_jobs(session, group):
        session.sparkContext.cancelJobGroup(group)
        time.sleep(0.05)


class Killer:
    """Kills one job at many places."""

    def __init__(self, folder: Path, logs: Path, name: str) -> None:
        self._folder = folder
        self._logs = logs
        self._name = name
        self.expected = ""
        self.steps: list[str] = []
        self.queries = 0
        self.kills = self.whole = 0

    def count(self) -> None:
        """Run the job undisturbed, and note its result and its steps."""
        place = self._place("undisturbed")

        def undisturbed() -> None:
            session = driver(place.name)
            steps = Steps(session, place.name, place)
            found = run(self._name, session, place)
            (place / "found").write_text(json.dumps([found, steps.names, steps.queries]), encoding="utf-8")

        self._forked("undisturbed", place, undisturbed, 0)
        self.expected, self.steps, self.queries = json.loads((place / "found").read_text(encoding="utf-8"))
        shutil.rmtree(place)

    def driver(self, before: int = 0, during: int = 0) -> None:
        """Kill the driver before a step, or during a query."""
        place = self._place(f"before-{before}-during-{during}")

        def attempt() -> None:
            session = driver(place.name)
            Steps(session, place.name, place, before, during)
            run(self._name, session, place)

        def again() -> None:
            session = driver(f"{place.name}-again")
            end_queries(session, place.name)
            check(self._name, place, self.expected, session)

        where = f"before step {before}, {self.steps[before - 1]}" if before else f"during query {during}"
        self._forked(where, place, attempt, _KILLED)
        self._forked(where, place, again, 0)
        self._note(place)

    def task(self) -> None:
        """Kill a task, which ends the job, and run it again in the same session."""
        place = self._place("task")

        def attempt() -> None:
            session, token = driver(place.name), place / "temporary" / "token"
            try:
                with killing(token), spark.worker_errors():
                    JOBS[self._name](session, place)
            except SparkError as error:
                if "exited unexpectedly" not in str(error):
                    raise
            else:
                raise AssertionError("the job came to its end")
            if token.exists():
                raise AssertionError("no task was killed")
            check(self._name, place, self.expected, session)

        self._forked("a task", place, attempt, 0)
        self._note(place)

    def _place(self, name: str) -> Path:
        place = self._folder / f"{self._name}-{name}"
        shutil.copytree(self._logs, place / "logs")
        (place / "temporary").mkdir()
        return place

    def _forked(self, where: str, place: Path, call: Callable[[], object], wanted: int) -> None:
        def begin() -> None:
            os.environ["TMPDIR"] = str(place / "temporary")
            call()

        if (status := in_a_fork(begin)) != wanted:
            raise SystemExit(f"{self._name}, killed {where}: a driver ended with status {status}, in {place}")

    def _note(self, place: Path) -> None:
        self.kills += 1
        self.whole += int((place / "found").read_text(encoding="ascii"))
        shutil.rmtree(place)


def prepare(folder: Path) -> None:
    """Make replicas, a log of another topic with a replica, and one that is damaged."""
    folder.mkdir()
    make_replicas(folder)
    with gossiplog.open(folder / "alone.db", f"{TOPIC}.alone", signer=Signer(b"\7" * 32)) as log:
        log.append_many(range(50))
    with sqlite3.connect(folder / "alone.db") as database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    database.close()


@contextmanager
def java() -> Iterator[None]:
    """Have a Java process in the environment: that of the test, or one for a block."""
    if PORT in os.environ:
        yield
        return
    program = (
        "import sys; from pathlib import Path; from tests.spark.shared import start;"
        " found = start(Path(sys.argv[1])).sparkContext._gateway.gateway_parameters;"
        " print(found.port, found.auth_token, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, os.getcwd()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.environ[PORT], os.environ[SECRET] = process.stdout.readline().split()
        yield
        process.communicate()


def main() -> None:
    """Kill the jobs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("jobs", nargs="*", default=list(JOBS))
    parser.add_argument("--every", type=int, default=1, help="kill before each so many-th step")
    parser.add_argument("--few", action="store_true", help="kill one driver, and one task, of each job")
    given = parser.parse_intermixed_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = given.folder.absolute()
    if in_a_fork(lambda: prepare(folder / "made")):
        raise SystemExit("the logs were not made")
    results = {}
    with java():
        for name in given.jobs:
            killer = Killer(folder, folder / "made", name)
            killer.count()
            steps = len(killer.steps)
            before: Sequence[int] = range(1, steps + 1, given.every)
            during: Sequence[int] = range(1, killer.queries + 1, given.every)
            if given.few:
                # By turns in the middle, before the last step, in the last query.
                turns = (([steps // 2], []), ([steps], []), ([], [killer.queries]))
                before, during = turns[list(JOBS).index(name) % len(turns)]
            for step in before:
                killer.driver(before=step)
            for query in during:
                killer.driver(during=query)
            killer.task()
            found = {"steps": steps, "queries": killer.queries, "kills": killer.kills, "whole": killer.whole}
            results[name] = found
            sys.stderr.write(f"{name}: {found}\n")
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
