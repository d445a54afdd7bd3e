"""Repair sets, and what they make of the replicas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.cli.main import main
from gossiplog.errors import OptionError, StorageError
from gossiplog.spark import ReconcileResult, reconcile, write_repairs
from gossiplog.spark.jobs.repair import set_names
from tests.spark.conftest import EVE
from tests.spark.jobs.test_fetch_values import lose


def test_repaired_replicas_are_equal(spark: SparkSession, replicas: list[Path], tmp_path: Path) -> None:
    result = reconcile(spark, *map(str, replicas))
    folder = tmp_path / "repairs"
    sets = write_repairs(result, str(folder))
    assert sets == tuple(str(folder / path.name) for path in replicas)
    for path, repair, lack in zip(replicas, sets, result.lacks, strict=True):
        rows = [
            row for part in sorted(Path(repair).glob("*.parquet")) for row in spark.read.parquet(str(part)).collect()
        ]
        assert [bytes(row.key) for row in rows] == sorted(bytes(row.key) for row in rows)
        assert len(rows) == lack.messages
        assert main(["import", str(path), repair]) == 0
    roots = []
    for path in replicas:
        with gossiplog.open(path) as log:
            assert len(log) == result.union
            log.verify()
            roots.append(log.root)
    assert roots[0] == roots[1] == roots[2]


def test_the_comparison_in_figures(compared: ReconcileResult, tmp_path: Path) -> None:
    folder = tmp_path / "repairs"
    write_repairs(compared, str(folder))
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["union"], summary["shared"]) == (442, 400)
    first = summary["replicas"][0]
    assert (first["log"], first["messages"], first["lacks"]["messages"], first["repair"]) == (
        compared.replicas[0].log,
        437,
        5,
        "one.db",
    )
    assert first["lacks"]["most"][0]["author"] == EVE.did


def test_what_is_there_already_stays(compared: ReconcileResult, tmp_path: Path) -> None:
    (tmp_path / "repairs").mkdir()
    with pytest.raises(OptionError, match="is there already"):
        write_repairs(compared, str(tmp_path / "repairs"))


def test_a_partial_folder_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "repairs.partial").mkdir()
    (tmp_path / "repairs.partial" / "notes").touch()
    nothing = cast(ReconcileResult, SimpleNamespace(replicas=(), lacks=(), union=0, shared=0))
    with pytest.raises(StorageError, match=r"repairs\.partial, which is there already"):
        write_repairs(nothing, str(tmp_path / "repairs"))
    assert [path.name for path in tmp_path.rglob("*")] == ["repairs.partial", "notes"]
    assert write_repairs(nothing, str(tmp_path / "others")) == ()
    assert [path.name for path in (tmp_path / "others").iterdir()] == ["summary.json"]


def test_a_failure_leaves_nothing(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = reconcile(spark, str(make_log("a.db", 3)), str(make_log("b.db", 0)))

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("json.dump", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_repairs(result, str(tmp_path / "repairs"))
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()


def test_damage_in_every_holder(
    spark: SparkSession, make_log: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    full, empty = make_log("a.db", 600), make_log("b.db", 0)
    lose(full, 7)
    folder = tmp_path / "repairs"
    assert main(["pipeline", "reconcile", str(full), str(empty), "--output", str(folder)]) == 1
    written = capfd.readouterr()
    lacks = [json.loads(line)["lacks"] for line in written.out.splitlines()]
    assert [(lack["messages"], lack["unreadable"]) for lack in lacks] == [(0, 0), (600, 1)]
    assert "1 missing message is whole in none of the logs that have it" in written.err
    assert spark.read.parquet(str(folder / "b.db")).count() == 599


def test_names_of_sets() -> None:
    assert set_names(["/a/log.db", "/b/log.db", "c/other.db", "summary.json"]) == [
        "log.db",
        "log.db-2",
        "other.db",
        "summary.json-2",
    ]
