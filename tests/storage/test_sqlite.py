from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gossiplog import NewerSchema, NotALog, SQLiteStorage, StorageError
from gossiplog.storage.base import Transaction
from gossiplog.storage.sqlite_tables import SQLiteTransaction


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def storage(path: Path) -> Any:
    storage = SQLiteStorage(path)
    storage.open("topic", True)
    yield storage
    storage.close()


def test_the_file_is_in_wal_mode_and_waits_for_the_disk(storage: SQLiteStorage, path: Path) -> None:
    with storage.transaction() as transaction:
        assert transaction.execute("PRAGMA synchronous").fetchone() == (2,)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_synchronous_is_checked() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        SQLiteStorage(":memory:", synchronous="fully")  # type: ignore[arg-type]


def test_a_missing_file_is_not_made_without_a_topic(path: Path) -> None:
    with pytest.raises(NotALog, match="there is no log"):
        SQLiteStorage(path).open(None, True)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"no database" * 100, b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_another_file_is_not_a_log(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"log\.db"):
        SQLiteStorage(path).open("topic", True)
    assert path.read_bytes() == content


def test_another_database_is_not_a_log_and_stays_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    with pytest.raises(NotALog, match="without a log"):
        SQLiteStorage(path).open("topic", True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("schema", ["none", "'one'"])
def test_meta_of_something_else_is_not_a_log(storage: SQLiteStorage, path: Path, schema: str) -> None:
    storage.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_meta WHERE name = 'schema'")
        if schema != "none":
            connection.execute(f"INSERT INTO gossiplog_meta VALUES ('schema', {schema})")
    with pytest.raises(NotALog, match="gossiplog_meta"):
        SQLiteStorage(path).open(None, False)


def test_a_newer_schema_is_refused(storage: SQLiteStorage, path: Path) -> None:
    storage.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 99 WHERE name = 'schema'")
    with pytest.raises(NewerSchema, match="schema 99, this one reads up to 1"):
        SQLiteStorage(path).open(None, False)


def test_an_empty_database_that_a_crash_left_becomes_a_log(path: Path) -> None:
    path.touch()
    with pytest.raises(NotALog, match="holds no log"):
        SQLiteStorage(path).open(None, True)
    storage = SQLiteStorage(path)
    assert storage.open("topic", True) == "topic"
    storage.close()


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "END",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT a",
        "RELEASE gossiplog_apply",
        "ROLLBACK TO gossiplog_apply",
        "ATTACH ':memory:' AS a",
        "PRAGMA journal_mode = DELETE",
        "DELETE FROM gossiplog_messages",
        "INSERT INTO GossipLog_Heads VALUES (x'00')",
        "UPDATE gossiplog_meta SET value = 1",
        "DROP TABLE gossiplog_children",
        "ALTER TABLE gossiplog_tree RENAME TO mine",
    ],
)
def test_statements_that_would_break_the_log_are_refused_within_apply(storage: SQLiteStorage, sql: str) -> None:
    with storage.transaction() as transaction:
        transaction.set_applied(5)
        with pytest.raises(StorageError, match="must not"), transaction.savepoint():
            transaction.execute(sql)
    with storage.reader() as reader:
        assert reader.position().applied == 5


def test_statements_of_an_application_pass(storage: SQLiteStorage) -> None:
    with storage.transaction() as transaction, transaction.savepoint():
        transaction.execute("CREATE TABLE mine (a)")
        transaction.execute("INSERT INTO mine VALUES (?), (:b)", (1, 2))
        transaction.execute("ALTER TABLE mine ADD COLUMN c")
        assert transaction.execute("SELECT count(*) FROM gossiplog_messages").fetchone() == (0,)
        assert len(transaction.execute("PRAGMA table_info(mine)").fetchall()) == 2


def test_errors_of_an_application_are_the_drivers_own(storage: SQLiteStorage) -> None:
    with storage.transaction() as transaction:
        with pytest.raises(sqlite3.OperationalError, match="no such table"), transaction.savepoint():
            transaction.execute("SELECT * FROM nowhere")
        transaction.set_applied(1)
    with storage.reader() as reader:
        assert reader.position().applied == 1


def test_a_savepoint_that_raises_is_undone(storage: SQLiteStorage) -> None:
    def fail(transaction: Transaction) -> None:
        with transaction.savepoint():
            transaction.execute("CREATE TABLE mine (a)")
            raise ZeroDivisionError

    with storage.transaction() as transaction:
        with pytest.raises(ZeroDivisionError):
            fail(transaction)
        with transaction.savepoint():
            transaction.execute("CREATE TABLE mine (b)")


def test_a_transaction_that_has_ended_executes_nothing(storage: SQLiteStorage) -> None:
    with storage.transaction() as transaction:
        pass
    with pytest.raises(StorageError, match="has ended"):
        transaction.execute("SELECT 1")


def test_a_full_database_is_a_clear_error_and_leaves_the_log_usable(storage: SQLiteStorage) -> None:
    def fill() -> None:
        with storage.transaction() as transaction:
            pages = transaction.execute("PRAGMA page_count").fetchone()[0]
            transaction.execute(f"PRAGMA max_page_count = {pages + 2}")
            with transaction.savepoint():
                transaction.execute("CREATE TABLE mine (a)")
                transaction.execute("INSERT INTO mine VALUES (randomblob(100000))")

    with pytest.raises(StorageError, match="the disk is full"):
        fill()
    with storage.transaction() as transaction:
        transaction.execute("PRAGMA max_page_count = 1000000")
        transaction.execute("CREATE TABLE mine (a)")


def test_readers_see_a_state_of_before_while_a_transaction_is_open(storage: SQLiteStorage) -> None:
    with storage.transaction() as transaction:
        transaction.set_applied(3)
        with storage.reader() as reader:
            assert reader.position().applied == 0
    with storage.reader() as reader:
        assert reader.position().applied == 3


def test_a_lock_that_another_process_holds_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.storage.sqlite._PATIENCE", 0.01)
    storage = SQLiteStorage(path)
    storage.open("topic", True)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="did not release its lock"), storage.transaction():
            pass
        other.execute("ROLLBACK")
    with storage.transaction() as transaction:
        assert isinstance(transaction, SQLiteTransaction)
    storage.close()


def test_a_forked_process_is_told_to_open_the_log_again(
    storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(StorageError, match="forked"), storage.transaction():
        pass
    with pytest.raises(StorageError, match="forked"), storage.reader():
        pass
    monkeypatch.setattr(os, "getpid", lambda: own)
    with storage.reader() as reader:
        assert reader.position().count == 0


def test_damage_is_found(storage: SQLiteStorage, path: Path) -> None:
    assert storage.check() == []
    storage.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'gossiplog_heads'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 100)
    storage.open(None, False)
    with pytest.raises(StorageError, match="damaged"), storage.reader() as reader:
        reader.heads()
    assert storage.check()
