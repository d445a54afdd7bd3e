"""`gossiplog.sim.whole.gossip`: routers over streams, as a peer drives them."""

from __future__ import annotations

from random import Random

import pytest

from gossiplog import Signer
from gossiplog.protocol import gossip
from gossiplog.protocol.broadcast.events import Delivery, GossipAnswer
from gossiplog.pubsub import wire
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.pubsub.rpc import Message, Rpc
from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import Faults, UniformLatency
from gossiplog.sim.whole.gossip import REJECTIONS, MeshGossip
from gossiplog.sim.whole.network import ConnectionEnd, Network, StreamEnd
from gossiplog.sim.whole.syncs import GOSSIP, TOPIC

SIGNER = Signer(bytes(32))


def sign(number: int) -> tuple[bytes, bytes]:
    return SIGNER.sign(TOPIC, 1, (), number, "dag-cbor")


class Node:
    """A node with a router. Messages wait until a test answers, unless there is an answer for all."""

    def __init__(self, network: Network, number: int, config: GossipConfig, answer: GossipAnswer | None) -> None:
        self.delivered: list[Delivery] = []
        self.sent: list[tuple[bytes, int]] = []
        self.dropped: list[tuple[object, str]] = []
        self.ends: dict[int, ConnectionEnd] = {}
        self.streams: list[StreamEnd] = []
        self._answer = answer
        self.router = MeshGossip(
            number,
            network,
            Random(number),
            config,
            self._deliver,
            lambda key, copies: self.sent.append((key, copies)),
            lambda peer, reason: self.dropped.append((peer, reason)),
        )
        network.nodes[number] = self

    def connected(self, end: ConnectionEnd, dialled: bool) -> None:
        self.ends[end.there] = end
        if dialled:
            self.router.add(end.open(GOSSIP))

    def opened(self, stream: StreamEnd, protocol: str) -> None:
        assert protocol == GOSSIP
        self.streams.append(stream)
        self.router.add(stream)

    @property
    def keys(self) -> list[bytes]:
        return [delivery.key for delivery in self.delivered]

    def _deliver(self, delivery: Delivery) -> None:
        self.delivered.append(delivery)
        if self._answer is not None:
            self.router.validated(delivery.ticket, self._answer)


class Bench:
    """Nodes, each connected to all."""

    def __init__(
        self,
        count: int,
        faults: Faults | None = None,
        config: GossipConfig | None = None,
        answer: GossipAnswer | None = GossipAnswer.ACCEPT,
    ) -> None:
        self.kernel = Kernel(1)
        self.network = Network(self.kernel, UniformLatency(self.kernel.random, 0.1, 0.1), faults)
        self.nodes = [Node(self.network, number, config or GossipConfig(), answer) for number in range(count)]
        for a in range(count):
            for b in range(a):
                self.network.dial(a, b, lambda: pytest.fail("refused"))
        self.run(5.0)

    def run(self, seconds: float) -> None:
        self.kernel.run(self.kernel.now + seconds)

    def write(self, source: int, target: int, data: bytes) -> None:
        """Write bytes to the stream between two nodes, of which the higher dialled."""
        (stream,) = (stream for stream in self.nodes[target].streams if stream.connection.there == source)
        stream.on_data(data)


def test_a_message_goes_through_the_mesh_once() -> None:
    bench = Bench(6)
    key, value = sign(1)
    bench.nodes[0].router.publish(key, value)
    bench.nodes[0].router.publish(key, value)
    bench.run(1.0)
    assert [node.keys for node in bench.nodes] == [[], *[[key]] * 5]
    assert [delivery.value for delivery in bench.nodes[1].delivered] == [value]
    assert bench.nodes[0].sent == [(key, 5)]


@pytest.mark.parametrize(
    ("answer", "copies"), [(GossipAnswer.ACCEPT, 1), (GossipAnswer.IGNORE, 0), (GossipAnswer.REJECT, 0)]
)
def test_what_waits_for_its_answer_is_not_sent_on(answer: GossipAnswer, copies: int) -> None:
    bench = Bench(3, answer=None)
    first, middle, last = bench.nodes
    last.ends[0].close()
    bench.run(1.0)
    key, value = sign(1)
    first.router.publish(key, value)
    bench.run(3.0)
    assert (middle.keys, middle.sent, last.keys) == ([key], [], [])
    middle.router.validated(middle.delivered[0].ticket, answer)
    bench.run(3.0)
    assert (middle.sent, last.keys) == ([(key, 1)] * copies, [key] * copies)


