"""What can be read of a damaged SQLite file, and how another file takes its place.

Everything here works on bytes and on copies: SQLite writes to none of a log's own files. They change once, when a file
that is complete takes the place of the log.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

from gossiplog.errors import StorageError
from gossiplog.files import explain_denial
from gossiplog.storage.base import PREFIX
from gossiplog.storage.sqlite import write_ahead_log
from gossiplog.storage.sqlite.files import DAMAGED_SUFFIX, distrust
from gossiplog.storage.sqlite.meta import new_meta
from gossiplog.storage.sqlite.pages import Pages, initial_settings, page_size, restored_header
from gossiplog.storage.sqlite.replacement import put_in_place
from gossiplog.storage.sqlite.tables import TABLES, TableStatement, integrity_problems

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_META = frozenset({"schema", "topic", "applied", "indexed", "origins", *new_meta()})
# A damaged schema is compared with the statements of a log's tables: so many characters may differ.
_FLIPPED = 2
# Bytes of a file in which these are looked for: names of tables in the first page, and of a setting in another.
_SEARCHED = 16 * 2**20
_TRACES = (PREFIX.encode(), b"index_fingerprint")
# By the kind of a working folder: what it is for, and how to do without it.
_KINDS = {
    "repair": ("repair", "repair a copy in another folder"),
    "recover": ("recovery", "name another NEW"),
}


def leftovers(path: Path) -> list[Path]:
    """Return the folders beside a log that killed repairs and recoveries have left; running ones hold theirs locked."""
    found = []
    for kind in _KINDS:
        for folder in _folders(path, kind):
            # It is in use, is no folder, or is another user's, who may be using it.
            with suppress(OSError):
                os.close(_lock(folder))
                found.append(folder)
    return sorted(found)


def _folders(path: Path, kind: str) -> Iterator[Path]:
    return path.parent.glob(f"{glob.escape(_prefix(path, kind))}*")


def _prefix(path: Path, kind: str) -> str:
    """Return how the names of the folders of a kind beside a log begin."""
    return f"{path.name}.{kind}-"


def _lock(folder: Path) -> int:
    """Return a descriptor that holds a folder locked until it is closed.

    Raises:
        OSError: a process has locked it, or it cannot be opened.
    """
    # Windows has no such module.
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make_locked(path: Path, kind: str) -> tuple[Path, int]:
    """Make a folder beside a log; return it with a descriptor that holds it locked.

    Raises:
        OSError: none can be made.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(path, kind), dir=path.parent))
        # Until it is locked, another run takes it for what a killed one has left.
        with suppress(BlockingIOError, FileNotFoundError):
            descriptor = _lock(folder)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


