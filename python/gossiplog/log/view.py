"""A log as it was: what some messages had seen, or what had arrived by some time. It is read, and does not change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Generic, Protocol

from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog, UnknownMessage
from gossiplog.log.blocking import warn_on_event_loop, warning_of_many
from gossiplog.log.paging import (
    Bounds,
    Source,
    all_messages,
    bounds,
    by_author,
    check_limit,
    earlier_messages,
)
from gossiplog.log.past import Past, heads_at
from gossiplog.log.payloads import P
from gossiplog.log.reading import ids_of_sequences, raise_damage, read, rows_of_sequences
from gossiplog.log.replica import Replica
from gossiplog.log.walks import child_sequences, ids_of_children, walk_back, walk_forward
from gossiplog.message import key_asked_for, key_of
from gossiplog.reprs import counted
from gossiplog.storage.base import Reader

_PAGE = 256
# Leaves that are looked through in one read.
_LEAVES = 4096
# Link records that are read on an event loop without a warning: some ten milliseconds.
_FEW_RECORDS = 4096


class _Whole(Protocol):
    """What a view asks of its log."""

    def get(self, id: str) -> SignedMessage: ...
    def __contains__(self, id: object) -> bool: ...
    def is_ancestor(self, ancestor: str, descendant: str) -> bool: ...
    def ancestors(self, id: str) -> Iterator[SignedMessage]: ...


class LogView(Generic[P]):
    """A log as it was, from `Log.at`: messages with all of their ancestors. What arrives later is not in it.

    It may be used as long as the log is open, from any thread. `get`, `in`, `ancestors`, `children` and
    `messages(reverse=True)` read what they return. What has to know all messages, which is `len`, `count`,
    `descendants` and iteration from the smallest id up, first reads the link records of all ancestors where the view is
    of messages: two microseconds each, once, and a byte of memory for each message that had arrived before the last of
    them. A view of a cursor knows them without.

    Examples:
        >>> first, second = log.append_many(["one", "two"])
        >>> [message.payload for message in log.at(first.id)]
        ['one']
        >>> [message.payload for message in log.at(2)]
        ['one', 'two']
    """

    def __init__(self, log: _Whole, replica: Replica, source: Source[P], extent: Past | int) -> None:
        self._log = log
        self._replica = replica
        self._source = source
        self._extent = extent

    @property
    def _last(self) -> int:
        """The largest sequence that a message of the view can have."""
        return self._extent if isinstance(self._extent, int) else self._extent.last

    def get(self, id: str) -> SignedMessage[P]:
        """Return the message with an id.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: it is not in the view.
        """
        self._check(id)
        return self._log.get(id)

    def content_id(self, id: str) -> str:
        """Return the id that all encodings of a message have in common: see `Log.content_id`.

        Args:
            id: of any encoding of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the view.
        """
        return self.get(id).content_id

    def __contains__(self, id: object) -> bool:
        """Return whether a message is in the view, given as its id or itself.

        Args:
            id: of a message, or a SignedMessage.
        """
        key = key_asked_for(id)
        if key is None or id not in self._log:
            return False
        return self._is_in(read(self._source.storage, lambda reader: self._sequence(reader, key)))

    def _is_in(self, sequence: int) -> bool:
        return sequence <= self._extent if isinstance(self._extent, int) else sequence in self._extent

    def _sequence(self, reader: Reader, key: bytes) -> int:
        """Return the sequence of a message that is in the log."""
        found = self._source.states.sequences.of(reader, [key])
        if key not in found:
            raise CorruptLog([f"message {core.encode_id(key)} is not found by its key any more"])
        return found[key]

    def _check(self, id: str) -> bytes:
        """Return the key of a message of the view."""
        key = key_of(id)
        if id not in self:
            raise UnknownMessage(id)
        return key

    def __len__(self) -> int:
        """Return how many messages there are."""
        self._warn_of_marks("len() of a LogView", "await view.count()")
        return self._count

    @property
    def _count(self) -> int:
        return self._extent if isinstance(self._extent, int) else self._extent.count

    def __bool__(self) -> bool:
        """Return True, also for an empty view."""
        return True

    def __iter__(self) -> Iterator[SignedMessage[P]]:
        """All messages in the order of their ids."""
        return self.messages()

    def messages(
        self,
        *,
        after: str | None = None,
        before: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        author: str | None = None,
    ) -> Iterator[SignedMessage[P]]:
        """Return the messages in the order of their ids: see `Log.messages`.

        Where the view is of messages, their leaves and those of other messages between them are gone through, and from
        the largest id down, no others at all: the walk begins at the heads, whatever `before` is.

        Args:
            after: only messages with larger ids.
            before: only messages with smaller ids.
            reverse: from the largest id down.
            limit: at most so many.
            author: only messages that are signed by this `did:key`.

        Raises:
            DecodeError: text that is no id.
            ValueError: a limit below 0, or an author that is no `did:key`.
        """
        check_limit(limit)
        by = by_author(author)
        between = bounds(after, before)
        if not reverse:
            self._warn_of_marks("LogView.messages", "async for message in view.messages(...)")
        found = self._arrived(between, reverse) if isinstance(self._extent, int) else self._seen(between, reverse)
        return islice(by(self._many(found, "messages")), limit)

    def _many(self, messages: Iterator[SignedMessage[P]], name: str) -> Iterator[SignedMessage[P]]:
        return warning_of_many(messages, f"LogView.{name}") if self._source.storage.argument else messages

    def _warn_of_marks(self, call: str, instead: str) -> None:
        """Warn where the link records of many messages are about to be read on an event loop."""
        extent = self._extent
        waits = isinstance(extent, Past) and not extent.is_marked and extent.last > _FEW_RECORDS
        if waits and self._source.storage.argument:
            warn_on_event_loop(call, f"`{instead}` of `view = await log.at(...)`", stacklevel=4)

    def _arrived(self, between: Bounds, reverse: bool) -> Iterator[SignedMessage[P]]:
        if between == (None, None):
            return all_messages(self._source, reverse, self._last)
        return earlier_messages(self._source, between, reverse, self._last)

    def _seen(self, between: Bounds, reverse: bool) -> Iterator[SignedMessage[P]]:
        if reverse:
            yield from self._seen_back(*between)
            return
        taken = 0
        for keys in self._keys(between):
            yield from self._source.payloads.all_typed(self._replica.messages(keys))
            taken += len(keys)
        if between == (None, None) and taken != self._count:
            text = f"{counted(self._count, 'message')} were seen, but leaves are there for {taken:,}"
            raise_damage(self._source.storage, CorruptLog([text]))

    def _seen_back(self, after: bytes | None, before: bytes | None) -> Iterator[SignedMessage[P]]:
        for message in walk_back(self._source, self._head_keys):
            if after is not None and message.key <= after:
                return
            if before is None or message.key < before:
                yield message

    def _keys(self, between: Bounds) -> Iterator[list[bytes]]:
        """Yield the keys, ascending and in pages, of the messages of a range, where the view is of messages."""
        after, before = between
        if not self._last:
            return
        # None is larger than the largest head.
        top = max(self._head_keys) + b"\0"
        end = top if before is None else min(before, top)
        start: bytes | None = b"" if after is None else after + b"\0"
        while start is not None and start < end:
            keys, start = self._scan(start, end)
            if keys:
                yield keys

    def _scan(self, start: bytes, end: bytes) -> tuple[list[bytes], bytes | None]:
        """Return some keys of the view from one on, and where to go on; None at the end."""
        assert isinstance(self._extent, Past)
        marks = self._extent.marks

        def scan(reader: Reader) -> tuple[list[bytes], bytes | None]:
            keys: list[bytes] = []
            with reader.scan(("seq", "key"), start, end, self._last) as rows:
                for number, (sequence, key) in enumerate(rows, 1):
                    if marks[sequence]:
                        keys.append(key)
                    if len(keys) == _PAGE or number == _LEAVES:
                        return keys, key + b"\0"
            return keys, None

        return read(self._source.storage, scan)

    def count(self, *, after: str | None = None, before: str | None = None) -> int:
        """Return how many messages have ids in a range. None of them is read.

        Args:
            after: only messages with larger ids.
            before: only messages with smaller ids.

        Raises:
            DecodeError: text that is no id.
        """
        between = bounds(after, before)
        self._warn_of_marks("LogView.count", "await view.count(...)")
        if between == (None, None):
            return self._count
        if isinstance(self._extent, int):
            last = self._extent
            return read(self._source.storage, lambda reader: reader.number(*between, last))
        return sum(map(len, self._keys(between)))

    @property
    def heads(self) -> tuple[str, ...]:
        """The ids, ascending, of the messages that no other of the view names as a parent.

        Of a view of messages they are these, without those that are ancestors of others. For one of a cursor, the link
        records of the messages before it or of those after it are read, whichever are fewer.
        """
        return tuple(map(core.encode_id, self._head_keys))

    @cached_property
    def _head_keys(self) -> Collection[bytes]:
        extent = self._extent
        sequences = heads_at(self._source, extent) if isinstance(extent, int) else extent.heads

        def ids(reader: Reader) -> tuple[str, ...]:
            return ids_of_sequences(reader, self._source.topic, rows_of_sequences(reader, sequences))

        return [key_of(id) for id in read(self._source.storage, ids)]

    @property
    def clock(self) -> int:
        """1 + the largest clock of a message, 1 in an empty view: that of a message which follows all heads."""
        return 1 + max((core.decode_clock(key)[0] for key in self._head_keys), default=0)

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether one message is a proper ancestor of another.

        Args:
            ancestor: the id of the message that may come before.
            descendant: the id of the other.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: one of them is not in the view.
        """
        self._check(ancestor)
        self._check(descendant)
        return self._log.is_ancestor(ancestor, descendant)

    def ancestors(self, id: str) -> Iterator[SignedMessage[P]]:
        """Return the messages that a message follows, directly or not: see `Log.ancestors`.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the view.
        """
        self._check(id)
        # That of the log warns, where these are many on an event loop.
        return self._log.ancestors(id)

    def descendants(self, id: str) -> Iterator[SignedMessage[P]]:
        """Return the messages of the view that follow a message, directly or not: see `Log.descendants`.

        Args:
            id: of a message.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the view.
        """
        key = self._check(id)
        sequence = read(self._source.storage, lambda reader: self._sequence(reader, key))
        self._warn_of_marks("LogView.descendants", "async for message in view.descendants(...)")
        is_in = None if isinstance(self._extent, int) else self._extent.marks.__getitem__
        return self._many(walk_forward(self._source, key, sequence, self._last, is_in), "descendants")

    def children(self, id: str, *, limit: int | None = None) -> tuple[str, ...]:
        """Return the ids, ascending, of the messages of the view that name this one as a parent.

        Args:
            id: of a message.
            limit: the most ids, since anybody can give a message any number of children; those that arrived first. None
                returns all.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: the message is not in the view.
            ValueError: a limit below 0.
            TypeError: a limit that is no integer.
        """
        check_limit(limit)
        key = self._check(id)
        storage, source = self._source.storage, self._source

        def sequences(reader: Reader) -> Sequence[int]:
            return child_sequences(reader, source, key, self._sequence(reader, key))

        # Not within the reads: where nothing is marked, each child is a search that reads by itself.
        children = [*islice(filter(self._is_in, read(storage, sequences)), limit)]
        return read(storage, lambda reader: ids_of_children(reader, source, id, children))

    def __repr__(self) -> str:
        of = f"the first {self._extent:,} messages" if isinstance(self._extent, int) else "what messages had seen"
        return f"<LogView of {of} in {self._log!r}>"