def test_gossip_brings_what_the_mesh_does_not() -> None:
    bench = Bench(4, config=GossipConfig(d=1, d_low=1, d_high=1))
    assert {len(node.router.mesh) for node in bench.nodes} <= {0, 1}
    keys = [sign(number)[0] for number in range(5)]
    for number in range(5):
        bench.nodes[0].router.publish(*sign(number))
    bench.run(10.0)
    assert [sorted(node.keys) for node in bench.nodes[1:]] == [sorted(keys)] * 3


def test_control_messages_get_through_although_packets_find_no_room() -> None:
    bench = Bench(4, Faults(no_room=0.5))
    bench.run(10.0)
    assert [sorted(node.router.mesh, key=str) for node in bench.nodes] == [
        [other for other in range(4) if other != number] for number in range(4)
    ]
    for number in range(20):
        bench.nodes[0].router.publish(*sign(number))
        bench.run(0.5)
    bench.run(10.0)
    assert all(len(set(node.keys)) == len(node.keys) for node in bench.nodes)
    assert sum(copies for _, copies in bench.nodes[0].sent) < 20 * 3


def test_packets_that_wait_keep_their_order() -> None:
    bench = Bench(2, Faults(stalling=0.5, longest_stall=1.0))
    for number in range(50):
        bench.nodes[0].router.publish(*sign(number))
        bench.run(0.01)
    assert len(bench.nodes[1].keys) < 45
    bench.run(60.0)
    assert bench.nodes[1].keys == [sign(number)[0] for number in range(50)]


def test_packets_wait_for_a_peer_that_is_held_up() -> None:
    bench = Bench(2)
    bench.nodes[0].router.hold_up(1, 3.0)
    bench.nodes[0].router.hold_up(1, 2.0)
    bench.nodes[0].router.hold_up(9, 5.0)
    for number in range(2):
        bench.nodes[0].router.publish(*sign(number))
    bench.run(3.05)
    assert bench.nodes[1].keys == []
    bench.run(0.1)
    assert bench.nodes[1].keys == [sign(number)[0] for number in range(2)]


def test_who_sends_invalid_messages_again_and_again_is_dropped() -> None:
    bench = Bench(2, answer=GossipAnswer.REJECT)
    for number in range(REJECTIONS + 1):
        assert bench.nodes[1].dropped == [] or number == REJECTIONS
        bench.nodes[0].router.publish(*sign(number))
        bench.run(0.5)
    assert bench.nodes[1].dropped == [(0, f"it sent {REJECTIONS} invalid messages by gossip")]


def test_data_that_is_no_message_is_rejected_and_not_delivered() -> None:
    bench = Bench(2)
    key, value = sign(1)
    wrong = key[:-1] + bytes([key[-1] ^ 1])
    for number in range(REJECTIONS):
        data = gossip.encode(wrong, value) if number == 0 else b"%d" % number
        bench.write(1, 0, b"".join(wire.encode(Rpc((Message((TOPIC,), data),)))))
    assert bench.nodes[0].delivered == []
    assert bench.nodes[0].dropped == [(1, f"it sent {REJECTIONS} invalid messages by gossip")]


def test_who_sends_what_is_no_packet_is_dropped() -> None:
    bench = Bench(2)
    bench.write(1, 0, b"\x05\xff\xff\xff\xff\xff")
    assert bench.nodes[0].dropped == [(1, "a frame of 5 bytes is no protobuf packet")]


def test_a_peer_that_is_gone_leaves_the_mesh_and_can_come_again() -> None:
    bench = Bench(2)
    assert bench.nodes[0].router.mesh == (1,)
    bench.nodes[1].ends[0].close()
    bench.run(1.0)
    assert [node.router.mesh for node in bench.nodes] == [(), ()]
    bench.network.dial(0, 1, lambda: pytest.fail("refused"))
    bench.run(5.0)
    assert [node.router.mesh for node in bench.nodes] == [(1,), (0,)]


def test_a_second_stream_of_a_peer_is_closed() -> None:
    bench = Bench(2)
    second = bench.nodes[1].ends[0].open(GOSSIP)
    bench.run(1.0)
    assert second.closed
    assert bench.nodes[0].router.mesh == (1,)


def test_a_life_that_has_ended_does_nothing_any_more() -> None:
    bench = Bench(2)
    bench.nodes[1].router.stop()
    bench.nodes[0].router.publish(*sign(1))
    bench.nodes[0].ends[1].close()
    events = bench.kernel.events
    bench.nodes[0].router.stop()
    bench.run(60.0)
    assert bench.nodes[1].delivered == []
    assert bench.kernel.events - events < 20
