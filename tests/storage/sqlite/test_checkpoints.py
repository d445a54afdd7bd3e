"""Checkpoints, and that there are none into a file that was copied over the database while it was open."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.log import Log
from gossiplog.storage import SQLiteStorage
from gossiplog.storage.base import Synchronous
from gossiplog.storage.sqlite import checkpoints
from gossiplog.storage.sqlite.database_file import read_identity_and_count

TOPIC = "checkpoints.example.com"
SIGNER = Signer(bytes(32))
STORED = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of some messages, all in its file."""
    path = tmp_path / "log.db"
    with opened(path) as log:
        log.append_many(range(STORED))
    return path


def opened(path: Path, synchronous: Synchronous = "full") -> Log:
    return gossiplog.open(path, TOPIC, signer=SIGNER, synchronous=synchronous)


def copy_backup(path: Path) -> None:
    """Copy over the file what `gossiplog backup` made of it."""
    copy = path.with_name("backup.db")
    with gossiplog.open(path, read_only=True) as log:
        log.backup(str(copy))
    shutil.copyfile(copy, path)


def copy_older(path: Path) -> None:
    """Copy over the file what it was before its last messages."""
    shutil.copyfile(path.with_name("older.db"), path)


def copy_foreign(path: Path) -> None:
    path.write_bytes(b"no database" * 10_000)


def copy_other_database(path: Path) -> None:
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t(a)")
        connection.execute("INSERT INTO t VALUES (zeroblob(200000))")
        connection.commit()
    shutil.copyfile(other, path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8192)


