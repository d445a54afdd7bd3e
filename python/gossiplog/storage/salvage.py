"""What can be read of a damaged SQLite file, and how another file takes its place.

Everything here works on bytes and on copies: SQLite writes to none of a log's own files. They change once, when a file
that is complete takes the place of the log.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from gossiplog.errors import StorageError
from gossiplog.storage.pages import Pages, mended_header, page_size
from gossiplog.storage.sqlite_tables import PREFIX, TABLES, new_meta

LEFTOVER = ".repair-"
"""What follows a log's name in that of the folder in which it is repaired; a repair that was killed leaves it."""

# Where SQLite locks a database (https://sqlite.org/src/file/src/os.h, "PENDING_BYTE"): a connection to one with a
# write-ahead log holds a read lock on the shared range for as long as it is open.
_SHARED_FIRST = 0x40000002
_SHARED_SIZE = 510
_CHUNK = 2**20
# https://sqlite.org/fileformat2.html, "WAL File Format"
_WAL_HEADER = 32
_FRAME_HEADER = 24
_HEADER = 100
_META = frozenset({"schema", "topic", "applied", "indexed", *new_meta()})
# A damaged schema is compared with the statements of a log's tables: so many characters may differ.
_FLIPPED = 2


@contextmanager
def locked_alone(path: Path) -> Iterator[int]:
    """Keep all programs from a database for a block.

    The block must not open the file by its path: when a process closes a file, its locks on it end.

    Args:
        path: of the file.

    Yields:
        A descriptor of the file.

    Raises:
        StorageError: a program has it open, or this user may not write to it.
    """
    # Windows has no such module.
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError as error:
        raise StorageError(f"cannot repair {path}: {error.strerror}") from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError as error:
            raise StorageError(
                f"cannot repair {path}: a program has it open; end it, as a server of it, and repeat the command"
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


def is_open_elsewhere(path: Path) -> bool | None:
    """Return whether another program has a database open; None where this user may not find out."""
    try:
        with locked_alone(path):
            return False
    except StorageError:
        return True if os.access(path, os.W_OK) else None


def copy_with_log(descriptor: int, path: Path, target: Path) -> None:
    """Copy a database, with what its write-ahead log holds in its place.

    SQLite ends where a checksum of the write-ahead log is wrong, and what was committed after that is lost. Here each
    page is taken over as it stands there, up to the last commit, and its damage is left to the checks of the database.

    Args:
        descriptor: of the database.
        path: of the database.
        target: the copy, to be made.

    Raises:
        StorageError: SQLite has yet to undo a transaction of another kind.
    """
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and journal.stat().st_size:
        raise StorageError(f"{journal} has a transaction to be undone: gossiplog info {path} does that; then repeat")
    with target.open("wb") as copy:
        copy_bytes(descriptor, copy)
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists():
            with wal.open("rb") as log:
                _write_frames(log.read(_WAL_HEADER), log, copy)
        copy.flush()
        os.fsync(copy.fileno())


def copy_bytes(descriptor: int, copy: BinaryIO) -> None:
    """Copy what a descriptor has open."""
    offset = 0
    while chunk := os.pread(descriptor, _CHUNK, offset):
        copy.write(chunk)
        offset += len(chunk)


def _write_frames(header: bytes, log: BinaryIO, copy: BinaryIO) -> None:
    """Write the pages of a write-ahead log to their places, up to its last commit."""
    size = page_size(bytes(16) + header[10:12])
    frames: list[tuple[bytes, int, int, int]] = []
    while len(frame := log.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
        page, pages = int.from_bytes(frame[:4]), int.from_bytes(frame[4:8])
        frames.append((frame[8:16], page, pages, log.tell() - size))
    # Those of an earlier use of the file have other salts. The header's may be what is damaged.
    salts = Counter([header[16:24], *(salt for salt, *_ in frames[:2])])
    salt = salts.most_common(1)[0][0]
    current = [frame for frame in frames if frame[0] == salt]
    commits = [index for index, (_, _, pages, _) in enumerate(current) if pages]
    if not commits:
        return
    current = current[: commits[-1] + 1]
    length = current[-1][2]
    for _, page, _, start in current:
        if 0 < page <= length:
            log.seek(start)
            copy.seek((page - 1) * size)
            copy.write(log.read(size))
    # A damaged length may be anything; SQLite passes over pages that no table has.
    if length * size <= max(os.fstat(copy.fileno()).st_size, 1):
        copy.truncate(length * size)


def unread_commits(path: Path) -> int:
    """Return how many transactions of a write-ahead log SQLite would not read, because a checksum is wrong.

    Args:
        path: of the write-ahead log, which need not exist.
    """
    if not path.exists():
        return 0
    with path.open("rb") as log:
        header = log.read(_WAL_HEADER)
        if len(header) < _WAL_HEADER:
            return 0
        size = page_size(bytes(16) + header[10:12])
        order = ">" if header[3] & 1 else "<"
        checksum = _checksum(header[:24], (0, 0), order)
        sound = checksum == struct.unpack(">II", header[24:32])
        unread = 0
        while len(frame := log.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
            if frame[8:16] != header[16:24]:
                # What an earlier use left, unless it is the damage.
                sound = False
                continue
            if sound:
                checksum = _checksum(frame[:8] + frame[_FRAME_HEADER:], checksum, order)
                sound = checksum == struct.unpack(">II", frame[16:24])
            # The last page of a transaction has the size of the database.
            unread += not sound and any(frame[4:8])
    return unread


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    """Return the checksum of a write-ahead log ("WAL File Format", "Checksum Algorithm")."""
    one, two = before
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def readable(copy: Path, folder: Path) -> tuple[Path, list[str], list[str]]:
    """Return a database in which every table can be read, as far as a copy of a damaged one gets.

    Args:
        copy: of the damaged database; it may be changed.
        folder: for another file.

    Returns:
        The copy, or another file; what SQLite finds wrong with the copy; and what of the application's tables could not
        be read.
    """
    with copy.open("r+b") as file:
        header = file.read(_HEADER)
        mended = mended_header(header, os.fstat(file.fileno()).st_size)
        if mended != header:
            file.seek(0)
            file.write(mended)
    problems = _integrity(copy)
    if not problems:
        return copy, [], []
    recovered = folder / "recovered.db"
    with closing(sqlite3.connect(recovered, isolation_level=None)) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        _recover_log(copy, database)
        lost = _recover_tables(copy, database)
        database.execute("COMMIT")
    return recovered, problems, lost


def _recover_log(copy: Path, database: sqlite3.Connection) -> None:
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


def _recover_tables(copy: Path, database: sqlite3.Connection) -> list[str]:
    """Copy an application's tables, from both ends to where they cannot be read; return what is lost."""
    lost: list[str] = []
    with closing(sqlite3.connect(copy, isolation_level=None)) as damaged:
        damaged.execute("PRAGMA query_only = ON")
        damaged.execute("PRAGMA writable_schema = ON")
        query = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
        try:
            schema = _twice(damaged, query)
        except (sqlite3.Error, UnicodeError) as error:
            return [f"the application's tables cannot be read: {error}"]
        rows = [row for row in schema if not str(row[2]).lower().startswith(PREFIX) and row[3] is not None]
        for kind, name, _, sql in sorted(rows, key=lambda row: row[0] != "table"):
            try:
                if str(sql).upper().startswith("CREATE VIRTUAL"):
                    raise sqlite3.NotSupportedError("a virtual table")
                database.execute(sql)
                if kind == "table" and not _copy_rows(damaged, database, quoted(name)):
                    lost.append(f"rows of the table {name} cannot be read, and are lost")
            except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
                lost.append(f"the {kind} {name} cannot be read: {error}")
    return lost


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
            _mend_schema(database)
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            found = [str(line) for (line,) in database.execute("PRAGMA integrity_check")]
            for name in table_names(database):
                # What it does not look at: text that is none.
                database.execute(f"SELECT count(*) FROM {quoted(name)}")
    except (sqlite3.Error, UnicodeError) as error:
        return [str(error)]
    return [] if found == ["ok"] else found


def _mend_schema(database: sqlite3.Connection) -> None:
    """Set right the names and the statements of a log's tables, which are known."""
    database.execute("PRAGMA writable_schema = ON")
    query = "SELECT rowid, CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB) FROM"
    rows = _twice(database, f"{query} sqlite_schema")
    wrong = []
    for rowid, *found in rows:
        for statement in TABLES:
            kind, name, table = _named(statement)
            expected = [kind.encode(), name.encode(), table.encode(), statement.encode()]
            if found != expected and sum(map(_distance, found, expected)) <= _FLIPPED:
                wrong.append((kind, name, table, statement, rowid))
    if wrong:
        database.executemany(
            "UPDATE sqlite_schema SET type = ?, name = ?, tbl_name = ?, sql = ? WHERE rowid = ?", wrong
        )


def _named(statement: str) -> tuple[str, str, str]:
    """Return what `sqlite_schema` says of a CREATE statement: type, name, and the table's name."""
    _, kind, name, *rest = statement.replace("(", " ").split()
    return kind.lower(), name, rest[1] if kind == "INDEX" else name


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


def foreign_objects(database: sqlite3.Connection) -> list[str]:
    """Return the names of what is in a database beside a log's tables."""
    return [
        name
        for name, table in database.execute("SELECT name, tbl_name FROM sqlite_schema")
        if not str(table).lower().startswith(PREFIX) and not name.startswith("sqlite_")
    ]


def take_place(new: Path, path: Path, merged: Path | None) -> Path:
    """Put a complete file in the place of a database, which is kept under another name beside it.

    A kill at any point leaves the old database or the new one under its name, whole.

    Args:
        new: the file, in the same file system, closed.
        path: of the database, which no program has open.
        merged: a copy of the database with what is in its write-ahead log, where it has one.

    Returns:
        The name under which the old database is kept.
    """
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged{f'-{number}' if number > 1 else ''}")).exists():
        number += 1
    shutil.copystat(path, new)
    _sync(new)
    if merged is not None:
        shutil.copystat(path, merged)
        os.replace(merged, path)
    os.link(path, kept)
    # From here on the database is all in its file, and SQLite would read these beside the new one.
    for companion in ("-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{companion}").unlink(missing_ok=True)
    _sync(path.parent)
    os.replace(new, path)
    _sync(path.parent)
    return kept


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
