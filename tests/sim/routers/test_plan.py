"""`gossiplog.sim.routers.plan`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.sim.routers.attacks import ATTACKS, with_hostile
from gossiplog.sim.routers.conditions import Conditions, Matrix
from gossiplog.sim.routers.plan import Plan


def test_the_defaults_of_the_script() -> None:
    """Seed 002, 10, 11 and 12."""
    plan = Plan()
    assert (plan.nodes, plan.connections, plan.messages, plan.fanout, plan.message_delay) == (100, 10, 10, 5, 1.0)
    assert (plan.connect_delay, plan.wait) == (5.0, 10.0)
    assert plan.seconds == 25.0


def test_hostile_nodes_come_on_top() -> None:
    assert Plan().population == 100
    assert Plan(attack=with_hostile(ATTACKS["sybil"], 3)).population == 400


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nodes": 1}, "1 nodes: expected 2 or more"),
        ({"connections": 100}, "100 connections of each of 100 nodes: expected 1 to 99"),
        ({"connections": 0}, "0 connections"),
        ({"fanout": 0}, "fanout is 0: expected 1 to 100"),
        ({"fanout": 101}, "fanout is 101"),
        ({"publishers": 4}, "4 publishers: expected 5 to 100"),
        ({"publishers": 101}, "101 publishers"),
        ({"messages": -1}, "-1 messages"),
        ({"payload": 7}, "payload is 7 bytes"),
        ({"message_delay": -0.1}, "message_delay is -0.1"),
        ({"wait": math.inf}, "wait is inf"),
        ({"connect_delay": math.nan}, "connect_delay is nan"),
        ({"conditions": Conditions(latency=Matrix(((0.0,),)))}, "expected one for each of 100 nodes"),
        (
            {"conditions": Conditions(latency=Matrix(((0.0,),))), "attack": ATTACKS["sybil"]},
            "1 rows of latencies: expected one for each of 1100 nodes",
        ),
    ],
)
def test_what_cannot_be(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        Plan(**fields)
