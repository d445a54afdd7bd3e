"""Limits of connections, and clients that do not read."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream
from starlette.types import Receive, Scope, Send
from websockets.exceptions import InvalidMessage

from gossiplog.net.http import connections, uvicorn_internals
from gossiplog.net.http.addresses import RENEWAL_SECONDS
from gossiplog.net.http.connections import MAX_REFUSALS, MIN_READ_BYTES, ConnectionTable, ReadTimeout
from gossiplog.net.http.listener import Address
from gossiplog.net.http.tls import TLS
from gossiplog.net.rate_limited_log import SERVER_KEY
from gossiplog.net.transport.limits import Limits
from tests.net.http.clients import HANDSHAKE, PATIENCE, request, websocket
from tests.net.support import TLS_FILES, bundled_server, echo

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 1)
    async with bundled_server(limits=Limits(connections=1)) as address, websocket(address) as first:
        async with websocket(address):
            with pytest.raises((InvalidMessage, OSError)):
                await websocket(address)
        await first.send(b"hi")
        assert await first.recv() == b"hi"
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_connection_without_a_request_gives_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest of the address that has the most: here that of the flood, which is not the client's."""
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 20)
    async with (
        bundled_server(limits=Limits(connections=20)) as address,
        websocket(address) as client,
        await anyio.connect_tcp(address.host, address.port) as idle,
    ):
        flood = [await half_open(address, "127.0.0.2") for _ in range(60)]
        async with await anyio.connect_tcp(address.host, address.port) as late:
            for stream in (idle, late):
                assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await client.send(b"hi")
        assert await client.recv() == b"hi"
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)), anyio.fail_after(PATIENCE):
            await flood[0].receive()
        for stream in flood:
            await stream.aclose()
    assert "there are 40 connections" in caplog.text


async def test_connections_of_one_address_are_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 1)
    async with bundled_server(limits=Limits(connections_per_address=1)) as address, websocket(address) as first:
        async with websocket(address):
            with pytest.raises((InvalidMessage, OSError)):
                await websocket(address)
            # Others do not notice.
            async with await half_open(address, "127.0.0.2") as other:
                assert (await request(other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await first.send(b"hi")
        assert await first.recv() == b"hi"
    assert "there are 2 connections from its address" in caplog.text


async def answers(address: Address, status: int, source: str = "127.0.0.1") -> bool:
    """Whether the server answers a request from an address with this status, not by closing the connection."""
    try:
        async with await half_open(address, source) as stream:
            return (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 %d" % status)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("headers", [{"headers": [(b"content-length", b"0")]}, {}])
async def test_an_address_that_goes_on_after_many_refusals_gets_no_more_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, headers: dict[str, Any]
) -> None:
    now = 0.0
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now))

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 429, **headers})
        await send({"type": "http.response.body", "body": b""})

    async with bundled_server(refuse, limits=Limits(connections_per_address=1)) as address:
        assert [await answers(address, 429) for _ in range(MAX_REFUSALS + 3)] == [True] * MAX_REFUSALS + [False] * 3
        assert await answers(address, 429, "127.0.0.2")
        now += RENEWAL_SECONDS
        assert await answers(address, 429)
    async with bundled_server(refuse) as address:
        # Without a limit of loopback addresses there is no such end either.
        assert [await answers(address, 429) for _ in range(2 * MAX_REFUSALS)] == [True] * 2 * MAX_REFUSALS
    assert "not accepted: it went on after many refusals" in caplog.text


async def test_a_connection_that_stands_ends_after_many_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """On it the address would get one answer after the other."""
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: 0.0))

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 429, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with (
        bundled_server(refuse, limits=Limits(connections_per_address=1)) as address,
        await half_open(address, "127.0.0.1") as stream,
    ):
        answers = [await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(MAX_REFUSALS)]
        assert [b"connection: close" in answer for answer in answers] == [False] * (MAX_REFUSALS - 1) + [True]
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()


