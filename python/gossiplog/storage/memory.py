"""A log in plain Python objects: no SQL, nothing outlives the process."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any, NoReturn, TypeVar

from gossiplog.core import WritePlan
from gossiplog.errors import CorruptLog, LogClosed, NotALog, StorageError
from gossiplog.storage.base import (
    PAGE_BYTES,
    REBUILD_REQUESTED,
    ApplicationTables,
    Position,
    Progress,
    Reader,
    ScanColumn,
    SequencesTaken,
    Storage,
    Transaction,
    check_same_topic,
    closing,
    divisions,
)

Value = TypeVar("Value")


class _Tables:
    """The rows of a log. One lock, the storage's, guards them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.position = Position()
        self.has_setup = False
        # Values and link records of the message with sequence index + 1.
        self.messages: list[tuple[bytes, bytes]] = []
        self.bytes = 0
        self.keys: list[bytes] = []
        self.leaves: dict[bytes, tuple[bytes, int]] = {}
        # As arrays, which the collector of garbage passes over: there is one for each message that has children.
        self.children: dict[int, array[int]] = {}
        self.heads: dict[bytes, int] = {}
        self.tree: dict[bytes, bytes] = {}
        self.index_fingerprint: str | None = None
        # Of alternative encodings: the canonical ones' keys by sequences, and the first sequences by these keys.
        self.contents: dict[int, bytes] = {}
        self.alternatives: dict[bytes, int] = {}

    def write(self, plan: WritePlan) -> None:
        self.messages.extend((value, links) for _, value, links in plan.messages)
        self.bytes += sum(len(value) + len(links) for _, value, links in plan.messages)
        self._add_keys([key for key, _, _ in plan.leaves])
        self.leaves.update((key, (hash, sequence)) for key, hash, sequence in plan.leaves)
        self.contents.update(plan.alternatives)
        for sequence, content in plan.alternatives:
            self.alternatives.setdefault(content, sequence)
        alternative = plan.alternatives[-1][0] if plan.alternatives else self.position.alternative
        self.position = replace(self.position, count=len(self.messages), alternative=alternative)

    def index(self, plan: WritePlan, level1: Sequence[tuple[bytes, bytes]], indexed: int) -> None:
        for parent, child in plan.children:
            children = self.children.get(parent)
            if children is None:
                self.children[parent] = array("q", (child,))
            else:
                insort(children, child)
        for key in plan.heads_removed:
            self.heads.pop(key, None)
        self.heads.update(plan.heads_added)
        self.tree.update(level1)
        self.position = replace(self.position, indexed=indexed)

    def _add_keys(self, keys: list[bytes]) -> None:
        if not self.keys or keys[0] > self.keys[-1]:
            self.keys.extend(keys)
        elif len(keys) < 32:
            for key in keys:
                insort(self.keys, key)
        else:
            self.keys = sorted(self.keys + keys)


