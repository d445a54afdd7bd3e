"""Logs that another process has locked: of many, all locked ones together cost seconds."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.cli.main import main
from gossiplog.errors import StorageError
from gossiplog.spark.jobs import analyze_fleet
from gossiplog.spark.jobs.fetch_values import FetchTask
from gossiplog.spark.jobs.over_logs import WholeLogs
from gossiplog.spark.jobs.reconcile_fleet import is_fleet
from gossiplog.spark.jobs.replica_keys import FleetLook, _task, look_at_replica, parts_of
from gossiplog.spark.jobs.root import RootWork
from gossiplog.spark.jobs.verify import VerifyWork
from gossiplog.spark.source.locks import FLEET_LOCK_SECONDS, LockPatience, is_locked
from gossiplog.spark.source.opening import opened, unopened
from gossiplog.spark.source.options import BATCH_OPTIONS, SCHEMA, STREAM_OPTIONS, read_options
from gossiplog.spark.source.problems import problem_of
from gossiplog.spark.source.reader import LogReader
from gossiplog.spark.source.stream_reader import LogStreamReader
from gossiplog.storage import Storage
from gossiplog.storage.location import storage_at
from tests.spark.jobs.inline_logs import inline

MakeLog = Callable[..., Path]
LOCKED = 12
ADVICE = "stop the program that has the log for itself, or run the job again when it is done"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a log for a block as a process does that has it for itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


@pytest.fixture
def logs(make_log: MakeLog, tmp_path: Path) -> list[Path]:
    """Replicas, of which `held` locks all but the last."""
    first = make_log("0.db", 40)
    return [first, *(Path(shutil.copy(first, tmp_path / f"{number}.db")) for number in range(1, LOCKED + 1))]


@contextmanager
def held(paths: list[Path]) -> Iterator[None]:
    """Lock all logs but the last for a block."""
    with ExitStack() as stack:
        for path in paths[:-1]:
            stack.enter_context(locked(path))
        yield


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long each log that is opened would be waited for; a test waits for none."""
    found: list[float | None] = []

    def at_once(place: str, *, read_only: bool, lock_timeout: float | None) -> Storage:
        found.append(lock_timeout)
        return storage_at(place, read_only=read_only, lock_timeout=0.0)

    monkeypatch.setattr("gossiplog.spark.source.opening.storage_at", at_once)
    return found


def check_bound(waits: list[float | None], tasks: int = 1) -> None:
    """Check that so many tasks wait together for their locked logs, seconds each."""
    assert LOCKED <= len(waits) <= 2 * LOCKED + 2
    short = [wait for wait in waits if wait is not None]
    assert len(short) == len(waits)
    assert short[0] == FLEET_LOCK_SECONDS
    assert sum(short) <= 2 * tasks * 5 * FLEET_LOCK_SECONDS


def test_the_waits_of_a_task_have_a_bound() -> None:
    patience = LockPatience()
    assert patience.seconds == FLEET_LOCK_SECONDS
    waits = []
    for _ in range(10_000):
        waits.append(patience.seconds)
        patience.spend()
    assert waits == sorted(waits, reverse=True)
    assert sum(waits) <= 5 * FLEET_LOCK_SECONDS + 1e-9
    # A dozen of them are still waited for as long as a commit takes.
    assert waits[11] > 0.05


def test_a_locked_log_is_known_by_its_error(logs: list[Path], tmp_path: Path) -> None:
    patience = LockPatience(0.1)
    with held(logs):
        with pytest.raises(StorageError) as caught, opened(str(logs[0]), patience=patience):
            pass
        assert is_locked(caught.value)
        assert patience.left == pytest.approx(0.08)
        problem = problem_of(str(logs[0]), caught.value)
        assert problem.kind == "unreadable"
        assert problem.text.endswith(f"did not release its lock in time (SQLITE_BUSY); {ADVICE}")
    with pytest.raises(StorageError) as other, opened(str(tmp_path / "none.db"), patience=patience):
        pass
    assert not is_locked(other.value)
    assert patience.left == pytest.approx(0.08)


@pytest.mark.parametrize("work", [VerifyWork(), RootWork()])
def test_tasks_over_logs(logs: list[Path], waits: list[float | None], work: VerifyWork | RootWork) -> None:
    with held(logs):
        outcomes, _ = inline(work, list(map(str, logs)))
    check_bound(waits)
    assert [outcomes[str(path)].kinds for path in logs] == [{"log": 1}] * LOCKED + [{}]
    problems = [outcomes[str(path)].problem for path in logs]
    assert problems[-1] is None
    assert all(problem is not None and problem.text.endswith(ADVICE) for problem in problems[:-1])


