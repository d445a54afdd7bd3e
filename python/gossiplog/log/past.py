"""What messages had seen: their ancestors, marked by sequence, and the heads of a log as it was earlier."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from gossiplog import core
from gossiplog.log.paging import Source
from gossiplog.log.reading import read
from gossiplog.storage.base import Reader

# Link records that are read together, at most.
_WINDOW = 4096
# Of records that were read, one in so many is enough to read more of them together: one takes two microseconds, and a
# statement of its own ten times as much.
_USED_ONE_IN = 8
# Candidates that are looked up together.
_TOGETHER = 512
# Messages whose heads are found by a search for each pair.
_MOST_SEARCHED = 16


class Past:
    """The causal past of some messages: these and all their ancestors. They are in the log for good.

    Args:
        source: the log.
        sequences: of the messages.
    """

    def __init__(self, source: Source[Any], sequences: Collection[int]) -> None:
        self._source = source
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

        return read(self._source.storage, search)

    @property
    def is_marked(self) -> bool:
        """Whether the records have been read that `marks` comes from."""
        return self._marks is not None

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
        size = 1
        while (at := marks.rfind(1, 0, at)) > 0:
            window = range(max(at - size + 1, 1), at + 1)
            used = read(self._source.storage, partial(self._mark, marks=marks, window=window))
            size = min(size * 2, _WINDOW) if used * _USED_ONE_IN >= len(window) else max(size // 2, 1)
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

        return read(self._source.storage, search)


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
