"""A log as it was: what some messages had seen, or what had arrived by some time. It is read, and does not change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic, Protocol

from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog, UnknownMessage
from gossiplog.log.blocking import warn_on_event_loop, warning_of_many
from gossiplog.log.paging import Source, bounds, by_author, check_limit
from gossiplog.log.past import Extent
from gossiplog.log.payloads import P
from gossiplog.log.walks import child_sequences, ids_of_children, walk_forward
from gossiplog.message import key_asked_for, key_of
from gossiplog.storage.base import Reader

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

    def __init__(self, log: _Whole, source: Source[P], extent: Extent[P]) -> None:
        self._log = log
        self._source = source
        self._extent = extent

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
        return self._source.read(lambda reader: self._sequence(reader, key)) in self._extent

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
        return self._extent.count

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
        found = self._extent.messages(between, reverse)
        return islice(by(self._many(found, "messages")), limit)

    def _many(self, messages: Iterator[SignedMessage[P]], name: str) -> Iterator[SignedMessage[P]]:
        return warning_of_many(messages, f"LogView.{name}") if self._source.storage.argument else messages

    def _warn_of_marks(self, call: str, instead: str) -> None:
        """Warn where the link records of many messages are about to be read on an event loop."""
        if self._extent.unread > _FEW_RECORDS and self._source.storage.argument:
            warn_on_event_loop(call, f"`{instead}` of `view = await log.at(...)`", stacklevel=4)

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
            return self._extent.count
        return self._extent.number(between)

    @property
    def heads(self) -> tuple[str, ...]:
        """The ids, ascending, of the messages that no other of the view names as a parent.

        Of a view of messages they are these, without those that are ancestors of others. For one of a cursor, the link
        records of the messages before it or of those after it are read, whichever are fewer.
        """
        return tuple(map(core.encode_id, self._extent.head_keys))

    @property
    def clock(self) -> int:
        """1 + the largest clock of a message, 1 in an empty view: that of a message which follows all heads."""
        return 1 + max((core.decode_clock(key)[0] for key in self._extent.head_keys), default=0)

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
        sequence = self._source.read(lambda reader: self._sequence(reader, key))
        self._warn_of_marks("LogView.descendants", "async for message in view.descendants(...)")
        found = walk_forward(self._source, key, sequence, self._extent.last, self._extent.is_in)
        return self._many(found, "descendants")

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
        source = self._source

        def sequences(reader: Reader) -> Sequence[int]:
            return child_sequences(reader, source, key, self._sequence(reader, key))

        # Not within the reads: where nothing is marked, each child is a search that reads by itself.
        children = [*islice(filter(self._extent.__contains__, source.read(sequences)), limit)]
        return source.read(lambda reader: ids_of_children(reader, source, id, children))

    def __repr__(self) -> str:
        return f"<LogView of {self._extent} in {self._log!r}>"
