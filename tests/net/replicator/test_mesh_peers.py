"""`gossiplog.net.replicator.mesh_peers`: streams of a router, and peers whose log has another topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from gossiplog.errors import ConnectionLost, StreamRefused
from gossiplog.net.replicator import mesh_peers as module
from gossiplog.net.replicator.defects import Defects
from gossiplog.net.replicator.mesh_peers import MeshPeers
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.service import background
from gossiplog.net.transport.network import Network
from tests.net.support import TOPIC, connect_pair

pytestmark = pytest.mark.anyio

REFUSED = StreamRefused("protocol", "no stream for /push")


class Streams:
    """A router's, which records what it is given, and whose exchange ends with an error."""

    protocols = ("/gossip",)

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.attended: list[str] = []
        self.accepted: list[tuple[str, Any]] = []

    async def attend(self, connection: Any, name: str, blame: Callable[[str], object]) -> None:
        self.attended.append(name)
        raise self.error

    def accept(self, name: str, stream: Any) -> None:
        self.accepted.append((name, stream))


class Bench:
    """A peer of a mesh, and what is known of it."""

    def __init__(self, network: Network, tasks: Any, streams: Streams | None) -> None:
        here, _ = connect_pair(network, ["/gossip"])
        self.telemetry = Telemetry(None, None)
        self.topics: Sequence[str] | None = None
        self.peer = PeerSession(1, "the peer", here, True, True, "the peer", "")
        self.peer.tasks = tasks
        defects = Defects(self.telemetry, {1: self.peer})
        self.peers = MeshPeers(streams, lambda name: self.topics, TOPIC, self.telemetry, defects)


@asynccontextmanager
async def bench(network: Network, streams: Streams | None = None) -> AsyncIterator[Bench]:
    with anyio.fail_after(60):
        async with background() as tasks:
            yield Bench(network, tasks, streams)


async def test_a_router_speaks_with_the_peer_and_gets_its_streams(network: Network) -> None:
    streams = Streams(ConnectionLost("transport", "gone"))
    async with bench(network, streams) as test, anyio.create_task_group() as tasks:
        assert test.peers.protocols == ("/gossip",)
        test.peers.start(test.peer, tasks)
        stream: Any = object()
        test.peers.accept(test.peer, stream)
    assert streams.attended == ["the peer"]
    assert streams.accepted == [("the peer", stream)]
    assert not test.peer.fault


async def test_what_the_router_should_not_raise_is_a_defect(network: Network) -> None:
    async with bench(network, Streams(KeyError("a key"))) as test, anyio.create_task_group() as tasks:
        test.peers.start(test.peer, tasks)
    assert test.peer.fault == "a defect of this side, exchanging gossip with it: KeyError: 'a key'"


async def test_without_a_router_no_stream_is_taken(network: Network) -> None:
    async with bench(network) as test, anyio.create_task_group() as tasks:
        assert list(test.peers.protocols) == []
        test.peers.start(test.peer, tasks)
        stream: Any = object()
        with pytest.raises(RuntimeError, match="without streams of gossip"):
            test.peers.accept(test.peer, stream)


@pytest.mark.parametrize(("topics", "counted"), [(("org.example.other",), 1), ((), 0), (None, 1)])
async def test_a_peer_of_another_topic_is_noted_once(
    network: Network,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    topics: Sequence[str] | None,
    counted: int,
) -> None:
    """One that exchanges messages of no topic is a bootstrap node; one that says nothing in time may be either."""
    monkeypatch.setattr(module, "_NAMING_SECONDS", 0.05)
    async with bench(network) as test, anyio.create_task_group() as tasks:
        test.peer.tasks = tasks
        test.topics = topics
        for _ in range(2):
            test.peers.note_refusal(test.peer, REFUSED)
    assert test.telemetry.counters.other_topics == counted
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if f"no messages of this log's topic, '{TOPIC}'" in line] == lines[:counted]


async def test_a_peer_that_has_joined_meanwhile_has_no_other_topic(network: Network) -> None:
    async with bench(network) as test, anyio.create_task_group() as tasks:
        test.peer.tasks = tasks
        test.peers.note_refusal(test.peer, REFUSED)
        await anyio.wait_all_tasks_blocked()
        test.peer.joined = True
        test.topics = ("org.example.other",)
    assert test.telemetry.counters.other_topics == 0
