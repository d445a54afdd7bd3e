"""`gossiplog.sim.routers.attackers`: hostile nodes alone, and among honest ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub.episub import messages as episubs
from gossiplog.pubsub.events import (
    Connect,
    ConnectFailed,
    Join,
    PeerConnected,
    PeerDisconnected,
    Received,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.sim.routers.attackers import Hostile
from gossiplog.sim.routers.kinds import KINDS, RouterKind, Seat, episub, floodsub, gossipsub, kind_named, simsub
from gossiplog.sim.routers.plan import ATTACKS, SPAM_SECONDS, Conditions, Plan, attack_named, with_hostile
from gossiplog.sim.routers.simulation import Simulation, simulate
from gossiplog.sim.routers.summary import Outcome, outcome


def hostile(kind: RouterKind, spam: int | None = None) -> Hostile:
    """Number 50, which attacks 3 and 4."""
    return Hostile(Seat(50, (3, 4), Random(1)), kind, spam)


def test_a_node_turns_to_its_contacts_in_the_way_of_its_kind() -> None:
    assert hostile(simsub()).start(0.0) == [Send((3, 4), simsubs.Greeting()), Send((3, 4), simsubs.Graft())]
    assert hostile(episub()).start(0.0) == [Connect(3), Connect(4)]
    # The simulation connects them.
    assert hostile(floodsub()).start(0.0) == hostile(gossipsub()).start(0.0) == []


@pytest.mark.parametrize("name", ["floodsub", "gossipsub", "episub"])
def test_all_connected_nodes_are_asked(name: str) -> None:
    kind = KINDS[name]()
    (order,) = hostile(kind).handle(PeerConnected(9, kind.protocol), 1.0)
    assert order == Send((9,), kind.tactics.seal(50, 0, kind.tactics.ask[0]))


def test_packets_are_answered_with_numbers_that_grow() -> None:
    node = hostile(episub())
    refusal = Received(3, episubs.Envelope(3, 7, episubs.Disconnect()))
    sent = [send.packet for _ in range(2) for send in node.handle(refusal, 1.0)]
    assert sent == [episubs.Envelope(50, number, episubs.Neighbor(())) for number in range(2)]


def test_messages_are_not_passed_on() -> None:
    node = hostile(simsub())
    node.start(0.0)
    assert not node.handle(Received(3, simsubs.Message(1, bytes(64))), 1.0)


def test_connections_that_end_are_made_again() -> None:
    node = hostile(episub())
    for event in (ConnectFailed(3), PeerDisconnected(3)):
        assert node.handle(event, 5.0) == (SetTimer(3, 6.0),)
        assert node.handle(TimerExpired(3), 6.0) == (Connect(3),)
    assert node.handle(PeerDisconnected(9), 5.0) == ()
    assert hostile(gossipsub()).handle(PeerDisconnected(3), 5.0) == ()


def test_what_a_node_has_no_use_for() -> None:
    assert hostile(gossipsub()).handle(Join("simulation"), 0.0) == ()


def test_spam_goes_to_all_peers_from_time_to_time_and_is_never_the_same() -> None:
    node = hostile(gossipsub(), spam=100)
    (timer,) = node.start(10.0)
    assert 10.0 <= timer.at <= 10.0 + SPAM_SECONDS
    assert node.handle(TimerExpired(timer.timer), 12.0) == [SetTimer(timer.timer, 12.0 + SPAM_SECONDS)]
    for peer in (3, 4, 9):
        node.handle(PeerConnected(peer), 12.0)
    node.handle(PeerDisconnected(9), 12.0)
    sent = [node.handle(TimerExpired(timer.timer), now)[0] for now in (22.0, 32.0)]
    assert [send.peers for send in sent] == [(3, 4), (3, 4)]
    first, second = (send.packet.messages[0].data for send in sent)
    assert len(first) == len(second) == 100
    assert first != second
    assert first[:1] == b"\xff"


HONEST, HOSTILE = 12, 48


@cache
def attacked(router: str, attack: str) -> tuple[Simulation, Outcome]:
    """A run of few nodes, and what came of it."""
    run = simulate(kind_named(router), plan(attack), trace=None)
    return run, outcome(run.plan, run.tally.deliveries)


def plan(attack: str) -> Plan:
    """Twenty seconds, a second of messages, and five more."""
    under = attack_named(attack)
    return Plan(
        HONEST,
        messages=10,
        message_delay=0.1,
        fanout=1,
        connections=8,
        seed=1,
        connect_delay=20.0,
        wait=5.0,
        attack=under and with_hostile(under, HOSTILE // HONEST),
    )


@pytest.mark.parametrize("router", KINDS)
def test_all_is_delivered_where_nobody_attacks(router: str) -> None:
    _, found = attacked(router, "none")
    assert (found.name, found.hostile, found.delivered) == ("none", 0, 1.0)
    assert found.p50 is not None
    assert found.p95 is not None
    assert found.p50 <= found.p95 < 1.0


@pytest.mark.parametrize("attack", ATTACKS)
def test_floodsub_delivers_whatever_the_attack(attack: str) -> None:
    _, found = attacked("floodsub", attack)
    assert (found.name, found.hostile, found.delivered) == (attack, HOSTILE, 1.0)
    assert found.p95 is not None
    assert found.p95 < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["sybil", "cold-boot", "spam"])
@pytest.mark.parametrize("router", ["simsub", "gossipsub"])
def test_hostile_meshes_leave_gossip_alone(router: str, attack: str) -> None:
    run, found = attacked(router, attack)
    assert found.p50 is not None
    assert found.p50 > 1.0
    meshes = [run.mixture.common.neighbours(node) for node in run.routers[:HONEST]]
    assert all(len(mesh) >= 6 for mesh in meshes)
    assert all(peer >= HONEST for mesh in meshes for peer in mesh)


@pytest.mark.parametrize("router", ["simsub", "gossipsub"])
def test_a_victim_is_in_no_honest_mesh_and_asks_for_what_it_gets(router: str) -> None:
    run, found = attacked(router, "eclipse")
    victim, *others = (run.mixture.common.neighbours(node) for node in run.routers[:HONEST])
    assert len(victim) > 0
    assert all(peer >= HONEST for peer in victim)
    assert all(0 not in mesh for mesh in others)
    assert run.summary().counts["iwant"] > 0
    assert found.delivered == 1.0
    _, quiet = attacked(router, "none")
    assert quiet.p95 is not None
    assert found.p50 is not None
    assert found.p50 > quiet.p95


@pytest.mark.integration
@pytest.mark.parametrize("attack", ["sybil", "cold-boot", "spam"])
def test_episub_has_no_honest_links_left(attack: str) -> None:
    run, found = attacked("episub", attack)
    assert (found.delivered, found.p50) == (0.0, None)
    links = [run.mixture.common.neighbours(node) for node in run.routers[:HONEST]]
    assert all(len(eager) == 21 for eager in links)
    assert all(peer >= HONEST for eager in links for peer in eager)


def test_a_victim_of_episub_gets_nothing_and_the_others_everything() -> None:
    run, found = attacked("episub", "eclipse")
    assert found.delivered == 0.0
    rows = run.tally.deliveries
    own = {number for number, node in zip(rows.message, rows.node, strict=True) if node == 0}
    others = [node for number, node in zip(rows.message, rows.node, strict=True) if number not in own and node < HONEST]
    assert len(others) == (10 - len(own)) * (HONEST - 1)


@pytest.mark.slow
def test_the_honest_nodes_do_as_without_an_attack_until_it_begins() -> None:
    def until(time: float, attack: str) -> list[str]:
        lines: list[str] = []
        simulate(kind_named("episub"), replace(plan(attack), messages=0, connect_delay=2.0, wait=0.0), lines.append)
        return [line for line in lines if float(line.split()[0]) < time]

    assert until(1.0, "sybil") == until(1.0, "none") != []
    assert until(2.0, "sybil") != until(2.0, "none")
    assert until(1.0, "cold-boot") != until(1.0, "none")


@pytest.mark.parametrize("router", ["gossipsub", "episub"])
@pytest.mark.integration
def test_a_seed_is_one_run(router: str) -> None:
    first, found = attacked(router, "spam")
    again = Simulation(kind_named(router), first.plan)
    again.run()
    assert again.summary() == first.summary()
    assert again.summary().attack == found


@pytest.mark.parametrize("router", ["simsub", "floodsub", "gossipsub"])
def test_messages_count_that_do_not_come_to_hostile_nodes(router: str) -> None:
    spared, found = attacked(router, "sybil")
    # Under any conditions but delays, everything arrives where it is sent to; these ones change nothing.
    conditions = Conditions(bandwidth=1e15)
    whole = simulate(kind_named(router), replace(spared.plan, conditions=conditions), trace=None)
    assert whole.tally.sent == spared.tally.sent
    assert whole.kernel.events > spared.kernel.events + 1000
    other = outcome(whole.plan, whole.tally.deliveries)
    assert other.delivered == found.delivered
    assert (other.p50, other.p95) == pytest.approx((found.p50, found.p95))


def test_whom_hostile_nodes_connect_to() -> None:
    attack = with_hostile(ATTACKS["sybil"], 3)
    targets = attack.targets(Random(1), 5, 4)
    assert len(targets) == 15
    assert all(len(set(drawn)) == 4 and set(drawn) <= set(range(5)) for drawn in targets)
    assert len(set(targets)) > 1
    assert with_hostile(ATTACKS["eclipse"], 3).targets(Random(1), 5, 4) == [(0,)] * 15


def test_attacks_by_name() -> None:
    assert {name: attack_named(name) for name in ATTACKS} == ATTACKS
    assert attack_named("none") is None
    with pytest.raises(ScenarioError, match="no attack 'flood': expected none, sybil, cold-boot, eclipse, spam"):
        attack_named("flood")


def test_what_cannot_be() -> None:
    with pytest.raises(ScenarioError, match="0 hostile nodes for each other one: expected 1 or more"):
        with_hostile(ATTACKS["spam"], 0)
    with pytest.raises(ScenarioError, match="3 hostile nodes for each other one, but no attack: expected sybil, cold"):
        with_hostile(None, 3)
