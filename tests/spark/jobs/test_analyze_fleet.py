"""Many logs in figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.spark.jobs.analyze_fleet import analyze_fleet, count_part, scores_of
from gossiplog.spark.source.fleet import KeyRange, look_at, split
from tests.spark.conftest import ADA, BEN
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
    assert (first.first, first.merges, first.topic) == (1, 0, "t0")
    assert first.score > 3.5
    with gossiplog.open(paths[0]) as log:
        assert first.bytes == sum(len(message.value) for message in log)
    assert (rows["1.db"].messages, rows["1.db"].damaged, rows["1.db"].authors) == (9, 2, 1)
    assert (rows["empty.db"].messages, rows["empty.db"].bytes) == (0, 0)
    assert Path(empty).name in names
    totals = result.totals
    assert (totals.logs, totals.problems, totals.messages, totals.damaged) == (9, 3, 510 + 9 + 13 + 14 + 15, 2)
    assert (totals.authors, totals.suspects) == (2, sum(row.score > 3.5 for row in result.logs))
    authors = {(Path(row["log"]).name, row.author): row.messages for row in result.authors.collect()}
    assert authors["0.db", BEN.did] == 500
    assert authors["0.db", ADA.did] == 10
    result.authors.unpersist()


@pytest.mark.parametrize("parts", [1, 3, 9])
def test_ranges_add_up(several: tuple[Path, list[int]], parts: int) -> None:
    """Of a message in several encodings the first one counts, wherever the others are."""
    path, first = several
    ranges = split(look_at(str(path)), parts)
    rows = [row for part in ranges for row in count_part(3, part).to_pylist()]
    assert sum(row["messages"] for row in rows) == len(first)
    assert {row["number"] for row in rows} == {3}


def test_a_log_that_cannot_be_read(make_log: MakeLog) -> None:
    path = make_log()
    (part,) = split(look_at(str(path)), 1)
    path.unlink()
    (row,) = count_part(0, part).to_pylist()
    assert (row["kind"], row["messages"]) == ("missing", None)


def test_an_empty_range(make_log: MakeLog) -> None:
    log = look_at(str(make_log()))
    assert count_part(0, KeyRange(log, b"\xff", None, 1)).num_rows == 0


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
