"""A log that is replaced amid a job: what tasks read of two logs never comes to one figure, and other logs stand."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import Signer
from gossiplog.errors import StorageError
from gossiplog.spark import analyze, materialize, read, reconcile, reconcile_fleet, verify
from gossiplog.spark.jobs import reconcile_fleet as fleet_module
from gossiplog.spark.jobs.analyze_fleet import _LARGE_COLUMNS
from gossiplog.spark.jobs.fetch_values import FetchTask, fetch_values
from gossiplog.spark.jobs.folds import Counter
from gossiplog.spark.jobs.forks import concurrent_rows
from gossiplog.spark.jobs.log_metadata import log_metadata
from gossiplog.spark.jobs.materialize import Recipe
from gossiplog.spark.jobs.over_logs import KnownLogs, LogParts, WholeLogs, Work, placed_parts
from gossiplog.spark.jobs.replica_keys import keys_of, keys_or_problem, look_at_replica, parts_of
from gossiplog.spark.jobs.root import RootWork
from gossiplog.spark.jobs.verify import VerifyWork
from gossiplog.spark.source.batches import Columns
from gossiplog.spark.source.marks import check_mark, is_replaced, mark_of
from gossiplog.spark.source.opening import look_at, opened, opened_log, split, unopened
from gossiplog.spark.source.options import BATCH_OPTIONS, SCHEMA, ReadOptions, read_options
from gossiplog.spark.source.problems import Problem
from gossiplog.spark.source.reader import LogReader, read_range
from gossiplog.spark.source.stream_reader import changes
from tests.spark.conftest import ADA, TOPIC
from tests.spark.jobs.inline_logs import internal, task_rows

MakeLog = Callable[..., Path]
REPLACED = "was replaced while the job read it: run the job again"


@pytest.fixture(params=["another log", "a replica", "a copy", "an earlier state", "another topic"])
def replace_log(request: pytest.FixtureRequest, make_log: MakeLog, tmp_path: Path) -> Callable[[Path], None]:
    """Put another file in the place of a log, in each of the ways in which it happens."""

    def put(path: Path) -> None:
        new = tmp_path / "new.db"
        match request.param:
            case "another log":
                make_log("new.db", 700, author=9)
            case "another topic":
                make_log("new.db", 700, topic="other")
            case "a replica":
                with gossiplog.open(new, TOPIC) as log:
                    log.append("first", signer=ADA)
                    log.pull(path)
            case "a copy":
                shutil.copy(path, new)
            case _:
                # Written over it, as by a program that restores a backup: the file keeps its number.
                make_log("earlier.db", 300)
                shutil.copyfile(tmp_path / "earlier.db", path)
                return
        os.replace(new, path)

    return put


@pytest.fixture
def log(make_log: MakeLog) -> Path:
    return make_log("log.db", 600)


@contextmanager
def refused(log: Path) -> Iterator[None]:
    with pytest.raises(StorageError) as caught:
        yield
    assert is_replaced(caught.value), caught.value
    assert str(caught.value) == f"{log} {REPLACED}"


def test_a_log_that_grows_is_the_same(log: Path) -> None:
    with opened_log(look_at(str(log))) as (_, before), gossiplog.open(log) as written:
        written.append("later", signer=ADA)
    with opened_log(before) as (_, after):
        assert after.count == before.count == 600


def test_copies_of_logs_elsewhere_are_the_same(log: Path, tmp_path: Path) -> None:
    """As a task of each stage makes them of a log that is not mounted."""
    marks = []
    for name in ("one.db", "two.db"):
        copy = shutil.copy(log, tmp_path / name)
        with opened(f"file:{copy}?immutable=1") as (storage, _):
            marks.append(mark_of(storage))
            check_mark("log", storage, marks[0])
    assert marks[0] == marks[1]


def test_what_is_not_known_of_a_file_is_no_other_file(log: Path) -> None:
    with opened(str(log)) as (storage, _):
        mark = mark_of(storage)
        assert mark.file is not None
        for file in (None, ("another machine", 1, 2), (mark.file[0], mark.file[1] + 1, 2)):
            check_mark("log", storage, replace(mark, file=file))
        with refused(log):
            check_mark(str(log), storage, replace(mark, file=(*mark.file[:2], mark.file[2] + 1)))


@pytest.mark.parametrize("lenient", ["false", "true"])
def test_a_read_between_its_plan_and_a_task(log: Path, replace_log: Callable[[Path], None], lenient: str) -> None:
    """Also where it passes over what cannot be read."""
    passed_over = {"ignoreCorruptFiles": lenient, "ignoreMissingFiles": lenient}
    options = {"path": str(log), "partitions": "3", "columns": "key,seq", **passed_over}
    reader = LogReader(read_options(options, BATCH_OPTIONS), SCHEMA)
    first, *others = reader.partitions()
    assert sum(len(batch) for batch in reader.read(first)) > 0
    replace_log(log)
    with refused(log):
        [*reader.read(others[0])]


@pytest.mark.parametrize("when", ["between the stages", "between two parts", "amid a part"])
@pytest.mark.parametrize("work", [VerifyWork(), RootWork()])
def test_parts_of_a_log(
    log: Path, make_log: MakeLog, replace_log: Callable[[Path], None], work: Work, when: str
) -> None:
    sound = make_log("sound.db", 500)
    known = KnownLogs()
    logs = [unopened(str(path)) for path in (log, sound)]
    large = known.take(internal(task_rows(WholeLogs(work, 100), [logs])))
    first, *rest = placed_parts(large, logs)
    if when == "between the stages":
        replace_log(log)
    rows: list[dict[str, Any]] = []
    if when == "amid a part":
        bundle = pa.record_batch({"bundle": [pickle.dumps([*first, *rest[0]])]})
        for batch in LogParts(work)([bundle]):
            if not rows:
                replace_log(log)
            rows += batch.to_pylist()
        rest = rest[1:]
    else:
        rows += task_rows(LogParts(work), [first])
    if when == "between two parts":
        replace_log(log)
    rows += task_rows(LogParts(work), rest)
    known.take(internal(rows))
    known.conclude(work, large)
    outcome = known.outcome(str(log))
    assert (outcome.result, outcome.problem) == (None, Problem("replaced", f"{log} {REPLACED}"))
    with gossiplog.open(sound, read_only=True) as other:
        assert known.outcome(str(sound)).result == (500, other.root)


def test_keys_and_values_of_replicas(log: Path, make_log: MakeLog, replace_log: Callable[[Path], None]) -> None:
    sound = make_log("sound.db", 600)
    looks = [look_at_replica(unopened(str(path))) for path in (log, sound)]
    part, _ = [part for number, look in enumerate(looks) for part in parts_of(number, look)]
    keys = [key for batch in keys_of(part) for key in batch["key"].to_pylist()][:5]
    replace_log(log)
    with refused(log):
        [*keys_of(part)]
    (row,) = [row for batch in keys_or_problem(part) for row in batch.to_pylist()]
    assert (row["key"], row["problem"]) == (None, f"{log} {REPLACED}")
    holders = pa.array([[0, 1]] * 5, pa.list_(pa.int32()))
    wanted = pa.record_batch({"key": pa.array(keys, pa.binary()), "holders": holders})
    logs = tuple(look.log for look in looks)
    with refused(log):
        [*FetchTask(logs)([wanted])]
    rows = [row for batch in FetchTask(logs, passes_over_unreadable=True)([wanted]) for row in batch.to_pylist()]
    assert [(row["key"], row["error"]) for row in rows[:-1]] == [(key, None) for key in keys]
    assert (rows[-1]["key"], rows[-1]["holders"], rows[-1]["error"]) == (None, [0], f"replaced: {log} {REPLACED}")


def test_values_that_were_read_before(log: Path, replace_log: Callable[[Path], None]) -> None:
    """They are those of their keys; that there are no others is not known any more."""
    look = look_at_replica(unopened(str(log)))
    keys = [key for batch in keys_of(parts_of(0, look)[0]) for key in batch["key"].to_pylist()][:5]
    wanted = pa.record_batch({"key": pa.array(keys, pa.binary()), "holders": pa.array([[0]] * 5, pa.list_(pa.int32()))})

    def batches() -> Iterator[pa.RecordBatch]:
        yield wanted
        replace_log(log)

    with refused(log):
        [*FetchTask((look.log,))(batches())]


def test_ranges_of_an_analysis(log: Path, replace_log: Callable[[Path], None]) -> None:
    columns = Columns(ReadOptions(()), _LARGE_COLUMNS)
    first, second = split(look_at(str(log)), 2)
    [*read_range(columns, first)]
    replace_log(log)
    with refused(log):
        [*read_range(columns, second)]


def test_forks_are_looked_for_in_the_log_that_was_read(make_log: MakeLog, replace_log: Callable[[Path], None]) -> None:
    path = make_log("log.db", 600)
    with gossiplog.open(path, read_only=True) as log:
        earlier, later = [*log][500:502]
    row = {"author": [later.author], "seq": [502], "first": [[earlier.id, later.id]], "before": [[501]]}
    (found,) = concurrent_rows(str(path), [pa.RecordBatch.from_pydict(row)])
    assert found.num_rows == 0
    with gossiplog.open(path, read_only=True) as log:
        before = [message.id for message in log]
    replace_log(path)
    with gossiplog.open(path, read_only=True) as log:
        if [message.id for message in log] == before:
            # A copy says the same of it.
            return
    with refused(path):
        [*concurrent_rows(str(path), [pa.RecordBatch.from_pydict(row)])]


# With Spark


def test_a_comparison_without_the_replica_that_was_replaced(
    spark: SparkSession, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its keys and its values: it is a row, and nothing counts that it alone had."""
    paths = [make_log(f"{name}.db", 40) for name in "abc"]
    extra = {0: ["x"], 1: ["y", "z"], 2: []}
    for number, payloads in extra.items():
        with gossiplog.open(paths[number]) as log:
            log.append_many(payloads, signer=Signer(bytes([number + 40]) * 32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet_module, "fetch_values", replacing(paths[1], make_log("new.db", 50, author=7)))
        result = reconcile_fleet(spark, *map(str, paths))
    worst, *others = result.logs
    assert (worst.log, str(worst.problem)) == (str(paths[1]), f"replaced: {paths[1]} {REPLACED}")
    assert {row.log: (row.lacks.messages, row.lacks.unreadable, row.union, row.replicas) for row in others} == {
        str(paths[0]): (0, 0, 41, 2),
        str(paths[2]): (1, 0, 41, 2),
    }
    assert (result.summary.problems, result.summary.messages, result.missing.count()) == (1, 1, 1)
    result.missing.unpersist()


def replacing(path: Path, new: Path) -> Callable[..., Any]:
    """Return `fetch_values`, for which a log is replaced once the keys are read."""

    def fetch(keys: Any, logs: Sequence[Any], **options: bool) -> Any:
        keys = keys.persist()
        keys.count()
        os.replace(new, path)
        return fetch_values(keys, logs, **options)

    return fetch


def test_replicas_of_one_log(spark: SparkSession, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [make_log("a.db", 40), make_log("b.db", 30)]
    monkeypatch.setattr("gossiplog.spark.jobs.reconcile.fetch_values", replacing(paths[0], make_log("c.db", 9)))
    with refused_by_spark(paths[0]):
        reconcile(spark, *map(str, paths))


@contextmanager
def refused_by_spark(log: Path) -> Iterator[None]:
    """A worker's error comes without its cause."""
    with pytest.raises(StorageError) as caught:
        yield
    assert str(caught.value) == f"{log} {REPLACED}"


def test_an_analysis_and_a_check_of_rows(spark: SparkSession, log: Path, make_log: MakeLog) -> None:
    with gossiplog.open(log) as written, gossiplog.open(make_log("fork.db", 0)) as other:
        other.pull(written)
        written.append("one", signer=ADA)
        other.append("two", signer=ADA)
        written.pull(other)
    frame = read(spark, str(log), columns="seq,id,clock,author,parents,size,canonical,content_id").persist()
    assert frame.count() == 602
    own = log_metadata(str(log))
    rows = read(spark, str(log), columns="seq,key,value").persist()
    assert rows.count() == 602
    os.replace(make_log("new.db", 700, author=7), log)
    with refused_by_spark(log):
        analyze(frame, location=str(log))
    with refused_by_spark(log):
        verify(rows, own.topic, own, location=str(log), ascending=True)
    frame.unpersist()
    rows.unpersist()


def test_a_table_of_state(
    spark: SparkSession, log: Path, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a log is not made of another one."""

    def late(*arguments: Any) -> Any:
        os.replace(make_log("newer.db", 700, author=7), log)
        return changes(*arguments)

    monkeypatch.setattr("gossiplog.spark.jobs.materialize.changes", late)
    with pytest.raises(StorageError, match=REPLACED):
        materialize(spark, str(log), str(tmp_path / "state"), Recipe(Counter(), "author"))
    assert not [*tmp_path.glob("state/*.json")]
