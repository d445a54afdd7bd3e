"""Database files that a stranger made: nothing in them is executed, and what is wrong has a name."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import gossiplog
from gossiplog import CorruptLog, Log, Signer
from gossiplog.spark.jobs.log_metadata import log_metadata
from gossiplog.storage.sqlite import storage as sqlite_storage
from gossiplog.storage.sqlite.storage import SQLiteStorage

TOPIC = "org.example.test"
ROOTS = [Signer(bytes(32)).sign(TOPIC, 1, [], number)[1] for number in range(20)]
# What never ends, if it is executed.
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with gossiplog.open(folder / "log.db", TOPIC) as log:
        log.append_many(range(300), signer=Signer(bytes(32)))
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "log"), "log.db")


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql)


def in_place_of(table: str, statement: str) -> str:
    return f"ALTER TABLE {table} RENAME TO kept; {statement}"


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        (
            in_place_of("gossiplog_messages", "CREATE VIEW gossiplog_messages AS SELECT * FROM kept"),
            "view gossiplog_messages",
        ),
        (
            in_place_of(
                "gossiplog_messages",
                f"CREATE VIEW gossiplog_messages AS {FOREVER} SELECT i AS seq, x'' AS links, x'' AS value FROM n",
            ),
            "view gossiplog_messages",
        ),
        (
            in_place_of(
                "gossiplog_meta",
                f"CREATE VIEW gossiplog_meta AS {FOREVER} SELECT 'schema' AS name, i AS value FROM n",
            ),
            "view gossiplog_meta",
        ),
        (
            in_place_of(
                "gossiplog_leaves",
                "CREATE TABLE gossiplog_leaves(key BLOB PRIMARY KEY, hash BLOB AS (zeroblob(900000000)), seq INTEGER)",
            ),
            "table gossiplog_leaves",
        ),
        (
            in_place_of("gossiplog_tree", "CREATE VIRTUAL TABLE gossiplog_tree USING fts5(key, hash)"),
            "table gossiplog_tree",
        ),
        (
            "CREATE TRIGGER mine AFTER INSERT ON gossiplog_messages BEGIN DELETE FROM gossiplog_leaves; END",
            "trigger mine",
        ),
        ("CREATE INDEX mine ON gossiplog_messages(hex(value))", "index mine"),
        ("CREATE TABLE gossiplog_more(a)", "table gossiplog_more"),
        ("DROP TABLE gossiplog_heads", "table gossiplog_heads"),
        ("DROP INDEX gossiplog_contents", "index gossiplog_contents"),
    ],
)
def test_anything_but_the_tables_of_a_log_is_refused(path: Path, sql: str, named: str) -> None:
    change(path, sql)
    with pytest.raises(CorruptLog, match=named):
        gossiplog.open(path)
    with pytest.raises(CorruptLog, match=named):
        gossiplog.open(f"file:{path}?mode=ro")
    with pytest.raises(CorruptLog, match=named):
        log_metadata(str(path))


def test_what_an_application_has_in_its_database_stays(path: Path) -> None:
    change(
        path,
        "CREATE TABLE notes(id TEXT PRIMARY KEY, n INTEGER); CREATE INDEX notes_n ON notes(n);"
        "CREATE VIEW latest AS SELECT max(seq) AS seq FROM gossiplog_messages;"
        "CREATE TRIGGER counted AFTER INSERT ON notes BEGIN UPDATE notes SET n = n + 1 WHERE id = new.id; END",
    )
    with gossiplog.open(path) as log:
        assert len(log) == 300


def test_a_huge_value_is_not_read(path: Path, opened: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_storage, "_MOST_BYTES", 2**20)
    change(path, "UPDATE gossiplog_messages SET value = zeroblob(2 << 20) WHERE seq = 7")
    log = opened(path, TOPIC)
    with pytest.raises(CorruptLog, match="too big"):
        list(log)


def test_a_huge_setting_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_storage, "_MOST_BYTES", 2**20)
    change(path, "UPDATE gossiplog_meta SET value = zeroblob(2 << 20) WHERE name = 'topic'")
    with pytest.raises(CorruptLog, match="too big"):
        gossiplog.open(path)


def test_an_application_may_have_larger_values(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_storage, "_MOST_BYTES", 2**20)
    storage = SQLiteStorage(path)
    storage.open(None, False)
    with closing(storage), storage.transaction() as transaction:
        assert transaction.execute("SELECT length(zeroblob(2 << 20))").fetchone() == (2 << 20,)


def test_connections_do_not_trust_the_file(path: Path) -> None:
    storage = SQLiteStorage(path)
    storage.open(None, False)
    with closing(storage), storage._reading() as reader:
        for connection in (reader, storage._open_writer()):
            assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
            assert connection.execute("PRAGMA cell_size_check").fetchone() == (1,)
        assert reader.execute("PRAGMA query_only").fetchone() == (1,)


@pytest.mark.parametrize("value", ["'text'", "7", "1.5", "x''", "zeroblob(3)", "hex({column})"])
@pytest.mark.parametrize(
    "place",
    [
        *("leaves.key", "leaves.hash", "leaves.seq", "heads.key", "heads.seq", "tree.key", "tree.hash"),
        *("messages.links", "messages.value"),
    ],
)
def test_values_of_other_types_are_damage(path: Path, place: str, value: str) -> None:
    table, column = place.split(".")
    # In every row that can have it: the keys differ still.
    change(path, f"UPDATE OR IGNORE gossiplog_{table} SET {column} = {value.format(column=column)}")
    try:
        with gossiplog.open(path) as log:
            reads: list[Callable[[], object]] = [
                lambda: list(log),
                lambda: log.heads,
                lambda: log.root,
                lambda: log.get("0" * 32),
                lambda: log.insert_many(ROOTS),
                lambda: log.append("more", signer=Signer(bytes(32))),
                log.verify,
            ]
            for read in reads:
                with suppress(gossiplog.StorageError, gossiplog.UnknownMessage):
                    read()
    except CorruptLog:
        pass
    with suppress(CorruptLog):
        log_metadata(str(path))
