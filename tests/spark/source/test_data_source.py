"""The data source through Spark itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.errors import CorruptLog, NotALog, OptionError, TopicMismatch
from gossiplog.spark import SCHEMA, read, worker_errors
from tests.storage.damage import damage

MakeLog = Callable[..., Path]


def test_it_is_found_by_its_name(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=300)
    frame = spark.read.format("gossiplog").load(str(path))
    assert frame.schema == SCHEMA
    with gossiplog.open(path) as log:
        expected = [(message.id, list(message.parents), message.value) for message in log]
    assert [tuple(row) for row in frame.select("id", "parents", "value").collect()] == expected


def test_logs_by_list_and_pattern(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    paths = [str(make_log("a.db", 10)), str(make_log("b.db", 20))]
    for frame in (
        spark.read.format("gossiplog").load(paths),
        spark.read.format("gossiplog").load(str(tmp_path / "*.db")),
        read(spark, *paths),
    ):
        counts = {row.log: row["count"] for row in frame.groupBy("log").count().collect()}
        assert counts == dict(zip(paths, (10, 20), strict=True))


@pytest.mark.parametrize("path", ["a.db", "{a,[b-c]}.db", "file:a.db?immutable=1"])
def test_relative_paths_are_those_of_the_caller(
    spark: SparkSession, make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Java has the working folder in which it was started."""
    (folder := tmp_path / "in [a]").mkdir()
    names = ["a.db", "b.db"] if "{" in path else ["a.db"]
    for name in names:
        make_log(f"in [a]/{name}", 3)
    monkeypatch.chdir(folder)
    frame = read(spark, path, columns="log")
    monkeypatch.chdir("/")
    found = {row.log.removeprefix("file:").partition("?")[0] for row in frame.collect()}
    assert {unquote(name) for name in found} == {str(folder / name) for name in names}


def test_a_relative_path_stays_in_the_folder_of_java(
    spark: SparkSession, spark_folder: Path, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    (link := spark_folder / "relative.db").symlink_to(make_log(messages=3))
    monkeypatch.chdir(spark_folder)
    try:
        assert read(spark, link.name, columns="log").distinct().collect() == [(link.name,)]
    finally:
        link.unlink()


def test_folders_in_a_folder(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    (tmp_path / "hubs" / "north").mkdir(parents=True)
    path = make_log("hubs/north/a.db", 30)
    (tmp_path / "hubs" / "north" / "notes.txt").write_text("no log")
    frame = read(
        spark, str(tmp_path), columns="log_path,log_size", recursiveFileLookup="true", pathGlobFilter="*.{db,sqlite}"
    )
    assert frame.distinct().collect() == [(str(path), path.stat().st_size)]


def test_a_schema_prunes(spark: SparkSession, make_log: MakeLog) -> None:
    path = str(make_log())
    frame = spark.read.format("gossiplog").schema("key binary, seq bigint").load(path)
    assert frame.columns == ["key", "seq"]
    assert frame.count() == 10
    assert read(spark, path, columns="seq,key").columns == ["seq", "key"]


def test_filters_of_sparks_stay_with_their_query(spark: SparkSession, make_log: MakeLog) -> None:
    """A reader that takes filters keeps them for later queries over the frame, in Spark 4.3.0: ours takes none."""
    frame = read(spark, str(make_log(messages=100)))
    assert frame.where("clock > 90").count() == 10
    assert frame.count() == 100
    assert frame.where("clock <= 90").union(frame.where("clock > 90")).count() == 100


def test_options_reach_the_reader(spark: SparkSession, make_log: MakeLog) -> None:
    frame = read(spark, str(make_log(messages=3000)), partitions=4, minClock=101, maxClock=2900)
    assert frame.count() == 2800
    assert frame.rdd.getNumPartitions() == 4


def test_logs_without_messages(spark: SparkSession, make_log: MakeLog) -> None:
    assert read(spark, str(make_log(messages=0)), partitions=3).count() == 0


def test_mistakes_are_ours(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    path = str(make_log())
    (tmp_path / "text.db").write_text("no log, and longer than the header of a database " * 10)
    with pytest.raises(OptionError, match="no option 'minclok'"):
        read(spark, path, minClok=1)
    with pytest.raises(NotALog, match="there is no log"), worker_errors():
        read(spark, str(tmp_path / "none.db")).count()
    with pytest.raises(NotALog, match="not an SQLite database"), worker_errors():
        read(spark, str(tmp_path / "text.db")).count()
    with pytest.raises(TopicMismatch), worker_errors():
        read(spark, path, topic="another").count()
    with pytest.raises(OptionError, match="name different columns"), worker_errors():
        spark.read.format("gossiplog").option("columns", "key").schema("seq bigint").load(path).count()


def test_a_truncated_file(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=3000)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(CorruptLog, match=path.name), worker_errors():
        read(spark, str(path)).count()


def test_a_damaged_page(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=3000)
    damage(path, "gossiplog_leaves", leaf=True)
    with pytest.raises(CorruptLog, match=path.name), worker_errors():
        read(spark, str(path)).count()
