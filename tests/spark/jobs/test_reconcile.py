"""Comparing replicas, and the repair sets that make them equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import core
from gossiplog.cli.main import main
from gossiplog.errors import CorruptLog, OptionError, StorageError, TopicMismatch
from gossiplog.spark import write_repairs
from gossiplog.spark.folders import NewFolder
from gossiplog.spark.jobs.reconcile import (
    MissingMessages,
    ReconcileResult,
    differences,
    reconcile,
)
from gossiplog.spark.jobs.summary import AuthorShare
from tests.spark.conftest import ADA, BEN, EVE
from tests.spark.jobs.test_fetch_values import lose
from tests.spark.shared import frame_of_rows
from tests.storage.damage import damage

MakeLog = Callable[..., Path]


def figures(result: ReconcileResult) -> list[tuple[int, int]]:
    """How many messages each replica has, and lacks."""
    return [(replica.messages, lack.messages) for replica, lack in zip(result.replicas, result.lacks, strict=True)]


def test_who_lacks_what(compared: ReconcileResult, shared_replicas: list[Path]) -> None:
    assert [replica.log for replica in compared.replicas] == [str(path) for path in shared_replicas]
    for replica, path in zip(compared.replicas, shared_replicas, strict=True):
        with gossiplog.open(path) as log:
            assert (replica.level, replica.root, replica.messages) == (log.root.level, log.root.hash.hex(), len(log))
    assert (compared.union, compared.shared) == (442, 400)
    assert figures(compared) == [(437, 5), (412, 30), (400, 42)]


def test_when_and_whose(compared: ReconcileResult) -> None:
    first, _, third = compared.lacks
    assert first == MissingMessages(5, 0, first.bytes, 408, 412, 1, (AuthorShare(EVE.did, 5, first.bytes, 408, 412),))
    assert (third.first_clock, third.last_clock, third.authors) == (401, 437, 3)
    shares = [(share.author, share.messages, share.first_clock, share.last_clock) for share in third.most]
    assert shares == [(ADA.did, 30, 408, 437), (BEN.did, 7, 401, 407), (EVE.did, 5, 408, 412)]
    assert third.bytes == sum(share.bytes for share in third.most)


def test_missing_messages(compared: ReconcileResult, shared_replicas: list[Path]) -> None:
    with gossiplog.open(shared_replicas[0]) as log:
        expected = {message.key: message.value for message in log.messages() if message.clock > 407}
    rows = [row for row in compared.missing.collect() if list(row.holders) == [0]]
    assert {bytes(row.key): bytes(row.value) for row in rows} == expected
    assert {tuple(row.lacking) for row in rows} == {(1, 2)}
    assert {row.error for row in rows} == {None}


def test_every_encoding_is_compared(spark: SparkSession, replicas_of_encodings: tuple[Path, Path]) -> None:
    ids = []
    for path in replicas_of_encodings:
        with gossiplog.open(path) as log:
            ids.append({message.id for message in log})
    result = reconcile(spark, *map(str, replicas_of_encodings))
    one, other = ids
    assert (result.union, result.shared) == (len(one | other), len(one & other))
    assert figures(result) == [(len(one), len(other - one)), (len(other), len(one - other))]


def test_equal_replicas(spark: SparkSession, make_log: MakeLog) -> None:
    paths = [str(make_log("a.db", 50)), str(make_log("b.db", 50))]
    result = reconcile(spark, *paths)
    assert result.replicas[0] == replace(result.replicas[1], log=paths[0])
    assert (result.union, result.shared, result.lacks) == (50, 50, (MissingMessages(), MissingMessages()))


def test_an_empty_replica(spark: SparkSession, make_log: MakeLog) -> None:
    full, empty = str(make_log("a.db", 50)), str(make_log("b.db", 0))
    result = reconcile(spark, empty, full)
    assert figures(result) == [(0, 50), (50, 0)]
    assert (result.lacks[0].first_clock, result.lacks[0].last_clock, result.shared) == (1, 50, 0)


def test_empty_replicas(spark: SparkSession, make_log: MakeLog) -> None:
    result = reconcile(spark, str(make_log("a.db", 0)), str(make_log("b.db", 0)))
    assert (result.union, result.shared, result.lacks) == (0, 0, (MissingMessages(), MissingMessages()))


def test_what_cannot_be_compared(spark: SparkSession, make_log: MakeLog) -> None:
    one, other = str(make_log("a.db")), str(make_log("b.db", topic="another"))
    with pytest.raises(OptionError, match=r"nothing to compare .*a\.db with"):
        reconcile(spark, one, one)
    with pytest.raises(TopicMismatch, match=r"b\.db has the topic 'another'"):
        reconcile(spark, one, other)


def test_a_damaged_replica(spark: SparkSession, make_log: MakeLog) -> None:
    sound, damaged = make_log("a.db", 10), make_log("b.db", 3000)
    damage(damaged, "gossiplog_leaves", leaf=True)
    with pytest.raises(CorruptLog, match=damaged.name):
        reconcile(spark, str(sound), str(damaged))


def test_differences_of_every_kind_of_key(spark: SparkSession) -> None:
    """Clocks of one byte and of eight, ranges that no other replica has, and a replica without keys."""
    clocks = [1, 2, 128, 2**14, 2**21 - 1, 2**21, 2**28 + 5, 2**35, 2**42 + 9, 2**49, core.MAX_CLOCK]
    keys = [(core.encode_clock(clock) + bytes([clock % 251]) * 20)[:20] for clock in clocks]
    rows = [(replica, key) for replica in (0, 2) for place, key in enumerate(keys) if replica or place % 3]
    frame = frame_of_rows(spark, rows, "replica int, key binary")
    assert sorted((bytes(row.key), list(row.holders)) for row in differences(frame, 4).collect()) == [
        (key, [0, 2] if place % 3 else [2]) for place, key in enumerate(keys)
    ]
    alone = frame.where("replica = 2").replace(2, 0).unionByName(frame.where("replica = 0").replace(0, 1))
    assert sorted(bytes(row.key) for row in differences(alone, 2).collect()) == keys[::3]
    # Keys that both replicas hold are left out, also in a range where one lacks another key.
    both = frame_of_rows(spark, [(replica, key[:-1]) for replica in (0, 1) for key in keys], "replica int, key binary")
    assert sorted(bytes(row.key) for row in differences(alone.unionByName(both), 2).collect()) == keys[::3]


def test_ranges_that_differ_reach_the_driver_only_where_they_are_few(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = [core.encode_clock(clock) + bytes(18) for clock in range(1, 60)]
    rows = [(replica, key) for replica in (0, 1) for key in keys[replica:]]
    frame = spark.createDataFrame(rows, "replica int, key binary")
    # Else Spark itself sends everyone what is small.
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        for few in (True, False):
            found = differences(frame, 2, broadcast_ranges=few)
            capfd.readouterr()
            found.explain()
            assert ("Broadcast" in capfd.readouterr().out) == few
            assert [bytes(row.key) for row in found.collect()] == keys[:1]
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


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
    missing = SimpleNamespace(sparkSession=None)
    nothing = cast(ReconcileResult, SimpleNamespace(replicas=(), lacks=(), union=0, shared=0, missing=missing))
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

    monkeypatch.setattr(NewFolder, "write_text", fail)
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
    assert f"{full} has 1 message that is whole in none of the logs that have it" in written.err
    assert spark.read.parquet(str(folder / "b.db")).count() == 599
