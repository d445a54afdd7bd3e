"""What a log says of itself, as far as it can be read: the driver's part of an audit.

The index covers all messages but the last few hundred. Where all of these are whole, they are read alone; where one is
damaged, only its place among all keys shows which message it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gossiplog import core
from gossiplog.errors import CorruptLog, InvalidMessage
from gossiplog.log.arrival_check import Problem, log_problems
from gossiplog.log.reading import raising_corrupt_log
from gossiplog.log.state import State, stored_state
from gossiplog.spark.source.locations import opened
from gossiplog.storage.base import Position, Reader

_PAGE = 4096


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """What a log says of itself.

    Attributes:
        count: of its messages.
        root: of its tree, None where that cannot be read.
        heads: the keys of the messages that no other names as a parent, None where they cannot be read. What a damaged
            message names is not known: its parents may be among them.
        problem: why these cannot be read, if so.
        indexed: the sequence up to which the index goes.
        stray: what else is wrong with the log as a whole.
    """

    topic: str
    count: int
    root: core.Node | None
    heads: tuple[bytes, ...] | None
    problem: str | None = None
    indexed: int = 0
    stray: tuple[Problem, ...] = ()


def log_metadata(location: str, topic: str | None = None) -> LogMetadata:
    """Read what a log says of itself.

    Args:
        location: of the log.
        topic: that it must have; None takes any.

    Raises:
        TopicMismatch: it has another topic.
        StorageError: it cannot be read.
    """
    with opened(location, topic) as (storage, own), storage.reader() as reader:
        position = reader.position()
        whole = position.indexed, tuple(log_problems(reader, position))
        try:
            with raising_corrupt_log:
                index = stored_state(reader, position)
                root, heads = _up_to_date(reader, index, position, own)
        except CorruptLog as error:
            return LogMetadata(own, position.count, None, None, str(error), *whole)
    return LogMetadata(own, position.count, root, heads, None, *whole)


def _up_to_date(reader: Reader, index: State, position: Position, topic: str) -> tuple[core.Node, tuple[bytes, ...]]:
    """Return the root and the heads with what the index does not cover."""
    late = dict(_unindexed(reader, position, topic))
    named: set[bytes] = set()
    for key, message in zip(late, core.read_batch(list(late.values()), topic), strict=True):
        if not isinstance(message, InvalidMessage) and message.key == key:
            named.update(map(core.decode_id, message.parents))
    rows = [row for key in sorted(late) for row in reader.leaves(key, key + b"\0", position.count)]
    # As rows of a plan, whose sequences the tree passes over.
    leaves = [(key, hash, 0) for key, hash in rows]
    tree, _ = index.tree.insert_leaves(leaves, lambda start, end: reader.leaves(start, end, position.indexed))
    heads = {key for key, _ in index.heads} | late.keys()
    return tree.root, tuple(sorted(heads - named))


def _unindexed(reader: Reader, position: Position, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield what the index does not cover: keys and values, as they are stored."""
    after = position.indexed
    while after < position.count:
        rows = reader.arrivals(after, min(_PAGE, position.count - after))
        keys = core.read_batch([value for _, value in rows], topic).keys
        sequences = reader.sequences(keys)
        expected = list(range(after + 1, after + 1 + len(rows)))
        if not rows or [sequences.get(key) for key in keys] != expected:
            # Some of these are lost, or are not what their keys say.
            yield from _found(reader, after, position.count)
            return
        yield from zip(keys, (value for _, value in rows), strict=True)
        after += len(rows)


def _found(reader: Reader, after: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the messages after a sequence, looked for among all keys."""
    with reader.scan(("seq", "key"), b"", None, count) as rows:
        late = [key for sequence, key in rows if sequence > after]
    values = reader.values(late, count)
    return ((key, values.get(key, b"")) for key in late)
