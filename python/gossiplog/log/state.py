"""The state that a process holds of a log: its position and its tree, kept up with what other processes commit."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

from gossiplog import core
from gossiplog.core import SignedMessage, Tree
from gossiplog.errors import CorruptLog, DecodeError, InvalidMessage, TreeError
from gossiplog.storage import Storage
from gossiplog.storage.base import Position, Reader

# Messages of other processes that are looked at one by one; for more, all rows of the tree are read again.
_FEW_ARRIVALS = 512
# Values that a snapshot reads at once: few at first, because each may be large.
_FIRST_VALUES = 16
_MOST_VALUES = 512
_SMALL_READ = 2**20
# After so many calls in a row leaves are read ahead: fewer happen by chance where differences are scattered.
_READ_AHEAD = 3


@dataclass(frozen=True, slots=True)
class State:
    """One state of a log.

    Attributes:
        count: of messages.
        tree: over these messages, without leaves in memory.
    """

    count: int
    tree: Tree


class States:
    """The newest state that this process knows of.

    Of the locks, the storage's is always taken first.
    """

    def __init__(self, storage: Storage, topic: str) -> None:
        self._storage = storage
        self._topic = topic
        self._lock = threading.Lock()
        with storage.reader() as reader:
            position = reader.position()
            self._newest = State(position.count, stored_tree(reader, position.count))

    def current(self) -> State:
        """The newest committed state, by whichever process."""
        with self._storage.reader() as reader:
            return self.of(reader, reader.position())

    def of(self, reader: Reader, position: Position) -> State:
        """The state at a reader's position, or a later one that another thread of this process has seen since."""
        newest = self._newest
        if position.count <= newest.count:
            return newest
        with damage_is_corrupt():
            tree = newest.tree.refresh(reader.level1(self._keys(reader, newest.count)), position.count)
        state = State(position.count, tree)
        self.publish(state)
        return state

    def _keys(self, reader: Reader, count: int) -> list[bytes] | None:
        """The keys of the messages that arrived after so many; None where they are too many to look at each."""
        arrivals = reader.arrivals(count, _FEW_ARRIVALS)
        if arrivals and arrivals[-1][0] < reader.position().count:
            return None
        return [read_stored(value, self._topic).key for _, value in arrivals]

    def publish(self, state: State) -> None:
        """Takes over a state that was committed, unless a newer one is known."""
        with self._lock:
            if state.count > self._newest.count:
                self._newest = state


class Snapshot:
    """One state of a log, to be read while writes go on: what a sync server serves and a sync client compares with.

    It reads ahead, as files do, and is for one thread at a time.

    Args:
        storage: of the log.
        state: of the log.
    """

    def __init__(self, storage: Storage, state: State) -> None:
        self.storage = storage
        self.state = state
        # The leaves read last, where their range ends, where the range of the last call ended, and how many calls each
        # went on where the one before it had ended.
        self._leaves: Sequence[tuple[bytes, bytes]] = ()
        self._end: bytes | None = b""
        self._last_end: bytes | None = b""
        self._run = 0

    @property
    def tree(self) -> Tree:
        """The tree of the state."""
        return self.state.tree

    def leaves(self, start: bytes, end: bytes | None) -> Sequence[tuple[bytes, bytes]]:
        """The leaves (key, hash) with start <= key < end, ascending; an end of None is the end of the tree.

        For whoever goes on again and again where the last call ended, what the next calls will ask for is read as well:
        the leaves up to the end of the node of level 2.
        """
        self._run = self._run + 1 if start == self._last_end else 0
        self._last_end = end
        if not (self._leaves and self._leaves[0][0] <= start and _reaches(self._end, end)):
            ahead = self.tree.next_key(2, start) if self._run >= _READ_AHEAD and self.tree.root.level > 2 else end
            self._end = ahead if _reaches(ahead, end) else end
            with self.storage.reader(single=True) as reader:
                self._leaves = reader.leaves(start, self._end, self.state.count)
        first = bisect_left(self._leaves, start, key=itemgetter(0))
        stop = len(self._leaves) if end is None else bisect_left(self._leaves, end, first, key=itemgetter(0))
        return self._leaves[first:stop]

    def values(self, keys: Sequence[bytes]) -> Iterator[bytes | None]:
        """The stored values, in the order of the keys; None for a key that is not in the state.

        They are read as they are taken.
        """
        rest = iter(keys)
        size = _FIRST_VALUES
        while chunk := list(islice(rest, size)):
            with self.storage.reader(single=True) as reader:
                found = reader.values(chunk, self.state.count)
            yield from map(found.get, chunk)
            if sum(map(len, found.values())) < _SMALL_READ:
                size = min(2 * size, _MOST_VALUES)


def _reaches(end: bytes | None, other: bytes | None) -> bool:
    """Whether a range that ends at `end` goes as far as one that ends at `other`."""
    return end is None or (other is not None and other <= end)


def stored_tree(reader: Reader, count: int) -> Tree:
    """The tree as its rows have it.

    Raises:
        CorruptLog: rows that no tree has.
    """
    with damage_is_corrupt():
        return Tree.open(reader.level1(), count)


def read_stored(value: bytes, topic: str) -> SignedMessage:
    """A message from its stored value.

    Raises:
        CorruptLog: a value that no message has.
    """
    try:
        return core.read_message(value, topic)
    except InvalidMessage as error:
        raise CorruptLog([f"a stored message: {error}"]) from error


@contextmanager
def damage_is_corrupt() -> Iterator[None]:
    """A block in which the core is given nothing but what is stored: what it finds wrong raises CorruptLog."""
    try:
        yield
    except TreeError as error:
        raise CorruptLog([f"the tree: {error}"]) from error
    except (DecodeError, InvalidMessage) as error:
        raise CorruptLog([f"a stored record: {error}"]) from error
