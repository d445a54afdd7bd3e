"""`gossiplog.sim.routers.plan`."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.sim.routers.plan import (
    ATTACKS,
    Churn,
    Conditions,
    Failure,
    Geographic,
    Matrix,
    Partition,
    Plan,
    Uniform,
    with_hostile,
)


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


def test_latencies_are_uniform_unless_told_otherwise() -> None:
    """Seed 002, 10."""
    latency = Conditions().latency.model(Random(1), 200)
    delays = sorted(latency(a, b) for a in range(200) for b in range(a))
    assert 0.01 <= delays[0] < 0.0101
    assert 0.1499 < delays[-1] <= 0.15
    assert abs(delays[len(delays) // 2] - 0.08) < 0.002


def test_models() -> None:
    matrix = Matrix(((0.0, 1.0), (2.0, 0.0))).model(Random(1), 2)
    assert (matrix(0, 1), matrix(1, 0)) == (1.0, 2.0)
    assert 1.0 <= Uniform(1.0, 2.0).model(Random(1), 2)(0, 1) <= 2.0
    assert 0.004 <= Geographic().model(Random(1), 2)(0, 1) < 0.3


def test_calm() -> None:
    assert Conditions(Uniform(1.0, 2.0)).calm
    storms: list[dict[str, Any]] = [
        {"jitter": 0.1},
        {"loss": 0.1},
        {"bandwidth": 1e6},
        {"lag": 1e-6},
        {"churn": Churn(0.1)},
        {"failures": (Failure(1.0),)},
        {"partitions": (Partition(1.0, 2.0),)},
    ]
    assert not any(Conditions(**storm).calm for storm in storms)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Conditions(loss=1.1), r"loss is 1\.1: expected a probability"),
        (lambda: Conditions(jitter=-1.0), r"jitter is -1\.0: expected 0 or more"),
        (lambda: Conditions(lag=float("nan")), "lag is nan"),
        (lambda: Conditions(bandwidth=0.0), r"bandwidth is 0\.0"),
        (lambda: Churn(0.0), r"churn's rate is 0\.0"),
        (lambda: Churn(1.0, 0.5), r"churn's downtime is 0\.5: expected 1 seconds or more"),
        (lambda: Failure(-1.0), r"a failure at -1\.0 s: expected a time of 0 or more"),
        (lambda: Failure(1.0, 0.0), r"a failure's share is 0\.0"),
        (lambda: Partition(-1.0, 2.0), r"a partition at -1\.0 for 2\.0 s"),
        (lambda: Partition(1.0, 0.5), r"a partition at 1\.0 for 0\.5 s"),
        (lambda: Partition(1.0, 2.0, 1.0), r"share is 1\.0"),
        (lambda: Conditions(latency=Uniform(2.0, 1.0)).check(2), r"latencies from 2\.0 to 1\.0 s"),
        (lambda: Conditions(latency=Matrix(((0.0, 1.0),))).check(1), "row 0 of the latencies has 2 columns"),
        (lambda: Conditions(latency=Matrix(((-1.0,),))).check(1), r"row 0 of the latencies has -1\.0"),
        (lambda: Conditions(latency=Matrix(((0.0,),))).check(2), "expected one for each of 2 nodes"),
    ],
)
def test_conditions_that_cannot_be(make: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        make()
