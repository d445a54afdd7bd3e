"""How long bytes travel between two nodes."""

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
