"""Which messages a view has: the first to arrive, or what messages had seen, their ancestors, marked by sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Generic

from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog
from gossiplog.log.paging import Bounds, Source, all_messages, earlier_messages
from gossiplog.log.payloads import P
from gossiplog.log.reading import ids_of_sequences, raise_damage, read, rows_of_sequences
from gossiplog.log.replica import Replica
from gossiplog.log.walks import ReadAhead, walk_back
from gossiplog.message import key_of
from gossiplog.reprs import counted
from gossiplog.storage.base import Reader

_PAGE = 256
# Leaves that are looked through in one read.
_LEAVES = 4096
# Link records that are read together, at most.
_WINDOW = 4096
# Of records that were read, one in so many is enough to read more of them together: one takes two microseconds, and a
# statement of its own ten times as much.
_USED_ONE_IN = 8
# Candidates that are looked up together.
_TOGETHER = 512
# Messages whose heads are found by a search for each pair.
_MOST_SEARCHED = 16


class Extent(ABC, Generic[P]):
    """Which messages of a log a view has.

    Args:
        source: the log.
    """

    def __init__(self, source: Source[P]) -> None:
        self._source = source

    @property
    @abstractmethod
    def last(self) -> int:
        """The largest sequence that a message of it can have."""

    @abstractmethod
    def __contains__(self, sequence: int) -> bool:
        """Return whether the message with a sequence is in it."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of messages in it."""

    @property
    @abstractmethod
    def heads(self) -> Sequence[int]:
        """The sequences, ascending, of the messages that no other of it names as a parent."""

    @property
    @abstractmethod
    def unread(self) -> int:
        """How many link records, at most, are read before all of it is known."""

    @property
    @abstractmethod
    def is_in(self) -> Callable[[int], object] | None:
        """Says of a sequence up to the last one whether it is in it, without a read; None where all are."""

    @abstractmethod
    def messages(self, between: Bounds, reverse: bool) -> Iterator[SignedMessage[P]]:
        """Yield the messages of a range, by id."""

    @abstractmethod
    def number(self, between: Bounds) -> int:
        """Return how many messages have ids in a range."""

    @cached_property
    def head_keys(self) -> Sequence[bytes]:
        """The keys, ascending, of the heads."""
        sequences = self.heads

        def ids(reader: Reader) -> tuple[str, ...]:
            return ids_of_sequences(reader, self._source.topic, rows_of_sequences(reader, sequences))

        return [key_of(id) for id in self._source.read(ids)]


class Prefix(Extent[P]):
    """The messages that had arrived first.

    Args:
        source: the log.
        count: how many.
    """

    def __init__(self, source: Source[P], count: int) -> None:
        super().__init__(source)
        self._count = count

    @property
    def last(self) -> int:
        return self._count

    def __contains__(self, sequence: int) -> bool:
        return sequence <= self._count

    @property
    def count(self) -> int:
        return self._count

    @property
    def heads(self) -> Sequence[int]:
        return heads_at(self._source, self._count)

    @property
    def unread(self) -> int:
        return 0

    @property
    def is_in(self) -> None:
        return None

    def messages(self, between: Bounds, reverse: bool) -> Iterator[SignedMessage[P]]:
        if between == (None, None):
            return all_messages(self._source, reverse, self._count)
        return earlier_messages(self._source, between, reverse, self._count)

    def number(self, between: Bounds) -> int:
        return self._source.read(lambda reader: reader.number(*between, self._count))

    def __str__(self) -> str:
        return f"the first {self._count:,} messages"


