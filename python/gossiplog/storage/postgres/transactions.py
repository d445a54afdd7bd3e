"""Transactions of a log in Postgres: how one begins and writes, how it ends, and how `apply` runs in it.

What is written waits in a queue until something is read or the transaction ends. So a transaction takes a round trip to
begin and to read the position, each further read takes one, and all that is written and the commit take one more; an
append that knows the position takes one in all. Many rows go by COPY, which has round trips of its own.

A connection that is lost while the commit is sent leaves it open whether the transaction is stored. The storage then
looks, through another connection and under the log's lock, so that the server has ended the former transaction: its
first message is there, or it is not. Only where that cannot be found out is the commit reported as in doubt.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import psycopg

from gossiplog.core import WritePlan
from gossiplog.errors import StorageError
from gossiplog.storage.base import PREFIX, REBUILD_REQUESTED, SCHEMA, SequencesTaken, Transaction
from gossiplog.storage.postgres.connections import ByteaArray, Cursor, IntegerArray, Session, with_literals
from gossiplog.storage.postgres.errors import DENIED, GUARDED, PostgresErrors, error_code, is_no_verdict
from gossiplog.storage.postgres.guard import LOCKS, Guard, changes_rows, check_statement
from gossiplog.storage.postgres.meta import POSITION, PUT, SET
from gossiplog.storage.postgres.tables import IN_APPLY, PostgresReader, Statements

# Statements that are sent as one text.
_FEW_STATEMENTS = 16
# Rows from which on COPY is faster than arrays, and takes no more memory.
_COPIED = 512
# Adds nothing where the message before those of a plan is there, and the log is the one that was opened. Otherwise it
# fails, since the largest sequence is taken, or null: whoever plans without a look at the log may have known a state
# that is gone.
_CHECK_BEFORE = """
    INSERT INTO @.gossiplog_messages(seq, value, links)
    SELECT (SELECT pg_catalog.max(seq) FROM @.gossiplog_messages), '', ''
    WHERE NOT EXISTS (SELECT FROM @.gossiplog_messages WHERE seq = %b)
      OR NOT EXISTS (
        SELECT FROM @.gossiplog_meta
        WHERE name = 'identity' AND value || ' ' || tableoid::pg_catalog.text = %b)
"""
# A statement in WITH is done when it is read first: a sequence that is taken is noticed before a key that is there, as
# where two threads append the same after the same heads. Postgres refuses one where a rule on the table would have it
# do nothing; where a trigger of somebody has a row not stored, the division by zero undoes the transaction.
_STORED = "SELECT 1 / ((SELECT pg_catalog.count(*) FROM message) * (SELECT pg_catalog.count(*) FROM leaf))"
_ADD_ONE = f"""
    WITH message AS (INSERT INTO @.gossiplog_messages(seq, value, links) VALUES (%b, %b, %b) RETURNING 1),
      leaf AS (INSERT INTO @.gossiplog_leaves(key, hash, seq) VALUES (%b, %b, %b) RETURNING 1)
    {_STORED}
"""
# The same, with the check that _CHECK_BEFORE makes: without the message before it, the sequence is null.
_ADD_NEXT = f"""
    WITH message AS (
      INSERT INTO @.gossiplog_messages(seq, value, links) VALUES (
        (SELECT seq + 1 FROM @.gossiplog_messages
         WHERE seq = %b AND %b = (
           SELECT value || ' ' || tableoid::pg_catalog.text FROM @.gossiplog_meta WHERE name = 'identity')), %b, %b)
      RETURNING 1),
      leaf AS (INSERT INTO @.gossiplog_leaves(key, hash, seq) VALUES (%b, %b, %b) RETURNING 1)
    {_STORED}
"""
# `unnest` of several arrays is Postgres' own in any search path (parse_clause.c, transformRangeFunction), and takes no
# schema before it.
_ADD_MESSAGES = """
    WITH added AS (
      INSERT INTO @.gossiplog_messages(seq, value, links) SELECT * FROM unnest(%b, %b, %b) RETURNING 1)
    SELECT 1 / (pg_catalog.count(*) = %b)::pg_catalog.int4 FROM added
