"""Conditions that a simulated network of routers is under: delays, losses, limits, failures."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

from gossiplog.errors import ScenarioError
from gossiplog.sim.geography import GeographicLatency
from gossiplog.sim.latency import Latency, MatrixLatency, UniformLatency

LEAST_DOWNTIME = 1.0
"""Seconds: within that, everybody has noticed that a connection broke, before it is made anew."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """A delay for each pair of nodes, drawn uniformly; the defaults are simsub's.

    Attributes:
        low: seconds, at least.
        high: seconds, at most.
    """

    low: float = 0.01
    high: float = 0.15

    def model(self, random: Random, nodes: int) -> Latency:
        """Return the delays of a run."""
        return UniformLatency(random, self.low, self.high)

    def check(self, nodes: int) -> None:
        """Raise ValueError for impossible delays."""
        UniformLatency(Random(0), self.low, self.high)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Delays that were measured.

    Attributes:
        seconds: from the node of the row to the node of the column; as many rows and columns as nodes, at least.
    """

    seconds: tuple[tuple[float, ...], ...]

    def model(self, random: Random, nodes: int) -> Latency:
        """Return the delays of a run."""
        return MatrixLatency(self.seconds)

    def check(self, nodes: int) -> None:
        """Raise ValueError for impossible delays."""
        MatrixLatency(self.seconds)
        if len(self.seconds) < nodes:
            raise ValueError(f"{len(self.seconds)} rows of latencies: expected one for each of {nodes} nodes")


@dataclass(frozen=True, slots=True)
class Geographic:
    """Delays by the distance between cities, of which each node has one; see `GeographicLatency`."""

    def model(self, random: Random, nodes: int) -> Latency:
        """Return the delays of a run."""
        return GeographicLatency(random, nodes)

    def check(self, nodes: int) -> None:
        """Any number of nodes will do."""


@dataclass(frozen=True, slots=True)
class Churn:
    """Nodes fail, and come back with nothing but their first contacts.

    Attributes:
        rate: failures of one node a second, on average, while messages are published.
        downtime: seconds until it is back.
    """

    rate: float
    downtime: float = 10.0

    def __post_init__(self) -> None:
        """Raise ScenarioError for impossible values."""
        if not self.rate > 0:
            raise ScenarioError(f"churn's rate is {self.rate}: expected more than 0 failures a second")
        if not self.downtime >= LEAST_DOWNTIME:
            raise ScenarioError(f"churn's downtime is {self.downtime}: expected {LEAST_DOWNTIME:g} seconds or more")


@dataclass(frozen=True, slots=True)
class Failure:
    """Some of the nodes fail at once, and do not come back; those that publish are spared.

    Attributes:
        at: seconds since the start of the run.
        share: of the nodes, drawn at random.
    """

    at: float
    share: float = 0.1

    def __post_init__(self) -> None:
        """Raise ScenarioError for impossible values."""
        if not self.at >= 0:
            raise ScenarioError(f"a failure at {self.at} s: expected a time of 0 or more")
        if not 0 < self.share < 1:
            raise ScenarioError(f"a failure's share is {self.share}: expected more than 0 and less than 1")


@dataclass(frozen=True, slots=True)
class Partition:
    """For some time, some of the nodes reach only each other.

    Attributes:
        at: seconds since the start of the run.
        seconds: how long.
        share: of the nodes that are parted from the rest, drawn at random.
    """

    at: float
    seconds: float
    share: float = 0.5

    def __post_init__(self) -> None:
        """Raise ScenarioError for impossible values."""
        if not self.at >= 0 or not self.seconds >= LEAST_DOWNTIME:
            raise ScenarioError(
                f"a partition at {self.at} for {self.seconds} s: expected a time of 0 or more,"
                f" and {LEAST_DOWNTIME:g} seconds or more"
            )
        if not 0 < self.share < 1:
            raise ScenarioError(f"a partition's share is {self.share}: expected more than 0 and less than 1")


@dataclass(frozen=True, slots=True)
class Conditions:
    """All of them; by default there are delays alone.

    Attributes:
        latency: the delay of each pair of nodes.
        jitter: up to this fraction of it is added, for each packet anew.
        loss: how probable it is that a packet does not arrive.
        bandwidth: bytes a second that each node can send; None for no limit.
        lag: seconds that one machine, which carries the packets of all nodes one after the other, takes for each. The
            publishing of messages does not wait for it.
        late_timers: whether the nodes' timers wait until that machine has nothing to carry.
        churn: of nodes; None for none.
        failures: of nodes, for good.
        partitions: of the network; those at the same time do not add up: the last one counts.

    Raises:
        ScenarioError: what cannot be.
    """

    latency: Uniform | Matrix | Geographic = field(default_factory=Uniform)
    jitter: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None
    lag: float = 0.0
    late_timers: bool = False
    churn: Churn | None = None
    failures: tuple[Failure, ...] = ()
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise ScenarioError(f"loss is {self.loss}: expected a probability, 0 to 1")
        for name in ("jitter", "lag"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ScenarioError(f"{name} is {getattr(self, name)}: expected 0 or more")
        if self.late_timers and not self.lag:
            raise ScenarioError("late_timers without lag: timers wait for a machine that takes no time")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ScenarioError(f"bandwidth is {self.bandwidth}: expected more than 0 bytes a second")

    def check(self, nodes: int) -> None:
        """Raise ScenarioError for conditions that are impossible with so many nodes."""
        try:
            self.latency.check(nodes)
        except ValueError as error:
            raise ScenarioError(str(error)) from error

    @property
    def calm(self) -> bool:
        """Whether packets suffer nothing but a fixed delay."""
        return not (
            self.jitter or self.loss or self.bandwidth or self.lag or self.churn or self.failures or self.partitions
        )
