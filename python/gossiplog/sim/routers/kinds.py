"""The kinds of routers that can be simulated: how one is made, joined to others, and understood."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from itertools import count
from random import Random
from typing import Any

from gossiplog.errors import ScenarioError
from gossiplog.pubsub import floodsub as floodsubs
from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub import wire
from gossiplog.pubsub.authorship import Anonymous
from gossiplog.pubsub.episub import messages as episubs
from gossiplog.pubsub.episub.config import Config as EpisubConfig
from gossiplog.pubsub.episub.router import Episub
from gossiplog.pubsub.events import Join, Publish, Received, Router
from gossiplog.pubsub.gossipsub import Config as GossipsubConfig
from gossiplog.pubsub.gossipsub import GossipSub
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB, Message, Rpc
from gossiplog.sim.routers import tactics
from gossiplog.sim.routers.plan import NUMBER_BYTES
from gossiplog.sim.routers.tactics import Tactics

OUTSIDE = -1
"""Who publishes, where messages come to routers in packets."""

_REMEMBERED = 64  # packets' sizes, and messages' ids: more than are under way at a time, mostly; they keep the payloads
_HEADER = 8  # bytes that a packet of simsub's takes beside its content, and each id in it: simsub has no encoding


class Wiring(Enum):
    """How the nodes that were drawn for a node become its peers."""

    OPEN = "every node that is known can be sent packets; the router has the drawn nodes, and greets them itself"
    DIALLED = "connections to the drawn nodes are made, and made again when they break; routers are notified"
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
        packet_format: the name of its packets' format; kinds with the same one can be mixed.
        make: makes a router.
        wiring: how it gets its peers.
        inject: the event by which a node gets a message to publish, from its number and its payload.
        read: the names of the messages in a packet, one for each.
        names: all that `read` may answer and that the summary is to have a row for, as protocol.message; others are
            left out of it.
        size: the bytes of a packet.
        neighbours: the peers that a router forwards messages to.
        tactics: what hostile nodes say to such routers.
        payload: the name, of those in `names`, of the packets' messages that bring what is published.
        opening: events for each node when it has started.
        protocol: what the nodes speak, as `PeerConnected` has it.
    """

    name: str
    packet_format: str
    make: Callable[[Seat], Router]
    wiring: Wiring
    inject: Callable[[int, bytes], Any]
    read: Callable[[Any], Sequence[str]]
    names: tuple[str, ...]
    size: Callable[[Any], int]
    neighbours: Callable[[Any], Collection[Any]]
    tactics: Tactics
    payload: str = "pubsub.publish"
    opening: Sequence[Any] = ()
    protocol: str = ""


TOPIC = "simulation"
_LIBP2P = "libp2p's pubsub"

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
    """Return the gossipsub of 2018."""

    def neighbours(router: simsubs.SimSub) -> Collection[Any]:
        return router.mesh

    return RouterKind(
        name="simsub",
        packet_format="simsub",
        make=lambda seat: simsubs.SimSub(seat.contacts, seat.random, config),
        wiring=Wiring.OPEN,
        inject=lambda number, data: Received(OUTSIDE, simsubs.Message(number, data)),
        read=lambda packet: _SIMSUB_NAMES[type(packet)],
        names=tuple(name for (name,) in _SIMSUB_NAMES.values()),
        size=_simsub_size,
        neighbours=neighbours,
        tactics=tactics.simsub(),
    )


def _simsub_size(packet: simsubs.Packet) -> int:
    if type(packet) is simsubs.Message:
        return 2 * _HEADER + len(packet.data)
    if isinstance(packet, simsubs.IHave | simsubs.IWant):
        return _HEADER * (1 + len(packet.ids))
    return _HEADER


def floodsub(config: floodsubs.Config | None = None) -> RouterKind:
    """Return floodsub, which sends all messages to all peers.

    That peers say which topics they are in belongs to connecting, and has no row.
    """
    number = _numbers()

    def make(seat: Seat) -> floodsubs.FloodSub:
        return floodsubs.FloodSub(Anonymous(), config, id_of=number)

    def neighbours(router: floodsubs.FloodSub) -> Collection[Any]:
        return router.members(TOPIC)

    return RouterKind(
        name="floodsub",
        packet_format=_LIBP2P,
        make=make,
        wiring=Wiring.DIALLED,
        inject=lambda number, data: Publish((TOPIC,), data),
        read=_read_rpc,
        names=("pubsub.connect", "pubsub.publish"),
        size=_rpc_size,
        neighbours=neighbours,
        tactics=tactics.floodsub(TOPIC),
        opening=(Join(TOPIC),),
        protocol=FLOODSUB,
    )


def gossipsub(config: GossipsubConfig | None = None) -> RouterKind:
    """Return gossipsub 1.0. Announcements of topics belong to connecting here, too, and have no row."""

    def neighbours(router: GossipSub) -> Collection[Any]:
        return router.mesh(TOPIC)

    number = _numbers()

    def make(seat: Seat) -> GossipSub:
        return GossipSub(seat.node, seat.random, Anonymous(), config, id_of=number)

    return RouterKind(
        name="gossipsub",
        packet_format=_LIBP2P,
        make=make,
        wiring=Wiring.DIALLED,
        inject=lambda number, data: Publish((TOPIC,), data),
        read=_read_rpc,
        names=tuple(name for (name,) in _SIMSUB_NAMES.values()),
        size=_rpc_size,
        neighbours=neighbours,
        tactics=tactics.gossipsub(TOPIC),
        opening=(Join(TOPIC),),
        protocol=GOSSIPSUB,
    )


