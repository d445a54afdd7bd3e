"""The file of a database, read without its write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.storage.sqlite import database_file
from gossiplog.storage.sqlite.database_file import WatchedFile, is_other_identity, read_identity_and_count

TOPIC = "file.example.com"
SIGNER = Signer(bytes(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=SIGNER) as log:
        log.append_many(range(3))
    return path


def watched(path: Path) -> WatchedFile:
    found = read_identity_and_count(str(path))
    assert found is not None
    file = WatchedFile(str(path), found[0])
    assert (file.find_change(), file.count) == ("", found[1])
    return file


@pytest.mark.parametrize(("flipped", "is_other"), [(0, False), (1, False), (16, False), (17, True), (128, True)])
def test_a_rotten_identity_is_not_another(flipped: int, is_other: bool) -> None:
    assert is_other_identity(bytes(16), ((1 << flipped) - 1).to_bytes(16)) == is_other


@pytest.mark.parametrize("change", [lambda path: path.touch(), lambda path: path.rename(path.with_name("moved.db"))])
def test_a_file_that_holds_the_same_or_lost_its_name_has_not_changed(
    path: Path, change: Callable[[Path], object]
) -> None:
    file = watched(path)
    change(path)
    assert file.find_change() == ""


def test_it_is_read_again_only_when_it_has_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_file, "is_settled", lambda changed, now: True)
    file = watched(path)
    looks = []

    def look(database: str) -> None:
        looks.append(database)

    monkeypatch.setattr(database_file, "_read", look)
    monkeypatch.setattr(database_file, "_BETWEEN_SECONDS", 0)
    assert file.find_change() == ""
    assert looks == []
    os.utime(path)
    assert file.find_change() == "it holds no log"
    assert set(looks) == {str(path)}


def test_a_change_within_one_step_of_the_clock_is_found_by_a_look_that_is_not_quick(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "is_settled", lambda changed, now: False)
    file = watched(path)
    monkeypatch.setattr(database_file, "_read", lambda database: (bytes(16), 3))
    monkeypatch.setattr(database_file, "_BETWEEN_SECONDS", 0)
    assert file.find_change(quick=True) == ""
    assert file.find_change() == "it has another identity, as each backup has"


def test_pages_that_another_process_is_moving_are_no_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = watched(path)
    found = [None, None, read_identity_and_count(str(path))]
    monkeypatch.setattr(database_file, "_read", lambda database: found.pop(0))
    monkeypatch.setattr(database_file, "_BETWEEN_SECONDS", 0)
    os.utime(path)
    assert file.find_change() == ""
    assert found == []


@pytest.mark.parametrize("is_vacuumed", [False, True])
def test_pages_that_readers_keep_from_being_moved_are_no_change(path: Path, is_vacuumed: bool) -> None:
    """Of the pages that a checkpoint may not move yet, none is there: the file is damaged by itself, for any time.

    That another program made it shorter meanwhile, by `VACUUM`, told it from one that was cut off by nothing.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE other AS SELECT zeroblob(500000)")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        file = watched(path)
        if is_vacuumed:
            other.execute("DROP TABLE other")
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with gossiplog.open(path, signer=SIGNER) as log, closing(sqlite3.connect(path, isolation_level=None)) as reader:
            log.append_many(["x" * 500] * 40)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM gossiplog_messages").fetchone()
            log.append("x")
            other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            assert read_identity_and_count(str(path)) is None
            assert file.find_change() == ""


def test_zeros_in_the_place_of_pages_are_a_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file alone looks as it may beside readers; appends went on until one needed a page that was gone."""
    monkeypatch.setattr(database_file, "_BETWEEN_SECONDS", 0)
    with gossiplog.open(path, signer=SIGNER) as log:
        file = watched(path)
        log.append("only in the write-ahead log")
        former = path.read_bytes()
        path.write_bytes(former[:4096] + bytes(len(former) - 4096))
        assert file.find_change() == "it cannot be read, nor with its write-ahead log"
        path.write_bytes(former)
        assert file.find_change() == ""


def test_the_last_page_of_another_table_is_no_count_of_messages(path: Path) -> None:
    """While a checkpoint waits for readers, a page that was another table's may stand where the last messages will."""
    file = watched(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("CREATE TABLE other(seq INTEGER PRIMARY KEY, value BLOB, links BLOB)")
        connection.execute("INSERT INTO other VALUES (1000, 'a row of an application', NULL)")
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))
        connection.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'gossiplog_messages'", (roots["other"],))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert file.find_change() == ""
        assert file.count == 3
        found = read_identity_and_count(str(path))
        assert found is not None
        assert found[1] is None
        connection.execute(
            "UPDATE sqlite_schema SET rootpage = ? WHERE name = 'gossiplog_messages'", (roots["gossiplog_messages"],)
        )
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert (file.find_change(), file.count) == ("", 3)
