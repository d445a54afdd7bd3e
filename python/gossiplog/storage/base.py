"""What a log asks of a database.

Messages are never deleted and get sequences 1, 2, 3, ... in the order in which they arrive, so whatever carries a
sequence is read as of an earlier state by passing over larger ones: no read transaction has to stay open for a
snapshot. The index, which is the level 1 of the tree, the children and the heads, covers the messages up to
`Position.indexed`: a reader of it has to look at those after it.

Everything is in batches, and rows travel as the core makes them. An implementation is safe for several threads, and for
several processes where its database is shared. What goes wrong in the database is raised as StorageError, as
CorruptLog where its file is damaged, and then nothing of the transaction was written.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

from gossiplog.core import Node, WritePlan, decode_id, encode_id
from gossiplog.errors import CorruptLog, StorageError, TopicMismatch, UnknownMessage
from gossiplog.reprs import counted, shell_path

SCHEMA = 4
"""The version of what is stored. Older ones are upgraded when a log is opened, newer ones refused.

Version 1, which wrote the index with every message, was never released and is refused, too. Version 3 added the
alternative encodings, version 4 the generation, the version of `apply` and what belongs to it, and the identity.
"""
REBUILD_REQUESTED = -1
"""The value of `Position.rebuild` for a rebuild that was requested and has not begun."""
MAX_INTEGER = 2**63 - 1
"""What an integer of SQLite holds, and so a sequence: as a count, all messages there may be."""
PAGE_BYTES = 4 * 2**20
"""Bytes of values after which a page of messages ends early."""
PREFIX = "gossiplog_"
"""What the names of a log's tables begin with, and those of no other table beside them."""
# No log comes so far; what follows a sequence must be a number that a database holds.
_MOST_SEQUENCE = 2**62

# Longer than any transaction takes whose `apply` does.
_CLOSING_SECONDS = 30.0

Synchronous: TypeAlias = Literal["off", "normal", "full", "extra"]
"""When a commit waits for the disk, by the names of SQLite's settings.

Examples:
    >>> with gossiplog.open("scratch.db", "org.example.notes", synchronous="off", signer=alice) as scratch:
    ...     print(scratch.append("may be lost with the machine's power").clock)
    1
"""
ScanColumn: TypeAlias = Literal["seq", "key", "value"]
Progress: TypeAlias = Callable[[int, int], object]
"""Called as `progress(done, total)`, now and then: with the messages that are done, or pages of a backup, and with all.

A call raises TypeError before it does anything where its `progress` cannot be called so.

Examples:
    >>> def progress(done: int, total: int) -> None:
    ...     print(f"{done} of {total}")
    >>> result = log.verify(progress=progress)
    >>> message = log.append("one")
    >>> result = log.verify(progress=progress)
    1 of 1
"""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log has come.

    Attributes:
        count: of messages; the largest sequence.
        applied: the sequence up to which the application's `apply` has run.
        indexed: the sequence up to which the index goes.
        alternative: the sequence of the last alternative encoding, 0 where there is none.
        generation: how many times the log was rebased. Sequences of an earlier generation are other messages'.
        apply_version: the version of the `apply` that has run.
        rebuild: the sequence up to which the last rebuild of the application's tables goes, 0 where there was none. It
            is under way while `applied` is smaller. REBUILD_REQUESTED where it has yet to begin.
    """

    count: int = 0
    applied: int = 0
    indexed: int = 0
    alternative: int = 0
    generation: int = 0
    apply_version: int = 1
    rebuild: int = 0

    @property
    def contradiction(self) -> str:
        """What contradicts itself here, as text; "" if nothing does."""
        return f"`apply` ran up to sequence {self.applied} of {self.count}" if self.applied > self.count else ""

    @property
    def is_rebuilding(self) -> bool:
        """Whether a rebuild of the application's tables was requested or has not ended."""
        return self.rebuild == REBUILD_REQUESTED or self.applied < self.rebuild


