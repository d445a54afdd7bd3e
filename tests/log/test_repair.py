from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import ApplyTransaction, CorruptLog, Log, SignedMessage, Signer
from gossiplog.errors import NotALog, StorageError, TopicMismatch
from gossiplog.log import repair as repairing
from gossiplog.log.log import replica_of
from gossiplog.log.repair import repair_file as repair
from gossiplog.storage.sqlite import meta
from gossiplog.storage.sqlite.commit_count import CommitCount
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from gossiplog.storage.sqlite.files import file_id, open_status
from tests.damage import TOPIC, Damage, make_damage, make_log, parametrized
from tests.storage.damage import damage as damage_page


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "log.db"
    make_log(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes(text)")
        connection.executemany("INSERT INTO notes VALUES (?)", [(f"note {number}",) for number in range(300)])
        connection.execute("UPDATE gossiplog_meta SET value = 100 WHERE name = 'applied'")
    return path


@pytest.fixture
def path(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(intact, tmp_path / "log.db"))


def contents(path: Path) -> tuple[object, ...]:
    """What a repair keeps: the arrival order, and what belongs to the application."""
    with closing(sqlite3.connect(path)) as connection:
        values = connection.execute("SELECT seq, value FROM gossiplog_messages ORDER BY seq").fetchall()
        notes = connection.execute("SELECT text FROM notes").fetchall()
        meta = connection.execute(
            "SELECT name, value FROM gossiplog_meta WHERE name NOT IN ('indexed', 'index_fingerprint', 'identity',"
            " 'origins')"
        ).fetchall()
    return values, notes, sorted(meta)


@pytest.mark.parametrize("name", ["index_fingerprint", "topic", "identity"])
def test_texts_that_are_no_unicode_are_damage(path: Path, intact: Path, name: str) -> None:
    """Text that is no UTF-8 is replaced: the driver would raise."""
    with closing(sqlite3.connect(path)) as connection, connection:
        changed = connection.execute(
            "UPDATE gossiplog_meta SET value = CAST(CAST(substr(value, 1, 2) AS BLOB) || x'ff' AS TEXT) WHERE name = ?",
            (name,),
        )
        assert changed.rowcount == 1
    repaired = repair(path, intact)
    assert repaired.damaged
    with gossiplog.open(path) as log, gossiplog.open(intact) as sound:
        assert log.verify().root == sound.root


@pytest.mark.slow
def test_a_repaired_log_says_up_to_where_it_has_the_messages_of_the_former_one(path: Path, intact: Path) -> None:
    """A reader goes on after a sequence up to which each message has the same one as before."""
    with closing(sqlite3.connect(path)) as connection, connection:
        former = meta.stored_identity(connection)
        (head,) = connection.execute("SELECT seq FROM gossiplog_heads ORDER BY key LIMIT 1").fetchone()
    with gossiplog.open(intact) as log:
        count = len(log)
    for has in (count, head - 1):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = ?", (head,))
        repair(path, *([intact] if has == count else []), accept_loss=True)
        with closing(sqlite3.connect(path)) as connection:
            assert meta.stored_identity(connection) != former
            assert meta.stored_origins(connection) == ((former, has),)


@parametrized
def test_every_kind_of_damage_is_repaired_from_a_replica(path: Path, intact: Path, damage: Damage) -> None:
    make_damage(path, damage)
    repaired = repair(path, intact)
    assert repaired.damaged
    with gossiplog.open(intact) as sound, gossiplog.open(path) as log:
        assert (log.verify().root, len(log)) == (sound.root, len(sound)) == (repaired.root, repaired.messages)
    values, notes, meta = contents(path)
    assert (values, notes) == contents(intact)[:2]
    if damage.name not in ("cursor above the count", "cursor below 0", "cursor lost", "tables: '[[]]'"):
        assert meta == contents(intact)[2]
    assert repaired.former is not None
    assert Path(repaired.former).exists()
    left = {"log.db", "log.db.damaged", "log.db-wal", "log.db-shm", "log.db-count"}
    assert {file.name for file in path.parent.iterdir()} <= left


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM gossiplog_leaves",
        "DELETE FROM gossiplog_tree",
        "DELETE FROM gossiplog_children",
        "DELETE FROM gossiplog_heads",
        "DELETE FROM gossiplog_alternatives",
        "UPDATE gossiplog_messages SET links = x''",
        "DROP TABLE gossiplog_tree",
    ],
)
def test_what_follows_from_the_messages_needs_no_source(path: Path, intact: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)
    assert repair(path).fetched == 0
    assert contents(path) == contents(intact)
    with gossiplog.open(path) as log:
        log.verify()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE gossiplog_meta SET value = 'x' WHERE name = 'applied'",
        "UPDATE gossiplog_meta SET value = 'x' WHERE name = 'generation'",
        "UPDATE gossiplog_messages SET value = x'00' WHERE seq = 9",
        "UPDATE gossiplog_messages SET seq = 9999 WHERE seq = 300",
        "DELETE FROM gossiplog_heads",
    ],
)
def test_a_damaged_source_serves_what_is_sound_in_it(path: Path, intact: Path, tmp_path: Path, sql: str) -> None:
    source = Path(shutil.copy(intact, tmp_path / "source.db"))
    for place, changes in (
        (source, [sql]),
        (
            path,
            [
                "UPDATE gossiplog_messages SET value = x'00' WHERE seq = 2",
                "DELETE FROM gossiplog_messages WHERE seq = 5",
            ],
        ),
        (path, ["DELETE FROM gossiplog_leaves WHERE seq = 5"]),
    ):
        with closing(sqlite3.connect(place)) as connection, connection:
            for change in changes:
                connection.execute(change)
    repaired = repair(path, source)
    assert repaired.fetched == 2
    with gossiplog.open(intact) as sound, gossiplog.open(path) as log:
        assert log.verify().root == sound.root


