"""What a simulation of routers does: how many nodes, which messages, under which conditions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gossiplog.errors import ScenarioError
from gossiplog.sim.routers.attacks import Attack
from gossiplog.sim.routers.conditions import Conditions

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
