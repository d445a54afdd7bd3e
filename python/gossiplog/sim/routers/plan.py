"""What a simulation of routers does: how many nodes, which messages, under which conditions and attacks.

The attacks follow the evaluation of gossipsub 1.1 (D. Vyzovitis et al., "GossipSub: Attack-Resilient Message
Propagation in the Filecoin and ETH2.0 Networks", https://arxiv.org/abs/2007.02754, section 5). Hostile nodes look like
any members to the honest ones, open as many connections, want to be where messages are forwarded to, and pass nothing
on. They lie about themselves alone: nothing goes out in another node's name. Honest nodes have the same connections to
each other as without an attack. What hostile nodes say to each kind of routers is in `tactics`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random

from gossiplog.errors import ScenarioError
from gossiplog.sim.latency import GeographicLatency, Latency, MatrixLatency, UniformLatency

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


SPAM_SECONDS = 10.0
"""Between two messages of a hostile node that publishes."""

_VICTIM = 0


@dataclass(frozen=True, slots=True)
class Attack:
    """What hostile nodes do.

    Attributes:
        name: by which it is asked for.
        about: it, in words.
        hostile: such nodes for each honest one.
        begins: when they start, as a share of the time before the first message.
        victim: the one node that all of them connect to, whose deliveries alone count; None for nodes drawn at random,
            and all deliveries.
        spam: whether they publish.

    Raises:
        ScenarioError: no hostile nodes.
    """

    name: str
    about: str
    hostile: int = 10
    begins: float = 0.5
    victim: int | None = None
    spam: bool = False

    def __post_init__(self) -> None:
        if self.hostile < 1:
            raise ScenarioError(f"{self.hostile} hostile nodes for each other one: expected 1 or more")

    def targets(self, random: Random, honest: int, connections: int) -> list[tuple[int, ...]]:
        """Return the honest nodes that each hostile one connects to.

        Args:
            random: what they are drawn with.
            honest: nodes, which have the first numbers.
            connections: of each hostile node, `honest` at most.
        """
        nodes = range(honest * self.hostile)
        if self.victim is not None:
            return [(self.victim,) for _ in nodes]
        return [tuple(random.sample(range(honest), connections)) for _ in nodes]


ATTACKS = {
    attack.name: attack
    for attack in (
        Attack("sybil", "hostile nodes join when the others have found together"),
        Attack("cold-boot", "hostile nodes are there from the start", begins=0.0),
        Attack("eclipse", "all hostile nodes surround one node, whose deliveries alone count", victim=_VICTIM),
        Attack("spam", f"as sybil, and each publishes every {SPAM_SECONDS:g} s, which nobody refuses", spam=True),
    )
}
"""All of them, by name."""


def with_hostile(attack: Attack | None, hostile: int) -> Attack:
    """Return an attack with so many hostile nodes for each honest one.

    Raises:
        ScenarioError: there is no attack, or it would have no hostile nodes.
    """
    if attack is None:
        raise ScenarioError(f"{hostile} hostile nodes for each other one, but no attack: expected {', '.join(ATTACKS)}")
    return replace(attack, hostile=hostile)


def attack_named(name: str) -> Attack | None:
    """Return an attack with its default parameters; None for "none".

    Raises:
        ScenarioError: there is none of this name.
    """
    if name != "none" and name not in ATTACKS:
        raise ScenarioError(f"there is no attack {name!r}: expected none, {', '.join(ATTACKS)}")
    return ATTACKS.get(name)


NUMBER_BYTES = 8
"""The head of each payload: the number of the message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The script of a run. Its defaults are those of simsub's script (simsub/scripts.ss of gerbil-simsub, ee1ea87).

    Attributes:
        nodes: how many honest ones.
        messages: that are published, one after the other.
        message_delay: seconds between them.
        fanout: how many nodes, drawn for each message, get it from outside at once.
        connections: how many other nodes, drawn at random, each node connects to.
        seed: of everything that is random. Two runs with one seed have the same connections and the same publishers,
            and latencies too as far as the connections are the drawn ones, whatever their routers are.
        connect_delay: seconds before the first message, in which the routers find together.
        wait: seconds after the last message, and its delay, until the run ends.
        single_source: whether the nodes drawn for the first message publish all of them.
        publishers: how many nodes, the first ones, are drawn from for that; None for all.
        payload: bytes of each message.
        conditions: of the network.
        attack: that the nodes are under; None for none.

    Raises:
        ScenarioError: what cannot be: says which value, and what was expected.
    """

    nodes: int = 100
    messages: int = 10
    message_delay: float = 1.0
    fanout: int = 5
    connections: int = 10
    seed: int = 0
    connect_delay: float = 5.0
    wait: float = 10.0
    single_source: bool = False
    publishers: int | None = None
    payload: int = 64
    conditions: Conditions = field(default_factory=Conditions)
    attack: Attack | None = None

    def __post_init__(self) -> None:
        if self.nodes < 2:
            raise ScenarioError(f"{self.nodes} nodes: expected 2 or more")
        if not 1 <= self.connections < self.nodes:
            raise ScenarioError(
                f"{self.connections} connections of each of {self.nodes} nodes: expected 1 to {self.nodes - 1}"
            )
        if not 1 <= self.fanout <= self.nodes:
            raise ScenarioError(f"fanout is {self.fanout}: expected 1 to {self.nodes}, the number of nodes")
        if self.publishers is not None and not self.fanout <= self.publishers <= self.nodes:
            raise ScenarioError(
                f"{self.publishers} publishers: expected {self.fanout} to {self.nodes}, fanout to nodes"
            )
        if self.messages < 0:
            raise ScenarioError(f"{self.messages} messages: expected 0 or more")
        if self.payload < NUMBER_BYTES:
            raise ScenarioError(
                f"payload is {self.payload} bytes: expected {NUMBER_BYTES} or more, for the message's number"
            )
        for name in ("message_delay", "connect_delay", "wait"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ScenarioError(f"{name} is {getattr(self, name)}: expected 0 seconds or more")
        self.conditions.check(self.population)

    @property
    def population(self) -> int:
        """How many nodes there are; the honest ones have the first numbers."""
        return self.nodes if self.attack is None else self.nodes * (1 + self.attack.hostile)

    @property
    def seconds(self) -> float:
        """How long the run takes, in virtual seconds."""
        return self.connect_delay + self.messages * self.message_delay + self.wait