@pytest.mark.parametrize(("limit", "is_watched"), [(None, False), (1, True)])
async def test_answers_are_looked_at_only_where_a_limit_applies(limit: int | None, is_watched: bool) -> None:
    names: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        names.append(send.__name__)
        await echo(scope, receive, send)

    async with (
        bundled_server(answer, limits=Limits(connections_per_address=limit)) as address,
        await half_open(address, "127.0.0.1") as stream,
    ):
        assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert [name == "counting_send" for name in names] == [is_watched]


@pytest.mark.parametrize("text", ["GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["half a request", "a request"])
async def test_an_address_that_goes_on_connecting_without_a_request_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Connections that had a request give way to others of their address, however many."""
    now = 0.0
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 1)
    is_whole = text.endswith("\r\n\r\n")

    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(bundled_server(limits=Limits(connections_per_address=1)))
        streams: list[SocketStream] = []
        for number in range(2 + MAX_REFUSALS):
            streams.append(await stack.enter_async_context(await half_open(address, "127.0.0.1")))
            if is_whole:
                await request(streams[-1], text)
            else:
                await streams[-1].send(text.encode())
            if number >= 2:
                # The oldest of three gives way.
                with anyio.fail_after(PATIENCE), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while await streams[-3].receive():
                        pass
        assert await answers(address, 200) is is_whole
        assert await answers(address, 200, "127.0.0.2")
        now += RENEWAL_SECONDS
        assert await answers(address, 200)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[ConnectionTable]:
    """The tables of the servers that begin during the test."""
    made: list[ConnectionTable] = []
    make = ConnectionTable.__init__

    def remember(self: ConnectionTable, *arguments: Any) -> None:
        make(self, *arguments)
        made.append(self)

    monkeypatch.setattr(ConnectionTable, "__init__", remember)
    return made


async def become(table: ConnectionTable, count: int) -> None:
    """Wait until a table has so many connections."""
    with anyio.fail_after(PATIENCE):
        while len(table._sources) != count:
            await anyio.sleep(0.01)


async def test_websockets_that_ended_are_counted_no_more(
    monkeypatch: pytest.MonkeyPatch, tables: list[ConnectionTable]
) -> None:
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 1)
    async with bundled_server(limits=Limits(connections_per_address=1)) as address:
        for _ in range(4):
            async with websocket(address) as client:
                await client.send(b"hi")
                assert await client.recv() == b"hi"
            await become(tables[0], 0)
            assert not tables[0]._by_source


CERTIFICATE = TLS(TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key")
TRUSTING = ssl.create_default_context(cafile=TLS_FILES / "ca.pem")


def secured(address: Address, source: str = "127.0.0.1") -> Awaitable[TLSStream]:
    """A connection with TLS, from a loopback address."""
    options: dict[str, Any] = {"ssl_context": TRUSTING, "tls_hostname": "localhost", "tls_standard_compatible": False}
    return anyio.connect_tcp(address.host, address.port, local_host=source, **options)


async def is_ended(stream: SocketStream) -> None:
    with anyio.fail_after(PATIENCE), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
        await stream.receive()


async def test_handshakes_of_one_address_are_limited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tables: list[ConnectionTable]
) -> None:
    """The oldest gives way, and what goes on without a request is not accepted."""
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 1)
    async with bundled_server(tls=CERTIFICATE, limits=Limits(connections_per_address=1)) as address:
        async with AsyncExitStack() as stack:
            streams: list[SocketStream] = []
            for number in range(2 + MAX_REFUSALS):
                streams.append(await stack.enter_async_context(await half_open(address, "127.0.0.2")))
                if number >= 2:
                    await is_ended(streams[-3])
            assert len(tables[0]._sources) == 2
            assert tables[0].is_blocked("127.0.0.2")
            await is_ended(await stack.enter_async_context(await half_open(address, "127.0.0.2")))
            # Others do not notice.
            async with await secured(address) as other:
                assert (await request(other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await become(tables[0], 0)
        assert not tables[0]._handshakes
    assert "there are 2 connections from its address" in caplog.text


async def test_handshakes_count_among_all_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tables: list[ConnectionTable]
) -> None:
    """A flood of them gives way to others, and the connections that stand stay."""
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 4)
    async with (
        bundled_server(tls=CERTIFICATE, limits=Limits(connections=4)) as address,
        websocket(address, ssl=TRUSTING, server_hostname="localhost") as client,
        AsyncExitStack() as stack,
    ):
        flood = [await stack.enter_async_context(await half_open(address, "127.0.0.2")) for _ in range(20)]
        await is_ended(flood[0])
        async with await secured(address) as late:
            assert (await request(late, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert len(tables[0]._sources) <= 8
        await client.send(b"hi")
        assert await client.recv() == b"hi"
    assert "there are 8 connections" in caplog.text


async def test_a_connection_counts_once_before_and_after_its_handshake(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tables: list[ConnectionTable]
) -> None:
    monkeypatch.setattr(connections, "REQUEST_CONNECTIONS", 1)
    async with bundled_server(tls=CERTIFICATE, limits=Limits(connections_per_address=1)) as address:
        for _ in range(3):
            async with await secured(address) as first, await secured(address) as second:
                for stream in (first, second):
                    assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
                assert len(tables[0]._sources) == 2
            await become(tables[0], 0)
        for _ in range(3):
            # No TLS: the handshake fails.
            async with await half_open(address, "127.0.0.1") as stream:
                await stream.send(bytes(100))
                await is_ended(stream)
            await become(tables[0], 0)
    assert "there are" not in caplog.text


async def test_handshakes_end_with_the_server(tables: list[ConnectionTable]) -> None:
    async with AsyncExitStack() as stack:
        async with bundled_server(tls=CERTIFICATE) as address:
            stream = await stack.enter_async_context(await half_open(address, "127.0.0.1"))
            await become(tables[0], 1)
        with anyio.fail_after(uvicorn_internals.REQUEST_SECONDS / 2):
            await is_ended(stream)


async def half_open(address: Address, source: str) -> SocketStream:
    """A connection from another loopback address, which says nothing."""
    return await anyio.connect_tcp(address.host, address.port, local_host=source)


@pytest.mark.parametrize("opening", ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", HANDSHAKE])
async def test_clients_that_do_not_read_are_dropped(
    opening: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.05)
    ended = anyio.Event()
    counts: list[dict[str, int]] = []

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        """Sends more than the system's buffers take, and ends when the connection does."""
        await receive()
        try:
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(2):
                    await send({"type": "http.response.body", "body": bytes(2**25), "more_body": True})
            else:
                await send({"type": "websocket.accept"})
                while True:
                    await send({"type": "websocket.send", "bytes": bytes(2**20)})
        finally:
            counts.append(scope[SERVER_KEY])
            ended.set()

    async with bundled_server(flood) as address, await anyio.connect_tcp(address.host, address.port) as stream:
        await stream.send(opening.encode())
        with anyio.fail_after(PATIENCE):
            await ended.wait()
    assert counts == [{"unread": 1}]
    assert "dropped: it does not read what is sent to it: not 16384 bytes in 0.05 s" in caplog.text


class Transport:
    """A connection of which so many bytes are not read yet."""

    def __init__(self) -> None:
        self.left = 0
        self.closing = False
        self.gone = False

    def get_write_buffer_size(self) -> int:
        if self.gone:
            raise AttributeError("as asyncio's does with TLS, once it was closed twice")
        return self.left

    def is_closing(self) -> bool:
        return self.closing


async def test_who_reads_a_little_now_and_then_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 3600.0)
    transport: Any = Transport()
    dropped: list[bool] = []
    timeout = ReadTimeout(transport, lambda kind, text: dropped.append(True))
    looks = 0

    def look(left: int) -> None:
        nonlocal looks
        transport.left = left
        timeout._timer.cancel()
        timeout._check()
        looks += 1

    # Little waits, and may go on to wait.
    for left in (0, 1000, 1000):
        look(left)
    timeout.pause_writing()
    # Much does, and enough of it is read between two looks, or all that waited.
    for left in (2**20, 2**20 - MIN_READ_BYTES, 2**20 - 2 * MIN_READ_BYTES):
        look(left)
    timeout.resume_writing()
    timeout.pause_writing()
    look(2**20)
    timeout.resume_writing()
    transport.closing = True
    look(10)
    look(0)
    look(10)
    assert not dropped
    look(10)
    assert dropped == [True]
    transport.gone = True
    timeout._check()
    timeout.cancel()
    assert dropped == [True]
