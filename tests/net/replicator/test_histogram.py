"""Counts of what took how long."""

from __future__ import annotations

from gossiplog.net.replicator.histogram import BOUNDS, Histogram, Latency


def test_counts_add_up_from_bound_to_bound() -> None:
    histogram = Histogram()
    assert histogram.latency == Latency()
    for seconds in (0.0, BOUNDS[0], 0.002, 3600.0):
        histogram.observe(seconds)
    found = histogram.latency
    assert found.counts[:3] == (2, 3, 3)
    assert found.counts[-2:] == (3, 4)
    assert found.seconds == 3600.0 + 0.002 + BOUNDS[0]
