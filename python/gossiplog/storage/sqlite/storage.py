"""A log in an SQLite database, an application's own or one by itself: a file in WAL mode, or one in memory.

One connection writes, guarded by a lock that a thread may hold; SQLite's own lock (BEGIN IMMEDIATE) keeps other
processes out. Readers have connections of their own, so that they never wait for a writer; a database in memory has
only one connection for both. How a log is found, made and upgraded is in `opening`, how a transaction begins
and ends in `transactions`; the statements that read and write messages are in `tables`, those of the log's settings in
`meta`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import get_args

from gossiplog.errors import CorruptLog, LogClosed, NotALog, StorageError
from gossiplog.reprs import counted, last_counted, shell_path
from gossiplog.storage.base import (
    SCHEMA,
    DiskFailure,
    Progress,
    Reader,
    Storage,
    Synchronous,
    Transaction,
    closing,
)
from gossiplog.storage.postgres.url import check_is_file
from gossiplog.storage.sqlite.backup import back_up
from gossiplog.storage.sqlite.commit_count import (
    CommitCount,
    describe_former,
    describe_left,
    describe_loss,
)
from gossiplog.storage.sqlite.files import (
    DAMAGE,
    MEMORY,
    READ_ONLY_URI,
    check_files,
    check_journal,
    check_unlocked,
    distrust,
    error_code,
    existing_uri,
    file_id,
    file_of,
    find_write_refusal,
    text_path,
    wal_of,
)
from gossiplog.storage.sqlite.meta import stored_identity, stored_origins
from gossiplog.storage.sqlite.open_files import OpenFiles
from gossiplog.storage.sqlite.opening import LOCK_TIMEOUT, Opening
from gossiplog.storage.sqlite.set_aside import find_set_aside
from gossiplog.storage.sqlite.tables import (
    MARKED_READ_ONLY,
    SQLiteReader,
    integrity_problems,
)
from gossiplog.storage.sqlite.transactions import (
    CommitOrRollback,
    Guard,
    StorageErrors,
    WriteTransaction,
    is_marked_read_only,
)
from gossiplog.storage.sqlite.upgrades import FormerContents, former_reader
from gossiplog.storage.sqlite.write_ahead_log import (
    close_leaving_log,
    describe_unread,
    keep_former,
    unread_commits,
    unread_for_good,
)

# With these a commit that has returned is on disk.
_DURABLE = ("full", "extra")
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
        lock_timeout: the seconds to wait for a lock that another process holds; None waits 30.

    Raises:
        ValueError: `synchronous` is none of these.
        StorageError: the path is a URL.

    Examples:
        >>> storage = gossiplog.SQLiteStorage("fast.db", synchronous="normal")
        >>> with gossiplog.open(storage, "org.example.notes", signer=alice) as fast:
        ...     print(fast.append("one").clock)
        1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "full",
        read_only: bool = False,
        accept_loss: bool = False,
        lock_timeout: float | None = None,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise ValueError(f"synchronous is {synchronous!r}: expected one of {', '.join(get_args(Synchronous))}")
        self._path = text_path(path)
        check_is_file(self._path)
        self._lock_timeout = LOCK_TIMEOUT if lock_timeout is None else lock_timeout
        self._opening = Opening(self._path, read_only, synchronous, self._lock_timeout)
        self._accept_loss = accept_loss
        # None in memory.
        self._count = None if self._path == MEMORY else CommitCount(file_of(self._path))
        # The same, where a commit that has returned is on disk.
        self._counted = self._count if synchronous in _DURABLE and not self.read_only else None
        self._identity = b""
        self._origins: tuple[tuple[bytes, int], ...] = ()
        self._losses: list[str] = []
        self._lock = threading.RLock()
        self._guard = Guard()
        self._writer: sqlite3.Connection | None = None
        # The path of the file, "" in memory.
        self._file = "" if self._path in ("", MEMORY) else os.path.abspath(file_of(self._path))
        # None in memory, and until the log is open.
        self._files: OpenFiles | None = None
        # Whether the writer has met what looked like damage.
        self._is_suspect = False
        self._process = 0
        # Below SCHEMA where the file cannot be written.
        self._schema = SCHEMA
        self._former = FormerContents("")
        self._write_refusal = ""
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
    def identity(self) -> bytes:
        return self._identity

    def origin(self, sequence: int) -> bytes:
        return next((identity for identity, last in self._origins if sequence <= last), self._identity)

    @property
    def schema(self) -> int:
        """The version of the tables, below SCHEMA where they cannot be upgraded; of a storage that is open."""
        return self._schema

    @property
    def losses(self) -> Sequence[str]:
        return self._losses

    @property
    def read_only(self) -> bool:
        return self._opening.read_only or READ_ONLY_URI.match(self._path) is not None

    @property
    def write_refusal(self) -> str:
        return super().write_refusal or self._write_refusal

    def open(self, topic: str | None, create: bool, progress: Progress | None = None) -> str:
        create = create and not self._opening.read_only
        with self._lock:
            if self._writer is not None:
                raise StorageError(f"{self._path} is open already through this storage")
            given_up = []
            if self._count is not None and self._file:
                given_up = self._describe_loss(self._count.check_not_gone(accept_loss=self._accept_loss))
            self._opening.check_there(create and topic is not None)
            try:
                connection, stored = self._open_once(topic, create, progress)
            except (CorruptLog, DiskFailure, NotALog):
                # An error of the disk that passes looks the same.
                connection, stored = self._open_once(topic, create, progress)
            self._writer, self._process, self._closed = connection, os.getpid(), False
            self._losses += given_up
            self._write_refusal = find_write_refusal(self._file) if self._file else ""
            return stored

    def _describe_loss(self, lost: int) -> list[str]:
        return [f"{self._path} goes on without {counted(lost, 'acknowledged message')}"] if lost else []

    def _open_once(self, topic: str | None, create: bool, progress: Progress | None) -> tuple[sqlite3.Connection, str]:
        """Return the connection that writes, and the topic of the log."""
        self._losses, acknowledged = [], None
        if self._count is not None:
            check_files(self._path)
            self._count.check_database()
            # Before the log is read: others may write meanwhile.
            acknowledged = self._count.read()
        before = file_id(self._file)
        connection = self._connect()
        try:
            file = file_id(self._file) if before is None else before
            with self._errors("open"):
                stored, self._schema = self._opening.run(connection, topic, create, progress)
                self._former = FormerContents(stored)
                self._check_count(connection, acknowledged)
            if self._file:
                self._files = OpenFiles(
                    self._file, file, self._identity, self._lock_timeout, is_saved=not self.read_only
                )
            self._check_files()
            self._prepare_writer(connection)
        except BaseException:
            if before is None:
                connection.close()
                self._remove_if_made()
            else:
                close_leaving_log(connection, self._path, self._lock_timeout)
            raise
        return connection, stored

    def _remove_if_made(self) -> None:
        """Remove the file that opening has made and left empty, as on a full disk."""
        if self._file:
            with suppress(OSError):
                if not os.path.getsize(self._file):
                    os.unlink(self._file)

    def _prepare_writer(self, connection: sqlite3.Connection) -> None:
        with self._errors("write to"):
            # The opening has waited for the disk in the same way.
            connection.execute(f"PRAGMA synchronous = {self._opening.synchronous}")
            # `Checkpoints` makes them.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        # `apply` may have values of its own.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_BYTES)
        connection.set_authorizer(self._guard)

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
            self._identity, self._origins = stored_identity(connection), stored_origins(connection)
            last = SQLiteReader(connection).last_sequence()
        except (CorruptLog, sqlite3.DatabaseError):
            # Damage that keeps the two from being compared keeps nobody from reading on.
            if self._accept_loss and self.read_only:
                return
            raise
        if acknowledged is None or acknowledged[0] != self._identity:
            self._check_all_is_read(connection)
            return
        lost = max(acknowledged[1] - last, 0)
        self._losses = self._describe_loss(lost)
        if not lost:
            return
        if not self._accept_loss:
            place = shell_path(self._path)
            back = "it" if lost == 1 else "them"
            left = describe_left(last, acknowledged[1])
            cause, first = "cut off or removed, or the file is an older copy", ""
            accepting = f"gossiplog repair {place} --accept-loss goes on with {left} (in programs accept_loss=True)"
            for aside in find_set_aside(self._count.database_name)[:1]:
                if aside.count > last:
                    first = f" {aside.describe()}: gossiplog repair {place} --from {shell_path(aside.path)}. Otherwise"
            if unread := unread_commits(wal_of(os.path.realpath(self._file))):
                cause = f"damaged: SQLite does not read its {last_counted(unread, 'transaction')}"
                first += (
                    f" gossiplog repair {place} reads what follows the damage, too. What is lost then is in a replica:"
                )
                # A repair may have fewer: of damaged pages it knows no earlier version.
                accepting = f"in programs, accept_loss=True goes on with {left}, those that SQLite reads"
            raise CorruptLog(
                [
                    f"{describe_loss(lost, self._path)}: it holds {last:,}, and"
                    f" {self._count.name} says that {acknowledged[1]:,} were on disk. Its write-ahead log was {cause}"
                ],
                advice=(
                    f";{first} gossiplog repair {place} --from SOURCE gets {back} back. Only if no replica has {back}:"
                    f" {accepting}{describe_former(self._count.database_name)}"
                ),
            )
        if self._counted is not None:
            self._counted.write(self._identity, last)

    def _check_all_is_read(self, connection: sqlite3.Connection) -> None:
        """Refuse to read a log of whose write-ahead log SQLite drops some, where no count says whether that is a loss.

        A writer goes on, as a server must after a power cut in the midst of a commit, and keeps all of it in a copy.

        Raises:
            CorruptLog: the log is only to be read, or no copy can be made.
        """
        wal = wal_of(os.path.realpath(self._file))
        if self._accept_loss or not self._file or not (unread := unread_for_good(wal)):
            return
        place, why = shell_path(self._path), "no count says whether these were acknowledged"
        if not self.read_only:
            try:
                kept = keep_former(wal)
            except OSError as error:
                why += f", and no copy of it can be made beside it ({error.strerror}): make room there"
            else:
                self._losses = [
                    f"{describe_unread(wal, unread, 'SQLite')}. {kept} is a copy with what SQLite does not read;"
                    f" gossiplog doctor {place} says whether the log lacks any of it"
                ]
                return
        raise CorruptLog(
            [describe_unread(wal, unread)],
            advice=f", and {why}; gossiplog repair {place} reads them",
        )

    @contextmanager
    def reader(self, *, single: bool = False) -> Iterator[Reader]:
        with self._reading() as connection:
            if single or self._path == MEMORY:
                yield self._reader_of(connection)
                return
            connection.execute("BEGIN")
            with CommitOrRollback(connection):
                yield self._reader_of(connection)

    def _reader_of(self, connection: sqlite3.Connection) -> Reader:
        if self._schema == SCHEMA:
            return SQLiteReader(connection)
        return former_reader(self._schema, connection, self._former)

    @contextmanager
    def _reading(self, *, by_writer: bool = False) -> Iterator[sqlite3.Connection]:
        """Provide a connection to read through.

        Args:
            by_writer: whether to take the one that writes, as always in memory.
        """
        self._check_open()
        if by_writer or self._path == MEMORY:
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
        if self._opening.read_only:
            raise StorageError(f"cannot write to {self._path}: it was opened read-only")
        if self._schema < SCHEMA:
            raise StorageError(
                f"cannot write to {self._path}: the file or its folder was read-only when it was opened, so that its"
                f" log still has schema {self._schema}; make it writable, and open it again"
            )
        return WriteTransaction(
            self._lock,
            self._open_writer,
            self._renew,
            self._guard,
            self._errors("write to"),
            self._check_files,
            self._committed,
        )

    def _committed(self, connection: sqlite3.Connection, written: tuple[int, int] | None) -> None:
        """Count the messages of a commit, and look after the write-ahead log. Called under the lock of the writes.

        Args:
            connection: that has committed.
            written: the sequences of its first and its last message, None where there is none.
        """
        if written is not None and self._counted is not None:
            self._counted.write(self._identity, written[1])
        if self._files is not None:
            self._files.checkpoints.committed(connection, None if written is None else written[1] - written[0] + 1)

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
        files = (Path(self._path), wal_of(self._path))
        return sum(file.stat().st_size for file in files if file.exists())

    def backup(self, target: str, progress: Progress | None = None) -> int:
        # No other connection finds a file without a name.
        is_lost = self._files is not None and self._files.is_lost()
        with self._reading(by_writer=is_lost) as connection:
            connection.execute("BEGIN")
            with CommitOrRollback(connection):
                count = self._reader_of(connection).position().count
                back_up(connection, target, 0o600 if self._files is None else self._files.mode, progress)
        return count

    def check(self) -> list[str]:
        with self._reading() as connection:
            try:
                found = integrity_problems(connection)
            except sqlite3.DatabaseError as error:
                if error_code(error) not in DAMAGE:
                    raise
                found = [str(error)]
            found = [f"SQLite: {line}" for line in found]
            is_file = self._path != MEMORY and READ_ONLY_URI.match(self._path) is None
            if is_file and self._schema == SCHEMA and is_marked_read_only(os.path.realpath(self._file)):
                found.append(MARKED_READ_ONLY)
        return found

    def check_files(self) -> None:
        self._check_open()
        if self._files is not None:
            self._files.checkpoints.look()
        self._check_files()

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
            if self._count is not None:
                self._count.close()
            if self._writer is not None:
                with self._errors("close"):
                    # What cannot be saved stays open: the next call tries again.
                    saved = None if self._files is None else self._files.save(self._writer)
                    writer, self._writer = self._writer, None
                    if self._files is None:
                        writer.close()
                    else:
                        self._files.close(writer, saved)

    def _connect(self) -> sqlite3.Connection:
        if self._path != MEMORY:
            check_files(self._path)
            check_journal(self._path)
            check_unlocked(self._path)
        with self._errors("open"):
            name = existing_uri(self._path) if self._opening.read_only else self._path
            connection = sqlite3.connect(
                name,
                timeout=self._lock_timeout,
                isolation_level=None,
                check_same_thread=False,
                uri=name.startswith("file:"),
            )
            # The file may be a stranger's. No log needs what is switched off.
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
            distrust(connection)
            if self._opening.read_only:
                connection.execute("PRAGMA query_only = ON")
        return connection

    def _borrow(self) -> sqlite3.Connection:
        with self._pool_lock:
            self._check_open()
            if self._idle:
                return self._idle.pop()
        # Under the name of a file that is gone, SQLite makes an empty one.
        self._check_files()
        connection = self._connect()
        try:
            self._check_files()
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
        with self._errors("close"):
            if self._files is None:
                connection.close()
            else:
                # There may be no other.
                self._files.checkpoints.close(connection)

    def _open_writer(self) -> sqlite3.Connection:
        if self._closed or self._writer is None:
            raise LogClosed(f"the log {self._path} is closed: open it again")
        if self._is_suspect:
            self._check_files()
            connection = self._connect()
            try:
                self._check_files()
                self._prepare_writer(connection)
            except BaseException:
                connection.close()
                raise
            former, self._writer, self._is_suspect = self._writer, connection, False
            former.close()
        return self._writer

    def _check_files(self) -> None:
        """Check that the paths name the files that were opened: SQLite goes on with a file that has lost its name.

        Raises:
            StorageError: they do not, or another file was copied over the database.
        """
        if self._files is not None:
            self._files.check()

    def _renew(self) -> None:
        """Have the next transaction begin on a new connection: what this one has read stays in its cache."""
        self._is_suspect = self._path != MEMORY

    def _check_open(self) -> None:
        """Check, before a lock is taken, that the log is open here: a forked process may have inherited it locked."""
        if self._closed:
            raise LogClosed(f"the log {self._path} is closed: open it again")
        if self._process != os.getpid():
            raise StorageError(
                f"{self._path} was opened before this process was forked: SQLite does not survive that; open it again"
            )

    def _errors(self, doing: str) -> StorageErrors:
        return StorageErrors(self, doing)
