"""How long things take, as counts of those that took up to so long: what Prometheus calls a histogram."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from gossiplog.reprs import frozen

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds. The last count is of what took longer."""


@frozen
class Latency:
    """What took how long.

    Attributes:
        counts: how many took as long as each of BOUNDS at most, and last how many there were at all.
        seconds: that all took together.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0


class Histogram:
    """Counts latencies of one kind."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Record one duration, in seconds."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    @property
    def latency(self) -> Latency:
        """What was counted so far."""
        return Latency(tuple(accumulate(self._counts)), self._seconds)
