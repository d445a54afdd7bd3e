"""libp2p hosts of one process, over sockets of the loopback interface."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from gossiplog import _core
from gossiplog.errors import ConnectionLost, NetworkError
from gossiplog.net.transport.host import Arrival, Host, News, open_host
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.stream import Signal
from tests.net.support import FOREIGN, GOSSIP, LISTEN, TOPIC, Defective

pytestmark = pytest.mark.anyio

PROTOCOL = "/test/1.0.0"


class Told:
    """What a host tells beside connections."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self._changed = Signal()

    def __call__(self, news: News) -> None:
        self.news.append(news)
        self._changed.set()

    async def wait(self, what: str, *values: object) -> News:
        """The first news whose attribute has one of some values, once there is some."""
        while True:
            for news in self.news:
                if getattr(news, what, None) in values:
                    return news
            await self._changed.wait()


def host(number: int, told: Told | None = None, **options: Any) -> Host:
    arguments: dict[str, Any] = {"listen": [LISTEN], "protocols": [PROTOCOL], "gossip": GOSSIP} | options
    return open_host(identity=bytes([number] * 32), topic=TOPIC, notify=told or Told(), **arguments)


async def listening(host: Host) -> str:
    while not host.addresses:
        await anyio.sleep(0.01)
    return host.addresses[0]


@asynccontextmanager
async def pair(ours: Host, theirs: Host) -> AsyncIterator[tuple[Arrival, Arrival]]:
    """Two hosts, the first of which has dialled the second."""
    with anyio.fail_after(60):
        async with ours, theirs:
            await ours.dial(await listening(theirs))
            yield await ours.accept(), await theirs.accept()


async def test_both_sides_know_each_other_and_open_streams() -> None:
    ours, theirs = host(1), host(2)
    async with pair(ours, theirs) as (there, here):
        assert (there.peer_id, there.dialer) == (theirs.peer_id, True)
        assert (here.peer_id, here.dialer) == (ours.peer_id, False)
        assert theirs.addresses[0] == f"{there.address}/p2p/{theirs.peer_id}"
        for opener, accepter in ((there.connection, here.connection), (here.connection, there.connection)):
            async with await opener.open_stream(PROTOCOL) as stream:
                await stream.send(b"question")
                protocol, accepted = await accepter.accept()
                assert (protocol, await accepted.receive()) == (PROTOCOL, b"question")
                await accepted.send(bytes(200_000))
                await accepted.aclose()
                received = 0
                while data := await stream.receive():
                    received += len(data)
                assert received == 200_000
        (info,) = ours.peers
        assert (info.peer_id, info.dialer) == (theirs.peer_id, True)
        assert ours.counts()["connections"] == 1
        await there.connection.aclose()
        assert (await here.connection.wait_closed()).cause in ("remote", "transport")
    assert (ours.peers, ours.addresses, ours.held()) == ([], [], 0)
    # Hosts with few connections dial the peers that they know: there may have been another by then.
    assert ours.counts()["connections"] >= 1


async def test_a_peer_that_is_connected_is_dialled_in_vain() -> None:
    ours, theirs = host(1), host(2)
    async with pair(ours, theirs) as (there, _):
        await ours.dial(theirs.addresses[0])
        assert there.connection.closed is None
        assert len(ours.peers) == 1


@pytest.mark.parametrize(
    ("address", "error"),
    [("nonsense", NetworkError), ("/ip4/127.0.0.1/tcp/1", ConnectionLost), ("/ip4/127.0.0.1/tcp/1/ws", ConnectionLost)],
)
async def test_what_cannot_be_dialled_is_an_error(address: str, error: type[Exception]) -> None:
    with anyio.fail_after(60):
        async with host(1) as ours:
            with pytest.raises(error):
                await ours.dial(address)


async def test_a_dial_that_is_cancelled_leaves_nothing() -> None:
    ours, theirs = host(1), host(2)
    with anyio.fail_after(60):
        async with ours, theirs:
            address = await listening(theirs)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await ours.dial(address)
            await ours.dial(address)
            assert (await ours.accept()).peer_id == theirs.peer_id


