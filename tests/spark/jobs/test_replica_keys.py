"""Replicas as they are compared: looks at them, and their keys."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog
from gossiplog.spark.jobs.replica_keys import KeysPart, keys_of, keys_or_problem, look_at_replica, parts_of
from gossiplog.spark.source.opening import unopened

MakeLog = Callable[..., Path]


def part_of(path: Path, number: int = 0) -> KeysPart:
    (part,) = parts_of(number, look_at_replica(unopened(str(path))))
    return part


def test_what_arrives_meanwhile_is_passed_over(make_log: MakeLog) -> None:
    path = make_log(messages=30)
    part = part_of(path, 3)
    with gossiplog.open(path) as log:
        log.append_many(range(5), signer=Signer.generate())
    batches = list(keys_of(part))
    with gossiplog.open(path) as log:
        expected = sorted(message.key for message in log.messages() if message.clock <= 30)
    assert [key for batch in batches for key in batch["key"].to_pylist()] == expected
    assert {number for batch in batches for number in batch["replica"].to_pylist()} == {3}


def test_a_log_that_was_rebased_or_removed_meanwhile(make_log: MakeLog) -> None:
    path = make_log(messages=30)
    part = part_of(path)
    log = part.range.log
    assert log.mark is not None
    rebased = replace(part, range=replace(part.range, log=replace(log, mark=replace(log.mark, generation=7))))
    (row,) = [row for batch in keys_or_problem(rebased) for row in batch.to_pylist()]
    assert (row["key"], row["kind"]) == (None, "replaced")
    assert "was rebased while it was read" in row["problem"]
    os.unlink(path)
    (row,) = [row for batch in keys_or_problem(part) for row in batch.to_pylist()]
    assert (row["key"], row["kind"]) == (None, "missing")


def test_fewer_keys_than_messages_is_damage(make_log: MakeLog) -> None:
    """Its root follows from what its writers keep, and would be that of its replicas."""
    path = make_log(messages=30)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM gossiplog_leaves WHERE seq = 17")
    with pytest.raises(CorruptLog) as caught:
        part_of(path)
    # It is named once.
    assert caught.value.problems == (f"{path}: it has 29 keys and says that it has 30 messages",)


def test_heads_are_checked_by_those_who_read_their_range(make_log: MakeLog) -> None:
    path = make_log(messages=30)
    with closing(sqlite3.connect(path)) as database, database:
        (key,) = database.execute("SELECT key FROM gossiplog_leaves WHERE seq = 21").fetchone()
        database.execute("INSERT INTO gossiplog_heads VALUES (?, 3)", (key,))
    part = part_of(path)
    before, after = (
        replace(part, range=replace(part.range, start=start, end=end)) for start, end in ((b"", key), (key, None))
    )
    assert sum(len(batch) for batch in keys_of(before)) == 20
    with pytest.raises(CorruptLog, match="1 head is stored wrongly"):
        list(keys_of(after))