def _read_rpc(packet: Rpc) -> Sequence[str]:
    names = ["pubsub.publish"] * len(packet.messages)
    control = packet.control
    if control is not None:
        names += ["gossipsub.ihave"] * len(control.ihave)
        # A packet has one at most, with all that is asked for.
        names += ["gossipsub.iwant"] * bool(control.iwant)
        names += ["gossipsub.graft"] * len(control.graft)
        names += ["gossipsub.prune"] * len(control.prune)
    return names


def _numbers() -> Callable[[Message], bytes]:
    """Return a function that gives messages ids: all nodes that are given one at once give it the same.

    An id is one object for all nodes, since a million copies of a message are recognised by it.
    """

    @lru_cache(maxsize=_REMEMBERED)
    def head(data: bytes) -> bytes:
        return data[:NUMBER_BYTES]

    def number(message: Message) -> bytes:
        return head(message.data)

    return number


def _rpc_size(packet: Rpc) -> int:
    return _message_size(len(packet.messages[0].data)) if packet.is_message else _encoded_size(packet)


@cache
def _message_size(length: int) -> int:
    """Return the bytes of a packet with one message: nearly all packets of a run are of one size."""
    return _encoded_size(Rpc((Message((TOPIC,), bytes(length)),)))


@lru_cache(maxsize=_REMEMBERED)
def _encoded_size(packet: Rpc) -> int:
    """Return the bytes of a packet; many say the same as others before."""
    return sum(map(len, wire.encode(packet)))


_EPISUB_NAMES: dict[type, tuple[str]] = {
    episubs.Gossip: ("pubsub.publish",),
    episubs.Graft: ("episub.graft",),
    episubs.Prune: ("episub.prune",),
    episubs.IHave: ("episub.ihave",),
    episubs.GetNodes: ("episub.getnodes",),
    episubs.Nodes: ("episub.nodes",),
    episubs.GetTopics: ("episub.gettopics",),
    episubs.Topics: ("episub.topics",),
    episubs.Join: ("episub.join",),
    episubs.ForwardJoin: ("episub.forwardjoin",),
    episubs.Neighbor: ("episub.neighbor",),
    episubs.Disconnect: ("episub.disconnect",),
    episubs.Leave: ("episub.leave",),
    episubs.Shuffle: ("episub.shuffle",),
    episubs.ShuffleReply: ("episub.shufflereply",),
}
_PEER = 40  # bytes of a peer's id, with its head
_NUMBER = 9  # bytes of an integer, at most


def episub(config: EpisubConfig | None = None) -> RouterKind:
    """Return Episub, with the drawn nodes as contacts."""
    # A node that comes back goes on above the sequence ids that it had.
    starts = count()

    def make(seat: Seat) -> Episub:
        return Episub(seat.node, seat.contacts, seat.random, config, sequence=next(starts) << 32, name=_outside)

    def neighbours(router: Episub) -> Collection[Any]:
        return router.eager

    return RouterKind(
        name="episub",
        packet_format="episub",
        make=make,
        wiring=Wiring.OWN,
        inject=lambda number, data: Publish(("",), data),
        read=lambda packet: _EPISUB_NAMES[type(packet.message)],
        names=tuple(name for (name,) in _EPISUB_NAMES.values()),
        size=_episub_size,
        neighbours=neighbours,
        tactics=tactics.episub("", (config or EpisubConfig()).random_links),
        opening=(Join(""),),
    )


def _outside(data: bytes) -> tuple[int, int]:
    """Return the id of a message, likewise: as if somebody outside had published it."""
    return OUTSIDE, int.from_bytes(data[:NUMBER_BYTES], "big")


def _episub_size(packet: episubs.Envelope) -> int:
    """As `episub.encoding` writes it, with ids of libp2p's length, rounded up."""
    message = packet.message
    size = _PEER + 2 * _NUMBER
    match message:
        case episubs.Gossip():
            size += _PEER + 2 * _NUMBER + len(message.data)
        case episubs.IHave(ids) | episubs.Graft(ids):
            size += len(ids) * (_PEER + 2 * _NUMBER)
        case episubs.Join() | episubs.ForwardJoin() | episubs.Leave():
            size += _PEER + _NUMBER
        case episubs.Neighbor(peers) | episubs.Nodes(peers) | episubs.ShuffleReply(peers):
            size += len(peers) * _PEER + _NUMBER
        case episubs.Shuffle(peers=peers):
            size += (1 + len(peers)) * _PEER + _NUMBER
    return size


KINDS: dict[str, Callable[[], RouterKind]] = {
    "simsub": simsub,
    "floodsub": floodsub,
    "gossipsub": gossipsub,
    "episub": episub,
}
"""What there is, by name, with its default parameters."""


def kind_named(name: str) -> RouterKind:
    """Return a kind of routers with its default parameters.

    Raises:
        ScenarioError: there is none of this name.
    """
    if name not in KINDS:
        raise ScenarioError(f"there is no router {name!r}: expected {', '.join(KINDS)}")
    return KINDS[name]()
