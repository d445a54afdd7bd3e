"""The kinds of routers that a peer can run by itself: how each is made, what its packets look like, and its links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Literal, TypeAlias, cast, get_args

from gossiplog.errors import DecodeError, ProtocolError
from gossiplog.protocol import gossip
from gossiplog.protocol.wire import MAX_FRAME
from gossiplog.pubsub import wire
from gossiplog.pubsub.episub import encoding
from gossiplog.pubsub.episub.encoding import MAX_DATA, MAX_PACKET, topic_fits
from gossiplog.pubsub.episub.messages import Envelope, Gossip
from gossiplog.pubsub.episub.router import Episub
from gossiplog.pubsub.events import PeerId, Router
from gossiplog.pubsub.floodsub import FloodSub
from gossiplog.pubsub.gossipsub import GossipConfig, GossipSub, Peering
from gossiplog.pubsub.log_routers import content_name, make_episub, make_floodsub, make_gossipsub
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB, Rpc
from gossiplog.reference.multiformats import base58_decode, base58_encode, write_uvarint

RouterName: TypeAlias = Literal["libp2p", "gossipsub", "floodsub", "episub"]
"""`libp2p` is the host's own gossip, gossipsub 1.1 of rust-libp2p; the others are those of `gossiplog.pubsub`.

Examples:
    >>> gossiplog.Peer(log, router="gossipsub")
    <Peer ...>
"""
ROUTERS: tuple[RouterName, ...] = get_args(RouterName)

MAX_MESSAGES = 4096
"""Messages in a packet, as many as a host reads (rust/net/src/mesh/gossip.rs)."""
_REMEMBERED = 4096  # peers' names
_ITEM_COST = 32
"""Bytes that a packet and each thing in it count as, beside their own: they cost work, however small they are."""
CHANGE_COST = 640
"""Likewise of what changes how a peer stands with the router, some 40 microseconds of work: so what may be caused at
once (`sessions.CONTROL_BYTES`) is a second of it."""


@dataclass(frozen=True, slots=True)
class Links:
    """How a router stands with its peers, by name.

    Attributes:
        subscribed: take messages by gossip: are in the topic, or neighbours in an overlay.
        mesh: get messages in full, and not announcements alone.
    """

    subscribed: frozenset[str] = frozenset()
    mesh: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """What came in a frame.

    Attributes:
        packet: for the router.
        messages: the data of those in it.
        cost: bytes beside messages, and work as bytes.
    """

    packet: Any
    messages: tuple[bytes, ...]
    cost: int


@dataclass(frozen=True, slots=True)
class RouterKind:
    """How to run one kind of routers.

    Attributes:
        name: of the kind.
        protocols: that its streams speak, the one that is proposed first coming first.
        make: makes a router, from the name of this peer, the source of random numbers, and the topic.
        encode: a packet as frames.
        decode: what a frame holds; raises ProtocolError.
        links: how a router stands with its peers, in a topic.
        peer_of: the name by which a router knows a peer.
        name_of: inverse of `peer_of`.
        max_frame: bytes of the longest frame that is read, its length not counted.
        max_data: bytes of the longest message.
        chooses_neighbours: whether the router asks for connections, and so does not speak with all who are connected.
        reports_unsent: whether it is to be notified of packets that found no room; otherwise the exchange ends.
        idle_streams: streams to a peer that stay open for as long as the connection does.
    """

    name: RouterName
    protocols: tuple[str, ...]
    make: Callable[[str, Random, str], Router]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], DecodedFrame]
    links: Callable[[Any, str], Links]
    peer_of: Callable[[str], PeerId]
    name_of: Callable[[PeerId], str]
    max_frame: int
    max_data: int
    chooses_neighbours: bool
    reports_unsent: bool
    idle_streams: int


def gossipsub(config: GossipConfig) -> RouterKind:
    """Return gossipsub 1.0, which speaks with gossipsub of any version, and with floodsub."""

    def links(router: GossipSub, topic: str) -> Links:
        found = {str(peer): peering for peer, of, peering in router.peerings() if of == topic}
        full = (name for name, peering in found.items() if peering is Peering.FULL_MESSAGE)
        return Links(frozenset(found), frozenset(full))

    return _pubsub_kind(
        "gossipsub",
        (GOSSIPSUB, FLOODSUB),
        lambda own, random, topic: make_gossipsub(own, random, config),
        links,
        reports_unsent=True,
    )


def floodsub() -> RouterKind:
    """Return floodsub: each message goes to all peers, so all are in the mesh."""

    def links(router: FloodSub, topic: str) -> Links:
        members = frozenset(map(str, router.members(topic)))
        return Links(members, members)

    return _pubsub_kind(
        "floodsub", (FLOODSUB,), lambda own, random, topic: make_floodsub(random), links, reports_unsent=False
    )


def _pubsub_kind(
    name: RouterName,
    protocols: tuple[str, ...],
    make: Callable[[str, Random, str], Router],
    links: Callable[[Any, str], Links],
    *,
    reports_unsent: bool,
) -> RouterKind:
    """Return a router whose packets are the RPCs of libp2p's pubsub, and which knows peers by their ids in base58."""
    return RouterKind(
        name=name,
        protocols=protocols,
        make=make,
        encode=_encode_rpc,
        decode=_decode_rpc,
        links=links,
        peer_of=lambda name: name,
        name_of=str,
        max_frame=MAX_FRAME,
        max_data=gossip.MAX_DATA,
        chooses_neighbours=False,
        reports_unsent=reports_unsent,
        # One is pushed on, and two have its packets.
        idle_streams=3,
    )


