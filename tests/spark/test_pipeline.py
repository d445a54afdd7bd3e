"""The jobs of `gossiplog pipeline`, in the tests' session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gossiplog.cli.main import main


def test_read(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_log("a.db", 30)
    make_log("b.db", 20)
    folder = tmp_path / "parquet"
    assert main(["pipeline", "read", str(tmp_path / "*.db"), "--output", str(folder)]) == 0
    written = capfd.readouterr()
    records = [json.loads(line) for line in written.out.splitlines()]
    assert [(record["log"], record["messages"], record["damaged"]) for record in records] == [
        (str(tmp_path / "a.db"), 30, 0),
        (str(tmp_path / "b.db"), 20, 0),
    ]
    assert spark.read.parquet(str(folder)).count() == 50


def test_an_error_is_one_line(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.db"
    assert main(["pipeline", "read", str(path)]) == 1
    assert capfd.readouterr().err == f"gossiplog: there is no log {path}\n"
