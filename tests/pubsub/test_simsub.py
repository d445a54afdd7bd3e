"""`gossiplog.pubsub.simsub`, rule by rule."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gossiplog.pubsub.events import Deliver, Join, PeerId, Received, Send, SetTimer, TimerExpired
from gossiplog.pubsub.simsub import Config, Graft, Greeting, IHave, IWant, Message, Packet, Prune, SimSub


class Node:
    """A router with a clock that its heartbeats move on.

    Attributes:
        router: the router.
        now: the time, in seconds.
        beat_at: when the next heartbeat is due.
    """

    def __init__(self, *peers: PeerId, seed: int = 1, config: Config | None = None) -> None:
        self.router = SimSub(peers, Random(seed), config)
        self.now = 100.0
        self.beat_at = 0.0
        self.started = self._sent(self.router.start(self.now))

    def get(self, source: PeerId, packet: Packet) -> list[Any]:
        """What follows from a packet: sends, one for each peer, and deliveries."""
        return self._sent(self.router.handle(Received(source, packet), self.now))

    def beat(self) -> list[Any]:
        """What follows from a heartbeat."""
        self.now = self.beat_at
        return self._sent(self.router.handle(TimerExpired("heartbeat"), self.now))

    def with_mesh(self, size: int) -> Node:
        """After GRAFTs of so many peers."""
        for number in range(size):
            assert self.get(f"m{number}", Graft()) == []
        return self

    def _sent(self, orders: Any) -> list[Any]:
        sent: list[Any] = []
        for order in orders:
            match order:
                case SetTimer("heartbeat", at):
                    self.beat_at = at
                case Send(peers, packet):
                    assert len(set(peers)) == len(peers) > 0
                    sent += [(peer, packet) for peer in peers]
                case _:
                    sent.append(order)
        return sent


def names(count: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_the_parameters_of_2018() -> None:
    """Seed 002, 1."""
    config = Config()
    assert (config.d, config.d_low, config.d_high) == (6, 4, 12)
    assert (config.history_gossip, config.history_length, config.heartbeat_interval) == (3, 120, 1.0)


def test_heartbeats_come_a_second_apart_after_a_first_by_chance() -> None:
    """Seed 002, 1."""
    first = [Node("a", seed=seed).beat_at - 100.0 for seed in range(200)]
    assert all(1.0 <= delay < 2.0 for delay in first)
    assert min(first) < 1.1
    assert max(first) > 1.9
    node = Node("a")
    due = node.beat_at
    node.beat()
    assert node.beat_at == due + 1.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"d_low": 7}, "d_low is 7, d 6, d_high 12; expected 0 <= d_low <= d <= d_high"),
        ({"d_high": 5}, "d_low is 4, d 6, d_high 5"),
        ({"history_gossip": 0}, "history_gossip is 0, history_length 120; expected 1 <= history_gossip"),
        ({"history_gossip": 121}, "history_gossip is 121, history_length 120"),
        ({"heartbeat_interval": 0.0}, r"heartbeat_interval is 0\.0; expected more than 0"),
    ],
)
def test_parameters_that_contradict_each_other(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(**wrong)


def test_six_kinds_of_packets_and_nothing_else_is_heard() -> None:
    """Seed 002, 2."""
    node = Node("a")
    assert node.get("a", Greeting()) == []
    assert node.get("a", IHave((7,))) == [("a", IWant((7,)))]
    assert node.get("a", Message(7, b"seven")) == [Deliver(("",), 7, b"seven", "a")]
    assert node.get("a", IWant((7,))) == [("a", Message(7, b"seven"))]
    assert node.get("a", Graft()) == []
    assert node.get("a", Prune()) == []
    assert node.router.handle(Join("topic"), node.now) == ()
    assert node.router.handle(TimerExpired("another"), node.now) == ()


def test_start_connects_to_the_peers_that_are_not_known() -> None:
    """Seed 002, 3."""
    node = Node("a", "b", "a")
    assert node.started == [("a", Greeting()), ("b", Greeting())]
    assert list(node.router.peers) == ["a", "b"]
    assert node.get("c", Greeting()) == []
    assert node.get("c", Greeting()) == []
    assert list(node.router.peers) == ["a", "b", "c"]
    early = SimSub(["a", "b"], Random(1))
    assert early.handle(Received("a", Greeting()), 0.0) == ()
    assert [order.peers for order in early.start(0.0) if isinstance(order, Send)] == [["b"]]
    assert SimSub([], Random(1)).start(0.0)[0] == SetTimer("heartbeat", 1.0 + Random(1).random())


def test_start_connects_to_any_number_of_peers() -> None:
    """Seed 002, 3."""
    assert Node(*names(40)).started == [(peer, Greeting()) for peer in names(40)]


def test_a_new_message_goes_to_the_whole_mesh_and_into_the_window() -> None:
    """Seed 002, 4: however many there are."""
    node = Node("a").with_mesh(40)
    message = Message(1, b"one")
    assert node.get("a", message)[1:] == [(peer, message) for peer in names(40, "m")]
    assert ("a", IHave((1,))) in node.beat()


def test_all_that_is_missing_is_asked_for_and_all_that_is_asked_for_is_sent() -> None:
    """Seed 002, 5: a hundred ids."""
    node = Node("a")
    ids = tuple(range(100))
    assert node.get("a", IHave(ids)) == [("a", IWant(ids))]
    for id in ids:
        node.get("b", Message(id, b"data"))
    assert node.get("a", IWant(ids)) == [("a", Message(id, b"data")) for id in ids]


def test_a_new_message_is_delivered_and_goes_to_the_mesh_but_not_back() -> None:
    """Seed 002, 4."""
    node = Node("a", "b").with_mesh(3)
    message = Message(1, b"one")
    assert node.get("m1", message) == [Deliver(("",), 1, b"one", "m1"), ("m0", message), ("m2", message)]
    assert node.get("m1", message) == []
    assert node.get("m2", Message(1, b"another")) == []
    assert node.get("a", Message(2, b"two"))[0] == Deliver(("",), 2, b"two", "a")
    assert [peer for peer, _ in node.get("outside", Message(3, b""))[1:]] == names(3, "m")
    assert node.get("a", IWant((1,))) == [("a", message)]


def test_ihave_is_answered_once_for_all_that_is_missing() -> None:
    """Seed 002, 5."""
    node = Node("a")
    node.get("a", Message(2, b"two"))
    assert node.get("a", IHave((1, 2, 3))) == [("a", IWant((1, 3)))]
    assert node.get("a", IHave((2,))) == []
    assert node.get("a", IHave(())) == []


def test_iwant_is_answered_from_all_of_the_history() -> None:
    """Seed 002, 5."""
    node = Node("a")
    node.get("a", Message(1, b"one"))
    for _ in range(10):
        node.beat()
    node.get("a", Message(2, b"two"))
    assert node.get("b", IWant((2, 9, 1))) == [("b", Message(2, b"two")), ("b", Message(1, b"one"))]
    assert node.get("b", IWant((9,))) == []


def test_graft_always_adds_and_prune_removes() -> None:
    """Seed 002, 6."""
    node = Node("a").with_mesh(20)
    assert len(node.router.mesh) == 20
    node.with_mesh(1)
    assert len(node.router.mesh) == 20
    assert node.get("m3", Prune()) == []
    assert node.get("m3", Prune()) == []
    assert node.get("stranger", Prune()) == []
    assert list(node.router.mesh) == [name for name in names(20, "m") if name != "m3"]


@pytest.mark.parametrize(("degree", "known", "added"), [(0, 10, 6), (3, 10, 3), (3, 2, 2), (4, 10, 0), (12, 10, 0)])
def test_a_heartbeat_fills_the_mesh(degree: int, known: int, added: int) -> None:
    """Seed 002, 7."""
    node = Node(*names(known)).with_mesh(degree)
    grafted = node.beat()
    assert len(grafted) == added
    assert all(packet == Graft() and peer in names(known) for peer, packet in grafted)
    assert list(node.router.mesh) == [*names(degree, "m"), *(peer for peer, _ in grafted)]


@pytest.mark.parametrize(("degree", "removed"), [(12, 0), (13, 7), (14, 8), (30, 24)])
def test_a_heartbeat_cuts_the_mesh(degree: int, removed: int) -> None:
    """Seed 002, 7."""
    node = Node(*names(5)).with_mesh(degree)
    pruned = node.beat()
    assert len(pruned) == removed
    assert all(packet == Prune() for _, packet in pruned)
    assert set(node.router.mesh) == set(names(degree, "m")) - {peer for peer, _ in pruned}


def test_a_mesh_is_filled_with_those_outside_it() -> None:
    """Seed 002, 7: although its members are known, too."""
    node = Node(*names(6))
    for peer in names(3):
        node.get(peer, Graft())
    assert {peer for peer, _ in node.beat()} == set(names(6)[3:])


def test_who_is_added_and_who_is_removed_is_left_to_chance() -> None:
    """Seed 002, 7."""
    added = {tuple(peer for peer, _ in Node(*names(10), seed=seed).beat()) for seed in range(20)}
    removed = {tuple(peer for peer, _ in Node(seed=seed).with_mesh(13).beat()) for seed in range(20)}
    assert len(added) > 15
    assert len(removed) > 15


def test_a_message_is_remembered_for_120_heartbeats() -> None:
    """Seed 002, 8."""
    node = Node("a")
    node.get("a", Message(1, b"one"))
    for _ in range(120):
        node.beat()
    assert node.get("a", Message(1, b"one")) == []
    assert node.get("a", IWant((1,))) == [("a", Message(1, b"one"))]
    node.beat()
    assert node.get("a", IWant((1,))) == []
    assert node.get("a", Message(1, b"one"))[0] == Deliver(("",), 1, b"one", "a")


def test_all_messages_of_a_window_are_forgotten_with_it_and_no_others() -> None:
    """Seed 002, 8."""
    node = Node("a")
    for beat in range(122):
        if beat in (0, 60):
            for number in range(9):
                node.get("a", Message(beat + number, b""))
        node.beat()
    assert node.get("a", IWant(tuple(range(100)))) == [("a", Message(60 + number, b"")) for number in range(9)]


def test_gossip_advertises_the_three_newest_windows() -> None:
    """Seed 002, 9."""
    node = Node(*names(3)).with_mesh(4)
    told = []
    for number in range(6):
        if number < 2:
            node.get("m0", Message(number, b""))
        told.append({tuple(sorted(packet.ids)) for _, packet in node.beat()})
    assert told == [{(0,)}, {(0, 1)}, {(0, 1)}, {(1,)}, set(), set()]


def test_gossip_is_drawn_among_all_and_sent_to_those_outside_the_mesh() -> None:
    """Seed 002, 9."""
    counts = []
    for seed in range(200):
        node = Node(*names(14), seed=seed)
        for peer in names(5):
            node.get(peer, Graft())
        node.get("outside", Message(1, b""))
        told = [peer for peer, packet in node.beat() if isinstance(packet, IHave)]
        assert not set(told) & set(names(5))
        counts.append(len(told))
    # 6 of 14 are drawn, of whom 9 are outside the mesh.
    assert 3.5 < sum(counts) / len(counts) < 4.2
    assert max(counts) == 6
    few = Node(*names(3)).with_mesh(4)
    few.get("outside", Message(1, b""))
    assert sorted(peer for peer, _ in few.beat()) == names(3)
    nobody = Node("a").with_mesh(4)
    nobody.get("a", Graft())
    nobody.get("a", Message(1, b""))
    assert nobody.beat() == []
