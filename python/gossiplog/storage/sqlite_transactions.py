"""A log's transactions in SQLite: their ends, their errors, and the one that writes.

Blocks are classes here, because a generator costs each append microseconds.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType

from gossiplog.errors import CorruptLog, StorageError
from gossiplog.storage.base import DiskFailure, Storage, Transaction
from gossiplog.storage.sqlite_tables import OURS, Guard, SQLiteTransaction, error_code, storage_error, undecodable


class Errors:
    """A block whose errors of the driver are raised as StorageError.

    Args:
        storage: of the log.
        doing: what the block does, after "cannot".
    """

    __slots__ = ("_doing", "_storage")

    def __init__(self, storage: Storage, doing: str) -> None:
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
            if self._is_marked_read_only(error):
                problem = f"cannot {self._doing} {self._storage.place}: its header says that SQLite must not write it"
                found = CorruptLog([problem])
            raise self._located(found) from error
        if isinstance(error, UnicodeDecodeError):
            raise self._located(undecodable(self._storage.place, self._doing, error)) from error
        if isinstance(error, CorruptLog):
            self._located(error)

    def _is_marked_read_only(self, error: sqlite3.Error) -> bool:
        """Return whether SQLite does not write a file that can be written: its header has an unknown write version."""
        file = self._storage.file
        return (
            file is not None
            and not self._storage.read_only
            and error_code(error) == sqlite3.SQLITE_READONLY
            and all(os.access(place, os.W_OK) for place in (file, file.absolute().parent))
        )

    def _located(self, error: StorageError) -> StorageError:
        if isinstance(error, CorruptLog):
            error.locate(self._storage.file)
        return error


class Writing:
    """A block that is a transaction, the only one at a time.

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
        "_ending",
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
        errors: Errors,
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
            self._ending = Ending(connection, self._check_file)
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
                self._ending.__exit__(kind, error, traceback)
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


class Ending:
    """A block that ends the transaction: commits it, or rolls it back where the block or the commit raises.

    Args:
        connection: that is in the transaction.
        before_commit: is called before a commit; where it raises, nothing is committed.
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
