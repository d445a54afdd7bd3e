"""What all types have in common: a table, operations in payloads, and functions to be given to `gossiplog.open`.

What `apply` makes of a message follows from the message, from those that it follows, and from rows that do not depend
on the order of others. Strangers' payloads may be anything: what is no operation of an object is passed over, and by
the message alone, so that no replica takes what another passes over. So texts that are keys have a limit (an index of
Postgres has one), and none may hold U+0000, which Postgres does not store.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gossiplog import core
from gossiplog.errors import EncodeError, StorageError
from gossiplog.message import SignedMessage, plain_json
from gossiplog.storage.base import ApplyTransaction

MAX_KEY_BYTES = 1000
"""Bytes of UTF-8 in a key, and in an element of a set as dag-json."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_TAKEN = ("gossiplog_", "sqlite_", "pg_")


# Of all objects' tables: one that had a name before may have been of another type.
_LAYOUTS = {
    ("key", "value", "id", "author"),
    ("key", "author", "added", "removed"),
    ("key", "element", "id"),
    ("key", "id", "number", "parent", "side", "value"),
    ("key", "element"),
}
# The name and the columns of what a statement takes for a table.
_COLUMNS_OF = {
    "qmark": (
        "SELECT found.name, columns.name FROM sqlite_schema AS found, pragma_table_info(found.name) AS columns"
        " WHERE found.name = ? COLLATE NOCASE AND found.type IN ('table', 'view') ORDER BY columns.cid"
    ),
    "format": (
        "SELECT relname, attname FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON attrelid = pg_class.oid"
        " WHERE attrelid = pg_catalog.to_regclass(pg_catalog.quote_ident(?)) AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum"
    ),
}


class Database(Protocol):
    """What tables are read from: a connection of `sqlite3` or psycopg, or the transaction of `apply`.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> def shown_title(database: types.Database) -> str:
        ...     return types.Register("title").get(database, "untitled")
        >>> title = types.Register("title")
        >>> board = gossiplog.open("board.db", "org.example.board", apply=title.apply, setup=title.setup)
        >>> shown_title(sqlite3.connect("board.db"))
        'untitled'
    """

    def execute(self, query: Any, parameters: Any = ..., /) -> Any:
        """Run a statement; return its cursor.

        Args:
            query: of SQL.
            parameters: in the place of its marks.
        """


def execute(database: Database, sql: str, *parameters: object) -> Any:
    """Run a statement whose parameters are marked as SQLite has them; return a cursor of tuples.

    Raises:
        TypeError: a connection that makes other values of text than `str`, by `text_factory` or `client_encoding`.
    """
    if isinstance(database, sqlite3.Connection):
        if database.text_factory is not str:
            raise TypeError(f"the connection's text_factory is {database.text_factory!r}: expected str")
        cursor = database.cursor()
        # What rows the application reads by this connection is its own matter: of a dict, the names would be taken.
        cursor.row_factory = None
        return cursor.execute(sql, parameters)
    if getattr(database, "paramstyle", "format") == "qmark":
        return database.execute(sql, parameters)
    sql = sql.replace("?", "%s")
    # Nobody has a connection of a driver that was not imported.
    psycopg: Any = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(database, psycopg.Connection):
        if database.info.parameter_status("client_encoding") == "SQL_ASCII":
            raise TypeError("the connection's client_encoding is SQL_ASCII, which has bytes for text: expected UTF8")
        return database.cursor(row_factory=psycopg.rows.tuple_row).execute(sql, parameters)
    return database.execute(sql, parameters)


def key_text(value: object) -> str | None:
    """Return a key of a payload, None if it is none."""
    if not isinstance(value, str) or "\0" in value:
        return None
    try:
        return value if len(value.encode()) <= MAX_KEY_BYTES else None
    except UnicodeEncodeError:
        return None


def value_text(value: object, limit: int | None = None) -> str | None:
    """Return a value of a payload as dag-json, in which equal values are equal texts; None if it has no such form.

    Args:
        value: as a payload has it.
        limit: the most bytes.
    """
    try:
        encoded = plain_json(value)
    except EncodeError:
        return None
    return None if limit is not None and len(encoded) > limit else encoded.decode()


def checked_value(value: Any, limit: int | None = None) -> Any:
    """Return a value that a program has given: `apply` passes over what has no dag-json form, as Infinity.

    Args:
        value: that a payload is to have.
        limit: the most bytes of it as dag-json.

    Raises:
        ValueError: it has no such form, or a longer one.
    """
    try:
        size = len(plain_json(value))
    except EncodeError as error:
        raise ValueError(f"the value has no dag-json form: {error}") from error
    if limit is not None and size > limit:
        raise ValueError(f"the value has {size} bytes as dag-json: expected {limit} at most, or a Map")
    return value


def value_of(text: str) -> Any:
    """Return the value that `value_text` gave the text of."""
    return core.json_decode(text.encode())


def checked_key(key: str) -> str:
    """Return a key that a program has given.

    Raises:
        ValueError: it is too long, or holds U+0000 or half a surrogate pair.
        TypeError: it is no text.
    """
    if not isinstance(key, str):
        raise TypeError(f"a key is {key!r}: expected text")
    if key_text(key) is None:
        raise ValueError(f"a key of {len(key)} characters: expected {MAX_KEY_BYTES} bytes of UTF-8 at most, no U+0000")
    return key


