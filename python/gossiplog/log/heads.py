"""The heads of a log, the messages that no other names as a parent, which successive states share.

Anybody can make them many: each message without parents is one, and so is each further encoding of a message. So a
change costs a copy of a few, however many there are.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, pairwise
from typing import TypeAlias, final

from gossiplog.core import WritePlan
from gossiplog.message import MANY_HEADS, PARENTS_OF_MANY_HEADS

Head: TypeAlias = tuple[bytes, int]
"""A message that no other names as a parent: its key and sequence."""

_Run: TypeAlias = tuple[Head, ...]
# Heads in a run, up to twice as many: a change copies one run, and the list of all runs.
_RUN = 128
# Keys in a run that are looked for one by one: of more, it takes less time to look at the whole run.
_FEW = 16


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

    def among(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Return those of the keys that are heads, with their sequences."""
        ascending = sorted(keys)
        found: dict[bytes, int] = {}
        for place, start, end in self._by_run(ascending) if self._runs else ():
            run, named = self._runs[place], ascending[start:end]
            if len(named) > _FEW:
                known = dict(run)
                found.update((key, known[key]) for key in named if key in known)
            else:
                found.update(run[at] for key in named if (at := _place(run, key)) is not None)
        return found

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
        if len(self._runs) == 1:
            return HeadRows._of(_changed(self._runs[0], removed, added))
        # By the run in which they stand, or would.
        keys, heads_added = sorted(removed), sorted(added)
        gone = {place: keys[start:end] for place, start, end in self._by_run(keys)}
        parts = self._by_run([key for key, _ in heads_added])
        fresh = {place: heads_added[start:end] for place, start, end in parts}
        runs: list[_Run] = []
        count = self._count
        copied = 0
        for place in sorted(gone.keys() | fresh.keys()):
            runs += self._runs[copied:place]
            new = _changed(self._runs[place], gone.get(place, ()), fresh.get(place, ()))
            runs += new
            count += sum(map(len, new)) - len(self._runs[place])
            copied = place + 1
        return HeadRows._of([*runs, *self._runs[copied:]], count)

    @classmethod
    def _of(cls, runs: Sequence[_Run], count: int | None = None) -> HeadRows:
        """Return the heads of runs; their number is counted where it is not known."""
        heads = cls.__new__(cls)
        heads._runs = runs
        heads._count = sum(map(len, runs)) if count is None else count
        return heads

    def _by_run(self, keys: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
        """Yield, for ascending keys, the index of each run where some stand, or would, and the slice of these keys.

        A key's run is the last that does not begin after it, or the first.
        """
        start = 0
        while start < len(keys):
            # Compared as tuples: a key function would be called for each comparison.
            following = max(1, bisect_right(self._runs, ((keys[start], sys.maxsize),)))
            end = len(keys)
            if following < len(self._runs):
                end = bisect_left(keys, self._runs[following][0][0], start)
            yield following - 1, start, end
            start = end


def _place(run: _Run, key: bytes) -> int | None:
    """Return the index of a key in a run; None if it is not there."""
    at = bisect_left(run, (key,))
    return at if at < len(run) and run[at][0] == key else None


def _changed(run: _Run, removed: Collection[bytes], added: Collection[Head]) -> list[_Run]:
    """Return the runs that take the place of one from which some heads are removed, and to which others are added."""
    heads = [*run]
    if len(removed) > _FEW:
        keys = set(removed)
        heads = [head for head in heads if head[0] not in keys]
    else:
        for key in removed:
            at = bisect_left(heads, (key,))
            if at < len(heads) and heads[at][0] == key:
                del heads[at]
    if len(added) > _FEW:
        heads = sorted(chain(heads, added))
    else:
        for head in added:
            insort(heads, head)
    return _cut(heads)


def _cut(heads: Sequence[Head]) -> list[_Run]:
    """Cut heads into runs of _RUN to twice as many; fewer are one run, none are none."""
    if len(heads) < 2 * _RUN:
        return [tuple(heads)] if heads else []
    runs = len(heads) // _RUN
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

    def among(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Return those of the keys that are heads, with their sequences."""
        keys = [*keys]
        found = self.unique.among(keys)
        return found | self.duplicates.among(keys) if self.duplicates else found

    def next_parents(self, own: bytes | None = None) -> list[Head]:
        """Return the heads that an own message follows, ascending: all, or of many the last.

        Args:
            own: the key of the author's message before, which is among them if it is a head: strangers' messages must
                not make two of an author's concurrent, as if they were a fork.
        """
        if len(self.unique) <= MANY_HEADS:
            return self.unique.last(MANY_HEADS)
        last = self.unique.last(PARENTS_OF_MANY_HEADS)
        if own is not None and own < last[0][0] and (found := self.unique.among([own])):
            last[0] = (own, found[own])
        return last

    def after(self, plan: WritePlan, duplicates: Collection[int]) -> Heads:
        """Return the heads when a plan has been written.

        Args:
            plan: of messages that follow these heads, or others.
            duplicates: the sequences of those of its messages of which another encoding arrived before.
        """
        removed, added = plan.heads_removed, plan.heads_added
        if not self.duplicates and not duplicates:
            # The default would be made anew.
            return Heads(self.unique.after(removed, added), self.duplicates)
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
