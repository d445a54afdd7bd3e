"""The heads of a log: the messages that no other names as a parent."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import merge
from typing import TypeAlias

from gossiplog.core import Plan

Rows: TypeAlias = tuple[tuple[bytes, int], ...]
"""Keys and sequences, ascending by key."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one state of a log.

    Attributes:
        counted: those that own messages follow.
        repeated: those of which another encoding arrived before. An own message does not follow them: it would say no
            more by it, and thousands of them would crowd out what others wrote.
    """

    counted: Rows = ()
    repeated: Rows = ()

    def __len__(self) -> int:
        return len(self.counted) + len(self.repeated)

    def rows(self) -> Rows:
        """All of them."""
        return tuple(merge(self.counted, self.repeated)) if self.repeated else self.counted

    def after(self, plan: Plan, repeated: Collection[int]) -> Heads:
        """The heads when a plan has been written.

        Args:
            plan: of messages that follow these heads, or others.
            repeated: the sequences of those of its messages of which another encoding arrived before.
        """
        removed = plan.heads_removed
        return Heads(
            _moved(self.counted, removed, (head for head in plan.heads_added if head[1] not in repeated)),
            _moved(self.repeated, removed, (head for head in plan.heads_added if head[1] in repeated)),
        )


def split(rows: Iterable[tuple[bytes, int]], repeated: Collection[int]) -> Heads:
    """The heads with these keys and sequences, ascending by key.

    Args:
        rows: of all.
        repeated: the sequences of those of which another encoding arrived before.
    """
    rows = tuple(rows)
    return Heads(
        tuple(head for head in rows if head[1] not in repeated) if repeated else rows,
        tuple(head for head in rows if head[1] in repeated) if repeated else (),
    )


def _moved(rows: Rows, removed: Iterable[bytes], added: Iterable[tuple[bytes, int]]) -> Rows:
    # Copied where something changes: there may be thousands.
    places = [place for key in removed if (place := _place(rows, key)) is not None]
    news = [*added]
    if not places and not news:
        return rows
    moved = list(rows)
    for place in sorted(places, reverse=True):
        del moved[place]
    for head in news:
        insort(moved, head)
    return tuple(moved)


def _place(rows: Rows, key: bytes) -> int | None:
    place = bisect_left(rows, (key,))
    return place if place < len(rows) and rows[place][0] == key else None
