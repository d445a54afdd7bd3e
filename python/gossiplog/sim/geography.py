"""Delays by distance: nodes in cities all over the world.

Light in fibre covers about 200,000 km a second, and cables take a longer way than the great circle. That both
together make about 2/3 of c over 1.5 times the distance, and that most hosts add some milliseconds for the way to
their provider, is a rule of thumb; the cities and the shares of nodes in them are a choice, in proportion to no
measured network.
"""

from __future__ import annotations

import math
from random import Random

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
