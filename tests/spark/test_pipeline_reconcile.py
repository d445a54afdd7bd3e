"""`gossiplog pipeline reconcile`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.cli.main import main
from gossiplog.spark.jobs.reconcile import check_replicas


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


def test_a_damaged_replica_of_one_log_is_a_row(
    spark: SparkSession, replicas: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where it can be opened: nothing before the job says that it is damaged."""
    with closing(sqlite3.connect(replicas[0])) as database, database:
        database.execute("UPDATE gossiplog_heads SET key = 17")
    check_replicas(map(str, replicas))
    assert main(["pipeline", "reconcile", *map(str, replicas), "--output", str(tmp_path / "repairs"), "--json"]) == 1
    *rows, summary = map(json.loads, capfd.readouterr().out.splitlines())
    assert (rows[0]["log"], rows[0]["problem"]["kind"]) == (str(replicas[0]), "damaged")
    assert {row["log"]: row["lacks"]["messages"] for row in rows[1:]} == {str(replicas[1]): 0, str(replicas[2]): 12}
    assert summary["summary"]["problems"] == 1
