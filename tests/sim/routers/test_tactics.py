"""`gossiplog.sim.routers.tactics`: honest routers take hostile nodes for what these say that they are."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub.episub import messages as episubs
from gossiplog.pubsub.events import Deliver, PeerConnected, Received, Send
from gossiplog.pubsub.rpc import Control, Rpc, Subscription
from gossiplog.sim.routers import tactics
from gossiplog.sim.routers.kinds import KINDS, TOPIC, RouterKind, Seat

RANDOM = Random(1)
HOSTILE, HONEST = 77, 1


def joined(kind: RouterKind) -> Any:
    """An honest router."""
    router: Any = kind.make(Seat(HONEST, (), Random(1)))
    router.start(0.0)
    for event in kind.opening:
        router.handle(event, 0.0)
    return router


@pytest.mark.parametrize("name", KINDS)
def test_who_asks_is_forwarded_to_and_what_it_publishes_is_delivered(name: str) -> None:
    kind = KINDS[name]()
    router, said = joined(kind), kind.tactics
    router.handle(PeerConnected(HOSTILE, kind.protocol), 1.0)
    for number, packet in enumerate(said.ask):
        router.handle(Received(HOSTILE, said.seal(HOSTILE, number, packet)), 1.0)
    assert list(kind.neighbours(router)) == [HOSTILE]
    spam = said.seal(HOSTILE, 9, said.spam(HOSTILE, 0, b"\xff" * 64))
    assert list(kind.read(spam)) == [kind.payload]
    (delivery,) = (order for order in router.handle(Received(HOSTILE, spam), 2.0) if type(order) is Deliver)
    assert delivery.data == b"\xff" * 64
    published = router.handle(kind.inject(5, bytes(64)), 3.0)
    assert [peer for order in published if type(order) is Send for peer in order.peers] == [HOSTILE]


@pytest.mark.parametrize(
    ("said", "packet", "answer"),
    [
        (tactics.simsub(), simsubs.Prune(), [simsubs.Graft()]),
        (tactics.simsub(), simsubs.Graft(), []),
        (tactics.simsub(), simsubs.IWant((1,)), []),
        (tactics.gossipsub(TOPIC), Rpc(control=Control(prune=(TOPIC,))), [Rpc(control=Control(graft=(TOPIC,)))]),
        (tactics.gossipsub(TOPIC), Rpc(control=Control(graft=(TOPIC,))), []),
        (tactics.gossipsub(TOPIC), Rpc(subscriptions=(Subscription(TOPIC, True),)), []),
        (tactics.floodsub(TOPIC), Rpc(subscriptions=(Subscription(TOPIC, True),)), []),
    ],
)
def test_who_is_pruned_grafts_again(said: tactics.Tactics, packet: Any, answer: list[Any]) -> None:
    assert list(said.answer(HOSTILE, HONEST, packet, RANDOM)) == answer


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (episubs.Disconnect(), [episubs.Neighbor(())]),
        (episubs.Prune(), [episubs.Graft(())]),
        (episubs.Neighbor((3, HOSTILE)), []),
        (episubs.Neighbor((3,)), [episubs.Neighbor((HONEST, 3))]),
        (episubs.Join(HONEST, 4), [episubs.Neighbor((HONEST,))]),
        (episubs.Join(3, 4), []),
        (episubs.GetNodes(), [episubs.Nodes((), 0)]),
        (episubs.GetTopics(), [episubs.Topics(("t",))]),
        (episubs.Gossip(3, 1, 0, b""), []),
        (episubs.IHave((((3, 0), 1),)), []),
        (episubs.Shuffle(3, (4,), 2), []),
    ],
)
def test_answers_of_episub(message: episubs.Message, answer: list[episubs.Message]) -> None:
    packet = episubs.Envelope(HONEST, 0, message)
    assert list(tactics.episub("t", 4).answer(HOSTILE, HONEST, packet, RANDOM)) == answer


def test_a_hostile_node_has_links_enough_to_be_spared_and_none_to_spare() -> None:
    packet = episubs.Envelope(HONEST, 0, episubs.Neighbor(tuple(range(10, 30))))
    (said,) = tactics.episub("t", 4).answer(HOSTILE, HONEST, packet, RANDOM)
    assert said.peers[0] == HONEST
    assert len(set(said.peers)) == 4
    assert set(said.peers[1:]) < set(range(10, 30))
