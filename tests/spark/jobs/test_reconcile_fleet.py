"""Replicas of many logs, compared topic by topic."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.cli.main import main
from gossiplog.spark.jobs import reconcile_fleet as module
from gossiplog.spark.jobs.reconcile_fleet import (
    FleetReconcileResult,
    is_fleet,
    reconcile_fleet,
    write_fleet_repairs,
)
from gossiplog.spark.jobs.replica_keys import KeysPart, ReplicaLook, look_at_replica
from gossiplog.spark.source.fleet import FoundLog, KeyRange
from tests.spark.conftest import ADA, BEN
from tests.spark.jobs.test_fetch_values import lose
from tests.storage.damage import damage

MakeLog = Callable[..., Path]
TOPICS = 7


@pytest.fixture
def fleet(tmp_path: Path) -> dict[str, dict[Path, int]]:
    """Replicas of seven topics in a folder for each hub, and how much each lacks: those of even topics agree, but for
    6, of which there is one.
    """
    logs: dict[str, dict[Path, int]] = {}
    for number in range(TOPICS):
        topic = f"org.example.t{number}"
        paths = [tmp_path / "hubs" / hub / f"t{number}.db" for hub in ("north", "south", "east")]
        if number == 6:
            paths = paths[:1]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        with gossiplog.open(paths[0], topic, synchronous="off") as first:
            first.append_many(range(20 + number), signer=ADA)
            for path in paths[1:]:
                with gossiplog.open(path, topic, synchronous="off") as other:
                    other.pull(first)
            logs[topic] = dict.fromkeys(paths, 0)
            if number % 2:
                first.append_many(range(number), signer=ADA)
                with gossiplog.open(paths[1], synchronous="off") as other:
                    other.append_many(range(3), signer=BEN)
                logs[topic] = {paths[0]: 3, paths[1]: number, paths[2]: number + 3}
    return logs


def lacks(result: FleetReconcileResult) -> dict[str, int]:
    return {row.log: row.lacks.messages for row in result.logs if row.problem is None}


@pytest.mark.parametrize("few", [module.FEW_RANGES, 0])
def test_each_topic_by_itself(
    spark: SparkSession,
    fleet: dict[str, dict[Path, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few: int,
) -> None:
    monkeypatch.setattr(module, "FEW_RANGES", few)
    result = reconcile_fleet(spark, str(tmp_path / "hubs"), recursive=True)
    expected = {str(path): lack for paths in fleet.values() for path, lack in paths.items()}
    assert lacks(result) == expected
    assert [row.lacks.messages for row in result.logs] == sorted(expected.values(), reverse=True)
    for row in result.logs:
        assert row.replica is not None
        with gossiplog.open(row.log) as log:
            assert (row.replica.topic, row.replica.messages, row.replica.root) == (
                log.topic,
                len(log),
                log.root.hash.hex(),
            )
        paths = fleet[row.replica.topic]
        assert row.replicas == len(paths)
        assert row.union == row.replica.messages + row.lacks.messages
        # What any replica of the topic has beyond what the one that lacks the most of them has.
        assert row.shared == row.union - max(paths.values())
    summary = result.summary
    assert (summary.logs, summary.topics, summary.differing, summary.alone, summary.lacking) == (19, 7, 3, 1, 9)
    assert (summary.problems, summary.messages, summary.unreadable) == (0, sum(expected.values()), 0)
    result.missing.unpersist()


def test_topics_that_agree_are_not_read_again(
    spark: SparkSession, fleet: dict[str, dict[Path, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[str] = []
    read = module.keys_frame

    def counting(session: SparkSession, found: list[KeysPart], **options: bool) -> object:
        parts.extend(str(part.range.log.topic) for part in found)
        return read(session, found, **options)

    monkeypatch.setattr(module, "keys_frame", counting)
    paths = [str(path) for paths in fleet.values() for path in paths]
    reconcile_fleet(spark, *paths).missing.unpersist()
    assert sorted(parts) == [f"org.example.t{number}" for number in (1, 3, 5) for _ in range(3)]


def test_every_log_that_cannot_be_read_is_a_row(
    spark: SparkSession,
    fleet: dict[str, dict[Path, int]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    north = {number: tmp_path / "hubs" / "north" / f"t{number}.db" for number in range(TOPICS)}
    damage(north[0], "gossiplog_meta")
    damage(north[1], "gossiplog_leaves")
    north[2].write_bytes(north[2].read_bytes()[:4096])
    north[3].write_text("notes")
    north[4].write_bytes(b"")
    with closing(sqlite3.connect(north[5])) as database, database:
        database.execute("UPDATE gossiplog_meta SET value = 99 WHERE name = 'schema'")
    north[6].unlink()
    paths = [str(path) for paths in fleet.values() for path in paths]
    folder = tmp_path / "repairs"
    assert main(["pipeline", "reconcile", *paths, "--output", str(folder), "--json"]) == 1
    *rows, summary = map(json.loads, capfd.readouterr().out.splitlines())
    problems = {row["log"]: row["problem"]["kind"] for row in rows if row["problem"]}
    assert problems == {
        str(north[0]): "damaged",
        str(north[1]): "damaged",
        str(north[2]): "damaged",
        str(north[3]): "no log",
        str(north[4]): "no log",
        str(north[5]): "unreadable",
        str(north[6]): "missing",
    }
    assert [row["problem"] is None for row in rows] == [False] * 7 + [True] * 12
    assert all("/tmp" not in row["problem"]["text"] or row["log"] in row["problem"]["text"] for row in rows[:7])
    # Of 1, 3 and 5 the south has what the east lacks, and nobody what the north had.
    found = {row["log"]: row["lacks"]["messages"] for row in rows if row["lacks"]["messages"]}
    assert found == {str(tmp_path / "hubs" / "east" / f"t{number}.db"): 3 for number in (1, 3, 5)}
    assert summary["summary"] == {
        "logs": 19,
        "problems": 7,
        "topics": 6,
        "differing": 3,
        "alone": 0,
        "lacking": 3,
        "damaged": 0,
        "messages": 9,
        "unreadable": 0,
    }
    assert json.loads((folder / "summary.json").read_text())["logs"][0]["log"] in problems


def test_repaired_fleets_agree(
    spark: SparkSession,
    fleet: dict[str, dict[Path, int]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TASK_MESSAGES", 7)
    folder = tmp_path / "repairs"
    hubs = str(tmp_path / "hubs")
    assert main(["pipeline", "reconcile", hubs, "--recursive-file-lookup", "--output", str(folder), "--json"]) == 0
    *rows, _ = map(json.loads, capfd.readouterr().out.splitlines())
    repairs = {row["log"]: row["repair"] for row in rows if row["repair"]}
    assert len({*repairs.values()}) == len(repairs) == 9
    for log, repair in repairs.items():
        # Several tasks wrote what one replica lacks: its files follow one another.
        files = [pq.read_table(path).column("key").to_pylist() for path in sorted(Path(repair).glob("*.parquet"))]
        keys = [key for file in files for key in file]
        assert keys == sorted({*keys})
        assert main(["import", log, repair]) == 0
    capfd.readouterr()
    assert main(["pipeline", "reconcile", hubs, "--recursive-file-lookup", "--json"]) == 0
    *rows, summary = map(json.loads, capfd.readouterr().out.splitlines())
    assert {row["lacks"]["messages"] for row in rows} == {0}
    assert (summary["summary"]["differing"], summary["summary"]["messages"]) == (0, 0)
    for paths in fleet.values():
        for path in paths:
            assert main(["verify", str(path)]) == 0


def test_a_terminal_gets_the_worst_and_a_summary(
    spark: SparkSession,
    fleet: dict[str, dict[Path, int]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr("gossiplog.cli.pipeline.fleet.SHOWN_LOGS", 3)
    command = ["pipeline", "reconcile", str(tmp_path / "hubs"), "--recursive-file-lookup", "--path-glob-filter", "t5*"]
    (tmp_path / "hubs" / "t5-notes").write_text("no log")
    assert main(command) == 1
    written = capfd.readouterr()
    lines = written.out.splitlines()
    (first,) = [place for place, line in enumerate(lines) if "t5-notes" in line and "no log: " in line]
    (second,) = [place for place, line in enumerate(lines) if "east/t5.db" in line]
    assert 0 < first < second
    assert "The first 3 of 4 logs are shown" in written.err
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in lines]
    assert ["differing", "1"] in plain


def test_large_logs_are_read_in_parts(
    spark: SparkSession, fleet: dict[str, dict[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split at any keys, and packed into any number of tasks, the comparison is the same."""
    expected = {str(path): lack for paths in fleet.values() for path, lack in paths.items()}

    def split(log: FoundLog) -> ReplicaLook:
        look = look_at_replica(log)
        with gossiplog.open(log.location) as read:
            keys = sorted(message.key for message in read)
        chosen = sorted(random.Random(log.name).sample(keys, 4))
        starts, ends = [b"", *chosen], [*chosen, None]
        ranges = [KeyRange(look.log, start, end, 1000) for start, end in zip(starts, ends, strict=True)]
        return replace(look, ranges=tuple(ranges))

    def looks(session: object, groups: list[list[FoundLog]], _: object) -> list[ReplicaLook]:
        return [split(log) for group in groups for log in group]

    monkeypatch.setattr(module, "spread_groups", looks)
    monkeypatch.setattr("gossiplog.spark.source.fleet.TASK_MESSAGES", 5000)
    result = reconcile_fleet(spark, *expected)
    assert lacks(result) == expected
    result.missing.unpersist()


