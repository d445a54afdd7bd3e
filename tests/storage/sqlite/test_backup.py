"""Copies of a log's database."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

import gossiplog
from gossiplog.errors import LogClosed, StorageError
from gossiplog.log import Log
from gossiplog.storage.sqlite import backup
from gossiplog.storage.sqlite.storage import SQLiteStorage

TOPIC = "backup.example.com"
SIGNER = gossiplog.Signer(bytes(32))


def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("INSERT INTO notes VALUES (?)", (message.payload,))


def setup(transaction: gossiplog.ApplyTransaction) -> None:
    transaction.execute("CREATE TABLE notes (n)")


def opened(path: Path | str) -> Log:
    return gossiplog.open(path, TOPIC, apply=apply, setup=setup, signer=SIGNER)


def notes(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM notes").fetchone()[0])


def identity(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'identity'").fetchone()[0])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    path = tmp_path / "log" / "log.db"
    with opened(path) as log:
        log.append_many(range(100))
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies" / "copy.db"


def test_a_copy_is_one_file_with_everything(path: Path, copy: Path) -> None:
    seen: list[tuple[int, int]] = []
    with opened(path) as log:
        log.append(100)
        assert log.backup(copy, progress=lambda *figures: seen.append(figures)) == 101
        assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]
        assert seen[-1][0] == seen[-1][1] > 0
        assert identity(copy) != identity(path)
        with opened(copy) as restored:
            assert (restored.verify().messages, restored.root, notes(copy)) == (101, log.root, 101)
            restored.append(101)


def test_a_copy_says_from_which_files_it_has_its_messages(path: Path, copy: Path) -> None:
    """A backup of a backup, to which both programs wrote: whose first messages are the same, and in the same order?"""
    second, third = copy.with_name("second.db"), copy.with_name("third.db")
    with opened(path) as log:
        log.backup(copy)
        log.append_many(range(10))
    with opened(copy) as log:
        # Nothing was written to it: it has no part in the next one.
        log.backup(second)
    with opened(second) as log:
        log.append_many(range(5))
        log.backup(third)
    names = {bytes.fromhex(identity(each)): each.name for each in (path, copy, second, third)}
    found = {}
    for each in (path, copy, second, third):
        storage = SQLiteStorage(each, read_only=True)
        storage.open(None, create=False)
        found[each.name] = [names[storage.origin(sequence)] for sequence in (1, 100, 101, 105, 106)]
        storage.close()
    assert found == {
        "log.db": ["log.db"] * 5,
        "copy.db": ["log.db", "log.db", *["copy.db"] * 3],
        "second.db": ["log.db", "log.db", *["second.db"] * 3],
        "third.db": ["log.db", "log.db", "second.db", "second.db", "third.db"],
    }


def test_a_copy_of_a_log_that_does_not_say_what_it_is(path: Path, copy: Path) -> None:
    with opened(path) as log:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE gossiplog_meta SET value = 'damaged' WHERE name = 'identity'")
        log.backup(copy)
    with closing(sqlite3.connect(copy)) as connection:
        assert not connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'origins'").fetchall()


def test_a_copy_is_not_put_beside_the_write_ahead_log_of_another_file(path: Path, copy: Path) -> None:
    """SQLite read it as the copy's."""
    wal = copy.with_name("copy.db-wal")
    wal.write_bytes(bytes(5000))
    with opened(path) as log, pytest.raises(StorageError, match=r"copy.db-wal is there, .*: give another name"):
        log.backup(copy)
    assert [*copy.parent.iterdir()] == [wal]


def test_a_copy_can_be_read_where_nothing_can_be_written(path: Path, copy: Path) -> None:
    with opened(path) as log:
        log.backup(copy)
    with gossiplog.open(f"file:{copy}?immutable=1") as restored:
        assert len(restored) == 100


