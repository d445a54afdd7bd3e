"""The tables of a log in SQLite, and the statements over them.

Statements of one shape have one text, so that the driver's cache of prepared statements holds them all.

In a damaged file a column may be null or of another type, and a search may find the row of another key. So columns are
cast to the types in which they were written, null to what no sound column is: what the core then gets is of the right
type and wrong, which it finds. Columns that are searched by are compared with what was searched for.
"""

from __future__ import annotations

import errno
import os
import re
import reprlib
import sqlite3
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import ge
from typing import Any, Self, TypeAlias

from gossiplog.errors import CorruptLog, StorageError
from gossiplog.reprs import counted
from gossiplog.storage.base import (
    PAGE_BYTES,
    PREFIX,
    SCHEMA,
    ApplicationTables,
    DiskFailure,
    Position,
    Reader,
    ScanColumn,
    divisions,
)
from gossiplog.storage.sqlite.commit_count import COUNT_SUFFIX
from gossiplog.storage.sqlite.files import DAMAGE, error_code
from gossiplog.storage.sqlite.meta import (
    POSITION_ADDED,
    missing_tables,
    read_has_setup,
    read_position,
    read_tables,
    read_text,
)

ALTERNATIVES = (
    "CREATE TABLE gossiplog_alternatives(seq INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE INDEX gossiplog_contents ON gossiplog_alternatives(content, seq)",
)
TABLES = (
    "CREATE TABLE gossiplog_meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # The links come first: they are read alone, and a long value would push what follows it to other pages.
    "CREATE TABLE gossiplog_messages(seq INTEGER PRIMARY KEY, links BLOB NOT NULL, value BLOB NOT NULL)",
    "CREATE TABLE gossiplog_leaves(key BLOB PRIMARY KEY, hash BLOB NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE gossiplog_children(parent INTEGER, child INTEGER, PRIMARY KEY(parent, child)) WITHOUT ROWID",
    "CREATE TABLE gossiplog_heads(key BLOB PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE gossiplog_tree(key BLOB PRIMARY KEY, hash BLOB NOT NULL) WITHOUT ROWID",
    *ALTERNATIVES,
)


def _blob(column: str) -> str:
    """Return the expression of a column of bytes. What is null in a damaged row is empty, as no sound column is."""
    return f"coalesce(CAST({column} AS BLOB), x'')"


def _integer(column: str) -> str:
    """Return the expression of a column of sequences. What is null in a damaged row is 0, which no message has."""
    return f"coalesce(CAST({column} AS INTEGER), 0)"


