from __future__ import annotations

import os
import resource
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

import gossiplog
from gossiplog import SQLiteStorage, StorageError
from gossiplog.storage.sqlite.transactions import SQLiteTransaction


@pytest.mark.parametrize("more", [True, False])
def test_nothing_is_committed_after_a_statement_that_rolled_back(storage: SQLiteStorage, more: bool) -> None:
    def roll_back() -> None:
        with storage.transaction() as transaction, transaction.savepoint():
            transaction.execute("CREATE TABLE mine (a UNIQUE)")
            transaction.execute("INSERT INTO mine VALUES (1)")
            with pytest.raises(sqlite3.IntegrityError):
                transaction.execute("INSERT OR ROLLBACK INTO mine VALUES (1)")
            if more:
                transaction.execute("CREATE TABLE mine (a)")

    with pytest.raises(StorageError, match="ended the transaction"):
        roll_back()
    with storage.transaction() as transaction:
        assert transaction.execute("SELECT name FROM sqlite_schema WHERE name = 'mine'").fetchone() is None


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


def test_a_lock_that_another_process_holds_is_named(path: Path) -> None:
    storage = SQLiteStorage(path, lock_timeout=0.01)
    storage.open("topic", True)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="did not release its lock"), storage.transaction():
            pass
        other.execute("ROLLBACK")
    with storage.transaction() as transaction:
        assert isinstance(transaction, SQLiteTransaction)
    storage.close()


def test_a_transaction_over_a_file_that_goes_meanwhile_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    storage = SQLiteStorage(path)
    storage.open("topic", True)
    with closing(storage):
        moved = tmp_path / "moved.db"

        def write_and_move() -> None:
            with storage.transaction() as transaction:
                transaction.execute("CREATE TABLE mine(n)")
                path.rename(moved)

        with pytest.raises(StorageError, match="was moved away"):
            write_and_move()
        moved.rename(path)
        with storage.transaction() as transaction:
            transaction.execute("CREATE TABLE mine(n)")


def test_too_many_open_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    gossiplog.open(path, "topic").close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    # Where connections of other tests are kept, descriptors below the limit are free still.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 4, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        os.close(taken.pop())
        with pytest.raises(StorageError, match=r"too many files open; raise the limit, as `ulimit -n \d+`") as raised:
            gossiplog.open(path)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "immutable" not in str(raised.value)
    gossiplog.open(path).close()
