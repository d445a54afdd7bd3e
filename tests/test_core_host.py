"""The libp2p host as the bindings offer it: two hosts of one process, over loopback."""

from __future__ import annotations

import multiprocessing
import secrets
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from gossiplog._core import ConnectionEvent, GossipMessage, Host, HostEvent, MeshEvent, PeerEvent, StreamEvent
from gossiplog.errors import ConnectionLost, NetworkError, StreamReset
from gossiplog.net.transport.limits import Limits
from gossiplog.pubsub.gossipsub import GossipConfig

T = TypeVar("T")

TOPIC = "org.example.test"
SYNC = f"/canvas/v1/{TOPIC}/sync"
# Only a hanging host misses it.
DEADLINE = 120.0


class Side:
    """A host, and what it told."""

    def __init__(self, **changes: Any) -> None:
        settings: dict[str, Any] = {
            "identity": secrets.token_bytes(32),
            "topic": TOPIC,
            "protocols": [SYNC],
            "listen": ["/ip4/127.0.0.1/tcp/0/ws"],
            "bootstrap": [],
            "gossip": GossipConfig(heartbeat_interval=0.1),
            "limits": Limits(),
        }
        self.host = Host(**settings | changes)
        self.told: list[ConnectionEvent | StreamEvent | PeerEvent | MeshEvent | HostEvent] = []

    def until(self, found: Callable[[], T | None]) -> T:
        """Waits for the host's file descriptor until there is what is looked for."""
        end = time.monotonic() + DEADLINE
        while True:
            self.told += self.host.poll()
            value = found()
            if value is not None:
                return value
            assert time.monotonic() < end, self.told
            # The heartbeat changes what no event reports.
            select.select([self.host.fileno()], [], [], 0.1)

    def address(self) -> str:
        return self.until(lambda: next(iter(self.host.addresses()), None))

    def connection(self) -> int:
        """The handle of the one peer, whose connection is established."""

        def established() -> int | None:
            return next((event.connection for event in self.events(ConnectionEvent) if event.established), None)

        return self.until(established)

    def events(self, kind: type[T]) -> list[T]:
        return [event for event in self.told if isinstance(event, kind)]

    def meshed(self) -> bool | None:
        """Whether a peer is in the mesh, else None."""
        return any(peer.in_mesh and peer.subscribed for peer in self.host.peers()) or None

    def message(self) -> GossipMessage:
        return self.until(lambda: next(iter(self.host.gossip()), None))


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    """Two hosts, the second of which dialled the first."""
    with ExitStack() as stack:
        first, second = Side(), Side()
        stack.callback(first.host.stop)
        stack.callback(second.host.stop)
        second.host.dial(first.address())
        second.connection()
        first.connection()
        yield first, second


def test_a_peer_is_reported_before_its_connection(sides: tuple[Side, Side]) -> None:
    for side, other, dialer in ((sides[0], sides[1], False), (sides[1], sides[0], True)):
        (told,) = side.events(PeerEvent)
        assert (told.peer_id, told.dialer) == (other.host.peer_id, dialer)
        assert told.address.startswith("/ip4/127.0.0.1/tcp/")
        assert side.told.index(told) + 1 == side.told.index(side.events(ConnectionEvent)[0])


def test_streams(sides: tuple[Side, Side]) -> None:
    first, second = sides
    stream = second.host.streams.open(second.connection(), SYNC)
    theirs = first.until(lambda: next((event for event in first.events(StreamEvent) if event.inbound), None))
    assert (theirs.connection, theirs.protocol) == (first.connection(), SYNC)
    second.until(lambda: any(event.protocol == SYNC for event in second.events(StreamEvent)) or None)
    assert second.host.streams.write(stream, b"..question", 2) == 8
    assert first.until(lambda: first.host.streams.read(theirs.stream, 100)) == b"question"
    assert first.host.streams.read(theirs.stream, 100) is None
    first.host.streams.reserve_memory(theirs.stream, 10)
    assert first.host.held() >= 10
    second.host.streams.finish(stream)
    assert first.until(lambda: first.host.streams.read(theirs.stream, 100)) == b""
    first.host.streams.finish(theirs.stream)
    with pytest.raises(NetworkError, match="no stream"):
        first.host.streams.read(theirs.stream, 100)
    with pytest.raises(NetworkError, match="limit is 0"):
        second.host.streams.read(stream, 0)


