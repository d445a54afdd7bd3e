"""Which members of a network are cut from each other, and what to connect again once they are not; without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import TypeVar

from gossiplog.testnet.plan import MemberPlan

MOST_REDIALS = 3
"""Connections of a member that are made again when a partition heals; Kademlia finds the others."""

_Member = TypeVar("_Member")


class Cuts:
    """The cuts of a network, whose members are named by their numbers.

    Args:
        random: chooses who connects the parts of a network that heals.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._pairs: set[frozenset[int]] = set()
        self._group_of: dict[int, int] = {}
        # Connections that were there when they were cut.
        self._lost: set[frozenset[int]] = set()

    def cut(self, number: int, other: int) -> None:
        """Cut two members from each other."""
        self._pairs.add(frozenset((number, other)))

    def part(self, groups: Sequence[Collection[int]]) -> None:
        """Cut the members of each group from those of the others; those in none are cut from nobody by this."""
        self._group_of = {number: group for group, members in enumerate(groups) for number in members}

    def add(self, number: int) -> None:
        """Have a new member be in the first group, if the network is parted."""
        if self._group_of:
            self._group_of[number] = min(self._group_of.values())

    def is_cut(self, number: int, other: int) -> bool:
        """Return whether two members are cut from each other."""
        if frozenset((number, other)) in self._pairs:
            return True
        group, others = self._group_of.get(number), self._group_of.get(other)
        return group is not None and others is not None and group != others

    def blocked(self, plan: MemberPlan, plans: Iterable[MemberPlan]) -> dict[str, int]:
        """Return the peers to which a member is to keep no connection, by name; none if it is no peer itself.

        Args:
            plan: of the member.
            plans: of all members.
        """
        if not plan.is_peer or not (self._pairs or self._group_of):
            return {}
        others = (other for other in plans if other.is_peer and other.number != plan.number)
        return {other.name: other.number for other in others if self.is_cut(plan.number, other.number)}

    def lose(self, number: int, other: int) -> None:
        """Note that two members were connected when they were cut: `heal` returns them."""
        self._lost.add(frozenset((number, other)))

    def heal(self, plans: Sequence[MemberPlan]) -> list[tuple[int, int]]:
        """End all cuts.

        Args:
            plans: of all members.

        Returns:
            Pairs of members to connect, MOST_REDIALS at most of each: connections that were cut, and others without
            which the parts might not meet soon.
        """
        wanted = self._lost | self._bridges(plans)
        self._pairs.clear()
        self._group_of.clear()
        self._lost.clear()
        found: list[tuple[int, int]] = []
        dialled: Counter[int] = Counter()
        for number, other in sorted(sorted(pair) for pair in wanted):
            if max(dialled[number], dialled[other]) < MOST_REDIALS:
                dialled.update((number, other))
                found.append((number, other))
        return found

    def _bridges(self, plans: Sequence[MemberPlan]) -> set[frozenset[int]]:
        """Return connections that are cut and may not have been there: without them the parts might not meet soon.

        They are those to planned neighbours; and where peers are free to connect, one from each peer into another
        group: peers that have all connections that they want among their own look for no others.
        """
        found = set()
        for plan in plans:
            if plan.is_peer:
                cut = (other for other in plan.neighbours if self.is_cut(plan.number, other))
                found |= {frozenset((plan.number, other)) for other in cut}
        free = [plan.number for plan in plans if plan.is_peer and not plan.allowed]
        for number in free:
            others = [other for other in free if other in self._group_of and self.is_cut(number, other)]
            if number in self._group_of and others:
                found.add(frozenset((number, self._random.choice(others))))
        return found


def halves(members: Sequence[_Member]) -> Sequence[Sequence[_Member]]:
    """Return the first and the second half of the members."""
    return members[: len(members) // 2], members[len(members) // 2 :]
