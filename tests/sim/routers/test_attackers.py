"""`gossiplog.sim.routers.attackers`: what a hostile node does, whatever it speaks."""

from __future__ import annotations

from random import Random

import pytest

from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub.episub import messages as episubs
from gossiplog.pubsub.events import (
    Connect,
    ConnectFailed,
    Join,
    PeerConnected,
    PeerDisconnected,
    Received,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.sim.routers.attackers import Hostile
from gossiplog.sim.routers.attacks import SPAM_SECONDS
from gossiplog.sim.routers.kinds import KINDS, RouterKind, Seat, episub, floodsub, gossipsub, simsub


def hostile(kind: RouterKind, spam: int | None = None) -> Hostile:
    """Number 50, which attacks 3 and 4."""
    return Hostile(Seat(50, (3, 4), Random(1)), kind, spam)


def test_a_node_turns_to_its_contacts_in_the_way_of_its_kind() -> None:
    assert hostile(simsub()).start(0.0) == [Send((3, 4), simsubs.Greeting()), Send((3, 4), simsubs.Graft())]
    assert hostile(episub()).start(0.0) == [Connect(3), Connect(4)]
    # The simulation connects them.
    assert hostile(floodsub()).start(0.0) == hostile(gossipsub()).start(0.0) == []


@pytest.mark.parametrize("name", ["floodsub", "gossipsub", "episub"])
def test_all_connected_nodes_are_asked(name: str) -> None:
    kind = KINDS[name]()
    (order,) = hostile(kind).handle(PeerConnected(9, kind.protocol), 1.0)
    assert order == Send((9,), kind.tactics.seal(50, 0, kind.tactics.ask[0]))


def test_packets_are_answered_with_numbers_that_grow() -> None:
    node = hostile(episub())
    refusal = Received(3, episubs.Envelope(3, 7, episubs.Disconnect()))
    sent = [send.packet for _ in range(2) for send in node.handle(refusal, 1.0)]
    assert sent == [episubs.Envelope(50, number, episubs.Neighbor(())) for number in range(2)]


def test_messages_are_not_passed_on() -> None:
    node = hostile(simsub())
    node.start(0.0)
    assert not node.handle(Received(3, simsubs.Message(1, bytes(64))), 1.0)


def test_connections_that_end_are_made_again() -> None:
    node = hostile(episub())
    for event in (ConnectFailed(3), PeerDisconnected(3)):
        assert node.handle(event, 5.0) == (SetTimer(3, 6.0),)
        assert node.handle(TimerExpired(3), 6.0) == (Connect(3),)
    assert node.handle(PeerDisconnected(9), 5.0) == ()
    assert hostile(gossipsub()).handle(PeerDisconnected(3), 5.0) == ()


def test_what_a_node_has_no_use_for() -> None:
    assert hostile(gossipsub()).handle(Join("simulation"), 0.0) == ()


def test_spam_goes_to_all_peers_from_time_to_time_and_is_never_the_same() -> None:
    node = hostile(gossipsub(), spam=100)
    (timer,) = node.start(10.0)
    assert 10.0 <= timer.at <= 10.0 + SPAM_SECONDS
    assert node.handle(TimerExpired(timer.timer), 12.0) == [SetTimer(timer.timer, 12.0 + SPAM_SECONDS)]
    for peer in (3, 4, 9):
        node.handle(PeerConnected(peer), 12.0)
    node.handle(PeerDisconnected(9), 12.0)
    sent = [node.handle(TimerExpired(timer.timer), now)[0] for now in (22.0, 32.0)]
    assert [send.peers for send in sent] == [(3, 4), (3, 4)]
    first, second = (send.packet.messages[0].data for send in sent)
    assert len(first) == len(second) == 100
    assert first != second
    assert first[:1] == b"\xff"