def check_position(stored: Mapping[str, object], integer: Callable[[object], int | None]) -> Position:
    """Return how far a log has come, from what its database says, by the names of `Position`.

    Args:
        stored: may be anything in a damaged database.
        integer: returns a value as a number; None for one that is stored in another way than numbers are.

    Raises:
        CorruptLog: a value is missing, or cannot be.
    """

    def check(name: str, least: int, most: int, what: str, expected: str) -> int:
        value = integer(stored.get(name))
        if value is None or not least <= value <= most:
            raise CorruptLog([f"{what} {stored.get(name)!r}: expected {expected}"])
        return value

    count = check("count", 0, _MOST_SEQUENCE, "the last message has the sequence", f"0 to {_MOST_SEQUENCE}")
    messages = f"the sequence of one of {counted(count, 'message')}, or 0"
    return Position(
        count=count,
        applied=check("applied", 0, _MOST_SEQUENCE, "the cursor of `apply` is", "the sequence of a message, or 0"),
        indexed=check("indexed", 0, count, "the index goes up to", messages),
        # A wrong one is found among the rows, and is no reason to refuse all others.
        alternative=check("alternative", -_MOST_SEQUENCE, _MOST_SEQUENCE, "the last alternative is of", "a sequence"),
        generation=check("generation", 0, _MOST_SEQUENCE, "the generation is", "an integer of 0 or more"),
        apply_version=check("apply_version", 1, _MOST_SEQUENCE, "the version of `apply` is", "an integer of 1 or more"),
        rebuild=check(
            "rebuild",
            REBUILD_REQUESTED,
            count,
            "the rebuild of the application's tables goes up to",
            "the sequence of a message",
        ),
    )


def parse_tables(text: object) -> frozenset[str] | None:
    """Return the names of tables that are stored as a JSON list; None for anything else."""
    try:
        names = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class ApplicationTables:
    """What is known of an application's tables.

    Attributes:
        has_setup: whether `setup` made them.
        missing: names of tables that `setup` and `apply` have written to and that are there no more, ascending.
    """

    has_setup: bool = False
    missing: Sequence[str] = ()


def index_fingerprint(count: int, root: Node, heads: int) -> str:
    """Return what is stored with an index: how many messages it covers, the root, and how many heads there are."""
    return f"{count} {root.hash.hex()} {heads}"


class DiskFailure(StorageError):
    """The disk failed at a read, or before anything was written: another try may succeed."""


class SequencesTaken(Exception):
    """The sequences of a plan do not follow the last message: the log is not at the position that the plan is for."""