@pytest.mark.integration
def test_a_copy_is_one_state_while_others_write(path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy has all rows of its messages, and every message that was there when it began."""
    monkeypatch.setattr(backup, "_PAGES", 1)
    stopped = threading.Event()

    def write() -> None:
        with opened(path) as log:
            while not stopped.is_set():
                log.append(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with opened(path) as log:
            for turn in range(5):
                target = copy.with_name(f"{turn}.db")
                before = len(log)
                count = log.backup(target)
                assert before <= count <= len(log)
                with gossiplog.open(target) as restored:
                    assert restored.verify().messages == count == notes(target)
    finally:
        stopped.set()
        writer.join()


def test_what_is_written_between_two_pages_is_not_in_the_copy(
    path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "_PAGES", 1)
    with opened(path) as log, opened(path) as other:
        assert log.backup(copy, progress=lambda done, total: other.append(done)) == 100
        assert len(log) > 100
    with gossiplog.open(copy) as restored:
        assert restored.verify().messages == notes(copy) == 100


def test_a_log_in_memory_is_copied(copy: Path) -> None:
    with opened(":memory:") as log:
        log.append_many(range(3))
        assert log.backup(copy) == 3
        log.append(3)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with opened(copy) as restored:
        assert len(restored) == 3


def test_without_a_database_there_is_nothing_to_copy(copy: Path) -> None:
    with (
        gossiplog.open(gossiplog.MemoryStorage(), TOPIC) as log,
        pytest.raises(StorageError, match="pull it into a log in a file"),
    ):
        log.backup(copy)


def test_a_closed_log_is_not_copied(path: Path, copy: Path) -> None:
    log = opened(path)
    log.close()
    with pytest.raises(LogClosed):
        log.backup(copy)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_nothing_is_overwritten(path: Path, copy: Path, make: Callable[[Path], None]) -> None:
    make(copy)
    with opened(path) as log, pytest.raises(StorageError, match="is there already: give the name of a new file"):
        log.backup(copy)
    assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]


def test_nothing_is_overwritten_that_another_program_makes_meanwhile(path: Path, copy: Path) -> None:
    with opened(path) as log, pytest.raises(StorageError, match="is there already"):
        log.backup(copy, progress=lambda done, total: copy.write_text("precious"))
    assert copy.read_text() == "precious"
    assert [file.name for file in copy.parent.iterdir()] == ["copy.db"]


def test_a_folder_that_is_not_there(path: Path, tmp_path: Path) -> None:
    with opened(path) as log, pytest.raises(StorageError, match=r"there is no folder .*nowhere; make it first"):
        log.backup(tmp_path / "nowhere" / "copy.db")


def test_an_exception_leaves_nothing(path: Path, copy: Path) -> None:
    def fail(done: int, total: int) -> NoReturn:
        raise KeyboardInterrupt

    with opened(path) as log:
        with pytest.raises(KeyboardInterrupt):
            log.backup(copy, progress=fail)
        assert list(copy.parent.iterdir()) == []
        assert log.backup(copy) == 100


def test_a_full_disk_leaves_nothing(path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "sync", fail)
    with opened(path) as log, pytest.raises(StorageError, match=r"cannot make .*copy\.db: No space left"):
        log.backup(copy)
    assert list(copy.parent.iterdir()) == []


def test_it_is_on_the_disk_before_it_has_its_name(path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, link = os.fsync, os.link

    def flush(descriptor: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def name(source: Path, target: str, *, dst_dir_fd: int) -> None:
        calls.append("name")
        link(source, target, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "link", name)
    with opened(path) as log:
        calls.clear()
        log.backup(copy)
    assert calls == ["file", "name", "folder"]


def test_it_has_the_mode_of_the_log(path: Path, copy: Path) -> None:
    path.chmod(0o640)
    with opened(path) as log:
        log.backup(copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640


def test_a_file_system_without_hard_links(path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "Operation not permitted"."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with opened(path) as log:
        log.backup(copy)
    with opened(copy) as log:
        assert log.verify().messages > 0
    assert [each.name for each in copy.parent.iterdir() if each.suffix == ".partial"] == []