def test_a_log_alone_is_waited_for_as_everywhere(logs: list[Path], waits: list[float | None]) -> None:
    group = [pa.record_batch({"bundle": [pickle.dumps([unopened(str(logs[0]))])]})]
    assert len([*WholeLogs(RootWork(), 1000, is_patient=True)(group)]) == 1
    assert waits == [None]


@pytest.mark.slow
def test_looks_keys_and_values_of_replicas(logs: list[Path], waits: list[float | None]) -> None:
    looks = [look_at_replica(unopened(str(path))) for path in logs]
    look = FleetLook()
    task = FetchTask(tuple(each.log for each in looks), passes_over_unreadable=True)
    holders = pa.array([[*range(len(logs))]], pa.list_(pa.int32()))
    with gossiplog.open(logs[0], read_only=True) as log:
        key = next(iter(log)).key
    wanted = pa.record_batch({"key": pa.array([key], pa.binary()), "holders": holders})
    parts = [part for number, each in enumerate(looks) for part in parts_of(number, each)]
    with held(logs):
        waits.clear()
        assert is_fleet(list(map(str, logs)))
        assert waits == [FLEET_LOCK_SECONDS]
        waits.clear()
        *locked_ones, last = [look(unopened(str(path))) for path in logs]
        check_bound(waits)
        waits.clear()
        batches = [*_task(True, [pa.record_batch({"bundle": [pickle.dumps(parts)]})])]
        check_bound(waits)
        waits.clear()
        (row,) = [row for batch in task([wanted]) for row in batch.to_pylist() if row["error"] is None]
        check_bound(waits)
    keys = [row for batch in batches for row in batch.to_pylist()]
    assert {row["replica"] for row in keys if row["problem"] is None} == {LOCKED}
    assert [row["replica"] for row in keys if row["problem"] is not None] == [*range(LOCKED)]
    assert last == looks[-1]
    assert all(isinstance(each, tuple) and each[1].text.endswith(ADVICE) for each in locked_ones)
    assert row["key"] == key


def test_analyses(logs: list[Path], waits: list[float | None]) -> None:
    patience = LockPatience()
    with held(logs):
        kinds = [
            next(iter(analyze_fleet.analysis_rows(unopened(str(path)), patience)))["kind"][0].as_py() for path in logs
        ]
    assert kinds == ["problem"] * LOCKED + ["figures"]
    check_bound(waits)


def test_reads_that_pass_over_locked_logs(logs: list[Path], waits: list[float | None]) -> None:
    options = {"paths": json.dumps(list(map(str, logs))), "ignoreCorruptFiles": "true", "columns": "log,seq"}
    batch = LogReader(read_options(options, BATCH_OPTIONS), SCHEMA)
    with held(logs):
        planned = batch.partitions()
        check_bound(waits)
        waits.clear()
        found = [row["log"] for part in planned for rows in batch.read(part) for row in rows.to_pylist()]
    assert found == [str(logs[-1])] * 40
    check_bound(waits, len(planned))


def test_streams_that_pass_over_locked_logs_ask_again(logs: list[Path], waits: list[float | None]) -> None:
    options = {"paths": json.dumps(list(map(str, logs))), "ignoreCorruptFiles": "true"}
    stream = LogStreamReader(read_options(options, STREAM_OPTIONS), SCHEMA)
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    with held(logs):
        assert stream.latestOffset(start, limit)["messages"] == 40
    check_bound(waits)
    assert stream.latestOffset(start, limit)["messages"] == 40 * len(logs)


def test_a_locked_log_is_a_row_of_each_command(
    spark: SparkSession, logs: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    """And says what to do; the others stand."""
    held_one, *others = map(str, logs[-3:])
    for job in ("verify", "root", "analyze", "reconcile"):
        with locked(logs[-3]):
            assert main(["pipeline", job, held_one, *others, "--json"]) == 1
        written = capfd.readouterr()
        assert ADVICE in written.out
        found = [row for row in map(json.loads, written.out.splitlines()) if "log" in row and "kind" not in row]
        rows = {row["log"]: row for row in found}
        assert [rows[log]["messages"] for log in others] == [40, 40], job
        assert not rows[held_one]["messages"]
