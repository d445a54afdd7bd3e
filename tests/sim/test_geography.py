"""`gossiplog.sim.geography`."""

from __future__ import annotations

from random import Random

import pytest

from gossiplog.sim.geography import CITIES, GeographicLatency, distance


@pytest.mark.parametrize(
    ("a", "b", "kilometres"),
    [("London", "Paris", 344), ("New York", "London", 5570), ("Sydney", "Santiago", 11_350), ("Tokyo", "Tokyo", 0)],
)
def test_distances(a: str, b: str, kilometres: float) -> None:
    assert distance(CITIES[a], CITIES[b]) == pytest.approx(kilometres, rel=0.02)
    assert distance(CITIES[a], CITIES[b]) == pytest.approx(distance(CITIES[b], CITIES[a]))


def test_a_delay_is_that_of_the_way() -> None:
    latency = GeographicLatency(Random(1), 300)
    assert len(set(latency.cities)) == len(CITIES)
    for a in range(0, 300, 7):
        for b in range(1, 300, 11):
            way = distance(CITIES[latency.cities[a]], CITIES[latency.cities[b]]) * 1.5 / 200_000
            assert 0.004 <= latency(a, b) - way <= 0.024
            assert latency(a, b) == pytest.approx(latency(b, a))
