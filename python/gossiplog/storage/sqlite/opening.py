"""Opening a log in an SQLite database: it is found there, made, or brought to the newest schema.

Tables of an application in the same database do not matter.
"""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass

from gossiplog.errors import CorruptLog, NewerSchema, NotALog, OlderSchema, StorageError
from gossiplog.files import explain_denial, may_exist
from gossiplog.reprs import shell_path
from gossiplog.storage.base import PREFIX, SCHEMA, Progress, check_same_topic
from gossiplog.storage.sqlite.files import MEMORY, error_code
from gossiplog.storage.sqlite.meta import new_meta
from gossiplog.storage.sqlite.tables import (
    TABLES,
    check_tables,
    is_read_only,
    schema_of_log,
)
from gossiplog.storage.sqlite.transactions import CommitOrRollback
from gossiplog.storage.sqlite.upgrades import OLDEST, tables_of, upgrade

LOCK_TIMEOUT = 30.0
"""Seconds to wait for another process's lock, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a log is opened.

    Attributes:
        path: of the database, or its URI, or MEMORY.
        read_only: whether nothing is written to the log.
        synchronous: the text of SQLite's setting.
        lock_timeout: the seconds to wait for another process's lock.
    """

    path: str
    read_only: bool
    synchronous: str
    lock_timeout: float

    def check_there(self, create: bool) -> None:
        """Check that there is a file that can be read, or a folder for one that is made.

        Raises:
            NotALog: there is no file, and none is to be made.
            StorageError: the system does not permit it.
        """
        path = self.path
        if path == MEMORY or path.startswith("file:"):
            return
        if may_exist(path):
            if not os.access(path, os.R_OK):
                raise StorageError(f"cannot open {path}: {explain_denial(path, 'read')}")
            return
        if not create:
            raise NotALog(f"there is no log {path}{self._advice}")
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise StorageError(f"cannot open {path}: there is no folder {folder}; make it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StorageError(f"cannot make {path} in the folder {folder}: {explain_denial(folder, 'write to')}")

    @property
    def _advice(self) -> str:
        return "" if self.read_only else ": give a topic to make one"

    def run(
        self, connection: sqlite3.Connection, topic: str | None, create: bool, progress: Progress | None
    ) -> tuple[str, int]:
        """Return the topic and the schema of the log; one that is read-only keeps an older schema.

        Args:
            connection: to the database.
            topic: that the log must have, or is made with.
            create: whether a log is made where there is none.
            progress: is called while a log of an earlier schema is upgraded.

        Raises:
            CorruptLog: the database is damaged.
            NotALog: there is no log, and none is to be made, or tables of another program take its place.
            NewerSchema, OlderSchema: the log cannot be read.
            StorageError: the path names no file; or the topic is another.
        """
        self._check_file(connection)
        found = self._find(connection)
        if found is None:
            if topic is None or not create:
                raise NotALog(f"{self.path} holds no log{self._advice}{' in it' if self._advice else ''}")
            found = self._create(connection, topic)
        stored, schema = found
        _check_header(connection)
        check_same_topic(self.path, stored, topic)
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        if self.path != MEMORY and not self.read_only:
            _use_write_ahead_log(connection, self.lock_timeout)
        if schema < SCHEMA and not self.read_only:
            schema = self._upgrade(connection, schema, progress)
        return stored, schema

    def _check_file(self, connection: sqlite3.Connection) -> None:
        # The name need not be UTF-8. The table-valued pragma would read the file, which may be no database.
        connection.text_factory = bytes
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        connection.text_factory = str
        if not file and self.path != MEMORY:
            raise StorageError(
                f"{self.path!r} names no file, so each connection would see a database of its own: expected the path"
                f" of a file, or {MEMORY!r} for a log in memory"
            )

    def _find(self, connection: sqlite3.Connection) -> tuple[str, int] | None:
        """Return the topic and the schema of the log in the database, None where there is none."""
        try:
            ours = schema_of_log(connection)
        except sqlite3.DatabaseError as error:
            if error_code(error) == sqlite3.SQLITE_NOTADB:
                problem = f"{self.path} is not a log: it is not an SQLite database"
                raise NotALog(problem, self._repair) from error
            raise
        meta_table = [row for row in ours if row[1] == "gossiplog_meta"]
        if not meta_table:
            if ours:
                problem = f"{self.path} holds no log, but {ours[0][1]}: names that begin with {PREFIX} are for a log's"
                raise NotALog(problem, self._repair)
            return None
        check_tables(meta_table, TABLES[:1])
        meta = dict(
            connection.execute("SELECT name, value FROM gossiplog_meta WHERE name IN ('schema', 'topic') LIMIT 2")
        )
        schema, topic = meta.get("schema"), meta.get("topic")
        if not isinstance(schema, int) or not isinstance(topic, str):
            problem = f"{self.path} is not a log of this package: its table gossiplog_meta says something else"
            raise NotALog(problem, self._repair)
        if schema > SCHEMA:
            raise NewerSchema(
                f"{self.path} was written by a newer version of this package (schema {schema}, this one reads"
                f" {SCHEMA}): upgrade gossiplog"
            )
        if schema < OLDEST:
            raise OlderSchema(
                f"{self.path} was written by an older version of this package (schema {schema}, this one reads"
                f" {OLDEST} to {SCHEMA}): move it away, and get its messages into a new log from where they came: from"
                " another peer by gossiplog sync NEW SOURCE --topic TOPIC, or by importing them anew"
            )
        check_tables(ours, tables_of(schema))
        return topic, schema

    @property
    def _repair(self) -> str:
        """How an error ends where the first page or the table of settings of a log may be damaged."""
        return f"; if it was a log: gossiplog repair {shell_path(self.path)} --from SOURCE"

    def _create(self, connection: sqlite3.Connection, topic: str) -> tuple[str, int]:
        """Make a log in a database, beside what an application has there, unless another process was quicker."""
        connection.execute("BEGIN IMMEDIATE")
        with CommitOrRollback(connection):
            found = self._find(connection)
            if found is not None:
                return found
            for table in TABLES:
                connection.execute(table)
            connection.executemany(
                "INSERT INTO gossiplog_meta(name, value) VALUES (?, ?)",
                [("schema", SCHEMA), ("topic", topic), ("applied", 0), ("indexed", 0), *new_meta().items()],
            )
        return topic, SCHEMA

    def _upgrade(self, connection: sqlite3.Connection, schema: int, progress: Progress | None) -> int:
        """Bring the tables to SCHEMA; leave them as they are where the file cannot be written. Return their schema."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            with CommitOrRollback(connection):
                found = self._find(connection)
                if found is None:
                    raise NotALog(f"{self.path} no longer holds a log")
                topic, schema = found
                if schema < SCHEMA:
                    upgrade(connection, schema, topic, progress)
        except sqlite3.OperationalError as error:
            if not is_read_only(error):
                raise
            return schema
        return SCHEMA


def _check_header(connection: sqlite3.Connection) -> None:
    """Refuse a database whose header would have SQLite write other things over its second page.

    Raises:
        CorruptLog: the header says that the database is vacuumed automatically. Such a one has no table there.
    """
    (auto_vacuum,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if auto_vacuum and connection.execute("SELECT 1 FROM sqlite_schema WHERE rootpage = 2").fetchone():
        raise CorruptLog(["the header of the database says that it is vacuumed automatically, which it is not"])


def _use_write_ahead_log(connection: sqlite3.Connection, lock_timeout: float) -> None:
    deadline = time.monotonic() + lock_timeout
    while True:
        try:
            # A file that cannot be written, or shared, stays as it is, and can be read all the same.
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if is_read_only(error):
                return
            # SQLite does not wait for this lock by itself.
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
