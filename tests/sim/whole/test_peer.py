"""`gossiplog.sim.whole.peer`: lives that end."""

from __future__ import annotations

from random import Random

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.sync import SyncClientConfig, SyncServerConfig
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import UniformLatency
from gossiplog.sim.whole.checks import Checks
from gossiplog.sim.whole.network import Network
from gossiplog.sim.whole.peer import Habits, Peer


def network(count: int) -> tuple[Kernel, list[Peer]]:
    kernel = Kernel(1)
    habits = Habits(BroadcastConfig(), SyncServerConfig(), SyncClientConfig(), GossipConfig())
    checks = Checks()
    net = Network(kernel, UniformLatency(Random(1)))
    peers = [Peer(number, net, checks, habits) for number in range(count)]
    for peer in peers[1:]:
        peer.dials[0] = None
    return kernel, peers


def test_what_is_appended_reaches_all_and_survives_a_crash() -> None:
    kernel, peers = network(3)
    for peer in peers:
        peer.start()
    kernel.run(5.0)
    peers[1].append({"n": 1})
    kernel.run(10.0)
    assert [len(peer.log) for peer in peers] == [1, 1, 1]
    peers[2].crash()
    peers[2].append({"n": 2})
    peers[1].append({"n": 3})
    kernel.run(15.0)
    assert [len(peer.log) for peer in peers] == [2, 2, 1]
    peers[2].start()
    kernel.run(20.0)
    assert [len(peer.log) for peer in peers] == [2, 2, 2]
    assert len({peer.log.root for peer in peers}) == 1


def test_a_crash_takes_what_was_not_written_yet() -> None:
    kernel, peers = network(2)
    for peer in peers:
        peer.start()
    kernel.run(5.0)
    peers[0].append({"n": 1})
    peers[0].crash()
    kernel.run(6.0)
    assert [len(peer.log) for peer in peers] == [1, 0]
    peers[0].start()
    kernel.run(15.0)
    assert [len(peer.log) for peer in peers] == [1, 1]
