from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import NotALog, TopicMismatch
from gossiplog.log.remains import Remains, SoundValues, read_remains
from gossiplog.storage.sqlite.salvage import Salvage
from tests.damage import TOPIC, make_log


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    return path


@pytest.fixture
def base(intact: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    copy = shutil.copy(intact, tmp_path / "log.db")
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        yield connection


def read(base: sqlite3.Connection, topic: str | None = None, acknowledged: int = 0) -> Remains:
    return read_remains(base, Salvage(Path("log.db")), topic, acknowledged=acknowledged)


def keys(base: sqlite3.Connection) -> list[bytes]:
    return [key for (key,) in base.execute("SELECT key FROM gossiplog_leaves ORDER BY seq")]


def test_a_sound_log(base: sqlite3.Connection) -> None:
    order = keys(base)
    found = read(base)
    assert (found.topic, found.order, found.unknown, found.incomplete, found.tables) == (TOPIC, order, 0, False, False)
    assert dict(found.places) == {key: number for number, key in enumerate(order, 1)}
    assert set(found.rows) == set(order)
    assert len([*SoundValues(base, found.rows).all()]) == len(order)


def test_what_is_lost_is_known_by_its_leaf(base: sqlite3.Connection) -> None:
    order = keys(base)
    base.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 7")
    base.execute("DELETE FROM gossiplog_messages WHERE seq = 9")
    found = read(base)
    assert (found.order, found.unknown) == (order, 0)
    assert set(order) - set(found.rows) == {order[6], order[8]}
    assert SoundValues(base, found.rows).of([order[6]]) == {}


def test_what_has_no_leaf_either_is_counted(base: sqlite3.Connection) -> None:
    count = len(keys(base))
    for table in ("messages", "leaves"):
        base.execute(f"DELETE FROM gossiplog_{table} WHERE seq IN (7, {count})")
    assert read(base).unknown == 1
    assert read(base, acknowledged=count).unknown == 2


def test_a_sound_value_stands_where_its_leaf_says(base: sqlite3.Connection) -> None:
    order = keys(base)
    for number in (10**6, 7):
        base.execute("UPDATE gossiplog_messages SET seq = ? WHERE seq = ?", (10**9 - number, number))
    assert read(base).order == order


@pytest.mark.parametrize(("more", "believed"), [(0, True), (1, True), (2**40, False)])
def test_the_count_of_the_index_is_believed_up_to_what_the_file_holds(
    tmp_path: Path, more: int, believed: bool
) -> None:
    """Of the smallest messages: before, any number was believed."""
    path = tmp_path / "log.db"
    with gossiplog.open(path, "t", signer=Signer(bytes(32))) as log:
        log.append_many([0] * 500)
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("UPDATE gossiplog_meta SET value = value + ? WHERE name = 'indexed'", (more,))
        size = path.stat().st_size
        found = read_remains(base, Salvage(path, ["a page"], size=size), None, acknowledged=0)
    assert found.indexed == (500 + more if believed else 0)


@pytest.mark.parametrize("sequence", [410, 10**6])
def test_a_leaf_whose_key_is_damaged_is_known_by_its_hash(base: sqlite3.Connection, sequence: int) -> None:
    """Before, where the message had another sequence, too, messages before that were counted as lost."""
    order = keys(base)
    base.execute("UPDATE gossiplog_leaves SET key = CAST(substr(key, 1, 19) || x'ab' AS BLOB) WHERE seq = 200")
    base.execute("UPDATE gossiplog_messages SET seq = ? WHERE seq = 200", (sequence,))
    found = read(base)
    assert (found.order, found.unknown, len(found.rows)) == (order, 0, len(order))


def test_tables_and_views_of_others_are_noticed(base: sqlite3.Connection) -> None:
    base.execute("CREATE VIEW latest AS SELECT max(seq) FROM gossiplog_messages")
    assert read(base).tables


def test_the_topic(base: sqlite3.Connection) -> None:
    with pytest.raises(TopicMismatch, match="the source has the topic 'other'"):
        read(base, "other")
    base.execute("UPDATE gossiplog_meta SET value = 7 WHERE name = 'topic'")
    assert read(base).topic == TOPIC
    base.execute("DELETE FROM gossiplog_messages")
    assert read(base, TOPIC).topic == TOPIC
    with pytest.raises(NotALog, match="its topic is damaged"):
        read(base)
    base.execute("DROP TABLE gossiplog_meta")
    with pytest.raises(NotALog, match="nothing of a log is left"):
        read(base)


def test_a_message_in_two_rows_whose_place_another_has(base: sqlite3.Connection) -> None:
    """It was in no order before, and a repair dropped it."""
    order = keys(base)
    base.execute("INSERT INTO gossiplog_messages SELECT ?, links, value FROM gossiplog_messages WHERE seq = 2", (301,))
    base.execute("DELETE FROM gossiplog_leaves WHERE seq = 2")
    base.execute("UPDATE gossiplog_leaves SET seq = 2 WHERE seq = 3")
    found = read(base)
    assert set(found.order) == set(found.rows) == set(order)
    assert found.places[order[2]] == 2


def test_what_is_unsound_is_named_where_no_sound_message_stands(base: sqlite3.Connection) -> None:
    count = len(keys(base))
    base.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq IN (7, ?)", (count,))
    base.execute("INSERT INTO gossiplog_messages VALUES (?, x'00', x'00')", (2**40,))
    found = read(base)
    assert (found.last, set(found.unsound)) == (count, {7, count})