@pytest.mark.slow
def test_what_no_source_has_is_named_and_the_log_stays_as_it_was(path: Path, tmp_path: Path) -> None:
    with gossiplog.open(path) as log:
        first = next(log.messages())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE gossiplog_messages SET value = x'00' WHERE seq = (SELECT seq FROM gossiplog_leaves WHERE key = ?)",
            (first.key,),
        )
    before = path.read_bytes()
    other = tmp_path / "other.db"
    with gossiplog.open(other, TOPIC):
        pass
    rotten = Path(shutil.copy(path, tmp_path / "rotten.db"))
    for source, where in (
        (None, "is lost here"),
        (other, "is neither here nor in the source"),
        (rotten, "is lost here, and damaged in the source"),
    ):
        with pytest.raises(CorruptLog, match=f"message {first.id} {where}; the log is as it was"):
            repair(path, source)
        assert path.read_bytes() == before
        assert not list(tmp_path.glob("*.damaged"))


def test_a_sound_log_is_left_as_it_is(path: Path, intact: Path) -> None:
    before = path.read_bytes()
    repaired = repair(path, intact)
    assert (repaired.damaged, repaired.former, path.read_bytes() == before) == ((), None, True)


@pytest.mark.parametrize("table", ["messages", "tree", "leaves", "heads", "meta", "children"])
def test_a_file_that_sqlite_calls_malformed(path: Path, intact: Path, table: str) -> None:
    damage_page(path, f"gossiplog_{table}")
    repaired = repair(path, intact)
    with gossiplog.open(intact) as sound, gossiplog.open(path) as log:
        assert log.verify().root == sound.root == repaired.root
    assert contents(path)[1] == contents(intact)[1]


@pytest.mark.slow
def test_what_sqlite_says_is_one_line_each(path: Path, intact: Path) -> None:
    """`PRAGMA integrity_check` puts a heading and several lines into one row."""
    with path.open("r+b") as file:
        # The number of free pages, of which there are none.
        file.seek(36)
        file.write((3).to_bytes(4))
    with pytest.raises(CorruptLog) as corrupt, gossiplog.open(path, read_only=True) as log:
        log.verify()
    for problems in (corrupt.value.problems, repair(path, intact).damaged):
        said = [problem for problem in problems if problem.startswith("SQLite: ")]
        assert said
        assert not [problem for problem in said if "\n" in problem or "***" in problem]


