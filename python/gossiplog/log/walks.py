"""Walks of the causal graph in the order of ids, which is causal: each reads what it hands out, and little more.

Both keep the messages that are next in a heap of keys. What stands beside them in the log is read ahead, a page at
most, where it was of use before: most messages stand beside their parents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any, TypeAlias

from gossiplog import core
from gossiplog.core import SignedMessage
from gossiplog.errors import CorruptLog
from gossiplog.log.paging import Source
from gossiplog.log.payloads import P
from gossiplog.log.reading import (
    check_arrivals,
    ids_of_sequences,
    read,
    read_messages,
    read_page,
    rows_of_sequences,
)
from gossiplog.log.state import unindexed
from gossiplog.message import key_of
from gossiplog.storage.base import MAX_INTEGER, PAGE_BYTES, Reader

_PAGE = 256
# Messages that are known to be next, from which on these are read together, and not what stands beside the first.
_WIDE = 8
_TOGETHER = 64
_FEW_CHILDREN = 4
_INVERTED = bytes(range(255, -1, -1))
# Of messages that were read and are not next, one in so many is enough to read ahead.
_USED_ONE_IN = 4

_Numbered: TypeAlias = tuple[bytes, int]
"""The key and the sequence of a message."""


class ReadAhead:
    """How much is read ahead: twice as much each time while it is used, half as much where it is not.

    Args:
        most: to be read together.
        used_one_in: of what was read, one in so many that is used is enough to read more together.
    """

    def __init__(self, most: int, used_one_in: int) -> None:
        self._most = most
        self._used_one_in = used_one_in
        self._size = 1
        self._read = 0
        self._used = 0

    def use(self, number: int = 1) -> None:
        """Count what was read and is used, beside the first."""
        self._used += number

    def next(self) -> int:
        """Return how many to read now."""
        if self._read:
            is_useful = self._used * self._used_one_in >= self._read
            self._size = min(self._size * 2, self._most) if is_useful else max(self._size // 2, 1)
        # The first of them is asked for.
        self._read, self._used = self._size, 1
        return self._size


def walk_back(source: Source[P], keys: Iterable[bytes]) -> Iterator[SignedMessage[P]]:
    """Yield messages and all their ancestors, each once, descending by id.

    It holds the keys of the parents that are yet to come, and a page of messages.

    Args:
        source: the log.
        keys: of messages in it.

    Raises:
        CorruptLog: one of them is not there, or damaged.
    """
    pending = {*keys}
    # Inverted, since the heap has the smallest first.
    heap = [key.translate(_INVERTED) for key in pending]
    heapify(heap)
    ahead: dict[bytes, SignedMessage] = {}
    read_ahead = ReadAhead(_PAGE, _USED_ONE_IN)
    together = _TOGETHER
    while heap:
        key = heappop(heap).translate(_INVERTED)
        if key in ahead:
            read_ahead.use()
        else:
            others = [other.translate(_INVERTED) for other in nsmallest(together, heap)] if len(heap) >= _WIDE else []
            wanted = [key, *(other for other in others if other not in ahead)]
            size = 0 if others else read_ahead.next()
            found = read(source.storage, partial(_down, source=source, keys=wanted, size=size))
            if others:
                # Of long ones fewer are a page.
                together = min(2 * together, _TOGETHER) if len(found) >= len(wanted) else max(together // 2, 1)
            ahead = {known: message for known, message in ahead.items() if known in pending}
            if sum(len(message.value) for message in ahead.values()) > PAGE_BYTES:
                ahead = {}
            ahead |= found
        message = ahead.pop(key)
        pending.remove(key)
        yield source.payloads.typed(message)
        for parent in map(key_of, message.parents):
            if parent not in pending:
                pending.add(parent)
                heappush(heap, parent.translate(_INVERTED))


def _down(reader: Reader, source: Source[Any], keys: Sequence[bytes], size: int) -> dict[bytes, SignedMessage]:
    """Return messages: those of some keys, the first at least, and up to `size` from the first key down.

    Where the messages of the keys are more than a page, it is the first alone.
    """
    source.states.position(reader)
    first = keys[0]
    if size > 1:
        messages, _ = read_page(reader, source.topic, None, first + b"\0", True, size, MAX_INTEGER)
        found = {message.key: message for message in messages}
    else:
        found = read_messages(reader, source.topic, keys, MAX_INTEGER, PAGE_BYTES)
        if first not in found:
            # A page of them begins at the other end, with those that come last.
            found = read_messages(reader, source.topic, [first], MAX_INTEGER)
    if first not in found:
        raise CorruptLog([f"message {core.encode_id(first)} is named as a parent, and is not stored"])
    return found


def walk_forward(
    source: Source[P], key: bytes, sequence: int, last: int, is_in: Callable[[int], object] | None = None
) -> Iterator[SignedMessage[P]]:
    """Yield all descendants of a message, each once, ascending by id.

    It holds the keys of the children that are yet to come, and a page of messages.

    Args:
        source: the log.
        key: of the message.
        sequence: of the message.
        last: the largest sequence of a descendant.
        is_in: whether a message with a sequence is one of those to walk over, which are closed under ancestors; None
            for all.

    Raises:
        CorruptLog: one of them is not there, or damaged.
    """
    children = _Children(source, last, is_in)
    pending: set[bytes] = set()
    heap: list[_Numbered] = []
    at: _Numbered = (key, sequence)
    while True:
        for child in children.of(at, heap):
            if child[0] not in pending:
                pending.add(child[0])
                heappush(heap, child)
        if not heap:
            return
        at = heappop(heap)
        pending.remove(at[0])
        yield source.payloads.typed(children.message(at[0], heap))


class _Children:
    """The children of messages, which are asked for ascending by key, and the messages themselves.

    The index covers the messages up to where it went as the walk began: it covers more later, which is not asked for.
    """

    def __init__(self, source: Source[Any], last: int, is_in: Callable[[int], object] | None) -> None:
        self._source = source
        self._is_in = is_in
        self._known: dict[int, list[_Numbered]] = {}
        self._ahead = ReadAhead(_PAGE, _USED_ONE_IN)
        # Those read already: some that the walk is yet to come to, as far as they have a page's bytes.
        self._messages: dict[bytes, SignedMessage] = {}
        self._bytes = 0
        self._indexed, self._late = read(source.storage, lambda reader: self._read_late(reader, last))

    def _read_late(self, reader: Reader, last: int) -> tuple[int, dict[bytes, list[_Numbered]]]:
        """Return the last sequence, up to `last`, that the index covers, and the later children by their parents."""
        position = self._source.states.position(reader)
        found: dict[bytes, list[_Numbered]] = {}
        for sequence, message in enumerate(unindexed(reader, position, self._source.topic), position.indexed + 1):
            if sequence > last:
                break
            for parent in {*message.parents}:
                found.setdefault(key_of(parent), []).append((message.key, sequence))
        return min(position.indexed, last), found

    def of(self, parent: _Numbered, following: Sequence[_Numbered]) -> Iterable[_Numbered]:
        """Return the children of a message.

        Args:
            parent: the message.
            following: a heap of those that will be asked for.
        """
        key, sequence = parent
        if sequence in self._known:
            self._ahead.use()
        else:
            if len(following) >= _WIDE:
                parents = sorted({sequence, *(other for _, other in nsmallest(_TOGETHER, following))})
            else:
                parents = [*range(sequence, max(sequence, min(sequence + self._ahead.next() - 1, self._indexed)) + 1)]
            read(self._source.storage, lambda reader: self._read_children(reader, parents))
        late = [child for child in self._late.get(key, ()) if self._is_in is None or self._is_in(child[1])]
        return [*self._known.pop(sequence), *late]

    def _read_children(self, reader: Reader, parents: Sequence[int]) -> None:
        self._source.states.position(reader)
        pairs = reader.children(parents, 1, self._indexed)
        if self._is_in is not None:
            pairs = [pair for pair in pairs if self._is_in(pair[1])]
        self._messages = {}
        self._bytes = 0
        keys: dict[int, bytes] = {}
        for sequence, message in _at_sequences(reader, self._source.topic, sorted({child for _, child in pairs})):
            keys[sequence] = message.key
            if self._bytes < PAGE_BYTES:
                self._messages[message.key] = message
                self._bytes += len(message.value)
        known: dict[int, list[_Numbered]] = {parent: [] for parent in parents}
        for parent, child in pairs:
            known[parent].append((keys[child], child))
        self._known = known

    def message(self, key: bytes, following: Sequence[_Numbered]) -> SignedMessage:
        """Return a message that was among the children.

        Args:
            key: of the message.
            following: a heap of those that will be asked for.
        """
        found = self._messages.pop(key, None)
        if found is not None:
            return found
        keys = [key, *(other for other, _ in nsmallest(_TOGETHER, following) if other not in self._messages)]

        def messages(reader: Reader) -> dict[bytes, SignedMessage]:
            self._source.states.position(reader)
            found = read_messages(reader, self._source.topic, keys, MAX_INTEGER, PAGE_BYTES)
            if key not in found:
                raise CorruptLog([f"message {core.encode_id(key)} is stored as a child, and is not found by its key"])
            return found

        # In place of the others, which were read some time ago.
        self._messages = read(self._source.storage, messages)
        return self._messages.pop(key)


def child_sequences(reader: Reader, source: Source[Any], key: bytes, sequence: int) -> Sequence[int]:
    """Return the sequences, ascending, of the messages that name one as a parent.

    Args:
        reader: of the log.
        source: the log.
        key: of the message.
        sequence: of the message.

    Raises:
        CorruptLog: there are none, and it is no head.
    """
    position = source.states.position(reader)
    found = [child for _, child in reader.children([sequence], 1, position.indexed)]
    late = enumerate(unindexed(reader, position, source.topic), position.indexed + 1)
    id = core.encode_id(key)
    found += [child for child, message in late if id in message.parents]
    if not found and all(key != head for head, _ in source.states.heads(reader, position)):
        raise CorruptLog([f"message {id} has no children, and is no head"])
    return found


def ids_of_children(reader: Reader, source: Source[Any], id: str, sequences: Sequence[int]) -> tuple[str, ...]:
    """Return the ids, ascending, of children of a message.

    Args:
        reader: of the log.
        source: the log.
        id: of the message.
        sequences: of the children.

    Raises:
        CorruptLog: one is not there, damaged, or names other parents.
    """
    found: set[str] = set()
    # Few at a time: each may have megabytes.
    for start in range(0, len(sequences), _FEW_CHILDREN):
        rows = rows_of_sequences(reader, sequences[start : start + _FEW_CHILDREN])
        found.update(ids_of_sequences(reader, source.topic, rows))
        named = core.read_batch([value for _, value in rows], source.topic)
        if any(isinstance(message, SignedMessage) and id not in message.parents for message in named):
            raise CorruptLog([f"a message is stored as a child of {id} and does not name it as a parent"])
    return tuple(sorted(found))


def _at_sequences(reader: Reader, topic: str, sequences: Sequence[int]) -> Iterator[tuple[int, SignedMessage]]:
    """Yield messages with their sequences, which ascend; those behind each other are read together.

    Raises:
        CorruptLog: one is not there, or damaged.
    """
    start = 0
    while start < len(sequences):
        first = sequences[start]
        stop = start + 1
        while stop < len(sequences) and stop - start < _TOGETHER and sequences[stop] == first + stop - start:
            stop += 1
        rows = reader.arrivals(first - 1, stop - start)
        if not rows or [sequence for sequence, _ in rows] != [*sequences[start : start + len(rows)]]:
            raise CorruptLog([f"there is no message with the sequence {first}, which is stored as a child"])
        batch = core.read_batch([value for _, value in rows], topic)
        _, error = check_arrivals(reader, rows, batch)
        if error is not None:
            raise error
        for (sequence, _), message in zip(rows, batch, strict=True):
            assert isinstance(message, SignedMessage)
            yield sequence, message
        start += len(rows)
