"""Routers among each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.pubsub.authorship import Named
from gossiplog.pubsub.events import Join, Leave, PeerId, Publish
from gossiplog.pubsub.floodsub import FloodSub
from gossiplog.pubsub.gossipsub import GossipSub
from gossiplog.pubsub.rpc import FLOODSUB, Rpc
from tests.pubsub.gossipsub.network import Network, meshes
from tests.pubsub.gossipsub.node import TOPIC, names
from tests.strategies import repeatable

NODES = names(5, "node")
PAIRS = list(combinations(NODES, 2))
CHANGES = ["join", "leave", "join and leave", "leave and join"]


def script(random: Random) -> Iterator[tuple[str, Any]]:
    """So much at once that packets cross."""
    for _ in range(40):
        match random.choice(["change", "change", "wait", "wait", "link"]):
            case "change":
                yield random.choice(CHANGES), random.choice(NODES)
            case "wait":
                yield "wait", random.choice([0.01, 0.1, 0.3, 1.0])
            case "link":
                yield random.choice(["connect", "connect", "disconnect"]), random.choice(PAIRS)


def take(network: Network, step: tuple[str, Any]) -> None:
    match step:
        case ("connect", (one, other)):
            network.connect(one, other)
        case ("disconnect", (one, other)):
            network.disconnect(one, other)
        case ("wait", seconds):
            network.run(seconds)
        case (changes, name):
            for change in changes.split(" and "):
                network.do(name, Join(TOPIC) if change == "join" else Leave(TOPIC))


@pytest.mark.slow
@repeatable(200)
@given(seed=st.integers(0, 10**6), slowest=st.sampled_from([0.05, 0.9, 3.0]), no_room=st.sampled_from([0.0, 0.3]))
def test_at_rest_two_are_in_each_others_mesh_or_neither_is(seed: int, slowest: float, no_room: float) -> None:
    """Seed 001, 21: after random joins, leaves, disconnects and delays, with packets that find no room."""
    network = Network(seed, slowest, no_room)
    for name in NODES:
        network.add(name, d=2, d_low=2, d_high=3)
    for one, other in PAIRS:
        network.connect(one, other)
    for step in script(Random(seed)):
        take(network, step)
    # A heartbeat sends again what found no room.
    network.no_room = 0.0
    network.run(1.5)
    network.rest()
    found = meshes(network, TOPIC)
    for name, mesh in found.items():
        assert {peer for peer in NODES if name in found[peer]} == mesh


def ring(network: Network, nodes: Sequence[bytes], *steps: int) -> None:
    for number, name in enumerate(nodes):
        for step in steps:
            other = nodes[(number + step) % len(nodes)]
            if other != name:
                network.connect(name, other)


@pytest.mark.parametrize("flooders", [0, 1, 10, 19, 20])
def test_everybody_in_a_mixed_network_gets_everything_once(flooders: int) -> None:
    """Seed 001, 42: floodsub and gossipsub peers."""
    nodes = names(20, "node")
    network = Network(1)
    for name in Random(2).sample(nodes, 20)[:flooders]:
        network.add(name, FloodSub(Named(name, Random(name))), FLOODSUB)
    for name in nodes:
        if name not in network.routers:
            network.add(name)
    ring(network, nodes, 1, 2, 5, 7)
    for name in nodes:
        network.do(name, Join(TOPIC))
    network.run(3.0)
    for number, name in enumerate(nodes):
        network.do(name, Publish((TOPIC,), b"%d" % number))
        network.run(0.05)
    network.run(5.0)
    everything = Counter(b"%d" % number for number in range(20))
    for name in nodes:
        assert Counter(delivery.data for delivery in network.delivered[name]) == everything


@repeatable(20)
@given(st.integers(0, 2**32), st.lists(st.sets(st.sampled_from("abc"), min_size=1), min_size=1, max_size=5))
def test_a_message_of_several_topics_comes_once_to_everybody_who_is_in_any(
    seed: int, published: list[set[str]]
) -> None:
    """Seed 001, 42 and 46: to floodsub and gossipsub peers alike, and to nobody else."""
    random = Random(seed)
    nodes = names(12, "node")
    network = Network(seed)
    for name in nodes[:3]:
        network.add(name, FloodSub(Named(name, Random(name))), FLOODSUB)
    for name in nodes[3:]:
        network.add(name)
    # All know each other, so that no topic falls apart.
    ring(network, nodes, *range(1, 12))
    topics = {name: {topic for topic in "abc" if random.random() < 0.5} for name in nodes}
    for name in nodes:
        for topic in sorted(topics[name]):
            network.do(name, Join(topic))
    network.run(3.0)
    for number, to in enumerate(published):
        network.do(random.choice(nodes), Publish(tuple(sorted(to)), b"%d" % number))
    network.run(5.0)
    for name in nodes:
        found = {delivery.data: delivery.topics for delivery in network.delivered[name]}
        assert len(found) == len(network.delivered[name])
        joined = [tuple(sorted(to & topics[name])) for to in published]
        assert found == {b"%d" % number: ours for number, ours in enumerate(joined) if ours}


def test_a_publisher_outside_the_topic_reaches_everybody_in_it() -> None:
    nodes = names(30, "node")
    network = Network(3)
    for name in [*nodes, b"outside"]:
        network.add(name)
    ring(network, nodes, 1, 3, 7, 11)
    for name in nodes[:15]:
        network.connect(b"outside", name)
    for name in nodes:
        network.do(name, Join(TOPIC))
    network.run(3.0)
    for _ in range(5):
        network.do(b"outside", Publish((TOPIC,), b"data"))
    network.run(3.0)
    assert {len(network.delivered[name]) for name in nodes} == {5}
    assert network.delivered[b"outside"] == []


def test_gossip_brings_what_the_mesh_does_not() -> None:
    """Seed 001, 28: two that have nobody in the mesh get each other's messages by asking for them."""
    network = Network(4)
    for name in names(2):
        network.add(name, d=0, d_low=0, d_high=0, d_lazy=1)
    network.connect(*names(2))
    for name in names(2):
        network.do(name, Join(TOPIC))
    network.run(1.5)
    for name in names(2):
        network.do(name, Publish((TOPIC,), name))
    network.run(2.0)
    for name in names(2):
        assert sorted(delivery.data for delivery in network.delivered[name]) == names(2)


