"""`gossiplog.sim.routers.mixture`: networks of several kinds of routers."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import ScenarioError
from gossiplog.pubsub.events import Received
from gossiplog.pubsub.gossipsub import GossipConfig, GossipSub
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB
from gossiplog.sim.routers.kinds import KINDS, TOPIC, floodsub, gossipsub
from gossiplog.sim.routers.mixture import Mixture, read_parts, read_routers
from gossiplog.sim.routers.plan import ATTACKS, Churn, Conditions, Plan, with_hostile
from gossiplog.sim.routers.simulation import Simulation, simulate
from gossiplog.sim.routers.summary import Summary
from tests.strategies import repeatable

MIXED = "gossipsub:80,floodsub:20"
PLAN = Plan(nodes=50, messages=10, message_delay=0.2, connections=8, seed=4)


class Watched(Simulation):
    """Keeps what its nodes are sent, by node."""

    def __init__(self, *arguments: Any) -> None:
        self.sent: list[tuple[int, Any]] = []
        super().__init__(*arguments)

    def receive(self, node: int, event: Any) -> None:
        if isinstance(event, Received):
            self.sent.append((node, event.packet))
        super().receive(node, event)


def run(text: str = MIXED, plan: Plan = PLAN, **options: Any) -> Simulation:
    return simulate(read_routers(text, **options), plan, trace=None)


def summary_of(text: str, plan: Plan = PLAN, **options: Any) -> Summary:
    return run(text, plan, **options).summary()


@pytest.mark.parametrize("router", sorted(KINDS))
def test_a_name_is_a_mixture_of_one(router: str) -> None:
    mixture = read_routers(router)
    assert (mixture.name, mixture.names) == (router, KINDS[router]().names)
    plan = Plan(nodes=20, messages=2, connections=5, wait=3.0, seed=1)
    one = summary_of(router, plan)
    assert one == summary_of(f"{router}:3", plan) == simulate(KINDS[router](), plan, trace=None).summary()
    assert one.kinds == {}
    assert "kinds" not in one.record()


def test_gossipsub_and_floodsub_deliver_everything_once() -> None:
    """Seed 001, 42."""
    simulation = run()
    kinds = Counter(type(router).__name__ for router in simulation.routers)
    assert kinds == {"GossipSub": 40, "FloodSub": 10}
    rows = simulation.tally.deliveries
    assert sorted(zip(rows.message, rows.node, strict=True)) == [(m, n) for m in range(10) for n in range(50)]
    summary = simulation.summary()
    assert {name: (of.nodes, of.deliver) for name, of in summary.kinds.items()} == {
        "gossipsub": (40, 400),
        "floodsub": (10, 100),
    }
    assert summary.deliver == 500


def test_nodes_know_what_the_others_speak() -> None:
    """Seed 001, 42: floodsub peers get everything, and no control messages."""
    simulation = Watched(read_routers(MIXED), PLAN)
    sent = simulation.sent
    simulation.run()
    flooding = {node for node, kind in enumerate(simulation.kinds) if kind.name == "floodsub"}
    assert len(sent) > 1000
    assert not any(packet.control for node, packet in sent if node in flooding)
    assert any(packet.control for node, packet in sent if node not in flooding)
    for router in simulation.routers:
        if isinstance(router, GossipSub):
            assert all((peer in flooding) == (spoken == FLOODSUB) for peer, spoken in router.peers.items())
            assert flooding.isdisjoint(router.mesh(TOPIC))


def test_the_kinds_are_told_apart() -> None:
    summary = summary_of(MIXED)
    assert summary.router == MIXED
    assert list(summary.sent) == list(gossipsub().names)
    rows = summary.record()["kinds"]
    assert list(rows) == ["gossipsub", "floodsub"]
    assert rows["gossipsub"].keys() == {"nodes", "deliver", "p50", "p95"}
    assert 0 < rows["floodsub"]["p50"] < rows["gossipsub"]["p50"] < rows["gossipsub"]["p95"] < 1
    # Every message is some node's own once for each that it was given to.
    assert summary.duplicates + summary.deliver - summary.publish == summary.sent["pubsub.publish"]


def test_what_was_never_delivered_has_no_latency() -> None:
    kinds = summary_of(MIXED, Plan(nodes=20, messages=0, connections=3)).kinds
    assert {name: (of.deliver, of.p50, of.p95) for name, of in kinds.items()} == {
        "gossipsub": (0, None, None),
        "floodsub": (0, None, None),
    }


def test_the_seed_assigns_the_kinds() -> None:
    """Seed 001, 42."""

    def assigned(seed: int) -> list[str]:
        return [kind.name for kind in Simulation(read_routers(MIXED), Plan(nodes=50, seed=seed)).kinds]

    assert assigned(1) == assigned(1) != assigned(2)
    assert assigned(1)[:40] != ["gossipsub"] * 40
    assert summary_of(MIXED) == summary_of(MIXED)


def test_a_node_that_comes_back_is_of_the_same_kind() -> None:
    plan = Plan(nodes=20, messages=10, connections=5, conditions=Conditions(churn=Churn(0.1, downtime=1.0)), seed=2)
    simulation = run("floodsub:1,gossipsub:3", plan)
    assert simulation.tally.sent["pubsub.connect"] > 20 * 5
    for kind, router in zip(simulation.kinds, simulation.routers, strict=True):
        assert router is None or type(router).__name__.lower() == kind.name


@pytest.mark.integration
def test_hostile_nodes_pass_for_the_first_kind() -> None:
    plan = Plan(nodes=20, messages=3, connections=5, attack=with_hostile(ATTACKS["sybil"], 2))
    simulation = run(MIXED, plan)
    assert {simulation.protocol(node) for node in range(20, 60)} == {GOSSIPSUB}
    assert {of.nodes for of in simulation.summary().kinds.values()} == {16, 4}
    assert {run("floodsub:1,gossipsub:4", plan).protocol(node) for node in range(20, 60)} == {FLOODSUB}


@repeatable(200)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=2), st.integers(2, 500), st.integers())
def test_the_parts_are_kept(parts: list[int], nodes: int, seed: int) -> None:
    kinds = (gossipsub(), floodsub())[: len(parts)]
    mixture = Mixture(kinds, tuple(parts))
    exact = [nodes * part / sum(parts) for part in parts]
    try:
        counts = mixture.counts(nodes)
    except ScenarioError:
        assert min(exact) < 1
        return
    assert sum(counts) == nodes
    assert all(abs(count - share) < 1 for count, share in zip(counts, exact, strict=True))
    assigned = mixture.assign(nodes, Random(seed))
    assert [sum(kind is of for of in assigned) for kind in kinds] == counts


@pytest.mark.slow
def test_parameters_of_gossip_are_those_of_gossipsub_nodes() -> None:
    """Seed 001, 1."""
    plain, wide = (summary_of(MIXED, gossip=gossip) for gossip in (None, GossipConfig(d=8, d_low=7)))
    assert wide.counts["graft"] > plain.counts["graft"]
    assert summary_of(MIXED, gossip=GossipConfig()) == plain
    assert summary_of(MIXED, degree=6) == plain
    # A degree sets what follows from it, and nothing else.
    assert summary_of(MIXED, degree=8).counts["graft"] > plain.counts["graft"]
    lazy = GossipConfig(d_lazy=0)
    assert summary_of(MIXED, gossip=lazy, degree=8).counts["ihave"] == 0 < summary_of(MIXED, degree=8).counts["ihave"]


def test_names_and_parts() -> None:
    assert read_parts("simsub") == [("simsub", 1)]
    assert read_parts("a:3,b:4") == [("a", 3), ("b", 4)]
    assert read_routers("floodsub:2,gossipsub:2").counts(11) == [6, 5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pigeons", "there is no router 'pigeons': expected simsub"),
        ("gossipsub:3,pigeons:1", "there is no router 'pigeons'"),
        ("gossipsub,floodsub", "router 'gossipsub,floodsub': expected a name, or several with their parts"),
        ("gossipsub:80,floodsub", "as gossipsub:80,floodsub:20"),
        ("gossipsub:", "expected a name"),
        ("gossipsub:0", "expected a name"),
        ("gossipsub:1.5,floodsub:1", "expected a name"),
        ("gossipsub:-1,floodsub:1", "expected a name"),
        ("gossipsub:9999999999,floodsub:1", "expected a name"),
        ("", "there is no router ''"),
        ("gossipsub:1,gossipsub:2", "gossipsub:1,gossipsub:2 has gossipsub twice: expected each kind of routers once"),
        ("gossipsub:1,episub:1", "gossipsub and episub cannot be mixed: one sends packets of libp2p's pubsub, the"),
        ("simsub:1,gossipsub:1", "simsub and gossipsub cannot be mixed"),
        ("floodsub:1,gossipsub:1,simsub:1", "floodsub and simsub cannot be mixed"),
    ],
)
def test_what_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_routers(text)
    assert said in str(refused.value)


def test_every_kind_needs_a_node() -> None:
    with pytest.raises(ScenarioError, match="gossipsub:80,floodsub:20 leaves floodsub none of 2 nodes"):
        Simulation(read_routers(MIXED), Plan(nodes=2, connections=1, fanout=1))


def test_parameters_of_gossip_need_a_router_that_has_them() -> None:
    with pytest.raises(ScenarioError, match="only gossipsub has parameters of gossip, and the router is floodsub"):
        read_routers("floodsub", GossipConfig())
