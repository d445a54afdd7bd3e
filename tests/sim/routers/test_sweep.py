"""Sweeps: which runs there are, and a row for each."""

from __future__ import annotations

from typing import Any

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.pubsub import gossipsub, simsub
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.routers.kinds import kind_named
from gossiplog.sim.routers.plan import Churn, Conditions, Plan
from gossiplog.sim.routers.simulation import simulate
from gossiplog.sim.routers.sweep import Grid, Run

SMALL = Plan(nodes=20, messages=3, fanout=1, connections=5)


def test_all_combinations_the_largest_first() -> None:
    grid = Grid(("simsub", "floodsub"), (10, 20), (4, 6), (0.0, 0.1), range(3), Plan(fanout=1, connections=5))
    runs = grid.runs()
    found = {(run.router, run.degree, run.plan.nodes, run.plan.conditions.loss, run.plan.seed) for run in runs}
    degrees = {"simsub": (4, 6), "floodsub": (None,)}
    assert found == {
        (router, degree, nodes, loss, seed)
        for router in degrees
        for degree in degrees[router]
        for nodes in (10, 20)
        for loss in (0.0, 0.1)
        for seed in range(3)
    }
    assert len(runs) == len(found) == 2 * 2 * 3 * (2 + 1)
    assert [run.plan.nodes for run in runs] == [20] * 18 + [10] * 18


@pytest.mark.parametrize("router", ["simsub", "gossipsub", "floodsub", "episub"])
def test_the_default_degree_is_the_routers_own(router: str) -> None:
    degree = {"simsub": simsub.Config().d, "gossipsub": gossipsub.Config().d}.get(router)
    row = Run(router, degree, SMALL).record()
    summary = simulate(kind_named(router), SMALL, trace=None).summary()
    assert row["events"] == summary.events
    assert (row["publish"], row["bytes"], row["p95"]) == (
        summary.counts["!!publish"],
        summary.bytes,
        summary.latency["p95"],
    )
    assert row["delivered"] == summary.deliver / 60
    assert row["duplicates"] == summary.duplicates / (summary.deliver - 3)
    assert (row["graft"] is None) == (router == "floodsub")


def test_the_parameters_of_gossip_are_in_every_run_of_gossipsub() -> None:
    """Seed 001, 1."""
    lazy = GossipConfig(d_lazy=0)
    mixed = "gossipsub:1,floodsub:1"
    grid = Grid(("gossipsub", "floodsub", mixed), (20,), (4, 8), seeds=(1,), plan=SMALL, gossip=lazy)
    runs = {(run.router, run.degree): run for run in grid.runs()}
    assert {key: run.gossip for key, run in runs.items()} == {
        **{(router, degree): lazy for router in ("gossipsub", mixed) for degree in (4, 8)},
        ("floodsub", None): None,
    }
    rows = {key: run.record() for key, run in runs.items()}
    assert [rows["gossipsub", degree]["ihave"] for degree in (4, 8)] == [0, 0]
    plain = Run("gossipsub", 4, SMALL).record()
    assert plain["ihave"] is not None
    assert plain["ihave"] > 0
    assert rows[mixed, 4]["delivered"] == 1.0


def test_the_degree_matters() -> None:
    few, many = (Run("gossipsub", degree, SMALL).record()["duplicates"] for degree in (2, 8))
    assert few < many


@pytest.mark.slow
def test_what_a_node_is_handed_again_counts_once() -> None:
    conditions = Conditions(churn=Churn(0.05, downtime=1.0))
    plan = Plan(30, 20, 0.5, fanout=1, connections=10, conditions=conditions)
    assert simulate(kind_named("gossipsub"), plan, trace=None).summary().deliver > 600
    assert Run("gossipsub", 6, plan).record()["delivered"] <= 1.0


def test_nothing_is_said_where_nothing_was_published() -> None:
    row = Run("simsub", 6, Plan(nodes=5, messages=0, fanout=1, connections=2)).record()
    assert [row[name] for name in ("delivered", "duplicates", "p50", "hops", "publish")] == [None, None, None, None, 0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"routers": ()}, "routers are []: expected one or more, each once"),
        ({"seeds": (1, 1)}, "seeds are [1, 1]"),
        ({"routers": ("nonesuch",)}, "there is no router 'nonesuch'"),
        ({"degrees": (0,)}, "degree 0: expected 1 or more"),
        ({"nodes": (5,)}, "10 connections of each of 5 nodes"),
        ({"losses": (2.0,)}, "loss"),
        (
            {"routers": ("floodsub",), "gossip": GossipConfig()},
            "only gossipsub has parameters of gossip, and the routers are floodsub",
        ),
        ({"gossip": GossipConfig(d=8)}, "d, d_low and d_high follow from the degrees of a sweep"),
        ({"gossip": GossipConfig(d_high=14)}, "follow from the degrees"),
        ({"routers": ("gossipsub:1,simsub:1",)}, "gossipsub and simsub cannot be mixed"),
        ({"routers": ("gossipsub:99,floodsub:1",), "nodes": (20,)}, "leaves floodsub none of 20 nodes"),
        ({"plan": Plan()}, "fanout is 5: a sweep has one publisher for each message"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        Grid(**values)
    assert said in str(refused.value)