class _MemoryReader(Reader):
    def __init__(self, tables: _Tables) -> None:
        self._tables = tables

    def position(self) -> Position:
        return self._tables.position

    def level1(self, start: bytes = b"", end: bytes | None = None) -> Sequence[tuple[bytes, bytes]]:
        return sorted(_within(self._tables.tree, start, end))

    def index_fingerprint(self) -> str | None:
        return self._tables.index_fingerprint

    def leaves(
        self, start: bytes, end: bytes | None, count: int, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        keys, leaves = self._tables.keys, self._tables.leaves
        first = bisect_left(keys, start)
        stop = len(keys) if end is None else bisect_left(keys, end)
        if limit is None:
            return [(key, leaf[0]) for key in keys[first:stop] if (leaf := leaves[key])[1] <= count]
        found = ((key, *leaves[key]) for key in map(keys.__getitem__, range(first, stop)))
        return [*islice(((key, hash) for key, hash, sequence in found if sequence <= count), limit)]

    def sequences(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        leaves = self._tables.leaves
        return {key: leaves[key][1] for key in keys if key in leaves}

    def leaf_rows(self, keys: Sequence[bytes]) -> dict[bytes, tuple[bytes, int]]:
        leaves = self._tables.leaves
        return {key: leaves[key] for key in keys if key in leaves}

    def values(self, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
        # They are in memory already, so none are left out.
        messages = self._tables.messages
        found = self.sequences(keys)
        return {key: messages[sequence - 1][0] for key, sequence in found.items() if sequence <= count}

    def page(
        self, after: bytes | None, before: bytes | None, reverse: bool, limit: int, count: int
    ) -> Sequence[tuple[bytes, bytes, bytes]]:
        keys, leaves, messages = self._tables.keys, self._tables.leaves, self._tables.messages
        between = self._between(after, before)
        indices = reversed(between) if reverse else between
        found: list[tuple[bytes, bytes, bytes]] = []
        size = 0
        for index in indices:
            if len(found) == limit or size > PAGE_BYTES:
                break
            hash, sequence = leaves[keys[index]]
            if sequence <= count:
                value, _ = messages[sequence - 1]
                found.append((keys[index], hash, value))
                size += len(value)
        return found

    def scan(
        self, columns: Sequence[ScanColumn], start: bytes, end: bytes | None, count: int
    ) -> AbstractContextManager[Iterator[tuple[Any, ...]]]:
        return nullcontext(self._rows(columns, start, end, count))

    def _rows(
        self, columns: Sequence[ScanColumn], start: bytes, end: bytes | None, count: int
    ) -> Iterator[tuple[Any, ...]]:
        keys, leaves, messages = self._tables.keys, self._tables.leaves, self._tables.messages
        stop = len(keys) if end is None else bisect_left(keys, end)
        for key in islice(keys, bisect_left(keys, start), stop):
            _, seq = leaves[key]
            if seq <= count:
                value, _ = messages[seq - 1]
                row = {"seq": seq, "key": key, "value": value}
                yield tuple(row[column] for column in columns)

    def split_keys(self, start: bytes, end: bytes | None, parts: int) -> Sequence[bytes]:
        keys = sorted(self._tables.tree)
        keys = keys[bisect_right(keys, start) : len(keys) if end is None else bisect_left(keys, end)]
        return [keys[index] for index in divisions(len(keys), parts)]

    def number(self, after: bytes | None, before: bytes | None, count: int) -> int:
        keys, leaves = self._tables.keys, self._tables.leaves
        between = self._between(after, before)
        if count >= len(keys):
            return len(between)
        return sum(leaves[keys[index]][1] <= count for index in between)

    def _between(self, after: bytes | None, before: bytes | None) -> range:
        keys = self._tables.keys
        first = 0 if after is None else bisect_right(keys, after)
        return range(first, len(keys) if before is None else bisect_left(keys, before))

    def arrivals(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        size = 0
        for sequence, (value, _) in enumerate(self._tables.messages[after : after + limit], after + 1):
            found.append((sequence, value))
            size += len(value)
            if size > PAGE_BYTES:
                break
        return found

    def newest(self) -> tuple[int, bytes] | None:
        messages = self._tables.messages
        return (len(messages), messages[-1][0]) if messages else None

    def links(self, sequences: Sequence[int]) -> Sequence[bytes]:
        messages = self._tables.messages
        if any(not 1 <= sequence <= len(messages) for sequence in sequences):
            raise CorruptLog(["a link record names a message that is not there"])
        return [messages[sequence - 1][1] for sequence in sequences]

    def children(self, parents: Sequence[int], first: int, last: int) -> Sequence[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for parent in sorted(parents):
            own = self._tables.children.get(parent, ())
            found.extend((parent, child) for child in own[bisect_left(own, first) : bisect_right(own, last)])
        return found

    def contents(self, sequences: Sequence[int]) -> dict[int, bytes]:
        contents = self._tables.contents
        return {sequence: contents[sequence] for sequence in sequences if sequence in contents}

    def alternatives(self, contents: Sequence[bytes]) -> dict[bytes, int]:
        alternatives = self._tables.alternatives
        return {content: alternatives[content] for content in contents if content in alternatives}

    def heads(
        self, start: bytes = b"", end: bytes | None = None, limit: int | None = None
    ) -> Sequence[tuple[bytes, int]]:
        return sorted(_within(self._tables.heads, start, end))[:limit]

    def application_tables(self) -> ApplicationTables:
        return ApplicationTables(self._tables.has_setup)

    def strays(self, position: Position) -> Sequence[tuple[str, str]]:
        # No row is written but with its message.
        return ()


class _Reading:
    """A block that reads: a generator would take longer than most reads."""

    __slots__ = ("_lock", "_open_tables")

    def __init__(self, lock: threading.RLock, open_tables: Callable[[], _Tables]) -> None:
        self._lock = lock
        self._open_tables = open_tables

    def __enter__(self) -> Reader:
        with self._lock:
            reader = _MemoryReader(self._open_tables())
            # Held until the block ends.
            self._lock.acquire()
        return reader

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


class _MemoryTransaction(_MemoryReader, Transaction):
    def __init__(self, tables: _Tables) -> None:
        super().__init__(tables)
        self._written: WritePlan | None = None
        self._indexed: list[tuple[WritePlan, Sequence[tuple[bytes, bytes]], int]] = []
        # Of the position, in the order of the calls.
        self._changes: dict[str, int] = {}
        self._has_setup = tables.has_setup
        self._index_fingerprint = tables.index_fingerprint

    def position(self) -> Position:
        return replace(self._tables.position, **self._changes) if self._changes else self._tables.position

    def index_fingerprint(self) -> str | None:
        return self._index_fingerprint

    def application_tables(self) -> ApplicationTables:
        return ApplicationTables(self._has_setup)

    def write(self, plan: WritePlan) -> None:
        if plan.messages and plan.messages[0][0] != len(self._tables.messages) + 1:
            raise SequencesTaken
        self._written = plan

    def index(self, plan: WritePlan, level1: Sequence[tuple[bytes, bytes]], indexed: int) -> None:
        self._indexed.append((plan, level1, indexed))

    def set_index_fingerprint(self, text: str) -> None:
        self._index_fingerprint = text

    def set_applied(self, sequence: int) -> None:
        self._changes["applied"] = sequence

    def request_rebuild(self) -> None:
        self._changes["rebuild"] = REBUILD_REQUESTED

    def begin_rebuild(self, version: int, *, has_setup: bool) -> None:
        self._has_setup = has_setup
        self._changes |= {"applied": 0, "apply_version": version, "rebuild": self.position().count}

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        yield

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /) -> NoReturn:
        raise StorageError(
            "a log in memory has no SQL: open one in SQLite (':memory:' or a file) to execute statements"
        )

    def commit(self) -> None:
        self._tables.position = self.position()
        self._tables.has_setup = self._has_setup
        self._tables.index_fingerprint = self._index_fingerprint
        if self._written is not None:
            self._tables.write(self._written)
        for rows in self._indexed:
            self._tables.index(*rows)


class MemoryStorage(Storage):
    """A log in memory, without SQL. It keeps its messages while it is closed, and can be opened again.

    Examples:
        >>> storage = gossiplog.MemoryStorage()
        >>> with gossiplog.open(storage, "org.example.notes", signer=alice) as notes:
        ...     message = notes.append("one")
        >>> with gossiplog.open(storage, "org.example.notes") as again:
        ...     print(len(again))
        1
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tables: _Tables | None = None
        self._opened = False
        self._writing = False

    @property
    def place(self) -> str:
        return "memory"

    def open(self, topic: str | None, create: bool, progress: Progress | None = None) -> str:
        with self._lock:
            if self._opened:
                raise StorageError("this MemoryStorage is open already, as another log")
            if self._tables is None:
                if topic is None or not create:
                    raise NotALog("this MemoryStorage has no log yet: give a topic to make one")
                self._tables = _Tables(topic)
            check_same_topic("this MemoryStorage", self._tables.topic, topic)
            self._opened = True
            return self._tables.topic

    def reader(self, *, single: bool = False) -> AbstractContextManager[Reader]:
        return _Reading(self._lock, self._open_tables)

    @contextmanager
    def lock_if_free(self) -> Iterator[bool]:
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            yield True
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._lock:
            transaction = _MemoryTransaction(self._open_tables())
            if self._writing:
                raise StorageError("this thread is in a transaction of the log: `apply` must not append or insert")
            self._writing = True
            try:
                yield transaction
                transaction.commit()
            finally:
                self._writing = False

    def size(self) -> int:
        with self._lock:
            return self._open_tables().bytes

    def backup(self, target: str, progress: Progress | None = None) -> NoReturn:
        raise StorageError("a log in memory has no database to copy: pull it into a log in a file")

    def check(self) -> list[str]:
        with self._lock:
            self._open_tables()
            return []

    def close(self) -> None:
        # First, for those who wait for the lock; a transaction that has begun ends as it would.
        self._opened = False
        with closing(self._lock, "this MemoryStorage"):
            pass

    def _open_tables(self) -> _Tables:
        if self._tables is None or not self._opened:
            raise LogClosed("the log is closed: open it again")
        return self._tables


def _within(rows: Mapping[bytes, Value], start: bytes, end: bytes | None) -> Iterator[tuple[bytes, Value]]:
    """Yield the rows of a range of keys."""
    return ((key, value) for key, value in rows.items() if start <= key and (end is None or key < end))