class Reader(ABC):
    """One consistent state of a log. It may be used until the block that gave it ends, by one thread."""

    @abstractmethod
    def position(self) -> Position:
        """Return how far this state has come.

        Raises:
            CorruptLog: what is stored of it cannot be.
            NewerSchema: another process has upgraded the log.
        """

    @abstractmethod
    def level1(self, start: bytes = b"", end: bytes | None = None) -> Sequence[tuple[bytes, bytes]]:
        """Return the tree's rows (key, hash), ascending, the anchor's with the key b"", as far as the index goes.

        Args:
            start: the least key; b"" is the start of the log.
            end: the key before which they end; None is the end of the log.
        """

    @abstractmethod
    def index_fingerprint(self) -> str | None:
        """Return what `Transaction.set_index_fingerprint` was given last, None where it never was."""

    @abstractmethod
    def leaves(
        self, start: bytes, end: bytes | None, count: int, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        """Return the leaves (key, hash) with start <= key < end and a sequence up to `count`, ascending.

        Of more than `limit` these are the first.
        """

    @abstractmethod
    def sequences(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Return the sequences of those of the keys that are in the log."""

    @abstractmethod
    def leaf_rows(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        """Return the leaf hashes and the sequences of those of the keys that are in the log."""

    @abstractmethod
    def values(self, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
        """Return the stored values of those of the keys that are in the log with a sequence up to `count`.

        Args:
            keys: any; they are read the fastest where they ascend, and nothing else stands between them.
            count: the largest sequence.
            limit: bytes; the value by which they are exceeded is the last that is read.
        """

    @abstractmethod
    def page(
        self, after: bytes | None, before: bytes | None, reverse: bool, limit: int, count: int
    ) -> Sequence[tuple[bytes, bytes, bytes]]:
        """Return messages (key, leaf hash, value) between two keys, both left out, with a sequence up to `count`.

        Args:
            after: None is the start of the log.
            before: None is the end of the log.
            reverse: descending by key, otherwise ascending.
            limit: the most messages; there are fewer when their values exceed PAGE_BYTES, but one at least.
            count: the largest sequence.
        """

    @abstractmethod
    def scan(
        self, columns: Sequence[ScanColumn], start: bytes, end: bytes | None, count: int
    ) -> AbstractContextManager[Iterator[tuple[Any, ...]]]:
        """Return a context of the messages with start <= key < end and a sequence up to `count`, ascending by key.

        They are read one by one, as they are asked for.

        Args:
            columns: what is read of each: its sequence (int), key and value (bytes). The value of a message that was
                lost from a damaged log is b"".
            start: b"" is the start of the log.
            end: None is the end of the log.
            count: the largest sequence.
        """

    @abstractmethod
    def split_keys(self, start: bytes, end: bytes | None, parts: int) -> Sequence[bytes]:
        """Return keys that divide a range of keys into parts of about equal numbers of messages.

        They are keys of the tree's level 1, so that one in about 32 messages is looked at.

        Args:
            start: b"" is the start of the log.
            end: None is the end of the log.
            parts: 1 or more.

        Returns:
            Ascending keys above `start` and below `end`; one fewer than the parts, or as many as the tree has.
        """

    @abstractmethod
    def number(self, after: bytes | None, before: bytes | None, count: int) -> int:
        """Return how many messages `page` would go through with these bounds and no limit; no value is read."""

    @abstractmethod
    def arrivals(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return messages (sequence, value), ascending, after a sequence; limited as in `page`.

        In a damaged file they end before the first that does not ascend.

        Raises:
            CorruptLog: that is the first one.
        """

    @abstractmethod
    def newest(self) -> tuple[int, bytes] | None:
        """Return the last message (sequence, value), None in an empty log."""

    @abstractmethod
    def links(self, sequences: Sequence[int]) -> Sequence[bytes]:
        """Return the link records of messages, in the order of their sequences.

        Raises:
            CorruptLog: a sequence without a message.
        """

    @abstractmethod
    def children(self, parents: Sequence[int], first: int, last: int) -> Sequence[tuple[int, int]]:
        """Return pairs (parent, child), ascending, of sequences, the child's being from `first` to `last`.

        They go as far as the index goes.
        """

    @abstractmethod
    def heads(
        self, start: bytes = b"", end: bytes | None = None, limit: int | None = None
    ) -> Sequence[tuple[bytes, int]]:
        """Return the messages that no other names as a parent, as far as the index goes.

        They are rows (key, sequence), ascending. A log may have as many of them as messages.

        Args:
            start: the least key; b"" is the start of the log.
            end: the key before which they end; None is the end of the log.
            limit: of more than so many these are the first.
        """

    @abstractmethod
    def contents(self, sequences: Sequence[int]) -> dict[int, bytes]:
        """Return the keys of the canonical encodings of those of the messages that are alternative ones."""

    @abstractmethod
    def alternatives(self, contents: Sequence[bytes]) -> dict[bytes, int]:
        """Return the sequences of the first alternative encodings, by the keys of the canonical ones."""

    @abstractmethod
    def application_tables(self) -> ApplicationTables:
        """Return what is known of the application's tables.

        Raises:
            CorruptLog: what is stored of it cannot be.
        """

    @abstractmethod
    def strays(self, position: Position) -> Sequence[tuple[str, str]]:
        """Return rows with a sequence that no message has, as (table, row as text); some of them, where they are many.

        Args:
            position: of this state.
        """


class Rows(Protocol):
    """What a statement of `apply` has found: what the cursors of sqlite3 and psycopg have in common, typed as there.

    Examples:
        >>> def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        ...     rows = transaction.execute("SELECT 1 UNION SELECT 2")
        ...     print(rows.fetchone(), rows.fetchall())
        >>> with gossiplog.open("tables.db", "org.example.notes", apply=apply, signer=alice) as tables:
        ...     message = tables.append("one")
        (1,) [(2,)]
    """

    @property
    def rowcount(self) -> int:
        """How many rows the statement has changed; -1 where the driver does not know."""

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None after the last."""

    def fetchmany(self, size: int = 1, /) -> list[tuple[Any, ...]]:
        """Return the next rows, so many at most.

        Args:
            size: how many at most.
        """

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the rows that are left."""


class ApplyTransaction(Protocol):
    """What `apply` is given: the transaction that stores the message.

    Attributes:
        paramstyle: how `execute` takes parameters, as PEP 249 names it: "qmark" (`?`) in SQLite, "format" (`%s`) in
            Postgres.

    Examples:
        >>> def setup(transaction: gossiplog.ApplyTransaction) -> None:
        ...     transaction.execute("CREATE TABLE counts (author TEXT PRIMARY KEY, messages INTEGER)")
        >>> def apply(message: gossiplog.SignedMessage, transaction: gossiplog.ApplyTransaction) -> None:
        ...     transaction.execute("INSERT OR IGNORE INTO counts VALUES (?, 0)", (message.author,))
        ...     transaction.execute("UPDATE counts SET messages = messages + 1 WHERE author = ?", (message.author,))
        ...     print(transaction.execute("SELECT messages FROM counts").fetchall())
        >>> with gossiplog.open("tables.db", "org.example.notes", apply=apply, setup=setup, signer=alice) as tables:
        ...     messages = tables.append_many(["one", "two"])
        [(1,)]
        [(2,)]
    """

    paramstyle: str

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> Rows:
        """Run a statement of the application in the transaction.

        Args:
            sql: one statement, in the database's own dialect.
            parameters: as the database's driver takes them.

        Returns:
            The driver's cursor. It is closed when `apply` returns.

        Raises:
            StorageError: a statement that would end the transaction or change the log's own tables, or one that comes
                after the transaction has ended; a database that fails; a back end without SQL.
                Other errors are the driver's own.
        """

    @abstractmethod
    def content_id(self, id: str, /) -> str:
        """Return the id that all encodings of a message have in common.

        A parent, for one, may be stored as another encoding than `apply` was called for.

        Args:
            id: of a message that is stored, or of the one that `apply` is called for.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is neither in the log nor in the transaction before this one.
            CorruptLog: the stored message is damaged.
        """

    @abstractmethod
    def is_ancestor(self, ancestor: str, descendant: str, /) -> bool:
        """Return whether a message follows another, directly or not, whichever of their encodings are named.

        Replicas that have both give the same answer, in whatever order messages came. It takes a search as that of
        `Log.is_ancestor`, between the two.

        Args:
            ancestor: any id of the one, as its `content_id`.
            descendant: any id of the other, as that of the message that `apply` is called for.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: one of them is neither in the log nor in the transaction before this one.
            CorruptLog: the log is damaged.
        """


class Transaction(Reader, ApplyTransaction):
    """A state that is being changed: the only one at a time, over all threads and processes."""

    paramstyle = "qmark"
    _planned: Mapping[bytes, bytes] = MappingProxyType({})
    _find_stored: Callable[[bytes], str | None] = staticmethod(lambda key: None)
    _search: Callable[[bytes, bytes], bool] = staticmethod(lambda ancestor, descendant: False)

    def set_ancestry(self, search: Callable[[bytes, bytes], bool]) -> None:
        """Set what `is_ancestor` answers, for two keys."""
        self._search = search

    def is_ancestor(self, ancestor: str, descendant: str, /) -> bool:
        return self._search(decode_id(ancestor), decode_id(descendant))

    def set_content_ids(self, contents: Mapping[bytes, bytes], find_stored: Callable[[bytes], str | None]) -> None:
        """Set what `content_id` answers.

        Args:
            contents: by the keys of messages that `apply` runs over before they are written, those of their canonical
                encodings.
            find_stored: returns the content id of a stored message by its key, None where there is none.
        """
        self._planned = contents
        self._find_stored = find_stored

    def content_id(self, id: str, /) -> str:
        key = decode_id(id)
        planned = self._planned.get(key)
        content = self._find_stored(key) if planned is None else encode_id(planned)
        if content is None:
            raise UnknownMessage(id)
        return content

    @abstractmethod
    def write(self, plan: WritePlan) -> None:
        """Add messages, their link records, their leaves, and which of them are alternative encodings.

        Called once, when no more is read.

        Args:
            plan: the rows of the messages.

        Raises:
            SequencesTaken: the log has more messages than the maker of the plan knew of, or fewer.
        """

    @abstractmethod
    def index(self, plan: WritePlan, level1: Sequence[tuple[bytes, bytes]], indexed: int) -> None:
        """Take messages into the index: the next ones after those that it covers.

        Args:
            plan: the children and the heads.
            level1: the rows of the tree that may have changed.
            indexed: the sequence of the last of the messages.
        """

    @abstractmethod
    def set_index_fingerprint(self, text: str) -> None:
        """Store a text that an index which is read later is compared with."""

    @abstractmethod
    def set_applied(self, sequence: int) -> None:
        """Move the cursor of `apply`, and note which tables it has written to."""

    @abstractmethod
    def request_rebuild(self) -> None:
        """Set `Position.rebuild` to REBUILD_REQUESTED."""

    @abstractmethod
    def begin_rebuild(self, version: int, *, has_setup: bool) -> None:
        """Set the cursor of `apply` to the start of the log, and what the rebuild goes up to.

        Args:
            version: of `apply` from now on.
            has_setup: whether `setup` has run in this transaction.
        """

    @abstractmethod
    def savepoint(self) -> AbstractContextManager[None]:
        """Return a context, for `apply` to run in, whose statements are undone when it raises.

        What the database checks at a commit is checked as it ends, so that it raises for the message at fault.
        """


class Storage(ABC):
    """A place for one log.

    Examples:
        >>> for storage in (gossiplog.MemoryStorage(), gossiplog.SQLiteStorage("one.db")):
        ...     with gossiplog.open(storage, "org.example.notes", signer=alice) as notes:
        ...         print(notes.append("one").clock, isinstance(storage, gossiplog.Storage))
        1 True
        1 True
    """

    @property
    def place(self) -> str:
        """The location of the log in texts: a path, or what kind of storage it is."""
        return f"a {type(self).__name__}"

    @property
    def file(self) -> Path | None:
        """The path of the file that the log is in, as commands take it; None where it is in none."""
        return None

    @property
    def identity(self) -> bytes:
        """Random bytes that this log has and no other, once it is open; b"" where it has none."""
        return b""

    def origin(self, sequence: int) -> bytes:
        """Return the identity of the log in which a message got a sequence, once it is open; b"" where it is not known.

        That is this log, or the one of which it is a backup. Two logs that have a sequence from the same one have the
        same messages up to it, in the same order, as replicas have not.

        Args:
            sequence: that the log has.
        """
        return self.identity

    @property
    def argument(self) -> str:
        """The log as an argument of a command, quoted for a shell; "" where no other process finds it."""
        return "" if self.file is None else shell_path(self.file)

    @property
    def read_only(self) -> bool:
        """Whether it was opened so that nothing can be written."""
        return False

    @property
    def write_refusal(self) -> str:
        """Why nothing can be written, as far as was found when the log was opened; "" if nothing hinders it.

        What hinders it later, as a full disk, shows when something is written.
        """
        return "it was opened read-only" if self.read_only else ""

    @property
    def reconnections(self) -> int:
        """How often a connection to the database was lost and made anew: another server may be at its other end."""
        return 0

    @property
    def may_be_replaced(self) -> bool:
        """Whether another log may take the place of this one while it is open: `Reader.position` raises then."""
        return False

    @property
    def losses(self) -> Sequence[str]:
        """What was lost or set aside of the log as it was opened, as far as is known: texts of warnings."""
        return ()

    @abstractmethod
    def open(self, topic: str | None, create: bool, progress: Progress | None = None) -> str:
        """Make the log ready for use, and upgrades it where an earlier version wrote it and it can be written.

        Args:
            topic: what the log must have, or gets when it is new; None takes that of the log.
            create: whether to make a log where none is.
            progress: of an upgrade that goes through all messages.

        Returns:
            The topic.

        Raises:
            NotALog: there is none and none may be made, or what is there is something else.
            NewerSchema: a newer version wrote the log.
            OlderSchema: a version wrote it whose tables are no longer read.
            TopicMismatch: the log has another topic.
            StorageError: it is open already, or cannot be read.
        """

    @abstractmethod
    def reader(self, *, single: bool = False) -> AbstractContextManager[Reader]:
        """Return a context with one state of the log.

        After a block that raised CorruptLog or DiskFailure, the next one reads the files anew, from no cache.

        Args:
            single: each read of the block may see a later state than the one before: enough for a caller that reads
                once, or reads as of a count, and cheaper.

        Raises:
            LogClosed: the storage is not open.
        """

    def lock_if_free(self) -> AbstractContextManager[bool]:
        """Return a context that keeps other threads from reading and writing, if nobody has to be waited for.

        Its value is whether it does so. It never does where a transaction may wait for a disk or another process.
        """
        return nullcontext(False)

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a context that is committed as a whole at its end, or rolled back when it raises.

        After one that raised CorruptLog or DiskFailure, the next one reads the files anew, as with `reader`.

        Raises:
            LogClosed: the storage is not open.
            StorageError: this thread is in a transaction already, or the lock of another process was not released.
        """

    def watch(self, notify: Callable[[], object]) -> None:
        """Have a function called when others may have committed, until the storage is closed, where a database can.

        How far the log has come is to be looked up: what a database says of it, anybody may have said. The function is
        also called once commits are announced, and when they no longer are.

        Args:
            notify: is called on a thread of the storage's, so it must not wait. It may be called for nothing.
        """
        return

    @property
    def announces_commits(self) -> bool:
        """Whether the functions that `watch` was given are called for all commits of others now.

        Otherwise these have to be looked for.
        """
        return False

    @abstractmethod
    def size(self) -> int:
        """Return how many bytes the database takes."""

    @abstractmethod
    def backup(self, target: str, progress: Progress | None = None) -> int:
        """Copy one state of the log to a new file, with all tables that an application has beside it.

        Args:
            target: the path of the new file.
            progress: called with the pages that are copied, and with all that there are.

        Returns:
            The number of messages in the copy.

        Raises:
            StorageError: the file is there, or cannot be written; or a storage that has no database.
        """

    @abstractmethod
    def check(self) -> list[str]:
        """Return what the database itself finds wrong with its files, one sentence each."""

    def check_files(self) -> None:
        """Check that what was opened is still there, so that a write would find it. It does not wait for writers.

        Raises:
            StorageError: it was deleted, replaced or written over.
        """
        return

    @abstractmethod
    def close(self) -> None:
        """End the use of the log; a second call does nothing.

        Raises:
            StorageError: a transaction of another thread does not end, or the content of a file that has lost its name
                cannot be saved. No new one begins, and nothing more is read; another call tries again.
        """


@contextmanager
def closing(lock: threading.RLock, place: str) -> Iterator[None]:
    """Lock the transactions of a log for a block that ends its use.

    Raises:
        StorageError: another thread has held it for too long.
    """
    if not lock.acquire(timeout=_CLOSING_SECONDS):
        raise StorageError(
            f"{place} is closed, but a transaction of another thread has not ended for {_CLOSING_SECONDS:g} s: does an"
            " `apply` function hang?"
        )
    try:
        yield
    finally:
        lock.release()


def check_same_topic(place: str, stored: str, topic: str | None) -> None:
    """Refuse to open a log under another topic than its own.

    Raises:
        TopicMismatch: the topic is given, and another.
    """
    if topic is not None and topic != stored:
        raise TopicMismatch(f"{place} is a log of the topic {stored!r}, not {topic!r}: name that topic, or another log")


def divisions(nodes: int, parts: int) -> list[int]:
    """Return which of so many nodes in a row divide the range in which they stand into parts of about equal length.

    Args:
        nodes: between the two ends of the range, which are none of them.
        parts: 1 or more.

    Returns:
        Ascending indices: one fewer than the parts, or all.
    """
    return sorted({(nodes + 1) * part // parts - 1 for part in range(1, parts)} - {-1})