async def test_a_listener_that_fails_is_an_error() -> None:
    with pytest.raises(NetworkError, match="cannot listen"):
        host(1, listen=[LISTEN, FOREIGN])


async def test_gossip_waits_for_an_answer_and_goes_on() -> None:
    told = [Told() for _ in range(3)]
    hosts = [host(number, told[number - 1]) for number in range(1, 4)]
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            for one in hosts:
                await stack.enter_async_context(one)
            first, middle, last = hosts
            for end in (first, last):
                await end.dial(await listening(middle))
            # A line: what the first says reaches the last through the middle alone.
            await told[0].wait("peer_id", middle.peer_id)
            for news in (told[0], told[2]):
                await news.wait("kind", "graft")
            while sum(peer.in_mesh for peer in middle.peers) < 2:
                await anyio.sleep(0.01)
            assert first.publish(b"accepted")
            (publication,) = await middle.gossip()
            assert (publication.name, publication.data) == (first.peer_id, b"accepted")
            assert publication.connection is not None
            middle.validate([(publication.ticket, "accept")])
            (forwarded,) = await last.gossip()
            assert (forwarded.name, forwarded.data) == (middle.peer_id, b"accepted")
            assert first.publish(b"rejected")
            (publication,) = await middle.gossip()
            middle.validate([(publication.ticket, "reject")])
            while not any(peer.peer_id == first.peer_id and peer.score < 0 for peer in middle.peers):
                await anyio.sleep(0.01)
            assert middle.counts()["gossip_rejected"] == 1


@pytest.mark.slow
async def test_a_mesh_has_the_degree_that_is_asked_for() -> None:
    few = replace(GOSSIP, d=1, d_low=1, d_high=1)
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            middle = await stack.enter_async_context(host(1, gossip=few))
            ends = [await stack.enter_async_context(host(number)) for number in range(2, 6)]
            for end in ends:
                await end.dial(await listening(middle))
            while not all(peer.subscribed for peer in middle.peers) or len(middle.peers) < len(ends):
                await anyio.sleep(0.01)
            # The others ask for it at every heartbeat, and are refused.
            for _ in range(20):
                await anyio.sleep(GOSSIP.heartbeat_interval / 4)
                assert sum(peer.in_mesh for peer in middle.peers) <= 1
            while not any(peer.in_mesh for peer in middle.peers):
                await anyio.sleep(0.01)


async def test_what_is_too_large_for_gossip_is_an_error() -> None:
    async with host(1) as ours:
        with pytest.raises(NetworkError):
            ours.publish(bytes(4 * 2**20))


async def test_a_stopped_host_says_so() -> None:
    async with host(1) as ours:
        pass
    for call in (ours.publish, ours.validate):
        with pytest.raises(NetworkError, match="stopped"):
            call(b"")  # type: ignore[operator]


async def test_a_host_that_ended_by_a_defect_fails_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = host(2)
    cores: list[Defective] = []
    monkeypatch.setattr(_core, "Host", lambda **arguments: cores.append(Defective(**arguments)) or cores[0])
    ours = host(1)
    failed: list[str] = []

    async def wait(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(NetworkError, match="panicked"):
            await call()
        failed.append(repr(call))

    async with pair(ours, theirs) as (there, _):
        async with anyio.create_task_group() as tasks:
            for call in (ours.accept, ours.gossip, there.connection.accept, there.connection.wait_closed):
                tasks.start_soon(wait, call)
            await anyio.wait_all_tasks_blocked()
            assert not failed
            cores[0].panic()
        assert len(failed) == 4
        with pytest.raises(NetworkError, match="panicked"):
            await ours.accept()


async def test_more_connections_than_allowed_are_refused() -> None:
    theirs = host(9, limits=Limits(connections=1))
    with anyio.fail_after(60):
        async with host(1) as one, host(2) as other, theirs:
            address = await listening(theirs)
            await one.dial(address)
            assert (await theirs.accept()).peer_id == one.peer_id
            # It may stand for a moment, as the other sees it.
            with contextlib.suppress(NetworkError):
                await other.dial(address)
                await (await other.accept()).connection.wait_closed()
            assert [peer.peer_id for peer in theirs.peers] == [one.peer_id]
