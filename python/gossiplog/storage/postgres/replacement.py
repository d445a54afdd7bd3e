"""The replacement of a log in Postgres by another one, which is made in a file of SQLite, in one transaction.

The log's tables keep their schema, and with it the rights on them; they are emptied and filled. What they held goes to
a schema beside it, where it is a log of its own. The log's lock is held from the first look to the commit, so that
nobody writes meanwhile; readers see the former state until the commit, and wait for it where they come within its last
moment, as the tables are emptied. Programs that have the log open find another one in its place, and say so.

A schema of another name that takes the place of the former one would be the same in fewer rows, but leave behind the
rights on it, and the lock: its key is the schema's oid, so that writers of the former and of the new one would not keep
each other out.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count as count_up
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from gossiplog.errors import CorruptLog, NotALog, StorageError
from gossiplog.storage.base import PREFIX
from gossiplog.storage.postgres.changes import channel_of
from gossiplog.storage.postgres.connections import LOCK_SECONDS, Session, quoted
from gossiplog.storage.postgres.errors import DENIED, PostgresErrors, error_code, hiding, is_connection_lost
from gossiplog.storage.postgres.meta import integer
from gossiplog.storage.postgres.opening import Opening, lock_key
from gossiplog.storage.postgres.tables import COLUMNS, GUARD, KEYS, Statements, statements_of_log
from gossiplog.storage.postgres.url import PostgresURL

_LONGEST_NAME = 63
_BATCH = 4096
# Bytes of the smallest row with its place on the page (src/include/access/htup_details.h, MaxHeapTuplesPerPage).
_SMALLEST_ROW = 28
_EMPTY: Mapping[str, Any] = {"bigint": 0, "bytea": b"", "text": ""}
_COPIED_AS: Mapping[str, str] = {"bigint": "int8", "bytea": "bytea", "text": "text"}
# Of SQLite's gossiplog_meta, which has texts otherwise.
_INTEGERS = frozenset({"schema", "applied", "indexed", "generation", "apply_version", "rebuild", "setup"})
_DAMAGE = ("XX", "58P01", "22")

_SPACE = "SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = %b"
_OTHERS = """
    SELECT c.relname FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = %b::pg_catalog.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      AND NOT pg_catalog.starts_with(c.relname, %b) ORDER BY c.relname
"""
_COLUMNS_OF = """
    SELECT pg_catalog.concat(a.attname, ' ', pg_catalog.format_type(a.atttypid, a.atttypmod))
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
    WHERE c.relnamespace = %b::pg_catalog.oid AND c.relname = %b AND c.relkind = 'r' AND a.attnum > 0
      AND NOT a.attisdropped
"""
_PAGES = """
    SELECT pg_catalog.pg_relation_size(c.oid), pg_catalog.current_setting('block_size')::pg_catalog.int8
    FROM pg_catalog.pg_class AS c WHERE c.relnamespace = %b::pg_catalog.oid AND c.relname = %b
