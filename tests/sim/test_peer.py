"""`gossiplog.sim.peer`: what a driver makes of deliveries, and lives that end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from gossiplog import Log, Signer, core
from gossiplog.protocol.broadcast_config import Config
from gossiplog.protocol.broadcast_events import Delivery, Verdict
from gossiplog.protocol.sync import ClientConfig, ServerConfig
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.sim.checks import Checks
from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import UniformLatency
from gossiplog.sim.network import Network
from gossiplog.sim.peer import Habits, Peer, judge
from tests.conftest import TOPIC


def sign(signer: Signer, clock: int, *parents: bytes, payload: object = None) -> tuple[bytes, bytes]:
    return signer.sign(TOPIC, clock, tuple(map(core.encode_id, parents)), payload, "dag-cbor")


def refuse_odd(payload: object) -> None:
    if payload == "odd":
        raise ValueError


def test_verdicts_over_one_batch(opened: Callable[..., Log], signer: Signer) -> None:
    log = opened(payload=refuse_odd)
    first, second = sign(signer, 1), sign(signer, 1, payload="second")
    child = sign(signer, 2, first[0], second[0])
    nobody = core.encode_clock(1) + bytes(19)
    orphan = sign(signer, 2, nobody)
    odd = sign(signer, 1, payload="odd")
    forged = core.read_message(sign(signer, 1, payload=7)[1], TOPIC)
    broken = forged.value.replace(forged.signature, bytes(64))
    log.insert(second[1])
    deliveries = [
        Delivery("a", *child),
        Delivery("b", *orphan),
        Delivery("c", *first),
        Delivery("d", *orphan),
        Delivery("e", *child),
        Delivery("f", *second),
        Delivery("g", *odd),
        Delivery("h", core.read_message(broken, TOPIC).key, broken),
        Delivery("i", core.encode_clock(3) + first[0][1:], first[1]),
        Delivery("j", bytes(20), b"no message"),
    ]
    judged = list(judge(log.replica, deliveries))
    assert [(delivery.source, verdict) for delivery, verdict, _, _ in judged[:2]] == [
        ("c", Verdict.INSERTED),
        ("a", Verdict.INSERTED),
    ]
    assert {delivery.source: verdict for delivery, verdict, _, _ in judged[2:]} == {
        "b": Verdict.ORPHAN,
        "d": Verdict.ORPHAN,
        "e": Verdict.DUPLICATE,
        "f": Verdict.DUPLICATE,
        "g": Verdict.REFUSED,
        "h": Verdict.INVALID,
        "i": Verdict.INVALID,
        "j": Verdict.INVALID,
    }
    assert {tuple(missing) for _, verdict, missing, _ in judged if verdict is Verdict.ORPHAN} == {(nobody,)}
    assert all(reason for _, verdict, _, reason in judged if verdict is Verdict.INVALID)
    assert len(log) == 3


def network(count: int) -> tuple[Kernel, list[Peer]]:
    kernel = Kernel(1)
    habits = Habits(Config(), ServerConfig(), ClientConfig(), GossipConfig())
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
