"""Many logs in figures."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.spark.jobs import analyze_fleet as module
from gossiplog.spark.jobs.analyze_fleet import analysis_rows, analyze_fleet, scores_of, write_fleet_analysis
from gossiplog.spark.jobs.fleet_figures import LogFigures
from gossiplog.spark.source.fleet import FoundLog
from gossiplog.spark.source.opening import look_at, split, unopened
from gossiplog.spark.source.problems import Problem
from tests.spark.conftest import ADA, BEN, TOPIC
from tests.spark.damage import lose_entry
from tests.spark.jobs.test_fetch_values import lose
from tests.storage.damage import damage

MakeLog = Callable[..., Path]


def test_each_log_and_all_together(spark: SparkSession, make_log: MakeLog, tmp_path: Path) -> None:
    paths = [
        make_log(f"{number}.db", 10 + number, author=1 + number % 2, topic=f"t{number % 2}") for number in range(6)
    ]
    with gossiplog.open(paths[0]) as log:
        log.append_many(range(500), signer=BEN)
    lose(paths[1], 3, 4)
    damage(paths[2], "gossiplog_leaves")
    empty = make_log("empty.db", 0)
    (tmp_path / "notes.db").write_text("no log")
    result = analyze_fleet(spark, str(tmp_path), str(tmp_path / "gone.db"))
    names = [Path(row.log).name for row in result.logs]
    assert names[:5] == ["2.db", "gone.db", "notes.db", "1.db", "0.db"]
    rows = dict(zip(names, result.logs, strict=True))
    assert {name: row.problem.kind for name, row in rows.items() if row.problem is not None} == {
        "2.db": "damaged",
        "gone.db": "missing",
        "notes.db": "no log",
    }
    first = rows["0.db"]
    assert (first.messages, first.authors, first.largest_author, first.longest_chain) == (510, 2, 500, 510)
    assert (first.first, first.heads, first.merges, first.topic) == (1, 1, 0, "t0")
    assert first.score > 3.5
    with gossiplog.open(paths[0]) as log:
        assert first.bytes == sum(len(message.value) for message in log)
    assert (rows["1.db"].messages, rows["1.db"].damaged, rows["1.db"].authors) == (9, 2, 1)
    assert (rows["empty.db"].messages, rows["empty.db"].bytes) == (0, 0)
    assert Path(empty).name in names
    totals = result.totals
    assert (totals.logs, totals.problems, totals.messages, totals.damaged) == (9, 3, 510 + 9 + 13 + 14 + 15, 2)
    assert (totals.authors, totals.suspects) == (2, sum(row.score > 3.5 for row in result.logs))
    authors = {(Path(row["log"]).name, row.author): row.messages for row in result.frames["authors"].collect()}
    assert authors["0.db", BEN.did] == 500
    assert authors["0.db", ADA.did] == 10
    assert [Path(log).name for log in result.details] == [
        Path(row.log).name for row in result.logs if row.remarks and row.problem is None
    ]
    assert result.details[str(paths[0])].totals.messages == 510
    folder = tmp_path / "report"
    write_fleet_analysis(result, str(folder), "hubs")
    assert {path.name for path in folder.iterdir()} == {"report.html", "analysis.json", *result.frames}
    assert json.loads((folder / "analysis.json").read_text())["logs"][0]["log"] == str(paths[2])
    assert str(paths[0]) in (folder / "report.html").read_text()
    result.unpersist()


def test_large_logs_are_analysed_on_all_cores(
    spark: SparkSession, several: tuple[Path, list[int]], make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And come to the same as in a task."""
    paths = [str(several[0]), str(make_log("plain.db", 70)), str(make_log("forked.db", 3))]
    with gossiplog.open(paths[2]) as one, gossiplog.open(make_log("other.db", 0)) as two:
        two.pull(one)
        # The same payload would be the same message.
        one.append_many(["a", "b"], signer=ADA)
        two.append_many(["x", "y"], signer=ADA)
        one.pull(two)
    expected = analyze_fleet(spark, *paths)
    assert {row.log: row.forked for row in expected.logs} == {paths[0]: 0, paths[1]: 0, paths[2]: 1}
    monkeypatch.setattr(module, "analysis_rows", _large)
    found = analyze_fleet(spark, *paths)
    assert (found.logs, found.totals) == (expected.logs, expected.totals)
    assert found.details.keys() == expected.details.keys() == {paths[0], paths[2]}
    for name in found.frames:
        one, other = (sorted(map(tuple, each.frames[name].collect()), key=str) for each in (found, expected))
        assert one == other
    for result in (found, expected):
        result.unpersist()