"""
# Whatever an index says, the rows of the table are read. Behind a pooler, a session's settings are others', too.
_WITHOUT_INDICES = "; ".join(
    f"SET LOCAL enable_{way} = off" for way in ("indexscan", "indexonlyscan", "bitmapscan", "mergejoin")
)


class SchemaReplacement:
    """A log in Postgres that is to be replaced, locked for the time of a block.

    Args:
        url: of the log.
        doing: what it is replaced for, in errors after "cannot".

    Attributes:
        path: the URL.
        new: where the new log is to be made, as a file of SQLite; nothing is there when the block begins.
        has_sound_tables: whether the log can be opened. If not, its tables are made anew, and lose the rights on them.
    """

    def __init__(self, url: PostgresURL, doing: str) -> None:
        self.path = url
        self.new = ""
        self.has_sound_tables = True
        self._errors = PostgresErrors(url.place, doing, hiding(url))

    def __enter__(self) -> Self:
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="gossiplog-replacement-")
        except OSError as error:
            raise StorageError(
                f"cannot make a folder for the new log: {error.strerror or error}; name another by the variable TMPDIR"
            ) from error
        try:
            with self._errors:
                self._session = Session(self.path, synchronous="full")
        except BaseException:
            self._folder.cleanup()
            raise
        session = self._session
        self.new = str(Path(self._folder.name, "new.db"))
        try:
            with self._errors:
                spaces = session.rows(_SPACE, (self.path.schema,))
                if not spaces:
                    raise NotALog(f"{self.path} holds no log: there is no schema {self.path.schema}")
                ((self._space,),) = spaces
                # Reading the other log may take longer than an operator lets a transaction wait.
                session.script(*session.begin_writing, *session.without_limits)
                first, second = lock_key(self._space)
                session.script(f"SELECT pg_catalog.pg_advisory_xact_lock({first}, {second})".encode())
                try:
                    self.has_sound_tables = (
                        Opening(self.path, True, Statements(self.path.schema)).find(session) is not None
                    )
                except (CorruptLog, NotALog):
                    self.has_sound_tables = False
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._session.roll_back()
        self._session.close()
        self._folder.cleanup()

    @property
    def other_tables(self) -> list[str]:
        """The names of the tables and views in the schema that are not the log's."""
        with self._errors:
            return [name for (name,) in self._session.rows(_OTHERS, (self._space, PREFIX))]

    def export(self, path: str, tables: Iterable[str]) -> list[str]:
        """Write all rows of the log's tables that the server can read into a new file of SQLite; damage stays in them.

        Args:
            path: of the file.
            tables: the statements that make the log's tables there.

        Returns:
            What could not be read, one sentence each.

        Raises:
            NotALog: none of a log's tables is there.
            StorageError: the server failed.
        """
        lost: list[str] = []
        # A statement that fails would end the transaction that holds the lock.
        with self._errors:
            reading = Session(self.path, synchronous="off")
        try:
            with self._errors, closing(sqlite3.connect(path, isolation_level=None)) as target:
                if not any(reading.rows(_COLUMNS_OF, (self._space, table)) for table in COLUMNS):
                    raise NotALog(f"{self.path} holds no log in its schema {self.path.schema}")
                target.execute("PRAGMA synchronous = OFF")
                for statement in tables:
                    target.execute(statement)
                # Of an application's tables it matters only that there are some. SQLite takes not all of their names.
                if self.other_tables:
                    target.execute("CREATE TABLE application(x)")
                for table in COLUMNS:
                    lost += self._export_table(reading, target, table)
        except sqlite3.Error as error:
            raise StorageError(
                f"cannot copy {self.path} to {path}: {error}. It takes up to four times the log's size of free space:"
                " make room there, or name another folder by the variable TMPDIR"
            ) from error
        finally:
            reading.close()
        return lost

    def _export_table(self, reading: Session, target: sqlite3.Connection, table: str) -> Iterator[str]:
        names = [column.split()[0] for column in COLUMNS[table]]
        found = {column for (column,) in reading.rows(_COLUMNS_OF, (self._space, table))}
        if not found.issuperset(COLUMNS[table]):
            yield f"the table {table} is missing, or lacks columns"
            return
        select = f"SELECT {', '.join(names)} FROM {quoted(self.path.schema)}.{table}"
        insert = f"INSERT OR IGNORE INTO {table}({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"

        def store(rows: Iterable[Sequence[Any]]) -> None:
            target.executemany(insert, (_for_sqlite(table, row) for row in rows))

        target.execute("BEGIN")
        try:
            for rows in _batches(reading, select):
                store(rows)
        except psycopg.Error as error:
            if not error_code(error).startswith(_DAMAGE):
                raise
            reading.roll_back()
            target.execute("ROLLBACK")
            target.execute("BEGIN")
            ((size, page_size),) = reading.rows(_PAGES, (self._space, table))
            pages, damaged = size // page_size, 0
            for page in range(pages):
                places = [f"({page},{place})" for place in range(1, page_size // _SMALLEST_ROW + 1)]
                try:
                    store(_rows_at(reading, select, places))
                except psycopg.Error as found_damaged:
                    if not error_code(found_damaged).startswith(_DAMAGE):
                        raise
                    damaged += 1
                    for place in places:
                        with suppress(psycopg.DatabaseError):
                            store(_rows_at(reading, select, [place]))
            yield f"{damaged:,} of {pages:,} pages of {table} cannot be read whole"
        target.execute("COMMIT")

    def publish(
        self, suffix: str, meta: Mapping[str, int], *, former_rows: str | None = None, moves_tables: bool = True
    ) -> str:
        """Put the new log in the place of the former one, which is kept in a schema beside it.

        Args:
            suffix: how the name of that schema ends, as that of a file would; a number follows where it is taken.
            meta: rows of gossiplog_meta to change in the new log, by name.
            former_rows: a file of SQLite that has what the former log held; None for the tables themselves.
            moves_tables: whether an application's tables go with the former log.

        Returns:
            The place of the former log.

        Raises:
            StorageError: the role lacks a right, or the server failed. Nothing has changed then, unless the error says
                that it has, or that this could not be found out.
        """
        session, schema = self._session, self.path.schema
        try:
            with self._errors:
                # What needs no quotes in SQL.
                former = self._make_schema(re.sub(r"\W", "_", suffix))
                for statement in statements_of_log(former):
                    session.script(statement)
                if former_rows is None:
                    for table in COLUMNS:
                        session.script(
                            f"INSERT INTO {quoted(former)}.{table} SELECT * FROM {quoted(schema)}.{table}".encode()
                        )
                else:
                    self._fill(former, former_rows)
                for name in self.other_tables if moves_tables else ():
                    # Of views, too, it is said so.
                    session.script(f"ALTER TABLE {quoted(schema)}.{quoted(name)} SET SCHEMA {quoted(former)}".encode())
                self._empty()
                self._fill(schema, self.new)
                for name, value in meta.items():
                    session.run(
                        f"UPDATE {quoted(schema).replace('%', '%%')}.gossiplog_meta SET value = %b WHERE name = %b",
                        (str(value), name),
                    )
                session.run("SELECT pg_catalog.pg_notify(%b, '')", (channel_of(self._space),))
                self._commit(former)
        except StorageError as error:
            if isinstance(error.__cause__, psycopg.Error) and error_code(error.__cause__) == DENIED:
                raise StorageError(
                    f"cannot replace the log {self.path}: it takes the owner of its schema {schema} and of its tables,"
                    " who may also make a schema in the database (GRANT CREATE ON DATABASE):"
                    f" {error.__cause__.diag.message_primary} ({DENIED})"
                ) from error
            raise
        return str(replace(self.path, schema=former))

    def _commit(self, former: str) -> None:
        """Commit; where the connection is lost meanwhile, find out whether the new log is in its place."""
        try:
            self._session.commit()
        except psycopg.Error as error:
            if not is_connection_lost(error):
                raise
            if not self._is_published(error):
                raise
        if self._session.is_unconfirmed:
            raise StorageError(
                "the wait for a synchronous standby was cancelled: the log is replaced on this server, and perhaps on"
                f" no standby yet; the former one is in the schema {former}. It need not be replaced again"
            )

    def _is_published(self, failure: psycopg.Error) -> bool:
        # The lock is free once the server has ended the transaction, one way or the other.
        self._session.close()
        first, second = lock_key(self._space)
        try:
            with closing(sqlite3.connect(f"{Path(self.new).as_uri()}?mode=ro", uri=True)) as source:
                (identity,) = source.execute("SELECT value FROM gossiplog_meta WHERE name = 'identity'").fetchone()
            with closing(Session(self.path, synchronous="full")) as session:
                session.script(*session.begin_writing)
                session.script(f"SELECT pg_catalog.pg_advisory_xact_lock({first}, {second})".encode())
                found = session.rows(
                    f"SELECT FROM {quoted(self.path.schema).replace('%', '%%')}.gossiplog_meta"
                    " WHERE name = 'identity' AND value = %b",
                    (str(identity),),
                )
        except (psycopg.Error, StorageError, sqlite3.Error) as error:
            raise StorageError(
                f"{self._errors.translated(failure)}: the connection was lost while the commit was on its way, and the"
                " server cannot be asked whether it has replaced the log. Once it answers, look at the log before this"
                " is tried again"
            ) from error
        return bool(found)

    def _make_schema(self, suffix: str) -> str:
        for name in _names(self.path.schema, suffix):
            if not self._session.rows(_SPACE, (name,)):
                self._session.script(f"CREATE SCHEMA {quoted(name)}".encode())
                return name
        raise AssertionError("there is always another name")

    def _empty(self) -> None:
        """Empty the log's tables; make them anew where they are not as they have to be."""
        session, schema = self._session, quoted(self.path.schema)
        if self.has_sound_tables:
            try:
                session.script(f"TRUNCATE {', '.join(f'{schema}.{table}' for table in COLUMNS)}".encode())
            except psycopg.errors.LockNotAvailable as error:
                raise StorageError(
                    f"cannot replace the log {self.path}: for {LOCK_SECONDS} s programs have read it without a pause,"
                    " as a backup or a job on Spark does. Nothing has changed: try again once they have ended"
                ) from error
            return
        for table in COLUMNS:
            session.script(f"DROP TABLE IF EXISTS {schema}.{table}".encode())
        session.script(f"DROP FUNCTION IF EXISTS {schema}.{GUARD}()".encode())
        for statement in statements_of_log(self.path.schema):
            session.script(statement)

    def _fill(self, schema: str, path: str) -> None:
        """Copy the rows of a log's tables from a file of SQLite."""
        with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as source:
            for table, columns in COLUMNS.items():
                names = ", ".join(column.split()[0] for column in columns)
                kinds = [column.split()[1] for column in columns]
                rows = source.execute(f"SELECT {names} FROM {table} ORDER BY {KEYS[table]}")
                self._session.copy(
                    f"COPY {quoted(schema)}.{table}({names}) FROM STDIN (FORMAT binary)".encode(),
                    [_COPIED_AS[kind] for kind in kinds],
                    (tuple(map(_for_postgres, row, kinds)) for row in rows),
                )


def _batches(reading: Session, select: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a statement, some at a time."""
    with reading.connection.transaction(), reading.connection.cursor(name="gossiplog_export", binary=True) as cursor:
        reading.script(_WITHOUT_INDICES.encode())
        cursor.execute(sql.SQL(select))
        while rows := cursor.fetchmany(_BATCH):
            yield rows


def _rows_at(reading: Session, select: str, places: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows at some places in the server's file of a table."""
    wanted = "{" + ",".join(f'"{place}"' for place in places) + "}"
    return reading.rows(f"{select.replace('%', '%%')} WHERE ctid = ANY(%b::pg_catalog.tid[])", (wanted,))


def _for_sqlite(table: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row as SQLite's table of the same name has it; what is null is empty, as no sound column is."""
    if table == "gossiplog_meta":
        name, value = row
        number = integer(value) if name in _INTEGERS else None
        return name, value if number is None else number
    kinds = [column.split()[1] for column in COLUMNS[table]]
    return tuple(_EMPTY[kind] if value is None else value for value, kind in zip(row, kinds, strict=True))


def _for_postgres(value: Any, kind: str) -> Any:
    return str(value) if kind == "text" and value is not None else value


def _names(schema: str, suffix: str) -> Iterator[str]:
    """Yield names for a schema, each short enough to be one of Postgres'."""
    for number in count_up(1):
        end = suffix if number == 1 else f"{suffix}_{number}"
        start = schema.encode()[: _LONGEST_NAME - len(end.encode())].decode(errors="ignore")
        yield f"{start}{end}"
