"""Attacks on a network of routers: how many hostile nodes come, when, and whom they surround.

After the evaluation of gossipsub 1.1 (D. Vyzovitis et al., "GossipSub: Attack-Resilient Message Propagation in the
Filecoin and ETH2.0 Networks", https://arxiv.org/abs/2007.02754, section 5). Hostile nodes look like any members to the
honest ones, open as many connections, want to be where messages are forwarded to, and pass nothing on. They lie about
themselves alone: nothing goes out in another node's name. Honest nodes have the same connections to each other as
without an attack. What hostile nodes say to each kind of routers is in `tactics`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from gossiplog.errors import ScenarioError

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
