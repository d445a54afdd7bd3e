"""Java, and the one session of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.errors import SparkError
from gossiplog.spark import running, session
from gossiplog.spark.session import check_java
from tests.spark.shared import isolated


def java(folder: Path, version: str) -> str:
    """A Java home whose Java says that it has this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)
    return str(folder)


def test_a_java_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, 'openjdk version "21" 2023-09-19'))
    check_java()


@pytest.mark.parametrize("version", ['openjdk version "11.0.2" 2019-01-15', 'java version "1.8.0_202"', "what?"])
def test_a_java_that_is_too_old(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, version))
    with pytest.raises(SparkError, match="apt-get install openjdk-17-jre-headless"):
        check_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkError, match=f"none in JAVA_HOME, which is {tmp_path}"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkError, match="none on the PATH"):
        check_java()


def test_there_is_one_session(spark: SparkSession) -> None:
    assert running() is spark
    assert session("local[2]").sparkContext is spark.sparkContext


def test_what_a_test_changes_in_the_session_is_undone(spark: SparkSession) -> None:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    with isolated(spark):
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        spark.conf.set("spark.sql.of.a.test", "1")
        spark.range(1).createTempView("of_a_test")
        spark.newSession().createDataFrame([], "nothing int")
        assert running() is not spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == partitions == "2"
    assert spark.conf.get("spark.sql.of.a.test", None) is None
    assert not spark.catalog.tableExists("of_a_test")
    assert running() is spark
