"""Networks of several kinds of routers, as users write them: `gossipsub:80,floodsub:20`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random

from gossiplog.errors import ScenarioError
from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub.gossipsub import Config as GossipsubConfig
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.routers.kinds import RouterKind, gossipsub, kind_named, simsub

WITH_DEGREE = ("simsub", "gossipsub")
"""Kinds whose D can be set."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """The kinds of routers in a network.

    Attributes:
        kinds: at least one.
        parts: the shares of the nodes that have each kind, in proportion to each other.

    Raises:
        ScenarioError: kinds with different packets, or one that is named twice.
    """

    kinds: tuple[RouterKind, ...]
    parts: tuple[int, ...]

    def __post_init__(self) -> None:
        first = self.kinds[0]
        for number, kind in enumerate(self.kinds):
            if kind.name in (other.name for other in self.kinds[:number]):
                raise ScenarioError(f"{self.name} has {kind.name} twice: expected each kind of routers once")
            if kind.packet_format != first.packet_format:
                raise ScenarioError(
                    f"{first.name} and {kind.name} cannot be mixed: one sends packets of {first.packet_format}, the"
                    f" other of {kind.packet_format}; expected kinds with the same packets, such as gossipsub and"
                    " floodsub"
                )

    @classmethod
    def of(cls, routers: RouterKind | Mixture) -> Mixture:
        """Return a mixture, of one kind where a kind is given."""
        return routers if isinstance(routers, Mixture) else cls((routers,), (1,))

    @property
    def name(self) -> str:
        """The mixture as users write it."""
        if len(self.kinds) == 1:
            return self.kinds[0].name
        return ",".join(f"{kind.name}:{part}" for kind, part in zip(self.kinds, self.parts, strict=True))

    @property
    def common(self) -> RouterKind:
        """The first kind. Its wiring and packets are those of all kinds, and hostile nodes pose as one of it."""
        return self.kinds[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The messages in packets for which the summary has rows."""
        return tuple(dict.fromkeys(name for kind in self.kinds for name in kind.names))

    def counts(self, nodes: int) -> list[int]:
        """Return the number of nodes of each kind: its part, rounded by the method of largest remainders.

        Raises:
            ScenarioError: a kind would have no node.
        """
        whole = sum(self.parts)
        counts = [nodes * part // whole for part in self.parts]
        by_remainder = sorted(range(len(counts)), key=lambda index: -(nodes * self.parts[index] % whole))
        for index in by_remainder[: nodes - sum(counts)]:
            counts[index] += 1
        for kind, count in zip(self.kinds, counts, strict=True):
            if not count:
                raise ScenarioError(
                    f"{self.name} leaves {kind.name} none of {nodes} nodes: expected one or more of each kind"
                )
        return counts

    def assign(self, nodes: int, random: Random) -> list[RouterKind]:
        """Return the kind of each node, drawn at random.

        Raises:
            ScenarioError: a kind would have no node.
        """
        counts = self.counts(nodes)
        assigned = [kind for kind, count in zip(self.kinds, counts, strict=True) for _ in range(count)]
        random.shuffle(assigned)
        return assigned


def read_parts(text: str) -> list[tuple[str, int]]:
    """Read the names of kinds with their parts of the nodes.

    Args:
        text: NAME, or NAME:PART,NAME:PART.

    Raises:
        ScenarioError: it is neither.
    """
    pieces = text.split(",")
    parts = []
    for piece in pieces:
        name, colon, part = piece.partition(":")
        if len(pieces) == 1 and not colon:
            part = "1"
        if not re.fullmatch(r"[1-9][0-9]{0,8}", part):
            raise ScenarioError(
                f"router {text!r}: expected a name, or several with their parts of the nodes, such as"
                " gossipsub:80,floodsub:20"
            )
        parts.append((name, int(part)))
    return parts


def read_routers(text: str, gossip: GossipConfig | None = None, degree: int | None = None) -> Mixture:
    """Read the kinds of routers in a network.

    Args:
        text: NAME, or NAME:PART,NAME:PART.
        gossip: gossipsub's parameters; None for the defaults.
        degree: D of the kinds in `WITH_DEGREE`; D_low and D_high are two thirds and twice of it, as with the defaults.
            None for the kinds' own.

    Raises:
        ScenarioError: there is no such kind, kinds cannot be mixed, or `gossip` is given without gossipsub.
        ValueError: parameters contradict each other.
    """
    names, parts = zip(*read_parts(text), strict=True)
    if gossip is not None and "gossipsub" not in names:
        raise ScenarioError(f"only gossipsub has parameters of gossip, and the router is {text}")
    return Mixture(tuple(_kind(name, gossip, degree) for name in names), parts)


def _kind(name: str, gossip: GossipConfig | None, degree: int | None) -> RouterKind:
    degrees = {} if degree is None else {"d": degree, "d_low": round(degree * 2 / 3), "d_high": 2 * degree}
    if name == "gossipsub":
        return gossipsub(GossipsubConfig.of(replace(gossip or GossipConfig(), **degrees)))
    if name == "simsub":
        return simsub(simsubs.Config(**degrees))
    return kind_named(name)
