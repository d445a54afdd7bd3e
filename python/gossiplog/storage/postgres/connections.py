"""Connections to Postgres: how they are made, what is set on them, and how bytes and numbers travel in arrays.

Nothing depends on the settings of the role or the database. `search_path` is set to the log's schema, before which
Postgres looks into its own, `pg_catalog`, and into no other; temporary tables come last, and only by name. So neither
objects of the same name in `public` nor a role's own `search_path` change what a statement means. Behind a pooler
that gives each transaction another connection to the server, as PgBouncer does in its transaction mode, a setting of a
session would be that of other clients, too: there each transaction sets it for itself.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus

from gossiplog.errors import StorageError
from gossiplog.storage.postgres.url import PostgresURL

# The driver logs what it also raises, as of a pipeline in which a statement fails: on stderr, unless it is handled.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

OLDEST_SERVER = 130000
"""The oldest server that is tested for: 13. Those before are no longer maintained."""
LOCK_SECONDS = 30
"""Seconds to wait for another process's lock."""
# Seconds: of making a connection, and until a server that no longer answers is given up.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "application_name": "gossiplog",
}
# What the server says of statements after which the driver drops all plans (psycopg/_preparing.py, _should_discard).
_DROPPING = ("DROP ", "ALTER ", "ROLLBACK", "DISCARD ", "DEALLOCATE")
# Bytes of a parameter that is written into the text of its statement.
_MOST_LITERAL = 4096
_BYTEA, _BYTEA_ARRAY = 17, 1001
_INT8, _INT8_ARRAY = 20, 1016
_TEXT, _TEXT_ARRAY = 25, 1009
_ARRAY_HEADER = struct.Struct("!iiiii").pack
_EMPTY_ARRAY = struct.Struct("!iii").pack
_LENGTH = struct.Struct("!i").pack
_INTEGER = struct.Struct("!iq").pack

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]


