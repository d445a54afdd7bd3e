"""Which members are cut from each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gossiplog.testnet.cuts import MOST_REDIALS, Cuts, halves
from gossiplog.testnet.plan import MemberPlan, NetworkPlan, Topology, member_plans
from tests.strategies import repeatable


def plans_of(topology: Topology, peers: int = 6) -> Sequence[MemberPlan]:
    return member_plans(NetworkPlan(peers=peers, topology=topology))


def numbers(plans: Sequence[MemberPlan]) -> dict[str, int]:
    return {plan.name: plan.number for plan in plans}


def test_nothing_is_cut_at_first() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("mesh")
    assert not cuts.is_cut(0, 1)
    assert all(cuts.blocked(plan, plans) == {} for plan in plans)
    assert cuts.heal(plans) == []


def test_a_pair_is_cut_both_ways() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("line")
    cuts.cut(2, 1)
    assert cuts.is_cut(1, 2)
    assert cuts.is_cut(2, 1)
    assert not cuts.is_cut(0, 1)
    assert cuts.blocked(plans[1], plans) == {plans[2].name: 2}
    assert cuts.blocked(plans[2], plans) == {plans[1].name: 1}
    assert cuts.blocked(plans[3], plans) == {}


def test_groups_are_cut_from_each_other_and_from_nobody_else() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("mesh")
    bootstrap, *peers = plans
    cuts.part([[0, 1], [2, 3]])
    for first in (0, 1):
        for second in (2, 3):
            assert cuts.is_cut(first, second)
    assert not cuts.is_cut(0, 1)
    # Whoever is in no group reaches all.
    assert cuts.blocked(bootstrap, plans) == {}
    assert cuts.blocked(peers[4], plans) == {}
    assert cuts.blocked(peers[0], plans) == numbers(peers[2:4])
    # One partition takes the place of another.
    cuts.part([[0, 2], [1]])
    assert cuts.blocked(peers[0], plans) == numbers(peers[1:2])


def test_clients_block_nobody_and_are_blocked_by_nobody() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("hub", 3)
    cuts.part([[0], [1, 2]])
    assert cuts.is_cut(0, 1)
    assert all(cuts.blocked(plan, plans) == {} for plan in plans)


def test_a_new_member_is_in_the_first_group() -> None:
    cuts = Cuts(Random(0))
    cuts.add(6)
    cuts.part([[0, 1, 2], [3, 4, 5]])
    assert not cuts.is_cut(6, 3)
    cuts.add(7)
    assert cuts.is_cut(7, 3)
    assert not cuts.is_cut(7, 0)


def test_lost_connections_are_made_again_once() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("mesh")
    cuts.cut(0, 1)
    cuts.lose(1, 0)
    cuts.lose(0, 1)
    assert cuts.heal(plans) == [(0, 1)]
    assert not cuts.is_cut(0, 1)
    assert cuts.heal(plans) == []


def test_neighbours_are_connected_again_also_where_they_had_not_met() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("line")
    cuts.part(halves(range(6)))
    assert cuts.heal(plans) == [(2, 3)]


def test_free_peers_look_into_another_group() -> None:
    cuts, plans = Cuts(Random(0)), plans_of("mesh")
    cuts.part(halves(range(6)))
    pairs = cuts.heal(plans)
    assert pairs
    assert all(number < 3 <= other for number, other in pairs)


@repeatable(100)
@given(st.sets(st.frozensets(st.integers(-1, 9), min_size=2, max_size=2)), st.integers(1, 9), st.integers(0, 3))
def test_a_healed_network_has_no_cut_and_no_member_dials_many(
    lost: set[frozenset[int]], divided: int, seed: int
) -> None:
    cuts, plans = Cuts(Random(seed)), plans_of("mesh", 10)
    cuts.part([range(divided), range(divided, 10)])
    for number, other in lost:
        cuts.lose(number, other)
    pairs = cuts.heal(plans)
    counts = Counter(number for pair in pairs for number in pair)
    assert max(counts.values(), default=0) <= MOST_REDIALS
    assert len(set(pairs)) == len(pairs)
    assert any((number < divided) != (other < divided) for number, other in pairs if number >= 0)
    assert not any(cuts.blocked(plan, plans) for plan in plans)


def test_halves() -> None:
    assert halves("abcde") == ("ab", "cde")
