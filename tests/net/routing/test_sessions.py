"""`gossiplog.net.routing.sessions`: queues, allowances, and streams that the peer opens, reads, or does not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from gossiplog.errors import NetworkError, StreamReset
from gossiplog.net.routing import sessions
from gossiplog.net.routing.kinds import episub, floodsub, gossipsub
from gossiplog.net.routing.sessions import MAX_STREAMS, Allowance, Budget, GossipSession
from gossiplog.net.service import background
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.network import Network
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol.wire import MAX_FRAME
from gossiplog.pubsub.gossipsub import GossipConfig
from gossiplog.pubsub.rpc import FLOODSUB, Control, Message, Rpc, Subscription
from gossiplog.pubsub.wire import encode
from tests.net.support import connect_pair

pytestmark = pytest.mark.anyio


def packet(data: bytes) -> bytes:
    return b"".join(encode(Rpc((Message(("t",), data),))))


class Side:
    """A session over one end of a connection, and the other end.

    Attributes:
        session: that is tested.
        there: the peer's end.
        blamed: what the peer was blamed for.
        took: what came.
    """

    def __init__(self, here: Connection, there: Connection, kind: Any, budget: Budget) -> None:
        self.blamed: list[str] = []
        self.took: list[Any] = []
        self.here = here
        self.there = there
        self.session = GossipSession("the peer", here, kind, budget, self.blamed.append)

    def take(self, received: Any) -> None:
        self.took.append(received.packet)

    async def accept(self) -> Stream:
        _, stream = await self.here.accept()
        self.session.accept(stream, anyio.current_time())
        return stream


@asynccontextmanager
async def side(network: Network, kind: Any = None, budget: Budget | None = None) -> AsyncIterator[Side]:
    here, there = connect_pair(network, [FLOODSUB])
    with anyio.fail_after(60):
        yield Side(here, there, kind or floodsub(), budget or Budget())


async def until(reached: Callable[[], bool]) -> None:
    while not reached():
        await anyio.sleep(0.005)


async def drain(stream: Stream) -> None:
    while await stream.receive():
        pass


async def flood(stream: Stream, data: bytes) -> None:
    # Who is blamed is not read any more.
    with suppress(StreamReset):
        await stream.send(data)


def test_an_allowance_comes_back_with_time() -> None:
    allowance = Allowance(10, 5.0)
    assert allowance.spend(10, 100.0)
    assert not allowance.spend(1, 100.0)
    assert allowance.spend(1, 101.0)
    assert not allowance.spend(1, 101.0)
    assert allowance.spend(10, 200.0)
    assert not allowance.spend(11, 300.0)


async def test_the_first_protocol_that_the_peer_speaks_is_taken(network: Network) -> None:
    async with side(network, gossipsub(GossipConfig())) as test:
        stream = await test.session.open()
        assert stream is not None
        assert stream.protocol == FLOODSUB
        assert (await test.there.accept())[0] == FLOODSUB
    async with side(network, episub()) as test:
        assert await test.session.open() is None
        test.there.release("gone")
        await test.here.wait_closed()
        with pytest.raises(NetworkError):
            await test.session.open()


async def test_what_is_queued_is_written_and_then_the_stream_ends(network: Network) -> None:
    async with side(network) as test, background() as tasks:
        stream = await test.session.open()
        assert stream is not None
        test.session.begin()
        tasks.start_soon(test.session.write, stream)
        assert all(test.session.queue(bytes([number])) for number in range(3))
        test.session.close()
        assert not test.session.queue(b"late")
        _, there = await test.there.accept()
        received = b""
        while data := await there.receive():
            received += data
        assert received == bytes(range(3))


async def test_queues_are_bounded(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_QUEUED", 1000)
    budget = Budget(3000)
    async with side(network, budget=budget) as test, side(network, budget=budget) as other:
        for each in (test, other):
            each.session.begin()
        # One may always wait.
        assert test.session.queue(bytes(2000))
        assert not test.session.queue(b"1")
        assert other.session.queue(bytes(500))
        assert other.session.queue(bytes(500))
        assert not other.session.queue(bytes(1))
        assert budget.queued == 3000
        test.session.end()
        assert budget.queued == 1000
        test.session.begin()
        assert not test.session.queue(bytes(2001))
        assert test.session.queue(bytes(2000))


async def test_a_peer_that_never_reads_is_given_up(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 0.05)
    async with side(network) as test:
        stream = await test.session.open()
        assert stream is not None
        test.session.begin()
        while test.session.queue(bytes(2**20)):
            pass
        with pytest.raises(StreamReset, match="took none of what was written for"):
            await test.session.write(stream)
        with pytest.raises(StreamReset):
            await stream.send(b"more")
        assert test.session._budget.queued > 0
        test.session.end()
        assert test.session._budget.queued == 0


async def test_frames_are_read_however_they_are_cut(network: Network) -> None:
    async with side(network) as test, background() as tasks:
        there = await test.there.open_stream(FLOODSUB)
        await test.accept()
        tasks.start_soon(test.session.read, test.take)
        for byte in packet(b"one") + packet(b"two"):
            await there.send(bytes([byte]))
        await until(lambda: len(test.took) == 2)
        assert [each.messages[0].data for each in test.took] == [b"one", b"two"]
        # The next stream takes the place of this one.
        again = await test.there.open_stream(FLOODSUB)
        await test.accept()
        with pytest.raises(StreamReset):
            await there.receive()
        await again.send(packet(b"three"))
        await until(lambda: len(test.took) == 3)
        # It ends, and another comes.
        await again.aclose()
        last = await test.there.open_stream(FLOODSUB)
        await test.accept()
        await last.send(packet(b"four"))
        await until(lambda: len(test.took) == 4)
        assert test.blamed == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xff\xff\xff\x0f", "it broke the protocol of gossip: a frame of 4294967295 bytes"),
        (b"\x80\x00", "which is not minimal"),
        (b"\x03abc", "no protobuf packet"),
    ],
)
async def test_who_sends_what_is_no_frame_is_blamed(network: Network, data: bytes, reason: str) -> None:
    async with side(network) as test, background() as tasks:
        there = await test.there.open_stream(FLOODSUB)
        await test.accept()
        tasks.start_soon(test.session.read, test.take)
        await there.send(packet(b"good") + data)
        await until(lambda: bool(test.blamed))
        (blamed,) = test.blamed
        assert reason in blamed
        assert len(test.took) == 1


async def test_half_a_frame_counts_for_its_peer(network: Network) -> None:
    async with side(network) as test, background() as tasks:
        there = await test.there.open_stream(FLOODSUB)
        await test.accept()
        tasks.start_soon(test.session.read, test.take)
        frame = packet(bytes(MAX_FRAME - 100))
        await there.send(frame[:-1])
        await until(lambda: network.held() >= len(frame) - 10)
        await there.send(frame[-1:])
        await until(lambda: len(test.took) == 1)
        await until(lambda: network.held() < 2**16)


async def test_floods_beside_messages_are_metered(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CONTROL_BYTES", 1000)
    async with side(network) as test, background() as tasks:
        there = await test.there.open_stream(FLOODSUB)
        await test.accept()
        tasks.start_soon(test.session.read, test.take)
        # Each costs 64 bytes and more, and a message's data nothing.
        await there.send(packet(bytes(100_000)))
        await until(lambda: len(test.took) == 1)
        await there.send(b"".join(encode(Rpc(control=Control(graft=("t",))))) * 50)
        await until(lambda: bool(test.blamed))
        assert "said more beside messages than it may: 1000 bytes at once" in test.blamed[0]
        assert len(test.took) < 20


@pytest.mark.slow
async def test_what_a_peer_may_cause_at_once_is_a_second_of_work(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions that come and go in small packets took a core for 14 seconds."""
    # However long the machine takes.
    monkeypatch.setattr(sessions, "_CONTROL_SECONDS", 1e9)
    async with side(network) as test, background() as tasks:
        there = await test.there.open_stream(FLOODSUB)
        await test.accept()
        tasks.start_soon(test.session.read, test.take)
        changes = Rpc(subscriptions=(Subscription("t", True), Subscription("t", False)))
        tasks.start_soon(flood, there, b"".join(encode(changes)) * 13_000)
        await until(lambda: bool(test.blamed))
        assert 10_000 < len(test.took) < 13_000


