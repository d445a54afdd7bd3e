"""`gossiplog.net.routing.kinds`: what frames of strangers may hold, and what a packet costs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.errors import ProtocolError
from gossiplog.net.routing.kinds import (
    CHANGE_COST,
    MAX_MESSAGES,
    ROUTERS,
    Links,
    RouterKind,
    episub,
    floodsub,
    gossipsub,
    kind_named,
)
from gossiplog.protocol.wire import FrameReader
from gossiplog.pubsub.episub import messages
from gossiplog.pubsub.episub.messages import Envelope, Gossip, Graft, IHave, Neighbor
from gossiplog.pubsub.events import Join, PeerConnected, Publish, Received, Send
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.pubsub.log_routers import content_name
from gossiplog.pubsub.rpc import GOSSIPSUB, Control, Message, Rpc, Subscription
from gossiplog.pubsub.rpc import IHave as Announced
from gossiplog.reference.multiformats import base58_encode
from tests.strategies import repeatable

TOPIC = "t"
OWN = base58_encode(b"\x00\x24\x08\x01\x12\x20" + bytes(32))
OTHER = base58_encode(b"\x00\x24\x08\x01\x12\x20" + bytes([7] * 32))
ME = b"\x00\x24\x08\x01\x12\x20" + bytes(32)


def kinds() -> list[RouterKind]:
    return [gossipsub(GossipConfig()), floodsub(), episub()]


def frames(kind: RouterKind, packet: Any) -> list[bytes]:
    reader = FrameReader(kind.max_frame)
    reader.feed(kind.encode(packet))
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    assert reader.held == 0
    return found


def test_there_is_a_kind_for_each_name() -> None:
    found = {name: kind_named(name, TOPIC) for name in ROUTERS}
    assert found.pop("libp2p") is None
    assert {name: kind.name for name, kind in found.items() if kind is not None} == {name: name for name in found}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("other", TOPIC), "router is 'other'; expected one of libp2p, gossipsub, floodsub, episub"),
        (("floodsub", TOPIC, GossipConfig()), "gossip has parameters of gossipsub, and the router is 'floodsub'"),
        (("episub", TOPIC, GossipConfig()), "gossip has parameters of gossipsub"),
        (("episub", "t" * 257), "announces topics of 256 bytes at most"),
    ],
)
def test_what_does_not_go_together_is_named(arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        kind_named(*arguments)


@pytest.mark.parametrize("kind", kinds()[:2], ids=lambda kind: kind.name)
def test_packets_of_pubsub_come_back_with_their_cost(kind: RouterKind) -> None:
    message = Message((TOPIC,), bytes(1000))
    plain = Rpc((message, message))
    (frame,) = frames(kind, plain)
    received = kind.decode(frame)
    assert (received.packet, received.messages) == (plain, (bytes(1000), bytes(1000)))
    # Two messages and the packet, and what is not data.
    assert received.cost == 3 * 32 + len(frame) - 2000
    control = Control((Announced(TOPIC, (bytes(32), bytes(32))),), (bytes(32),), (TOPIC,), (TOPIC,))
    busy = Rpc(subscriptions=(Subscription(TOPIC, True),), control=control)
    (frame,) = frames(kind, busy)
    received = kind.decode(frame)
    assert (received.packet, received.messages) == (busy, ())
    # A subscription, a GRAFT and a PRUNE change something.
    assert received.cost == 32 * (1 + 1 + 3 + 1 + 2) + 3 * CHANGE_COST + len(frame)


def test_too_many_messages_in_a_packet_are_refused() -> None:
    kind = floodsub()
    (frame,) = frames(kind, Rpc((Message((TOPIC,), b""),) * MAX_MESSAGES))
    assert kind.decode(frame).messages == (b"",) * MAX_MESSAGES
    (frame,) = frames(kind, Rpc((Message((TOPIC,), b""),) * (MAX_MESSAGES + 1)))
    with pytest.raises(ProtocolError, match=f"{MAX_MESSAGES + 1} messages; {MAX_MESSAGES} at most"):
        kind.decode(frame)


def test_packets_of_episub_come_back_with_their_cost() -> None:
    kind, (source, number) = episub(), content_name(b"data")
    packet = Envelope(ME, 1, Gossip(source, 1, number, b"data"))
    (frame,) = frames(kind, packet)
    received = kind.decode(frame)
    assert (received.packet, received.messages, received.cost) == (packet, (b"data",), len(frame) - 4 + 32)
    for message, items in (
        (IHave((((source, number), 1),) * 3), 3),
        (Graft(((source, number),)), 1),
        (Neighbor((ME,)), 1),
    ):
        (frame,) = frames(kind, Envelope(ME, 1, message))
        received = kind.decode(frame)
        assert (received.messages, received.cost) == ((), len(frame) + CHANGE_COST + 32 * (1 + items))


@pytest.mark.parametrize("id", [(b"another", 0), (content_name(b"data")[0], 1)])
def test_a_message_under_anothers_id_is_refused(id: tuple[bytes, int]) -> None:
    """Or it would be taken for the message that has the id, which would then be a copy."""
    kind = episub()
    (frame,) = frames(kind, Envelope(ME, 1, Gossip(id[0], 1, id[1], b"data")))
    with pytest.raises(ProtocolError, match="under an id that is not made of it"):
        kind.decode(frame)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
@repeatable(300)
@given(data=st.data())
def test_whatever_a_frame_holds_is_read_or_refused(kind: RouterKind, data: st.DataObject) -> None:
    good = {
        "gossipsub": Rpc(
            (Message((TOPIC,), b"data"),), control=Control((Announced(TOPIC, (bytes(32),)),), graft=(TOPIC,))
        ),
        "floodsub": Rpc((Message((TOPIC,), b"data"),), (Subscription(TOPIC, True),)),
        "episub": Envelope(ME, 1, Neighbor((ME, b"other"))),
    }
    (frame,) = frames(kind, good[kind.name])
    position = data.draw(st.integers(0, len(frame)))
    changed = data.draw(st.binary(max_size=8))
    frame = data.draw(st.sampled_from([frame[:position] + changed + frame[position + 1 :], changed * 4]))
    try:
        received = kind.decode(frame)
    except ProtocolError:
        return
    assert received.cost >= 32
    router = kind.make(OWN, Random(1), TOPIC)
    router.start(0.0)
    router.handle(Join(TOPIC), 0.0)
    router.handle(PeerConnected(kind.peer_of(OTHER), kind.protocols[0]), 0.0)
    for order in router.handle(Received(kind.peer_of(OTHER), received.packet), 1.0):
        if isinstance(order, Send):
            assert kind.encode(order.packet)


def test_links_are_named_as_people_know_peers() -> None:
    other = base58_encode(ME[:-1] + b"\x01")
    kind = gossipsub(GossipConfig())
    router = kind.make(OWN, Random(1), TOPIC)
    router.handle(Join(TOPIC), 0.0)
    router.handle(PeerConnected(other, GOSSIPSUB), 0.0)
    router.handle(Received(other, Rpc(subscriptions=(Subscription(TOPIC, True),))), 0.0)
    assert kind.links(router, TOPIC) == Links(frozenset([other]), frozenset())
    router.handle(Received(other, Rpc(control=Control(graft=(TOPIC,)))), 0.0)
    assert kind.links(router, TOPIC) == Links(frozenset([other]), frozenset([other]))
    kind = episub()
    router = kind.make(OWN, Random(1), TOPIC)
    router.handle(Join(TOPIC), 0.0)
    peer = kind.peer_of(other)
    router.handle(PeerConnected(peer), 0.0)
    router.handle(Received(peer, Envelope(peer, 1, Neighbor((ME,)))), 0.0)
    assert kind.links(router, TOPIC) == Links(frozenset([other]), frozenset([other]))
    router.handle(Received(peer, Envelope(peer, 2, messages.Prune())), 0.0)
    assert kind.links(router, TOPIC) == Links(frozenset([other]), frozenset())
    assert kind.name_of(peer) == other


def test_what_two_publish_is_one_message() -> None:
    kind = episub()
    sent = []
    for _ in range(2):
        router = kind.make(OWN, Random(1), TOPIC)
        router.handle(Join(TOPIC), 0.0)
        delivery, *_ = router.handle(Publish((TOPIC,), b"data"), 0.0)
        sent.append(delivery.id)
    assert sent == [content_name(b"data")] * 2
