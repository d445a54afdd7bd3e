"""Messages between two arrival sequences."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.spark import SCHEMA, worker_errors
from gossiplog.spark.source import changes as module
from gossiplog.spark.source.changes import changes

MakeLog = Callable[..., Path]


def sequences(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


def test_every_cut_of_a_log(spark: SparkSession, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST", 8)
    path = str(make_log(messages=40))
    for after, last in itertools.combinations((0, 1, 17, 39, 40), 2):
        frame = changes(spark, path, after, last)
        assert frame.schema == SCHEMA
        assert sequences(frame) == list(range(after + 1, last + 1))
    assert changes(spark, path, 0, 40).rdd.getNumPartitions() == 2
    assert sequences(changes(spark, path, 40, 40)) == []


def test_later_messages_are_passed_over(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=10)
    frame = changes(spark, str(path), 4, 10)
    before = frame.sort("seq").collect()
    with gossiplog.open(path) as log:
        log.append("later", signer=Signer(b"\7" * 32))
        ids = [message.id for message in log.messages()]
    assert frame.sort("seq").collect() == before
    assert [row.id for row in before] == ids[4:10]


def test_damage_and_no_log(spark: SparkSession, make_log: MakeLog) -> None:
    path = make_log(messages=10)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    database.close()
    assert sequences(changes(spark, str(path), 7, 10)) == [8, 9, 10]
    with pytest.raises(CorruptLog), worker_errors():
        changes(spark, str(path), 0, 10).collect()
    with pytest.raises(StorageError):
        changes(spark, str(path.with_name("none.db")), 0, 10)
