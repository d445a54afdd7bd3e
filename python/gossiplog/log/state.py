"""The state that a process holds of a log, kept up with what it and other processes commit.

The messages themselves and their leaves are written with every commit. The index over them, which is the level 1 of the
tree, the children and the heads, is written for many messages together: it covers the first `Position.indexed`
messages, and a reader that needs a later state replays the few that arrived since. So a durable append writes two
pages.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import TracebackType

from gossiplog import core
from gossiplog.core import SignedMessage, Tree
from gossiplog.errors import CorruptLog, DecodeError, InvalidMessage, TreeError
from gossiplog.log import encodings
from gossiplog.log.heads import Heads, split
from gossiplog.reprs import counted
from gossiplog.storage import Storage
from gossiplog.storage.base import Position, Reader, Transaction

INDEX_LAG = 256
"""Messages that the index may be behind: replaying them takes about a millisecond."""
MOST_SCATTERED = 32
"""Nodes of the tree, without the last ones, that the index may be behind in after messages that came together. Each is
read, hashed and written by itself, and 256 of them hold the lock for a tenth of a second on a busy machine. Messages
that follow the heads stand in the last nodes."""

# Messages of other processes that are always replayed. For more, the index is read again where it has fewer rows than
# _ROWS_PER_ARRIVAL for each: replaying a message that stands alone on its page of the tree takes as long.
_FEW_ARRIVALS = 512
_ROWS_PER_ARRIVAL = 16
# No message's key is behind it.
_LAST_KEY = b"\xff" * core.KEY_LENGTH
# Messages below a node of level 1, on average.
_PAGE_LEAVES = 32
_PAGE = 4096
# After so many calls in a row leaves are read ahead: fewer happen by chance where differences are scattered.
_READ_AHEAD = 3


@dataclass(frozen=True, slots=True)
class State:
    """One state of a log.

    Attributes:
        count: of messages.
        tree: over these messages, without leaves in memory.
        heads: of these messages.
    """

    count: int
    tree: Tree
    heads: Heads


class States:
    """The newest state that this process knows of, and the newest heads, which may be those of a later commit.

    Of the locks, the storage's is always taken first.
    """

    def __init__(self, storage: Storage, topic: str) -> None:
        self._storage = storage
        self._topic = topic
        self._lock = threading.Lock()
        with storage.reader() as reader, raising_corrupt_log:
            # Later messages are not looked at before somebody asks: a log whose last ones are damaged opens.
            self._newest = stored_state(reader, reader.position())
            self._alternative = reader.position().alternative
        self._tip = (self._newest.count, self._newest.heads)

    @property
    def alternative(self) -> int:
        """The sequence of the last alternative encoding that is known of, 0 where there is none."""
        return self._alternative

    @property
    def newest(self) -> State:
        """The newest state that is known, without a look at what was committed since."""
        return self._newest

    def current(self) -> State:
        """Return the newest state that any process committed."""
        with self._storage.reader() as reader:
            return self.of(reader, reader.position())

    def of(self, reader: Reader, position: Position) -> State:
        """Return the state at a reader's position, or a later one that another thread has seen since."""
        newest = self._newest
        if position.count <= newest.count:
            return newest
        with raising_corrupt_log:
            rows = newest.count // _PAGE_LEAVES + len(newest.heads)
            few = max(_FEW_ARRIVALS, rows // _ROWS_PER_ARRIVAL)
            if position.count - newest.count > few and position.indexed > newest.count:
                newest = stored_state(reader, position)
            state = replayed(reader, newest, position.count, self._topic)
        self.publish_alternative(position.alternative)
        self.publish(state)
        return state

    def heads(self, reader: Reader, position: Position) -> Heads:
        """Return the heads at a reader's position, or later ones, as with `of`."""
        count, heads = self._tip
        return heads if count == position.count else self.of(reader, position).heads

    def index(
        self, transaction: Transaction, position: Position, plan: core.Plan, duplicates: Collection[int]
    ) -> State:
        """Write the index of a transaction's plan, and of what arrived before it without being indexed.

        Args:
            transaction: in which the plan's messages are not written yet.
            position: of the transaction.
            plan: the last that it writes.
            duplicates: the sequences of those of its messages of which another encoding arrived before.

        Returns:
            The state after the commit.
        """
        state = self.of(transaction, position)
        behind = position.indexed
        with raising_corrupt_log:
            while behind < state.count:
                late = _arrived(transaction, behind, state.count, self._topic)
                keys = [key for key, _, _ in late.leaves]
                behind += len(keys)
                transaction.index(late, state.tree.level1(keys), behind)
            tree, level1 = state.tree.insert_leaves(plan.leaves, _leaves(transaction, state.count))
        new = State(state.count + len(plan.order), tree, state.heads.after(plan, duplicates))
        transaction.index(plan, level1, new.count)
        return new

    def scattered(self, plan: core.Plan) -> Collection[tuple[bytes, bytes]]:
        """Return the level-1 rows that a plan's messages change, without those at the end of the tree.

        They are about two for each message.
        """
        if not self._newest.count:
            return ()
        tree = self._newest.tree
        keys = [key for key, _, _ in plan.leaves]
        return set(tree.level1(keys)).difference(tree.level1([_LAST_KEY]))

    def publish_alternative(self, sequence: int) -> None:
        """Take over the sequence of the last alternative encoding that was committed."""
        if sequence > self._alternative:
            with self._lock:
                self._alternative = max(self._alternative, sequence)

    def publish(self, state: State) -> None:
        """Take over a state that was committed, unless a newer one is known."""
        with self._lock:
            if state.count > self._newest.count:
                self._newest = state
        self.publish_heads(state.count, state.heads)

    def publish_heads(self, count: int, heads: Heads) -> None:
        """Take over the heads of so many messages that were committed, unless newer ones are known."""
        with self._lock:
            if count > self._tip[0]:
                self._tip = (count, heads)


def stored_state(reader: Reader, position: Position) -> State:
    """Return the state that the index has: that of the first `position.indexed` messages.

    Raises:
        CorruptLog: heads that are no messages.
        TreeError: rows that no tree has.
    """
    heads = tuple(reader.heads())
    sequences = reader.sequences([key for key, _ in heads])
    # The next message would name them as its parents, and every peer would keep that.
    wrong = [sequence for key, sequence in heads if sequences.get(key) != sequence or sequence > position.indexed]
    if wrong:
        found = counted(len(wrong), "head is", "heads are")
        raise CorruptLog([f"{found} stored wrongly: the index covers no such message"])
    contents = {sequence: key for key, sequence in heads}
    contents |= reader.contents([*contents]) if position.alternative else {}
    duplicates = encodings.stored_duplicates(reader, contents)
    return State(position.indexed, Tree.open(reader.level1(), position.indexed), split(heads, duplicates))


def replayed(reader: Reader, state: State, count: int, topic: str) -> State:
    """Return a later state: that of the first `count` messages.

    Raises:
        CorruptLog: messages that are missing, damaged, or came before their parents.
        TreeError: leaves that are not those of the tree.
    """
    while state.count < count:
        plan = _arrived(reader, state.count, count, topic)
        tree, _ = state.tree.insert_leaves(plan.leaves, _leaves(reader, state.count))
        duplicates = encodings.stored_duplicates(reader, encodings.plan_content_keys(plan))
        state = State(state.count + len(plan.order), tree, state.heads.after(plan, duplicates))
    return state


def _leaves(reader: Reader, count: int) -> Callable[[bytes, bytes | None], Sequence[tuple[bytes, bytes]]]:
    """Return a function that reads the leaves of a tree over so many messages."""
    return lambda start, end: reader.leaves(start, end, count)


def _arrived(reader: Reader, after: int, last: int, topic: str) -> core.Plan:
    """Return the plan that messages after a sequence have followed; not all up to the last, where they are many."""
    rows = reader.arrivals(after, min(_PAGE, last - after))
    for expected, (sequence, _) in enumerate(rows, after + 1):
        if sequence != expected:
            raise CorruptLog([f"there is no message with the sequence {expected}"])
    batch = core.read_batch([value for _, value in rows], topic)
    for index, error in batch.invalid:
        raise _refused(after + 1 + index, error)
    parents = {key: sequence for key, sequence in reader.sequences(batch.parents()).items() if sequence <= after}
    plan = batch.arrived(after + 1, parents)
    if not rows or len(plan.order) < len(rows):
        raise CorruptLog(
            [f"messages after the sequence {after} are missing, stored twice, or came before their parents"]
        )
    return plan


def unindexed(reader: Reader, position: Position, topic: str) -> Iterator[SignedMessage]:
    """Yield the messages that the index does not cover yet."""
    after = position.indexed
    while after < position.count:
        rows = reader.arrivals(after, position.count - after)
        yield from (read_stored(value, topic, sequence) for sequence, value in rows)
        after = rows[-1][0]


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
        # The leaves read last and their range; where the range of the last call ended, and how many calls each went on
        # where the one before it had ended.
        self._leaves: Sequence[tuple[bytes, bytes]] = ()
        self._start = b""
        self._end: bytes | None = b""
        self._last_end: bytes | None = b""
        self._run = 0

    @property
    def tree(self) -> Tree:
        """The tree of the state."""
        return self.state.tree

    def leaves(self, start: bytes, end: bytes | None, limit: int | None = None) -> Sequence[tuple[bytes, bytes]]:
        """Return the leaves (key, hash) with start <= key < end, ascending; an end of None is the end of the tree.

        Of these the first `limit`, and no more than so many are read.

        For a caller that goes on again and again where the last call ended, what the next calls will ask for is read as
        well: the leaves up to the end of the node of level 2.
        """
        self._run = self._run + 1 if start == self._last_end else 0
        self._last_end = end
        if not (self._start <= start and _reaches(self._end, end)):
            ahead = self.tree.next_key(2, start) if self._run >= _READ_AHEAD and self.tree.root.level > 2 else end
            self._start, self._end = start, ahead if _reaches(ahead, end) else end
            with self.storage.reader(single=True) as reader:
                self._leaves = reader.leaves(start, self._end, self.state.count, limit)
            if len(self._leaves) == limit:
                # The limit cut the range off: what is cached ends with the last leaf.
                self._end = self._leaves[-1][0] + b"\0"
        first = bisect_left(self._leaves, start, key=itemgetter(0))
        stop = len(self._leaves) if end is None else bisect_left(self._leaves, end, first, key=itemgetter(0))
        return self._leaves[first : stop if limit is None else min(stop, first + limit)]

    def values(self, keys: Sequence[bytes], limit: int) -> list[bytes] | None:
        """Return the stored values, in the order of the keys; None when they have more than `limit` bytes together.

        At most one value more than fits is read.

        Raises:
            KeyError: a key that is not in the state.
        """
        with self.storage.reader(single=True) as reader:
            found = reader.values(keys, self.state.count, limit)
        if sum(map(len, found.values())) > limit:
            return None
        values = [found[key] for key in keys]
        # A key may stand there more than once.
        return values if sum(map(len, values)) <= limit else None


def _reaches(end: bytes | None, other: bytes | None) -> bool:
    """Return whether a range that ends at `end` goes as far as one that ends at `other`."""
    return end is None or (other is not None and other <= end)


def read_stored(value: bytes, topic: str, name: int | bytes) -> SignedMessage:
    """Return a message from its stored value.

    Args:
        value: as it is stored.
        topic: of the log.
        name: the sequence or the key of the message, for the error.

    Raises:
        CorruptLog: a value that no message has.
    """
    try:
        return core.read_message(value, topic)
    except InvalidMessage as error:
        raise _refused(name, error) from error


def _refused(name: int | bytes, error: InvalidMessage) -> CorruptLog:
    which = f"of sequence {name}" if isinstance(name, int) else named_by_key(name)
    return CorruptLog([f"the stored message {which}: {error}"])


def named_by_key(key: bytes) -> str:
    """Return the id of a stored message, or what is stored in its place."""
    return core.encode_id(key) if len(key) == core.KEY_LENGTH else f"with the damaged key {key.hex()}"


class _RaisingCorruptLog:
    """Translate decoding errors of stored data into CorruptLog.

    A class, because a generator costs each append microseconds.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, TreeError):
            raise CorruptLog([f"the tree: {error}"]) from error
        if isinstance(error, (DecodeError, InvalidMessage)):
            raise CorruptLog([f"a stored record: {error}"]) from error


raising_corrupt_log = _RaisingCorruptLog()