@pytest.mark.parametrize("offset", [0, 16, 18, 20, 28, 44, 47, 52, 56, 105, 4000])
def test_a_damaged_header(path: Path, intact: Path, offset: int) -> None:
    """The first page has the header of the database and its schema. Before, a schema format that SQLite does not know
    kept a repair from it, and a write version that it does not know was left."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
    repair(path, intact)
    with gossiplog.open(intact) as sound, gossiplog.open(path) as log:
        assert log.verify().root == sound.root
        replica_of(log).try_writing()
    assert contents(path)[1] == contents(intact)[1]


def test_the_type_of_an_automatic_index(tmp_path: Path) -> None:
    """Text that is not UTF-8, which the check of the database passes over: before, the repair ended with its error."""
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes(id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO notes VALUES ('one')")
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32))) as log:
        log.append_many(range(20))
        root = log.root
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET type = CAST(x'696e6465f8' AS TEXT) WHERE name = 'sqlite_autoindex_notes_1'"
        )
    assert repair(path).damaged
    with gossiplog.open(path) as log:
        assert log.verify().root == root
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM notes WHERE id = 'one'").fetchall() == [("one",)]


@pytest.mark.parametrize("pragma", ["encoding = 'UTF-16le'", "auto_vacuum = FULL", "auto_vacuum = INCREMENTAL"])
@pytest.mark.parametrize("offset", [None, 59, 67])
def test_the_settings_of_an_application_s_database(tmp_path: Path, pragma: str, offset: int | None) -> None:
    """Before, its encoding was taken for UTF-8, and then it had no tables; and it was not vacuumed any more."""
    path, source = tmp_path / "log.db", tmp_path / "source.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE notes(text)")
        connection.executemany("INSERT INTO notes VALUES (?)", [("ä" * number,) for number in range(90)])
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32))) as log, gossiplog.open(source, TOPIC) as other:
        log.append_many(range(60))
        other.pull(log)
        root = log.root
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 20")
        settings = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("encoding", "auto_vacuum")]
        connection.execute("PRAGMA journal_mode = DELETE")
    if offset is not None:
        content = bytearray(path.read_bytes())
        content[offset] ^= 1
        path.write_bytes(content)
    assert repair(path, source).root == root
    with closing(sqlite3.connect(path)) as connection:
        found = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("encoding", "auto_vacuum")]
        assert connection.execute("SELECT text FROM notes").fetchall() == [("ä" * number,) for number in range(90)]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    if offset != 67:
        assert found == settings


@pytest.mark.parametrize("part", [0.1, 0.3, 0.6, 0.9])
def test_a_file_that_was_cut_off(path: Path, intact: Path, part: float) -> None:
    """Before, what was left of it, or nothing, was taken for the log where no replica was named."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(int(size * part))
    cut = path.read_bytes()
    with pytest.raises(CorruptLog, match=r"--from SOURCE") as refused:
        repair(path)
    assert any("lost" in problem for problem in refused.value.problems)
    assert path.read_bytes() == cut
    with gossiplog.open(intact) as sound:
        assert repair(path, intact).root == sound.root


@pytest.mark.parametrize("bit", [0, 1, 4, 8, 12, 28])
def test_a_damaged_count_of_pages_is_no_loss(path: Path, intact: Path, bit: int) -> None:
    """Before, the pages that it counted beyond the end of the file were taken for lost ones."""
    damage_page(path, "gossiplog_tree")
    content = bytearray(path.read_bytes())
    content[28:32] = (int.from_bytes(content[28:32]) ^ 1 << bit).to_bytes(4)
    path.write_bytes(content)
    with gossiplog.open(intact) as sound:
        assert repair(path).root == sound.root


@pytest.mark.parametrize("more", [1, 50])
def test_a_damaged_count_of_the_index_is_no_loss(path: Path, intact: Path, more: int) -> None:
    """Before, messages that it counted beyond those of the log and of a complete replica were taken for lost ones."""
    damage_page(path, "gossiplog_tree")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = value + ? WHERE name = 'indexed'", (more,))
    # Without one, they may be lost without a trace.
    with pytest.raises(CorruptLog, match=f"{more} messages? (is|are) lost, and not even"):
        repair(path)
    with gossiplog.open(intact) as sound:
        repaired = repair(path, intact)
        assert repaired.root == sound.root
    assert any("may hide messages" in note for note in repaired.notes)


@pytest.mark.parametrize("named", [False, True], ids=["no source", "source"])
def test_a_count_of_the_index_that_no_file_of_the_size_reaches(path: Path, intact: Path, named: bool) -> None:
    """Before, the messages up to that count were taken for lost ones."""
    damage_page(path, "gossiplog_tree")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = value + 1099511627776 WHERE name = 'indexed'")
    with gossiplog.open(intact) as sound:
        assert repair(path, intact if named else None).root == sound.root


