"""How long bytes travel between two nodes: by chance, by a matrix, or by distance.

Distance is between cities all over the world. Light in fibre covers about 200,000 km a second, and cables take a longer
way than the great circle. That both together make about 2/3 of c over 1.5 times the distance, and that most hosts add
some milliseconds for the way to their provider, is a rule of thumb; the cities and the shares of nodes in them are a
choice, in proportion to no measured network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol


class Latency(Protocol):
    """A model of delays."""

    def __call__(self, source: int, target: int) -> float:
        """Return seconds for one packet from one node to another; may differ from call to call."""


class UniformLatency:
    """A fixed delay for each pair of nodes, drawn uniformly when it is first asked for, and some jitter on top.

    Args:
        random: what it is drawn with.
        low: seconds, at least. The defaults are those of gossipsub's first simulation
            (https://github.com/vyzo/gerbil-simsub, README-literate-gossipsub.org).
        high: seconds, at most.
        jitter: up to this fraction of the delay is added, each time anew.
    """

    def __init__(self, random: Random, low: float = 0.01, high: float = 0.15, jitter: float = 0.0) -> None:
        if not 0 <= low <= high < math.inf:
            raise ValueError(f"latencies from {low} to {high} s: expected 0 <= low <= high, and an end")
        self._random = random
        self._low = low
        self._high = high
        self._jitter = jitter
        self._pairs: dict[tuple[int, int], float] = {}

    def __call__(self, source: int, target: int) -> float:
        pair = (source, target) if source < target else (target, source)
        delay = self._pairs.get(pair)
        if delay is None:
            delay = self._pairs[pair] = self._random.uniform(self._low, self._high)
        return delay * (1.0 + self._jitter * self._random.random()) if self._jitter else delay


class MatrixLatency:
    """Delays that are known for each pair of nodes.

    Args:
        seconds: from the node of the row to the node of the column; what stands on the diagonal does not matter.
    """

    def __init__(self, seconds: Sequence[Sequence[float]]) -> None:
        for number, row in enumerate(seconds):
            if len(row) != len(seconds):
                raise ValueError(
                    f"row {number} of the latencies has {len(row)} columns: expected {len(seconds)}, as rows"
                )
            wrong = [delay for delay in row if not 0 <= delay < math.inf]
            if wrong:
                raise ValueError(f"row {number} of the latencies has {wrong[0]}: expected seconds, 0 or more")
        self._seconds = seconds

    def __call__(self, source: int, target: int) -> float:
        return self._seconds[source][target]


@dataclass(frozen=True, slots=True)
class Faults:
    """What may happen to what peers write to each other.

    Attributes:
        loss: how probable it is that a packet is lost; streams send it again, which takes time.
        no_room: how probable it is that a packet of gossip finds no room in the queue to a peer.
        stalling: how probable it is that a packet of gossip waits in that queue, and all packets after it.
        longest_stall: seconds, at most.
    """

    loss: float = 0.0
    no_room: float = 0.0
    stalling: float = 0.0
    longest_stall: float = 0.5

    def __post_init__(self) -> None:
        """Raise ValueError for what is no probability."""
        for name in ("loss", "no_room", "stalling"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a probability, 0 to 1")


CITIES: dict[str, tuple[float, float]] = {
    "Amsterdam": (52.4, 4.9),
    "Bangalore": (13.0, 77.6),
    "Beijing": (39.9, 116.4),
    "Cairo": (30.0, 31.2),
    "Chicago": (41.9, -87.6),
    "Dallas": (32.8, -96.8),
    "Frankfurt": (50.1, 8.7),
    "Istanbul": (41.0, 29.0),
    "Jakarta": (-6.2, 106.8),
    "Johannesburg": (-26.2, 28.0),
    "Lagos": (6.5, 3.4),
    "London": (51.5, -0.1),
    "Los Angeles": (34.1, -118.2),
    "Madrid": (40.4, -3.7),
    "Mexico City": (19.4, -99.1),
    "Moscow": (55.8, 37.6),
    "Mumbai": (19.1, 72.9),
    "New York": (40.7, -74.0),
    "Paris": (48.9, 2.4),
    "San Francisco": (37.8, -122.4),
    "Santiago": (-33.4, -70.7),
    "Seoul": (37.6, 127.0),
    "Singapore": (1.4, 103.8),
    "Stockholm": (59.3, 18.1),
    "Sydney": (-33.9, 151.2),
    "São Paulo": (-23.6, -46.6),
    "Tokyo": (35.7, 139.7),
    "Toronto": (43.7, -79.4),
    "Vancouver": (49.3, -123.1),
    "Warsaw": (52.2, 21.0),
}
"""Latitude and longitude, in degrees."""

_RADIUS = 6371.0  # of the Earth, in km
_SPEED = 200_000.0  # km a second
_DETOUR = 1.5
_ACCESS = (0.002, 0.012)  # seconds


class GeographicLatency:
    """A delay for each pair of nodes: the way between their cities, and from each of them to its provider.

    Args:
        random: draws each node's city, and its way to the provider.
        nodes: how many there are, numbered from 0.

    Attributes:
        cities: of the nodes, by number.
    """

    def __init__(self, random: Random, nodes: int) -> None:
        names = list(CITIES)
        self.cities = [random.choice(names) for _ in range(nodes)]
        self._access = [random.uniform(*_ACCESS) for _ in range(nodes)]

    def __call__(self, source: int, target: int) -> float:
        way = distance(CITIES[self.cities[source]], CITIES[self.cities[target]])
        return way * _DETOUR / _SPEED + self._access[source] + self._access[target]


def distance(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the kilometres along the great circle between two points (haversine).

    Each is given as (latitude, longitude) in degrees.
    """
    (lat_a, long_a), (lat_b, long_b) = (tuple(map(math.radians, point)) for point in (a, b))
    chord = (
        math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((long_b - long_a) / 2) ** 2
    )
    return 2 * _RADIUS * math.asin(math.sqrt(chord))
