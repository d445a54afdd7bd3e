"""Kills drivers, tasks or executors of each job of Spark at many places; run by test_kill_jobs.py, but for executors.

    python -m tests.integration.kill_jobs FOLDER [--executors] [--places N] [--messages N] [JOB...]

A driver is a fork of this process, with a session of a Java process that runs already: so none has to be started for
each place, and tasks of a driver that is gone go on for a while, as they do on a cluster. It is killed before its
steps, and while tasks of its queries run; where these are fewer than the places, and of a job that Java goes on with
when its Python is gone, at moments spread over the time that it takes. The last kind has a Java of its own, which is
killed with it. A step is a query, or what Python's audit hooks report of files in the job's folder. A task is killed
after its first batch, which in `local` mode ends the job. After each kill another driver looks at what is there: a
result that has its name must be whole. Then it runs the job again, whose result must be that of a run that nothing
disturbed, with nothing left beside it.

With `--executors` one session on a cluster of this machine has all jobs, and one of two executors is killed at such
moments. The job comes to its end by itself, with that result; or it fails, and has it when it runs again.

The test gives PORT and SECRET of its own Java in the environment; else one is started. Prints JSON: for each job, its
kills, how many of them left a whole result, and the errors with which it failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext, SparkJobInfo, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.readwriter import DataFrameWriter

from gossiplog import spark
from gossiplog.errors import GossipLogError, SparkError
from tests.integration.kill_rebase import in_a_fork
from tests.integration.local_cluster import EXECUTORS, cluster, executors
from tests.integration.spark_jobs import JAVA, JOBS, check, prepare, run, run_again
from tests.spark import shared
from tests.spark.killing import killing

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_KILLED = -signal.SIGKILL
_FILES = frozenset(["open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect"])
_QUERIES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (DataFrame, ("collect", "count", "take", "isEmpty", "toArrow", "toLocalIterator")),
    (DataFrameWriter, ("parquet", "save")),
)
# How often a job may come to its end before the moment of a kill.
_TRIES = 5


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


def end_queries(session: SparkSession, group: str) -> None:
    """End what the former driver's Java would have ended with itself."""
    while running_jobs(session, group):
        session.sparkContext.cancelJobGroup(group)
        time.sleep(0.05)


class Killer:
    """Kills what runs one job, at many places.

    Args:
        folder: for copies of the logs.
        made: with the logs.
        name: of the job.
    """

    def __init__(self, folder: Path, made: Path, name: str) -> None:
        self.job = JOBS[name]
        self.kills = self.whole = 0
        self.errors: Counter[str] = Counter()
        self._folder = folder
        self._made = made
        self._name = name
        self.expected = ""
        # That the job took when it was not disturbed.
        self._seconds = 0.0

    def figures(self) -> dict[str, Any]:
        """Return what is printed."""
        return {"kills": self.kills, "whole": self.whole, "errors": dict(self.errors)}

    def spread(self, places: int) -> None:
        """Kill at moments spread over the time that the job takes."""
        for place in range(places):
            # It may be faster than it was.
            for _ in range(_TRIES):
                if self._at((place + 0.5) / places):
                    break
            else:
                raise SystemExit(f"{self._name} comes to its end before a kill at {place} of {places}")

    def _at(self, part: float) -> bool:
        """Kill when a part of the time is over; return False where the job came to its end before."""
        raise NotImplementedError

    def _place(self, name: str) -> Path:
        place = self._folder / f"{self._name}-{name}"
        shutil.copytree(self._made, place)
        (place / "temporary").mkdir()
        return place

    def _note(self, place: Path, is_whole: bool) -> None:
        self.kills += 1
        self.whole += is_whole
        shutil.rmtree(place)