def test_a_reset_and_a_lost_connection_are_told_apart(sides: tuple[Side, Side]) -> None:
    first, second = sides
    streams = [second.host.streams.open(second.connection(), SYNC) for _ in range(2)]

    def accepted() -> list[int] | None:
        inbound = [event.stream for event in first.events(StreamEvent) if event.inbound and event.protocol]
        return inbound if len(inbound) == 2 else None

    def failure(stream: int) -> type[Exception] | None:
        try:
            first.host.streams.read(stream, 100)
        except (StreamReset, ConnectionLost) as error:
            return type(error)
        return None

    inbound = first.until(accepted)
    second.until(lambda: len([event for event in second.events(StreamEvent) if event.protocol]) == 2 or None)
    second.host.streams.reset(streams[0])
    assert first.until(lambda: next((kind for kind in map(failure, inbound) if kind), None)) is StreamReset
    second.host.stop()
    lost = first.until(lambda: {failure(stream) for stream in inbound} - {None, StreamReset} or None)
    assert lost == {ConnectionLost}
    closed = first.until(lambda: next((event.closed for event in first.events(ConnectionEvent) if event.closed), None))
    assert closed.cause == "transport"
    with pytest.raises(ConnectionLost):
        first.host.streams.open(first.connection(), SYNC)


def test_gossip(sides: tuple[Side, Side]) -> None:
    first, second = sides
    for side in sides:
        side.until(side.meshed)
    assert second.host.publish(b"hello") is True
    message = first.message()
    assert (message.data, message.peer_id, message.connection) == (b"hello", second.host.peer_id, first.connection())
    with pytest.raises(NetworkError, match='"perhaps" is no answer'):
        first.host.validate([(message.ticket, "accept"), (message.ticket, "perhaps")])  # type: ignore[list-item]
    first.host.validate([(message.ticket, "accept")])
    first.host.validate([(message.ticket, "reject"), (message.ticket + 1, "accept")])
    first.until(lambda: first.host.counts()["gossip_accepted"] or None)
    second.host.publish(b"nonsense")
    first.host.validate([(first.message().ticket, "reject")])
    first.until(lambda: first.host.peers()[0].score < -5 or None)
    counts = first.host.counts()
    names = ("received", "accepted", "ignored", "rejected", "dropped")
    assert [counts[f"gossip_{name}"] for name in names] == [2, 1, 0, 1, 0]
    first.until(lambda: {"subscribe", "graft"} <= {event.kind for event in first.events(MeshEvent)} or None)
    with pytest.raises(NetworkError, match="4128768 at most"):
        first.host.publish(bytes(4 << 20))


def test_who_is_there(sides: tuple[Side, Side]) -> None:
    first, second = sides
    peer = first.until(lambda: next((peer for peer in first.host.peers() if peer.agent and peer.rtt is not None), None))
    assert (peer.connection, peer.peer_id, peer.dialer) == (first.connection(), second.host.peer_id, False)
    assert f"/canvas/kad/1.0.0/{TOPIC}" in peer.protocols
    (listening,) = [address for event in second.events(HostEvent) for address in event.listening]
    assert [listening] == second.host.addresses()
    assert listening.endswith(f"/p2p/{second.host.peer_id}")
    first.host.streams.release(first.connection())
    assert first.host.peers() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"identity": b"short"}, "has 5 bytes; expected a seed of 32"),
        ({"topic": ""}, "the topic has 0 bytes"),
        ({"protocols": ["sync"]}, "not the name of a protocol"),
        ({"listen": ["localhost:4001"]}, "no address that a host can use"),
        (
            {"bootstrap": ["/ip4/127.0.0.1/udp/4001/quic-v1"]},
            "has the cargo feature `quic` off",
        ),
        ({"gossip": GossipConfig(heartbeat_interval=0.001)}, "heartbeat is 0.001"),
        ({"gossip": GossipConfig(heartbeat_interval=3600.0, seen_ttl=1e6)}, "heartbeat is 3600"),
        ({"limits": SimpleNamespace(**asdict(Limits()) | {"closing_seconds": -1.0})}, "closing_seconds is -1"),
    ],
)
def test_what_cannot_be_used_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(NetworkError, match=expected):
        Side(**changes)


def test_nothing_is_called_after_stopping() -> None:
    side = Side()
    side.host.stop()
    side.host.stop()
    for call in (side.host.poll, side.host.fileno, side.host.peers, side.host.gossip, side.host.counts):
        with pytest.raises(NetworkError, match="the host was stopped"):
            call()


def _poll(host: Host, answer: Any) -> None:
    try:
        host.poll()
        answer.put("no error")
    except NetworkError as error:
        answer.put(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_is_told() -> None:
    side = Side()
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=_poll, args=(side.host, answer))
    process.start()
    assert "before this process was forked" in answer.get()
    process.join()
    side.host.stop()
