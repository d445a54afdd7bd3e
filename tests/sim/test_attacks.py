"""`gossiplog.sim.attacks`: hostile nodes among honest ones."""

from __future__ import annotations

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.sim.attacks import ATTACKS, Outcome, attacked, hostile_kind
from gossiplog.sim.plan import Plan
from gossiplog.sim.routers import kind_named
from gossiplog.sim.simulation import simulate


def outcome(router: str, attack: str) -> Outcome:
    return attacked(router, attack, honest=12, messages=10, seed=1)


@pytest.mark.parametrize("attack", ATTACKS)
def test_floodsub_delivers_whatever_the_attack(attack: str) -> None:
    found = outcome("floodsub", attack)
    assert found.delivered == 1.0
    assert found.p50 is not None
    assert found.p95 is not None
    assert found.p50 <= found.p95 < 1.0


def test_gossipsub_delivers_at_once_where_nobody_attacks() -> None:
    found = outcome("gossipsub", "none")
    assert found.delivered == 1.0
    assert found.p95 is not None
    assert found.p95 < 1.0


@pytest.mark.parametrize("attack", ["sybil", "cold-boot", "spam"])
def test_a_mesh_of_hostile_nodes_holds_messages_up(attack: str) -> None:
    found = outcome("gossipsub", attack)
    assert found.p50 is not None
    assert found.p50 > 1.0


def test_one_victim_is_slower_than_all_without_an_attack() -> None:
    quiet, eclipsed = outcome("gossipsub", "none"), outcome("gossipsub", "eclipse")
    assert quiet.p95 is not None
    assert eclipsed.p95 is not None
    assert eclipsed.p95 > quiet.p95


def test_a_victim_is_in_no_honest_mesh_and_asks_for_what_it_gets() -> None:
    honest, attack = 12, ATTACKS["eclipse"]
    nodes = honest * (1 + attack.hostile)
    plan = Plan(nodes, 10, 0.1, fanout=1, connections=1, publishers=honest, connect_delay=10.0, seed=1)
    run = simulate(hostile_kind(kind_named("gossipsub"), attack, honest), plan, trace=None)
    victim, *others = (run.kind.neighbours(router) for router in run.routers[:honest])
    assert len(victim) > 0
    assert all(peer >= honest for peer in victim)
    assert all(0 not in mesh for mesh in others)
    asked = run.summary().counts["iwant"]
    assert asked > 0


def test_a_seed_is_one_run() -> None:
    assert outcome("gossipsub", "sybil") == outcome("gossipsub", "sybil")


def test_unknown_attacks_and_routers_are_refused() -> None:
    with pytest.raises(ScenarioError, match="no attack 'flood': expected none, sybil, cold-boot, eclipse, spam"):
        attacked("gossipsub", "flood")
    with pytest.raises(ScenarioError, match="on floodsub and gossipsub, not on 'episub'"):
        attacked("episub", "sybil")
