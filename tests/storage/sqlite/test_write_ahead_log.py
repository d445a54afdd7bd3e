"""Write-ahead logs that SQLite does not read to their end."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import StorageError
from gossiplog.storage.sqlite import write_ahead_log
from gossiplog.storage.sqlite.files import formers, wal_of
from gossiplog.storage.sqlite.write_ahead_log import (
    WatchedLog,
    close_leaving_log,
    copy_with_log,
    keep_former,
    move_into_database,
    unread_commits,
)
from tests.strategies import repeatable

FRAME = 24 + 4096
TRANSACTIONS = 12


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database as a crash leaves it: the table in the file, twelve transactions in the write-ahead log."""
    return crashed(tmp_path)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, not to be changed."""
    return crashed(tmp_path_factory.mktemp("start"))


def crashed(folder: Path) -> Path:
    made, path = folder / "made.db", folder / "log.db"
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
    # A power cut before the first frames were flushed, as the header is.
    wal_of(copy).write_bytes(wal_of(copy).read_bytes()[:32] + first[32:])
    assert unread_commits(wal_of(copy)) == 0
    assert read(merged(copy)) == read(copy) == expected


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
    assert WatchedLog(str(wal)).frames == count
    # The salts of another use of the file.
    flip(wal, 32 + (count - 1) * FRAME + 8)
    watched = WatchedLog(str(wal))
    assert watched.frames == count - 1
    flip(wal, 32 + (count - 1) * FRAME + 8)
    watched.look()
    assert (watched.frames, watched.size, watched.is_cut_off) == (count, wal.stat().st_size, False)
    wal.write_bytes(b"")
    watched.look()
    assert (watched.size, watched.is_cut_off) == (0, False)
    assert WatchedLog(str(wal)).frames == 0
    wal.unlink()
    watched.look()
    assert (watched.size, watched.is_cut_off) == (0, False)


def test_one_that_is_emptied_and_begins_anew_is_not_cut_off(path: Path) -> None:
    wal = wal_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        watched = WatchedLog(str(wal))
        for number in range(40):
            connection.execute("INSERT INTO a VALUES (?)", (f"{number} " * 400,))
            if number % 7 == 3:
                connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if number % 2 else 'PASSIVE'})").fetchall()
            watched.look()
            assert not watched.is_cut_off
        assert watched.frames < 40


def test_one_that_begins_anew_in_the_midst_of_a_look_is_not_cut_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal, read = wal_of(path), os.pread
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        watched = WatchedLog(str(wal))
        for mode, at in itertools.product(("TRUNCATE", "RESTART"), range(8)):
            calls = itertools.count()

            def begin_anew(
                descriptor: int,
                size: int,
                offset: int,
                mode: str = mode,
                at: int = at,
                calls: Iterator[int] = calls,
            ) -> bytes:
                if next(calls) == at:
                    connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
                    connection.execute("INSERT INTO a VALUES ('another')")
                return read(descriptor, size, offset)

            with monkeypatch.context() as patch:
                patch.setattr(os, "pread", begin_anew)
                watched.look()
            assert not watched.is_cut_off
            for number in range(5):
                connection.execute("INSERT INTO a VALUES (?)", (f"{number} " * 400,))
            watched.look()
            assert not watched.is_cut_off


@repeatable(50)
@given(
    st.integers(0, TRANSACTIONS),
    st.booleans(),
    st.lists(st.sampled_from(["kept", "zeros", "stale"]), min_size=50, max_size=50),
    st.integers(0, FRAME),
    st.lists(st.sampled_from([20, 1600, 20_000, "rollback", "PASSIVE", "RESTART", "TRUNCATE"]), max_size=12),
)
def test_what_a_crash_has_left_is_not_cut_off(
    start: Path, synced: int, has_header: bool, pages: list[str], torn: int, steps: list[int | str]
) -> None:
    """Of what was not flushed, any part may be there. SQLite reads up to the first that is not, and writes over it.

    Without a header it reads nothing: each close of such a log raised StorageError, and left the write-ahead log.
    """
    with tempfile.TemporaryDirectory(dir=start.parent) as folder:
        path = Path(folder) / "log.db"
        shutil.copy(start, path)
        content = bytearray(wal_of(start).read_bytes())
        for number, page in enumerate(pages[: frames(start)]):
            at = 32 + number * FRAME
            if number >= synced and page != "kept":
                content[at : at + FRAME] = bytes(FRAME) if page == "zeros" else b"\1" * FRAME
        if not has_header:
            content[:32] = bytes(32)
        wal_of(path).write_bytes(content[: len(content) - torn])
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            watched = WatchedLog(str(wal_of(path)))
            connection.execute("PRAGMA cache_size = 2")
            watched.look()
            assert not watched.is_cut_off
            for step in steps:
                if step == "rollback":
                    roll_back(connection, 30)
                elif isinstance(step, int):
                    connection.execute("INSERT INTO a VALUES (zeroblob(?))", (step,))
                    watched.look()
                    assert not watched.is_cut_off
                else:
                    connection.execute(f"PRAGMA wal_checkpoint({step})").fetchall()


def roll_back(connection: sqlite3.Connection, rows: int, first: int = 0) -> None:
    """Roll back a transaction that writes pages twice and does not fit into SQLite's memory.

    Args:
        connection: with a small cache.
        rows: how many it writes.
        first: the row that is written again, after so many.
    """
    connection.execute("BEGIN")
    for row in range(rows):
        connection.execute("INSERT INTO a VALUES (randomblob(3000))")
        if row == first:
            connection.execute("UPDATE a SET b = randomblob(3000)")
    connection.execute("ROLLBACK")


@pytest.mark.parametrize("firsts", [(199, 30), (30, 199), (0, 0)])
def test_what_was_rolled_back_was_not_cut_off(path: Path, firsts: Sequence[int]) -> None:
    """SQLite leaves frames without salts: see `_is_missing`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = 5")
        watched = WatchedLog(str(wal_of(path)))
        for first in firsts:
            roll_back(connection, 200, first)
            watched.look()
            for number in range(16):
                connection.execute("INSERT INTO a VALUES (?)", (number,))
            watched.look()
            assert not watched.is_cut_off


