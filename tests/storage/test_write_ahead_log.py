"""Write-ahead logs that SQLite does not read to their end."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gossiplog.errors import StorageError
from gossiplog.storage.sqlite_files import wal_of
from gossiplog.storage.write_ahead_log import copy_with_log, has_frames, move_into_database, unread_commits

FRAME = 24 + 4096
TRANSACTIONS = 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database as a crash leaves it: the table in the file, twelve transactions in the write-ahead log."""
    made, path = tmp_path / "made.db", tmp_path / "log.db"
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE a(b)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(TRANSACTIONS):
            connection.execute("INSERT INTO a VALUES (?)", (f"{number} " * 400,))
        for each in (made, wal_of(made)):
            shutil.copy(each, path.with_name(each.name.replace("made", "log")))
    return path


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def read(path: Path) -> list[int]:
    """The numbers that SQLite reads in a copy of a database."""
    copy = path.with_name("read.db")
    for each in (path, wal_of(path)):
        if each.exists():
            shutil.copy(each, each.with_name(each.name.replace(path.name, copy.name)))
    with closing(sqlite3.connect(copy)) as connection:
        found = [int(text.split()[0]) for (text,) in connection.execute("SELECT b FROM a")]
    for each in (copy, wal_of(copy)):
        each.unlink(missing_ok=True)
    return found


def merged(path: Path) -> Path:
    target = path.with_name("merged.db")
    descriptor = os.open(path, os.O_RDONLY)
    copy_with_log(descriptor, path, target)
    os.close(descriptor)
    return target


def frames(path: Path) -> int:
    return (wal_of(path).stat().st_size - 32) // FRAME


def test_a_sound_log_is_read_to_its_end(path: Path) -> None:
    assert unread_commits(wal_of(path)) == 0
    assert unread_commits(path.with_name("none-wal")) == 0
    assert read(merged(path)) == read(path) == [*range(TRANSACTIONS)]


@pytest.mark.parametrize("at", [33, 41, 50, 600], ids=["page number", "salt", "checksum", "content"])
def test_what_follows_damage_is_counted_and_copied(path: Path, at: int) -> None:
    """The first frames are of the first transactions, whose pages later ones write anew."""
    flip(wal_of(path), at)
    assert read(path) == []
    assert unread_commits(wal_of(path)) >= TRANSACTIONS - 1
    if at != 33:
        assert read(merged(path)) == [*range(TRANSACTIONS)]


@pytest.mark.parametrize("at", [0, 16, 20, 24], ids=["magic", "salt", "other salt", "checksum"])
def test_a_damaged_header_of_the_log(path: Path, at: int) -> None:
    flip(wal_of(path), at)
    assert read(path) == []
    assert unread_commits(wal_of(path)) == TRANSACTIONS
    assert read(merged(path)) == [*range(TRANSACTIONS)]


def test_frames_of_an_earlier_use_are_left_out(path: Path) -> None:
    """SQLite begins again at the start of the file, with other salts, and leaves what is behind."""
    expected = read(path)
    first = wal_of(path).read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
        connection.execute("INSERT INTO a VALUES (?)", (f"{TRANSACTIONS} last",))
        copy = path.with_name("second.db")
        for each in (path, wal_of(path)):
            shutil.copy(each, each.with_name(each.name.replace("log", "second")))
    assert wal_of(copy).stat().st_size == len(first)
    assert unread_commits(wal_of(copy)) == 0
    assert read(merged(copy)) == [*expected, TRANSACTIONS]


def test_a_length_that_is_damaged_does_not_make_a_large_file(path: Path) -> None:
    """The last frame says how many pages the database has."""
    last = 32 + (frames(path) - 1) * FRAME
    flip(wal_of(path), last + 4)
    assert merged(path).stat().st_size <= path.stat().st_size + frames(path) * 4096


def test_a_rollback_journal_is_left_to_sqlite(path: Path) -> None:
    path.with_name("log.db-journal").write_bytes(b"pages")
    with pytest.raises(StorageError, match="has a transaction to be undone: gossiplog info"):
        merged(path)


def test_a_log_is_moved_into_its_database(path: Path) -> None:
    flip(wal_of(path), 32 + 3 * FRAME + 600)
    path.with_name("log.db-shm").write_bytes(bytes(64))
    target = merged(path)
    mode = path.stat().st_mode
    descriptor = os.open(path, os.O_RDWR)
    move_into_database(descriptor, path, target)
    os.close(descriptor)
    assert path.read_bytes() == target.read_bytes()
    assert path.stat().st_mode == mode
    assert read(path) == [*range(TRANSACTIONS)]
    assert not wal_of(path).exists()
    assert not path.with_name("log.db-shm").exists()


def test_frames_since_it_last_began_are_counted(path: Path) -> None:
    wal, count = wal_of(path), frames(path)
    descriptor = os.open(wal, os.O_RDONLY)
    assert has_frames(descriptor, count)
    assert not has_frames(descriptor, count + 1)
    # The salts of another use of the file.
    flip(wal, 32 + (count - 1) * FRAME + 8)
    assert not has_frames(descriptor, count)
    wal.write_bytes(b"")
    assert not has_frames(descriptor, 1)
    os.close(descriptor)
