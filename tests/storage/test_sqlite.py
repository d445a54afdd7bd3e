from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import struct
import threading
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import gossiplog
from benches import write_ahead_log
from gossiplog import (
    CorruptLog,
    LogClosed,
    NewerSchema,
    NotALog,
    OlderSchema,
    Signer,
    SQLiteStorage,
    StorageError,
    core,
)
from gossiplog.storage import sqlite
from gossiplog.storage.base import SCHEMA, Transaction
from gossiplog.storage.sqlite_tables import SQLiteReader, SQLiteTransaction
from tests.storage.damage import damage


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


@pytest.fixture
def application(path: Path) -> Path:
    """An application's database, with a table, and a view that reads it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("INSERT INTO notes VALUES ('mine')")
        connection.execute("CREATE VIEW all_notes AS SELECT * FROM notes")
    return path


def test_an_applications_database_is_no_log_and_stays_as_it_is(application: Path) -> None:
    before = application.read_bytes()
    for topic, create in ((None, True), ("topic", False)):
        with pytest.raises(NotALog, match=r"log\.db holds no log: give a topic to make one in it"):
            SQLiteStorage(application).open(topic, create)
    assert application.read_bytes() == before


def test_a_log_is_made_in_an_applications_database(application: Path) -> None:
    storage = SQLiteStorage(application)
    assert storage.open("topic", True) == "topic"
    with storage.transaction() as transaction, transaction.savepoint():
        transaction.execute("INSERT INTO notes VALUES ('by the log')")
    with closing(sqlite3.connect(application)) as connection, connection:
        connection.execute("INSERT INTO notes VALUES ('beside the log')")
        assert connection.execute("SELECT count(*) FROM all_notes").fetchone() == (3,)
    storage.close()
    assert storage.open(None, False) == "topic"
    assert storage.check() == []
    storage.close()


def test_an_application_makes_its_tables_in_a_log(storage: SQLiteStorage, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")
    storage.close()
    assert storage.open("topic", True) == "topic"
    with storage.transaction() as transaction, transaction.savepoint():
        transaction.execute("INSERT INTO notes VALUES ('by the log')")


@pytest.mark.parametrize(
    "made", ["TABLE gossiplog_heads (key)", "TABLE GossipLog_mine (a)", "VIEW gossiplog_v AS SELECT 1"]
)
def test_the_logs_names_are_not_for_others(path: Path, made: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE {made}")
    before = path.read_bytes()
    with pytest.raises(NotALog, match=r"(?i)log\.db holds no log, but gossiplog_.*: gossiplog repair "):
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
    with pytest.raises(NewerSchema, match=f"schema 99, this one reads {SCHEMA}"):
        SQLiteStorage(path).open(None, False)


@pytest.mark.parametrize("create", [False, True])
def test_an_older_schema_is_refused_and_left_as_it_is(storage: SQLiteStorage, path: Path, create: bool) -> None:
    storage.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 1 WHERE name = 'schema'")
        # As the first layout was.
        connection.execute("DELETE FROM gossiplog_meta WHERE name = 'indexed'")
        before = list(connection.iterdump())
    with pytest.raises(OlderSchema, match=rf"log\.db .* \(schema 1, .* 2 to {SCHEMA}\): move it away, .* anew"):
        SQLiteStorage(path).open("topic", create)
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before


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


@pytest.mark.parametrize("path", ["", "file::memory:", "file:?mode=memory"])
def test_a_location_without_a_file_is_refused(path: str) -> None:
    with pytest.raises(StorageError, match="names no file"):
        SQLiteStorage(path).open("topic", True)


def test_a_location_is_text() -> None:
    with pytest.raises(TypeError, match="text or a path, not bytes"):
        SQLiteStorage(b"log.db")  # type: ignore[arg-type]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no folder .*nowhere; make it first"):
        SQLiteStorage(tmp_path / "nowhere" / "log.db").open("topic", True)


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


def test_what_is_opened_to_be_read_is_not_made(application: Path, path: Path) -> None:
    before = application.read_bytes()
    with pytest.raises(NotALog, match=r"log\.db holds no log$"):
        SQLiteStorage(application, read_only=True).open("topic", True)
    assert application.read_bytes() == before
    path.unlink()
    with pytest.raises(NotALog, match=r"there is no log .*log\.db$"):
        SQLiteStorage(path, read_only=True).open("topic", True)
    assert not path.exists()


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
        with pytest.raises(StorageError, match=f" {what} while the log was open"):
            log.append("more")
    assert len(log) == count
    log._storage._close_idle()
    with pytest.raises(StorageError, match=what):
        len(log)


@pytest.mark.parametrize("name", ["{}", "file:{}", "file://{}?mode=rw", "a link"])
def test_a_file_that_was_deleted_is_not_appended_to(tmp_path: Path, signer: Signer, name: str) -> None:
    path, link = tmp_path / "the log.db", tmp_path / "link.db"
    gossiplog.open(path, "topic").close()
    link.symlink_to(path)
    location = link if name == "a link" else name.format(path if name == "{}" else quote(str(path)))
    with gossiplog.open(location, signer=signer) as log:
        log.append("first")
        moved = path.rename(tmp_path / "moved.db")
        is_missing(log, "was deleted or moved away")
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
    with gossiplog.open(path if by == "a rename" else link, signer=signer) as log:
        log.append("first")
        if by == "a rename":
            other.replace(path)
        else:
            link.unlink()
            link.symlink_to(other)
        is_missing(log, "was replaced by another file")
    with gossiplog.open(path if by == "a rename" else other) as log:
        # SQLite takes a write-ahead log that was left there for the new file's own.
        assert "more" not in [message.payload for message in log]


def test_a_file_is_known_after_a_change_of_the_working_folder(
    tmp_path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with gossiplog.open("log.db", "topic", signer=signer) as log:
        monkeypatch.chdir(tmp_path / "folder")
        log.append("first")


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

        with pytest.raises(StorageError, match="was deleted"):
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


def test_the_write_ahead_log_is_kept_short(storage: SQLiteStorage, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 19, 6: it grew to 133 MB under steady readers, and stayed so. Its own checkpoints do not shorten it."""
    monkeypatch.setattr(sqlite, "_LOG_BYTES", 100_000)
    monkeypatch.setattr(sqlite, "_READERS_MILLISECONDS", 1)
    monkeypatch.setattr(sqlite, "_RETRY_SECONDS", 0.0)
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


@pytest.mark.integration
def test_the_write_ahead_log_is_short_under_steady_readers(tmp_path: Path) -> None:
    """`benches/write_ahead_log.py` measures it for longer."""
    assert max(write_ahead_log.sizes(tmp_path / "log.db", 8, 5)) <= write_ahead_log.LIMIT


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
