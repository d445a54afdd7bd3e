from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import threading
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import gossiplog
from gossiplog import CorruptLog, LogClosed, Signer, SQLiteStorage, StorageError, core
from gossiplog.storage.base import Transaction
from gossiplog.storage.sqlite import checkpoints
from gossiplog.storage.sqlite.tables import SQLiteReader
from tests.storage.damage import damage


def test_the_file_is_in_wal_mode_and_waits_for_the_disk(storage: SQLiteStorage, path: Path) -> None:
    with storage.transaction() as transaction:
        assert transaction.execute("PRAGMA synchronous").fetchone() == (2,)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_finding_an_encoding_does_not_go_through_all_of_them(storage: SQLiteStorage, path: Path) -> None:
    contents = [bytes([number]) * 20 for number in range(3)]
    steps: list[None] = []
    with closing(sqlite3.connect(path)) as connection:
        rows = [(sequence, contents[sequence % 2]) for sequence in range(1, 20_001)]
        connection.executemany("INSERT INTO gossiplog_alternatives(seq, content) VALUES (?, ?)", rows)
        connection.set_progress_handler(lambda: steps.append(None), 100)
        assert SQLiteReader(connection).alternatives(contents) == {contents[0]: 2, contents[1]: 1}
    # Instructions of SQLite's, in hundreds: more than 1,000 when all were gone through.
    assert len(steps) < 20


def test_values_beyond_a_limit_are_not_read(storage: SQLiteStorage) -> None:
    pairs = sorted(core.sign("topic", 1, [], "x" * 1000 + str(number), bytes(32)) for number in range(100))
    with storage.transaction() as transaction:
        plan = core.read_batch([value for _, value in pairs], "topic").plan(1, {}, transaction.links)
        transaction.write(plan)
    keys = [key for key, _ in pairs]
    size = sum(len(value) for _, value in pairs[:30])
    with storage.reader(single=True) as reader:
        assert reader.values(keys, 100) == dict(pairs)
        assert reader.values(keys, 100, size) == dict(pairs[:31])
        assert len(reader.values(keys[::2], 100, size)) == 31
        assert reader.values(keys[:8], 100, 0) == dict(pairs[:1])


def test_synchronous_is_checked() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        SQLiteStorage(":memory:", synchronous="fully")  # type: ignore[arg-type]


