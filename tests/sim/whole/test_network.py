"""`gossiplog.sim.whole.network`."""

from __future__ import annotations

import pytest

from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import Faults, UniformLatency
from gossiplog.sim.whole.network import ConnectionEnd, Network, StreamEnd


class Listener:
    """A node that notes what it is told."""

    def __init__(self, network: Network, number: int) -> None:
        self.ends: list[ConnectionEnd] = []
        self.streams: list[StreamEnd] = []
        self.data = b""
        self.ended: list[str] = []
        network.nodes[number] = self

    def connected(self, end: ConnectionEnd, dialled: bool) -> None:
        self.ends.append(end)
        end.on_end = lambda: self.ended.append("connection")

    def opened(self, stream: StreamEnd, protocol: str) -> None:
        self.streams.append(stream)
        stream.on_data = self.take
        stream.on_end = lambda: self.ended.append(protocol)

    def take(self, data: bytes) -> None:
        self.data += data


def made(faults: Faults | None = None, jitter: float = 0.0, nodes: int = 2) -> tuple[Kernel, Network, list[Listener]]:
    kernel = Kernel(1)
    network = Network(kernel, UniformLatency(kernel.random, 0.1, 0.1, jitter), faults)
    return kernel, network, [Listener(network, number) for number in range(nodes)]


def connect(kernel: Kernel, network: Network) -> ConnectionEnd:
    network.dial(0, 1, lambda: pytest.fail("refused"))
    kernel.run(kernel.now + 1.0)
    node = network.nodes[0]
    assert isinstance(node, Listener)
    return node.ends[-1]


def test_bytes_take_their_time() -> None:
    kernel, network, nodes = made()
    stream = connect(kernel, network).open("test")
    kernel.run(kernel.now + 1.0)
    stream.write(b"hello")
    kernel.run(kernel.now + 0.09)
    assert nodes[1].data == b""
    kernel.run(kernel.now + 0.02)
    assert nodes[1].data == b"hello"


def test_what_is_lost_on_the_way_comes_later() -> None:
    kernel, network, _ = made(Faults(loss=0.5))
    end = connect(kernel, network)
    delays = [network.stream_delay(end) for _ in range(1000)]
    assert 450 < sum(delay == pytest.approx(0.1) for delay in delays) < 550
    assert max(delays) > 0.45


def test_a_stream_keeps_its_bytes_in_order_whatever_the_jitter() -> None:
    kernel, network, nodes = made(Faults(loss=0.2), jitter=3.0)
    stream = connect(kernel, network).open("test")
    sent = b""
    for number in range(200):
        data = bytes([number]) * (number % 7)
        stream.write(data)
        sent += data
        kernel.run(kernel.now + 0.01)
    stream.close()
    stream.write(b"after the end")
    kernel.run(kernel.now + 20.0)
    assert nodes[1].data == sent
    assert nodes[1].ended == ["test"]


def test_what_is_on_its_way_when_a_connection_breaks_is_lost() -> None:
    kernel, network, nodes = made()
    end = connect(kernel, network)
    stream = end.open("test")
    stream.write(b"early")
    kernel.run(kernel.now + 0.2)
    stream.write(b"late")
    network.break_connection(end)
    kernel.run(kernel.now + 1.0)
    assert nodes[1].data == b"early"
    assert nodes[0].ended == ["connection"]
    assert nodes[1].ended == ["test", "connection"]
    assert list(network.connections()) == []


def test_closing_a_connection_ends_its_streams_on_both_sides() -> None:
    kernel, network, nodes = made()
    end = connect(kernel, network)
    end.open("test")
    kernel.run(kernel.now + 0.2)
    end.close()
    assert nodes[0].ended == ["connection"]
    kernel.run(kernel.now + 1.0)
    assert nodes[1].ended == ["test", "connection"]


def test_a_partition_breaks_what_crosses_it_until_it_heals() -> None:
    kernel, network, nodes = made(nodes=3)
    connect(kernel, network)
    network.partition({0: 1})
    refused: list[int] = []
    network.dial(0, 1, lambda: refused.append(1))
    kernel.run(kernel.now + 1.0)
    assert refused == [1]
    assert nodes[0].ended == ["connection"]
    network.heal()
    assert connect(kernel, network).alive


def test_a_node_that_stopped_hears_nothing_and_its_peers_learn_of_it() -> None:
    kernel, network, nodes = made()
    connect(kernel, network)
    network.stop(1)
    refused: list[int] = []
    network.dial(0, 1, lambda: refused.append(1))
    kernel.run(kernel.now + 1.0)
    assert (nodes[1].ended, nodes[0].ended, refused) == (["connection"], ["connection"], [1])
