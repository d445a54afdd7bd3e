"""What a log says of itself, as far as it can be read.

The index covers all messages but the last few hundred. Where all of these are whole, they are read alone; where one is
damaged, only its place among all keys shows which message it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from gossiplog import core
from gossiplog.errors import CorruptLog, InvalidMessage
from gossiplog.log.arrival_check import Problem, log_problems
from gossiplog.log.reading import raising_corrupt_log
from gossiplog.log.state import stored_tree
from gossiplog.reprs import counted
from gossiplog.spark.source.marks import LogMark, mark_of
from gossiplog.spark.source.opening import opened
from gossiplog.storage import Storage
from gossiplog.storage.base import Position, Reader

_PAGE = 4096


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """What a log says of itself.

    Attributes:
        topic: its own.
        count: of its messages.
        root: of its tree, None where that cannot be read.
        heads: the keys of the messages that no other names as a parent, None where they cannot be read. What a damaged
            message names is not known: its parents may be among them.
        problem: why these cannot be read, if so.
        indexed: the sequence up to which the index goes.
        stray: what else is wrong with the log as a whole.
        mark: of the log in this state; None where it is not known.
    """

    topic: str
    count: int
    root: core.Node | None
    heads: tuple[bytes, ...] | None
    problem: str | None = None
    indexed: int = 0
    stray: tuple[Problem, ...] = ()
    mark: LogMark | None = field(default=None, repr=False, compare=False)


def log_metadata(location: str, topic: str | None = None) -> LogMetadata:
    """Read what a log says of itself.

    A log may have as many heads as messages, each of which takes some 60 bytes here.

    Args:
        location: of the log.
        topic: that it must have; None takes any.

    Raises:
        TopicMismatch: it has another topic.
        StorageError: it cannot be read.
    """
    with opened(location, topic) as (storage, own):
        return _read(storage, own, whole=True)


def log_figures(storage: Storage, topic: str) -> LogMetadata:
    """Read what a log says of itself but for its heads and its stray rows: both are an empty tuple.

    So no more is read than the tree's rows above the messages, one for about 32 of these, and what the index lacks.

    Args:
        storage: of the log, open.
        topic: of the log.

    Raises:
        StorageError: it cannot be read.
    """
    return _read(storage, topic, whole=False)


def _read(storage: Storage, own: str, *, whole: bool) -> LogMetadata:
    mark = mark_of(storage)
    with storage.reader() as reader:
        position = reader.position()
        rest = position.indexed, tuple(log_problems(reader, position)) if whole else (), mark
        try:
            with raising_corrupt_log:
                heads = set(indexed_heads(reader)) if whole else set[bytes]()
                root, late, named = _up_to_date(reader, stored_tree(reader, position), position, own)
        except CorruptLog as error:
            return LogMetadata(own, position.count, None, None, str(error), *rest)
    newest = heads.union(late).difference(named) if whole else ()
    return LogMetadata(own, position.count, root, tuple(sorted(newest)), None, *rest)


def indexed_heads(reader: Reader, start: bytes = b"", end: bytes | None = None) -> Iterator[bytes]:
    """Yield the keys of the heads that the index has in a range of keys.

    Args:
        reader: of one state of the log.
        start: the least key, itself included.
        end: the key before which the range ends, None at the end of the log.

    Raises:
        CorruptLog: some are no messages that the index covers.
    """
    position, wrong = reader.position(), 0
    for rows in head_pages(reader, start, end):
        numbers = reader.sequences([key for key, _ in rows])
        for key, sequence in rows:
            if numbers.get(key) != sequence or sequence > position.indexed:
                wrong += 1
            elif not wrong:
                yield key
    if wrong:
        raise CorruptLog([wrong_heads(wrong)])


def wrong_heads(number: int) -> str:
    """Return a sentence about so many rows of heads."""
    return f"{counted(number, 'head is', 'heads are')} stored wrongly: the index covers no such message"


def head_pages(reader: Reader, start: bytes = b"", end: bytes | None = None) -> Iterator[Sequence[tuple[bytes, int]]]:
    """Yield the rows of the heads in a range of keys, some thousands at a time.

    Raises:
        CorruptLog: they do not ascend, in a damaged file.
    """
    while rows := reader.heads(start, end, _PAGE):
        yield rows
        if rows[-1][0] < start:
            raise CorruptLog(["the heads do not ascend by their keys"])
        start = rows[-1][0] + b"\0"


def _up_to_date(
    reader: Reader, index: core.Tree, position: Position, topic: str
) -> tuple[core.Node, Collection[bytes], Collection[bytes]]:
    """Return the root with what the index does not cover, the keys of these messages, and those of their parents."""
    late = dict(_unindexed(reader, position, topic))
    named: set[bytes] = set()
    for key, message in zip(late, core.read_batch(list(late.values()), topic), strict=True):
        if not isinstance(message, InvalidMessage) and message.key == key:
            named.update(map(core.decode_id, message.parents))
    rows = [row for key in sorted(late) for row in reader.leaves(key, key + b"\0", position.count)]
    # As rows of a plan, whose sequences the tree passes over.
    leaves = [(key, hash, 0) for key, hash in rows]
    tree, _ = index.insert_leaves(leaves, lambda start, end: reader.leaves(start, end, position.indexed))
    return tree.root, late.keys(), named


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