@contextmanager
def working_folder(path: Path, kind: Literal["repair", "recover"]) -> Iterator[Path]:
    """Provide a folder beside a log for a block, and remove those of its kind that nobody is in.

    Args:
        path: the log's file.
        kind: what the folder is for.

    Raises:
        StorageError: no folder can be made there.
    """
    for leftover in _folders(path, kind):
        with suppress(OSError):
            descriptor = _lock(leftover)
            shutil.rmtree(leftover, ignore_errors=True)
            os.close(descriptor)
    try:
        folder, descriptor = _make_locked(path, kind)
    except OSError as error:
        what, elsewhere = _KINDS[kind]
        reason, way_back = error.strerror, "free space there"
        if isinstance(error, PermissionError):
            reason, way_back = explain_denial(path.parent, "write to"), "change that"
        elif isinstance(error, FileNotFoundError):
            reason, way_back = f"there is no folder {path.parent}", "make it"
        raise StorageError(
            f"cannot make a folder for the {what} beside {path}: {reason}; {way_back}, or {elsewhere}"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def has_traces(path: Path) -> bool:
    """Return whether a file has, near its beginning, what every log has, and hardly another file."""
    with path.open("rb") as file:
        start = file.read(_SEARCHED)
    return any(trace in start for trace in _TRACES)


@dataclass(frozen=True, slots=True)
class Salvage:
    """A database in which every table can be read.

    Attributes:
        path: of it.
        problems: what SQLite finds wrong with the damaged one.
        lost: what of the application's tables could not be read.
        lost_tables: the names of tables that lack rows, or have damaged ones; None where not even their names can be
            read.
        missing_pages: how many the damaged one lacks at its end.
        size: of the damaged one with these, in bytes.
    """

    path: Path
    problems: Sequence[str] = ()
    lost: Sequence[str] = ()
    lost_tables: Collection[str] | None = ()
    missing_pages: int = 0
    size: int = 0


def read_all(copy: Path, folder: Path) -> Salvage:
    """Return a database in which every table can be read, as far as a copy of a damaged one gets.

    Args:
        copy: of the damaged database; it may be changed.
        folder: for another file.

    Returns:
        The copy, or another file.
    """
    header, restored = restored_header(copy)
    if restored != header:
        with copy.open("r+b") as file:
            file.write(restored)
    problems = _integrity(copy)
    if not problems:
        return Salvage(copy)
    readable = folder / "readable.db"
    with closing(sqlite3.connect(readable, isolation_level=None)) as database:
        distrust(database)
        database.execute("PRAGMA synchronous = OFF")
        for pragma in initial_settings(restored):
            database.execute(pragma)
        database.execute("BEGIN")
        _read_log_rows(copy, database)
        lost, lost_tables = _copy_foreign_tables(copy, database, problems)
        database.execute("COMMIT")
    with closing(Pages(copy)) as pages:
        missing = pages.missing(header)
        size = pages.length + missing * page_size(header)
    return Salvage(readable, problems, lost, lost_tables, missing, size)


def _read_log_rows(copy: Path, database: sqlite3.Connection) -> None:
    """Write what looks like the rows of a log to tables without the conditions of a log's."""
    database.execute("CREATE TABLE gossiplog_messages(seq INTEGER, links BLOB, value BLOB)")
    database.execute("CREATE TABLE gossiplog_leaves(key BLOB, hash BLOB, seq INTEGER)")
    database.execute("CREATE TABLE gossiplog_meta(name TEXT PRIMARY KEY, value)")
    with closing(Pages(copy)) as pages:
        for rowid, values in pages.rows():
            match values:
                case [None, bytes(links), bytes(value)] if rowid is not None:
                    database.execute("INSERT INTO gossiplog_messages VALUES (?, ?, ?)", (rowid, links, value))
                case [bytes(key), bytes(hash), int(sequence)] if rowid is None:
                    database.execute("INSERT INTO gossiplog_leaves VALUES (?, ?, ?)", (key, hash, sequence))
                case [str(name), (str() | int()) as setting] if rowid is None and name in _META:
                    database.execute("INSERT OR IGNORE INTO gossiplog_meta VALUES (?, ?)", (name, setting))


def _copy_foreign_tables(
    copy: Path, database: sqlite3.Connection, problems: Sequence[str]
) -> tuple[list[str], set[str] | None]:
    """Copy an application's tables, from both ends to where they cannot be read; return what is lost, and of which.

    Args:
        copy: of the damaged database.
        database: to copy to.
        problems: that SQLite finds. The copy has indexes of its own, which would fit rows that are damaged.
    """
    lost: list[str] = []
    tables: set[str] = set()
    with closing(sqlite3.connect(copy, isolation_level=None)) as damaged:
        damaged.execute("PRAGMA query_only = ON")
        damaged.execute("PRAGMA writable_schema = ON")
        # A type that is no text is that of an automatic index, which its table makes.
        query = f"{_SCHEMA} WHERE sql IS NOT NULL"
        try:
            schema = _twice(damaged, query)
        except (sqlite3.Error, UnicodeError) as error:
            return [f"the application's tables cannot be read: {error}"], None
        rows = [row for row in schema if not str(row[2]).lower().startswith(PREFIX)]
        of_index = dict(_twice(damaged, "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'index'"))
        for kind, name, _, sql in sorted(rows, key=lambda row: row[0] != "table"):
            try:
                if str(sql).upper().startswith("CREATE VIRTUAL"):
                    raise sqlite3.NotSupportedError("a virtual table")
                # What is no text is no statement, and is named as lost.
                database.execute(str(sql))
                if kind == "table" and not _copy_rows(damaged, database, quoted(str(name))):
                    lost.append(f"rows of the table {name} cannot be read, and are lost")
                    tables.add(str(name))
            except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
                lost.append(f"the {kind} {name} cannot be read: {error}")
                if kind == "table":
                    tables.add(str(name))
    names = {str(name): str(name) for kind, name, *_ in rows if kind == "table"}
    names |= {str(index): str(table) for index, table in of_index.items() if str(table) in names}
    for table in sorted(_tables_named(problems, names) - tables):
        lost.append(f"rows of the table {table} are damaged, or an index of it is, and nothing says which")
        tables.add(table)
    return lost, tables


def _tables_named(problems: Sequence[str], names: Mapping[str, str]) -> set[str]:
    """Return the tables whose rows do not fit an index or a condition.

    Args:
        problems: as `PRAGMA integrity_check` describes them.
        names: the tables by their names and by those of their indexes.
    """
    texts = "\n".join(problems)
    fits = {name: rf"(?:(?:from|in) index|in) {re.escape(name)}(?:\.|$)" for name in names}
    return {names[name] for name, fit in fits.items() if re.search(fit, texts, re.MULTILINE)}


def _copy_rows(damaged: sqlite3.Connection, database: sqlite3.Connection, table: str) -> bool:
    """Copy the rows of a table; return whether all of them could be read."""
    columns = len(damaged.execute(f"SELECT * FROM {table} LIMIT 0").description)
    insert = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * columns)})"
    try:
        database.executemany(insert, damaged.execute(f"SELECT * FROM {table}"))
    except (sqlite3.DatabaseError, UnicodeError):
        with suppress(sqlite3.DatabaseError, UnicodeError):
            database.executemany(insert, damaged.execute(f"SELECT * FROM {table} ORDER BY rowid DESC"))
        return False
    return True