_KEY, _HASH, _VALUE, _SEQUENCE = _blob("key"), _blob("hash"), _blob("value"), _integer("seq")
_KEY_HASH = f"{_KEY}, {_HASH}"
_SCANNED: Mapping[ScanColumn, str] = {"seq": _SEQUENCE, "key": _KEY, "value": _VALUE}
# By table: a row as text, and the condition of a row that no message leads to.
_STRAYS: Mapping[str, tuple[str, str]] = {
    "messages": ("seq", "seq < 1 OR seq > :count"),
    "leaves": ("lower(hex(key)) || ', ' || seq", "typeof(seq) <> 'integer' OR seq NOT BETWEEN 1 AND :count"),
    "children": (
        "parent || ', ' || child",
        "typeof(parent) <> 'integer' OR typeof(child) <> 'integer' OR parent NOT BETWEEN 1 AND :indexed"
        " OR child NOT BETWEEN 1 AND :indexed",
    ),
    "alternatives": ("seq", "seq < 1 OR seq > :count"),
}
_MOST_STRAYS = 20
# Keys or sequences in one statement.
_CHUNK = 512
# From so many keys on, it pays to ask first whether they are all above those of the log.
_MANY = 16
# Rows that are compared with as many keys: a loop over them takes longer than to read some in vain.
_AT_ONCE = 64
COMPANIONS = ("-wal", "-shm", "-journal")
"""How the names of SQLite's files beside a database end."""
BESIDE = (*COMPANIONS, COUNT_SUFFIX)
"""How the names of all files beside the database of a log end."""
# Nor is it what a log has, whose values are shorter.
_NO_LOG = DAMAGE | {sqlite3.SQLITE_TOOBIG}
_UNKNOWN_FORMAT = "unsupported file format"
# Errors of our own statements over tables of others, or rows that a log does not have.
_MISFITS = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH})
_MISFIT = re.compile(r"^(no such (table|column|index)|table \S+ has|Could not decode to UTF-8)")
# Where SQLite opens files.
_OPENING = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})
# What was written before one of these is not known.
_WRITING = frozenset(
    {
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
    }
)
CLOSE_IN_ORDER = (
    "close the log in the program that has it open (stop the program with Ctrl-C or SIGTERM, not with SIGKILL), which"
    " moves what it has written into the file, or saves it beside the file, and open it again"
)
"""The way back where a write-ahead log was deleted while a program had it open."""
MARKED_READ_ONLY = "its header says that SQLite must not write it"
"""A clause about a file that can be written, and whose header has a write version that SQLite does not know."""
_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_BUSY: "another process did not release its lock in time",
    sqlite3.SQLITE_LOCKED: "another connection did not release its lock in time",
    sqlite3.SQLITE_CANTOPEN: (
        "the file cannot be opened; a log on a read-only file system opens as file:PATH?immutable=1"
    ),
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written, or is full",
    sqlite3.SQLITE_PERM: "access is denied",
}


def is_read_only(error: sqlite3.Error) -> bool:
    """Return whether a file cannot be written; SQLite says the same of one that was replaced since it was opened."""
    return error_code(error) == sqlite3.SQLITE_READONLY and not _is_moved(error)


