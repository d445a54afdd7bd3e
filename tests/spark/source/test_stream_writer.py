"""Appending a stream to a log: the writer by itself, killed in each step, then through Spark."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import gossiplog
from gossiplog import NotALog, Signer, TopicMismatch
from gossiplog.errors import OptionError, SparkError, StorageError, ValuesRefused
from gossiplog.spark import worker_errors
from gossiplog.spark.source import stream_writer as module
from gossiplog.spark.source import writer as merging
from gossiplog.spark.source.options import write_options
from gossiplog.spark.source.stream_writer import LogStreamWriter
from tests.spark import java

MakeLog = Callable[..., Path]
TOPIC = "org.example.spark"
VALUES = StructType([StructField("value", BinaryType())])
QUERY = "11111111-2222-3333-4444-555555555555"


class Context:
    """What a task of a query sees."""

    def __init__(self, query: str | None = QUERY) -> None:
        self._query = query

    def get(self) -> Context:
        return self

    def getLocalProperty(self, name: str) -> str | None:
        return self._query if name == "sql.streaming.queryId" else None

    def partitionId(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def _context(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "spark" not in request.fixturenames:
        monkeypatch.setattr(module, "TaskContext", Context())


def writer(path: Path, schema: StructType = VALUES, **options: str) -> LogStreamWriter:
    return LogStreamWriter(write_options({"path": str(path), **options}, stream=True), schema)


def stage(path: Path, *tasks: Sequence[bytes | None], **options: str) -> list[Any]:
    """What Spark does with a writer that it makes for a micro-batch, which travels to the tasks."""
    batches = [pa.record_batch({"value": pa.array(values, pa.binary())}) for values in tasks]
    copied = pickle.loads(pickle.dumps(writer(path, **options)))
    return [pickle.loads(pickle.dumps(copied.write(iter([batch])))) for batch in batches]


def put(path: Path, batch: int, *tasks: Sequence[bytes | None], **options: str) -> None:
    """A whole micro-batch: Spark makes another writer to commit it."""
    staged = stage(path, *tasks, **options)
    writer(path, **options).commit(staged, batch)


def values_of(path: Path) -> list[bytes]:
    with gossiplog.open(path) as log:
        return [message.value for message in log]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm", "-count"))}


def test_micro_batches_make_the_same_log(make_log: MakeLog, tmp_path: Path) -> None:
    source, target = make_log("a.db", 300), tmp_path / "b.db"
    values = values_of(source)
    put(target, 0, values[50:100], [], values[:60], topic=TOPIC)
    put(target, 1, topic=TOPIC)
    put(target, 2, values[100:])
    with gossiplog.open(source) as ours, gossiplog.open(target) as theirs:
        assert ours.root == theirs.root
        theirs.verify()
    assert names(tmp_path) == {"a.db", "b.db"}


def test_a_micro_batch_that_is_repeated_changes_nothing(make_log: MakeLog, tmp_path: Path) -> None:
    target = tmp_path / "b.db"
    values = values_of(make_log("a.db", 30))
    for _ in range(2):
        put(target, 0, values[:20], topic=TOPIC)
    put(target, 1, values[20:])
    assert values_of(target) == values
    assert names(tmp_path) == {"a.db", "b.db"}


def test_abort_leaves_nothing(make_log: MakeLog, tmp_path: Path) -> None:
    target = tmp_path / "b.db"
    staged = stage(target, values_of(make_log("a.db", 20)), topic=TOPIC)
    assert len(names(tmp_path)) == 2
    writer(target, topic=TOPIC).abort([*staged, None], 0)
    writer(target, topic=TOPIC).abort([*staged, None], 0)
    assert names(tmp_path) == {"a.db"}


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([b"x"], pa.binary())})
        raise RuntimeError("the stream ended")

    with pytest.raises(RuntimeError):
        writer(tmp_path / "b.db", topic=TOPIC).write(broken())
    assert names(tmp_path) == set()


def test_queries_into_one_log_leave_each_other_alone(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "b.db"
    values = values_of(make_log("a.db", 30))
    first = stage(target, values[:10], topic=TOPIC)
    monkeypatch.setattr(module, "TaskContext", Context("another"))
    put(target, 0, values[:20], topic=TOPIC)
    writer(target).abort(stage(target, values), 1)
    writer(target).commit(first, 0)
    assert values_of(target) == values[:20]
    assert names(tmp_path) == {"a.db", "b.db"}


def test_refused_values_end_the_query(make_log: MakeLog, tmp_path: Path) -> None:
    """Until what they lack has come: started again, the query repeats the micro-batch."""
    target = make_log("b.db", 0)
    values = values_of(make_log("a.db", 20))
    with pytest.raises(
        ValuesRefused, match=r"2 of 4 values were refused, and .*b.db has the remaining ones; the first"
    ):
        put(target, 0, [*values[:2], values[4], values[5]])
    assert values_of(target) == values[:2]
    assert names(tmp_path) == {"a.db", "b.db"}
    with gossiplog.open(target) as log:
        log.insert_many(values[2:4])
    put(target, 0, [*values[:2], values[4], values[5]])
    assert values_of(target) == values[:6]


def test_a_report_of_the_micro_batches_that_had_refused_values(make_log: MakeLog, tmp_path: Path) -> None:
    target, report = make_log("b.db", 0), tmp_path / "report"
    values = values_of(make_log("a.db", 20))
    put(target, 0, values[:2], report=str(report))
    assert names(report) == set()
    put(target, 1, [None, values[2], values[5]], report=str(report))
    put(target, 2, [None], report=str(report))
    assert {path.name for path in (report / QUERY).iterdir()} == {"1", "2"}
    assert json.loads((report / QUERY / "1" / "summary.json").read_text()) == {
        "values": 3,
        "inserted": 1,
        "duplicates": 0,
        "refused": 2,
    }
    assert len((report / QUERY / "1" / "refused.jsonl").read_text().splitlines()) == 2
    # Repeated when the parents have come.
    with gossiplog.open(target) as log:
        log.insert_many(values[3:5])
    put(target, 2, [values[5]], report=str(report))
    assert {path.name for path in (report / QUERY).iterdir()} == {"1"}


def test_what_another_run_of_the_query_removed(make_log: MakeLog, tmp_path: Path) -> None:
    target = tmp_path / "b.db"
    values = values_of(make_log("a.db", 20))
    first = stage(target, values, topic=TOPIC)
    put(target, 0, values[:5], topic=TOPIC)
    with pytest.raises(StorageError, match=r"micro-batch 0 left is gone .*: start a query once"):
        writer(target).commit(first, 0)
    assert values_of(target) == values[:5]


@pytest.mark.parametrize("kind", ["file", "open", "link"])
def test_a_folder_of_somebody_else(kind: str, make_log: MakeLog, tmp_path: Path) -> None:
    target = tmp_path / "b.db"
    values = values_of(make_log("a.db", 20))
    staged = stage(target, values, topic=TOPIC)
    folder = Path(staged[0].folder)
    if kind == "open":
        folder.chmod(0o770)
    else:
        folder.rename(tmp_path / "elsewhere")
        (folder.touch if kind == "file" else lambda: folder.symlink_to(tmp_path / "elsewhere"))()
    for call in (lambda: stage(target, values, topic=TOPIC), lambda: writer(target, topic=TOPIC).commit(staged, 0)):
        with pytest.raises(StorageError, match="not a folder that this user alone can enter: remove it, or"):
            call()
        assert not target.exists()


def test_a_folder_that_cannot_be_made(make_log: MakeLog, tmp_path: Path) -> None:
    values = values_of(make_log("a.db", 3))
    said = r"cannot be staged in \S+ \(No such file or directory\): set the option staging"
    with pytest.raises(StorageError, match=said):
        stage(tmp_path / "none" / "b.db", values, topic=TOPIC)


@pytest.mark.parametrize(
    ("schema", "options", "error", "complaint"),
    [
        (StructType([StructField("value", StringType())]), {}, OptionError, "no column value of the type binary"),
        (VALUES, {"report": ""}, OptionError, "the option report is empty"),
        (VALUES, {"raport": "x"}, OptionError, "no option 'raport' here: expected one of topic, staging, report"),
        (VALUES, {"topic": "another"}, TopicMismatch, "is a log of the topic"),
        (VALUES, {"report": "hdfs://host/report"}, OptionError, "the option report"),
        (VALUES, {"staging": "hdfs://host/staging"}, OptionError, "the option staging"),
    ],
)
def test_mistakes(
    schema: StructType, options: dict[str, str], error: type[Exception], complaint: str, make_log: MakeLog
) -> None:
    with pytest.raises(error, match=complaint):
        writer(make_log(), schema, **options)


def test_no_log_and_no_topic(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="the option topic makes one"):
        writer(tmp_path / "none.db", checkpointLocation="/data/checkpoint", queryName="archive")


def test_outside_of_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TaskContext", Context(None))
    with pytest.raises(StorageError, match="within a query of Spark alone"):
        stage(tmp_path / "b.db", [b"x"], topic=TOPIC)
    assert names(tmp_path) == set()


# Killed

KILLED_BEFORE = [
    # In a task, then by the driver: (module, function, how many calls before).
    (module, "stage", 0),
    (module, "StagedTask", 0),
    (module, "stage", 1),
    (module, "add", 0),
    (merging, "refused", 0),
    (merging, "merged", 0),
    (merging, "insert_many", 0),
    (merging, "insert_many", 1),
    (merging, "insert_many", 3),
    (merging, "asdict", 0),
    (module, "_remove", 0),
    (module.shutil, "rmtree", 0),
    (module.shutil, "rmtree", 1),
]


@pytest.mark.parametrize(("where", "name", "calls"), KILLED_BEFORE)
def test_a_driver_that_is_killed(
    where: Any, name: str, calls: int, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The micro-batch, repeated, makes the log that it would have made, and leaves nothing of the first attempt."""
    monkeypatch.setattr(merging, "_SLICE", 10)
    target, report = tmp_path / "b.db", tmp_path / "report"
    values = values_of(make_log("a.db", 60))
    tasks = [None, *values[20:50]], values[:35]
    original, left = getattr(where, name), calls

    def killing(*args: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return original(*args, **options)

    child = os.fork()
    if child == 0:
        try:
            setattr(where, name, killing)
            put(target, 7, *tasks, topic=TOPIC, report=str(report))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    put(target, 7, *tasks, topic=TOPIC, report=str(report))
    assert values_of(target) == values[:50]
    with gossiplog.open(target) as log:
        log.verify()
    assert names(tmp_path) == {"a.db", "b.db", "report"}
    assert names(report / QUERY) == {"7"}
    assert len((report / QUERY / "7" / "refused.jsonl").read_text().splitlines()) == 1


# Through Spark itself


def archive(frame: DataFrame, target: Path, checkpoint: Path, **options: str) -> None:
    """Takes what there is into a log."""
    query = frame.writeStream.format("gossiplog").trigger(availableNow=True).options(**options)
    query.option("checkpointLocation", str(checkpoint)).start(str(target)).awaitTermination()


def test_a_fleet_into_one_log(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    hubs = tmp_path / "hubs"
    hubs.mkdir()
    for number in (1, 2, 3):
        make_log(f"hubs/{number}.db", 40, author=number)
    target, checkpoint = tmp_path / "archive.db", tmp_path / "checkpoint"
    frame = spark.readStream.format("gossiplog").option("columns", "value").option("maxRows", 50).load(str(hubs))
    archive(frame, target, checkpoint, topic=TOPIC)
    make_log("hubs/4.db", 10, author=4)
    with gossiplog.open(hubs / "1.db") as log:
        log.append("later", signer=Signer(b"\1" * 32))
    archive(frame, target, checkpoint, topic=TOPIC)
    found = values_of(target)
    assert sorted(found) == sorted(value for hub in hubs.glob("*.db") for value in values_of(hub))
    assert len(found) == 131
    assert names(tmp_path) == {"hubs", "archive.db", "checkpoint"}


def test_what_ends_a_query(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    source, target = make_log("a.db", 20), make_log("b.db", 0)
    frame = spark.readStream.format("gossiplog").load(str(source))
    with pytest.raises(ValuesRefused, match="15 of 15 values were refused"), worker_errors():
        archive(frame.where("clock > 5"), target, tmp_path / "checkpoint")
    broken = F.udf(lambda seq: 1 // (seq - 15), LongType())
    with pytest.raises(SparkError, match="ZeroDivisionError"), worker_errors():
        archive(frame.where(broken("seq") <= 1), target, tmp_path / "other")
    assert names(tmp_path) == {"a.db", "b.db", "checkpoint", "other"}
    assert values_of(target) == []


PROGRAM = """
import sys
from gossiplog import spark
log, target, folder = sys.argv[1:]
stream = spark.session("local[2]").readStream.format("gossiplog").option("maxRows", 20).load(log).select("value")
query = stream.writeStream.format("gossiplog").option("checkpointLocation", folder).option("topic", "org.example.spark")
query.start(target).awaitTermination()
"""


def test_a_query_that_was_killed_goes_on(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    """Java has to die as well: what it leaves in a checkpoint, no other process can leave there."""
    source, target, checkpoint = make_log("a.db", 1000), tmp_path / "b.db", tmp_path / "checkpoint"
    command = [sys.executable, "-c", PROGRAM, str(source), str(target), str(checkpoint)]
    environment = os.environ | {"SPARK_SUBMIT_OPTS": java.archived()}
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        # While a micro-batch is under way that follows others.
        while len(list((checkpoint / "commits").glob("[0-9]*"))) < 2 or not list(tmp_path.glob("b.db.staging-*")):
            time.sleep(0.01)
            assert process.poll() is None, process.communicate()[1]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert len(values_of(target)) < 1000
    frame = spark.readStream.format("gossiplog").option("maxRows", 500).load(str(source)).select("value")
    archive(frame, target, checkpoint, topic=TOPIC)
    assert values_of(target) == values_of(source)
    assert names(tmp_path) == {"a.db", "b.db", "checkpoint"}