class Past(Extent[P]):
    """The causal past of some messages: these and all their ancestors. They are in the log for good.

    Args:
        source: the log.
        replica: the same, for its messages by key.
        sequences: of the messages.
    """

    def __init__(self, source: Source[P], replica: Replica, sequences: Collection[int]) -> None:
        super().__init__(source)
        self._replica = replica
        self._given = frozenset(sequences)
        self._sequences = sorted(self._given)
        self._marks: bytearray | None = None
        # Those of them that were found to be ancestors of others.
        self._not_heads: set[int] = set()

    @property
    def last(self) -> int:
        """The largest sequence; 0 if there is none."""
        return self._sequences[-1] if self._sequences else 0

    def __contains__(self, sequence: int) -> bool:
        """Return whether the message with a sequence is in it.

        While nothing has asked for `marks`, this searches from each of the messages.
        """
        if sequence > self.last:
            return False
        if self._marks is not None:
            return bool(self._marks[sequence])
        if sequence in self._given:
            return True

        def search(reader: Reader) -> bool:
            later = (one for one in self._sequences if one > sequence)
            return any(core.is_ancestor(sequence, one, reader.links) for one in later)

        return self._source.read(search)

    @property
    def unread(self) -> int:
        return self.last if self._marks is None else 0

    @property
    def is_in(self) -> Callable[[int], object]:
        return self.marks.__getitem__

    @property
    def marks(self) -> bytearray:
        """For each sequence up to the last one, from 0, 1 where the message is in it."""
        if self._marks is None:
            self._marks = self._mark_all()
        return self._marks

    def _mark_all(self) -> bytearray:
        """Descend over the link records of all ancestors, and of some messages between them; no message is read."""
        marks = bytearray(self.last + 1)
        for sequence in self._sequences:
            marks[sequence] = 1
        at = self.last + 1
        ahead = ReadAhead(_WINDOW, _USED_ONE_IN)
        while (at := marks.rfind(1, 0, at)) > 0:
            window = range(max(at - ahead.next() + 1, 1), at + 1)
            # The first of them is marked.
            ahead.use(read(self._source.storage, partial(self._mark, marks=marks, window=window)) - 1)
            at = window.start
        return marks

    def _mark(self, reader: Reader, marks: bytearray, window: range) -> int:
        """Mark what the marked messages of a range follow; return how many these are."""
        self._source.states.position(reader)
        records = reader.links(window)
        used = 0
        for sequence, record in zip(reversed(window), reversed(records), strict=True):
            if marks[sequence]:
                used += 1
                for followed in _followed(sequence, record):
                    marks[followed] = 1
                    if followed in self._given:
                        self._not_heads.add(followed)
        return used

    @cached_property
    def count(self) -> int:
        """The number of messages in it."""
        return self.marks.count(1)

    @cached_property
    def heads(self) -> Sequence[int]:
        """The sequences, ascending, of those of the messages that are ancestors of none of the others."""
        if len(self._sequences) > _MOST_SEARCHED:
            # Its descent finds those that are no heads.
            if self._marks is None:
                self._marks = self._mark_all()
            return [sequence for sequence in self._sequences if sequence not in self._not_heads]

        def search(reader: Reader) -> Sequence[int]:
            return [
                sequence
                for index, sequence in enumerate(self._sequences)
                if not any(core.is_ancestor(sequence, later, reader.links) for later in self._sequences[index + 1 :])
            ]

        return self._source.read(search)

    def messages(self, between: Bounds, reverse: bool) -> Iterator[SignedMessage[P]]:
        if reverse:
            yield from self._back(*between)
            return
        taken = 0
        for keys in self._keys(between):
            yield from self._source.payloads.all_typed(self._replica.messages(keys))
            taken += len(keys)
        if between == (None, None) and taken != self.count:
            text = f"{counted(self.count, 'message')} were seen, but leaves are there for {taken:,}"
            raise_damage(self._source.storage, CorruptLog([text]))

    def _back(self, after: bytes | None, before: bytes | None) -> Iterator[SignedMessage[P]]:
        for message in walk_back(self._source, self.head_keys):
            if after is not None and message.key <= after:
                return
            if before is None or message.key < before:
                yield message

    def number(self, between: Bounds) -> int:
        return sum(map(len, self._keys(between)))

    def _keys(self, between: Bounds) -> Iterator[list[bytes]]:
        """Yield the keys, ascending and in pages, of the messages of a range."""
        after, before = between
        if not self.last:
            return
        # None is larger than the largest head.
        top = max(self.head_keys) + b"\0"
        end = top if before is None else min(before, top)
        start: bytes | None = b"" if after is None else after + b"\0"
        while start is not None and start < end:
            keys, start = self._scan(start, end)
            if keys:
                yield keys

    def _scan(self, start: bytes, end: bytes) -> tuple[list[bytes], bytes | None]:
        """Return some keys from one on, and where to go on; None at the end."""
        marks = self.marks

        def scan(reader: Reader) -> tuple[list[bytes], bytes | None]:
            keys: list[bytes] = []
            with reader.scan(("seq", "key"), start, end, self.last) as rows:
                for number, (sequence, key) in enumerate(rows, 1):
                    if marks[sequence]:
                        keys.append(key)
                    if len(keys) == _PAGE or number == _LEAVES:
                        return keys, key + b"\0"
            return keys, None

        return self._source.read(scan)

    def __str__(self) -> str:
        return "what messages had seen"


def heads_at(source: Source[Any], count: int) -> Sequence[int]:
    """Return the sequences, ascending, of those of the first messages that no other of them names as a parent.

    It reads the link records of these or of the later ones, whichever are fewer.

    Args:
        source: the log.
        count: how many messages.
    """
    return read(source.storage, lambda reader: [*_heads_at(reader, source, count)])


def _heads_at(reader: Reader, source: Source[Any], count: int) -> Iterator[int]:
    position = source.states.position(reader)
    if count <= position.count - count:
        followed = bytearray(count + 1)
        for sequence in _followed_by(reader, 1, count):
            followed[sequence] = 1
        yield from (sequence for sequence in range(1, count + 1) if not followed[sequence])
        return
    # A head then is a head now, or the first message that names it came later. That names it in its link record, since
    # all descendants of the head came later still.
    heads = source.states.heads(reader, position)
    candidates = {sequence for _, sequence in heads}.union(_followed_by(reader, count + 1, position.count))
    ascending = sorted(sequence for sequence in candidates if sequence <= count)
    late = {*_followed_by(reader, min(position.indexed, count) + 1, count)}
    for start in range(0, len(ascending), _TOGETHER):
        part = ascending[start : start + _TOGETHER]
        parents = {parent for parent, _ in reader.children(part, 1, min(position.indexed, count))}
        yield from (sequence for sequence in part if sequence not in parents and sequence not in late)


def _followed_by(reader: Reader, first: int, last: int) -> Iterator[int]:
    """Yield what the messages of a range of sequences follow."""
    for start in range(first, last + 1, _WINDOW):
        window = range(start, min(start + _WINDOW, last + 1))
        for sequence, record in zip(window, reader.links(window), strict=True):
            yield from _followed(sequence, record)


def _followed(sequence: int, record: bytes) -> Sequence[int]:
    """Return the sequences of messages that cover the ancestors of one, all of which it names as parents."""
    _, link_sets = core.link_record(sequence, record)
    # Where the first was left out, so were all, and the parents are the last.
    return (link_sets[0] or link_sets[-1]) if link_sets else ()
