"""Logs in SQLite that earlier versions wrote: upgraded in place, or read as they are where they cannot be written.

An upgrade is one transaction: the log has its former schema or the new one, whenever the power fails. A step for each
schema leads to the next. What a step changes stays readable by `SQLiteReader` alone: a log that cannot be upgraded,
because its file is read-only, is read by a class for its schema, which answers otherwise what a later schema stores.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from gossiplog import core
from gossiplog.core import SignedMessage, decode_id
from gossiplog.errors import TreeError
from gossiplog.storage.base import SCHEMA, ApplicationTables, Position, Progress, index_fingerprint
from gossiplog.storage.sqlite.meta import new_meta
from gossiplog.storage.sqlite.tables import ALTERNATIVES, TABLES, SQLiteReader

OLDEST = 2
"""The oldest schema that is read."""

_PAGE = 4096
_Step: TypeAlias = Callable[[sqlite3.Connection, str, Progress], None]


def tables_of(schema: int) -> Sequence[str]:
    """Return the statements that made the tables of a schema, OLDEST or later."""
    return TABLES if schema > 2 else [statement for statement in TABLES if statement not in ALTERNATIVES]


def upgrade(connection: sqlite3.Connection, schema: int, topic: str, progress: Progress | None) -> None:
    """Bring the tables to the schema of this version, within a transaction that the caller begins and ends.

    Args:
        connection: to the database.
        schema: of the log, OLDEST or later.
        topic: of the log.
        progress: is called with the messages that a step has gone through, and with all that there are.
    """
    for step in range(schema, SCHEMA):
        _STEPS[step](connection, topic, progress or _no_progress)
    connection.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'schema'", (SCHEMA,))


def _no_progress(done: int, total: int) -> None:
    pass


def _add_alternatives(connection: sqlite3.Connection, topic: str, progress: Progress) -> None:
    """From schema 2 to 3."""
    for statement in ALTERNATIVES:
        connection.execute(statement)
    connection.executemany(
        "INSERT INTO gossiplog_alternatives(seq, content) VALUES (?, ?)",
        _alternatives(SQLiteReader(connection), 0, topic, progress),
    )


def _add_versions(connection: sqlite3.Connection, topic: str, progress: Progress) -> None:
    """From schema 3 to 4."""
    meta = [*new_meta().items(), *_index_fingerprint(connection)]
    connection.executemany("INSERT INTO gossiplog_meta(name, value) VALUES (?, ?)", meta)


def _index_fingerprint(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield the row of gossiplog_meta that names an index as it stands, unless it is damaged already."""
    reader = SQLiteReader(connection)
    (indexed,) = connection.execute("SELECT value FROM gossiplog_meta WHERE name = 'indexed'").fetchone()
    try:
        root = core.Tree.open(reader.level1(), indexed).root
    except (TreeError, TypeError, OverflowError):
        # The states of the log name it.
        return
    yield "index_fingerprint", index_fingerprint(indexed, root, len(reader.heads()))


_STEPS: Mapping[int, _Step] = {2: _add_alternatives, 3: _add_versions}


def _alternatives(reader: SQLiteReader, after: int, topic: str, progress: Progress) -> Iterator[tuple[int, bytes]]:
    """Yield the sequences, ascending after one, of alternative encodings, with the keys of the canonical ones.

    Damaged messages are passed over: finding them is not what a log is opened for.
    """
    total = reader.last_sequence()
    while rows := reader.arrivals(after, _PAGE):
        batch = core.read_batch([value for _, value in rows], topic)
        for (sequence, _), message in zip(rows, batch, strict=True):
            if isinstance(message, SignedMessage) and not message.canonical:
                yield sequence, decode_id(message.content_id)
        after = rows[-1][0]
        progress(after, total)


# What a log that knows no versions of `apply` counts as.
_FORMER = Position()


class FormerContents:
    """What a log of schema 2 does not store: which of its messages are alternative encodings."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._last = 0
        self._contents: dict[int, bytes] = {}

    def read(self, reader: SQLiteReader) -> dict[int, bytes]:
        """Return the keys of the canonical encodings, by the sequences of the alternative ones, ascending."""
        with self._lock:
            last = reader.last_sequence()
            self._contents.update(_alternatives(reader, self._last, self._topic, _no_progress))
            self._last = last
            # Another thread may go on reading.
            return dict(self._contents)


class _Schema3Reader(SQLiteReader):
    """Read a log of schema 3."""

    _SCHEMA = 3
    _ADDED = f"{_FORMER.generation}, {_FORMER.apply_version}, {_FORMER.rebuild}"

    def application_tables(self) -> ApplicationTables:
        return ApplicationTables()


class _Schema2Reader(_Schema3Reader):
    """Read a log of schema 2.

    Args:
        connection: to the database.
        contents: of the log, common to its readers.
    """

    _SCHEMA = 2
    _LAST_ALTERNATIVE = "0"
    _STRAYS = ("messages", "leaves", "children")

    def __init__(self, connection: sqlite3.Connection, contents: FormerContents) -> None:
        super().__init__(connection)
        self._contents = contents

    def position(self) -> Position:
        # A scan of the log, once: what a later schema stores.
        return replace(super().position(), alternative=next(reversed(self._contents.read(self)), 0))

    def contents(self, sequences: Sequence[int]) -> dict[int, bytes]:
        contents = self._contents.read(self)
        return {sequence: contents[sequence] for sequence in sequences if sequence in contents}

    def alternatives(self, contents: Sequence[bytes]) -> dict[bytes, int]:
        wanted = frozenset(contents)
        found: dict[bytes, int] = {}
        for sequence, content in self._contents.read(self).items():
            if content in wanted:
                found.setdefault(content, sequence)
        return found


def former_reader(schema: int, connection: sqlite3.Connection, contents: FormerContents) -> SQLiteReader:
    """Return a reader of a log of a former schema.

    Args:
        schema: of the log, OLDEST or later, and below SCHEMA.
        connection: to the database.
        contents: of the log, common to its readers; schema 2 alone lacks them.
    """
    return _Schema2Reader(connection, contents) if schema == 2 else _Schema3Reader(connection)
