"""Whole networks under virtual time, many seeds: `make soak` runs far more.

Each test runs its seeds in its own process: other groups of tests use the other cores. Most networks have 12 peers. The
machines of `tests/sim/broken.py`, each of which lacks a rule, are caught in 12 peers by as many seeds as in 30, which
take two and a half times as long. The first 20 of the seeds with 12 peers catch all of them, but for one that one seed
in hundreds does: here are 20 besides those of tests/sim.
"""

from __future__ import annotations

import pytest

from gossiplog.sim.whole.run import Failure, soak

pytestmark = pytest.mark.integration

# tests/sim/whole runs those before with 12 peers.
FIRST = 12


def failures(seeds: range, peers: int) -> list[str]:
    outcomes = list(soak(seeds, peers, 1))
    assert [outcome.seed for outcome in outcomes] == list(seeds)
    return [outcome.text for outcome in outcomes if isinstance(outcome, Failure)]


@pytest.mark.parametrize("first", range(FIRST, FIRST + 20, 5))
@pytest.mark.timeout(300)
def test_networks_of_12_peers(first: int) -> None:
    assert failures(range(first, first + 5), 12) == []


@pytest.mark.parametrize("first", range(0, 8, 2))
@pytest.mark.timeout(300)
def test_networks_of_30_peers(first: int) -> None:
    assert failures(range(first, first + 2), 30) == []


@pytest.mark.parametrize(
    ("seed", "peers"),
    [
        pytest.param(2, 250, id="a star"),
        pytest.param(10, 250, id="hubs"),
        pytest.param(12, 300, id="a mesh"),
        pytest.param(0, 1000, id="1000 peers"),
    ],
)
@pytest.mark.timeout(600)
def test_large_networks(seed: int, peers: int) -> None:
    """Of each shape that more than 200 peers have, with crashes and with peers that break rules; and a large star."""
    assert failures(range(seed, seed + 1), peers) == []
