"""One job over many logs: every log has its outcome, whatever is wrong with others."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import Signer
from gossiplog.cli.main import main
from gossiplog.errors import NotALog
from gossiplog.spark import fleet_roots, verify_fleet
from gossiplog.spark.jobs import over_logs as module
from gossiplog.spark.jobs.over_logs import KnownLogs, LogPart, WholeLogs, Work, parts_of, placed_parts
from gossiplog.spark.jobs.root import RootWork
from gossiplog.spark.jobs.verify import VerifyWork
from gossiplog.spark.source.fleet import split_open
from gossiplog.spark.source.opening import opened_log, unopened
from gossiplog.spark.source.problems import Problem
from tests.damage import DAMAGE, make_damage
from tests.damage import make_log as make_damaged_log
from tests.spark.jobs.inline_logs import inline, internal, task_rows

MakeLog = Callable[..., Path]

_BY_KIND = {damage.kinds[0]: damage for damage in reversed(DAMAGE) if damage.kinds}
#: Ways to damage a log, no two of which are found by the same look.
WAYS = [_BY_KIND[kind] for kind in ("value", "links", "leaf", "children", "head", "tree", "order")]


@pytest.fixture
def fleet(tmp_path: Path) -> tuple[list[Path], dict[Path, set[str]]]:
    """Sixty logs, and of the ten that are not sound the kinds of defects, one of which there is at least."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    sound = folder / "00.db"
    make_damaged_log(sound)
    paths = [sound, *(Path(shutil.copy(sound, folder / f"{number:02}.db")) for number in range(1, 60))]
    wrong: dict[Path, set[str]] = {}
    for number, damage in enumerate(WAYS):
        path = paths[5 * number + 3]
        make_damage(path, damage)
        wrong[path] = {*(damage.kinds or ())}
    paths[40].write_bytes(b"no database" * 1000)
    paths[41].write_bytes(sound.read_bytes()[:5000])
    paths[42].unlink()
    with gossiplog.open(paths[42], "org.example.other") as log:
        log.append(1, signer=Signer(bytes(32)))
    return paths, wrong | {path: {"log"} for path in paths[40:43]}


def test_exactly_the_logs_that_are_not_sound_are_named(
    spark: SparkSession, fleet: tuple[list[Path], dict[Path, set[str]]]
) -> None:
    paths, wrong = fleet
    found = verify_fleet(spark, *map(str, paths), topic=gossiplog.open(paths[0], read_only=True).topic)
    outcomes = {Path(each.log): each for each in found.logs}
    assert list(outcomes) != paths
    assert outcomes.keys() == {*paths}
    assert {path for path, each in outcomes.items() if each.defects} == wrong.keys()
    for path, kinds in wrong.items():
        assert outcomes[path].defects.keys() & kinds, (path, outcomes[path])
    # The worst come first.
    assert {Path(each.log) for each in found.logs[:3]} == {*paths[40:43]}
    numbers = [sum(each.defects.values()) for each in found.logs[3:]]
    assert numbers == sorted(numbers, reverse=True)
    sound = {(each.messages, each.root) for path, each in outcomes.items() if path not in wrong}
    with gossiplog.open(paths[0], read_only=True) as log:
        assert [(messages, root) for messages, root in sound] == [(len(log), log.root)]
    report = [(Path(row.log), row.kind) for row in found.report.collect()]
    found.report.unpersist()
    assert {path for path, _ in report} == wrong.keys()
    for path, each in outcomes.items():
        kinds_there = [kind for log, kind in report if log == path]
        assert {kind: kinds_there.count(kind) for kind in kinds_there} == each.defects


def test_the_command_has_a_line_for_each_log_and_one_for_all(
    spark: SparkSession, make_log: MakeLog, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [make_log(f"{name}.db", 20) for name in "abc"]
    missing, summary = str(tmp_path / "gone.db"), tmp_path / "summary"
    given = [*map(str, paths), missing]
    paths[1].write_bytes(b"no database" * 1000)
    assert main(["pipeline", "verify", *given, "--json", "--summary", str(summary)]) == 1
    *lines, last = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(line["log"], line["kind"]) for line in lines[:2]] == [(str(paths[1]), "log"), (missing, "log")]
    assert f"there is no log {missing}" in lines[1]["detail"]
    rows = lines[2:]
    assert [row["log"] for row in rows] == [str(paths[1]), missing, str(paths[0]), str(paths[2])]
    assert [row["messages"] for row in rows] == [None, None, 20, 20]
    assert [row["defects"] for row in rows] == [1, 1, 0, 0]
    assert last == {"summary": {"logs": 4, "messages": 40, "defects": 2, "defective": 2, "unreadable": 2}}
    written = {row.log: row for row in spark.read.parquet(str(summary)).collect()}
    assert written.keys() == {*given}
    assert written[missing].kinds == {"log": 1}
    assert written[missing].problem.asDict() == rows[1]["problem"]
    assert written[str(paths[0])].root == rows[2]["root"]
    assert main(["pipeline", "root", *given, "--json"]) == 1
    *roots, last = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    # The same rows in the same order, but for what each of them has alone.
    both = ("log", "messages", "problem", "root")
    assert [[row[name] for name in both] for row in roots] == [[row[name] for name in both] for row in rows]
    assert [row.keys() for row in roots] == [{*both, "level"}] * 4
    assert [row.keys() for row in rows] == [{*both, "defects"}] * 4
    assert [row["problem"] is None for row in rows] == [False, False, True, True]
    assert rows[1]["problem"] == {"kind": "missing", "text": f"there is no log {missing}"}
    assert last == {"summary": {"logs": 4, "messages": 40, "unreadable": 2}}