def cut_within_the_first_page(path: Path) -> None:
    os.truncate(path, 1000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def append_until_refused(log: Log) -> tuple[int, StorageError]:
    """Return how many appends were acknowledged, and the error of the next one."""
    for acknowledged in range(checkpoints._COMMITS + 1):
        try:
            log.append(acknowledged)
        except StorageError as error:
            return acknowledged, error
    pytest.fail("every append was acknowledged")


OVERWRITES = [
    (copy_backup, "it has another identity"),
    (copy_older, "it holds 1 message, and the former file had 5"),
    (copy_foreign, "it is no SQLite database"),
    (copy_other_database, "it holds no log"),
    (cut, "bytes, and had"),
    (cut_within_the_first_page, "it has 1,000 bytes, and had"),
    (empty, "it has 0 bytes, and had"),
]


@pytest.fixture
def older(path: Path) -> None:
    copy = path.with_name("older.db")
    # Another log would have another identity.
    with opened(copy) as log:
        log.append(0)
    shutil.copyfile(copy, path)
    with opened(path) as log:
        log.append_many(range(1, STORED))


@pytest.mark.parametrize(("overwrite", "how"), OVERWRITES)
@pytest.mark.parametrize("synchronous", ["full", "normal"])
@pytest.mark.usefixtures("older")
def test_closing_leaves_a_file_that_was_written_over_and_the_write_ahead_log(
    path: Path, overwrite: Callable[[Path], None], how: str, synchronous: Synchronous
) -> None:
    """The pages of the one went into the other: both were lost, and nothing said so."""
    wal = path.with_name("log.db-wal")
    log = opened(path, synchronous)
    log.append("only in the write-ahead log")
    written = wal.read_bytes()
    overwrite(path)
    there = path.read_bytes()
    with pytest.raises(StorageError, match="was written over") as raised:
        log.close()
    assert how in str(raised.value)
    assert wal.read_bytes() == written
    assert path.read_bytes() == there


@pytest.mark.parametrize(("overwrite", "how"), OVERWRITES)
@pytest.mark.usefixtures("older")
def test_nothing_is_acknowledged_into_a_file_that_was_written_over(
    path: Path, overwrite: Callable[[Path], None], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything moved into it, however long the write-ahead log is."""
    monkeypatch.setattr(checkpoints, "_PAGES", 1)
    wal = path.with_name("log.db-wal")
    log = opened(path)
    log.append("only in the write-ahead log")
    overwrite(path)
    acknowledged, error = append_until_refused(log)
    assert how in str(error)
    acknowledged += 1
    assert acknowledged <= checkpoints._COMMITS
    count = STORED + acknowledged
    if "holds 1 message" in how:
        way = (
            f"mv {wal} {wal}.former && gossiplog repair {path} --accept-loss goes on with 1 of the {count} acknowledged"
        )
    elif "identity" in how:
        way = f"mv {path} {path}.copy && gossiplog repair {path} --from {path}.copy"
    elif "holds no log" in how:
        way = f"mv {path} {path}.copy && gossiplog recover {path} NEW says how many of the {count} acknowledged"
    else:
        way = f"gossiplog recover {path} NEW says how many of the {count} acknowledged messages are left"
    assert way in str(error)
    with pytest.raises(StorageError, match="was written over"):
        log.close()


@pytest.mark.usefixtures("older")
def test_the_way_back_after_a_copy_over_an_open_log(path: Path) -> None:
    """The former file is put back: after the log was closed, and while it is open."""
    former = path.read_bytes()
    log = opened(path)
    log.append("only in the write-ahead log")
    copy_backup(path)
    with pytest.raises(StorageError, match="put the former file back"):
        log.close()
    backup = path.read_bytes()
    with pytest.raises(CorruptLog, match=f"was replaced, .* --from {path}.copy"):
        opened(path)
    path.write_bytes(former)
    with opened(path) as log:
        assert log.verify().messages == STORED + 1
        log.append("another")
        path.write_bytes(backup)
        count = len(log) + append_until_refused(log)[0]
        path.write_bytes(former)
        log.append("goes on")
    with opened(path) as log:
        assert log.verify().messages == count + 1


@pytest.mark.slow
def test_checkpoints_of_others_are_no_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers that empty the write-ahead log by turns."""
    monkeypatch.setattr(checkpoints, "_LOG_BYTES", 100_000)
    wal, emptied = path.with_name("log.db-wal"), [0, 0]
    with opened(path) as one, opened(path) as other:
        for number in range(40):
            for index, log in enumerate((one, other)):
                log.append_many([number] * 40)
                emptied[index] += wal.stat().st_size == 0
        assert len(one) == STORED + 40 * 2 * 40
    assert min(emptied) > 0
    with opened(path) as log:
        assert log.verify().messages == STORED + 40 * 2 * 40


@pytest.mark.parametrize("append", [lambda log: log.append("x" * 500), lambda log: log.append_many(["x"] * 100)])
def test_the_write_ahead_log_is_moved_into_the_file(
    path: Path, append: Callable[[Log], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_PAGES", 20)
    wal = path.with_name("log.db-wal")
    with opened(path) as log:
        before = path.stat().st_size
        for _ in range(30):
            append(log)
            assert wal.stat().st_size < 60 * 4120
        assert path.stat().st_size > before


def test_an_applications_rows_are_moved_into_the_file_as_well(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild writes no messages."""
    monkeypatch.setattr(checkpoints, "_PAGES", 20)
    wal = path.with_name("log.db-wal")
    storage = SQLiteStorage(path)
    storage.open(TOPIC, create=False)
    for number in range(20):
        with storage.transaction() as transaction:
            transaction.execute(f"CREATE TABLE t{number} AS SELECT zeroblob(100000)")
            transaction.set_applied(1)
        assert wal.stat().st_size < 100 * 4120
    storage.close()


@pytest.mark.slow
def test_programs_that_write_little_empty_the_write_ahead_log_beside_another(path: Path) -> None:
    """A connection that is not the last to close moves nothing by itself."""
    wal = path.with_name("log.db-wal")
    with opened(path):
        for _ in range(12):
            with opened(path, "off") as log:
                log.append("x" * 2**20)
        assert wal.stat().st_size < 2 * checkpoints._PAGES * 4096


@pytest.mark.slow
def test_an_application_that_deletes_rows_beside_readers_is_no_change(tmp_path: Path) -> None:
    """Pages of its tables come to hold messages, and readers keep some of them from being moved into the file."""
    path, most = tmp_path / "log.db", 0

    def setup(transaction: gossiplog.ApplyTransaction) -> None:
        transaction.execute("CREATE TABLE queue(id INTEGER PRIMARY KEY, message TEXT)")

    def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        for _ in range(8):
            transaction.execute("INSERT INTO queue(message) VALUES (?)", (message.id,))
        transaction.execute("DELETE FROM queue WHERE id < (SELECT max(id) FROM queue) - 200")

    with (
        gossiplog.open(path, TOPIC, signer=SIGNER, apply=apply, setup=setup, synchronous="off") as log,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        while len(log) < 2500:
            log.append_many([{"text": "y" * 300}] * 8)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM queue").fetchone()
            for _ in range(3):
                log.append({"text": "y" * 300})
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                found = read_identity_and_count(str(path))
                if found is not None and found[1] is not None:
                    most = max(most, found[1])
                    assert most <= len(log)
                reader.execute("COMMIT")
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert most > 2000


def test_attempts_to_begin_anew_wait_longer_and_get_rare_beside_a_long_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They held appends up for a quarter of each second, and readers of 300 ms, back to back, made them vain."""
    monkeypatch.setattr(checkpoints, "_LOG_BYTES", 100_000)
    monkeypatch.setattr(checkpoints, "_READERS_MILLISECONDS", 1)
    monkeypatch.setattr(checkpoints, "_LONG_READERS_MILLISECONDS", 2)
    clock = 100.0
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock)
    attempts: list[tuple[int, int]] = []

    class Noting(sqlite3.Connection):
        patience = 0

        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
            if sql.startswith("PRAGMA busy_timeout"):
                self.patience = int(sql.rpartition(" ")[2])
            elif sql == "PRAGMA wal_checkpoint(TRUNCATE)":
                attempts.append((self.patience, wal.stat().st_size))
            return super().execute(sql, *parameters)

    wal = path.with_name("log.db-wal")
    with (
        closing(sqlite3.connect(path, isolation_level=None, factory=Noting)) as connection,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        watching = checkpoints.Checkpoints(str(path), str(wal), b"", 30.0)
        connection.execute("CREATE TABLE other(a)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM other").fetchall()

        def write(times: int) -> None:
            for _ in range(times):
                connection.execute("INSERT INTO other VALUES (zeroblob(20000))")
                watching.committed(connection, None)

        write(100)
        sizes = [size for _, size in attempts]
        assert [patience for patience, _ in attempts] == [1, 2, 2, 2, 2]
        assert sizes[0] < 150_000
        assert all(2 * one <= other < 2 * one + 50_000 for one, other in pairwise(sizes))
        # Others may have let it be by now.
        clock += checkpoints._RETRY_SECONDS
        write(5)
        assert [patience for patience, _ in attempts[5:]] == [1]
        reader.execute("COMMIT")
        write(5)
        assert wal.stat().st_size > 0
        clock += checkpoints._RETRY_SECONDS
        write(1)
        assert (attempts[-1][0], wal.stat().st_size) == (1, 0)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM other").fetchall()
        write(20)
        assert [patience for patience, _ in attempts[7:]] == [1, 2, 2]


@pytest.mark.parametrize("part", [0.0, 0.5])
@pytest.mark.parametrize("appended", [1, 40])
def test_a_write_ahead_log_that_was_cut_off_is_not_moved_into_the_file(path: Path, part: float, appended: int) -> None:
    """SQLite reads zeros there: the file was no database afterwards, and each append was acknowledged."""
    wal, whole = path.with_name("log.db-wal"), path.with_name("whole.db")
    log = opened(path)
    for number in range(10):
        log.append(str(number) * 6000)
    log.backup(str(whole))
    before = path.read_bytes()
    os.truncate(wal, 32 + int(wal.stat().st_size * part) // 4120 * 4120 if part else 0)
    said = rf"{wal} was cut off while the log was open, .*: gossiplog repair {path} --from SOURCE"
    count = STORED + 10 + min(appended, checkpoints._COMMITS - 10)
    for _ in range(count - STORED - 10):
        log.append("x" * 6000)
    if appended > checkpoints._COMMITS:
        with pytest.raises(StorageError, match=said):
            log.append("x" * 6000)
    with pytest.raises(StorageError, match=said):
        log.close()
    assert path.read_bytes() == before
    with pytest.raises(CorruptLog, match=rf"the last .* are lost: it holds .* says that {count} were on disk"):
        opened(path)
    repaired = gossiplog.repair(path, whole, accept_loss=True)
    assert repaired.messages >= STORED + 10
    assert repaired.messages > STORED + 10 or appended == 1
    with opened(path) as log:
        assert log.verify().messages == repaired.messages
