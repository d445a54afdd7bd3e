"""The state that a process holds of a log, kept up with what it and other processes commit.

The messages themselves and their leaves are written with every commit. The index over them, which is the level 1 of the
tree, the children and the heads, is written for many messages together: it covers the first `Position.indexed`
messages, and a reader that needs a later state replays the few that arrived since. So a durable append writes two
pages.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter

from gossiplog import core
from gossiplog.core import SignedMessage, Tree
from gossiplog.errors import CorruptLog, DecodeError, InvalidMessage, LogWentBack
from gossiplog.log import encodings
from gossiplog.log.heads import Head, Heads, split
from gossiplog.log.reading import (
    CheckedSequences,
    Leaf,
    check_arrivals,
    check_newest,
    locating_damage,
    raising_corrupt_log,
    read,
    read_arrivals,
    read_leaves,
    read_values,
)
from gossiplog.message import key_of
from gossiplog.reprs import counted
from gossiplog.storage import Storage
from gossiplog.storage.base import Position, Reader, Transaction, index_fingerprint

INDEX_LAG = 256
"""Messages that the index may be behind. Replaying as many that follow each other takes about a millisecond; scattered
ones take longer."""
MOST_UNINDEXED_PARENTS = 2 * INDEX_LAG
"""Parents of messages that the index does not cover yet. Each is a row of the children, and usually removes a head; 256
messages with 256 parents each hold the lock for a third of a second."""
MOST_UNINDEXED_BYTES = 2**18
"""Bytes that this process may write before it writes the index. The index reads and parses them again, with the lock
held: 30 milliseconds for one message of 4 MiB, 40 to 50 for 256 of 64 KiB."""

# Messages of other processes that are always replayed. For more, the index is read again where it has fewer rows than
# _ROWS_PER_ARRIVAL for each: replaying a message that stands alone on its page of the tree takes as long.
_FEW_ARRIVALS = 512
_ROWS_PER_ARRIVAL = 16
# Heads that are looked for after others have written: of more, the last, whose descendants are the last messages.
_LOOKED_FOR = 32
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

    @property
    def index_fingerprint(self) -> str:
        """What is stored with an index over these messages."""
        return index_fingerprint(self.count, self.tree.root, len(self.heads))


@dataclass(frozen=True, slots=True)
class UnindexedMessages:
    """Messages that an index did not cover, read and checked.

    Attributes:
        indexed: how many messages it covered.
        plans: of those that followed, in order.
    """

    indexed: int
    plans: Sequence[core.WritePlan]


class States:
    """The newest state that this process knows of, and the newest heads, which may be those of a later commit.

    Of the locks, the storage's is always taken first.
    """

    def __init__(self, storage: Storage, topic: str) -> None:
        self._storage = storage
        self._topic = topic
        self._lock = threading.Lock()
        # Later messages are not looked at before somebody asks: a log whose last ones are damaged opens. Nor is one
        # refused whose index is, whose messages can be read by their keys.
        self._newest, self._alternative, self._is_damaged = read(storage, partial(_indexed_state, topic=topic))
        self._tip = (self._newest.count, self._newest.heads)
        self._reconnections = storage.reconnections
        # The sequence up to which heads were taken from the index, and the keys of those whose values were looked at.
        self._from_index = self._newest.count
        self._sound: Collection[bytes] = frozenset()
        self.sequences = CheckedSequences()
        """Of messages that others name as their parents, or that are asked for; heads are looked at apart."""

    @property
    def alternative(self) -> int:
        """The sequence of the last alternative encoding that is known of, 0 where there is none."""
        return self._alternative

    @property
    def newest(self) -> State:
        """The newest state that is known, without a look at what was committed since."""
        return self._newest

    @property
    def newest_heads(self) -> Heads:
        """The newest heads that are known, without a look at what was committed since."""
        return self._tip[1]

    @property
    def count(self) -> int:
        """The number of messages at the newest known heads; checked against the last stored message."""
        return self._tip[0]

    @property
    def is_reconnected(self) -> bool:
        """Whether a connection was lost since what is known was last held against the log."""
        return self._storage.reconnections != self._reconnections

    def current(self) -> State:
        """Return the newest state that any process committed."""
        return read(self._storage, lambda reader: self.of(reader, self.position(reader)))

    def position(self, reader: Reader) -> Position:
        """Return the position of a state, before anything else is read of it.

        Raises:
            LogWentBack: it is before one that this process has seen. What was read of that is no part of the log now.
        """
        known, heads = self._tip
        reconnections = self._storage.reconnections
        position = reader.position()
        if position.count < known:
            raise LogWentBack(position.count, known)
        if reconnections != self._reconnections:
            # As many messages as before, or more, may be others by now.
            self._check_kept(reader, position, known, heads)
            self._reconnections = reconnections
        return position

    def _check_kept(self, reader: Reader, position: Position, known: int, heads: Heads) -> None:
        """Check that the first messages of a state are those that this process knows.

        These are the known heads and their ancestors, whose sequences are smaller.

        Raises:
            LogWentBack: they are not.
            CorruptLog: a head is there, and its leaf is damaged.
        """
        last = dict(heads.unique.last(_LOOKED_FOR) + heads.duplicates.last(_LOOKED_FOR))
        if reader.sequences([*last]) == last:
            return
        for sequence in last.values():
            rows = reader.arrivals(sequence - 1, 1)
            _, error = check_arrivals(reader, rows, core.read_batch([value for _, value in rows], self._topic))
            if error is not None:
                raise error
        raise LogWentBack(position.count, known)

    def of(self, reader: Reader, position: Position) -> State:
        """Return the state at a reader's position, or a later one that another thread has seen since."""
        if self._is_damaged:
            raise _wrong_index()
        newest = self._newest
        if position.count <= newest.count:
            return newest
        # What others wrote must follow all that is known, of which the heads are; another thread may know more by now.
        known, heads = self._tip
        if known <= position.count:
            self._check_kept(reader, position, known, heads)
        check_newest(reader, self._topic)
        with raising_corrupt_log:
            rows = newest.count // _PAGE_LEAVES + len(newest.heads)
            few = max(_FEW_ARRIVALS, rows // _ROWS_PER_ARRIVAL)
            if position.count - newest.count > few and position.indexed > newest.count:
                newest = stored_state(reader, position)
                check_index(reader, newest)
                self._from_index = newest.count
            state = replayed(reader, newest, position.count, self._topic)
        self.publish_alternative(position.alternative)
        self.publish(state)
        return state

    def heads(self, reader: Reader, position: Position) -> Heads:
        """Return the heads at a reader's position, or later ones, as with `of`."""
        count, heads = self._tip
        return heads if count == position.count and not self._is_damaged else self.of(reader, position).heads

    def next_parents(self, reader: Reader) -> Sequence[Head]:
        """Return the heads that an own message would name now, ascending.

        Raises:
            CorruptLog: the value of one is damaged.
        """
        position = self.position(reader)
        heads = self.heads(reader, position)
        self.check_parents(reader, heads, position)
        return heads.next_parents()

    def check_parents(self, reader: Reader, heads: Heads, position: Position, own: bytes | None = None) -> None:
        """Compare the values of the heads that an own message would name with their keys and their contents.

        Those of heads that were replayed have been looked at, and so have those of earlier calls.

        Args:
            reader: of the log.
            heads: at that position.
            position: of the reader.
            own: as `Heads.next_parents` takes it.

        Raises:
            CorruptLog: one is damaged: what names it could be taken by nobody. Or the log has lost which of them are
                later encodings of a message.
        """
        rows = {key: sequence for key, sequence in heads.next_parents(own) if sequence <= self._from_index}
        unseen = [key for key in rows if key not in self._sound]
        if unseen:
            found = read_values(reader, unseen, position.count)
            missing = [
                f"the stored message {core.encode_id(key)}: it is not there" for key in unseen if key not in found
            ]
            if missing:
                raise CorruptLog(missing)
            if self._alternative:
                self._check_encodings(reader, position, rows, found)
            self._sound = frozenset(rows)

    def _check_encodings(
        self, reader: Reader, position: Position, sequences: Mapping[bytes, int], values: Mapping[bytes, bytes]
    ) -> None:
        """Check that the log knows which encodings its heads are, and that no other of them arrived before.

        Args:
            reader: to read one state.
            position: of the reader.
            sequences: of heads, by their keys.
            values: of some of them, by their keys.

        Raises:
            CorruptLog: it does not.
        """
        contents = reader.contents([*sequences.values()])
        for key, message in zip(values, core.read_batch([*values.values()], self._topic), strict=True):
            # What an earlier version accepted may be refused here.
            content = contents.get(sequences[key], key)
            if isinstance(message, SignedMessage) and key_of(message.content_id) != content:
                raise CorruptLog([f"message {message.id} is not stored as the encoding that it is"])
        # A canonical encoding that the log does not find must not have been lost.
        others = set(contents.values()).difference(sequences)
        absent = others.difference(self.sequences.of(reader, [*others]))
        if absent:
            Snapshot(self._storage, self.of(reader, position)).check_absent(absent)

    def read_unindexed(self) -> UnindexedMessages:
        """Return what `index` takes as `unindexed`, and bring the newest known state up to date."""

        def unindexed(reader: Reader) -> UnindexedMessages:
            position = self.position(reader)
            self.of(reader, position)
            with raising_corrupt_log:
                return UnindexedMessages(position.indexed, [*self._unindexed(reader, position.indexed, position.count)])

        return read(self._storage, unindexed)

    def _unindexed(self, reader: Reader, after: int, last: int) -> Iterator[core.WritePlan]:
        """Yield the plans of the messages after a sequence, up to a last one."""
        while after < last:
            plan = _arrived(reader, after, last, self._topic, self.sequences)
            after += len(plan.order)
            yield plan

    def index(
        self,
        transaction: Transaction,
        position: Position,
        plan: core.WritePlan | None = None,
        duplicates: Collection[int] = (),
        unindexed: UnindexedMessages | None = None,
    ) -> State:
        """Write the index of what arrived without being indexed, and of a transaction's plan.

        Args:
            transaction: in which the plan's messages are not written yet.
            position: of the transaction.
            plan: the last that it writes, or None.
            duplicates: the sequences of those of its messages of which another encoding arrived before.
            unindexed: messages that are not read again: what `read_unindexed` has returned.

        Returns:
            The state after the commit.
        """
        state = self.of(transaction, position)
        behind = position.indexed
        # Where another process has written the index meanwhile, it covers some of them.
        known = unindexed.plans if unindexed is not None and unindexed.indexed == behind else ()
        first_unknown = behind + sum(len(late.order) for late in known)
        with raising_corrupt_log:
            for late in chain(known, self._unindexed(transaction, first_unknown, state.count)):
                keys = [key for key, _, _ in late.leaves]
                behind += len(keys)
                transaction.index(late, state.tree.level1(keys), behind)
            if plan is not None:
                tree, level1 = state.tree.insert_leaves(plan.leaves, _leaves(transaction, state.count))
                state = State(state.count + len(plan.order), tree, state.heads.after(plan, duplicates))
                transaction.index(plan, level1, state.count)
        transaction.set_index_fingerprint(state.index_fingerprint)
        return state

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


def _wrong_index() -> CorruptLog:
    return CorruptLog(["the index has another root, or other heads, than it had when it was written"])


def _indexed_state(reader: Reader, topic: str) -> tuple[State, int, bool]:
    """Return the state that the index has, the sequence of the last alternative encoding, and whether it is damaged."""
    position = reader.position()
    _check_topic(reader, topic)
    state = stored_state(reader, position)
    return state, position.alternative, _is_another(reader, state)


def check_index(reader: Reader, state: State) -> None:
    """Compare a stored index with what was stored of it besides.

    Args:
        reader: to read one state.
        state: that the index has.

    Raises:
        CorruptLog: they differ. In a file of an earlier version that cannot be upgraded there is nothing to compare.
    """
    if _is_another(reader, state):
        raise _wrong_index()


def _is_another(reader: Reader, state: State) -> bool:
    check = reader.index_fingerprint()
    return check is not None and check.partition(" ")[0] == str(state.count) and check != state.index_fingerprint


def _check_topic(reader: Reader, topic: str) -> None:
    """Raise if the stored topic is not that of the first message.

    Raises:
        CorruptLog: the first message is sound, and of another topic: the stored one has rotted.
    """
    for sequence, value in reader.arrivals(0, 1):
        try:
            own = core.cbor_decode(value)[1]
            key = core.read_message(value, own).key
        except (DecodeError, InvalidMessage, LookupError, TypeError):
            # The next read that meets it says so.
            return
        if own != topic and reader.sequences([key]) == {key: sequence}:
            raise CorruptLog([f"the topic is stored as {topic!r}, and the messages are of the topic {own!r}"])


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
    tree = stored_tree(reader, position)
    contents = {sequence: key for key, sequence in heads}
    contents |= reader.contents([*contents]) if position.alternative else {}
    duplicates = encodings.stored_duplicates(reader, contents)
    return State(position.indexed, tree, split(heads, duplicates))


def stored_tree(reader: Reader, position: Position) -> Tree:
    """Return the tree that the index has: that of the first `position.indexed` messages, without leaves in memory.

    Raises:
        CorruptLog: keys that no message has.
        TreeError: rows that no tree has.
    """
    level1 = reader.level1()
    # The first is the anchor's.
    for key, _ in level1[1:]:
        if len(key) != core.KEY_LENGTH:
            raise CorruptLog([f"the tree has the damaged key {key.hex()}"])
    return Tree.open(level1, position.indexed)


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
    return lambda start, end: read_leaves(reader, start, end, count)


def _arrived(
    reader: Reader, after: int, last: int, topic: str, sequences: CheckedSequences | None = None
) -> core.WritePlan:
    """Return the plan that messages after a sequence have followed; not all up to the last, where they are many.

    Args:
        reader: to read one state.
        after: the sequence before the messages.
        last: the sequence of the last of them.
        topic: that all messages have.
        sequences: for a plan whose children are written, those of the parents.

    Raises:
        CorruptLog: messages or parents that are missing, damaged, or came later.
    """
    rows = reader.arrivals(after, min(_PAGE, last - after))
    for expected, (sequence, _) in enumerate(rows, after + 1):
        if sequence != expected:
            raise CorruptLog([f"there is no message with the sequence {expected}"])
    batch = core.read_batch([value for _, value in rows], topic)
    # The next message would name them as its parents: each must be the one that its leaf stands for.
    _, error = check_arrivals(reader, rows, batch)
    if error is not None:
        raise error
    outer = batch.parents()
    found = reader.sequences(outer) if sequences is None else sequences.of(reader, outer)
    plan = batch.arrived(after + 1, {key: sequence for key, sequence in found.items() if sequence <= after})
    if not rows or len(plan.order) < len(rows):
        raise CorruptLog(
            [f"messages after the sequence {after} are missing, stored twice, or came before their parents"]
        )
    return plan


def unindexed(reader: Reader, position: Position, topic: str) -> Iterator[SignedMessage]:
    """Yield the messages that the index does not cover yet."""
    after = position.indexed
    while after < position.count:
        found = read_arrivals(reader, topic, after, position.count - after)
        if not found:
            raise CorruptLog([f"there is no message with the sequence {after + 1}"])
        yield from (message for _, message in found)
        after += len(found)


class Snapshot:
    """One state of a log, to be read while writes go on: what a sync server serves and a sync client compares with.

    It reads ahead, as files do, and is for one thread at a time.

    Examples:
        >>> from gossiplog.lowlevel import replica_of
        >>> snapshot = replica_of(log).snapshot()
        >>> message = log.append("one")
        >>> snapshot.state.count, len(log)
        (0, 1)
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
            reached = self._end
            self._leaves = read(
                self.storage, lambda reader: read_leaves(reader, start, reached, self.state.count, limit), single=True
            )
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
            CorruptLog: a value is not that of its key.
        """
        found = read(self.storage, lambda reader: read_values(reader, keys, self.state.count, limit), single=True)
        if sum(map(len, found.values())) > limit:
            return None
        values = [found[key] for key in keys]
        # A key may stand there more than once.
        return values if sum(map(len, values)) <= limit else None

    def check_absent(self, keys: Iterable[bytes]) -> None:
        """Check by the tree that messages which were not found are not in the log.

        A leaf whose key rotted has the right hash, and may mislead the search for others. So the leaves of each node of
        level 1 that has such a place are read, none of the messages may be among them, and the keys on both sides of
        each place must be those of their values.

        Args:
            keys: of the messages.

        Raises:
            CorruptLog: the log has lost a message there, or what is beside its place is damaged.
        """
        with locating_damage(self.storage):
            self._check_absent(sorted(keys))

    def _check_absent(self, ascending: list[bytes]) -> None:
        while ascending:
            leaves, end = self._around(ascending[0])
            inside = len(ascending) if end is None else bisect_left(ascending, end)
            places = {bisect_left(leaves, key) for key in ascending[:inside]}
            self._check_found([key for place, key in enumerate(leaves) if not places.isdisjoint((place, place + 1))])
            ascending = ascending[inside:]

    def check_range(
        self, after: bytes | None, before: bytes | None, found: Sequence[Leaf], sound: Collection[bytes | None] = ()
    ) -> None:
        """Check by the tree that a read of a range of keys has met every message in it.

        The leaves of each node of level 1 that the range reaches into are held against the node: none is missing. Only
        those of the nodes at its ends are read for that. A leaf whose key rotted has the right hash, and may stand
        outside the range now: then it is beside the range, so the keys on both sides of it must be those of their
        values.

        Args:
            after: the key before the range; None for a range from the first message on.
            before: the key after the range; None for a range up to the last message.
            found: of the messages that the read has met, ascending by their keys, which are those of their values.
            sound: those of the two keys that are known to be those of their values.

        Raises:
            CorruptLog: the log has lost a message there, or what is beside the range is damaged.
        """
        if after is not None and before is not None and before <= after:
            return
        with locating_damage(self.storage):
            self._check_range(after, before, found, sound)

    def _check_range(
        self, after: bytes | None, before: bytes | None, found: Sequence[Leaf], sound: Collection[bytes | None]
    ) -> None:
        keys = [key for key, _ in found]
        inside, end = self._around(after or bytes(core.KEY_LENGTH))
        first = 0 if after is None else bisect_right(inside, after)
        beside, inside = inside[max(first - 1, 0) : first], inside[first:]

        def load(start: bytes, stop: bytes | None) -> Sequence[Leaf]:
            nonlocal end
            end = stop
            if stop is not None and stop <= keys[-1]:
                leaves = found[bisect_left(keys, start) : bisect_left(keys, stop)]
            else:
                leaves = self.leaves(start, stop)
            inside.extend([key for key, _ in leaves])
            return leaves

        with raising_corrupt_log:
            while keys and end is not None and end <= keys[-1]:
                self.tree.node(0, end, load)
        stop = len(inside) if before is None else bisect_left(inside, before)
        if inside[:stop] != keys:
            lost = next((key for key in inside[:stop] if key not in keys), None)
            raise CorruptLog(["messages are read that the tree lacks"]) if lost is None else _lost(lost)
        # The next node begins with a leaf of its key.
        if end is not None and (before is None or end < before):
            raise _lost(end)
        self._check_found([key for key in (*beside, *inside[stop : stop + 1]) if key not in sound])

    def _around(self, key: bytes) -> tuple[list[bytes], bytes | None]:
        """Return the keys of the leaves of the level-1 node whose range holds a key, and where that range ends."""
        keys: list[bytes] = []

        def leaves(start: bytes, end: bytes | None) -> Sequence[tuple[bytes, bytes]]:
            nonlocal keys
            found = self.leaves(start, end)
            keys = [key for key, _ in found]
            return found

        with raising_corrupt_log:
            self.tree.node(0, key, leaves)
        return keys, self.tree.next_key(1, key)

    def _check_found(self, keys: Sequence[bytes]) -> None:
        """Check that leaves are found by their keys, with the values of these."""
        if not keys:
            return
        found = read(self.storage, partial(read_values, keys=keys, count=self.state.count), single=True)
        # Those that arrived since they were looked for are found now.
        for key in keys:
            if key not in found:
                raise _lost(key)


def _lost(key: bytes) -> CorruptLog:
    return CorruptLog([f"message {core.encode_id(key)} is in the tree, but is not found by its key"])


def _reaches(end: bytes | None, other: bytes | None) -> bool:
    """Return whether a range that ends at `end` goes as far as one that ends at `other`."""
    return end is None or (other is not None and other <= end)
