"""The runs of an application's `apply`: over new messages, over stored ones that it has not seen, and anew over all.

The rules of `apply`:

- It runs once for each message, in the order of sequences, in the transaction that stores the message, in a savepoint.
- It runs for the first of several encodings of a message alone: see `gossiplog.log.encodings`.
- If it raises, the message is not stored here, and what descends from it waits as for a missing parent.
- Where it lets the InvalidPayload of a stored message through, it counts as having returned, and what it wrote for the
  message is undone: the log's type for payloads does not read what a program without it stored, or an earlier version.
  So it does for new messages where the log does not refuse payloads of other types.
- A cursor in the database says how far it has run; a process without `apply` leaves the cursor where it is. So a
  process with `apply` first runs it over the messages that the cursor has not passed. They are stored: an exception
  then ends the call, and the next one tries again.
- It has a version. A rebuild begins in one transaction: `setup` runs, the cursor goes back to 0, and the version is
  stored. From then on it is catching up like any other, which any process with this version goes on with.
- A rebuild begins where the version is higher than the stored one, where one was requested, where `setup` has not made
  the tables yet, and where a table is missing that `apply` has written to. Without `setup`, rows would be missing or
  doubled: an error says so instead.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

from gossiplog import core
from gossiplog.errors import (
    ApplicationMismatch,
    CorruptLog,
    InvalidMessage,
    InvalidPayload,
    RefusedMessage,
    StorageError,
)
from gossiplog.log import encodings
from gossiplog.log.application_ancestry import ApplicationAncestry, KnownMessages
from gossiplog.log.callbacks import check_runs
from gossiplog.log.payloads import P, Payloads
from gossiplog.log.reading import CheckedSequences, read, read_arrivals, read_message, write
from gossiplog.message import SignedMessage
from gossiplog.reprs import counted, error_text
from gossiplog.storage import Storage
from gossiplog.storage.base import MAX_INTEGER, REBUILD_REQUESTED, ApplyTransaction, Position, Progress, Transaction

Apply: TypeAlias = (
    Callable[[SignedMessage[P], ApplyTransaction], object] | Callable[[SignedMessage[P], sqlite3.Connection], object]
)
"""An application's function for each message. On a log in SQLite it may take the transaction for a connection, as the
application's other functions do: it has that one's `execute`, and nothing else of it.

Examples:
    >>> def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
    ...     print("clock", message.clock, message.payload)
    >>> with gossiplog.open(":memory:", "org.example.notes", apply=apply, signer=alice) as notes:
    ...     message = notes.append("one")
    clock 1 one
"""
Setup: TypeAlias = Callable[[ApplyTransaction], object] | Callable[[sqlite3.Connection], object]
"""An application's function that makes its tables, before the first message and before each rebuild.

Examples:
    >>> def setup(transaction: gossiplog.ApplyTransaction) -> None:
    ...     transaction.execute("DROP TABLE IF EXISTS notes")
    ...     transaction.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT)")
    >>> def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
    ...     transaction.execute("INSERT INTO notes VALUES (?, ?)", (message.content_id, message.payload))
    >>> with gossiplog.open("tables.db", "org.example.notes", apply=apply, setup=setup, signer=alice) as tables:
    ...     print(tables.append("one").clock)
    1
