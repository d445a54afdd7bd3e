"""Java, and the one session of a process."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from gossiplog.errors import SparkError
from gossiplog.spark.session import brief_settings, check_java, complete, has_settings, running, session
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


def test_a_session_that_is_there_keeps_its_settings(spark: SparkSession) -> None:
    """Its user may have set them: in a notebook, or where a cluster made the session."""
    with isolated(spark):
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        name = spark.conf.get("spark.app.name")
        assert session("spark://elsewhere:7077", name="another", driver_memory="64g") is spark
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
        assert spark.conf.get("spark.app.name") == name
        session(conf={"spark.sql.shuffle.partitions": "9"})
        assert spark.conf.get("spark.sql.shuffle.partitions") == "9"


def completed(**given: str) -> dict[str, str]:
    conf = SparkConf(loadDefaults=False)
    conf.setAll([(f"spark.{name.replace('_', '.')}", value) for name, value in given.items()])
    complete(conf)
    return dict(conf.getAll())


def test_a_local_session_of_ours_is_quiet() -> None:
    found = completed(app_name="pyspark-shell")
    assert (found["spark.master"], found["spark.app.name"]) == ("local[*]", "gossiplog")
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.driver.host"] == "127.0.0.1"
    assert int(found["spark.sql.shuffle.partitions"]) >= 8


def test_what_is_set_stays() -> None:
    given = {
        "master": "local[3]",
        "app_name": "mine",
        "ui_enabled": "true",
        "sql_shuffle_partitions": "50",
        "python_daemon_module": "pyspark.daemon",
    }
    found = completed(**given)
    assert {name: found[f"spark.{name.replace('_', '.')}"] for name in given} == given


def test_workers_of_another_python_have_its_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lack this package."""
    assert completed()["spark.python.daemon.module"] == "pyspark_gossiplog.daemon"
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another-python")
    assert "spark.python.daemon.module" not in completed()


def test_a_brief_session_gives_way_to_settings_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert "TieredStopAtLevel" in brief_settings()["spark.driver.extraJavaOptions"]
    assert brief_settings("local[3]") == brief_settings()
    for master in ("yarn", "spark://host:7077", "sc://host"):
        assert brief_settings(master) == {}
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert brief_settings() == {}


def test_a_cluster_has_its_own_settings() -> None:
    assert completed(master="yarn", app_name="mine") == {"spark.master": "yarn", "spark.app.name": "mine"}


def test_settings_of_the_users(tmp_path: Path) -> None:
    assert not has_settings({})
    assert has_settings({"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=true pyspark-shell"})
    assert has_settings({"SPARK_CONF_DIR": str(tmp_path)})
    # A process that was started by one with a session of ours.
    assert not has_settings({"SPARK_CONF_DIR": str(resources.files("gossiplog.spark") / "conf")})
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf.template").touch()
    assert not has_settings({"SPARK_HOME": str(tmp_path)})
    (folder / "spark-defaults.conf").touch()
    assert has_settings({"SPARK_HOME": str(tmp_path)})


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
