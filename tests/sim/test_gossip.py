"""`gossiplog.sim.gossip`."""

from __future__ import annotations

from collections.abc import Hashable

from gossiplog.protocol.broadcast_events import Gossip, PeerId
from gossiplog.sim.gossip import FloodGossip, GossipPacket


class Bench:
    def __init__(self) -> None:
        self.sent: list[tuple[PeerId, bytes]] = []
        self.held: list[tuple[PeerId, bytes, Hashable]] = []
        self.cut: list[PeerId] = []
        self.router = FloodGossip(
            lambda neighbour, packet: self.sent.append((neighbour, packet.key)),
            lambda source, key, value, ticket: self.held.append((source, key, ticket)),
            lambda neighbour, reason: self.cut.append(neighbour),
        )
        for neighbour in "abc":
            self.router.add(neighbour)


def test_own_messages_go_to_all_once() -> None:
    bench = Bench()
    bench.router.remove("b")
    bench.router.publish(b"1", b"")
    bench.router.publish(b"1", b"")
    assert bench.sent == [("a", b"1"), ("c", b"1")]


def test_others_messages_wait_for_their_validation() -> None:
    bench = Bench()
    for key, answer in ((b"1", Gossip.ACCEPT), (b"2", Gossip.IGNORE), (b"3", Gossip.REJECT)):
        bench.router.receive("a", GossipPacket(key, b""))
        bench.router.receive("b", GossipPacket(key, b""))
        assert bench.held.pop() == ("a", key, key)
        assert bench.held == []
        bench.router.validated("a", key, answer)
        bench.router.validated("a", key, answer)
    assert bench.sent == [("b", b"1"), ("c", b"1")]


def test_strangers_are_not_listened_to() -> None:
    bench = Bench()
    bench.router.receive("x", GossipPacket(b"1", b""))
    assert bench.held == []


def test_who_sends_invalid_messages_again_and_again_is_cut_off() -> None:
    bench = Bench()
    for number in range(3):
        assert bench.cut == []
        bench.router.receive("a", GossipPacket(b"%d" % number, b""))
        bench.router.validated("a", b"%d" % number, Gossip.REJECT)
    assert bench.cut == ["a"]
