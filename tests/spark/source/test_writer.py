"""Adding stored values to a log: the writer by itself, then through Spark."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import gossiplog
from gossiplog import NotALog, Signer, TopicMismatch
from gossiplog.errors import OptionError, SparkError, StorageError, ValuesRefused
from gossiplog.spark import WriteResult, read, worker_errors, write
from gossiplog.spark.source.options import write_options
from gossiplog.spark.source.writer import LogArrowWriter

MakeLog = Callable[..., Path]
TOPIC = "org.example.spark"
VALUES = StructType([StructField("value", BinaryType())])


def writer(path: Path, schema: StructType = VALUES, **options: str) -> LogArrowWriter:
    return LogArrowWriter(write_options({"path": str(path), **options}), schema)


def put(writer: LogArrowWriter, *tasks: Sequence[bytes | None]) -> None:
    """What Spark does with a writer, which travels to the tasks."""
    batches = [pa.record_batch({"value": pa.array(values, pa.binary())}) for values in tasks]
    staged = [pickle.loads(pickle.dumps(writer)).write(iter([batch])) for batch in batches]
    writer.commit(pickle.loads(pickle.dumps(staged)))


def values_of(path: Path) -> list[bytes]:
    with gossiplog.open(path) as log:
        return [message.value for message in log]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm", "-count"))}


def test_values_in_any_order_make_the_same_log(make_log: MakeLog, tmp_path: Path) -> None:
    source, target = make_log("a.db", 300), tmp_path / "b.db"
    values = values_of(source)
    put(writer(target, topic=TOPIC), values[200:], [], values[:250])
    with gossiplog.open(source) as ours, gossiplog.open(target) as theirs:
        assert ours.root == theirs.root
        theirs.verify()
    assert names(tmp_path) == {"a.db", "b.db"}


def test_a_report_says_what_became_of_the_values(make_log: MakeLog, tmp_path: Path) -> None:
    source, target, report = make_log("a.db", 20), make_log("b.db", 0), tmp_path / "report"
    values = values_of(source)
    _, foreign = Signer(bytes(32)).sign("another", 1, [], 0)
    put(writer(target, report=str(report)), [*values[:10], None, foreign], [*values[5:10], *values[12:15]])
    assert json.loads((report / "summary.json").read_text()) == {
        "values": 20,
        "inserted": 10,
        "duplicates": 5,
        "refused": 5,
    }
    lines = [json.loads(line) for line in (report / "refused.jsonl").read_text().splitlines()]
    with gossiplog.open(source) as log:
        orphans = [message.id for message in log][12:15]
    assert [line["id"] for line in lines[2:]] == orphans
    assert [(line["partition"], line["row"]) for line in lines[:2]] == [(0, 10), (0, 11)]
    assert names(tmp_path) == {"a.db", "b.db", "report"}


def test_without_a_report_a_refusal_is_an_error(make_log: MakeLog, tmp_path: Path) -> None:
    source, target = make_log("a.db", 20), make_log("b.db", 0)
    values = values_of(source)
    with pytest.raises(
        ValuesRefused, match=r"2 of 4 values were refused, and .*b.db has the remaining ones; the first"
    ):
        put(writer(target), [*values[:2], None, values[5]])
    assert values_of(target) == values[:2]
    assert names(tmp_path) == {"a.db", "b.db"}


def test_where_all_values_are_refused_no_log_is_made(make_log: MakeLog, tmp_path: Path) -> None:
    values = values_of(make_log("a.db", 3))
    with pytest.raises(ValuesRefused, match="3 of 3 values were refused"):
        put(writer(tmp_path / "b.db", topic="another"), values)
    assert names(tmp_path) == {"a.db"}
    put(writer(tmp_path / "b.db", topic=TOPIC), [])
    assert values_of(tmp_path / "b.db") == []


def test_what_others_put_where_no_report_was_asked_for_stays(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_of(make_log("a.db", 20))
    monkeypatch.chdir(tmp_path)
    for name in ("None.partial", "report.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").touch()
    put(writer(tmp_path / "b.db", topic=TOPIC), values)
    with pytest.raises(StorageError, match=r"report\.partial, which is there already and has files, but no \.lock"):
        writer(tmp_path / "b.db", report="report")
    assert [(tmp_path / name / "notes").exists() for name in ("None.partial", "report.partial")] == [True, True]


def test_the_same_again_is_no_error(make_log: MakeLog, tmp_path: Path) -> None:
    path, report = make_log(messages=20), tmp_path / "report"
    values = values_of(path)
    put(writer(path, report=str(report)), values, values)
    written = WriteResult(**json.loads((report / "summary.json").read_text()))
    assert written == WriteResult(values=40, inserted=0, duplicates=40, refused=0)


def test_abort_leaves_nothing(make_log: MakeLog, tmp_path: Path) -> None:
    values = values_of(make_log("a.db", 20))
    given_up = writer(tmp_path / "b.db", topic=TOPIC, report=str(tmp_path / "report"))
    batch = pa.record_batch({"value": values})
    given_up.abort([given_up.write(iter([batch])), None])
    assert names(tmp_path) == {"a.db"}


def test_a_commit_that_fails_leaves_no_report(make_log: MakeLog, tmp_path: Path) -> None:
    values = values_of(make_log("a.db", 20))
    target = tmp_path / "b.db"
    failing = writer(target, topic=TOPIC, report=str(tmp_path / "report"))
    target.write_text("another program's file, longer than a database's header " * 10)
    with pytest.raises(NotALog):
        put(failing, values)
    assert names(tmp_path) == {"a.db", "b.db"}


def test_a_folder_for_staging(make_log: MakeLog, tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    given_up = writer(make_log(), staging=str(tmp_path / "staging"))
    assert len(names(tmp_path / "staging")) == 1
    given_up.abort([])
    assert names(tmp_path / "staging") == set()


def test_relative_paths_are_those_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who starts Spark, then changes the working folder, as a notebook does, names what is in the new one."""
    given: dict[str, str] = {}
    (report := tmp_path / "report").mkdir()
    (report / "summary.json").write_text('{"values": 1, "inserted": 1, "duplicates": 0, "refused": 0}')
    calls = SimpleNamespace(save=lambda: None, format=lambda _: calls, mode=lambda _: calls)
    calls.options = lambda **each: given.update(each) or calls
    session = SimpleNamespace(createDataFrame=lambda *_: None)
    frame = cast(DataFrame, SimpleNamespace(write=calls, sparkSession=session))
    monkeypatch.chdir(tmp_path)
    assert write(frame, "b[1].db", report="report", staging="file:/staging", topic=TOPIC).inserted == 1
    assert given == {"path": f"{tmp_path}/b[1].db", "report": str(report), "staging": "file:/staging", "topic": TOPIC}


