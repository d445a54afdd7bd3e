"""A log in an SQLite database, an application's own or one by itself: a file in WAL mode, or one in memory.

One connection writes, guarded by a lock that a thread may hold; SQLite's own lock (BEGIN IMMEDIATE) keeps other
processes out. Readers have connections of their own, so that they never wait for a writer; a database in memory has
only one connection for both. The statements that read and write messages are in `sqlite_tables`,
those of the log's settings in `sqlite_meta`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextlib import closing as closing_connection
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeAlias, get_args

from gossiplog.errors import CorruptLog, LogClosed, NewerSchema, NotALog, OlderSchema, StorageError
from gossiplog.files import explain_denial
from gossiplog.reprs import shell_path
from gossiplog.storage.base import (
    SCHEMA,
    DiskFailure,
    Progress,
    Reader,
    Storage,
    Transaction,
    check_same_topic,
    closing,
)
from gossiplog.storage.commit_count import CommitCount, describe_loss
from gossiplog.storage.sqlite_backup import back_up
from gossiplog.storage.sqlite_files import (
    MEMORY,
    READ_ONLY_URI,
    check_files,
    check_journal,
    check_unlocked,
    existing_uri,
    file_id,
    file_of,
    text_path,
)
from gossiplog.storage.sqlite_meta import new_meta, stored_identity
from gossiplog.storage.sqlite_tables import (
    DAMAGE,
    OURS,
    PREFIX,
    TABLES,
    Guard,
    SQLiteReader,
    SQLiteTransaction,
    check_tables,
    error_code,
    integrity_problems,
    is_read_only,
    schema_of_log,
    storage_error,
    undecodable,
)
from gossiplog.storage.sqlite_upgrades import OLDEST, FormerContents, former_reader, tables_of, upgrade

Synchronous: TypeAlias = Literal["off", "normal", "full", "extra"]
# With these a commit that has returned is on disk.
_DURABLE = ("full", "extra")

# Seconds to wait for another process's lock.
_PATIENCE = 30.0
# Bytes of the write-ahead log from which a commit has it begin anew; how long that waits for readers, in milliseconds;
# and the seconds after which it is tried again where they went on. Its size is looked at once in so many small commits.
_LOG_BYTES = 16 * 2**20
_READERS_MILLISECONDS = 250
_RETRY_SECONDS = 1.0
_COMMITS = 16
_MANY_MESSAGES = 32
# Connections of readers that are kept open between uses.
_IDLE_READERS = 4
# Bytes in a value that is read, four times what a sync carries; and SQLite's own limit (https://sqlite.org/limits.html).
_MOST_BYTES = 64 * 2**20
_SQLITE_BYTES = 10**9


class SQLiteStorage(Storage):
    """A log in an SQLite database.

    Args:
        path: of the file, or ":memory:", or a URI that begins with "file:" (https://sqlite.org/uri.html).
        synchronous: when SQLite waits for the disk (https://sqlite.org/pragma.html#pragma_synchronous): with "full" an
            append that returned survives a power cut, with "normal" it survives the end of the process.
        read_only: whether nothing is written to the log, which must exist; one of an earlier schema is read without
            being upgraded. SQLite may still move into the file what a crashed writer left in the write-ahead log.
        accept_loss: whether a log that has fewer messages than were acknowledged is opened all the same.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "full",
        read_only: bool = False,
        accept_loss: bool = False,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise ValueError(f"synchronous is {synchronous!r}: expected one of {', '.join(get_args(Synchronous))}")
        self._path = text_path(path)
        self._synchronous = synchronous
        self._read_only = read_only
        self._accept_loss = accept_loss
        # None in memory.
        self._count = None if self._path == MEMORY else CommitCount(file_of(self._path))
        # The same, where a commit that has returned is on disk.
        self._counted = self._count if synchronous in _DURABLE and not self.read_only else None
        self._identity = b""
        self._lost = 0
        self._commits = 0
        self._next_look = 0.0
        self._lock = threading.RLock()
        self._guard = Guard()
        self._writer: sqlite3.Connection | None = None
        # The path of the file, "" in memory; and which file it was when the log was opened.
        self._file = "" if self._path in ("", MEMORY) else os.path.abspath(file_of(self._path))
        self._file_id: tuple[int, int] | None = None
        # The write-ahead log of the file that a symbolic link leads to: SQLite puts it there.
        self._wal_path = ""
        # Whether the writer has met what looked like damage.
        self._is_suspect = False
        self._process = 0
        # Below SCHEMA where the file cannot be written.
        self._schema = SCHEMA
        self._former = FormerContents("")
        # What follows is guarded by a lock of its own, because readers do not wait for the writer.
        self._pool_lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = True

    @property
    def place(self) -> str:
        return self._path

    @property
    def file(self) -> Path | None:
        return Path(file_of(self._path)) if self._file else None

    @property
    def schema(self) -> int:
        """The version of the tables, below SCHEMA where they cannot be upgraded; of a storage that is open."""
        return self._schema

    @property
    def lost(self) -> int:
        return self._lost

    @property
    def read_only(self) -> bool:
        return self._read_only or READ_ONLY_URI.match(self._path) is not None

    def open(self, topic: str | None, create: bool, progress: Progress | None = None) -> str:
        create = create and not self._read_only
        with self._lock:
            if self._writer is not None:
                raise StorageError(f"{self._path} is open already through this storage")
            self._check_there(create and topic is not None)
            try:
                connection, stored = self._open_once(topic, create, progress)
            except (CorruptLog, DiskFailure, NotALog):
                # An error of the disk that passes looks the same.
                connection, stored = self._open_once(topic, create, progress)
            self._writer, self._process, self._closed = connection, os.getpid(), False
            return stored

    def _open_once(self, topic: str | None, create: bool, progress: Progress | None) -> tuple[sqlite3.Connection, str]:
        """Return the connection that writes, and the topic of the log."""
        # Before the log is read: others may write meanwhile.
        acknowledged = None if self._count is None else self._count.read()
        before = file_id(self._file)
        connection = self._connect()
        try:
            self._file_id = file_id(self._file) if before is None else before
            self._wal_path = os.path.realpath(self._file) + "-wal"
            with self._errors("open"):
                self._check_place(connection)
                stored = self._open(connection, topic, create, progress)
                self._check_count(connection, acknowledged)
            self._check_file()
        except BaseException:
            connection.close()
            raise
        # `apply` may have values of its own.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_BYTES)
        connection.set_authorizer(self._guard)
        return connection, stored

    def _check_there(self, create: bool) -> None:
        if self._path == MEMORY or self._path.startswith("file:"):
            return
        if os.path.exists(self._path):
            if not os.access(self._path, os.R_OK):
                raise StorageError(f"cannot open {self._path}: {explain_denial(self._path, 'read')}")
            return
        if not create:
            raise NotALog(f"there is no log {self._path}{self._advice}")
        folder = os.path.dirname(self._path) or "."
        if not os.path.isdir(folder):
            raise StorageError(f"cannot open {self._path}: there is no folder {folder}; make it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StorageError(f"cannot make {self._path} in the folder {folder}: {explain_denial(folder, 'write to')}")

    @property
    def _advice(self) -> str:
        return "" if self._read_only else ": give a topic to make one"

    def _check_place(self, connection: sqlite3.Connection) -> None:
        # The name need not be UTF-8. The table-valued pragma would read the file, which may be no database.
        connection.text_factory = bytes
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        connection.text_factory = str
        if not file and self._path != MEMORY:
            raise StorageError(
                f"{self._path!r} names no file, so each connection would see a database of its own: expected the path"
                f" of a file, or {MEMORY!r} for a log in memory"
            )

    def _open(self, connection: sqlite3.Connection, topic: str | None, create: bool, progress: Progress | None) -> str:
        found = self._stored(connection)
        if found is None:
            if topic is None or not create:
                raise NotALog(f"{self._path} holds no log{self._advice}{' in it' if self._advice else ''}")
            found = self._create(connection, topic)
        stored, self._schema = found
        self._check_header(connection)
        check_same_topic(self._path, stored, topic)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        if self._path != MEMORY and not self._read_only:
            self._use_write_ahead_log(connection)
        if self._schema < SCHEMA:
            self._former = FormerContents(stored)
            if not self._read_only:
                self._upgrade(connection, progress)
        return stored

    @staticmethod
    def _check_header(connection: sqlite3.Connection) -> None:
        """Refuse a database whose header would have SQLite write other things over its second page.

        Raises:
            CorruptLog: the header says that the database is vacuumed automatically. Such a one has no table there.
        """
        (auto_vacuum,) = connection.execute("PRAGMA auto_vacuum").fetchone()
        if auto_vacuum and connection.execute("SELECT 1 FROM sqlite_schema WHERE rootpage = 2").fetchone():
            raise CorruptLog(["the header of the database says that it is vacuumed automatically, which it is not"])

    def is_marked_read_only(self, error: sqlite3.Error) -> bool:
        """Return whether SQLite does not write a file that can be written: its header has an unknown write version."""
        return (
            not self.read_only
            and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY
            and all(os.access(place, os.W_OK) for place in (self._file, os.path.dirname(self._file)))
        )

    def _check_count(self, connection: sqlite3.Connection, acknowledged: tuple[bytes, int] | None) -> None:
        """Refuse a log that has fewer messages than were acknowledged.

        Args:
            connection: to the database.
            acknowledged: as the count's file had it before the log was read.

        Raises:
            CorruptLog: messages are lost, and that is not accepted.
        """
        if self._count is None or self._schema < SCHEMA:
            return
        try:
            self._identity = stored_identity(connection)
            last = SQLiteReader(connection).last_sequence()
        except (CorruptLog, sqlite3.DatabaseError):
            # Damage that keeps the two from being compared keeps nobody from reading on.
            if self._accept_loss and self.read_only:
                return
            raise
        if acknowledged is None or acknowledged[0] != self._identity:
            return
        self._lost = lost = max(acknowledged[1] - last, 0)
        if not lost:
            return
        if not self._accept_loss:
            self._close_leaving_log(connection)
            place = shell_path(self._path)
            back = "it" if lost == 1 else "them"
            raise CorruptLog(
                [
                    f"{describe_loss(lost, self._path)}: it holds {last:,}, and"
                    f" {self._count.path} says that {acknowledged[1]:,} were on disk. Its write-ahead log was damaged"
                    " or removed, or the file is an older copy"
                ],
                advice=(
                    f"; gossiplog repair {place} --from SOURCE gets {back} back. Only if no replica has {back}:"
                    f" gossiplog repair {place} --accept-loss goes on without {back} (in programs accept_loss=True)"
                ),
            )
        if self._counted is not None:
            self._counted.write(self._identity, last)

    def _close_leaving_log(self, connection: sqlite3.Connection) -> None:
        """Close a connection, and have SQLite leave the write-ahead log as it is.

        Otherwise the last connection moves what SQLite reads of it into the file, and removes the rest, from which
        `repair` may get back what was lost.
        """
        uri = f"{Path(os.path.realpath(file_of(self._path))).as_uri()}?mode=ro"
        with suppress(sqlite3.Error), closing_connection(sqlite3.connect(uri, uri=True)) as last:
            last.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            connection.close()

    def _upgrade(self, connection: sqlite3.Connection, progress: Progress | None) -> None:
        """Bring the tables to SCHEMA; leave them as they are where the file cannot be written."""
        try:
            connection.execute("BEGIN IMMEDIATE")
            with _Ended(connection):
                found = self._stored(connection)
                if found is None:
                    raise NotALog(f"{self._path} no longer holds a log")
                topic, schema = found
                if schema < SCHEMA:
                    upgrade(connection, schema, topic, progress)
        except sqlite3.OperationalError as error:
            if not is_read_only(error):
                raise
        else:
            self._schema = SCHEMA

    def _stored(self, connection: sqlite3.Connection) -> tuple[str, int] | None:
        """Return the topic and the schema of the log in the database, None where there is none.

        Tables of an application do not matter.
        """
        try:
            ours = schema_of_log(connection)
        except sqlite3.DatabaseError as error:
            if error_code(error) == sqlite3.SQLITE_NOTADB:
                problem = f"{self._path} is not a log: it is not an SQLite database"
                raise NotALog(problem, self._repair()) from error
            raise
        meta_table = [row for row in ours if row[1] == "gossiplog_meta"]
        if not meta_table:
            if ours:
                problem = f"{self._path} holds no log, but {ours[0][1]}: names that begin with {PREFIX} are for a log's"
                raise NotALog(problem, self._repair())
            return None
        check_tables(meta_table, TABLES[:1])
        meta = dict(
            connection.execute("SELECT name, value FROM gossiplog_meta WHERE name IN ('schema', 'topic') LIMIT 2")
        )
        schema, topic = meta.get("schema"), meta.get("topic")
        if not isinstance(schema, int) or not isinstance(topic, str):
            raise NotALog(f"{self._path} is not a log of this package: its table gossiplog_meta says something else")
        if schema > SCHEMA:
            raise NewerSchema(
                f"{self._path} was written by a newer version of this package (schema {schema}, this one reads"
                f" {SCHEMA}): upgrade gossiplog"
            )
        if schema < OLDEST:
            raise OlderSchema(
                f"{self._path} was written by an older version of this package (schema {schema}, this one reads"
                f" {OLDEST} to {SCHEMA}): move it away, and get its messages into a new log from where they came, by"
                " gossiplog sync with another peer, or by importing them anew"
            )
        check_tables(ours, tables_of(schema))
        return topic, schema

    def _repair(self) -> str:
        """Return how an error ends where the first page or the table of settings of a log may be damaged."""
        return f"; if it was a log: gossiplog repair {shell_path(self._path)} --from SOURCE"

    def _create(self, connection: sqlite3.Connection, topic: str) -> tuple[str, int]:
        """Make a log in a database, beside what an application has there, unless another process was quicker."""
        connection.execute("BEGIN IMMEDIATE")
        with _Ended(connection):
            found = self._stored(connection)
            if found is not None:
                return found
            for table in TABLES:
                connection.execute(table)
            connection.executemany(
                "INSERT INTO gossiplog_meta(name, value) VALUES (?, ?)",
                [("schema", SCHEMA), ("topic", topic), ("applied", 0), ("indexed", 0), *new_meta().items()],
            )
        return topic, SCHEMA

    @staticmethod
    def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + _PATIENCE
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

    @contextmanager
    def reader(self, *, single: bool = False) -> Iterator[Reader]:
        with self._reading() as connection:
            if single or self._path == MEMORY:
                yield self._reader_of(connection)
                return
            connection.execute("BEGIN")
            with _Ended(connection):
                yield self._reader_of(connection)

    def _reader_of(self, connection: sqlite3.Connection) -> Reader:
        if self._schema == SCHEMA:
            return SQLiteReader(connection)
        return former_reader(self._schema, connection, self._former)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Provide a connection to read through."""
        self._check_open()
        if self._path == MEMORY:
            with self._lock:
                writer = self._open_writer()
                with self._errors("read"):
                    yield writer
            return
        connection = self._borrow()
        try:
            with self._errors("read"):
                yield connection
        except (CorruptLog, DiskFailure):
            # What a connection has read stays in its cache.
            connection.close()
            self._close_idle()
            raise
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)

    def transaction(self) -> AbstractContextManager[Transaction]:
        self._check_open()
        if self._read_only:
            raise StorageError(f"cannot write to {self._path}: it was opened read-only")
        if self._schema < SCHEMA:
            raise StorageError(
                f"cannot write to {self._path}: the file or its folder was read-only when it was opened, so that its"
                f" log still has schema {self._schema}; make it writable, and open it again"
            )
        return _Writing(
            self._lock,
            self._open_writer,
            self._renew,
            self._guard,
            self._errors("write to"),
            self._check_file,
            self._committed,
        )

    def _committed(self, connection: sqlite3.Connection, first: int, last: int) -> None:
        """Count the messages of a commit, and keep the write-ahead log short. Called under the lock of the writes.

        Args:
            connection: that has committed.
            first: the sequence of its first message.
            last: the sequence of its last message.
        """
        if self._counted is not None:
            self._counted.write(self._identity, last)
        self._commits += 1
        if self._path != MEMORY and (self._commits % _COMMITS == 0 or last - first >= _MANY_MESSAGES):
            self._shorten_log(connection)

    def _shorten_log(self, connection: sqlite3.Connection) -> None:
        """Have the write-ahead log begin anew where it is large.

        SQLite's own checkpoints move what is in it, but it begins anew only when a writer finds no reader that uses it,
        and among several that read one after the other there is always one.
        """
        try:
            size = os.stat(self._wal_path).st_size
        except OSError:
            return
        if size < _LOG_BYTES or time.monotonic() < self._next_look:
            return
        # The messages are committed: what fails here is tried again, or the next read or write names it.
        with suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {_READERS_MILLISECONDS}")
            try:
                (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if busy:
                    self._next_look = time.monotonic() + _RETRY_SECONDS
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(_PATIENCE * 1000)}")

    def size(self) -> int:
        self._check_open()
        if self._path == MEMORY or self._path.startswith("file:"):
            with self._lock, self._errors("read"):
                pages, size = (
                    self._open_writer()
                    .execute("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
                    .fetchone()
                )
                return int(pages * size)
        files = (Path(self._path), Path(self._path + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def backup(self, target: str, progress: Progress | None = None) -> int:
        with self._reading() as connection:
            try:
                mode = 0o600 if self._path == MEMORY else os.stat(file_of(self._path)).st_mode
            except OSError as error:
                raise StorageError(f"cannot read {self._path}: {error.strerror}") from error
            connection.execute("BEGIN")
            with _Ended(connection):
                count = self._reader_of(connection).position().count
                back_up(connection, target, mode, progress)
        return count

    def check(self) -> list[str]:
        with self._reading() as connection:
            try:
                found = integrity_problems(connection)
            except sqlite3.DatabaseError as error:
                if error_code(error) not in DAMAGE:
                    raise
                found = [str(error)]
        return [f"SQLite: {line}" for line in found]

    def close(self) -> None:
        if self._process != os.getpid():
            # The connections are the parent process's: closing them here would release its locks. Ours may have been
            # held by one of its threads, and then nobody releases them here.
            self._closed = True
            return
        with self._pool_lock:
            self._closed = True
        self._close_idle()
        with closing(self._lock, self._path):
            writer, self._writer = self._writer, None
            if writer is not None:
                with self._errors("close"):
                    writer.close()
            if self._count is not None:
                self._count.close()

    def _connect(self) -> sqlite3.Connection:
        if self._path != MEMORY:
            check_files(self._path)
            check_journal(self._path)
            check_unlocked(self._path)
        with self._errors("open"):
            name = existing_uri(self._path) if self._read_only else self._path
            connection = sqlite3.connect(
                name,
                timeout=_PATIENCE,
                isolation_level=None,
                check_same_thread=False,
                uri=name.startswith("file:"),
            )
            # The file may be a stranger's (https://sqlite.org/security.html). No log needs what is switched off.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            if self._read_only:
                connection.execute("PRAGMA query_only = ON")
        return connection

    def _borrow(self) -> sqlite3.Connection:
        with self._pool_lock:
            self._check_open()
            if self._idle:
                return self._idle.pop()
        # Under the name of a file that is gone, SQLite makes an empty one.
        self._check_file()
        connection = self._connect()
        try:
            self._check_file()
            with self._errors("read"):
                connection.execute("PRAGMA query_only = ON")
        except StorageError:
            connection.close()
            raise
        return connection

    def _close_idle(self) -> None:
        with self._pool_lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._pool_lock:
            if not self._closed and len(self._idle) < _IDLE_READERS and not connection.in_transaction:
                self._idle.append(connection)
                return
        connection.close()

    def _open_writer(self) -> sqlite3.Connection:
        if self._closed or self._writer is None:
            raise LogClosed(f"the log {self._path} is closed")
        if self._is_suspect:
            self._check_file()
            connection = self._connect()
            try:
                self._check_file()
                with self._errors("write to"):
                    connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_BYTES)
                connection.set_authorizer(self._guard)
            except BaseException:
                connection.close()
                raise
            former, self._writer, self._is_suspect = self._writer, connection, False
            former.close()
        return self._writer

    def _check_file(self) -> None:
        """Check that the path names the file that was opened: SQLite goes on with a file that has lost its name.

        Raises:
            StorageError: the file was deleted or moved, or another one has taken its name.
        """
        found = file_id(self._file)
        if found == self._file_id:
            return
        what, way = (
            ("was deleted or moved away", "move it back to go on")
            if found is None
            else ("was replaced by another file", "close the log and open it again to go on with that one")
        )
        raise StorageError(
            f"the file {self._file} {what} while the log was open, so nothing more is written to it: {way}. If it is"
            " lost, restore a backup, or get its messages from a peer or a hub: gossiplog sync NEW SOURCE"
        )

    def _renew(self) -> None:
        """Have the next transaction begin on a new connection: what this one has read stays in its cache."""
        self._is_suspect = self._path != MEMORY

    def _check_open(self) -> None:
        """Check, before a lock is taken, that the log is open here: a forked process may have inherited it locked."""
        if self._closed:
            raise LogClosed(f"the log {self._path} is closed")
        if self._process != os.getpid():
            raise StorageError(
                f"{self._path} was opened before this process was forked: SQLite does not survive that; open it again"
            )

    def _errors(self, doing: str) -> _Errors:
        return _Errors(self, doing)


class _Errors:
    """A block whose errors of the driver are raised as StorageError. A class for the same reason as `_Ended`."""

    __slots__ = ("_doing", "_storage")

    def __init__(self, storage: SQLiteStorage, doing: str) -> None:
        self._storage = storage
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, sqlite3.Error):
            found = storage_error(self._storage.place, self._doing, error)
            if self._storage.is_marked_read_only(error):
                problem = f"cannot {self._doing} {self._storage.place}: its header says that SQLite must not write it"
                found = CorruptLog([problem])
            raise self._located(found) from error
        if isinstance(error, UnicodeDecodeError):
            raise self._located(undecodable(self._storage.place, self._doing, error)) from error
        if isinstance(error, CorruptLog):
            self._located(error)

    def _located(self, error: StorageError) -> StorageError:
        if isinstance(error, CorruptLog):
            error.locate(self._storage.file)
        return error


class _Writing:
    """A block that is a transaction, the only one at a time. A class for the same reason as `_Ended`.

    Args:
        lock: that keeps other threads out.
        writer: returns the connection; called under the lock.
        renew: is called under the lock after a transaction that met what looks like damage.
        guard: of the connection.
        errors: that the driver's errors are raised as.
        check_file: raises StorageError before a commit that nobody would find.
        committed: is called under the lock, after a commit that added messages: with the connection, and the sequences
            of the first and the last.
    """

    __slots__ = (
        "_check_file",
        "_committed",
        "_connection",
        "_ended",
        "_errors",
        "_guard",
        "_lock",
        "_renew",
        "_transaction",
        "_writer",
    )

    def __init__(
        self,
        lock: threading.RLock,
        writer: Callable[[], sqlite3.Connection],
        renew: Callable[[], None],
        guard: Guard,
        errors: _Errors,
        check_file: Callable[[], None],
        committed: Callable[[sqlite3.Connection, int, int], None],
    ) -> None:
        self._check_file = check_file
        self._committed = committed
        self._lock = lock
        self._writer = writer
        self._renew = renew
        self._guard = guard
        self._errors = errors

    def __enter__(self) -> Transaction:
        self._lock.acquire()
        try:
            connection = self._connection = self._writer()
            if connection.in_transaction:
                raise StorageError("this thread is in a transaction of the log: `apply` must not append or insert")
            self._ended = _Ended(connection, self._check_file)
            self._transaction = SQLiteTransaction(connection, self._guard)
            with self._errors:
                connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._check(error)
            self._lock.release()
            raise
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            with self._errors:
                self._ended.__exit__(kind, error, traceback)
            if error is None:
                self._transaction.committed()
                if self._transaction.written is not None:
                    self._committed(self._connection, *self._transaction.written)
            else:
                # What the block itself raised.
                self._errors.__exit__(kind, error, traceback)
        except StorageError as failure:
            self._check(failure)
            raise
        finally:
            try:
                self._transaction.end()
            finally:
                if error is not None:
                    self._check(error)
                self._lock.release()

    def _check(self, error: BaseException) -> None:
        if isinstance(error, (CorruptLog, DiskFailure)):
            self._renew()


class _Ended:
    """A block that ends the transaction: commits it, or rolls it back where the block or the commit raises.

    A class, because a generator costs each append microseconds.
    """

    __slots__ = ("_before_commit", "_connection")

    def __init__(self, connection: sqlite3.Connection, before_commit: Callable[[], None] | None = None) -> None:
        self._connection = connection
        self._before_commit = before_commit

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self._before_commit is not None:
                    self._before_commit()
                self._connection.execute("COMMIT" + OURS)
        finally:
            # After some errors, as a full disk, SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK" + OURS)
