"""Values from whichever replica has them whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gossiplog
from gossiplog.errors import StorageError
from gossiplog.spark.jobs.fetch_values import FetchTask, fetch_values
from gossiplog.spark.source.fleet import FoundLog
from gossiplog.spark.source.opening import look_at
from gossiplog.spark.source.problems import parse_problem
from tests.spark.shared import frame_of_rows

MakeLog = Callable[..., Path]


def lose(path: Path, *sequences: int) -> None:
    """Puts one and the same other value under the keys of messages."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for sequence in sequences:
            connection.execute("UPDATE gossiplog_messages SET value = x'80' WHERE seq = ?", (sequence,))


@pytest.fixture
def replicas(make_log: MakeLog) -> tuple[list[bytes], list[bytes], list[FoundLog]]:
    """The keys and values of ten messages, and two replicas with them: 2, 3 and 4 are damaged in the first, 4 in the
    other, and 5 is swapped in the first for a sound message with another key.
    """
    first, second = make_log("a.db", 10), make_log("b.db", 10)
    with gossiplog.open(first) as log:
        messages = list(log)
    lose(first, 2, 3, 4)
    lose(second, 4)
    with closing(sqlite3.connect(first)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = ? WHERE seq = 5", (messages[8].value,))
    keys, values = [message.key for message in messages], [message.value for message in messages]
    return keys, values, [look_at(str(path)) for path in (first, second)]


def test_the_next_holder_is_asked(
    spark: SparkSession, replicas: tuple[list[bytes], list[bytes], list[FoundLog]]
) -> None:
    keys, values, logs = replicas
    asked = frame_of_rows(spark, [(key, [0, 1]) for key in keys], "key binary, holders array<int>")
    rows = {bytes(row.key): row for row in fetch_values(asked, logs).collect()}
    assert rows.keys() == set(keys)
    for number, (key, value) in enumerate(zip(keys, values, strict=True), 1):
        row = rows[key]
        assert list(row.holders) == [0, 1]
        if number == 4:
            assert (row.value, row.clock, row.author, row.size) == (None, None, None, None)
            assert "not that message, in any replica" in row.error
        else:
            assert (bytes(row.value), row.clock, row.size, row.error) == (value, number, len(value), None)


# A task by itself


def gathered(asked: list[tuple[bytes, list[int]]], logs: list[FoundLog]) -> dict[bytes, dict[str, Any]]:
    """The rows of a task by key."""
    rows = task_rows(asked, logs)
    assert len(rows) == len(asked)
    return {row["key"]: row for row in rows}


def task_rows(asked: list[tuple[bytes, list[int]]], logs: list[FoundLog], **options: bool) -> list[dict[str, Any]]:
    keys = pa.array([key for key, _ in asked], pa.binary())
    holders = pa.array([numbers for _, numbers in asked], pa.list_(pa.int32()))
    batches = [pa.record_batch({"key": keys, "holders": holders})]
    return [row for batch in FetchTask(tuple(logs), **options)(batches) for row in batch.to_pylist()]


def test_only_holders_are_asked(replicas: tuple[list[bytes], list[bytes], list[FoundLog]]) -> None:
    keys, values, logs = replicas
    rows = gathered([(keys[0], [0]), (keys[1], [0]), (keys[2], [1])], logs)
    assert [rows[key]["value"] for key in keys[:3]] == [values[0], None, values[2]]


def test_a_value_is_read_from_one_holder_only(replicas: tuple[list[bytes], list[bytes], list[FoundLog]]) -> None:
    keys, values, logs = replicas
    # It fails where a key has two rows.
    rows = gathered([(key, [0, 1]) for key in keys], logs)
    assert [rows[key]["value"] for key in keys] == [*values[:3], None, *values[4:]]


@pytest.mark.parametrize("how", ["removed", "emptied", "truncated", "overwritten", "locked"])
def test_a_log_that_cannot_be_read_any_more(
    replicas: tuple[list[bytes], list[bytes], list[FoundLog]], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no damaged message: it goes by its problem, and another holder is asked."""
    monkeypatch.setattr("gossiplog.spark.source.locks.FLEET_LOCK_SECONDS", 0.01)
    keys, values, logs = replicas
    path = Path(logs[0].location)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        match how:
            case "removed":
                path.unlink()
            case "emptied":
                path.write_bytes(b"")
            case "truncated":
                path.write_bytes(path.read_bytes()[:5000])
            case "overwritten":
                path.write_bytes(b"no log" * 5000)
            case "locked":
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("BEGIN EXCLUSIVE")
        asked = [(keys[0], [0, 1]), (keys[5], [0])]
        rows = task_rows(asked, logs, passes_over_unreadable=True)
        if how != "locked":
            # For which a single comparison waits longer.
            with pytest.raises(StorageError):
                task_rows(asked, logs)
    assert [(row["key"], row["value"]) for row in rows[:2]] == [(keys[0], values[0]), (keys[5], None)]
    assert [(row["key"], row["holders"]) for row in rows[2:]] == [(None, [0])]
    kinds = {"removed": "missing", "emptied": "no log", "overwritten": "no log", "locked": "unreadable"}
    assert parse_problem(rows[2]["error"]).kind == kinds.get(how, "damaged"), rows[2]["error"]


@pytest.mark.slow
def test_long_values_come_in_pages(make_log: MakeLog) -> None:
    path = make_log("long.db", 0)
    with gossiplog.open(path) as log:
        messages = log.append_many(("x" * 2**20 for _ in range(9)), signer=gossiplog.Signer(bytes(32)))
    rows = gathered([(message.key, [0]) for message in messages], [replace(look_at(str(path)), count=9)])
    assert {row["value"] for row in rows.values()} == {message.value for message in messages}
