"""Transactions of a log in SQLite: how one writes, how it ends, and how the driver's errors are translated.

The context managers are classes: a generator costs each append microseconds.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from gossiplog.core import WritePlan
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.storage.base import PREFIX, REBUILD_REQUESTED, DiskFailure, SequencesTaken, Storage, Transaction
from gossiplog.storage.sqlite.files import DAMAGE, error_code
from gossiplog.storage.sqlite.meta import missing_tables, put_meta, read_tables, set_meta, write_tables
from gossiplog.storage.sqlite.tables import (
    MARKED_READ_ONLY,
    SQLiteReader,
    storage_error,
    undecodable,
)

# Of the text that ends transactions: the application's own COMMIT is another text, so no prepared statement of ours
# serves it, and the authorizer sees it.
OURS = " /* gossiplog */"
# What an application cannot go on from (https://sqlite.org/rescode.html): its exceptions are no verdict on a message.
_BROKEN = DAMAGE | frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
    }
)
# Of the two arguments that come with an action (https://sqlite.org/c3ref/c_alter_table.html), the one that names the
# table: an index or a trigger on one of ours changes what our own statements do.
_CHANGED_FIRST = frozenset(
    {
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
        sqlite3.SQLITE_CREATE_VTABLE,
        sqlite3.SQLITE_DROP_TABLE,
    }
)
_CHANGED_SECOND = frozenset(
    {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_DROP_INDEX,
    }
)
# That change rows of the table that the first argument names, or make it.
_WRITTEN_FIRST = frozenset(
    {
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_VTABLE,
    }
)
# Pragmas whose argument is what to describe; those of others are settings.
_DESCRIPTIONS = frozenset(
    {"foreign_key_list", "index_info", "index_list", "index_xinfo", "table_info", "table_list", "table_xinfo"}
)
_CONTROL = frozenset(
    {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
)


class Guard:
    """Keeps an application's statements from the log's tables and from the transaction, while it is active.

    It is the connection's authorizer (https://sqlite.org/c3ref/set_authorizer.html) from the start: setting one expires
    every prepared statement. SQLite asks it when it prepares a statement.

    Attributes:
        active: whether statements are the application's.
        written: names of tables that statements write to that were prepared since the last commit which noted them.
    """

    def __init__(self) -> None:
        self.active = False
        self.written: set[str] = set()

    def __call__(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        if not self.active:
            return sqlite3.SQLITE_OK
        changed = first if action in _CHANGED_FIRST else second if action in _CHANGED_SECOND else None
        ours = changed is not None and changed.lower().startswith(PREFIX)
        settings = action == sqlite3.SQLITE_PRAGMA and second is not None and first not in _DESCRIPTIONS
        if action in _CONTROL or settings or ours:
            return sqlite3.SQLITE_DENY
        if action in _WRITTEN_FIRST and database == "main" and first is not None and not first.startswith("sqlite_"):
            self.written.add(first)
        return sqlite3.SQLITE_OK


# Adds nothing where the message before is not there.
_ADD_NEXT = """
    INSERT INTO gossiplog_messages(seq, value, links) SELECT ?1, ?2, ?3
    WHERE ?1 = 1 OR EXISTS (SELECT 1 FROM gossiplog_messages WHERE seq = ?1 - 1)