def test_a_large_log_that_has_lost_a_message_is_damaged(
    spark: SparkSession, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sound = make_log("lost.db"), make_log("sound.db")
    # The last one, whose sequence is known by its row alone.
    lose_entry(path, 10)
    monkeypatch.setattr(module, "analysis_rows", _large)
    result = analyze_fleet(spark, str(path), str(sound))
    problem = Problem("damaged", "it has 9 keys and says that it has 10 messages")
    assert [(row.log, row.problem) for row in result.logs] == [(str(path), problem), (str(sound), None)]
    result.unpersist()


def _large(log: FoundLog) -> Iterator[pa.RecordBatch]:
    """What a task says of a log that is too large for it."""
    seen = replace(look_at(log.location), name=log.name)
    yield from module._rows(log.name, "large", [{"content": pickle.dumps((seen, split(seen, 2)))}])


# Without Spark


def test_a_task_leaves_large_logs_alone(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE_MESSAGES", 9)
    (row,) = [row for batch in analysis_rows(unopened(str(make_log()))) for row in batch.to_pylist()]
    assert row["kind"] == "large"
    log, (part,) = pickle.loads(row["content"])
    assert (log.topic, part.log, part.start, part.end) == (TOPIC, log, b"", None)


def test_a_log_that_cannot_be_read_is_its_problem_alone(make_log: MakeLog) -> None:
    path = make_log()
    found = unopened(str(path))
    path.unlink()
    (row,) = [row for batch in analysis_rows(found) for row in batch.to_pylist()]
    assert row["kind"] == "problem"
    assert pickle.loads(row["content"]).kind == "missing"


@pytest.mark.parametrize("lost", [4, 10])
def test_a_log_that_has_lost_a_message_is_damaged(make_log: MakeLog, lost: int) -> None:
    """All that is left is sound, and would look like the log of which it is a part."""
    path = make_log()
    lose_entry(path, lost)
    (row,) = [row for batch in analysis_rows(unopened(str(path))) for row in batch.to_pylist()]
    assert row["kind"] == "problem"
    assert pickle.loads(row["content"]) == Problem("damaged", "it has 9 keys and says that it has 10 messages")


def test_the_worst_first() -> None:
    rows = [
        LogFigures("usual", "t", messages=10, bytes=100),
        LogFigures("other", "t", messages=11, bytes=110),
        LogFigures("reencoded", "t", messages=10, bytes=100, reencoded=1, not_canonical=2),
        LogFigures("forked", "u", messages=10, bytes=100, forked=1),
        LogFigures("damaged", "u", messages=10, bytes=100, damaged=1),
        LogFigures("huge", "u", messages=10**6, bytes=10**8),
    ]
    logs, totals = module._compared(rows, {"gone": Problem("missing", "there is no log gone")}, 3)
    assert [row.log for row in logs] == ["gone", "damaged", "forked", "reencoded", "huge", "other", "usual"]
    assert [bool(row.remarks) for row in logs] == [True] * 5 + [False] * 2
    assert (totals.logs, totals.conspicuous, totals.problems, totals.topics) == (7, 5, 1, 2)
    assert (totals.damaged, totals.forked, totals.reencoded, totals.suspects) == (1, 1, 1, 1)


def test_scores() -> None:
    assert scores_of([]) == []
    assert scores_of([7, 7, 7]) == [None] * 3
    found = scores_of([10, 10, 10, 10, 10, 10, 1000])
    assert found[0] == 0
    # The median distance is 0: the mean one is a seventh of the one.
    assert found[6] == pytest.approx(7 / 1.253314)
    found = scores_of([1, 2, 4, 8, 16])
    assert found[4] == pytest.approx(0.6745 * 2)
    # An empty log is as usual as one with a single message.
    assert scores_of([0, 1, 2]) == scores_of([1, 1, 2])
