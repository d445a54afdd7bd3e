"""`gossiplog.sim.latency`."""

from __future__ import annotations

from random import Random

import pytest

from gossiplog.sim.latency import CITIES, Faults, GeographicLatency, MatrixLatency, UniformLatency, distance


def test_a_pair_has_one_delay_in_both_directions() -> None:
    latency = UniformLatency(Random(1))
    delays = {(a, b): latency(a, b) for a in range(20) for b in range(a)}
    assert all(latency(b, a) == delay for (a, b), delay in delays.items())
    assert all(0.01 <= delay <= 0.15 for delay in delays.values())
    assert len(set(delays.values())) == len(delays)


def test_jitter_is_drawn_each_time() -> None:
    latency = UniformLatency(Random(1), 1.0, 1.0, jitter=0.5)
    delays = [latency(1, 2) for _ in range(50)]
    assert len(set(delays)) == 50
    assert all(1.0 <= delay <= 1.5 for delay in delays)


def test_impossible_settings() -> None:
    with pytest.raises(ValueError, match=r"latencies from 2\.0 to 1\.0 s"):
        UniformLatency(Random(1), 2.0, 1.0)
    with pytest.raises(ValueError, match=r"loss is 1\.5; expected a probability"):
        Faults(loss=1.5)


def test_a_matrix_has_a_delay_for_each_direction() -> None:
    latency = MatrixLatency([[0, 0.5, 1], [2, 0, 3], [4, 5, 0]])
    assert [latency(a, b) for a in range(3) for b in range(3) if a != b] == [0.5, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="row 1 of the latencies has 1 columns: expected 2"):
        MatrixLatency([[0, 1], [2]])
    with pytest.raises(ValueError, match="row 1 of the latencies has inf: expected seconds"):
        MatrixLatency([[0, 1], [float("inf"), 0]])


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