def _twice(database: sqlite3.Connection, query: str) -> list[Any]:
    """Execute a query; again where the first one fails because some of the schema cannot be read: it was left out."""
    try:
        return database.execute(query).fetchall()
    except sqlite3.Error:
        return database.execute(query).fetchall()


def _integrity(copy: Path) -> list[str]:
    """Return what SQLite finds wrong, after the names and statements of the log's tables were set right."""
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            _restore_schema(database)
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            distrust(database)
            found = integrity_problems(database)
            database.execute(_SCHEMA).fetchall()
            for name in table_names(database):
                # What it does not look at: text that is none.
                database.execute(f"SELECT count(*) FROM {quoted(name)}")
    except (sqlite3.Error, UnicodeError) as error:
        return [str(error)]
    return found


def _restore_schema(database: sqlite3.Connection) -> None:
    """Set right the names and the statements of a log's tables, which are known."""
    database.execute("PRAGMA writable_schema = ON")
    query = "SELECT rowid, CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB) FROM"
    rows = _twice(database, f"{query} sqlite_schema")
    wrong = []
    for rowid, *found in rows:
        for statement in TABLES:
            known = astuple(TableStatement.of(statement))
            expected = [text.encode() for text in known]
            if found != expected and sum(map(_distance, found, expected)) <= _FLIPPED:
                wrong.append((*known, rowid))
    if wrong:
        database.executemany(
            "UPDATE sqlite_schema SET type = ?, name = ?, tbl_name = ?, sql = ? WHERE rowid = ?", wrong
        )


def _distance(found: bytes | None, expected: bytes) -> int:
    """Return in how many bytes two texts of one length differ."""
    if found is None or len(found) != len(expected):
        return _FLIPPED + 1
    return sum(one != other for one, other in zip(found, expected, strict=True))


def table_names(database: sqlite3.Connection) -> list[str]:
    """Return the names of the tables that hold rows of their own."""
    return [
        name
        for name, sql in database.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
        if not name.startswith("sqlite_") and not str(sql).upper().startswith("CREATE VIRTUAL")
    ]


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def take_place(new: Path, path: Path, descriptor: int, merged: Path) -> Path:
    """Put a complete file in the place of a damaged database, which is kept under another name beside it.

    A kill at any point leaves the old database or the new one under its name, whole.

    Args:
        new: the file, in the same file system, closed.
        path: of the database.
        descriptor: of the database, which this process has locked.
        merged: a copy of the database with what was committed to its write-ahead log.

    Returns:
        The path of the former database.

    Raises:
        StorageError: the file system failed.
    """

    def copy(target: str) -> None:
        with open(target, "wb") as file:
            write_ahead_log.copy_bytes(descriptor, file)

    try:
        write_ahead_log.move_into_database(descriptor, path, merged)
        return Path(put_in_place(str(new), str(path), DAMAGED_SUFFIX, copy))
    except OSError as error:
        raise StorageError(
            f"the repaired log cannot take the place of {path}: {error}. What is there is whole, the damaged log or the"
            " repaired one: repeat the command"
        ) from error
