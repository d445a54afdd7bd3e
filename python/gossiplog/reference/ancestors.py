"""The index of ancestors: link records, and frontiers found through them.

The frontier of a message at a clock is the set of its maximal proper ancestors at or before that clock: those that are
no ancestors of others among them. A message at clock c and sequence s has one link record: uvarint(c), then a link
set, its frontier at c - 2^k, for each k = 0, 1, … with 2^k dividing c and 2^k < c: uvarint(n), and the n sequences,
ascending, each as uvarint(s - sequence). That is two sets on average; k = 0 holds the maximal elements among the
parents. Where the way to a set for k > 0 leads to more than MAX_SHORTCUT messages it is left out, which n = 0 says,
and so are those for larger k: else a chain on top of many concurrent messages would store their whole width again and
again, and look through it. So is one whose search, with those for smaller k > 0, has looked at more than MAX_LOOKS
members of link sets, and those for larger k: else a chain whose messages follow a few fresh roots each would be
searched whole for each next one. And where as many looks do not show which of the parents are ancestors of others, all
link sets are left out, k = 0 included, and the parents, n of them, stand after these, likewise: they cover what the
frontier covers.

To descend to a clock, each message above it is replaced by the widest of its links that does not lead below. All of its
ancestors at or before the clock are kept in this, since a frontier covers every ancestor at or before its own clock; a
chain of n messages is descended in O(log n) steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gossiplog.errors import DecodeError
from gossiplog.reference.limits import MAX_CLOCK
from gossiplog.reference.multiformats import read_uvarint, write_uvarint

# For arrival sequences, their link records, in the same order.
Links: TypeAlias = Callable[[Sequence[int]], Sequence[bytes]]
# Messages by sequence, with their clocks.
_Clocks: TypeAlias = Mapping[int, int]

#: The most messages that are found on the way to a link set that is stored for k > 0.
MAX_SHORTCUT: Final = 256
#: Members of link sets that are looked at for the one for k = 0 of a message, and for its others together.
MAX_LOOKS: Final = 2**12


def link_distances(clock: int) -> list[int]:
    """Return the distances 2^k that a message at this clock has links over, ascending."""
    return [1 << k for k in range((clock & -clock).bit_length()) if 1 << k < clock]


def write_links(sequence: int, clock: int, link_sets: Iterable[Sequence[int]]) -> bytes:
    """Return a link record: the link sets in the order of `link_distances`, each ascending, empty if left out.

    Where the first is left out, so are all, and the parents are the last.
    """
    out = bytearray(write_uvarint(clock))
    for ancestors in link_sets:
        out += write_uvarint(len(ancestors))
        for ancestor in ancestors:
            out += write_uvarint(sequence - ancestor)
    return bytes(out)


def link_record(sequence: int, record: bytes) -> tuple[int, list[list[int]]]:
    """Return what a link record of the message `sequence` holds.

    Returns:
        The message's clock, and the link sets over the distances 1, 2, 4, … that its clock has links over, empty where
        one was left out. Where all were, the parents are the last.

    Raises:
        DecodeError: a record that is cut off, has bytes left over, names sequences out of range or order, or has a
            link set after the first was left out.
    """
    clock, offset = read_uvarint(record, 0)
    if not 1 <= clock <= MAX_CLOCK:
        raise DecodeError(f"a link record with the clock {clock}", 0)
    link_sets: list[list[int]] = []
    distances = link_distances(clock)
    while len(link_sets) < len(distances) or (link_sets and not (link_sets[0] or link_sets[-1])):
        count, offset = read_uvarint(record, offset)
        are_parents = len(link_sets) == len(distances)
        is_wrong = not count if are_parents else bool(count and link_sets and not link_sets[0])
        if is_wrong or count > len(record) - offset:
            raise DecodeError(f"a link record with {count} ancestors, which it cannot hold", offset)
        ancestors: list[int] = []
        for _ in range(count):
            start = offset
            distance, offset = read_uvarint(record, offset)
            ancestor = sequence - distance
            if not (ancestors[-1] if ancestors else 0) < ancestor < sequence:
                raise DecodeError(f"a link record of {sequence} that names {ancestor}, out of range or order", start)
            ancestors.append(ancestor)
        link_sets.append(ancestors)
    if offset != len(record):
        raise DecodeError(f"{len(record) - offset} bytes are left over in a link record", offset)
    return clock, link_sets


@dataclass(slots=True)
class Ancestry:
    """Finds frontiers; remembers every record that it has read.

    Attributes:
        links: reads the records of messages that were not added here.
        work: how many members of link sets were looked at.
        most: how many may be; a search breaks off beyond, and what it found is of no use.
        heads: messages that are known to be named by no other as a parent: none is an ancestor of another.
        first_children: of some messages, the first that names each as a parent: none from before it descends from it.
    """

    links: Links
    work: int = 0
    most: float = math.inf
    heads: set[int] = field(default_factory=set)
    first_children: dict[int, int] = field(default_factory=dict)
    _records: dict[int, tuple[int, list[list[int]]]] = field(default_factory=dict)

    def add(self, sequence: int, clock: int, parents: Iterable[int]) -> bytes:
        """Make and remember the link record of a message whose parents can be read or were added before; return it."""
        distances = link_distances(clock)
        link_sets: list[list[int]] = [[] for _ in distances]
        members = sorted(set(parents))
        for k, distance in enumerate(distances):
            if k < 2:
                self.most = self.work + MAX_LOOKS
            found = self._descend(members, clock - distance)
            if k > 0 and len(found) > MAX_SHORTCUT:
                break
            maximal = self._maximal(found, self.heads if k == 0 else ())
            if self.work > self.most:
                if k == 0:
                    link_sets.append(members)
                break
            link_sets[k] = members = sorted(maximal)
        self.most = math.inf
        self.first_children |= dict.fromkeys(self.heads.intersection(parents), sequence)
        self.heads.difference_update(parents)
        self.heads.add(sequence)
        self._records[sequence] = clock, link_sets
        return write_links(sequence, clock, link_sets)

    def frontier(self, sequence: int, clock: int) -> list[int]:
        """Return the sequences, ascending, of the message's maximal proper ancestors at or before `clock`."""
        own_clock = self._clocks([sequence])[sequence]
        target = min(clock, own_clock - 1)
        return sorted(self._maximal(self._descend([sequence], target))) if target >= 1 else []

    def _clocks(self, sequences: Iterable[int]) -> _Clocks:
        wanted = list(sequences)
        unread = [sequence for sequence in wanted if sequence not in self._records]
        for sequence, record in zip(unread, self.links(unread) if unread else (), strict=True):
            self._records[sequence] = link_record(sequence, record)
        return {sequence: self._records[sequence][0] for sequence in wanted}

    def _descend(self, sequences: Iterable[int], target: int, oldest: int = 0) -> _Clocks:
        """Replace those above `target` by ancestors, until none is: what covers all ancestors at or before it.

        What arrived before `oldest` is passed over, unless it is at or before the target.
        """
        found: dict[int, int] = {}
        seen = set(sequences)
        above = seen
        while above and self.work <= self.most:
            following: set[int] = set()
            for sequence, clock in self._clocks(sorted(above)).items():
                if clock <= target:
                    found[sequence] = clock
                    continue
                if sequence < oldest:
                    continue
                # Links with 2^k <= clock - target do not lead below; the widest of those that are stored counts.
                link_sets = self._records[sequence][1]
                usable = link_sets[: (clock - target).bit_length()]
                ancestors = next((ancestors for ancestors in reversed(usable) if ancestors), link_sets[-1])
                self.work += len(ancestors)
                following.update(ancestors)
            above = following - seen
            seen = seen | above
        return found

    def _maximal(self, candidates: _Clocks, sure: Collection[int] = ()) -> list[int]:
        """Return those that are no ancestors of others. An ancestor at clock c shows when the others descend to c.

        Args:
            candidates: any messages.
            sure: are ancestors of none.
        """
        if candidates.keys() <= {*sure}:
            return [*candidates]
        # None from before these descends from any candidate that may be an ancestor.
        oldest = min(self.first_children.get(sequence, sequence) for sequence in candidates if sequence not in sure)
        kept: list[int] = []
        covered: Iterable[int] = ()
        for clock in sorted(set(candidates.values()), reverse=True):
            if self.work > self.most:
                break
            covered = self._descend(covered, clock, oldest)
            level = [sequence for sequence, own in candidates.items() if own == clock and sequence not in covered]
            kept += level
            covered = {*covered, *level}
        return kept


def frontier(sequence: int, clock: int, links: Links) -> list[int]:
    """Return the sequences, ascending, of the maximal proper ancestors at or before `clock` of the message `sequence`.

    Args:
        sequence: of a message whose record `links` has.
        clock: any; from the message's own upwards it makes no difference.
        links: reads link records.

    Raises:
        DecodeError: a damaged record.
    """
    return Ancestry(links).frontier(sequence, clock)


def is_ancestor(ancestor: int, sequence: int, links: Links) -> bool:
    """Return whether the message `ancestor` is a proper ancestor of `sequence`.

    At its own clock an ancestor is always in the frontier: no two messages of one clock are related.

    Args:
        ancestor: of a message whose record `links` has.
        sequence: likewise.
        links: reads link records.

    Raises:
        DecodeError: a damaged record.
    """
    clock, _ = link_record(ancestor, links([ancestor])[0])
    return ancestor in frontier(sequence, clock, links)
