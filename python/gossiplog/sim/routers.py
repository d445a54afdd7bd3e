"""The kinds of routers that can be simulated: how one is made, joined to others, and understood."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from gossiplog.errors import ScenarioError
from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub.events import Received, Router

OUTSIDE = -1
"""Who publishes, where messages come to routers in packets."""

_HEADER = 8  # bytes that a packet of simsub's takes beside its content, and each id in it: simsub has no encoding


class Wiring(Enum):
    """How the nodes that were drawn for a node become its peers."""

    OPEN = "whoever is known can be sent packets; the router has the drawn nodes, and tells them itself"
    DIALLED = "connections to the drawn nodes are made, and made again when they break; routers are told"
    OWN = "the router has the drawn nodes as contacts, and asks for the connections that it wants"


@dataclass(frozen=True, slots=True)
class Seat:
    """What a router is made with.

    Attributes:
        node: its number, by which its peers know it.
        contacts: the nodes that were drawn for it.
        random: what it draws with.
    """

    node: int
    contacts: tuple[int, ...]
    random: Random


@dataclass(frozen=True, slots=True)
class RouterKind:
    """How the simulator deals with one kind of routers.

    Attributes:
        name: of the kind.
        make: makes a router.
        wiring: how it gets its peers.
        inject: the event by which a node gets a message to publish, from its number and its payload.
        read: the names of the messages in a packet, one for each.
        names: all that `read` may answer and that the summary is to have a row for, as protocol.message; others are
            left out of it.
        size: the bytes of a packet.
        neighbours: the peers that a router forwards messages to.
        payload: the name, of those in `names`, of the packets' messages that bring what is published.
        opening: events for each node when it has started.
        protocol: what the nodes speak, as `PeerConnected` tells it.
    """

    name: str
    make: Callable[[Seat], Router]
    wiring: Wiring
    inject: Callable[[int, bytes], Any]
    read: Callable[[Any], Sequence[str]]
    names: tuple[str, ...]
    size: Callable[[Any], int]
    neighbours: Callable[[Any], Collection[Any]]
    payload: str = "pubsub.publish"
    opening: Sequence[Any] = ()
    protocol: str = ""


# In the order of simsub's summaries.
_SIMSUB_NAMES: dict[type, tuple[str]] = {
    simsubs.Graft: ("gossipsub.graft",),
    simsubs.Greeting: ("pubsub.connect",),
    simsubs.Prune: ("gossipsub.prune",),
    simsubs.IWant: ("gossipsub.iwant",),
    simsubs.Message: ("pubsub.publish",),
    simsubs.IHave: ("gossipsub.ihave",),
}


def simsub(config: simsubs.Config | None = None) -> RouterKind:
    """The gossipsub of 2018."""

    def neighbours(router: simsubs.SimSub) -> Collection[Any]:
        return router.mesh

    return RouterKind(
        name="simsub",
        make=lambda seat: simsubs.SimSub(seat.contacts, seat.random, config),
        wiring=Wiring.OPEN,
        inject=lambda number, data: Received(OUTSIDE, simsubs.Message(number, data)),
        read=lambda packet: _SIMSUB_NAMES[type(packet)],
        names=tuple(name for (name,) in _SIMSUB_NAMES.values()),
        size=_simsub_size,
        neighbours=neighbours,
    )


def _simsub_size(packet: simsubs.Packet) -> int:
    if type(packet) is simsubs.Message:
        return 2 * _HEADER + len(packet.data)
    if isinstance(packet, simsubs.IHave | simsubs.IWant):
        return _HEADER * (1 + len(packet.ids))
    return _HEADER


KINDS: dict[str, Callable[[], RouterKind]] = {"simsub": simsub}
"""What there is, by name, with its default parameters."""


def kind_named(name: str) -> RouterKind:
    """A kind of routers with its default parameters.

    Raises:
        ScenarioError: there is none of this name.
    """
    if name not in KINDS:
        raise ScenarioError(f"there is no router {name!r}: expected {', '.join(KINDS)}")
    return KINDS[name]()