def _is_moved(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED


def storage_error(place: str, doing: str, error: sqlite3.Error) -> StorageError:
    """Return what to raise for an error of the driver: CorruptLog for a damaged file."""
    # SQLite gives no code of its own to a schema format that it does not know, as a damaged header has.
    if error_code(error) in _NO_LOG or str(error) == _UNKNOWN_FORMAT:
        return CorruptLog([f"cannot {doing} {place}: {error}"])
    if error_code(error) in _MISFITS or _MISFIT.search(str(error)):
        return CorruptLog([f"cannot {doing} {place}: its tables are not those of a log ({error})"])
    cause = _CAUSES.get(error_code(error))
    if error_code(error) in _OPENING and _no_file_can_be_opened():
        cause = "this process has too many files open; raise the limit, as `ulimit -n 65536` does for a shell"
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ:
        # SQLite reads missing bytes of the database itself as zeros: this is the write-ahead log.
        cause = f"its write-ahead log was deleted or cut off, and a program still has the log open; {CLOSE_IN_ORDER}"
    if _is_moved(error):
        cause = "the file was deleted, moved away or replaced meanwhile"
    if cause is not None and doing == "open" and is_read_only(error):
        # A reader needs the files beside the database, and makes them where there are none.
        cause += "; while no program writes to it, it opens as file:PATH?immutable=1"
    is_passing = error_code(error) == sqlite3.SQLITE_IOERR and error.sqlite_errorcode not in _WRITING
    is_passing = is_passing or _is_moved(error)
    kind = DiskFailure if is_passing else StorageError
    # SQLite's own words name no cause, as "disk I/O error"; its code is what a search finds.
    return kind(f"cannot {doing} {place}: {error if cause is None else f'{cause} ({error.sqlite_errorname})'}")


def undecodable(place: str, doing: str, error: UnicodeDecodeError) -> CorruptLog:
    """Return what to raise where SQLite gave the driver text that is not UTF-8, as a damaged name is."""
    return CorruptLog([f"cannot {doing} {place}: a text in it is not UTF-8 ({error})"])


def _no_file_can_be_opened() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


SchemaRow: TypeAlias = tuple[str, str, str | None]
"""What `sqlite_schema` says of something: its type, its name, and its statement, None for indices that SQLite makes."""


@dataclass(frozen=True, slots=True)
class TableStatement:
    """A CREATE statement of this package, and what `sqlite_schema` says of what it makes.

    Attributes:
        kind: "table" or "index".
        name: of what it makes.
        table: the name of the table; for an index, of the one that it is on.
        sql: the statement.
    """

    kind: str
    name: str
    table: str
    sql: str

    @classmethod
    def of(cls, sql: str) -> Self:
        """Return what a statement makes."""
        _, kind, name, *rest = sql.replace("(", " ").split()
        return cls(kind.lower(), name, rest[1] if kind == "INDEX" else name, sql)


def schema_of_log(connection: sqlite3.Connection) -> list[SchemaRow]:
    """Return what bears a log's name in a database, or is about what does. Nothing of it is executed."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    return [
        (kind, name, sql)
        for kind, name, table, sql in rows
        if any(str(each).lower().startswith(PREFIX) for each in (name, table))
    ]


def foreign_objects(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return the types and the names of what is in a database beside a log's tables and their indices."""
    return [
        (str(kind), str(name))
        for kind, name, table in connection.execute("SELECT type, name, tbl_name FROM sqlite_schema")
        if not str(table).lower().startswith(PREFIX) and not str(name).startswith("sqlite_")
    ]


def integrity_problems(connection: sqlite3.Connection) -> list[str]:
    """Return what SQLite finds wrong with a database, one line each.

    Raises:
        sqlite3.Error: it cannot read on.
    """
    found = [line for (text,) in connection.execute("PRAGMA integrity_check") for line in str(text).splitlines()]
    return [line for line in found if line not in ("ok", "*** in database main ***")]


def foreign_tables(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables in a database that are no log's."""
    return [name for kind, name in foreign_objects(connection) if kind == "table"]


def check_tables(found: Sequence[SchemaRow], expected: Sequence[str]) -> None:
    """Refuse everything but the tables that this package makes.

    A stranger's file may have a view without end in place of a table, columns that compute what they hold, or triggers.

    Raises:
        CorruptLog: something else is there, or something is missing.
    """
    statements = {(made.kind, made.name): made.sql for made in map(TableStatement.of, expected)}
    own = {(kind, name): sql for kind, name, sql in found if sql is not None}
    wrong = [(kind, name) for (kind, name), sql in own.items() if statements.get((kind, name)) != sql]
    problems = [f"the {kind} {name} is not one that this package makes" for kind, name in wrong]
    problems += [f"the {kind} {name} is missing" for kind, name in statements if (kind, name) not in own]
    if problems:
        raise CorruptLog(problems)


class SQLiteReader(Reader):
    """Reads what a connection sees."""

    _SCHEMA = SCHEMA
    _LAST_ALTERNATIVE = "(SELECT coalesce(max(seq), 0) FROM gossiplog_alternatives)"
    _ADDED = POSITION_ADDED
    _STRAYS: Sequence[str] = tuple(_STRAYS)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def position(self) -> Position:
        return read_position(self._connection, self._SCHEMA, self._LAST_ALTERNATIVE, self._ADDED)

    def last_sequence(self) -> int:
        """Return the sequence of the last message, 0 in an empty log."""
        (last,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM gossiplog_messages").fetchone()
        return int(last)

    def level1(self, start: bytes = b"", end: bytes | None = None) -> Sequence[tuple[bytes, bytes]]:
        condition, bounds = _all_from_to(start, end)
        return self._connection.execute(
            f"SELECT {_KEY_HASH} FROM gossiplog_tree WHERE {condition} ORDER BY key", bounds
        ).fetchall()

    def index_fingerprint(self) -> str | None:
        # Versions before this one do not write it.
        return read_text(self._connection, "index_fingerprint")

    def leaves(
        self, start: bytes, end: bytes | None, count: int, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        condition, bounds = _from_to(start, end)
        return self._connection.execute(
            f"SELECT {_KEY_HASH} FROM gossiplog_leaves WHERE {condition} AND seq <= ? ORDER BY key LIMIT ?",
            # For SQLite, a limit below 0 is none.
            (*bounds, count, -1 if limit is None else limit),
        ).fetchall()

    def sequences(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        if len(keys) >= _MANY:
            keys = sorted(keys)
            last = self._connection.execute(f"SELECT {_KEY} FROM gossiplog_leaves ORDER BY key DESC LIMIT 1").fetchone()
            if last is None or keys[0] > last[0]:
                return {}
            # As in `values`.
            rows = self._connection.execute(
                f"SELECT key, {_SEQUENCE} FROM gossiplog_leaves WHERE key BETWEEN ? AND ? ORDER BY key",
                (keys[0], keys[-1]),
            )
            with closing(rows):
                while page := rows.fetchmany(_AT_ONCE):
                    if [key for key, _ in page] != keys[len(found) : len(found) + len(page)]:
                        break
                    found.update(page)
            keys = keys[len(found) :]
        found.update(self._look_up("key", _SEQUENCE, "gossiplog_leaves", keys))
        if found and min(found.values()) < 1:
            key = min(found, key=found.__getitem__)
            raise CorruptLog([f"the leaf with the key {key.hex()} has the sequence {found[key]}: expected 1 or more"])
        return found

    def leaf_rows(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        rows = self._look_up("key", f"{_HASH}, {_SEQUENCE}", "gossiplog_leaves", keys)
        return {key: (hash, sequence) for key, hash, sequence in rows}

    def values(self, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
        table = "gossiplog_leaves LEFT JOIN gossiplog_messages USING (seq)"
        condition = "(seq <= ? OR value IS NULL)"
        room = sys.maxsize if limit is None else limit
        found: dict[bytes, bytes] = {}
        if len(keys) >= _MANY:
            # Keys that stand one behind the other, as a sync asks for them, are read in one go up to where they do not.
            rows = self._connection.execute(
                f"SELECT key, {_VALUE} FROM {table} WHERE key BETWEEN ? AND ? AND {condition} ORDER BY key",
                (keys[0], keys[-1], count),
            )
            with closing(rows):
                for wanted, (key, value) in zip(keys, rows, strict=False):
                    if key != wanted:
                        break
                    found[key] = value
                    room -= len(value)
                    if room < 0:
                        return found
        with closing(self._look_up("key", _VALUE, table, keys[len(found) :], f"AND {condition}", (count,))) as rest:
            for key, value in rest:
                found[key] = value
                room -= len(value)
                if room < 0:
                    break
        return found

    def page(
        self, after: bytes | None, before: bytes | None, reverse: bool, limit: int, count: int
    ) -> Sequence[tuple[bytes, bytes, bytes]]:
        condition, bounds = _between(after, before)
        rows = self._connection.execute(
            f"SELECT {_KEY_HASH}, {_VALUE} FROM gossiplog_leaves LEFT JOIN gossiplog_messages USING (seq)"
            # A leaf without its message is damaged, whatever its sequence is.
            f" WHERE {condition} (seq <= ? OR value IS NULL) ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT ?",
            (*bounds, count, limit),
        )
        return _take(rows)

    def scan(
        self, columns: Sequence[ScanColumn], start: bytes, end: bytes | None, count: int
    ) -> AbstractContextManager[Iterator[tuple[Any, ...]]]:
        condition, bounds = _from_to(start, end)
        source = "gossiplog_leaves"
        if "value" in columns:
            source += " LEFT JOIN gossiplog_messages USING (seq)"
        return closing(
            self._connection.execute(
                f"SELECT {', '.join(_SCANNED[column] for column in columns)}"
                f" FROM {source} WHERE {condition} AND seq <= ? ORDER BY key",
                (*bounds, count),
            )
        )

    def split_keys(self, start: bytes, end: bytes | None, parts: int) -> Sequence[bytes]:
        condition, bounds = _from_to(start, end)
        # The anchor is no divider, though its key is in the range of a whole log.
        condition += " AND key > ?"
        (nodes,) = self._connection.execute(
            f"SELECT COUNT(*) FROM gossiplog_tree WHERE {condition}", (*bounds, start)
        ).fetchone()
        wanted = frozenset(divisions(nodes, parts))
        rows = self._connection.execute(
            f"SELECT {_KEY} FROM gossiplog_tree WHERE {condition} ORDER BY key", (*bounds, start)
        )
        with closing(rows):
            found = [key for index, (key,) in enumerate(rows) if index in wanted]
        # In a damaged tree they may not ascend; any that do divide the range.
        ascending = [key for key, greatest in zip(found, accumulate(found, max), strict=True) if key == greatest]
        return [key for key in dict.fromkeys(ascending) if key > start and (end is None or key < end)]

    def number(self, after: bytes | None, before: bytes | None, count: int) -> int:
        condition, bounds = _between(after, before)
        found, strays = self._connection.execute(
            "SELECT count(*) FILTER (WHERE seq <= ?),"
            " count(*) FILTER (WHERE typeof(seq) <> 'integer' OR seq > (SELECT max(seq) FROM gossiplog_messages))"
            f" FROM gossiplog_leaves WHERE {condition} TRUE",
            (count, *bounds),
        ).fetchone()
        if strays:
            raise CorruptLog([f"{counted(strays, 'leaf has', 'leaves have')} the sequence of no message"])
        return int(found)

    def arrivals(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        rows = self._connection.execute(
            f"SELECT seq, {_VALUE} FROM gossiplog_messages WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
        )
        taken = _take(rows)
        sequences = [after, *(sequence for sequence, _ in taken)]
        # A damaged tree of pages may have some of them twice.
        repeats = [*map(ge, sequences, sequences[1:])]
        if True not in repeats:
            return taken
        sound = repeats.index(True)
        if not sound:
            raise CorruptLog([f"behind the sequence {after} SQLite finds the message with {sequences[1]}"])
        return taken[:sound]

    def newest(self) -> tuple[int, bytes] | None:
        row: tuple[int, bytes] | None = self._connection.execute(
            f"SELECT seq, {_VALUE} FROM gossiplog_messages ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return row

    def links(self, sequences: Sequence[int]) -> Sequence[bytes]:
        found = dict(self._look_up("seq", _blob("links"), "gossiplog_messages", sequences))
        try:
            return [found[sequence] for sequence in sequences]
        except KeyError as error:
            raise CorruptLog([f"there is no message with the sequence {error.args[0]}"]) from None

    def children(self, parents: Sequence[int], first: int, last: int) -> Sequence[tuple[int, int]]:
        within = "AND child BETWEEN ? AND ?"
        rows = self._look_up("parent", _integer("child"), "gossiplog_children", parents, within, (first, last))
        return sorted(rows)

    def contents(self, sequences: Sequence[int]) -> dict[int, bytes]:
        return dict(self._look_up("seq", _blob("content"), "gossiplog_alternatives", sequences))

    def alternatives(self, contents: Sequence[bytes]) -> dict[bytes, int]:
        # One look-up in the index for each: grouped, every encoding of a message would be gone through.
        sql = (
            f"WITH wanted(content) AS (VALUES {{}}) SELECT content, (SELECT {_SEQUENCE} FROM gossiplog_alternatives AS"
            " other WHERE other.content = wanted.content ORDER BY other.seq LIMIT 1) FROM wanted"
        )
        with closing(self._statements(sql, contents, placeholder="(?)")) as statements:
            rows = chain.from_iterable(statements)
            found = {content: sequence for content, sequence in rows if sequence is not None}
        if found and min(found.values()) < 1:
            raise CorruptLog(["the index of the alternative encodings has one without a sequence"])
        return found

    def heads(
        self, start: bytes = b"", end: bytes | None = None, limit: int | None = None
    ) -> Sequence[tuple[bytes, int]]:
        condition, bounds = _all_from_to(start, end)
        return self._connection.execute(
            f"SELECT {_KEY}, {_SEQUENCE} FROM gossiplog_heads WHERE {condition} ORDER BY key LIMIT ?",
            (*bounds, -1 if limit is None else limit),
        ).fetchall()

    def application_tables(self) -> ApplicationTables:
        missing = missing_tables(self._connection, read_tables(self._connection))
        return ApplicationTables(read_has_setup(self._connection), sorted(missing))

    def strays(self, position: Position) -> Sequence[tuple[str, str]]:
        sequences = {"count": position.count, "indexed": position.indexed}
        found: list[tuple[str, str]] = []
        for table in self._STRAYS:
            row, condition = _STRAYS[table]
            rows = self._connection.execute(
                f"SELECT CAST(coalesce({row}, 'NULL') AS TEXT) FROM gossiplog_{table}"
                f" WHERE {condition} LIMIT {_MOST_STRAYS}",
                sequences,
            )
            found += [(table, text) for (text,) in rows]
        return found

    def _look_up(
        self,
        column: str,
        columns: str,
        table: str,
        items: Sequence[Any],
        condition: str = "",
        bounds: tuple[Any, ...] = (),
    ) -> Generator[Any, None, None]:
        """Yield the rows of a table that have some item in a column.

        Args:
            column: with the item, the first of a row.
            columns: what else is read of a row.
            table: or a join.
            items: keys or sequences.
            condition: that the rows fulfil besides.
            bounds: its parameters.

        Raises:
            CorruptLog: SQLite found another row, as it may in a damaged tree of pages.
        """
        wanted = frozenset(items)
        sql = f"SELECT {column}, {columns} FROM {table} WHERE {column} IN ({{}}) {condition}"
        # Closed before the connection is, also where a row raises.
        with closing(self._statements(sql, items, bounds)) as statements:
            for row in chain.from_iterable(statements):
                if row[0] not in wanted:
                    found = reprlib.repr(row[0])
                    raise CorruptLog([f"a search for another {column} in {table} finds the row with {found}"])
                yield row

    def _statements(
        self, sql: str, items: Sequence[Any], bounds: tuple[Any, ...] = (), placeholder: str = "?"
    ) -> Generator[sqlite3.Cursor, None, None]:
        """One after the other, each of a statement over some of the items; open until the next one is taken."""
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            # Repeated up to a power of two: ten texts instead of five hundred.
            size = 1 << (len(chunk) - 1).bit_length()
            padded = [*chunk, *[chunk[-1]] * (size - len(chunk))]
            statement = sql.format(",".join([placeholder] * size))
            with closing(self._connection.execute(statement, (*padded, *bounds))) as cursor:
                yield cursor


def _between(after: bytes | None, before: bytes | None) -> tuple[str, list[bytes]]:
    """Return the condition of a range of keys, to be followed by another one, and its parameters."""
    condition = f"{'' if after is None else 'key > ? AND'} {'' if before is None else 'key < ? AND'}"
    return condition, [key for key in (after, before) if key is not None]


def _from_to(start: bytes, end: bytes | None) -> tuple[str, list[bytes]]:
    """Return the condition of a half-open range of keys, and its parameters."""
    return ("key >= ?", [start]) if end is None else ("key >= ? AND key < ?", [start, end])


def _all_from_to(start: bytes, end: bytes | None) -> tuple[str, list[bytes]]:
    """Return the condition of a half-open range of keys, and its parameters, of which b"" leaves no row out.

    A damaged key may be null, or of a type that comes before all bytes. A range up to b"" is empty.
    """
    if start or end == b"":
        return _from_to(start, end)
    return ("TRUE", []) if end is None else ("(key < ? OR key IS NULL)", [end])


def _take(rows: Iterable[Any]) -> list[Any]:
    """Return the first of the rows, each of which ends with a value: as many as a page has room for."""
    taken: list[Any] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(row[-1])
        if size > PAGE_BYTES:
            break
    return taken
