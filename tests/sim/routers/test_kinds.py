"""`gossiplog.sim.routers.kinds`: how the simulator reads what routers send."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gossiplog.errors import ScenarioError
from gossiplog.pubsub import simsub as simsubs
from gossiplog.pubsub import wire
from gossiplog.pubsub.episub import encoding
from gossiplog.pubsub.episub import messages as episubs
from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc, Subscription
from gossiplog.sim.routers.kinds import KINDS, Seat, Wiring, episub, floodsub, gossipsub, kind_named, simsub
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.simulation import Simulation, simulate

PEER = bytes(38)
ID = (PEER, 2**40)
DATA = (7).to_bytes(8, "big") + bytes(56)


def test_kinds_by_name() -> None:
    assert {name: kind_named(name).name for name in KINDS} == {name: name for name in KINDS}
    with pytest.raises(ScenarioError, match="there is no router 'smoke': expected simsub"):
        kind_named("smoke")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_is_whole(name: str) -> None:
    kind = KINDS[name]()
    assert kind.payload in kind.names
    assert len(set(kind.names)) == len(kind.names)
    router = kind.make(Seat(0, (1, 2), Random(1)))
    router.start(0.0)
    for event in kind.opening:
        router.handle(event, 0.0)
    assert list(kind.neighbours(router)) == []
    delivered = [order for order in router.handle(kind.inject(7, DATA), 0.0) if hasattr(order, "data")]
    assert [order.data for order in delivered] == [DATA]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_sizes_and_names_of_all_that_is_sent(name: str) -> None:
    kind = KINDS[name]()
    simulation = Simulation(kind, Plan(nodes=20, messages=5, message_delay=0.2, connections=5, seed=1))
    simulation.run()
    tally = simulation.tally
    assert tally.sent[kind.payload] > 20
    assert tally.bytes > 64 * tally.sent[kind.payload]


@pytest.mark.parametrize(
    ("packet", "name", "size"),
    [
        (simsubs.Greeting(), "pubsub.connect", 8),
        (simsubs.Message(1, bytes(64)), "pubsub.publish", 80),
        (simsubs.IHave((1, 2)), "gossipsub.ihave", 24),
        (simsubs.IWant((1,)), "gossipsub.iwant", 16),
        (simsubs.Graft(), "gossipsub.graft", 8),
        (simsubs.Prune(), "gossipsub.prune", 8),
    ],
)
def test_packets_of_simsub(packet: simsubs.Packet, name: str, size: int) -> None:
    """Seed 002, 2."""
    assert list(simsub().read(packet)) == [name]
    assert simsub().size(packet) == size


@pytest.mark.parametrize(
    ("packet", "names"),
    [
        (Rpc((Message(("simulation",), DATA),)), ["pubsub.publish"]),
        (Rpc((Message(("simulation",), DATA), Message(("simulation",), DATA))), ["pubsub.publish"] * 2),
        (Rpc(subscriptions=(Subscription("t", True),)), []),
        (Rpc(control=Control(graft=("t",))), ["gossipsub.graft"]),
        (
            Rpc((Message(("simulation",), DATA),), control=Control((IHave("t", (b"1", b"2")),), (b"3",), prune=("t",))),
            ["gossipsub.ihave", "gossipsub.iwant", "gossipsub.prune", "pubsub.publish"],
        ),
    ],
)
def test_packets_of_gossipsub(packet: Rpc, names: list[str]) -> None:
    kinds: list[Any] = [gossipsub()] + ([floodsub()] if packet.control is None else [])
    for kind in kinds:
        assert sorted(kind.read(packet)) == names
        assert kind.size(packet) == sum(map(len, wire.encode(packet)))


@pytest.mark.parametrize(
    "message",
    [
        episubs.Prune(),
        episubs.Join(PEER, 3),
        episubs.Nodes((PEER,) * 20, 6),
        episubs.Neighbor((PEER,) * 7),
        episubs.Shuffle(PEER, (PEER,) * 7, 6),
        episubs.Gossip(PEER, 5, 2**40, bytes(64)),
        episubs.IHave(((ID, 5),) * 10),
        episubs.Graft((ID,) * 10),
    ],
    ids=lambda message: type(message).__name__,
)
def test_packets_of_episub_have_about_the_size_of_what_is_written(message: episubs.Message) -> None:
    envelope = episubs.Envelope(PEER, 2**40, message)
    size = episub().size(envelope)
    written = len(encoding.encode(envelope))
    assert written <= size <= 1.3 * written + 20


def test_a_message_that_several_nodes_are_given_is_one_to_episub() -> None:
    summary = simulate(episub(), Plan(nodes=30, messages=3, fanout=3, connections=5), trace=None).summary()
    assert (summary.publish, summary.deliver) == (9, 90)


def test_who_connects() -> None:
    assert {name: KINDS[name]().wiring for name in KINDS} == {
        "simsub": Wiring.OPEN,
        "floodsub": Wiring.DIALLED,
        "gossipsub": Wiring.DIALLED,
        "episub": Wiring.OWN,
    }