def _check_own(table: str, transaction: ApplyTransaction) -> None:
    """Check that a table which is to be dropped is not the application's: SQLite takes no notice of case.

    Raises:
        StorageError: it has not the columns of any object's table.
    """
    name = table.strip('"')
    found = execute(transaction, _COLUMNS_OF[transaction.paramstyle], name).fetchall()
    if not found:
        return
    names, columns = {name for name, _ in found}, tuple(column for _, column in found)
    if names != {name} or columns not in _LAYOUTS:
        raise StorageError(
            f"the database has a table {min(names)!r} already, with the columns {', '.join(columns)}: it is none of an"
            f" object, and would be dropped; give the object {name!r} another name, or rename the table"
        )


class Object(ABC):
    """What the objects of all data types have: tables, which messages of the object are applied to.

    For annotations; an application makes objects of the types that derive from it.

    Args:
        name: of the object in payloads, and of its table: lower-case letters, digits and underscores, which begin with
            a letter.

    Raises:
        ValueError: no such name, or one that the database or the log takes.
        TypeError: a name that is no text.

    Examples:
        >>> from gossiplog import types
        >>> def open_board(path: str, shown: types.Object) -> gossiplog.Log:
        ...     return gossiplog.open(path, "org.example.board", apply=shown.apply, setup=shown.setup, signer=alice)
        >>> votes = types.Counter("votes")
        >>> board = open_board("board.db", votes)
        >>> board.append(votes.add(2)).payload
        {'add': 2, 'key': '', 'object': 'votes'}
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a name is {name!r}: expected text")
        if not _NAME.fullmatch(name) or name.startswith(_TAKEN):
            raise ValueError(
                f"{name!r} is no name of an object: expected up to 48 lower-case letters, digits and underscores, a"
                f" letter first, and none of {', '.join(_TAKEN)} at the beginning"
            )
        self.name = name

    @property
    def table(self) -> str:
        """The name of the table as statements have it."""
        return f'"{self.name}"'

    @abstractmethod
    def _tables(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the tables, as statements have them, and their columns; TEXT compares by bytes."""

    @abstractmethod
    def _apply_operation(
        self, operation: Mapping[str, Any], message: SignedMessage, transaction: ApplyTransaction
    ) -> None:
        """Apply an operation of the object; do nothing if it is none.

        Args:
            operation: the payload, in which anything may stand.
            message: that has the payload.
            transaction: that stores the message.
        """

    def setup(self, transaction: ApplyTransaction) -> None:
        """Make the tables, as `setup=` of `gossiplog.open`; drop those that an object of this name had.

        Args:
            transaction: as `setup=` is given it.

        Raises:
            StorageError: the database has a table of such a name that no object has made.
        """
        text = "TEXT" if transaction.paramstyle == "qmark" else 'TEXT COLLATE "C"'
        for table, columns in self._tables().items():
            _check_own(table, transaction)
            transaction.execute(f"DROP TABLE IF EXISTS {table}")
            transaction.execute(f"CREATE TABLE {table} ({', '.join(columns)})".replace("TEXT", text))

    def apply(self, message: SignedMessage, transaction: ApplyTransaction) -> None:
        """Apply a message of this object, as `apply=` of `gossiplog.open`; do nothing for others.

        Args:
            message: that was stored.
            transaction: that stores it.
        """
        payload = message.raw_payload
        if isinstance(payload, dict) and payload.get("object") == self.name:
            self._apply_operation(payload, message, transaction)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Objects:
    """Several objects on one log.

    Args:
        objects: of different names.

    Raises:
        ValueError: two use one table.
        TypeError: something that is no Object, such as a name.

    Examples:
        >>> import sqlite3
        >>> from gossiplog import types
        >>> title, tags = types.Register("title"), types.Set("tags")
        >>> both = types.Objects(title, tags)
        >>> board = gossiplog.open("board.db", "org.example.board", apply=both.apply, setup=both.setup, signer=alice)
        >>> messages = board.append_many([title.set("Errands"), tags.add("home")])
        >>> database = sqlite3.connect("board.db")
        >>> title.get(database), tags.get(database)
        ('Errands', ['home'])
    """

    def __init__(self, *objects: Object) -> None:
        for each in objects:
            if not isinstance(each, Object):
                raise TypeError(f"expected objects, such as Register('title'), not {each!r}")
        tables = [table for each in objects for table in each._tables()]
        if twice := sorted(table for table in {*tables} if tables.count(table) > 1):
            raise ValueError(f"several objects use the table {', '.join(twice)}: give them different names")
        self._objects = {each.name: each for each in objects}

    def setup(self, transaction: ApplyTransaction) -> None:
        """Make the tables of all, as `setup=` of `gossiplog.open`; drop those that objects of their names had.

        Args:
            transaction: as `setup=` is given it.

        Raises:
            StorageError: the database has a table of such a name that no object has made.
        """
        for each in self._objects.values():
            each.setup(transaction)

    def apply(self, message: SignedMessage, transaction: ApplyTransaction) -> None:
        """Apply a message of one of these objects, as `apply=` of `gossiplog.open`; do nothing for others.

        Args:
            message: that was stored.
            transaction: that stores it.
        """
        payload = message.raw_payload
        name = payload.get("object") if isinstance(payload, dict) else None
        if isinstance(name, str) and (found := self._objects.get(name)) is not None:
            found._apply_operation(payload, message, transaction)