"""


class SQLiteTransaction(SQLiteReader, Transaction):
    """Reads and writes within a transaction that its maker begins and ends.

    Attributes:
        written: the sequences of the first and the last message that it has written, None for none.
    """

    def __init__(self, connection: sqlite3.Connection, guard: Guard) -> None:
        super().__init__(connection)
        self._guard = guard
        self._ended = False
        self.written: tuple[int, int] | None = None
        # Of `Guard.written`, which a commit makes known.
        self._noted: frozenset[str] = frozenset()
        # Those that the application still holds: one that is not exhausted keeps its snapshot, and so the next
        # transaction from beginning.
        self._cursors: weakref.WeakSet[sqlite3.Cursor] | None = None

    def write(self, plan: WritePlan) -> None:
        many = self._connection.executemany
        messages = plan.messages
        try:
            # Whoever planned without a look at the log may have known a later state, which is gone.
            if messages and self._connection.execute(_ADD_NEXT, messages[0]).rowcount != 1:
                raise SequencesTaken
            if len(messages) > 1:
                many("INSERT INTO gossiplog_messages(seq, value, links) VALUES (?, ?, ?)", messages[1:])
        except sqlite3.IntegrityError as error:
            raise SequencesTaken from error
        self.written = (messages[0][0], messages[-1][0]) if messages else None
        many("INSERT INTO gossiplog_leaves(key, hash, seq) VALUES (?, ?, ?)", plan.leaves)
        if plan.alternatives:
            many("INSERT INTO gossiplog_alternatives(seq, content) VALUES (?, ?)", plan.alternatives)

    def index(self, plan: WritePlan, level1: Sequence[tuple[bytes, bytes]], indexed: int) -> None:
        many = self._connection.executemany
        many("INSERT INTO gossiplog_children(parent, child) VALUES (?, ?)", plan.children)
        many("DELETE FROM gossiplog_heads WHERE key = ?", ((key,) for key in plan.heads_removed))
        many("INSERT INTO gossiplog_heads(key, seq) VALUES (?, ?)", plan.heads_added)
        many(
            "INSERT INTO gossiplog_tree(key, hash) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET hash = excluded.hash",
            level1,
        )
        set_meta(self._connection, "indexed", indexed)

    def set_index_fingerprint(self, text: str) -> None:
        put_meta(self._connection, "index_fingerprint", text)

    def set_applied(self, sequence: int) -> None:
        set_meta(self._connection, "applied", sequence)
        self._note_tables()

    def request_rebuild(self) -> None:
        set_meta(self._connection, "rebuild", REBUILD_REQUESTED)

    def begin_rebuild(self, version: int, *, has_setup: bool) -> None:
        for name, value in {
            "applied": 0,
            "apply_version": version,
            "rebuild": self.last_sequence(),
            "setup": int(has_setup),
        }.items():
            set_meta(self._connection, name, value)
        self._note_tables()

    def _note_tables(self) -> None:
        """Store the names of the tables that the application has written to, so that a missing one is noticed."""
        # SQLite asks the guard for each statement once, when it prepares it: nearly always there is no new name.
        if not self._guard.written:
            return
        self._noted = frozenset(self._guard.written)
        # Those that the application dropped in this transaction are forgotten.
        names = read_tables(self._connection) | self._noted
        write_tables(self._connection, names - missing_tables(self._connection, names))

    def committed(self) -> None:
        """Take over what the transaction has stored, now that it is committed."""
        if self._noted:
            self._guard.written -= self._noted

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT gossiplog_apply" + OURS)
        self._guard.active = True
        try:
            yield
        except BaseException as error:
            self._guard.active = False
            self._close_cursors()
            if not self._connection.in_transaction:
                if isinstance(error, StorageError):
                    raise
                raise StorageError("the database gave up the transaction while `apply` ran") from error
            self._connection.execute("ROLLBACK TO gossiplog_apply" + OURS)
            self._connection.execute("RELEASE gossiplog_apply" + OURS)
            raise
        self._guard.active = False
        self._close_cursors()
        self._check_not_given_up()
        self._connection.execute("RELEASE gossiplog_apply" + OURS)

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> sqlite3.Cursor:
        if self._ended:
            raise StorageError("the transaction that `apply` was given has ended")
        self._check_not_given_up()
        try:
            cursor = self._connection.execute(sql, parameters)
        except sqlite3.Error as error:
            if error_code(error) == sqlite3.SQLITE_AUTH:
                raise StorageError(
                    "`apply` and `setup` must not end the transaction, attach databases or change"
                    f" {PREFIX} tables: {sql}"
                ) from error
            if error_code(error) in _BROKEN:
                raise storage_error("the database", "execute a statement in", error) from error
            raise
        if self._cursors is None:
            self._cursors = weakref.WeakSet()
        self._cursors.add(cursor)
        return cursor

    def end(self) -> None:
        """Make `execute` refuse from now on, and end what it gave out."""
        self._ended = True
        self._close_cursors()

    def _close_cursors(self) -> None:
        if self._cursors is not None:
            for cursor in list(self._cursors):
                cursor.close()
            self._cursors = None

    def _check_not_given_up(self) -> None:
        # As after INSERT OR ROLLBACK: what followed would be committed by itself.
        if not self._connection.in_transaction:
            raise StorageError("a statement of `apply` ended the transaction")


class StorageErrors:
    """A block whose errors of the driver are raised as StorageError.

    Args:
        storage: that errors name.
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
        if isinstance(error, sqlite3.Error | UnicodeDecodeError):
            # A cursor in the frames of the error keeps the file open after its connection is closed. Not by Python's
            # module for this: where no file can be opened, none can be imported.
            while traceback is not None:
                with suppress(RuntimeError):
                    traceback.tb_frame.clear()
                traceback = traceback.tb_next
        if isinstance(error, sqlite3.Error):
            found = storage_error(self._storage.place, self._doing, error)
            if self._is_marked_read_only(error):
                found = CorruptLog([f"cannot {self._doing} {self._storage.place}: {MARKED_READ_ONLY}"])
            raise self._located(found) from error
        if isinstance(error, UnicodeDecodeError):
            raise self._located(undecodable(self._storage.place, self._doing, error)) from error
        if isinstance(error, CorruptLog):
            self._located(error)

    def _is_marked_read_only(self, error: sqlite3.Error) -> bool:
        """Return whether SQLite does not write a file that can be written: its header has an unknown write version."""
        file = self._storage.file
        return file is not None and not self._storage.read_only and _is_refused_by_sqlite(error, file)

    def _located(self, error: StorageError) -> StorageError:
        if isinstance(error, CorruptLog):
            error._locate(self._storage.argument)
        return error


def is_marked_read_only(file: str) -> bool:
    """Return whether SQLite would not write to a file that can be written; it does not wait for those who do.

    Args:
        file: the path of a database that is open.
    """
    uri = f"{Path(file).as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, timeout=0, isolation_level=None, uri=True)) as connection:
        try:
            # What a connection does first: one that has read does not look at the header again.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            return _is_refused_by_sqlite(error, Path(file))
    return False


def _is_refused_by_sqlite(error: sqlite3.Error, file: Path) -> bool:
    can_write = all(os.access(place, os.W_OK) for place in (file, file.absolute().parent))
    return error_code(error) == sqlite3.SQLITE_READONLY and can_write


class WriteTransaction:
    """A block that is a transaction, the only one at a time.

    Args:
        lock: that keeps other threads out.
        writer: returns the connection; called under the lock.
        renew: is called under the lock after a transaction that met what looks like damage.
        guard: of the connection.
        errors: that the driver's errors are raised as.
        check_files: raises StorageError before a commit that nobody would find.
        committed: is called under the lock, after a commit: with the connection, and the sequences of the first and the
            last message that it added, or None.
    """

    __slots__ = (
        "_check_files",
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
        errors: StorageErrors,
        check_files: Callable[[], None],
        committed: Callable[[sqlite3.Connection, tuple[int, int] | None], None],
    ) -> None:
        self._check_files = check_files
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
            self._ending = CommitOrRollback(connection, self._check_files)
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
                self._committed(self._connection, self._transaction.written)
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


class CommitOrRollback:
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
