"""`gossiplog.sim.routers.overlay`."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gossiplog.pubsub.events import ConnectFailed, PeerConnected, PeerDisconnected, Received, RoundTrip
from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import UniformLatency
from gossiplog.sim.routers.overlay import Overlay
from gossiplog.sim.routers.plan import Conditions, Partition

NODES = 4


class World:
    """Nodes that note what they are told; each pair is 1 s apart."""

    def __init__(
        self, open: bool = False, conditions: Conditions | None = None, seed: int = 1, lasting: bool = False
    ) -> None:
        self.kernel = Kernel(seed)
        self.told: list[tuple[float, int, Any]] = []
        self.losses = 0
        self.breaks: list[tuple[int, int]] = []
        self.down: set[int] = set()
        latency = UniformLatency(Random(1), 1.0, 1.0)
        self.overlay = Overlay(
            self.kernel,
            self,
            NODES,
            latency,
            conditions or Conditions(),
            Random(seed),
            open=open,
            lasting=lasting,
        )

    def up(self, node: int) -> bool:
        return node not in self.down

    def protocol(self, node: int) -> str:
        return f"protocol of {node}"

    def receive(self, node: int, event: Any) -> None:
        self.told.append((round(self.kernel.now, 6), node, event))

    def broken(self, node: int, peer: int) -> None:
        self.breaks.append((node, peer))

    def lost(self, packet: Any) -> None:
        self.losses += 1

    def connect(self, *pairs: tuple[int, int]) -> World:
        """Opens connections, which takes 2 s."""
        for source, target in pairs:
            self.overlay.connect(source, target)
        self.run(2.0)
        self.told.clear()
        return self

    def run(self, seconds: float) -> list[tuple[float, int, Any]]:
        """All that nodes have been told so far, after so many more seconds."""
        self.kernel.run(self.kernel.now + seconds)
        return self.told


def test_open_links_reach_everybody() -> None:
    world = World(open=True)
    world.overlay.send(0, [1, 3], "hello", 5)
    assert world.run(2.0) == [(1.0, 1, Received(0, "hello")), (1.0, 3, Received(0, "hello"))]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_connection_takes_a_round_trip_and_both_ends_are_told(lasting: bool) -> None:
    world = World(lasting=lasting)
    world.overlay.send(0, [1], "too early", 9)
    world.overlay.connect(0, 1)
    world.overlay.connect(1, 0)
    told = [(2.0, 1, PeerConnected(0, "protocol of 0")), (2.0, 0, PeerConnected(1, "protocol of 1"))]
    assert world.run(3.0) == told
    assert world.losses == 1
    world.overlay.send(1, [0, 2], "hello", 5)
    assert world.run(2.0)[2:] == [(4.0, 0, Received(1, "hello"))]
    assert world.losses == 2


def test_a_connection_that_does_not_come_about() -> None:
    world = World()
    world.down = {1}
    world.overlay.connect(0, 1)
    assert world.run(3.0) == [(2.0, 0, ConnectFailed(1))]
    assert world.breaks == [(0, 1)]
    world.down = {0}
    world.overlay.connect(0, 1)
    assert len(world.run(3.0)) == 1


def test_what_was_sent_before_a_disconnect_arrives() -> None:
    world = World().connect((0, 1))
    world.overlay.send(0, [1], "before", 6)
    world.overlay.disconnect(0, 1)
    world.overlay.disconnect(0, 2)
    world.overlay.send(1, [0], "too late", 8)
    told = [(2.0, 0, PeerDisconnected(1)), (3.0, 1, Received(0, "before")), (3.0, 1, PeerDisconnected(0))]
    assert world.run(3.0) == told
    assert world.losses == 1


def test_a_disconnect_waits_for_what_is_held_up() -> None:
    world = World(conditions=Conditions(bandwidth=1.0)).connect((0, 1))
    world.overlay.send(0, [1], "before", 6)
    world.overlay.disconnect(0, 1)
    assert world.run(20.0)[1:] == [(9.0, 1, Received(0, "before")), (9.0, 1, PeerDisconnected(0))]


def test_round_trips() -> None:
    world = World().connect((0, 1))
    world.overlay.ping(0, 1)
    world.overlay.ping(0, 2)
    assert world.run(3.0) == [(2.0, 0, RoundTrip(2, None)), (4.0, 0, RoundTrip(1, 2.0))]
    world.overlay.ping(0, 1)
    world.down = {1}
    assert world.run(3.0)[2:] == [(7.0, 0, RoundTrip(1, None))]


def test_peers_notice_that_a_node_is_down() -> None:
    world = World().connect((0, 1), (2, 0))
    world.down = {0}
    world.overlay.stop(0)
    told = world.run(1.0)
    assert sorted(node for _, node, _ in told) == [1, 2]
    assert all(event == PeerDisconnected(0) and 2.0 <= at <= 2.5 for at, _, event in told)
    assert sorted(world.breaks) == [(1, 0), (2, 0)]


def test_a_partition_breaks_what_crosses_it_until_it_heals() -> None:
    world = World(conditions=Conditions(partitions=(Partition(2.0, 9.0),))).connect((0, 1), (2, 3))
    world.overlay.send(0, [1], "under way", 9)
    world.overlay.part({0: 1})
    told = world.run(1.5)
    assert [(node, event) for _, node, event in sorted(told, key=lambda item: item[1])] == [
        (0, PeerDisconnected(1)),
        (1, PeerDisconnected(0)),
    ]
    assert world.losses == 1
    world.overlay.send(2, [3], "hello", 5)
    world.overlay.connect(0, 1)
    assert world.run(2.5)[2:] == [(4.5, 3, Received(2, "hello")), (5.5, 0, ConnectFailed(1))]
    world.overlay.part({})
    world.overlay.connect(0, 1)
    assert len(world.run(2.5)) == 6


def test_a_partition_of_open_links_loses_packets() -> None:
    world = World(open=True, conditions=Conditions(partitions=(Partition(1.0, 2.0),)))
    world.overlay.part({0: 1, 1: 1})
    world.overlay.send(0, [1, 2], "hello", 5)
    assert world.run(2.0) == [(1.0, 1, Received(0, "hello"))]
    assert world.losses == 1


def test_losses_are_as_probable_as_they_are_meant_to_be() -> None:
    world = World(open=True, conditions=Conditions(loss=0.3))
    for _ in range(1000):
        world.overlay.send(0, [1, 2, 3], "x", 1)
    assert len(world.run(2.0)) + world.losses == 3000
    assert 800 < world.losses < 1000


def test_bandwidth_is_of_each_node() -> None:
    world = World(open=True, conditions=Conditions(bandwidth=10.0))
    world.overlay.send(0, [1, 2], "x", 5)
    world.overlay.send(3, [1], "y", 20)
    assert [(at, node) for at, node, _ in world.run(9.0)] == [(1.5, 1), (2.0, 2), (3.0, 1)]


def test_lag_is_of_all_nodes_together() -> None:
    """Seed 002, 19."""
    world = World(open=True, conditions=Conditions(lag=0.5))
    world.overlay.send(0, [1, 2], "x", 5)
    world.overlay.send(3, [1], "y", 20)
    assert [(at, node) for at, node, _ in world.run(9.0)] == [(1.5, 1), (2.0, 2), (2.5, 1)]
    world.overlay.send(0, [1], "z", 1)
    assert world.run(9.0)[-1] == (10.5, 1, Received(0, "z"))


def test_jitter_delays_and_keeps_the_order_of_a_connection() -> None:
    world = World(conditions=Conditions(jitter=0.5)).connect((0, 1))
    for number in range(100):
        world.overlay.send(0, [1], number, 1)
    told = world.run(2.0)
    assert [event.packet for _, _, event in told] == list(range(100))
    assert all(3.0 <= at <= 3.5 for at, _, _ in told)
    assert len({at for at, _, _ in told}) > 1
    apart = World(open=True, conditions=Conditions(jitter=0.5))
    for number in range(100):
        apart.overlay.send(0, [1], number, 1)
    assert [event.packet for _, _, event in apart.run(2.0)] != list(range(100))
