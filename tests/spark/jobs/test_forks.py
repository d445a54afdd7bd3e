"""Authors that forked, found by tasks, as `Log.verify` finds them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import gossiplog
from gossiplog import SignedMessage, core
from gossiplog.log.results import Fork
from gossiplog.spark import COLUMNS, analyze, read
from gossiplog.spark.jobs import analyze as analysis
from gossiplog.spark.jobs import forks
from tests.spark.conftest import ADA, BEN, EVE, TOPIC
from tests.spark.histories import braided, insert, shuffled, with_alternatives


def verified(path: Path) -> tuple[Fork, ...]:
    with gossiplog.open(path, read_only=True) as log:
        return log.verify().forks


def forked(frame: DataFrame) -> tuple[Fork, ...]:
    rows = frame.orderBy("author").collect()
    return tuple(Fork(row.author, row.messages, tuple(row.first)) for row in rows)


def test_a_task_looks_at_sequences_that_are_near(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have ancestors in common, whose link records it reads once."""

    def seen(_: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sequences = batch.column("seq").to_pylist()
            named = pa.array([",".join(map(str, sequences))] * len(sequences))
            yield pa.RecordBatch.from_arrays([named, *map(batch.column, ("seq", "first"))], ["author", "seq", "first"])

    monkeypatch.setattr(forks, "concurrent_rows", seen)
    monkeypatch.setattr(forks, "_NEAR", 16)
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, synchronous="off") as log:
        log.insert_many([ADA.sign(TOPIC, 1, [], number)[1] for number in range(200)])
    none = spark.createDataFrame([], "content_id string, seq bigint")
    messages = read(spark, str(path), columns="seq,id,author,content_id,parents")
    # Spark would make one partition of so few rows.
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        rows = forks.forked_authors(messages, none, str(path)).collect()
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    found = [list(map(int, row.author.split(","))) for row in rows]
    assert all(sequences == sorted(sequences) for sequences in found)
    chunks = [{sequence // 16 for sequence in sequences} for sequences in found]
    assert sum(map(len, chunks)) == len(set[int]().union(*chunks)) == 13


def test_forks_are_those_that_verify_finds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a log of a chain, of roots and what follows some, and of a braid with encodings that arrived in any order."""
    chain, crowd, braid = (tmp_path / f"{name}.db" for name in ("chain", "crowd", "braid"))
    with gossiplog.open(chain, TOPIC, signer=ADA, synchronous="off") as log:
        log.append_many(range(3))
        log.append("beside", signer=BEN)
        log.append(4)
    roots = [ADA.sign(TOPIC, 1, [], number) for number in range(40)]
    ids = sorted(core.encode_id(key) for key, _ in roots)
    after = [signer.sign(TOPIC, 2, ids[n : n + 8], n)[1] for n in range(32) for signer in (BEN, EVE)]
    with gossiplog.open(crowd, TOPIC, synchronous="off") as log:
        log.insert_many([value for _, value in roots])
        log.insert_many(after)
    # A second machine of two of the authors, which sees nothing of the first.
    twice = [*braided(1, 60, TOPIC), *braided(2, 20, TOPIC, authors=2)]
    insert(braid, TOPIC, shuffled(5, with_alternatives(5, twice)))
    none = spark.createDataFrame([], "content_id string, seq bigint")
    for path, number in ((chain, 0), (crowd, 3)):
        messages = read(spark, str(path), columns="seq,id,author,content_id,parents")
        found = forked(forks.forked_authors(messages, none, str(path)))
        assert found == verified(path)
        assert len(found) == number
    columns = ",".join(name for name in COLUMNS if name != "payload")
    expected = verified(braid)
    assert len(expected) >= 2
    monkeypatch.setattr(analysis, "TOP", 1)
    found = analyze(read(spark, str(braid), columns=columns), location=str(braid))
    assert forked(found.frames["forks"]) == expected
    assert found.totals.forked == len(expected)
    assert found.forks == (min(expected, key=lambda fork: (-fork.messages, fork.author)),)
    # What comes after damage is not looked at.
    with closing(sqlite3.connect(braid)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 2")
    assert analyze(read(spark, str(braid), columns=columns), location=str(braid)).forks == ()


def pairs(messages: list[SignedMessage]) -> pa.RecordBatch:
    """Each message but the first with the one before, by their sequences."""
    sequences = range(2, len(messages) + 1)
    return pa.RecordBatch.from_pydict(
        {
            "author": [messages[sequence - 1].author for sequence in sequences],
            "seq": [*sequences],
            "first": [[messages[sequence - 2].id, messages[sequence - 1].id] for sequence in sequences],
            "before": [[sequence - 1] for sequence in sequences],
        }
    )


def concurrent(path: Path, batch: pa.RecordBatch) -> list[int]:
    return [row for found in forks.concurrent_rows(str(path), [batch]) for row in found["seq"].to_pylist()]


@pytest.mark.parametrize("most_records", [2**17, 1])
def test_a_task_names_messages_that_do_not_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_records: int
) -> None:
    monkeypatch.setattr(forks, "_MOST_RECORDS", most_records)
    path = tmp_path / "log.db"
    messages = shuffled(7, braided(7, 80, TOPIC))
    insert(path, TOPIC, messages)
    with gossiplog.open(path, read_only=True) as log:
        expected = [
            sequence
            for sequence, (before, message) in enumerate(pairwise(messages), 2)
            if not log.is_ancestor(before.id, message.id)
        ]
    assert 10 < len(expected) < 79
    assert concurrent(path, pairs(messages)) == expected


def test_what_damage_hides_is_no_fork(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    roots = [core.read_message(ADA.sign(TOPIC, 1, [], number)[1], TOPIC) for number in range(4)]
    insert(path, TOPIC, roots)
    assert concurrent(path, pairs(roots)) == [2, 3, 4]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET links = x'' WHERE seq = 3")
    assert concurrent(path, pairs(roots)) == [2]
