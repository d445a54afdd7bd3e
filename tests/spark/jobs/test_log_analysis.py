"""The analysis of one log in one process, held against that by Spark and against `Log.verify`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import gossiplog
from gossiplog import Signer
from gossiplog.spark import COLUMNS, analyze, read
from gossiplog.spark.jobs.log_analysis import LogAnalysis, analyze_log, modified_scores
from gossiplog.spark.source.opening import opened_log, unopened
from tests.spark.conftest import ADA, BEN, TOPIC
from tests.spark.histories import braided, insert, shuffled, with_alternatives
from tests.spark.jobs.test_fetch_values import lose
from tests.strategies import repeatable

MakeLog = Callable[..., Path]


def analysed(path: Path) -> LogAnalysis:
    with opened_log(unopened(str(path))) as (storage, log):
        return analyze_log(storage, log)


@pytest.mark.slow
@repeatable(25)
@given(seed=st.integers(0, 10**6), messages=st.integers(0, 60), authors=st.integers(1, 5), again=st.booleans())
def test_forks_heads_and_encodings_are_those_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int, messages: int, authors: int, again: bool
) -> None:
    history = braided(seed, messages, TOPIC, authors)
    path = tmp_path_factory.mktemp("log") / "log.db"
    gossiplog.open(path, TOPIC, synchronous="off").close()
    insert(path, TOPIC, shuffled(seed, with_alternatives(seed, history) if again else history))
    found = analysed(path)
    totals = found.result.totals
    with gossiplog.open(path, read_only=True) as log:
        assert found.forks == tuple(log.verify().forks)
        stored = [*log]
    first = {message.content_id: message for message in stored}
    assert (totals.messages, totals.damaged, totals.authors) == (len(first), 0, len({each.author for each in stored}))
    assert totals.not_canonical == sum(not message.canonical for message in stored)
    contents = {message.id: message.content_id for message in stored}
    children: dict[str, set[str]] = {content: set() for content in first}
    for message in first.values():
        for parent in message.parents:
            children[contents.get(parent, parent)].add(message.content_id)
    assert totals.heads == sum(not named for named in children.values())
    assert totals.branches == sum(len(named) > 1 for named in children.values())
    assert sum(each.messages for each in found.result.ranges) == totals.messages
    assert sum(found.authors["messages"].to_pylist()) == totals.messages


@pytest.mark.parametrize("kind", ["several", "damaged", "forked"])
def test_it_is_what_spark_finds(
    spark: SparkSession, several: tuple[Path, list[int]], make_log: MakeLog, kind: str
) -> None:
    path = several[0]
    match kind:
        case "damaged":
            lose(path, 30, 31)
        case "forked":
            path, other = make_log(messages=120), make_log("other.db", 0)
            with gossiplog.open(path) as one, gossiplog.open(other) as two:
                two.pull(one)
                # The same payload would be the same message.
                one.append_many(["a", "b", "c"], signer=ADA)
                two.append_many(["x", "y", "z"], signer=ADA)
                two.append("apart", signer=BEN)
                one.pull(two)
    expected = analyze(read(spark, str(path), columns=",".join(COLUMNS)), location=str(path))
    found = analysed(path)
    result = found.result
    assert result.totals == expected.totals
    assert (result.ranges, result.widths) == (expected.ranges, expected.widths)
    assert (result.alternative_encodings, result.forks) == (expected.alternative_encodings, expected.forks)
    for own, others in ((result.authors, expected.authors), (result.suspects, expected.suspects)):
        assert [each.author for each in own] == [each.author for each in others]
        for one, other in zip(own, others, strict=True):
            assert one.messages_ratio == pytest.approx(other.messages_ratio)
            assert one.bytes_score == pytest.approx(other.bytes_score)
    assert (kind == "forked") == bool(result.forks)
    authors = {row.author: row.messages for row in expected.frames["authors"].collect()}
    assert dict(zip(found.authors["author"].to_pylist(), found.authors["messages"].to_pylist(), strict=True)) == authors
    encodings = {(row.id, row.number) for row in expected.frames["alternative_encodings"].collect()}
    assert {(row["id"], row["number"]) for row in found.encodings.to_pylist()} == encodings


def test_an_empty_log(make_log: MakeLog) -> None:
    found = analysed(make_log(messages=0))
    assert (found.result.totals.messages, found.result.ranges, found.forks) == (0, (), ())


def test_authors_that_stand_out(make_log: MakeLog) -> None:
    path = make_log(messages=0)
    with gossiplog.open(path) as log:
        for number in range(30):
            log.append_many(range(20 + number % 9), signer=Signer(bytes([number + 101]) * 32))
        log.append_many(range(300), signer=BEN)
    (suspect,) = analysed(path).result.suspects
    assert suspect.author == BEN.did


def test_scores() -> None:
    assert modified_scores(np.array([])) == []
    assert modified_scores(np.zeros(3)) == [None] * 3
    # The median distance is 0: the mean one is a third of the one.
    assert modified_scores(np.array([0.0, 0.0, 3.0]))[2] == pytest.approx(3 / 1.253314)
    assert modified_scores(np.array([-1.0, 0.0, 2.0]))[2] == pytest.approx(0.6745 * 2)