def test_a_relative_folder_for_staging_is_the_drivers(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks have working folders of their own."""
    for folder in ("staging", "elsewhere"):
        (tmp_path / folder).mkdir()
    path = make_log()
    values = values_of(path)
    monkeypatch.chdir(tmp_path)
    relative = writer(path, staging="staging")
    monkeypatch.chdir(tmp_path / "elsewhere")
    staged = relative.write(iter([pa.record_batch({"value": pa.array(values, pa.binary())})]))
    assert [os.path.dirname(run) for run in staged.runs] == [*map(str, (tmp_path / "staging").iterdir())]


@pytest.mark.parametrize(
    ("schema", "options", "error", "complaint"),
    [
        (StructType([StructField("valeu", BinaryType())]), {}, OptionError, "no column value of the type binary"),
        (StructType([StructField("value", StringType())]), {}, OptionError, "no column value of the type binary"),
        (VALUES, {"report": "."}, OptionError, r"\. is there already: name a new folder for the option report"),
        (VALUES, {"report": ""}, OptionError, "the option report is empty"),
        (VALUES, {"raport": "x"}, OptionError, "no option 'raport' here: expected one of topic, staging, report"),
        (VALUES, {"topic": "another"}, TopicMismatch, "is a log of the topic"),
        (
            VALUES,
            {"staging": "/nowhere"},
            StorageError,
            r"staged in /nowhere \(No such file or directory\): set the option staging to a folder",
        ),
    ],
)
def test_mistakes(
    schema: StructType, options: dict[str, str], error: type[Exception], complaint: str, make_log: MakeLog
) -> None:
    with pytest.raises(error, match=complaint):
        writer(make_log(), schema, **options)


def test_no_log_and_no_topic(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="the option topic makes one"):
        writer(tmp_path / "none.db")
    with pytest.raises(OptionError, match="there are 2 paths"):
        write_options({"paths": '["a.db", "b.db"]'})
    assert names(tmp_path) == set()


# Through Spark itself


def test_from_log_to_log(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    source, target, report = make_log("a.db", 3000), tmp_path / "b.db", tmp_path / "report"
    frame = read(spark, str(source), partitions=4).repartition(3)
    assert write(frame, str(target), report=str(report), topic=TOPIC) == WriteResult(3000, 3000, 0, 0)
    assert values_of(target) == values_of(source)
    frame.write.format("gossiplog").mode("append").save(str(target))
    assert len(values_of(target)) == 3000


def test_from_another_thread(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    """In which no session of Java's is active."""
    frame = read(spark, str(make_log("a.db", 10)), columns="value")
    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(write, frame, str(tmp_path / "b.db"), report=str(tmp_path / "report"), topic=TOPIC)
        assert written.result() == WriteResult(10, 10, 0, 0)


def test_refusals_reach_the_caller(spark: SparkSession, make_log: MakeLog) -> None:
    source, target = make_log("a.db", 10), make_log("b.db", 0)
    orphans = read(spark, str(source)).where("clock > 5")
    with pytest.raises(ValuesRefused, match="5 of 5 values were refused; the first: "), worker_errors():
        orphans.write.format("gossiplog").mode("append").save(str(target))
    with pytest.raises(OptionError, match="logs only grow"), worker_errors():
        orphans.write.format("gossiplog").mode("overwrite").save(str(target))


def test_a_job_that_cannot_start_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = read(spark, str(tmp_path / "none.db"))
    with pytest.raises(NotALog), worker_errors():
        frame.write.format("gossiplog").mode("append").option("topic", TOPIC).save(str(tmp_path / "b.db"))
    assert names(tmp_path) == set()


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    source = make_log("a.db", 100)
    frame = read(spark, str(source), columns="value,seq").repartition(2)
    broken = F.udf(lambda seq: 1 // (seq - 50), LongType())
    failing = frame.where(broken("seq") <= 1)
    with pytest.raises(SparkError, match="ZeroDivisionError"), worker_errors():
        failing.write.format("gossiplog").mode("append").option("topic", TOPIC).save(str(tmp_path / "b.db"))
    assert names(tmp_path) == {"a.db"}