def test_what_is_left_of_a_file_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32)), synchronous="off") as log:
        log.append_many(range(400))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 3 // 4)
    with pytest.raises(CorruptLog, match=r"lost.*--from SOURCE") as raised:
        repair(path)
    left = repair(path, accept_loss=True)
    assert 0 < left.messages < 400
    assert f"--accept-loss goes on with {left.messages} messages" in raised.value.advice
    assert any("as was accepted" in note for note in left.notes)


def test_a_lost_message_is_known_by_the_hash_of_its_leaf(path: Path, intact: Path) -> None:
    """Before, where its key was damaged as well, a message was asked for that no replica has."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = 20")
        connection.execute(
            "UPDATE gossiplog_leaves SET key = CAST(substr(key, 1, 10) || zeroblob(10) AS BLOB) WHERE seq = 20"
        )
    repaired = repair(path, intact)
    assert (repaired.fetched, repaired.moved, repaired.notes) == (1, 0, ())
    assert contents(path) == contents(intact)


@pytest.mark.slow
def test_a_lost_message_that_no_other_descends_from(path: Path, intact: Path, tmp_path: Path) -> None:
    with gossiplog.open(path) as log:
        head = log.heads[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        (sequence,) = connection.execute("SELECT seq FROM gossiplog_heads ORDER BY key LIMIT 1").fetchone()
        connection.execute("UPDATE gossiplog_messages SET value = x'00' WHERE seq = ?", (sequence,))
    assert sequence
    with pytest.raises(CorruptLog, match=rf"message {head} is lost here") as raised:
        repair(path)
    repaired = repair(path, accept_loss=True)
    assert f"--accept-loss goes on with {repaired.messages} messages" in raised.value.advice
    with gossiplog.open(intact) as sound:
        assert repaired.messages == len(sound) - 1
    assert f"message {head} is lost here, as was accepted" in repaired.notes


@pytest.mark.parametrize(("offset", "problem"), [(18, "must not write"), (47, "file format"), (52, "automatically")])
def test_a_damaged_header_is_not_written_upon(path: Path, offset: int, problem: str) -> None:
    """Before, the errors were no CorruptLog, and SQLite took the second page for one that it has in such databases."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
    with pytest.raises(CorruptLog, match=problem), gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("more")


def crashed(folder: Path) -> tuple[Path, Path]:
    """Make a log of 50 messages as a crash leaves it, with a write-ahead log; and a sound one."""
    whole, path = folder / "whole.db", folder / "log.db"
    with gossiplog.open(whole, TOPIC, signer=Signer(bytes(32))) as log:
        for number in range(50):
            log.append(number)
        for suffix in ("", "-wal"):
            shutil.copy(f"{whole}{suffix}", f"{path}{suffix}")
    return path, whole


