"""`gossiplog.sim.routers.conditions`."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.sim.routers.conditions import Churn, Conditions, Failure, Geographic, Matrix, Partition, Uniform


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
def test_what_cannot_be(make: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        make()