"""
# The same as they are called.
_Apply: TypeAlias = Callable[[SignedMessage, ApplyTransaction], object]
_Setup: TypeAlias = Callable[[ApplyTransaction], object]

LOCK_SECONDS = 0.25
"""How long one transaction may hold the lock."""

WORKING_SECONDS = LOCK_SECONDS / 2
"""How long a transaction may work: what one that has begun still has to do takes time as well."""

_STORED = (
    "the message is in the log already, where a program without `apply` stored it, as `gossiplog sync` and"
    " `gossiplog serve` do: have `apply` return for messages that mean nothing to it, instead of raising"
)
_ANEW = (
    "the message is in the log already, and the application's tables are being built anew from all messages, for"
    " version {version} of `apply`: correct `apply`, or have it return for messages that mean nothing to it, and open"
    " the log or repeat the rebuild, which goes on with this message; give a higher version if `apply` would now write"
    " other rows for those before it"
)
_PAGE = 256


@dataclass(frozen=True, slots=True)
class Application:
    """What an application gives to be run over the messages of a log.

    Attributes:
        apply: runs for each message.
        version: of `apply`, 1 or more.
        setup: drops and makes the application's tables; None where they are made otherwise.
    """

    apply: _Apply
    version: int = 1
    setup: _Setup | None = None


def application(apply: Apply[Any] | None, version: int, setup: Setup | None) -> Application | None:
    """Return what `open` was given, checked; None without `apply`.

    Raises:
        TypeError: functions that cannot be called as they will be, or whose bodies would not run; a version that is no
            integer.
        ValueError: a version below 1 or too large; a version or `setup` without `apply`.
    """
    if not isinstance(version, int):
        raise TypeError(f"apply_version is {version!r}: expected an integer")
    if not 1 <= version <= MAX_INTEGER:
        raise ValueError(f"apply_version is {version}: expected 1 or more")
    if apply is None:
        if setup is not None or version != 1:
            raise ValueError("setup and apply_version belong to apply, which is not given")
        return None
    check_runs("apply", apply, "message", "transaction")
    if setup is not None:
        check_runs("setup", setup, "transaction")
    return Application(cast(_Apply, apply), version, cast(_Setup | None, setup))


class _Batch(Protocol):
    def __getitem__(self, index: int, /) -> SignedMessage | InvalidMessage: ...


class Applier:
    """Runs an application's `apply`.

    Args:
        application: None has nothing run.
        payloads: of the log, whose type messages' payloads are read by.
        sequences: of messages of the log that were held against their values.
    """

    def __init__(
        self,
        storage: Storage,
        topic: str,
        application: Application | None,
        payloads: Payloads[Any],
        sequences: CheckedSequences,
    ) -> None:
        self._storage = storage
        self._topic = topic
        self._application = application
        self._payloads = payloads
        self._known = KnownMessages(sequences)
        # Of the thread that runs the application's functions, of which there is one at a time: the one that writes.
        self._thread: int | None = None

    def check_thread(self) -> None:
        """Refuse to write where `apply` or `setup` calls: another thread would wait for the transaction of this one.

        Raises:
            StorageError: this thread runs one of them.
        """
        if self._thread == threading.get_ident():
            raise StorageError("this thread is in a transaction of the log: `apply` must not append or insert")

    @property
    def is_given(self) -> bool:
        """Whether there is an `apply`."""
        return self._application is not None

    def open(self, progress: Progress | None) -> None:
        """Begin a rebuild where one is due, and run `apply` over the stored messages that it has not seen.

        Args:
            progress: is called with the messages that it has run over, and with all that there are.

        Raises:
            ApplicationMismatch: the version is lower than the stored one, or a rebuild is due and there is no `setup`.
            RefusedMessage: `apply` raised; its exception is the cause. It has run for the messages before.
            CorruptLog: a stored message is damaged. It has run for those before.
        """
        if self._application is None:
            return
        application = self._application
        write(
            self._storage,
            lambda transaction: self._prepare(transaction, application, transaction.position(), is_opening=True),
        )
        self.catch_up(progress)

    def rebuild(self, progress: Progress | None) -> None:
        """Request a rebuild, and run it where there is an `apply`.

        Raises:
            ApplicationMismatch: there is an `apply`, but no `setup`, or its version is lower than the stored one.
                Nothing was requested.
            RefusedMessage, CorruptLog: as `open`.
        """
        application = self._application
        if application is not None and application.setup is None:
            raise ApplicationMismatch(
                "a rebuild runs `setup` first, which drops the application's tables and makes them anew: open the log"
                " with setup="
            )

        def request(transaction: Transaction) -> None:
            if application is not None:
                _check_version(application, transaction.position())
            transaction.request_rebuild()

        write(self._storage, request)
        self.catch_up(progress)

    def catch_up(self, progress: Progress | None = None) -> None:
        """Run `apply` over the stored messages that it has not seen.

        Raises: as `open`.
        """
        application = self._application
        if application is None:
            return

        def run(transaction: Transaction) -> tuple[Position, int, RefusedMessage | None]:
            position = transaction.position()
            if self._prepare(transaction, application, position):
                position = transaction.position()
            return position, *self._run_some(transaction, application.apply, position)

        behind = True
        while behind:
            position, applied, failure = write(self._storage, run)
            behind = applied < position.count
            if progress is not None and applied > position.applied:
                progress(applied, position.count)
            # Only now: what came before it is committed.
            if failure is not None:
                raise failure

    def catch_up_if_behind(self) -> None:
        """Catch up, if there is an `apply` and it is behind."""
        if self._application is not None and read(self._storage, lambda reader: self.is_behind(reader.position())):
            self.catch_up()

    def is_behind(self, position: Position) -> bool:
        """Return whether there is something to do before new messages can be applied."""
        if position.contradiction:
            raise CorruptLog([position.contradiction])
        return self._application is not None and (
            position.applied < position.count
            or position.rebuild == REBUILD_REQUESTED
            or position.apply_version != self._application.version
        )

    def _prepare(
        self, transaction: Transaction, application: Application, position: Position, *, is_opening: bool = False
    ) -> bool:
        """Begin a rebuild where one is due; return whether one was, or the version was stored.

        Raises:
            ApplicationMismatch: as `open`.
        """
        _check_version(application, position)
        reason = self._reason(transaction, application, position, is_opening)
        if not reason:
            return False
        if application.setup is not None:
            self._set_up(transaction, {}, None)
            with transaction.savepoint():
                self._thread = threading.get_ident()
                try:
                    application.setup(transaction)
                finally:
                    self._thread = None
        elif position.applied:
            raise ApplicationMismatch(
                f"the application's tables have to be built anew from the first message, because {reason}, and there"
                " is no `setup` to drop and make them: open the log with setup= (docs/applications.md)"
            )
        transaction.begin_rebuild(application.version, has_setup=application.setup is not None)
        return True

    def _reason(self, transaction: Transaction, application: Application, position: Position, is_opening: bool) -> str:
        """Return why a rebuild is due, "" where none is."""
        if position.apply_version < application.version:
            return f"this is version {application.version} of `apply` and they are of version {position.apply_version}"
        if position.rebuild == REBUILD_REQUESTED:
            return "a rebuild was requested"
        # What follows may change while no program with `apply` has the log open.
        if is_opening:
            tables = transaction.application_tables()
            if application.setup is not None and not tables.has_setup:
                return "`setup` has not run before"
            if tables.missing:
                names = ", ".join(tables.missing)
                return f"{counted(len(tables.missing), 'table is', 'tables are')} missing: {names}"
        return ""

    def run_new(
        self,
        transaction: Transaction,
        batch: _Batch,
        plan: core.WritePlan,
        known: Collection[bytes] | None,
        deadline: float,
    ) -> tuple[dict[int, RefusedMessage], list[int]]:
        """Run `apply` over a plan's messages; return which it refuses, and which were left when time was up.

        Args:
            transaction: in which they are not written yet.
            batch: of the messages.
            plan: for them.
            known: content keys of which the log has an encoding, or None if no message is there in several.
            deadline: as `time.monotonic` has it.
        """
        failed: dict[int, RefusedMessage] = {}
        if self._application is None:
            return failed, []
        lost: set[str] = set()
        contents = [] if known is None else [*encodings.plan_content_keys(plan).values()]
        seen = None if known is None else set(known)
        # Of the message that `apply` is called for, and of those before it that it has not refused.
        passed: dict[bytes, bytes] = {}
        self._set_up(transaction, passed, plan)
        for position, index in enumerate(plan.order):
            message = valid(batch[index])
            if lost and not lost.isdisjoint(message.parents):
                lost.add(message.id)
                continue
            content = contents[position] if contents else message.key
            passed[message.key] = content
            try:
                if seen is None or content not in seen:
                    self._run(message, transaction, passes_over=self._payloads.passes_over)
            except RefusedMessage as error:
                failed[index] = error
                lost.add(message.id)
                del passed[message.key]
            else:
                if seen is not None:
                    seen.add(content)
            if time.monotonic() > deadline:
                return failed, plan.order[position + 1 :]
        return failed, []

    def _run_some(
        self, transaction: Transaction, apply: _Apply, position: Position
    ) -> tuple[int, RefusedMessage | None]:
        """Run `apply` over stored messages; return how far it has come, and what ended it."""
        deadline = time.monotonic() + WORKING_SECONDS
        self._set_up(transaction, {}, None)
        applied = position.applied
        failure: RefusedMessage | None = None
        try:
            is_late = False
            while applied < position.count and not is_late:
                messages = read_arrivals(transaction, self._topic, applied, _PAGE)
                if not messages:
                    raise CorruptLog([f"there is no message with the sequence {applied + 1}"])
                duplicates = self._duplicates(transaction, position, messages)
                for sequence, message in messages:
                    if sequence not in duplicates:
                        # Else whoever appends by a program without the type would keep the log from being opened.
                        self._run(message, transaction, passes_over=True)
                    applied = sequence
                    is_late = time.monotonic() > deadline
                    if is_late:
                        break
        except RefusedMessage as error:
            # The whole rebuild: `rebuild` has the sequence at which it ends.
            way_back = _ANEW.format(version=position.apply_version) if position.is_rebuilding else _STORED
            failure = RefusedMessage(f"{error.reason}; {way_back}", error.id)
            failure.__cause__ = error.__cause__
        except CorruptLog:
            # What it has run for is committed first: the next transaction meets the damage.
            if applied == position.applied:
                raise
        if applied > position.applied:
            transaction.set_applied(applied)
        return applied, failure

    def _run(self, message: SignedMessage, transaction: Transaction, *, passes_over: bool) -> None:
        """Run `apply` for a message; where its own InvalidPayload is passed over, nothing of what was written stays."""
        assert self._application is not None
        try:
            with transaction.savepoint():
                self._thread = threading.get_ident()
                # Called here, since notes of errors show the frames behind this one.
                try:
                    self._application.apply(self._payloads.typed(message), transaction)
                finally:
                    self._thread = None
        except StorageError:
            raise
        except Exception as error:
            if passes_over and isinstance(error, InvalidPayload) and error.id == message.id:
                return
            reason = f"`apply` raised {type(error).__name__}: {error_text(error)}"
            raise RefusedMessage(reason, message.id) from error

    def _set_up(self, transaction: Transaction, planned: Mapping[bytes, bytes], plan: core.WritePlan | None) -> None:
        """Let a transaction answer what an application asks of messages."""
        transaction.set_content_ids(planned, partial(self._content_id, transaction))
        transaction.set_ancestry(ApplicationAncestry(transaction, plan, self._known, planned).is_ancestor)

    def _content_id(self, transaction: Transaction, key: bytes) -> str | None:
        # As the message says: a stored row may have rotted.
        message = read_message(transaction, self._topic, key, MAX_INTEGER)
        return None if message is None else message.content_id

    def _duplicates(
        self, transaction: Transaction, position: Position, messages: Sequence[tuple[int, SignedMessage]]
    ) -> Collection[int]:
        """Return the sequences of those of the stored messages of which another encoding arrived before."""
        if not position.alternative:
            return ()
        return encodings.stored_duplicates(transaction, encodings.message_content_keys(messages))


def _check_version(application: Application, position: Position) -> None:
    if position.apply_version > application.version:
        above = position.apply_version
        written = "are being built anew by" if position.is_rebuilding else "were written by"
        raise ApplicationMismatch(
            f"the application's tables {written} version {above} of `apply`, this is version {application.version}: run"
            f" the newer program. To go back to the older code, give it an apply_version above {above}"
            f" (--apply-version {above + 1}): the tables are then built anew"
        )


def valid(verdict: SignedMessage | InvalidMessage) -> SignedMessage:
    """Return a message of a batch; raise what another verdict is."""
    if isinstance(verdict, InvalidMessage):
        raise verdict
    return verdict