class DriverKiller(Killer):
    """Kills drivers, and tasks."""

    def __init__(self, folder: Path, made: Path, name: str) -> None:
        super().__init__(folder, made, name)
        self.steps: list[str] = []
        self.queries = 0
        place = self._place("undisturbed")

        def undisturbed() -> None:
            session = self._session(place)
            steps = Steps(session, place.name, place)
            begin = time.monotonic()
            found = run(name, session, place)
            seconds = time.monotonic() - begin
            check(found, found, place)
            (place / "found").write_text(json.dumps([found, seconds, steps.names, steps.queries]), encoding="utf-8")

        self._forked("undisturbed", place, undisturbed, 0)
        result = json.loads((place / "found").read_text(encoding="utf-8"))
        self.expected, self._seconds, self.steps, self.queries = result
        shutil.rmtree(place)

    def everywhere(self, places: int) -> None:
        """Kill a driver in so many places: before steps, in queries, and at moments where these are not enough."""
        known = [(step, 0) for step in range(1, len(self.steps) + 1)]
        known += [(0, query) for query in range(1, self.queries + 1)]
        # What Java does has no steps here.
        chosen = [] if self.job.in_java else [known[n * len(known) // places] for n in range(places)]
        chosen = sorted(set(chosen))
        for before, during in chosen:
            self.driver(before, during)
        self.spread(places - len(chosen))

    def driver(self, before: int = 0, during: int = 0) -> None:
        """Kill the driver before a step, or during a query."""
        place = self._place(f"before-{before}-during-{during}")

        def attempt() -> None:
            session = driver(place.name)
            Steps(session, place.name, place, before, during)
            run(self._name, session, place)

        where = f"before step {before}, {self.steps[before - 1]}" if before else f"during query {during}"
        self._forked(where, place, attempt, _KILLED)
        self._again(where, place)

    def task(self) -> None:
        """Kill a task, which ends the job, and run it again in the same session."""
        place = self._place("task")

        def attempt() -> None:
            session, token = driver(place.name), place / "temporary" / "token"
            try:
                with killing(token), spark.worker_errors():
                    self.job.run(session, place)
            except SparkError as error:
                if "exited unexpectedly" not in str(error):
                    raise
            else:
                raise AssertionError("the job came to its end")
            if token.exists():
                raise AssertionError("no task was killed")
            self._check(place, session)

        self._forked("a task", place, attempt, 0)
        self._note_found(place)

    def _at(self, part: float) -> bool:
        place, where = self._place(f"at-{part}"), f"at {part} of {self._seconds:.2f} s"
        reader, writer = os.pipe()

        def attempt() -> None:
            # Java is killed with it.
            os.setpgid(0, 0)
            session = self._session(place)
            os.write(writer, b".")
            begin = time.monotonic()
            run(self._name, session, place)
            (place / "found").write_text(str(time.monotonic() - begin), encoding="ascii")

        def kill(process: int) -> None:
            os.close(writer)
            if os.read(reader, 1):
                time.sleep(part * self._seconds)
                os.killpg(process, signal.SIGKILL)
            os.close(reader)

        status = self._forked(where, place, attempt, None, kill)
        if (place / "found").exists():
            self._seconds = float((place / "found").read_text(encoding="ascii"))
            shutil.rmtree(place)
            return False
        if status != _KILLED:
            raise SystemExit(f"{self._name}, {where}: a driver ended with status {status}, in {place}")
        self._again(where, place)
        return True

    def _session(self, place: Path) -> SparkSession:
        if not self.job.in_java:
            return driver(place.name)
        for name in (PORT, SECRET):
            del os.environ[name]
        own = place / JAVA
        own.mkdir()
        os.environ["SPARK_LOCAL_DIRS"] = str(own)
        return shared.start(own)

    def _again(self, where: str, place: Path) -> None:
        def again() -> None:
            session = driver(f"{place.name}-again")
            end_queries(session, place.name)
            self._check(place, session)

        self._forked(where, place, again, 0)
        self._note_found(place)

    def _check(self, place: Path, session: SparkSession) -> None:
        found = run_again(self._name, session, place, self.expected)
        (place / "found").write_text(str(int(found)), encoding="ascii")

    def _note_found(self, place: Path) -> None:
        self._note(place, (place / "found").read_text(encoding="ascii") == "1")

    def _forked(
        self,
        where: str,
        place: Path,
        call: Callable[[], object],
        wanted: int | None,
        meanwhile: Callable[[int], object] = lambda _: None,
    ) -> int:
        def begin() -> None:
            os.environ["TMPDIR"] = str(place / "temporary")
            call()

        status = in_a_fork(begin, meanwhile)
        if wanted not in (None, status):
            raise SystemExit(f"{self._name}, killed {where}: a driver ended with status {status}, in {place}")
        return status


class ExecutorKiller(Killer):
    """Kills executors of a cluster, whose session is this process's."""

    def __init__(self, folder: Path, made: Path, name: str, session: SparkSession) -> None:
        super().__init__(folder, made, name)
        self._session = session
        place = self._place("undisturbed")
        executors(session, EXECUTORS)
        begin = time.monotonic()
        self.expected = run(name, session, place)
        self._seconds = time.monotonic() - begin
        check(self.expected, self.expected, place)
        shutil.rmtree(place)

    def _at(self, part: float) -> bool:
        place = self._place(f"at-{part}")
        # The other one may be about to start: then all that was cached and shuffled is lost.
        victim = executors(self._session, 1)[0]
        is_killed = threading.Event()

        def kill() -> None:
            os.kill(victim, signal.SIGKILL)
            is_killed.set()

        timer = threading.Timer(part * self._seconds, kill)
        begin, error = time.monotonic(), ""
        timer.start()
        try:
            found = run(self._name, self._session, place)
        except (GossipLogError, PySparkException) as raised:
            error = str(raised)
        seconds = time.monotonic() - begin
        timer.cancel()
        if not is_killed.is_set() and not error:
            self._seconds = seconds
            shutil.rmtree(place)
            return False
        if error:
            self.errors[error] += 1
            self._note(place, run_again(self._name, self._session, place, self.expected))
        else:
            check(found, self.expected, place)
            self._note(place, True)
        return True


def kill_executors(
    session: SparkSession, folder: Path, places: int, messages: int = 400, jobs: Sequence[str] = tuple(JOBS)
) -> dict[str, dict[str, Any]]:
    """Kill an executor in so many places of jobs, and return the figures of each."""
    prepare(folder / "made", messages)
    results = {}
    for name in jobs:
        killer = ExecutorKiller(folder, folder / "made", name, session)
        killer.spread(places)
        results[name] = killer.figures()
        sys.stderr.write(f"{name}: {results[name]}\n")
    return results


def kill_drivers(folder: Path, places: int, messages: int, jobs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Kill a driver in so many places of jobs, and a task of each, and return the figures of each.

    Args:
        folder: for copies of the logs.
        places: 0 is one, by turns in the middle, before the last step, in the last query; and a task of every
            other job.
        messages: that the logs have in common.
        jobs: their names.
    """
    if in_a_fork(lambda: prepare(folder / "made", messages)):
        raise SystemExit("the logs were not made")
    results = {}
    with java():
        for number, name in enumerate(jobs):
            killer = DriverKiller(folder, folder / "made", name)
            steps = len(killer.steps)
            if places:
                killer.everywhere(places)
            else:
                killer.driver(*[(max(steps // 2, 1), 0), (steps, 0), (0, killer.queries)][number % 3])
            if not killer.job.in_java and (places or number % 2):
                killer.task()
            results[name] = killer.figures() | {"steps": len(killer.steps), "queries": killer.queries}
            sys.stderr.write(f"{name}: {results[name]}\n")
    return results


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
    parser.add_argument("--executors", action="store_true", help="kill executors, not drivers and tasks")
    parser.add_argument("--places", type=int, default=20, help="of each job; of drivers, 0 is a single one")
    parser.add_argument("--messages", type=int, default=400, help="that the logs have in common")
    given = parser.parse_intermixed_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = given.folder.absolute()
    folder.mkdir(exist_ok=True)
    if given.executors:
        with cluster() as session:
            results = kill_executors(session, folder, given.places, given.messages, given.jobs)
    else:
        results = kill_drivers(folder, given.places, given.messages, given.jobs)
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