def episub() -> RouterKind:
    """Return episub: the eager links are the mesh, and the others of the overlay are subscribed."""

    def links(router: Episub, topic: str) -> Links:
        eager = frozenset(map(_episub_name, router.eager))
        return Links(eager.union(map(_episub_name, router.lazy)), eager)

    return RouterKind(
        name="episub",
        protocols=(encoding.PROTOCOL,),
        make=lambda own, random, topic: make_episub(base58_decode(own), random, topic),
        encode=_encode_episub,
        decode=_decode_episub,
        links=links,
        peer_of=base58_decode,
        name_of=_episub_name,
        max_frame=MAX_PACKET,
        max_data=MAX_DATA,
        chooses_neighbours=True,
        reports_unsent=False,
        idle_streams=1,
    )


def kind_named(name: RouterName, topic: str, config: GossipConfig | None = None) -> RouterKind | None:
    """Return a kind of routers; None for the host's own gossip.

    Args:
        name: of the kind.
        topic: that its packets are about.
        config: the parameters of gossipsub.

    Raises:
        ValueError: there is none of this name, it cannot name the topic, or parameters are given that it does not have.
    """
    if name not in ROUTERS:
        raise ValueError(f"router is {name!r}; expected one of {', '.join(ROUTERS)}")
    if config is not None and name in ("floodsub", "episub"):
        raise ValueError(f"gossip has parameters of gossipsub, and the router is {name!r}: leave one of them out")
    if name == "episub" and not topic_fits(topic):
        raise ValueError(f"topic {topic!r}: an episub router announces topics of {encoding.MAX_TOPIC} bytes at most")
    match name:
        case "gossipsub":
            return gossipsub(config or GossipConfig())
        case "floodsub":
            return floodsub()
        case "episub":
            return episub()
        case "libp2p":
            return None


def _encode_rpc(packet: Rpc) -> bytes:
    return b"".join(wire.encode(packet))


def _decode_rpc(frame: bytes) -> DecodedFrame:
    packet = wire.decode(frame)
    if len(packet.messages) > MAX_MESSAGES:
        raise ProtocolError(f"a packet with {len(packet.messages)} messages; {MAX_MESSAGES} at most are accepted")
    control = packet.control
    messages = tuple(message.data for message in packet.messages)
    items, changes = len(messages) + len(packet.subscriptions), len(packet.subscriptions)
    if control is not None:
        changes += len(control.graft) + len(control.prune)
        items += sum(1 + len(ihave.ids) for ihave in control.ihave)
        items += len(control.iwant) + len(control.graft) + len(control.prune)
    cost = len(frame) - sum(map(len, messages)) + _ITEM_COST * (1 + items) + CHANGE_COST * changes
    return DecodedFrame(packet, messages, cost)


def _encode_episub(packet: Envelope) -> bytes:
    data = encoding.encode(packet)
    return write_uvarint(len(data)) + data


def _decode_episub(frame: bytes) -> DecodedFrame:
    try:
        packet = encoding.decode(frame)
    except DecodeError as error:
        raise ProtocolError(f"a frame that is no packet of episub's: {error.reason}") from error
    message = packet.message
    if not isinstance(message, Gossip):
        return DecodedFrame(packet, (), len(frame) + CHANGE_COST + _ITEM_COST * (1 + _items(message)))
    # Under another's id it would keep the message that has it from being delivered.
    if (message.source, message.number) != content_name(message.data):
        raise ProtocolError(
            f"a message of {len(message.data)} bytes under an id that is not made of it, the SHA-256 of its data and 0"
        )
    return DecodedFrame(packet, (message.data,), len(frame) - len(message.data) + _ITEM_COST)


def _items(message: Any) -> int:
    """Return how many things a message of episub's names."""
    lists = (getattr(message, name, ()) for name in ("peers", "topics", "summary", "msgs"))
    return sum(map(len, lists))


@lru_cache(maxsize=_REMEMBERED)
def _episub_name(peer: PeerId) -> str:
    return base58_encode(cast(bytes, peer))
