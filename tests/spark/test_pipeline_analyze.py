"""`gossiplog pipeline analyze`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.cli.main import main
from tests.spark.damage import lose_entry

MakeLog = Callable[..., Path]


def test_analyze(spark: SparkSession, make_log: MakeLog, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, folder = make_log(messages=30), tmp_path / "report"
    hot = "get_json_object(payload, '$.number') % 2"
    assert main(["pipeline", "analyze", str(path), "--output", str(folder), "--hot", hot]) == 0
    record = json.loads(capfd.readouterr().out)
    assert (record["log"], record["report"], record["totals"]["messages"]) == (str(path), str(folder), 30)
    assert [key["messages"] for key in record["hot_keys"]] == [15, 15]
    page = (folder / "report.html").read_text()
    with gossiplog.open(path) as log:
        assert {str(path), log.topic, log.root.hash.hex()} <= set(re.findall(r"[^<> ]+", page))


def test_a_log_that_has_lost_its_last_message(
    spark: SparkSession, make_log: MakeLog, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = make_log()
    lose_entry(path, 10)
    assert main(["pipeline", "analyze", str(path), "--output", str(tmp_path / "report")]) == 1
    assert f"{path}: it has 9 keys and says that it has 10 messages" in capfd.readouterr().err
    assert not (tmp_path / "report").exists()


def test_a_terminal_gets_a_table(
    spark: SparkSession, make_log: MakeLog, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["pipeline", "analyze", str(make_log(messages=0))]) == 0
    assert "longest chain" in capfd.readouterr().out


def test_several_logs(
    spark: SparkSession, make_log: MakeLog, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_log("a.db", 20)
    make_log("b.db", 30)
    pattern, folder = str(tmp_path / "*.db"), tmp_path / "tables"
    assert main(["pipeline", "analyze", pattern, str(tmp_path / "gone.db"), "--output", str(folder)]) == 1
    *rows, summary = map(json.loads, capfd.readouterr().out.splitlines())
    assert [(Path(row["log"]).name, row["messages"]) for row in rows] == [("gone.db", 0), ("b.db", 30), ("a.db", 20)]
    assert rows[0]["problem"]["kind"] == "missing"
    assert (summary["summary"]["messages"], summary["summary"]["problems"]) == (50, 1)
    assert json.loads((folder / "analysis.json").read_text())["totals"] == summary["summary"]
    authors = spark.read.parquet(str(folder / "authors")).collect()
    assert {(Path(row["log"]).name, row.messages) for row in authors} == {("a.db", 20), ("b.db", 30)}
    page = (folder / "report.html").read_text()
    assert f"<h1>{pattern} {tmp_path / 'gone.db'}</h1>" in page
    assert "missing: there is no log" in page
    assert main(["pipeline", "analyze", pattern, "--hot", "author"]) == 2
    assert "--hot is for one log" in capfd.readouterr().err
