"""Messages in the order of their ids, read in pages, so that a log may be written to while they are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from gossiplog.checks import check_integer
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog
from gossiplog.log.payloads import P, Payloads
from gossiplog.log.reading import Leaf, raise_damage, read, read_page
from gossiplog.log.results import AuthorTotals
from gossiplog.log.state import Snapshot, States
from gossiplog.message import key_of
from gossiplog.reprs import counted
from gossiplog.storage import Storage
from gossiplog.storage.base import Progress, Reader

_Result = TypeVar("_Result")

_PAGE = 256
_DID = "did:key:"

Bounds: TypeAlias = tuple[bytes | None, bytes | None]
"""The keys between which messages are read, both left out; None is an end of the log."""


@dataclass(frozen=True, slots=True)
class Source(Generic[P]):
    """What messages are read from.

    Attributes:
        storage: of the log.
        topic: that all messages have.
        states: of the log, for its position, which must not go back.
        payloads: by which messages that are handed out read theirs.
    """

    storage: Storage
    topic: str
    states: States
    payloads: Payloads[P]

    def read(self, call: Callable[[Reader], _Result], *, single: bool = False) -> _Result:
        """Return what a call reads from one state of the log that was opened.

        Sequences, and what was read before, say nothing of another log, as a rebase in Postgres puts in its place.

        Args:
            call: takes the reader.
            single: whether each read of the call may see a later state than the one before.

        Raises:
            LogReplaced: another log is in its place.
            LogWentBack: where another may be, its state is before one that this process has seen.
        """
        if not self.storage.may_be_replaced:
            return read(self.storage, call, single=single)

        def read_of_this(reader: Reader) -> _Result:
            self.states.position(reader)
            return call(reader)

        return read(self.storage, read_of_this)


def bounds(after: str | None, before: str | None) -> Bounds:
    """Return the keys of two ids.

    Raises:
        DecodeError: text that is no id.
    """
    return None if after is None else key_of(after), None if before is None else key_of(before)


def check_limit(limit: int | None, what: str = "a limit") -> None:
    """Check how many messages are wanted, or something else of them.

    Args:
        limit: None is any number.
        what: as the error is to name it.

    Raises:
        ValueError: a limit below 0.
        TypeError: one that is no integer.
    """
    if limit is None:
        return
    check_integer(what, limit)
    if limit < 0:
        raise ValueError(f"{what} of {limit}: expected 0 or more")


def by_author(author: str | None) -> Callable[[Iterator[SignedMessage[P]]], Iterator[SignedMessage[P]]]:
    """Return a filter that keeps one author's messages, or all where it is None.

    Raises:
        ValueError: no `did:key`.
        TypeError: no text, such as a signer.
    """
    if author is None:
        return lambda messages: messages
    if not isinstance(author, str):
        raise TypeError(f"expected an author as text, as message.author, not {type(author).__name__}")
    if not author.startswith(_DID):
        raise ValueError(f"{author!r} is no author: expected a did:key, as message.author")
    # No generator, whose frame a warning would name for that of who iterates.
    return partial(filter, lambda message: message.author == author)


def all_messages(source: Source[P], reverse: bool, count: int) -> Iterator[SignedMessage[P]]:
    """Yield the first messages to arrive, by id.

    Args:
        source: the log.
        reverse: from the largest id down.
        count: how many.

    Raises:
        CorruptLog: there are others, or one is damaged.
    """
    taken = 0
    last: bytes | None = None
    # An index that is damaged keeps no message from being read.
    while messages := page(source, (None, last) if reverse else (last, None), reverse, _PAGE, count)[0]:
        yield from messages
        taken += len(messages)
        last = messages[-1].key
    if taken != count:
        text = f"the log has {counted(count, 'message')}, but leaves for {taken:,}"
        raise_damage(source.storage, CorruptLog([text]))


def messages_between(
    source: Source[P], between: Bounds, reverse: bool, limit: int | None, snapshot: Snapshot
) -> Iterator[SignedMessage[P]]:
    """Yield the messages of a range, by id, and hold them against the tree.

    Args:
        source: the log.
        between: the range.
        reverse: from the largest id down.
        limit: at most so many.
        snapshot: of the state that is read.

    Raises:
        CorruptLog: one is missing, or damaged.
    """
    after, before = between
    # The key after which the page before has ended.
    met: bytes | None = None
    while limit is None or limit > 0:
        size = _PAGE if limit is None else min(limit, _PAGE)
        messages, leaves = page(source, (after, before), reverse, size, snapshot.state.count)
        if not messages:
            snapshot.check_range(after, before, (), (met,))
            return
        # What comes after the page's last message is the next page's.
        last, _ = leaves.pop()
        if reverse:
            snapshot.check_range(last, before, leaves[::-1], (last, met))
            before = met = last
        else:
            snapshot.check_range(after, last, leaves, (met, last))
            after = met = last
        yield from messages
        limit = None if limit is None else limit - len(messages)


def earlier_messages(source: Source[P], between: Bounds, reverse: bool, count: int) -> Iterator[SignedMessage[P]]:
    """Yield the messages of a range that are among the first to arrive, by id.

    They cannot be held against the tree, which is that of later states.
    """
    after, before = between
    while messages := page(source, (after, before), reverse, _PAGE, count)[0]:
        yield from messages
        if reverse:
            before = messages[-1].key
        else:
            after = messages[-1].key


def total_by_author(source: Source, count: int, progress: Progress | None = None) -> dict[str, AuthorTotals]:
    """Return how much each author wrote, of a log with so many messages; each is read."""
    totals: dict[str, AuthorTotals] = {}
    nothing = AuthorTotals(0, 0)
    for done, message in enumerate(all_messages(source, False, count), 1):
        before = totals.get(message.author, nothing)
        totals[message.author] = AuthorTotals(before.messages + 1, before.bytes + len(message.value))
        if progress is not None and (done % _PAGE == 0 or done == count):
            progress(done, count)
    return totals


def page(
    source: Source[P], between: Bounds, reverse: bool, limit: int, count: int
) -> tuple[list[SignedMessage[P]], list[Leaf]]:
    """Return messages, as `read_page` does, of a log."""
    messages, leaves = source.read(
        lambda reader: read_page(reader, source.topic, *between, reverse, limit, count), single=True
    )
    return source.payloads.all_typed(messages), leaves