class Array:
    """An array parameter in Postgres' binary format (src/backend/utils/adt/arrayfuncs.c, array_recv).

    The driver converts lists element by element in Python, which takes three times as long as the statement.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class ByteaArray(Array):
    """An array of bytes."""

    __slots__ = ()

    def __init__(self, items: Sequence[bytes]) -> None:
        parts: list[bytes] = []
        for item in items:
            parts += (_LENGTH(len(item)), item)
        super().__init__(_array(_BYTEA, len(items), parts))


class IntegerArray(Array):
    """An array of sequences."""

    __slots__ = ()

    def __init__(self, items: Sequence[int]) -> None:
        super().__init__(_array(_INT8, len(items), [_INTEGER(8, item) for item in items]))


class TextArray(Array):
    """An array of texts."""

    __slots__ = ()

    def __init__(self, items: Iterable[str]) -> None:
        encoded = [item.encode() for item in items]
        parts = [part for item in encoded for part in (_LENGTH(len(item)), item)]
        super().__init__(_array(_TEXT, len(encoded), parts))


def _array(element: int, number: int, parts: list[bytes]) -> bytes:
    # No dimension, no element; or one dimension, no nulls, from the index 1.
    return b"".join([_ARRAY_HEADER(1, 0, element, number, 1), *parts]) if number else _EMPTY_ARRAY(0, 0, element)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Array) -> Buffer:
        return obj.data


class _ByteaArrayDumper(_ArrayDumper):
    oid = _BYTEA_ARRAY


class _IntegerArrayDumper(_ArrayDumper):
    oid = _INT8_ARRAY


class _TextArrayDumper(_ArrayDumper):
    oid = _TEXT_ARRAY


def quoted(name: str) -> str:
    """Return a name as Postgres reads any name."""
    return '"' + name.replace('"', '""') + '"'


_PLACEHOLDER = re.compile(b"%([%b])")


def with_literals(statement: bytes, parameters: Sequence[Any] | None) -> bytes | None:
    """Return a statement with its parameters written into it; None where they are not few and short.

    A text of several such statements takes the driver a fifth of the time that it takes to send them one by one.
    """
    if parameters is None:
        return statement
    texts = _literals(parameters)
    return None if texts is None else _filled(statement, iter(texts))


def _filled(statement: bytes, texts: Iterator[bytes]) -> bytes:
    """Return a statement with texts in the place of its parameters; a percent sign of a name stands twice in it."""
    return _PLACEHOLDER.sub(lambda found: next(texts) if found[1] == b"b" else b"%", statement)


def _literals(parameters: Sequence[Any]) -> list[bytes] | None:
    texts: list[bytes] = []
    for parameter in parameters:
        if isinstance(parameter, bytes) and len(parameter) <= _MOST_LITERAL:
            texts.append(b"pg_catalog.decode('%s', 'hex')" % parameter.hex().encode())
        elif isinstance(parameter, int):
            texts.append(b"(%d)" % parameter)
        elif isinstance(parameter, str) and len(parameter) <= _MOST_LITERAL and "\0" not in parameter:
            # With an E, a backslash means the same whatever standard_conforming_strings says.
            texts.append(b"E'%s'" % parameter.replace("\\", "\\\\").replace("'", "''").encode())
        else:
            return None
    return texts


class Session:
    """One connection to the database of a log.

    Attributes:
        connection: in autocommit mode.
        is_pooled: whether a pooler stands between, so that each transaction may have another connection to the server.
        begin_reading: the statements that begin one state to be read.
        begin_writing: those that begin a transaction that writes; no lock is taken yet.
        without_limits: those that let a transaction last for as long as what it waits for, as another program.
    """

    def __init__(self, url: PostgresURL, *, synchronous: str, lock_timeout: float | None = None) -> None:
        """Connect.

        Args:
            url: of the log.
            synchronous: as `PostgresStorage` takes it.
            lock_timeout: likewise.

        Raises:
            psycopg.Error: the server refuses, or there is none.
            StorageError: the server is too old.
        """
        # What the URL names comes later in the text, and wins.
        defaults = " ".join(f"{name}={value}" for name, value in _DEFAULTS.items())
        self.connection: Connection = psycopg.connect(
            f"{defaults} {url.conninfo} client_encoding=utf8", autocommit=True
        )
        try:
            self._prepare(url.schema, synchronous, LOCK_SECONDS if lock_timeout is None else lock_timeout)
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, schema: str, synchronous: str, lock_timeout: float) -> None:
        connection = self.connection
        version = connection.info.server_version
        if version < OLDEST_SERVER:
            raise StorageError(
                f"the server is Postgres {version // 10000}, and a log needs {OLDEST_SERVER // 10000} or newer:"
                " upgrade it"
            )
        for kind, dumper in (
            (ByteaArray, _ByteaArrayDumper),
            (IntegerArray, _IntegerArrayDumper),
            (TextArray, _TextArrayDumper),
        ):
            connection.adapters.register_dumper(kind, dumper)
        connection.add_notice_handler(self._note)
        self._is_unconfirmed = False
        self._dropped = 0
        self._has_failed = False
        # The names of statements that the server has planned.
        self._planned: dict[bytes, bytes] = {}
        self._text = connection.cursor()
        self._binary = connection.cursor(binary=True)
        # The search path is still that of the role.
        (process, durable) = self.one(
            "SELECT pg_catalog.pg_backend_pid(), reset_val FROM pg_catalog.pg_settings"
            " WHERE name OPERATOR(pg_catalog.=) 'synchronous_commit'"
        )
        self.is_pooled = process != connection.info.backend_pid
        settings = {
            "search_path": f"{quoted(schema)}, pg_temp",
            # To the server 0 is no limit.
            "lock_timeout": f"'{max(round(lock_timeout * 1000), 1)}ms'",
            # A role's own would have the log's triggers refuse everything (tables.IN_APPLY).
            "gossiplog.in_apply": "off",
            # It would compile what takes milliseconds.
            "jit": "off",
        }
        if synchronous in ("off", "normal"):
            settings["synchronous_commit"] = "off"
        elif self.is_pooled or durable == "off":
            # Another client of a pooler may have left its own on the connection.
            settings["synchronous_commit"] = "on" if durable == "off" else durable
        if self.is_pooled:
            connection.prepare_threshold = None
        scope = "SET LOCAL" if self.is_pooled else "SET"
        made = tuple(f"{scope} {name} = {value}".encode() for name, value in settings.items())
        if not self.is_pooled:
            self.script(*made)
        local = made if self.is_pooled else ()
        self.begin_reading = (b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", *local)
        # What is read after the lock was taken is the latest then. A standby refuses READ WRITE, and takes the lock.
        self.begin_writing = (b"BEGIN ISOLATION LEVEL READ COMMITTED", *local)
        limits = ["idle_in_transaction_session_timeout", *(["transaction_timeout"] if version >= 170000 else [])]
        self.without_limits = tuple(f"SET LOCAL {limit} = 0".encode() for limit in limits)

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        # Its text is in the server's language, and its code is that of any warning.
        if notice.source_function == "SyncRepWaitForLSN":
            self._is_unconfirmed = True

    @property
    def is_unconfirmed(self) -> bool:
        """Whether `commit`, or the last of a script, has committed without the wait for a synchronous standby."""
        return self._is_unconfirmed

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Provide a block of statements that have the settings of this session, which a pooler forgets."""
        if not self.is_pooled:
            yield
            return
        self.script(*self.begin_reading)
        try:
            yield
        finally:
            self.roll_back()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Provide a block that is a transaction, committed at its end and rolled back when it raises."""
        self.script(*self.begin_writing)
        try:
            yield
            self.commit()
        finally:
            self.roll_back()

    @property
    def is_idle(self) -> bool:
        """Whether the connection is good, and in no transaction."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_in_transaction(self) -> bool:
        """Whether there is a transaction that can go on."""
        return self.connection.pgconn.transaction_status == TransactionStatus.INTRANS

    @property
    def is_failed(self) -> bool:
        """Whether there is a transaction that can only be rolled back."""
        return self.connection.pgconn.transaction_status == TransactionStatus.INERROR

    def rows(self, statement: str | bytes, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        encoded = statement if isinstance(statement, bytes) else statement.encode()
        return self._binary.execute(encoded, parameters).fetchall()

    def one(self, statement: str | bytes, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Return the only row of a statement."""
        (row,) = self.rows(statement, parameters)
        return row

    def run(self, statement: str | bytes, parameters: Sequence[Any] | None = ()) -> str:
        """Run a statement, or send it in a pipeline; return what the server says that it did."""
        encoded = statement if isinstance(statement, bytes) else statement.encode()
        return self._binary.execute(encoded, parameters).statusmessage or ""

    def script(self, *statements: bytes) -> None:
        """Run statements without parameters in one round trip."""
        self._is_unconfirmed = False
        self._text.execute(b"; ".join(statements), prepare=False)

    def script_rows(self, *statements: bytes) -> list[tuple[Any, ...]]:
        """Run statements as `script` does, and return the rows of the last, as texts."""
        cursor = self._text.execute(b"; ".join(statements))
        while cursor.nextset():
            pass
        return cursor.fetchall()

    def planned(self, statement: bytes, parameters: Sequence[Any]) -> bytes | None:
        """Return the text that runs a statement which the server plans once a connection; None as `with_literals`.

        To parse and plan the statement of an append takes the server longer than to run it and to wait for the disk.
        """
        if self.is_pooled:
            return with_literals(statement, parameters)
        texts = _literals(parameters)
        if texts is None:
            return None
        name = self._planned.get(statement)
        if name is None:
            name = b"gossiplog_%d" % len(self._planned)
            numbers = (b"$%d" % number for number in count(1))
            self.script(b"PREPARE %s AS %s" % (name, _filled(statement, numbers)))
            self._planned[statement] = name
        return b"EXECUTE %s(%s)" % (name, b", ".join(texts))

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """Have what a block runs sent together; the first error of it is raised.

        The driver would log a warning about those that follow from it.
        """
        first: psycopg.Error | None = None
        try:
            with self.connection.pipeline():
                try:
                    yield
                except psycopg.Error as error:
                    first = error
        except psycopg.Error as error:
            self._has_failed = True
            raise first or error from None
        if first is not None:
            raise first

    def undo(self, statement: str) -> None:
        """Run a statement that undoes something, after which the connection is good again, and nothing is planned.

        The driver takes statements for prepared that were to be prepared in a pipeline, behind one that failed. It
        forgets them when it is told to drop all.
        """
        self._text.execute(statement.encode())
        if self._has_failed or self._planned:
            self._drop_plans()

    def follow(self, status: str) -> None:
        """Drop all plans if the driver has dropped its own, and with them those of `planned`, after a statement.

        Args:
            status: what the server says that the statement did.
        """
        if self._planned and status.startswith(_DROPPING):
            self._drop_plans()

    def _drop_plans(self) -> None:
        self._has_failed = False
        self._planned.clear()
        if self.is_pooled:
            # Nothing is prepared there, and what is on the connection is other clients'.
            return
        self._dropped += 1
        # A text that the driver has not seen, and so does not prepare.
        self._text.execute(f"DEALLOCATE ALL -- {self._dropped}".encode())

    def commit(self) -> None:
        """Commit, or send that in a pipeline: `ending` then has what the server says."""
        self._is_unconfirmed = False
        self._text.execute(b"COMMIT")

    @property
    def ending(self) -> str:
        """What the server has said of `commit`, or of the last of a script: "ROLLBACK" where a statement had failed."""
        while self._text.nextset():
            pass
        return self._text.statusmessage or ""

    def copy(self, statement: bytes, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Send rows to a statement that reads them in the binary format; return how many it has stored."""
        with self._binary.copy(statement) as copy:
            copy.set_types(types)
            write = copy.write_row
            for row in rows:
                write(row)
        return self._binary.rowcount

    def roll_back(self) -> None:
        """End the transaction, if there is one and the connection still stands; close one that does not take it."""
        try:
            if self.connection.pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                self.undo("ROLLBACK")
        except psycopg.Error:
            pass
        if not self.is_idle:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


Connect: TypeAlias = Callable[[], Session]
