"""What logs say of themselves, also where they are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import gossiplog
from gossiplog import core
from gossiplog.log.state import INDEX_LAG
from gossiplog.spark import LogMetadata, log_metadata
from gossiplog.spark.jobs.log_metadata import log_figures
from gossiplog.spark.source.opening import opened
from gossiplog.storage.sqlite.tables import SQLiteReader
from tests.spark.conftest import TOPIC
from tests.spark.damage import change, entries
from tests.spark.histories import braided, insert

MakeLog = Callable[..., Path]


def said(path: Path) -> LogMetadata:
    """What a log says of itself through its own interface."""
    with gossiplog.open(path) as log:
        return LogMetadata(TOPIC, len(log), log.root, tuple(sorted(map(core.decode_id, log.heads))))


@pytest.mark.parametrize("messages", [0, 1, 40, pytest.param(INDEX_LAG + 40, marks=pytest.mark.slow)])
def test_as_the_log_itself(tmp_path: Path, messages: int) -> None:
    path = tmp_path / "log.db"
    gossiplog.open(path, TOPIC).close()
    insert(path, TOPIC, braided(1, messages, TOPIC))
    # How far the index goes, the log's own interface does not say.
    assert replace(log_metadata(str(path)), indexed=0) == said(path)


@pytest.mark.parametrize("messages", [40, pytest.param(INDEX_LAG + 40, marks=pytest.mark.slow)])
def test_damaged_messages_keep_their_places(tmp_path: Path, messages: int) -> None:
    path = tmp_path / "log.db"
    insert(path, TOPIC, braided(2, messages, TOPIC))
    whole = said(path)
    assert whole.heads is not None
    last = whole.heads[-1]
    parents = {core.decode_id(parent) for parent in core.read_message(entries(path)[last], TOPIC).parents}
    change(path, {last: b"broken"})
    found = log_metadata(str(path))
    # The leaf of what is damaged still says what it was.
    assert (found.count, found.root, found.problem) == (whole.count, whole.root, None)
    assert found.heads is not None
    assert last in found.heads
    assert set(whole.heads) <= set(found.heads) <= set(whole.heads) | parents


def test_figures_are_read_without_a_look_at_each_row(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(make_log(messages=40))
    whole = log_metadata(path)
    for name in ("strays", "heads", "scan"):
        monkeypatch.delattr(SQLiteReader, name)
    with opened(path) as (storage, topic):
        assert log_figures(storage, topic) == replace(whole, heads=())


def test_the_value_of_another_message(make_log: MakeLog) -> None:
    path = make_log(messages=40)
    whole = said(path)
    found = entries(path)
    keys = sorted(found)
    change(path, {keys[30]: found[keys[20]]})
    assert log_metadata(str(path)).root == whole.root


def test_a_message_that_is_lost(make_log: MakeLog) -> None:
    path = make_log(messages=40)
    whole = said(path)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM gossiplog_messages WHERE seq = 30")
    database.close()
    assert log_metadata(str(path)).root == whole.root


def test_heads_that_are_no_messages_are_a_problem(make_log: MakeLog) -> None:
    path = make_log(messages=INDEX_LAG + 40)
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO gossiplog_heads VALUES (?, 3)", (bytes(20),))
    database.close()
    found = log_metadata(str(path))
    assert (found.count, found.root, found.heads) == (INDEX_LAG + 40, None, None)
    assert "1 head is stored wrongly: the index covers no such message" in str(found.problem)