def flip_in_the_midst(path: Path) -> None:
    wal = bytearray(Path(f"{path}-wal").read_bytes())
    wal[len(wal) // 2] ^= 1
    Path(f"{path}-wal").write_bytes(wal)


def test_what_is_behind_damage_in_the_write_ahead_log(tmp_path: Path) -> None:
    """SQLite reads it up to the first wrong checksum, and would drop the rest."""
    path, whole = crashed(tmp_path)
    flip_in_the_midst(path)
    repaired = repair(path, whole)
    with gossiplog.open(whole) as log:
        assert (repaired.root, repaired.messages) == (log.root, 50)
    assert any("write-ahead log" in problem for problem in repaired.damaged)
    assert repaired.fetched <= 1


def test_mistakes(path: Path, tmp_path: Path) -> None:
    make_damage(path, Damage("", ["DELETE FROM gossiplog_heads"], "", None))
    with pytest.raises(NotALog, match="there is no log"):
        repair(tmp_path / "none.db")
    other = tmp_path / "other.db"
    with gossiplog.open(other, "org.example.other"):
        pass
    with pytest.raises(TopicMismatch, match="the source has the topic 'org"):
        repair(path, other)
    plain = tmp_path / "plain.db"
    with closing(sqlite3.connect(plain)) as connection, connection:
        connection.execute("CREATE TABLE notes(text)")
    with pytest.raises(NotALog, match="nothing of a log is left"):
        repair(plain, other)
    text = tmp_path / "text.db"
    text.write_text("no database\n" * 1000)
    with pytest.raises(NotALog):
        repair(text, other)


def test_a_function_brings_what_is_lost(path: Path, intact: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq IN (7, 20, 21)")

    assert repair(path, lambda log: log.pull(intact)).fetched == 3
    assert contents(path) == contents(intact)


def setup(transaction: ApplyTransaction) -> None:
    transaction.execute("DROP TABLE IF EXISTS notes")
    transaction.execute("CREATE TABLE notes(text)")


def apply(message: SignedMessage, transaction: ApplyTransaction) -> None:
    transaction.execute("INSERT INTO notes VALUES (?)", (f"{message.payload:100}",))


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with the table of an `apply`, and one that the application has filled otherwise."""
    path = tmp_path_factory.mktemp("applied") / "log.db"
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32)), apply=apply, setup=setup) as log:
        log.append_many(range(300))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE own AS SELECT text FROM notes")
    return path


@pytest.mark.parametrize("table", ["notes", "own", "sqlite_schema"])
def test_tables_of_an_application_that_lost_rows_are_built_anew(applied: Path, tmp_path: Path, table: str) -> None:
    """Issue 19: the loss was said once, nothing was behind, and the application went on with 118 of 1,800 rows."""
    path = Path(shutil.copy(applied, tmp_path / "my log.db"))
    if table == "sqlite_schema":
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * 100 + path.read_bytes()[200:])
    else:
        damage_page(path, table)
    repaired = repair(path, applied)
    assert repaired.messages == 300
    is_requested = table != "own"
    assert any("tables is requested" in note for note in repaired.notes) == is_requested
    with gossiplog.open(path) as log:
        assert log.info().rebuild_requested == is_requested
    with gossiplog.open(path, apply=apply, setup=setup), closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(DISTINCT text) FROM notes").fetchone() == (300,)


@pytest.mark.parametrize("table", ["notes", "own"])
@pytest.mark.parametrize("by", ["index", "condition"])
def test_rows_that_do_not_fit_an_index_or_a_condition_are_named_and_built_anew(
    applied: Path, tmp_path: Path, table: str, by: str
) -> None:
    """Issue 19: repair built the index anew, for a row in which a bit was flipped, and nothing named the row."""
    path = Path(shutil.copy(applied, tmp_path / "log.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        if by == "condition":
            checked = f"CREATE TABLE {table}(text CHECK (text <> 'other'))"
            connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (checked, table))
        else:
            connection.execute(f"CREATE INDEX by_text ON {table}(text)")
            (row,) = connection.execute("SELECT * FROM sqlite_schema WHERE name = 'by_text'")
            connection.execute("DELETE FROM sqlite_schema WHERE name = 'by_text'")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET text = 'other' WHERE rowid = 7")
        connection.execute("PRAGMA writable_schema = ON")
        if by == "index":
            connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)

    notes = repair(path).notes
    assert f"rows of the table {table} are damaged, or an index of it is, and nothing says which" in notes
    with gossiplog.open(path) as log:
        assert log.info().rebuild_requested == (table == "notes")


@pytest.mark.parametrize(
    ("name", "value"), [("applied", "x"), ("applied", 9999), ("tables", "x"), ("tables", "[[]]"), ("tables", None)]
)
@pytest.mark.parametrize("lacks_rows", [False, True])
def test_where_what_is_stored_of_apply_is_lost_a_rebuild_is_requested(
    applied: Path, tmp_path: Path, name: str, value: object, lacks_rows: bool
) -> None:
    """Damaged names of tables stayed: the application could not open the log, and a repair found it sound."""
    path = Path(shutil.copy(applied, tmp_path / "log.db"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = ?", (value, name))
    if lacks_rows:
        damage_page(path, "notes")
    assert repair(path).damaged
    with gossiplog.open(path) as log:
        assert log.info().rebuild_requested
    with gossiplog.open(path, apply=apply, setup=setup), closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(DISTINCT text) FROM notes").fetchone() == (300,)
    assert not repair(path).damaged


def test_where_it_is_lost_whether_setup_has_run_the_tables_are_built_anew(applied: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(applied, tmp_path / "log.db"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 2 WHERE name = 'setup'")
        connection.execute("DELETE FROM notes WHERE rowid > 1")
    assert repair(path).damaged
    with gossiplog.open(path, apply=apply, setup=setup), closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (300,)


@pytest.mark.parametrize("count", [b"", bytes(48), "of the former file"])
def test_the_count_beside_a_log_is_its_own_after_a_repair(applied: Path, tmp_path: Path, count: bytes | str) -> None:
    """That of the former file stayed: until the next append, no loss was noticed."""
    path = Path(shutil.copy(applied, tmp_path / "log.db"))
    beside = CommitCount(str(path))
    former = Path(f"{applied}-count").read_bytes() if isinstance(count, str) else count
    if former:
        Path(beside.path).write_bytes(former)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_heads")
    repair(path)
    assert beside.read() == read_identity_and_count(str(path))
    # A sound log has its count set, too, where that says nothing.
    Path(beside.path).write_bytes(bytes(48))
    assert (repair(path).damaged, len(repair(path).notes)) == ((), 0)
    assert beside.read() == read_identity_and_count(str(path))


@pytest.mark.integration
def test_a_log_that_a_program_has_open_is_not_repaired(path: Path, intact: Path) -> None:
    """A lock is the process's: so another process has to have it open."""
    script = "import sys, gossiplog; log = gossiplog.open(sys.argv[1]); print(len(log), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StorageError, match="is open in another program"):
            repair(path, intact)
        other.communicate()
    repair(path, intact)


@pytest.mark.integration
def test_a_second_repair_leaves_the_files_of_the_first(path: Path, intact: Path) -> None:
    """It learns that the log is locked before it removes what killed repairs have left."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_messages WHERE seq = 7")
    status = []

    def fetch(log: Log) -> None:
        pid = os.fork()
        if not pid:
            try:
                repair(path, intact)
            except StorageError:
                os._exit(3)
            os._exit(4)
        status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert Path(replica_of(log).place).exists()
        log.pull(intact)

    assert repair(path, fetch).fetched == 1
    assert status == [3]


@pytest.mark.parametrize("behind", [False, True], ids=["in one file", "with a damaged write-ahead log"])
def test_a_file_system_without_hard_links(tmp_path: Path, behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = crashed(tmp_path)
    if not behind:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM gossiplog_messages WHERE seq = 7")
    else:
        flip_in_the_midst(path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    monkeypatch.setattr(os, "link", refuse)
    repaired = repair(path, whole)
    assert repaired.messages == 50
    with gossiplog.open(path) as log, gossiplog.open(whole) as sound:
        assert log.verify().root == sound.root
    assert repaired.former is not None
    assert Path(repaired.former).exists()


def test_the_owner_stays(path: Path, intact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo gossiplog repair` must not leave a file that its server cannot open. Only root may call chown."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_heads")
    owners = []
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(os, "chown", lambda place, user, group: owners.append((user, group)))
    repair(path, intact)
    assert owners == [(path.stat().st_uid, path.stat().st_gid)]


@pytest.mark.integration
@pytest.mark.parametrize("with_log", [False, True], ids=["in one file", "with a write-ahead log"])
def test_a_kill_at_any_point_leaves_the_old_log_or_the_repaired_one(tmp_path: Path, with_log: bool) -> None:
    """A process ends before every call that changes files, and before the first of several reads of one file."""
    whole, start = tmp_path / "whole.db", tmp_path / "start"
    start.mkdir()
    with gossiplog.open(whole, TOPIC, signer=Signer(bytes(32))) as log:
        log.append_many(range(30))
        root = log.root
        with closing(sqlite3.connect(whole)) as connection:
            if not with_log:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for suffix in ("", "-wal") if with_log else ("",):
                shutil.copy(f"{whole}{suffix}", start / f"log.db{suffix}")
    with closing(sqlite3.connect(start / "log.db")) as connection:
        connection.execute("UPDATE gossiplog_messages SET value = zeroblob(9) WHERE seq = 5")
        connection.commit()
        damaged = {file.name: file.read_bytes() for file in start.iterdir() if not file.name.endswith("-shm")}
    seen = set()
    for step in range(100):
        folder = tmp_path / f"step {step}"
        folder.mkdir()
        for name, content in damaged.items():
            (folder / name).write_bytes(content)
        pid = os.fork()
        if not pid:
            _repair_up_to(folder / "log.db", whole, step)
        _, status = os.waitpid(pid, 0)
        with gossiplog.open(folder / "log.db") as log:
            assert len(log) == 30
            try:
                assert log.verify().root == root
                seen.add("repaired")
            except CorruptLog:
                seen.add("old")
        assert os.waitstatus_to_exitcode(status) in (0, 9)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        # A repair that was killed is in no one's way.
        repair(folder / "log.db", whole)
        assert not list(folder.glob("*.repair-*"))
    assert seen == {"old", "repaired"}
    assert step > 10


def _repair_up_to(path: Path, source: Path, step: int) -> None:
    """Repair a log in a process that ends before the call with this number that changes a file's name or place.

    Reads of one file that follow each other are one call: the files are the same before each.
    """
    calls = iter(range(step))
    last: object = None

    def counted(name: str) -> None:
        own = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            nonlocal last
            former, last = last, (name, arguments[0])
            if (name != "pread" or last != former) and next(calls, None) is None:
                os._exit(9)
            return own(*arguments, **named)

        setattr(os, name, call)

    for name in ("replace", "link", "unlink", "fsync", "mkdir", "pread"):
        counted(name)
    status = 1
    try:
        repair(path, source)
        status = 0
    finally:
        os._exit(status)


def test_a_write_ahead_log_that_is_no_file_is_not_waited_for(path: Path) -> None:
    os.mkfifo(f"{path}-wal")
    for way_back in (repair, lambda damaged: gossiplog.recover(damaged, f"{damaged}.new")):
        with pytest.raises(StorageError, match="is a named pipe, where SQLite keeps a file"):
            way_back(path)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (sqlite3.OperationalError("database or disk is full"), "database or disk is full"),
    ],
)
def test_a_repair_on_a_full_disk_says_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """It said "[Errno 28]", or ended with a traceback."""
    path = tmp_path / "log.db"
    with gossiplog.open(path, "topic", signer=Signer(bytes(32))) as log:
        log.append_many(range(3))
    before = path.read_bytes()

    def fail(*_: object) -> object:
        raise error

    monkeypatch.setattr(repairing, "_diagnose", fail)
    with pytest.raises(StorageError, match=rf"cannot repair .*log.db: {said}; the log is as it was. .*: make room, or"):
        repair(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if file.is_dir()] == []


@pytest.mark.parametrize("left", [None, b"", b"SQLite"])
@pytest.mark.parametrize("lacking", [0, 7])
def test_a_log_of_which_only_the_count_is_left(tmp_path: Path, left: bytes | None, lacking: int) -> None:
    """Issue 19: the way that was advised removed the count, which alone says how many messages a replica lacks."""
    path, source = tmp_path / "log.db", tmp_path / "source.db"
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32))) as log:
        log.append_many(range(30))
        messages = list(log.messages())
    with gossiplog.open(source, TOPIC) as replica:
        replica.insert_many(messages[: 30 - lacking])
        root = replica.root
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    # In programs as by the command, nothing else makes a log there.
    for way_back in (gossiplog.open, gossiplog.repair, lambda file: gossiplog.recover(file, tmp_path / "new.db")):
        with pytest.raises(CorruptLog, match="says that a log with 30 messages was there") as raised:
            way_back(path)
        assert raised.value.run == f"gossiplog repair {path} --from SOURCE"
    if lacking:
        with pytest.raises(
            CorruptLog, match=r"7 messages are lost here and in the source.* --accept-loss goes on with"
        ):
            gossiplog.repair(path, source)
        assert (path.read_bytes() if path.exists() else None) == left
    repaired = gossiplog.repair(path, source, accept_loss=lacking > 0)
    assert (repaired.messages, repaired.fetched, repaired.root) == (30 - lacking, 30 - lacking, root)
    assert any("7 messages are lost" in note for note in repaired.notes) == (lacking > 0)
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("goes on")
        assert log.verify().messages == 31 - lacking


def test_a_repair_by_a_function_needs_the_topic(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, TOPIC, signer=Signer(bytes(32))) as log:
        log.append(1)
    path.unlink()
    with pytest.raises(NotALog, match="nor its topic: gossiplog sync NEW SOURCE --topic TOPIC"):
        repair(path, lambda log: None)
    assert not path.exists()


def test_an_error_that_is_kept_does_not_keep_the_file_open(path: Path) -> None:
    """A repair was refused: this process seemed to have the former file open, by an opening that had failed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE other(text UNIQUE)")
    content = path.read_bytes()
    assert b"indexsqlite_autoindex" in content
    path.write_bytes(content.replace(b"indexsqlite_autoindex", b"inde\xf8sqlite_autoindex"))
    file = file_id(str(path))
    assert file is not None
    with pytest.raises(CorruptLog, match="Could not decode"):
        gossiplog.open(path)
    assert open_status(file) is None
