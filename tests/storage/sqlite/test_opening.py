from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gossiplog import NewerSchema, NotALog, OlderSchema, SQLiteStorage, StorageError
from gossiplog.storage.base import SCHEMA
from gossiplog.storage.sqlite.opening import Opening


def test_a_missing_file_is_not_made_without_a_topic(path: Path) -> None:
    with pytest.raises(NotALog, match="there is no log"):
        SQLiteStorage(path).open(None, True)
    assert not path.exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_log_that_cannot_be_made_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    """On a full disk it left an empty one, of which commands said that it may have been a log."""
    if is_there:
        path.touch()

    def fill(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Opening, "_create", fill)
    with pytest.raises(StorageError, match="disk is full"):
        SQLiteStorage(path).open("topic", True)
    assert [*path.parent.iterdir()] == ([path] if is_there else [])


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


@pytest.mark.parametrize("path", ["", "file::memory:", "file:?mode=memory"])
def test_a_location_without_a_file_is_refused(path: str) -> None:
    with pytest.raises(StorageError, match="names no file"):
        SQLiteStorage(path).open("topic", True)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no folder .*nowhere; make it first"):
        SQLiteStorage(tmp_path / "nowhere" / "log.db").open("topic", True)


def test_what_is_opened_to_be_read_is_not_made(application: Path, path: Path) -> None:
    before = application.read_bytes()
    with pytest.raises(NotALog, match=r"log\.db holds no log$"):
        SQLiteStorage(application, read_only=True).open("topic", True)
    assert application.read_bytes() == before
    path.unlink()
    with pytest.raises(NotALog, match=r"there is no log .*log\.db$"):
        SQLiteStorage(path, read_only=True).open("topic", True)
    assert not path.exists()