# A router that extends gossipsub


class Census(GossipSub):
    """Tells the peers that it does not exchange all messages with how many it got, and answers greetings of its own."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name, Random(name), Named(name, Random(name)))
        self.counts: dict[PeerId, int] = {}
        self.greeted: list[PeerId] = []
        self.got = 0

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        if event == "greet":
            self.send(list(self.peers), Rpc(extension=("hello",)))
        orders = super().handle(event, now)
        self.got += sum(type(order).__name__ == "Deliver" for order in orders)
        return orders

    def receive_extension(self, peer: PeerId, extension: Sequence[Any], now: float) -> None:
        for one in extension:
            match one:
                case "hello":
                    self.send([peer], Rpc(extension=("welcome",)))
                case "welcome":
                    self.greeted.append(peer)
                case ("count", count):
                    self.counts[peer] = count

    def beat_extension(self, now: float) -> None:
        others = [peer for peer in self.peers if peer not in self.mesh(TOPIC)]
        if others:
            self.send(others, Rpc(extension=(("count", self.got),)))


def test_a_router_may_add_control_messages_and_gossip() -> None:
    """Seed 001, 43: without a change to this one; usual routers of the network are none the wiser."""
    nodes = names(20, "node")
    network = Network(5)
    for name in nodes[:-1]:
        network.add(name, Census(name))
    network.add(nodes[-1])
    for one, other in combinations(nodes, 2):
        network.connect(one, other)
    for name in nodes:
        network.do(name, Join(TOPIC))
    network.run(3.0)
    network.do(nodes[0], Publish((TOPIC,), b"data"))
    network.do(nodes[0], "greet")
    network.run(2.0)
    assert {len(network.delivered[name]) for name in nodes} == {1}
    census = network.routers[nodes[0]]
    assert sorted(census.greeted) == nodes[1:-1]
    assert max(census.counts.values()) == 1
    assert set(census.counts) <= set(nodes[1:-1])
    # What it adds travels with what there is: one packet to each peer.
    merged = [packet for packet in network.packets if packet.extension and packet.control is not None]
    assert any(packet.control.ihave for packet in merged if packet.control is not None)
