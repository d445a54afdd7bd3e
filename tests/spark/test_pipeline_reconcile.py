"""`gossiplog pipeline reconcile`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.cli.main import main


def test_reconcile(
    spark: SparkSession, replicas: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "repairs"
    assert main(["pipeline", "reconcile", str(tmp_path / "*.db"), "--output", str(folder)]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    found = [(record["log"], record["messages"], record["shared"], record["lacks"]["messages"]) for record in records]
    assert sorted(found) == [
        (str(replicas[0]), 437, 400, 5),
        (str(replicas[2]), 400, 400, 42),
        (str(replicas[1]), 412, 400, 30),
    ]
    for record in records:
        assert record["repair"] == str(folder / Path(record["log"]).name)
        with gossiplog.open(record["log"]) as log:
            assert record["root"] == {"level": log.root.level, "hash": log.root.hash.hex()}


def test_a_terminal_gets_a_table(
    spark: SparkSession, replicas: list[Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["pipeline", "reconcile", *map(str, replicas)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "of clocks" in lines[0]
    assert "401–437" in lines[3]
