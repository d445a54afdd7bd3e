"""A log in a Postgres database, in a schema of its own or beside an application's tables.

One connection writes, guarded by a lock that a thread may hold; an advisory lock of the database keeps other processes
out. Readers have connections of their own, and never wait for a writer. How a log is found and made is in `opening`,
how a transaction begins and ends in `transactions`, the tables and the statements that read them in `tables`;
`connections` says what is set on a connection.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import get_args

import psycopg

from gossiplog.errors import CorruptLog, LogClosed, StorageError
from gossiplog.reprs import shell_path
from gossiplog.storage.base import (
    DiskFailure,
    Progress,
    Reader,
    SequencesTaken,
    Storage,
    Synchronous,
    Transaction,
    closing,
)
from gossiplog.storage.postgres.backup import back_up
from gossiplog.storage.postgres.changes import CommitListener, channel_of
from gossiplog.storage.postgres.checks import integrity_problems
from gossiplog.storage.postgres.connections import Session
from gossiplog.storage.postgres.errors import PostgresErrors, hiding, is_connection_lost
from gossiplog.storage.postgres.guard import Guard
from gossiplog.storage.postgres.health import find_write_refusal
from gossiplog.storage.postgres.opening import Found, Opening, lock_key
from gossiplog.storage.postgres.tables import PostgresReader, Statements
from gossiplog.storage.postgres.transactions import PostgresTransaction, WriteTransaction
from gossiplog.storage.postgres.url import PostgresURL

# Connections of readers that are kept open between uses.
_IDLE_READERS = 4
_RESTART_SECONDS = 15.0
"""How long a server is waited for that went away with a commit, so that it can be asked what it has stored."""
_PAUSE = 0.1
_SIZE = """
    SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(oid)), 0)::pg_catalog.int8
    FROM pg_catalog.pg_class WHERE relnamespace = %b::pg_catalog.oid AND relkind IN ('r', 'm')