@pytest.mark.slow
async def test_who_sends_the_same_again_and_again_is_blamed(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies cost work, and were free."""
    monkeypatch.setattr(sessions, "_CONTROL_SECONDS", 1e9)
    async with side(network) as test, background() as tasks:
        there = await test.there.open_stream(FLOODSUB)
        await test.accept()
        tasks.start_soon(test.session.read, test.take)
        # Other messages cost nothing.
        for number in range(30):
            await there.send(packet(bytes([number]) * 2**20))
        await until(lambda: len(test.took) == 30)
        assert test.blamed == []
        # It has sent this one already.
        tasks.start_soon(flood, there, packet(bytes(2**20)) * 30)
        await until(lambda: bool(test.blamed))
        assert 40 < len(test.took) < 50


async def test_who_opens_streams_again_and_again_is_blamed(network: Network) -> None:
    async with side(network) as test:
        for _ in range(MAX_STREAMS):
            await test.there.open_stream(FLOODSUB)
            await test.accept()
            assert test.blamed == []
        await test.there.open_stream(FLOODSUB)
        last = await test.accept()
        assert test.blamed == [f"it opened more than {MAX_STREAMS} streams for gossip within 60 s"]
        with pytest.raises(StreamReset):
            await last.receive()


async def test_the_end_of_a_stream_ends_a_session_of_episub(network: Network) -> None:
    async with side(network) as test:
        kind = episub()
        session = GossipSession("the peer", test.here, kind, Budget(), test.blamed.append)
        there = await test.there.open_stream(FLOODSUB)
        _, stream = await test.here.accept()
        assert not session.wanted
        session.accept(stream, anyio.current_time())
        assert session.wanted
        session.begin()
        assert not session.wanted
        async with background() as tasks:
            tasks.start_soon(there.aclose)
            await session.read(test.take)
        assert not session.has_inbound


async def test_a_session_waits_until_it_is_wanted(network: Network) -> None:
    async with side(network, episub()) as test, background() as tasks:
        done = anyio.Event()

        async def wait() -> None:
            await test.session.wait_wanted(0.0)
            done.set()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        test.session.want()
        await done.wait()


@pytest.mark.parametrize("queued", [0, sessions.MAX_QUEUED])
async def test_an_aborted_session_takes_nothing_and_ends(network: Network, queued: int) -> None:
    """It sent what was queued first: a peer that reads slowly had 10 seconds for each chunk of it."""
    async with side(network) as test, background() as tasks:
        stream = await test.session.open()
        assert stream is not None
        test.session.begin()
        ended = anyio.Event()

        async def write() -> None:
            await test.session.write(stream)
            ended.set()

        for _ in range(queued // 2**20):
            assert test.session.queue(bytes(2**20))
        tasks.start_soon(write)
        # The peer does not read.
        await anyio.wait_all_tasks_blocked()
        began = anyio.current_time()
        test.session.abort()
        await ended.wait()
        assert anyio.current_time() - began < sessions.WRITE_SECONDS / 2
        assert not test.session.queue(b"more")
        _, there = await test.there.accept()
        with pytest.raises(StreamReset):
            await drain(there)


async def test_an_aborted_session_sends_no_more_to_a_peer_that_reads(network: Network) -> None:
    async with side(network) as test:
        stream = await test.session.open()
        assert stream is not None
        test.session.begin()
        assert test.session.queue(bytes(2**20))
        sent: list[bytes] = []

        async def send(data: bytes) -> None:
            sent.append(data)
            test.session.abort()

        stream.send = send  # type: ignore[method-assign]
        await test.session.write(stream)
        assert len(sent) == 1
