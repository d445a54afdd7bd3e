"""The heads of a log, the messages that no other names as a parent, which successive states share.

Anybody can make them many: each message without parents is one, and so is each further encoding of a message. So a
change costs a copy of a few, however many there are.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, pairwise
from typing import TypeAlias, final

from gossiplog.core import Plan
from gossiplog.message import MAX_PARENTS

Head: TypeAlias = tuple[bytes, int]
"""A message that no other names as a parent: its key and sequence."""

_Run: TypeAlias = tuple[Head, ...]
# Heads in a run, up to twice as many: a change copies one run, and the list of all runs.
_RUN = 128


@final
class HeadRows:
    """Some heads, ascending by key. They do not change: `after` returns others.

    Args:
        heads: ascending by key.
    """

    __slots__ = ("_count", "_runs")

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        self._runs: Sequence[_Run] = _cut([*heads])
        self._count = sum(map(len, self._runs))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Head]:
        return chain.from_iterable(self._runs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadRows):
            return NotImplemented
        return self._count == other._count and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash((self._count, *self.last(1)))

    def __repr__(self) -> str:
        return f"<HeadRows: {self._count}>"

    def __contains__(self, key: object) -> bool:
        if not self._runs or not isinstance(key, bytes):
            return False
        run = self._runs[self._place(key)]
        at = bisect_left(run, (key,))
        return at < len(run) and run[at][0] == key

    def last(self, count: int) -> list[Head]:
        """Return the heads with the largest keys, ascending: so many, or all if there are fewer."""
        found: list[Head] = []
        for run in reversed(self._runs):
            if len(found) >= count:
                break
            found = [*run, *found]
        return found[-count:]

    def after(self, removed: Collection[bytes], added: Collection[Head]) -> HeadRows:
        """Return the heads without those of some keys, which need not be among them, and with others, which are not."""
        if not self._runs:
            return HeadRows(sorted(added))
        heads = HeadRows()
        if len(self._runs) == 1:
            heads._runs = _changed(self._runs[0], removed, added)
            heads._count = sum(map(len, heads._runs))
            return heads
        # By the run in which they stand, or would.
        changes: dict[int, tuple[list[bytes], list[Head]]] = defaultdict(lambda: ([], []))
        for key in removed:
            changes[self._place(key)][0].append(key)
        for head in added:
            changes[self._place(head[0])][1].append(head)
        runs: list[_Run] = []
        count = self._count
        copied = 0
        for place, (gone, fresh) in sorted(changes.items()):
            runs += self._runs[copied:place]
            new = _changed(self._runs[place], gone, fresh)
            runs += new
            count += sum(map(len, new)) - len(self._runs[place])
            copied = place + 1
        heads._runs, heads._count = [*runs, *self._runs[copied:]], count
        return heads

    def _place(self, key: bytes) -> int:
        """Return the index of a key's run, present or not: the last that does not begin after the key, or the first."""
        # Compared as tuples: a key function would be called some times for each of a message's parents.
        return max(0, bisect_right(self._runs, ((key, sys.maxsize),)) - 1)


def _changed(run: _Run, removed: Collection[bytes], added: Collection[Head]) -> list[_Run]:
    """Return the runs that take the place of one from which some heads are removed, and to which others are added."""
    heads = [*run]
    for key in removed:
        at = bisect_left(heads, (key,))
        if at < len(heads) and heads[at][0] == key:
            del heads[at]
    if len(added) > _RUN:
        heads = sorted(chain(heads, added))
    else:
        for head in added:
            insort(heads, head)
    return _cut(heads)


def _cut(heads: Sequence[Head]) -> list[_Run]:
    """Cut heads into runs of _RUN to twice as many; fewer are one run, none are none."""
    runs = len(heads) // _RUN
    if runs < 2:
        return [tuple(heads)] if heads else []
    bounds = [len(heads) * number // runs for number in range(runs + 1)]
    return [tuple(heads[start:end]) for start, end in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one state of a log.

    Attributes:
        unique: those that own messages follow.
        duplicates: those of which another encoding arrived before. An own message does not follow them: it would say no
            more by it, and thousands of them would crowd out what others wrote.
    """

    unique: HeadRows = field(default_factory=HeadRows)
    duplicates: HeadRows = field(default_factory=HeadRows)

    def __len__(self) -> int:
        return len(self.unique) + len(self.duplicates)

    def __iter__(self) -> Iterator[Head]:
        """All of them, ascending by key."""
        return merge(self.unique, self.duplicates)

    def __contains__(self, key: object) -> bool:
        return key in self.unique or key in self.duplicates

    def next_parents(self) -> list[Head]:
        """Return the heads that an own message follows, ascending: the last MAX_PARENTS."""
        return self.unique.last(MAX_PARENTS)

    def after(self, plan: Plan, duplicates: Collection[int]) -> Heads:
        """Return the heads when a plan has been written.

        Args:
            plan: of messages that follow these heads, or others.
            duplicates: the sequences of those of its messages of which another encoding arrived before.
        """
        removed, added = plan.heads_removed, plan.heads_added
        if not self.duplicates and not duplicates:
            return Heads(self.unique.after(removed, added))
        return Heads(
            self.unique.after(removed, [head for head in added if head[1] not in duplicates]),
            self.duplicates.after(removed, [head for head in added if head[1] in duplicates]),
        )


def split(rows: Iterable[Head], duplicates: Collection[int]) -> Heads:
    """Return the heads with these keys and sequences, ascending by key.

    Args:
        rows: of all.
        duplicates: the sequences of those of which another encoding arrived before.
    """
    rows = [*rows]
    return Heads(
        HeadRows(head for head in rows if head[1] not in duplicates),
        HeadRows(head for head in rows if head[1] in duplicates),
    )