def test_one_that_cannot_be_opened_for_a_moment_was_not_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wal = wal_of(path)
    with wal.open("ab") as log:
        # What a crash has left.
        log.write(bytes(5 * FRAME))
    watched, size = WatchedLog(str(wal)), wal.stat().st_size

    def refuse(*arguments: object) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    watched.look()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        watched.look()
    watched.look()
    assert (watched.size, watched.is_cut_off) == (size, False)


@pytest.mark.parametrize("left", [0, 10, 32, 32 + 3 * FRAME, 32 + 3 * FRAME + 100])
def test_what_was_cut_off_is_noticed_when_something_is_written(path: Path, left: int) -> None:
    wal = wal_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        watched = WatchedLog(str(wal))
        connection.execute("SELECT count(*) FROM a").fetchone()
        os.truncate(wal, left)
        connection.execute("CREATE TABLE c AS SELECT zeroblob(20000)")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        watched.look()
        assert watched.is_cut_off
        watched.look()
        assert watched.is_cut_off
        # "All is fine", said the doctor of one without a header, and deleted it.
        assert unread_commits(wal) >= 1


def test_what_was_cut_off_between_two_frames_of_other_uses_is_noticed_later(path: Path) -> None:
    """The file has not grown since, so that zeros may be what a crash has left."""
    wal = wal_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        watched = WatchedLog(str(wal))
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        for number in range(4):
            connection.execute("INSERT INTO a VALUES (?)", (number,))
        watched.look()
        assert not watched.is_cut_off
        os.truncate(wal, 32 + FRAME)
        connection.execute("INSERT INTO a VALUES (5)")
        watched.look()
        assert watched.is_cut_off


def test_each_write_ahead_log_that_is_kept_has_a_name_of_its_own(tmp_path: Path) -> None:
    """The second one was not kept, and what SQLite did not read of it was gone."""
    wal = tmp_path / "log.db-wal"
    for content in (b"one", b"one", b"two", b"one", b"two"):
        wal.write_bytes(content)
        kept_as = keep_former(wal)
        assert Path(kept_as).read_bytes() == content
    (tmp_path / "log.db-wal.former-of-mine").touch()
    kept = formers(wal)
    assert [(each.name, each.read_bytes()) for each in kept] == [
        ("log.db-wal.former", b"one"),
        ("log.db-wal.former-2", b"two"),
    ]
    assert len([*tmp_path.iterdir()]) == 4


def test_a_write_ahead_log_is_found_after_a_kill_while_an_empty_database_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite had deleted it, and what was left had a name that nothing looked for."""

    def kill(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    wal = wal_of(path)
    content = wal.read_bytes()
    os.truncate(path, 0)
    monkeypatch.setattr(write_ahead_log, "publish", kill)
    with pytest.raises(KeyboardInterrupt):
        close_leaving_log(sqlite3.connect(path), str(path), 0.0)
    assert [each.read_bytes() for each in formers(wal)] == [content]