def test_an_application_makes_its_tables_in_a_log(storage: SQLiteStorage, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")
    storage.close()
    assert storage.open("topic", True) == "topic"
    with storage.transaction() as transaction, transaction.savepoint():
        transaction.execute("INSERT INTO notes VALUES ('by the log')")


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
        "CREATE TRIGGER mine AFTER INSERT ON gossiplog_heads BEGIN DELETE FROM gossiplog_heads; END",
        "CREATE TEMP TRIGGER mine AFTER INSERT ON main.gossiplog_heads BEGIN SELECT 1; END",
        "CREATE INDEX mine ON gossiplog_leaves (hash)",
        "CREATE TABLE gossiplog_mine (a)",
        "CREATE TEMP TABLE gossiplog_heads (key)",
        "CREATE VIEW gossiplog_mine AS SELECT 1",
        "CREATE TEMP VIEW gossiplog_heads AS SELECT 1",
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
        transaction.execute("CREATE INDEX mine_a ON mine (a)")
        transaction.execute("CREATE TRIGGER mine_too AFTER INSERT ON mine BEGIN DELETE FROM mine; END")
        transaction.execute("CREATE VIEW ours AS SELECT count(*) AS n FROM gossiplog_messages")


def test_a_cursor_that_is_not_exhausted_does_not_keep_its_snapshot(storage: SQLiteStorage, path: Path) -> None:
    kept: list[sqlite3.Cursor] = []
    with storage.transaction() as transaction:
        transaction.execute("CREATE TABLE mine (a)")
        transaction.execute("INSERT INTO mine VALUES (1), (2), (3)")
        with transaction.savepoint():
            kept.append(transaction.execute("SELECT a FROM mine"))
            assert kept[0].fetchone() == (1,)
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            kept[0].fetchone()
        kept.append(transaction.execute("SELECT a FROM mine"))
        kept[1].fetchone()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("INSERT INTO mine VALUES (4)")
    with storage.transaction() as transaction:
        assert transaction.execute("SELECT count(*) FROM mine").fetchone() == (4,)


def test_a_location_is_text() -> None:
    with pytest.raises(TypeError, match="text or a path, not bytes"):
        SQLiteStorage(b"log.db")  # type: ignore[arg-type]


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


def test_a_forked_process_closes_without_waiting_for_the_lock(
    storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.getpid()
    with storage.transaction():
        # As in a child of this moment, where the thread that holds the lock does not exist.
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        closer = threading.Thread(target=storage.close, daemon=True)
        closer.start()
        closer.join(5)
        assert not closer.is_alive()
        with pytest.raises(LogClosed), storage.reader():
            pass
        monkeypatch.setattr(os, "getpid", lambda: own)


def test_damage_is_found(storage: SQLiteStorage, path: Path) -> None:
    assert storage.check() == []
    storage.close()
    damage(path, "gossiplog_heads")
    storage.open(None, False)
    with pytest.raises(CorruptLog, match=r"cannot read .*log\.db: .* malformed"), storage.reader() as reader:
        reader.heads()
    with pytest.raises(CorruptLog, match=r"cannot write to .*log\.db"), storage.transaction() as transaction:
        transaction.heads()
    assert storage.check()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_header_by_which_sqlite_does_not_write_is_damage(tmp_path: Path, read_only: bool) -> None:
    """`verify` found nothing, and appends failed."""
    path = tmp_path / "log.db"
    gossiplog.open(path, "topic").close()
    with (
        gossiplog.open(path, read_only=read_only) as log,
        log._storage.transaction() if not read_only else nullcontext(),
    ):
        assert log._storage.check() == []
    content = bytearray(path.read_bytes())
    content[18] ^= 4
    path.write_bytes(content)
    with gossiplog.open(path, read_only=read_only) as log:
        with pytest.raises(CorruptLog, match="its header says that SQLite must not write it"):
            log.verify()
        assert len(log) == 0
    for location in (f"file:{path}?mode=ro", f"file:{path}?immutable=1"):
        with gossiplog.open(location, read_only=True) as log:
            log.verify()


def test_a_scan_shows_a_lost_value_as_empty(storage: SQLiteStorage, path: Path) -> None:
    pairs = sorted(core.sign("topic", 1, [], number, bytes(32)) for number in range(3))
    with storage.transaction() as transaction:
        transaction.write(core.verify_batch([value for _, value in pairs], "topic").plan(1, {}, transaction.links))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq = 2")
    with storage.reader() as reader, reader.scan(["value"], b"", None, 3) as found:
        values = [value for (value,) in found]
    assert values == [pairs[0][1], b"", pairs[2][1]]


def test_a_scan_that_is_left_early_keeps_no_snapshot(storage: SQLiteStorage, path: Path) -> None:
    pairs = sorted(core.sign("topic", 1, [], number, bytes(32)) for number in range(3))
    with storage.transaction() as transaction:
        transaction.write(core.verify_batch([value for _, value in pairs], "topic").plan(1, {}, transaction.links))
    with storage.reader(single=True) as reader:
        with reader.scan(["key", "value"], b"", None, 3) as found:
            assert next(found) == pairs[0]
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM gossiplog_messages WHERE seq = 3")
        with reader.scan(["value"], b"", None, 3) as found:
            assert list(found) == [(pairs[0][1],), (pairs[1][1],), (b"",)]


@pytest.mark.parametrize("name", ["log.db", "a ?#%é.db"])
@pytest.mark.parametrize("as_uri", [False, True], ids=["path", "uri"])
def test_what_is_opened_to_be_read_is_not_written(tmp_path: Path, name: str, as_uri: bool) -> None:
    path = tmp_path / name
    writing = SQLiteStorage(path)
    writing.open("topic", True)
    location = path.as_uri() + "?cache=private" if as_uri else path
    reading = SQLiteStorage(location, read_only=True)
    assert reading.open(None, True) == "topic"
    with reading.reader() as reader:
        assert reader.position().count == 0
    with pytest.raises(StorageError, match="it was opened read-only"), reading.transaction():
        pass
    reading.close()
    writing.close()
    before = path.read_bytes()
    assert reading.open("topic", True) == "topic"
    with reading.reader() as reader:
        assert reader.position().count == 0
    reading.close()
    assert path.read_bytes() == before
    # Nor beside it: files of another user could keep the owner out.
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", ["log.db", "a link", "file:log.db"])
def test_a_journal_that_names_another_file_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, read_only: bool
) -> None:
    monkeypatch.chdir(path.parent)
    storage = SQLiteStorage(path)
    storage.open("topic", True)
    storage.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        (pages,), (size,) = (connection.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size"))
    victim = path.with_name("victim")
    victim.write_text("precious")
    path.with_name("a link").symlink_to(path)
    magic, other = bytes.fromhex("d9d505f920a163d7"), bytes(victim)
    # Of no page: https://sqlite.org/fileformat2.html#the_rollback_journal, and `writeSuperJournal` of SQLite.
    header = magic + struct.pack(">5I", 0, 0, pages, 512, size)
    end = struct.pack(">I", 2**30 // size + 1) + other + struct.pack(">2I", len(other), sum(other)) + magic
    journal = path.with_name("log.db-journal")
    journal.write_bytes(header.ljust(512, b"\0") + end)
    with pytest.raises(StorageError, match="names another file, which SQLite would delete"):
        SQLiteStorage(name, read_only=read_only).open(None, False)
    assert (victim.exists(), journal.exists()) == (True, True)
    journal.write_bytes(header.ljust(512, b"\0"))
    storage = SQLiteStorage(name, read_only=read_only)
    assert storage.open(None, False) == "topic"
    storage.close()


@pytest.mark.parametrize("rest", ["-wal", "-journal"])
def test_a_database_that_is_not_all_in_its_file_is_not_read_without_a_lock(
    storage: SQLiteStorage, path: Path, tmp_path: Path, rest: str
) -> None:
    """A program that is killed leaves what it did last beside the database."""
    with storage.transaction() as transaction:
        transaction.execute("CREATE TABLE mine AS SELECT 5")
    copy = tmp_path / "a copy.db"
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}{rest}")
    for option in ("immutable=1", "mode=ro&immutable=yes"):
        with pytest.raises(StorageError, match=f"leaves out what is in .*/a copy.db{rest}"):
            SQLiteStorage(f"{copy.as_uri()}?{option}").open(None, False)


def test_a_journal_that_is_a_pipe_is_refused(storage: SQLiteStorage, path: Path) -> None:
    storage.close()
    os.mkfifo(path.with_name("log.db-journal"))
    with pytest.raises(StorageError, match=r"log\.db-journal is no file"):
        storage.open(None, False)


def is_missing(log: gossiplog.Log, what: str) -> None:
    """Check that nothing is acknowledged any more, and that nothing is made under the name."""
    count = len(log)
    for _ in range(2):
        with pytest.raises(StorageError, match=f" {what}"):
            log.append("more")
    assert len(log) == count
    log._storage._close_idle()
    with pytest.raises(StorageError, match=what):
        len(log)


@pytest.mark.parametrize("name", ["{}", "file:{}", "file://{}?mode=rw", "a link"])
def test_a_file_that_was_moved_away_is_not_appended_to(tmp_path: Path, signer: Signer, name: str) -> None:
    path, link = tmp_path / "the log.db", tmp_path / "link.db"
    gossiplog.open(path, "topic").close()
    link.symlink_to(path)
    location = link if name == "a link" else name.format(path if name == "{}" else quote(str(path)))
    with gossiplog.open(location, signer=signer) as log:
        log.append("first")
        moved = path.rename(tmp_path / "moved.db")
        is_missing(log, "was moved away")
        assert not path.exists()
        # The way back that the error names.
        moved.rename(path)
        log.append("second")
    with gossiplog.open(path) as log:
        assert [message.payload for message in log] == ["first", "second"]


@pytest.mark.parametrize("by", ["a rename", "a link to another"])
def test_a_file_that_was_replaced_is_not_appended_to(tmp_path: Path, signer: Signer, by: str) -> None:
    path, other, link = tmp_path / "log.db", tmp_path / "other.db", tmp_path / "link.db"
    for each in (path, other):
        gossiplog.open(each, "topic").close()
    link.symlink_to(path)
    log = gossiplog.open(path if by == "a rename" else link, signer=signer)
    log.append("first")
    if by == "a rename":
        other.replace(path)
        is_missing(log, "was replaced by another file")
        with pytest.raises(StorageError, match=f"was replaced by another file .* saved as {path}.saved: mv"):
            log.close()
        # SQLite takes a write-ahead log that was left there for the new file's own.
        wal = path.with_name("log.db-wal")
        with pytest.raises(CorruptLog, match=f"was replaced, and {wal} belongs to"):
            gossiplog.open(path)
        # The way on with the other file that the error names.
        wal.rename(f"{wal}.former")
    else:
        link.unlink()
        link.symlink_to(other)
        is_missing(log, "leads to another file than when the log was opened")
        log.close()
        with gossiplog.open(path) as log:
            assert len(log) == 1
    with gossiplog.open(path if by == "a rename" else other) as log:
        assert len(log) == 0


@pytest.mark.parametrize("by", ["deletion", "a rename", "a copy"])
def test_a_write_ahead_log_that_lost_its_name_is_not_appended_to(tmp_path: Path, signer: Signer, by: str) -> None:
    """It was: a kill lost what was acknowledged from then on, and who came after got "disk I/O error"."""
    path, wal, copy = tmp_path / "log.db", tmp_path / "log.db-wal", tmp_path / "copy"
    # What another program may have written to a log of the name is not mixed with what this one has.
    saved = pytest.raises(StorageError, match=f"is saved as {path}.saved: gossiplog sync")
    with saved if by == "a copy" else nullcontext(), gossiplog.open(path, "topic", signer=signer) as log:
        log.append("first")
        copy.write_bytes(wal.read_bytes())
        if by == "a copy":
            copy.replace(wal)
        elif by == "a rename":
            wal.rename(tmp_path / "moved")
        else:
            wal.unlink()
        for _ in range(2):
            with pytest.raises(StorageError, match=rf"{wal} was deleted, moved away or replaced .*: close the log"):
                log.append("second")
        # Another connection, as of another program, makes a new one.
        if by != "a copy":
            with pytest.raises(StorageError, match=r"log was deleted or cut off, and a program .*; close the log"):
                gossiplog.open(path)
    # The way back that both name.
    with gossiplog.open(path, signer=signer) as log:
        log.append("third")
        assert [message.payload for message in log] == ["first", "third"]


def test_a_file_is_known_after_a_change_of_the_working_folder(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with gossiplog.open("log.db", "topic", signer=signer) as log:
        monkeypatch.chdir(tmp_path / "folder")
        log.append("first")


@pytest.mark.slow
def test_the_write_ahead_log_is_kept_short(storage: SQLiteStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 19, 6: it grew to 133 MB under steady readers, and stayed so. Its own checkpoints do not shorten it."""
    monkeypatch.setattr(checkpoints, "_LOG_BYTES", 100_000)
    monkeypatch.setattr(checkpoints, "_READERS_MILLISECONDS", 1)
    monkeypatch.setattr(checkpoints, "_LONG_READERS_MILLISECONDS", 1)
    monkeypatch.setattr(checkpoints, "_RETRY_SECONDS", 0.0)
    wal = path.with_name("log.db-wal")
    writing = SQLiteStorage(path)
    with gossiplog.open(writing, signer=Signer(bytes(32))) as log:
        with storage.reader() as reader:
            assert reader.position().count == 0
            # It cannot begin anew under a reader, who holds appends up for a moment only.
            for _ in range(5):
                log.append_many(["x" * 1_000] * 100)
            assert wal.stat().st_size > 500_000
            assert reader.position().count == 0
        log.append_many(["x"] * 100)
        assert wal.stat().st_size == 0
        with writing.transaction() as transaction:
            assert transaction.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
        for _ in range(400):
            log.append("x" * 1_000)
            assert wal.stat().st_size < 400_000


def test_the_write_ahead_log_is_short_under_steady_readers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reads at any time: each begins before the one before it ends. `benches/write_ahead_log.py` has processes."""
    monkeypatch.setattr(checkpoints, "_LOG_BYTES", 100_000)
    # In vain only if it waited for all, who never end.
    monkeypatch.setattr(checkpoints, "_READERS_MILLISECONDS", 60_000)
    monkeypatch.setattr(checkpoints, "_LONG_READERS_MILLISECONDS", 60_000)
    wal = path.with_name("log.db-wal")

    def reader() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM gossiplog_messages").fetchone()
        return connection

    with gossiplog.open(path, "topic", signer=Signer(bytes(32)), synchronous="off") as log:
        reading = reader()
        for _ in range(3):
            appending = threading.Thread(target=log.append_many, args=(["x" * 1_000] * 200,))
            appending.start()
            readers = 0
            while appending.is_alive():
                following = reader()
                reading.close()
                reading = following
                readers += 1
                appending.join(0.01)
            assert reading.in_transaction
            assert wal.stat().st_size == 0
            assert readers > 1
        reading.close()


def test_an_opening_while_the_file_is_replaced_reads_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a repair or a rebase does. SQLite takes such a file for one that cannot be written."""
    path, other = tmp_path / "log.db", tmp_path / "other.db"
    for place, topic in [(path, "former"), (other, "new")]:
        gossiplog.open(place, topic).close()
        with closing(sqlite3.connect(place)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")

    class Replacing(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "PRAGMA journal_mode = WAL" and other.exists():
                other.replace(path)
            return super().execute(sql, *parameters)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Replacing))
    with gossiplog.open(path) as log:
        assert log.topic == "new"
        log.append(1, signer=Signer(bytes(32)))


def test_keys_of_a_damaged_tree_divide_a_range(path: Path) -> None:
    """One that is smaller than those before it stood among them, so that two parts had the same messages."""
    with gossiplog.open(path, "topic", signer=Signer(bytes(32)), synchronous="off") as log:
        log.append_many(range(600))
    with closing(sqlite3.connect(path)) as connection:
        key = SQLiteReader(connection).split_keys(b"", None, 1000)[3]
        connection.execute("PRAGMA journal_mode = DELETE")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'gossiplog_tree'").fetchone()
    content = bytearray(path.read_bytes())
    at = content.index(key, (root - 1) * 4096, root * 4096)
    content[at : at + 8] = bytes(8)
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as connection:
        found = SQLiteReader(connection).split_keys(b"", None, 1000)
    assert found == sorted({*found})
    assert len(found) > 2