def test_small_and_large_logs_together(spark: SparkSession, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_MESSAGES", 100)
    monkeypatch.setattr(module, "TASK_MESSAGES", 300)
    paths = [make_log("small.db", 40), make_log("large.db", 1500), make_log("larger.db", 2000, author=2)]
    expected = []
    for path in paths:
        with gossiplog.open(path, read_only=True) as log:
            expected.append((len(log), log.root))
    assert [(each.messages, each.node) for each in fleet_roots(spark, *map(str, paths))] == expected
    found = verify_fleet(spark, *map(str, paths))
    found.report.unpersist()
    assert [(each.messages, each.root, each.defects) for each in found.logs] == [(*each, {}) for each in expected]


# Without Spark


@pytest.mark.slow
@pytest.mark.parametrize("most", [10, 37, 2**17])
def test_parts_come_to_the_same_as_the_whole(make_log: MakeLog, most: int) -> None:
    path = make_log(messages=700)
    with gossiplog.open(path, read_only=True) as log:
        expected = len(log), log.root
    for work in (VerifyWork(), RootWork()):
        outcomes, report = inline(work, [str(path)], most)
        assert (outcomes[str(path)].result, report) == (expected, [])


def test_a_log_that_goes_amid_its_parts_is_one_row(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_log(messages=300)

    def gone(*arguments: object) -> Iterator[None]:
        raise NotALog(f"there is no log {path}")

    monkeypatch.setattr(RootWork, "part", gone)
    outcomes, report = inline(RootWork(), [str(path)], 50)
    assert outcomes[str(path)].problem == Problem("no log", f"there is no log {path}")
    assert [(row["kind"], row["detail"]) for row in report] == [("log", f"no log: there is no log {path}")]


@pytest.mark.parametrize(("work", "files"), [(VerifyWork(), 2), (RootWork(), 0)])
def test_files_of_large_logs_are_looked_at_apart(make_log: MakeLog, work: Work, files: int) -> None:
    """They take longer than any part, so that they begin first; those of two logs of this size fit in one task."""
    logs = [unopened(str(make_log(name, messages=500))) for name in ("a.db", "b.db")]
    large = KnownLogs().take(internal(task_rows(WholeLogs(work, 100), [logs])))
    groups = placed_parts(large, logs)
    first, *others = groups if files else [[], *groups]
    assert [(each.log.name, each.part) for each in first] == [(log.name, LogPart.of_file()) for log in logs[:files]]
    assert [len(group) for group in others] == [1] * 10
    assert not any(each.part.checks_file for group in others for each in group)


@pytest.mark.parametrize("most", [50, 2**17])
@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        (
            "DELETE FROM gossiplog_messages WHERE seq IN (100, 101)",
            "at least 2 messages are lost: there are keys without values",
        ),
        ("DELETE FROM gossiplog_leaves WHERE seq = 100", "it has 299 keys and says that it has 300 messages"),
    ],
)
def test_a_log_that_has_lost_messages_has_no_root(make_log: MakeLog, lost: str, problem: str, most: int) -> None:
    """It was that of another log, with values that nobody wrote, or without those that are lost."""
    path = make_log(messages=300)
    with sqlite3.connect(path) as database:
        database.execute(lost)
    database.close()
    outcomes, report = inline(RootWork(), [str(path)], most)
    outcome = outcomes[str(path)]
    assert outcome.result is None
    assert str(outcome.problem) == f"damaged: {problem}"
    assert outcome.kinds == {"log": 1}
    assert [(row["kind"], row["detail"]) for row in report] == [("log", f"damaged: {problem}")]


@pytest.mark.parametrize("number", [1, 2, 7, 1000])
def test_parts_tile_a_log(make_log: MakeLog, number: int) -> None:
    with opened_log(unopened(str(make_log(messages=500)))) as (storage, log):
        parts = parts_of(split_open(storage, log, number), 500)
    # A tree has fewer nodes than the last of these numbers.
    assert len(parts) == number or number == 1000
    assert [sequence for part in parts for sequence in range(part.first, part.last + 1)] == [*range(1, 501)]
    assert parts[0].start == b""
    assert [part.end for part in parts] == [*(part.start for part in parts[1:]), None]