"""
_ADD_LEAVES = """
    WITH added AS (INSERT INTO @.gossiplog_leaves(key, hash, seq) SELECT * FROM unnest(%b, %b, %b) RETURNING 1)
    SELECT 1 / (pg_catalog.count(*) = %b)::pg_catalog.int4 FROM added
"""
_ADD_ALTERNATIVES = "INSERT INTO @.gossiplog_alternatives(seq, content) SELECT * FROM unnest(%b, %b)"
_ADD_CHILDREN = "INSERT INTO @.gossiplog_children(parent, child) SELECT * FROM unnest(%b, %b)"
_ADD_HEADS = "INSERT INTO @.gossiplog_heads(key, seq) SELECT * FROM unnest(%b, %b)"
_REMOVE_HEADS = "DELETE FROM @.gossiplog_heads WHERE key = ANY(%b)"
_PUT_TREE = """
    INSERT INTO @.gossiplog_tree(key, hash) SELECT * FROM unnest(%b, %b)
    ON CONFLICT (key) DO UPDATE SET hash = excluded.hash
"""
_COPY_MESSAGES = "COPY @.gossiplog_messages(seq, value, links) FROM STDIN (FORMAT binary)"
_COPY_LEAVES = "COPY @.gossiplog_leaves(key, hash, seq) FROM STDIN (FORMAT binary)"
_COPY_CHILDREN = "COPY @.gossiplog_children(parent, child) FROM STDIN (FORMAT binary)"
_NOTIFY = "SELECT pg_catalog.pg_notify(%b, %b)"
_SWITCH_GUARD = f"SELECT pg_catalog.set_config('{IN_APPLY}', %b, true)"
_SAVEPOINT, _INNER = "gossiplog_apply", "gossiplog_statement"
_HAS_DEFERRABLE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE condeferrable)"
# What was set, and what was checked already, is undone with the savepoint.
_CHECK_CONSTRAINTS = (
    b"SAVEPOINT gossiplog_constraints",
    b"SET CONSTRAINTS ALL IMMEDIATE",
    b"ROLLBACK TO SAVEPOINT gossiplog_constraints",
    b"RELEASE SAVEPOINT gossiplog_constraints",
)


class _Copy(NamedTuple):
    """Rows that are written by COPY."""

    statement: bytes
    types: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


class _Statement(NamedTuple):
    """A statement that writes; one without parameters is sent as it stands."""

    statement: bytes
    parameters: Sequence[Any] | None = None
    # Whether it is run often enough for the server to plan it once.
    is_frequent: bool = False

    def text(self, session: Session) -> bytes | None:
        """Return the text that runs it; None where the parameters are too long for one."""
        if self.is_frequent and self.parameters is not None:
            return session.planned(self.statement, self.parameters)
        return with_literals(self.statement, self.parameters)


_Step: TypeAlias = _Copy | _Statement


class PostgresTransaction(PostgresReader, Transaction):
    """Reads and writes within a transaction that begins with the first statement, and that its maker ends.

    Args:
        session: with the connection.
        statements: the texts of statements.
        identity: of the log that was opened, as `Found.mark`.
        guard: of the storage.
        errors: as which the driver's errors are raised.
        lock: the key of the log's lock, for `pg_advisory_xact_lock`.
        channel: that commits are announced on.

    Attributes:
        messages: that it writes, as rows (sequence, value, links).
    """

    paramstyle = "format"

    def __init__(
        self,
        session: Session,
        statements: Statements,
        identity: str,
        guard: Guard,
        errors: PostgresErrors,
        lock: tuple[int, int],
        channel: str,
    ) -> None:
        super().__init__(session, statements, identity)
        self._guard = guard
        self._errors = errors
        self._lock = f"SELECT pg_catalog.pg_advisory_xact_lock({lock[0]}, {lock[1]})".encode()
        self._channel = channel
        self._queue: list[_Step] = []
        self._has_begun = False
        self._has_read = False
        self._ended = False
        self.messages: Sequence[tuple[int, bytes, bytes]] = ()
        # Of `Guard.written`, and of the texts of statements, which a commit makes known.
        self._noted: frozenset[str] = frozenset()
        self._is_noting = False
        self._texts: set[str] = set()
        # Whether the guard is on; whether there is a savepoint, and whether nothing is in it; how many statements ran
        # since the message's was made, and how many in all.
        self._is_guarded = self._has_savepoint = self._is_clean = False
        self._statements_run = 0
        self._has_executed = False
        # Whether any constraint of the database may wait for the commit; None until a statement ran.
        self._has_deferrable: bool | None = None
        self._cursors: weakref.WeakSet[Cursor] | None = None

    # Reading

    def _rows(self, statement: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        self._begin()
        self._flush()
        self._has_read = True
        return super()._rows(statement, parameters)

    def _position_rows(self) -> list[tuple[Any, ...]]:
        if self._has_begun or self._queue:
            return super()._position_rows()
        # Nearly always the first thing that is read.
        self._has_begun = self._has_read = True
        session = self._session
        return session.script_rows(*session.begin_writing, self._lock, self._statements.plain(POSITION))

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._session.script(*self._session.begin_writing, self._lock)

    # Writing

    def write(self, plan: WritePlan) -> None:
        messages, leaves = plan.messages, plan.leaves
        if messages:
            self.messages = messages
            before = messages[0][0] - 1 if self.is_blind else 0
            if len(messages) == len(leaves) == 1:
                self._write_one(*messages[0], leaves[0], before)
            else:
                self._write_many(messages, leaves, before)
        if plan.alternatives:
            sequences, contents = zip(*plan.alternatives, strict=True)
            self._put(_ADD_ALTERNATIVES, (IntegerArray(sequences), ByteaArray(contents)))

    def _write_one(self, sequence: int, value: bytes, links: bytes, leaf: tuple[Any, ...], before: int) -> None:
        """Add a message; check that there is the one before, where its sequence is given."""
        if before:
            self._put(_ADD_NEXT, (before, self._identity, value, links, *leaf), is_frequent=True)
        else:
            self._put(_ADD_ONE, (sequence, value, links, *leaf), is_frequent=True)

    def _write_many(
        self, messages: Sequence[tuple[int, bytes, bytes]], leaves: Sequence[tuple[bytes, bytes, int]], before: int
    ) -> None:
        if before:
            self._put(_CHECK_BEFORE, (before, self._identity))
        if len(messages) > _COPIED:
            self._copy(_COPY_MESSAGES, ("int8", "bytea", "bytea"), messages)
            self._copy(_COPY_LEAVES, ("bytea", "bytea", "int8"), leaves)
            return
        sequences, values, links = zip(*messages, strict=True)
        self._put(_ADD_MESSAGES, (IntegerArray(sequences), ByteaArray(values), ByteaArray(links), len(messages)))
        keys, hashes, sequences = zip(*leaves, strict=True)
        self._put(_ADD_LEAVES, (ByteaArray(keys), ByteaArray(hashes), IntegerArray(sequences), len(leaves)))

    def index(self, plan: WritePlan, level1: Sequence[tuple[bytes, bytes]], indexed: int) -> None:
        if len(plan.children) > _COPIED:
            self._copy(_COPY_CHILDREN, ("int8", "int8"), plan.children)
        elif plan.children:
            parents, children = zip(*plan.children, strict=True)
            self._put(_ADD_CHILDREN, (IntegerArray(parents), IntegerArray(children)))
        if plan.heads_removed:
            self._put(_REMOVE_HEADS, (ByteaArray(plan.heads_removed),))
        if plan.heads_added:
            keys, sequences = zip(*plan.heads_added, strict=True)
            self._put(_ADD_HEADS, (ByteaArray(keys), IntegerArray(sequences)))
        if level1:
            keys, hashes = zip(*level1, strict=True)
            self._put(_PUT_TREE, (ByteaArray(keys), ByteaArray(hashes)))
        self._set("indexed", str(indexed))

    def confirm(self) -> None:
        """Change a row to what it is, so that the commit waits for whatever commits wait for."""
        self._set("schema", str(SCHEMA))

    def set_index_fingerprint(self, text: str) -> None:
        self._put(PUT, ("index_fingerprint", text))

    def set_applied(self, sequence: int) -> None:
        self._set("applied", str(sequence))
        self._note_tables()

    def request_rebuild(self) -> None:
        self._set("rebuild", str(REBUILD_REQUESTED))

    def begin_rebuild(self, version: int, *, has_setup: bool) -> None:
        count = self.position().count
        for name, value in {
            "applied": 0,
            "apply_version": version,
            "rebuild": count,
            "setup": int(has_setup),
        }.items():
            self._set(name, str(value))
        self._note_tables()

    def _note_tables(self) -> None:
        """Store the names of the tables that the application has written to, so that a missing one is noticed."""
        # Nearly always there is no new one.
        if not self._guard.written and not self._guard.has_dropped:
            return
        self._is_noting = True
        self._noted = frozenset(self._guard.written)
        # Those that the application dropped in this transaction are forgotten.
        names = self._written_tables() | self._noted
        self._set("tables", json.dumps(sorted(names - self._missing(names))))

    def _set(self, name: str, value: str) -> None:
        self._put(SET, (value, name))

    def _put(self, statement: str, parameters: Sequence[Any], *, is_frequent: bool = False) -> None:
        self._queue.append(_Statement(self._statements[statement], parameters, is_frequent))

    def _copy(self, statement: str, types: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        self._queue.append(_Copy(self._statements.plain(statement), types, rows))

    def _flush(self) -> None:
        """Send what is queued.

        Raises:
            SequencesTaken: the log has another number of messages than the maker of a plan knew of.
        """
        if self._queue:
            queue, self._queue = self._queue, []
            with _raising_sequences_taken:
                self._send(queue)

    def _send(self, steps: Sequence[_Step], *, is_last: bool = False) -> None:
        """Send steps in as few round trips as they take, and the commit behind the last."""
        session = self._session
        pending: list[_Statement] = []
        if not self._has_begun and any(isinstance(step, _Copy) for step in steps):
            self._begin()
        if not self._has_begun:
            self._has_begun = True
            pending += [_Statement(each) for each in (*session.begin_writing, self._lock)]
        self._is_clean = False
        if self._is_guarded:
            self._is_guarded = False
            pending.append(_Statement(_SWITCH_GUARD.encode(), ("off",)))
        for step in steps:
            if isinstance(step, _Copy):
                self._send_together(pending)
                pending = []
                if session.copy(*step) != len(step.rows):
                    raise StorageError("a trigger on the log's tables keeps rows from being stored: drop it")
            else:
                pending.append(step)
        if is_last and self.messages:
            pending.append(_Statement(_NOTIFY.encode(), (self._channel, str(self.messages[-1][0]))))
        self._send_together(pending, is_last=is_last)

    def _send_together(self, steps: Sequence[_Statement], *, is_last: bool = False) -> None:
        """Send statements in one round trip, with the commit where they are the last."""
        session = self._session
        if is_last:
            texts = [step.text(session) for step in steps[: _FEW_STATEMENTS + 1]]
            if len(texts) <= _FEW_STATEMENTS and None not in texts:
                session.script(*(text for text in texts if text is not None), b"COMMIT")
                return
        if len(steps) + is_last < 2:
            for step in steps:
                session.run(step.statement, step.parameters)
            if is_last:
                session.commit()
            return
        with session.pipeline():
            for step in steps:
                session.run(step.statement, step.parameters)
            if is_last:
                session.commit()

    # The end

    @property
    def is_blind(self) -> bool:
        """Whether nothing was read: what it writes was planned without a look at the log."""
        return not self._has_read and not self._has_executed

    def commit(self) -> None:
        """Send what is queued, and commit.

        Raises:
            SequencesTaken: as `write`.
            psycopg.Error: the database failed. Where the connection was lost, what is stored is not known.
        """
        queue = self._queue
        if not self._has_begun and not queue:
            return
        with _raising_sequences_taken:
            self._send(queue, is_last=True)
        if self._session.ending != "COMMIT":
            raise StorageError("the database gave up the transaction: a statement of `apply` had failed in it")
        if self._session.is_unconfirmed:
            raise StorageError(
                "the wait for a synchronous standby was cancelled: the messages are stored on this server, and perhaps"
                " on no standby yet. Look for them in the log before they are written again"
            )

    def committed(self) -> None:
        """Take over what the transaction has stored, now that it is committed."""
        if self._is_noting:
            self._guard.written -= self._noted
            self._guard.has_dropped = False
        if self._texts:
            self._guard.know(self._texts)

    def end(self) -> None:
        """Make `execute` refuse from now on, and end what it gave out."""
        self._ended = True
        self._close_cursors()

    # The application's statements

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        # The savepoint is made with the first statement, and released with the first of the next message, so that
        # neither takes a round trip: what executes nothing costs nothing.
        self._statements_run = 0
        try:
            yield
        except BaseException as error:
            self._close_cursors()
            if self._has_begun and not (self._session.is_in_transaction or self._session.is_failed):
                if isinstance(error, StorageError):
                    raise
                raise StorageError("the database gave up the transaction while `apply` ran") from error
            if self._statements_run:
                self._undo(_SAVEPOINT)
                self._statements_run = 0
            raise
        self._close_cursors()
        self._check_not_given_up()
        if self._statements_run and self._has_deferrable:
            self._check_constraints()

    def _check_constraints(self) -> None:
        """Check what would be checked at the commit, so that the message which breaks it is undone alone.

        Raises:
            psycopg.Error: it breaks a constraint.
            StorageError: the database failed.
        """
        try:
            self._session.script(*_CHECK_CONSTRAINTS)
            self._session.follow("ROLLBACK")
        except psycopg.Error as error:
            self._undo(_SAVEPOINT)
            self._statements_run = 0
            if is_no_verdict(error):
                raise self._errors.translated(error) from self._errors.without_secrets(error)
            raise

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> Cursor:
        if self._ended:
            raise StorageError("the transaction that `apply` was given has ended")
        is_known = sql in self._texts or self._guard.is_known(sql)
        if not is_known:
            check_statement(sql, self._guard.schema)
        with self._errors:
            self._begin()
            self._flush()
        self._check_not_given_up()
        self._has_executed = True
        session = self._session
        cursor = session.connection.cursor()
        look = None if is_known else session.connection.cursor(binary=True)
        deferrable = None
        if look is not None or self._has_deferrable is None:
            deferrable = session.connection.cursor(binary=True)
        try:
            # A pipeline takes one statement at a time: several in one text are refused.
            with session.pipeline():
                for step in self._steps_before():
                    session.run(step)
                cursor.execute(sql.encode(), parameters or None)
                if look is not None:
                    look.execute(LOCKS.encode(), (IntegerArray(self._guard.oids), self._guard.schema))
                if deferrable is not None:
                    deferrable.execute(_HAS_DEFERRABLE)
            session.follow(cursor.statusmessage or "")
            if look is not None:
                self._guard.look(look.fetchall(), sql)
            if deferrable is not None:
                ((self._has_deferrable,),) = deferrable.fetchall()
        except psycopg.Error as error:
            self._statement_failed()
            if error_code(error) == GUARDED:
                raise StorageError(f"`apply` and `setup` must not change {PREFIX} tables: {sql}") from error
            if isinstance(error, psycopg.ProgrammingError) and not error_code(error) and "?" in sql:
                raise psycopg.ProgrammingError(f"{error}: in Postgres a parameter is %s, and not ?") from error
            if error_code(error) == DENIED:
                raise StorageError(
                    f"the role lacks a right for a statement of `apply` or `setup`: {error.diag.message_primary}"
                    f" ({DENIED}): {sql}"
                ) from self._errors.without_secrets(error)
            if is_no_verdict(error):
                raise self._errors.translated(error) from self._errors.without_secrets(error)
            raise
        except StorageError:
            self._statement_failed()
            raise
        self._statements_run += 1
        self._is_clean = False
        if not is_known and changes_rows(sql):
            self._texts.add(sql)
        if self._cursors is None:
            self._cursors = weakref.WeakSet()
        self._cursors.add(cursor)
        return cursor

    def _steps_before(self) -> list[str]:
        """Return what goes to the server before a statement of the application.

        The first of a message is undone with the message's savepoint, those after it with one of their own: as in
        SQLite, a statement that fails has no effect, and `apply` may go on.
        """
        steps: list[str] = []
        if not self._is_guarded:
            # Before the savepoint, so that it stays on when that is undone.
            steps.append(f"SELECT pg_catalog.set_config('{IN_APPLY}', 'on', true)")
        if self._statements_run:
            if self._statements_run > 1:
                steps.append(f"RELEASE SAVEPOINT {_INNER}")
            steps.append(f"SAVEPOINT {_INNER}")
        elif not self._is_clean:
            if self._has_savepoint:
                steps.append(f"RELEASE SAVEPOINT {_SAVEPOINT}")
            steps.append(f"SAVEPOINT {_SAVEPOINT}")
        self._is_guarded = self._has_savepoint = True
        return steps

    def _statement_failed(self) -> None:
        """Undo a statement of the application, unless the transaction is lost."""
        if self._statements_run:
            self._undo(_INNER)
            self._statements_run += 1
        else:
            self._undo(_SAVEPOINT)

    def _undo(self, savepoint: str) -> None:
        """Undo what was done since a savepoint, which stays."""
        if self._session.is_in_transaction or self._session.is_failed:
            with self._errors:
                self._session.undo(f"ROLLBACK TO SAVEPOINT {savepoint}")
            self._is_clean = savepoint == _SAVEPOINT

    def _close_cursors(self) -> None:
        if self._cursors is not None:
            for cursor in list(self._cursors):
                cursor.close()
            self._cursors = None

    def _check_not_given_up(self) -> None:
        # As where the application has ended it through the cursor's connection.
        if self._has_begun and not self._session.is_in_transaction:
            raise StorageError("a statement of `apply` ended the transaction")


class _RaisingSequencesTaken:
    """A block in which a sequence that another message has, or none before it, is raised as SequencesTaken."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if (
            isinstance(error, psycopg.errors.UniqueViolation | psycopg.errors.NotNullViolation)
            and error.diag.table_name == "gossiplog_messages"
        ):
            raise SequencesTaken from error