"""


class PostgresStorage(Storage):
    """A log in a Postgres database.

    Args:
        url: as `postgresql://user@host/database?schema=name`, or parsed.
        synchronous: when a commit waits for the disks (synchronous_commit of the server): with "full" and "extra" an
            append that returned survives a crash of the server; with "off" and "normal" it survives the end of this
            process, and the server may lose the last half second of a crash.
        read_only: whether nothing is written to the log, which must exist.
        lock_timeout: the seconds to wait for a lock that another process holds; None waits 30.
    """

    def __init__(
        self,
        url: str | PostgresURL,
        *,
        synchronous: Synchronous = "full",
        read_only: bool = False,
        lock_timeout: float | None = None,
    ) -> None:
        if synchronous not in get_args(Synchronous):
            raise ValueError(f"synchronous is {synchronous!r}: expected one of {', '.join(get_args(Synchronous))}")
        self._url = PostgresURL.parse(url) if isinstance(url, str) else url
        self._synchronous = synchronous
        self._read_only = read_only
        self._lock_timeout = lock_timeout
        self._write_refusal = ""
        # Made once: an append is too short for it.
        self._place = self._url.place
        self._hide = hiding(self._url)
        self._errors_of: dict[str, PostgresErrors] = {}
        self._statements = Statements(self._url.schema)
        self._opening = Opening(self._url, read_only, self._statements)
        self._lock = threading.RLock()
        self._writer: Session | None = None
        self._is_writing = False
        self._found: Found | None = None
        self._guard = Guard((), self._url.schema)
        self._process = 0
        # What follows is guarded by a lock of its own, because readers do not wait for the writer.
        self._pool_lock = threading.Lock()
        self._idle: list[Session] = []
        self._closed = True
        self._reconnections = 0
        # None until somebody waits for commits of others.
        self._changes: CommitListener | None = None
        # The server's process that the writer's connection is with, by which it is known who has notified; 0 for none:
        # once it has ended, that of another program may have its number.
        self._writing_process = 0

    @property
    def place(self) -> str:
        return self._place

    @property
    def argument(self) -> str:
        return shell_path(self.place)

    @property
    def url(self) -> PostgresURL:
        """Where the log is."""
        return self._url

    @property
    def read_only(self) -> bool:
        return self._read_only

    @property
    def write_refusal(self) -> str:
        return super().write_refusal or self._write_refusal

    @property
    def channel(self) -> str:
        """The name of the channel on which commits are announced, with the sequence of the last message; once open."""
        return channel_of(self._log.space)

    @property
    def identity(self) -> bytes:
        return self._log.identity

    @property
    def reconnections(self) -> int:
        return self._reconnections

    @property
    def may_be_replaced(self) -> bool:
        return True

    def watch(self, notify: Callable[[], object]) -> None:
        with self._pool_lock:
            if self._closed:
                return
            if self._changes is None:
                self._changes = CommitListener(
                    lambda: self.connect().connection, self.channel, lambda process: process == self._writing_process
                )
            changes = self._changes
        changes.add(notify)

    @property
    def announces_commits(self) -> bool:
        return self._changes is not None and self._changes.is_announcing

    @property
    def _log(self) -> Found:
        if self._found is None:
            raise LogClosed(f"the log {self.place} is closed: open it again")
        return self._found

    def connect(self) -> Session:
        """Return a new connection to the database.

        Raises:
            StorageError: the server refuses it, or there is none.
        """
        with self._errors("open"):
            return Session(self._url, synchronous=self._synchronous, lock_timeout=self._lock_timeout)

    def open(self, topic: str | None, create: bool, progress: Progress | None = None) -> str:
        with self._lock:
            if self._writer is not None:
                raise StorageError(f"{self.place} is open already through this storage")
            session = self.connect()
            try:
                with self._errors("open"):
                    found = self._opening.run(session, topic, create and not self._read_only)
                    if not self._read_only:
                        with session.reading():
                            self._write_refusal = find_write_refusal(session, self._url.schema)
            except BaseException:
                session.close()
                raise
            self._found = found
            self._guard = Guard(found.tables.values(), self._url.schema)
            self._take_writer(session)
            self._process, self._closed = os.getpid(), False
            return found.topic

    def _take_writer(self, session: Session) -> None:
        """Write over a connection from now on."""
        self._writer = session
        self._writing_process = 0 if session.is_pooled else session.connection.info.backend_pid

    def _drop_writer(self) -> None:
        """Close the connection that writes, which is lost; its notifications are another's from now on."""
        self._writing_process = 0
        if self._writer is not None:
            self._writer.close()
        self._note_lost()

    @contextmanager
    def reader(self, *, single: bool = False) -> Iterator[Reader]:
        with self._reading("read") as session:
            if not single or session.is_pooled:
                session.script(*session.begin_reading)
            yield PostgresReader(session, self._statements, self._log.mark)

    @contextmanager
    def _reading(self, doing: str) -> Iterator[Session]:
        """Provide a connection of a reader."""
        session = self._borrow()
        try:
            with self._errors(doing):
                yield session
        except (CorruptLog, DiskFailure):
            # The next one has a new connection: what this one's process on the server has in memory may be wrong.
            session.close()
            self._close_idle()
            self._note_lost()
            raise
        finally:
            self._give_back(session)

    def _note_lost(self) -> None:
        with self._pool_lock:
            self._reconnections += 1

    def transaction(self) -> AbstractContextManager[Transaction]:
        self._check_open()
        if self._read_only:
            raise StorageError(f"cannot write to {self.place}: it was opened read-only")
        return WriteTransaction(self._lock, self._begin, self._finish, self._leave, self._errors("write to"))

    def _begin(self) -> PostgresTransaction:
        if self._is_writing:
            raise StorageError("this thread is in a transaction of the log: `apply` must not append or insert")
        session = self._open_writer()
        self._is_writing = True
        return self._transaction(session, "write to")

    def _transaction(self, session: Session, doing: str) -> PostgresTransaction:
        return PostgresTransaction(
            session,
            self._statements,
            self._log.mark,
            self._guard,
            self._errors(doing),
            lock_key(self._log.space),
            self.channel,
        )

    def _finish(self, transaction: PostgresTransaction) -> None:
        """Commit; where the connection is lost meanwhile, find out what is stored.

        Raises:
            StorageError: nothing is stored; or, in words that say so, whether it is could not be found out.
        """
        try:
            transaction.commit()
        except psycopg.Error as error:
            if not transaction.messages or not is_connection_lost(error):
                raise
            failure = self._errors("write to").translated(error)
        else:
            return
        if self._is_stored(self._replace_writer(failure), transaction, failure):
            return
        if transaction.is_blind:
            # The server that answers now may have another state of the log: read the position, and plan anew.
            raise SequencesTaken
        raise failure

    def _replace_writer(self, failure: StorageError) -> Session:
        """Connect anew after the connection was lost in a commit; a server that restarts is waited for.

        Raises:
            StorageError: it does not come back.
        """
        self._drop_writer()
        until = time.monotonic() + _RESTART_SECONDS
        while True:
            try:
                session = self.connect()
            except StorageError as error:
                if self._closed or not isinstance(error, DiskFailure) or time.monotonic() > until:
                    raise self._in_doubt(failure) from error
            else:
                self._take_writer(session)
                return session
            time.sleep(_PAUSE)

    def _is_stored(self, session: Session, transaction: PostgresTransaction, failure: StorageError) -> bool:
        """Return whether all messages of a transaction whose connection was lost are stored, by it or by others since.

        Its lock is free once the server has ended it.
        """
        messages = transaction.messages
        try:
            check = self._transaction(session, "read")
            check.position()
            found = 0
            while found < len(messages):
                rows = check.arrivals(messages[found][0] - 1, len(messages) - found)
                if not rows or any(row != message[:2] for row, message in zip(rows, messages[found:], strict=False)):
                    break
                found += len(rows)
            if found == len(messages):
                # A commit that changes something waits for synchronous standbys, and so for those before it.
                check.confirm()
                check.commit()
            session.roll_back()
        except (psycopg.Error, StorageError) as error:
            raise self._in_doubt(failure) from error
        return found == len(messages)

    def _in_doubt(self, failure: StorageError) -> StorageError:
        return StorageError(
            f"{failure}: the connection was lost while a commit was on its way, and the server cannot be asked whether"
            " it has stored the messages. Once it answers, look for them in the log before they are written again"
        )

    def _leave(self) -> None:
        """End a transaction that was not committed, under the lock."""
        self._is_writing = False
        if self._writer is not None:
            self._writer.roll_back()
            if not self._writer.is_idle:
                self._writing_process = 0

    def size(self) -> int:
        with self._reading("read") as session:
            ((size,),) = session.rows(_SIZE, (self._log.space,))
        return int(size)

    def backup(self, target: str, progress: Progress | None = None) -> int:
        with self._reading("read") as session:
            # Until pg_dump has ended, which may take longer than an operator lets a transaction wait.
            session.script(*session.begin_reading, *session.without_limits)
            count = PostgresReader(session, self._statements, self._log.mark).position().count
            (snapshot,) = session.one("SELECT pg_catalog.pg_export_snapshot()")
            back_up(self._url, snapshot, target, self._hide)
        return count

    def check(self) -> list[str]:
        with self._reading("check") as session:
            return [f"Postgres: {line}" for line in integrity_problems(session, self._statements, self._url.schema)]

    def check_files(self) -> None:
        with self._reading("read") as session, session.reading():
            found = self._opening.find(session)
        if found != self._log:
            raise StorageError(
                f"the log {self.place} is not the one that was opened: its schema was dropped, renamed or replaced"
            )

    def close(self) -> None:
        if self._process != os.getpid():
            # The connections are the parent process's: saying good-bye here would end its sessions.
            self._closed = True
            return
        with self._pool_lock:
            self._closed = True
            changes, self._changes = self._changes, None
        if changes is not None:
            changes.close()
        self._close_idle()
        with closing(self._lock, self.place):
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    def _borrow(self) -> Session:
        with self._pool_lock:
            self._check_open()
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def _give_back(self, session: Session) -> None:
        session.roll_back()
        with self._pool_lock:
            if not self._closed and len(self._idle) < _IDLE_READERS and session.is_idle:
                self._idle.append(session)
                return
        session.close()

    def _close_idle(self) -> None:
        with self._pool_lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _open_writer(self) -> Session:
        if self._closed or self._writer is None:
            raise LogClosed(f"the log {self.place} is closed: open it again")
        if self._writer.is_idle:
            return self._writer
        self._drop_writer()
        session = self.connect()
        self._take_writer(session)
        return session

    def _check_open(self) -> None:
        """Check, before a lock is taken, that the log is open here: a forked process may have inherited it locked."""
        if self._closed:
            raise LogClosed(f"the log {self.place} is closed: open it again")
        if self._process != os.getpid():
            raise StorageError(
                f"{self.place} was opened before this process was forked, and a connection serves one process: open it"
                " again"
            )

    def _errors(self, doing: str) -> PostgresErrors:
        found = self._errors_of.get(doing)
        if found is None:
            found = self._errors_of[doing] = PostgresErrors(self._place, doing, self._hide)
        return found
