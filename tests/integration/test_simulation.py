"""Whole networks under virtual time, many seeds: `make soak` runs far more.

Each test runs its seeds in its own process: other groups of tests use the other cores.
"""

from __future__ import annotations

import pytest

from gossiplog.sim.whole.run import Failure, soak

pytestmark = pytest.mark.integration

CHUNK = 20


def failures(seeds: range, peers: int) -> list[str]:
    outcomes = list(soak(seeds, peers, 1))
    assert [outcome.seed for outcome in outcomes] == list(seeds)
    return [outcome.text for outcome in outcomes if isinstance(outcome, Failure)]


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
@pytest.mark.timeout(300)
def test_networks_of_30_peers(first: int) -> None:
    assert failures(range(first, first + CHUNK), 30) == []


@pytest.mark.timeout(600)
def test_networks_of_1000_peers() -> None:
    assert failures(range(3), 1000) == []