_raising_sequences_taken = _RaisingSequencesTaken()


class WriteTransaction:
    """A block that is a transaction, the only one at a time.

    Args:
        lock: that keeps other threads out.
        begin: makes the transaction; called under the lock.
        finish: commits it, or finds out whether it is stored; called under the lock.
        leave: is called under the lock when the transaction has ended, in whatever way.
        errors: that the driver's errors are raised as.
    """

    __slots__ = ("_begin", "_errors", "_finish", "_leave", "_lock", "_transaction")

    def __init__(
        self,
        lock: threading.RLock,
        begin: Callable[[], PostgresTransaction],
        finish: Callable[[PostgresTransaction], None],
        leave: Callable[[], None],
        errors: PostgresErrors,
    ) -> None:
        self._lock = lock
        self._begin = begin
        self._finish = finish
        self._leave = leave
        self._errors = errors

    def __enter__(self) -> Transaction:
        self._lock.acquire()
        try:
            with self._errors:
                self._transaction = self._begin()
        except BaseException:
            self._lock.release()
            raise
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            with self._errors:
                if error is None:
                    self._finish(self._transaction)
                    self._transaction.committed()
            # What the block itself raised.
            self._errors.__exit__(kind, error, traceback)
        finally:
            try:
                self._transaction.end()
            finally:
                try:
                    self._leave()
                finally:
                    self._lock.release()
