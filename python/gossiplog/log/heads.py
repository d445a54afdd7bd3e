"""The heads of a log, the messages that no other names as a parent, which successive states share.

Anybody can make them many: each message without parents is one, and so is each further encoding of a message. So a
message more must not cost a copy of all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from typing import TypeAlias, final

from gossiplog.core import Plan

Head: TypeAlias = tuple[bytes, int]
"""A message that no other names as a parent: its key and sequence."""

# Heads in a run, about: a change copies one run, and the list of all runs.
_RUN = 256
# For more changes at once everything is merged.
_FEW_CHANGES = 64


@final
class HeadRows:
    """Some heads, ascending by key. They do not change: `after` returns others.

    Args:
        heads: ascending by key.
    """

    __slots__ = ("_count", "_runs")

    def __init__(self, heads: Iterable[Head] = ()) -> None:
        rest = iter(heads)
        self._runs: tuple[tuple[Head, ...], ...] = tuple(iter(lambda: tuple(islice(rest, _RUN)), ()))
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
        return hash((self._count, self._runs[-1:]))

    def __repr__(self) -> str:
        return f"<HeadRows: {self._count}>"

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
        if len(removed) + len(added) > _FEW_CHANGES:
            gone = frozenset(removed)
            kept = [head for head in self if head[0] not in gone] if gone else [*self]
            # Two ascending runs, which this merges.
            return HeadRows(sorted(chain(kept, sorted(added))))
        runs = list(self._runs)
        count = self._count
        for key in removed:
            place = self._place(runs, key)
            run = list(runs[place]) if runs else []
            at = bisect_left(run, (key,))
            if at < len(run) and run[at][0] == key:
                del run[at]
                count -= 1
                runs[place : place + 1] = [tuple(run)] if run else []
        for head in added:
            place = self._place(runs, head[0])
            run = list(runs[place]) if runs else []
            insort(run, head)
            count += 1
            half = len(run) // 2
            runs[place : place + 1] = [tuple(run)] if half < _RUN else [tuple(run[:half]), tuple(run[half:])]
        heads = HeadRows()
        heads._runs, heads._count = tuple(runs), count
        return heads

    @staticmethod
    def _place(runs: list[tuple[Head, ...]], key: bytes) -> int:
        """The run in which a key stands, or would: the first that does not end before it, or the last."""
        return min(bisect_left(runs, key, key=lambda run: run[-1][0]), max(len(runs) - 1, 0))


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one state of a log.

    Attributes:
        counted: those that own messages follow.
        repeated: those of which another encoding arrived before. An own message does not follow them: it would say no
            more by it, and thousands of them would crowd out what others wrote.
    """

    counted: HeadRows = field(default_factory=HeadRows)
    repeated: HeadRows = field(default_factory=HeadRows)

    def __len__(self) -> int:
        return len(self.counted) + len(self.repeated)

    def __iter__(self) -> Iterator[Head]:
        """All of them, ascending by key."""
        return merge(self.counted, self.repeated)

    def after(self, plan: Plan, repeated: Collection[int]) -> Heads:
        """The heads when a plan has been written.

        Args:
            plan: of messages that follow these heads, or others.
            repeated: the sequences of those of its messages of which another encoding arrived before.
        """
        removed, added = plan.heads_removed, plan.heads_added
        if not self.repeated and not repeated:
            return Heads(self.counted.after(removed, added))
        return Heads(
            self.counted.after(removed, [head for head in added if head[1] not in repeated]),
            self.repeated.after(removed, [head for head in added if head[1] in repeated]),
        )


def split(rows: Iterable[Head], repeated: Collection[int]) -> Heads:
    """The heads with these keys and sequences, ascending by key.

    Args:
        rows: of all.
        repeated: the sequences of those of which another encoding arrived before.
    """
    rows = [*rows]
    return Heads(
        HeadRows(head for head in rows if head[1] not in repeated),
        HeadRows(head for head in rows if head[1] in repeated),
    )