def test_a_log_that_breaks_while_it_is_compared(
    spark: SparkSession, fleet: dict[str, dict[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was looked at: it is a row, its topic's other replicas are compared, and no half of it counts."""
    paths = fleet["org.example.t5"]
    first, second, third = paths
    spread_groups = module.spread_groups

    def breaking(*arguments: object) -> object:
        found = spread_groups(*arguments)  # type: ignore[arg-type]
        damage(first, "gossiplog_leaves")
        return found

    monkeypatch.setattr(module, "spread_groups", breaking)
    result = reconcile_fleet(spark, *map(str, paths), *map(str, fleet["org.example.t3"]))
    assert result.logs[0].log == str(first)
    assert result.logs[0].problem is not None
    assert result.logs[0].problem.kind == "damaged"
    assert lacks(result) == {str(second): 0, str(third): 3} | {
        str(path): lack for path, lack in fleet["org.example.t3"].items()
    }
    result.missing.unpersist()


def test_a_message_that_is_whole_nowhere(
    spark: SparkSession, fleet: dict[str, dict[Path, int]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, _, third = fleet["org.example.t5"]
    # Of those that it alone has.
    lose(first, 27)
    folder = tmp_path / "repairs"
    command = ["pipeline", "reconcile", str(tmp_path / "hubs"), "--recursive-file-lookup", "--json"]
    assert main([*command, "--output", str(folder)]) == 1
    written = capfd.readouterr()
    *rows, summary = map(json.loads, written.out.splitlines())
    found = {row["log"]: (row["lacks"]["messages"], row["lacks"]["unreadable"], row["repair"]) for row in rows}
    assert found[str(third)][:2] == (8, 1)
    assert summary["summary"]["unreadable"] == 2
    # Whose they are is said, and comes first; what lacks nothing else is not called lacking.
    assert f"{first} has 1 message that is whole in none of the logs that have it" in written.err
    assert f"gossiplog repair {first} --from SOURCE" in written.err
    assert (rows[0]["log"], rows[0]["damaged"]) == (str(first), 1)
    assert [row["damaged"] for row in rows[1:]] == [0] * (len(rows) - 1)
    assert (summary["summary"]["damaged"], summary["summary"]["lacking"]) == (1, 9)
    assert spark.read.parquet(found[str(third)][2]).count() == 7


# Without Spark


def test_what_a_fleet_is(make_log: MakeLog, tmp_path: Path) -> None:
    def logs(*topics: str) -> list[str]:
        shutil.rmtree(tmp_path / "some", ignore_errors=True)
        (tmp_path / "some").mkdir()
        return [str(make_log(f"some/{number}.db", 1, topic=topic)) for number, topic in enumerate(topics)]

    assert not is_fleet(logs("a"))
    assert not is_fleet(logs("a", "a", "a"))
    # A mistake: no two of them can be compared.
    assert not is_fleet(logs("a", "b"))
    assert is_fleet(logs("a", "b", "a"))
    assert is_fleet(["none.db"] * 101)
    (tmp_path / "notes").write_text("no log")
    assert is_fleet([*logs("a", "a"), str(tmp_path / "notes")])


def test_names_of_repairs_are_names_of_folders(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    paths = []
    for hub in ("a", "b"):
        (tmp_path / hub).mkdir()
        paths += [str(make_log(f"{hub}/it's = 100%.db", 0)), str(make_log(f"{hub}/x.db", 2, topic="x"))]
    full = str(make_log("full.db", 5))
    result = reconcile_fleet(spark, *paths, full)
    repairs = write_fleet_repairs(result, str(tmp_path / "repairs"))
    folder = tmp_path / "repairs"
    expected = {paths[0]: "hub=a/log=it-s-100-.db", paths[2]: "hub=b/log=it-s-100-.db"}
    assert {log: str(Path(repair).relative_to(folder)) for log, repair in repairs.items()} == expected
    assert {str(path.relative_to(folder)) for path in folder.glob("*/*=*")} == {*expected.values()}
    # What to hand out to each hub.
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["hubs"] == {"a": {paths[0]: expected[paths[0]]}, "b": {paths[2]: expected[paths[2]]}}
    for log, repair in repairs.items():
        assert main(["import", log, repair]) == 0
    result.missing.unpersist()
