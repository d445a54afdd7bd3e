"""The bundled server, over sockets of this process: what we rely on, and what we have added."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import h11
import pytest
from anyio.abc import SocketAttribute, SocketStream
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from gossiplog import Hub, Log
from gossiplog.net.http import server
from gossiplog.net.http.access import Access
from gossiplog.net.http.addresses import RENEWAL_SECONDS, USUAL_CONNECTIONS
from gossiplog.net.http.server import (
    LEAST_READ,
    MAX_FRAGMENTS,
    MAX_HEAD_BYTES,
    MAX_MESSAGE_BYTES,
    MOST_REFUSALS,
    TLS,
    Address,
    Listener,
    bind,
    serve,
)
from gossiplog.net.rate_limited_log import CERTIFICATE_KEY, LINES, SERVER_KEY, VIOLATION_KEY, RateLimitedLog
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.pacing import BODY_PART_BYTES, PART_BYTES
from tests.net.loops import measured_callbacks
from tests.net.support import EC, RSA, TLS_FILES, bundled_server, echo, make_certificate

pytestmark = pytest.mark.anyio


PATIENCE = 60
"""Seconds that an answer may take on a busy machine."""
HANDSHAKE = (
    "GET /flood HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def websocket(address: Address, path: str = "/", **settings: Any) -> connect:
    return connect(address.url("ws") + path, ping_interval=None, proxy=None, **settings)


async def request(stream: SocketStream, text: str) -> bytes:
    await stream.send(text.encode())
    return await stream.receive()


async def test_requests_and_websockets() -> None:
    async with bundled_server() as address:
        assert address.host == "127.0.0.1"
        assert address.url("http") == f"http://127.0.0.1:{address.port}"
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            answer = await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"uvicorn" not in answer
        async with websocket(address, compression="deflate") as client:
            assert client.response is not None
            assert "Sec-WebSocket-Extensions" not in client.response.headers
            for message in (b"", b"\0", bytes(range(256)) * 256):
                await client.send(message)
                assert await client.recv() == message


async def count(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads all there is, and says how many messages it was, or bytes."""
    if scope["type"] == "http":
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"read %d" % size})
        return
    await receive()
    await send({"type": "websocket.accept"})
    messages = 0
    while (await receive())["type"] == "websocket.receive":
        messages += 1
        if messages == MANY:
            await send({"type": "websocket.send", "bytes": b"read %d" % messages})


MANY = 5_000


def frame(opcode: int) -> bytes:
    return bytes([opcode, 0x80, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * MANY + b"0\r\n\r\n",
            b"read %d" % MANY,
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * (MAX_HEAD_BYTES // 4 - 20) + b"\r\n", b"read 0"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * (MAX_HEAD_BYTES // 4), b"Invalid HTTP request"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 99 + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            b"close",
        ),
        (HANDSHAKE.encode() + frame(0x82) * MANY, b"read %d" % MANY),
        (HANDSHAKE.encode() + frame(0x8A) * MANY + frame(0x82) * MANY, b"read %d" % MANY),
        (HANDSHAKE.encode() + (frame(0x02) + frame(0) * 100 + frame(0x80)) * 100 + frame(0x88), b"\x88\0"),
    ],
    ids=["chunks", "headers", "too many headers", "pipelined", "messages", "pongs", "fragments"],
)
async def test_whatever_comes_takes_a_callback_little_time(sent: bytes, expected: bytes) -> None:
    async with bundled_server(count) as address, await anyio.connect_tcp(address.host, address.port) as stream:
        with measured_callbacks() as callbacks:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.send, sent)
                answer = b""
                with anyio.fail_after(PATIENCE):
                    while expected not in answer:
                        answer += await stream.receive()
    callbacks.assert_short()


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
LENGTH = 2**22


@pytest.mark.parametrize("ends_chunked", [False, True])
async def test_a_body_whose_length_is_known_is_handled_in_few_parts(
    ends_chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows it is not: it may be as many chunks as it has bytes."""
    parts: list[int] = []
    receive_data = h11.Connection.receive_data

    def received(connection: h11.Connection, data: bytes) -> None:
        parts.append(len(data))
        receive_data(connection, data)

    monkeypatch.setattr(h11.Connection, "receive_data", received)
    sent = HEAD + b"Content-Length: %d\r\n\r\n" % LENGTH + bytes(LENGTH)
    if ends_chunked:
        sent += HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * MANY + b"0\r\n\r\n"
    async with bundled_server(count) as address, await anyio.connect_tcp(address.host, address.port) as stream:
        with measured_callbacks() as callbacks:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.send, sent)
                answer, expected = b"", b"read %d" % (MANY if ends_chunked else LENGTH)
                with anyio.fail_after(PATIENCE):
                    while expected not in answer:
                        answer += await stream.receive()
    callbacks.assert_short()
    assert sum(parts) == len(sent)
    large = [size for size in parts if size > PART_BYTES]
    # The head may have come with some of the body, and a read may end within a part.
    assert LENGTH - 3 * BODY_PART_BYTES <= sum(large) <= LENGTH - PART_BYTES
    if not ends_chunked:
        assert len(parts) < 4 * LENGTH // BODY_PART_BYTES


def test_urls() -> None:
    assert Address("::1", 443, secure=True).url("ws") == "wss://[::1]:443"


async def test_long_messages_end_the_connection() -> None:
    async with bundled_server() as address, websocket(address) as client:
        await client.send(bytes(MAX_MESSAGE_BYTES))
        assert len(await client.recv()) == MAX_MESSAGE_BYTES
        await client.send(bytes(MAX_MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("part", [b"", b"x"])
async def test_messages_in_very_many_parts_end_the_connection(part: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def send_in(parts: int) -> bytes:
        async with websocket(address) as client:
            # The client adds an empty one at the end.
            await client.send([part] * (parts - 1))
            return await client.recv(decode=False)

    with caplog.at_level(logging.INFO, server.__name__):
        async with bundled_server() as address:
            assert await send_in(MAX_FRAGMENTS) == part * (MAX_FRAGMENTS - 1)
            with pytest.raises((ConnectionClosed, OSError)):
                await send_in(MAX_FRAGMENTS + 1)
    assert f"more than {MAX_FRAGMENTS} parts" in caplog.text


async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_CONNECTIONS", 1)
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
    monkeypatch.setattr(server, "REQUEST_CONNECTIONS", 20)
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
    monkeypatch.setattr(server, "REQUEST_CONNECTIONS", 1)
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


@pytest.mark.parametrize("headers", [{"headers": [(b"content-length", b"0")]}, {}])
async def test_an_address_that_goes_on_after_many_refusals_gets_no_more_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, headers: dict[str, Any]
) -> None:
    now = 0.0
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now))

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 429, **headers})
        await send({"type": "http.response.body", "body": b""})

    async with bundled_server(refuse, limits=Limits(connections_per_address=1)) as address:
        assert [await answers(address, 429) for _ in range(MOST_REFUSALS + 3)] == [True] * MOST_REFUSALS + [False] * 3
        assert await answers(address, 429, "127.0.0.2")
        now += RENEWAL_SECONDS
        assert await answers(address, 429)
    async with bundled_server(refuse) as address:
        # Without a limit of loopback addresses there is no such end either.
        assert [await answers(address, 429) for _ in range(2 * MOST_REFUSALS)] == [True] * 2 * MOST_REFUSALS
    assert "not accepted: it went on after many refusals" in caplog.text


async def test_a_connection_that_stands_ends_after_many_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """On it the address would get one answer after the other."""
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: 0.0))

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 429, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with (
        bundled_server(refuse, limits=Limits(connections_per_address=1)) as address,
        await half_open(address, "127.0.0.1") as stream,
    ):
        answers = [await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") for _ in range(MOST_REFUSALS)]
        assert [b"connection: close" in answer for answer in answers] == [False] * (MOST_REFUSALS - 1) + [True]
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()


@pytest.mark.parametrize(("limit", "is_watched"), [(None, False), (1, True)])
async def test_answers_are_looked_at_only_where_a_limit_applies(limit: int | None, is_watched: bool) -> None:
    names: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        names.append(send.__name__)
        await who(scope, receive, send)

    async with (
        bundled_server(answer, limits=Limits(connections_per_address=limit)) as address,
        await half_open(address, "127.0.0.1") as stream,
    ):
        assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert [name == "watched" for name in names] == [is_watched]


@pytest.mark.parametrize("text", ["GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["half a request", "a request"])
async def test_an_address_that_goes_on_connecting_without_a_request_is_not_accepted(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Connections that had a request give way to others of their address, however many."""
    now = 0.0
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(server, "REQUEST_CONNECTIONS", 1)
    is_whole = text.endswith("\r\n\r\n")

    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(bundled_server(limits=Limits(connections_per_address=1)))
        streams: list[SocketStream] = []
        for number in range(2 + MOST_REFUSALS):
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


async def test_websockets_that_ended_are_counted_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_CONNECTIONS", 1)
    connection_table: list[server._ConnectionTable] = []
    make = server._ConnectionTable.__init__

    def remember(self: server._ConnectionTable, *arguments: Any) -> None:
        make(self, *arguments)
        connection_table.append(self)

    monkeypatch.setattr(server._ConnectionTable, "__init__", remember)
    async with bundled_server(limits=Limits(connections_per_address=1)) as address:
        for _ in range(4):
            async with websocket(address) as client:
                await client.send(b"hi")
                assert await client.recv() == b"hi"
            with anyio.fail_after(PATIENCE):
                while connection_table[0]._transports:
                    await anyio.sleep(0.01)


async def half_open(address: Address, source: str) -> SocketStream:
    """A connection from another loopback address, which says nothing."""
    return await anyio.connect_tcp(address.host, address.port, local_host=source)


async def who(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the address of its client."""
    body = str(scope["client"][0]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def test_the_address_that_a_trusted_proxy_tells_counts() -> None:
    text = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.7, 198.51.100.3\r\n\r\n"
    for proxies, expected in [((), "127.0.0.1"), (("127.0.0.0/8",), "198.51.100.3"), (("10.0.0.1",), "127.0.0.1")]:
        async with (
            bundled_server(who, trusted_proxies=proxies, limits=Limits(connections_per_address=1)) as address,
            await anyio.connect_tcp(address.host, address.port) as stream,
        ):
            answer = await request(stream, text)
            while not answer.endswith(expected.encode()):
                answer += await stream.receive()
    with pytest.raises(ValueError, match="nonsense"):
        await serve(echo, trusted_proxies=["nonsense"])


async def test_clients_behind_a_trusted_proxy_guess_for_themselves(opened: Callable[..., Log]) -> None:
    token = "right-token-0123456789"

    async def ask(address: Address, client: str, shown: str) -> int:
        head = (
            f"GET /api/clock HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {shown}\r\n"
            f"X-Forwarded-For: {client}\r\n\r\n"
        )
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            await stream.send(head.encode())
            return int((await stream.receive()).split()[1])

    async with (
        Hub(opened(), access=Access(read_token=token)) as hub,
        bundled_server(hub, trusted_proxies=["127.0.0.1"]) as address,
    ):
        found = [await ask(address, "192.0.2.7", "wrong-token-0123456789") for _ in range(2 * USUAL_CONNECTIONS)]
        assert found[:USUAL_CONNECTIONS] == [401] * USUAL_CONNECTIONS
        assert found.count(429) > USUAL_CONNECTIONS // 2
        assert [await ask(address, f"198.51.100.{number}", token) for number in range(3)] == [200] * 3
        assert [await ask(address, "127.0.0.1", token) for _ in range(3)] == [200] * 3


async def test_it_ends_soon_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clients that are idle, that are served at the moment, and that do not read."""
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.1)
    for limit in ("REQUEST_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(server, limit, 10.0 * PATIENCE)
    before = asyncio.all_tasks()

    async def talk(client: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                await client.send(bytes(2**16))
                await client.recv()

    async with anyio.create_task_group() as talking:
        async with bundled_server() as address:
            clients = [await websocket(address) for _ in range(8)]
            for client in clients[:4]:
                talking.start_soon(talk, client)
            stalled = await anyio.connect_tcp(address.host, address.port)
            await stalled.send(HANDSHAKE.encode())
            await anyio.wait_all_tasks_blocked()
            started = anyio.current_time()
        assert anyio.current_time() - started < PATIENCE
        for client in clients:
            await client.wait_closed()
    await stalled.aclose()
    assert asyncio.all_tasks() == before
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp(address.host, address.port)


async def test_connections_without_a_request_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, server.__name__):
        async with bundled_server() as address, websocket(address) as client:
            # Not before the client has made its own request.
            monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)
            for beginning in ("", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT"):
                async with await anyio.connect_tcp(address.host, address.port) as stream:
                    if beginning:
                        await stream.send(beginning.encode())
                    with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(PATIENCE):
                        while True:
                            await stream.receive()
            await client.send(b"still there")
            assert await client.recv() == b"still there"
    assert len(caplog.records) == 3


async def test_a_client_that_breaks_the_protocol_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Sending to it is OSError, as to one that has left, and no line about the application."""
    raised: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        assert (await receive())["type"] == "websocket.disconnect"
        for message in ({"type": "websocket.send", "bytes": b"late"}, {"type": "websocket.close", "code": 1001}):
            try:
                await send(message)
            except OSError:
                raised.append(str(message["type"]))

    async with bundled_server(app) as address, await anyio.connect_tcp(address.host, address.port) as stream:
        assert (await request(stream, HANDSHAKE)).startswith(b"HTTP/1.1 101")
        # A frame with a reserved opcode (RFC 6455, section 5.2).
        await stream.send(b"\x83\x80\0\0\0\0")
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while await stream.receive():
                pass
        with anyio.fail_after(PATIENCE):
            while len(raised) < 2:
                await anyio.sleep(0.01)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        (b"\x82\x01a", 1002, "it sent what no client may: incorrect masking on the WebSocket"),
        (b"\x83\x80\0\0\0\0", 1002, "it sent what no client may: invalid opcode on the WebSocket"),
        (b"\x81\x81\0\0\0\0\xff", 1007, "it sent text that is not UTF-8 on the WebSocket"),
        (b"\x82\xff" + (MAX_MESSAGE_BYTES + 1).to_bytes(8) + bytes(4), 1009, "it sent what no client may: "),
        (b"\x88\x82\0\0\0\0\x03\xea", 1002, None),
    ],
    ids=["unmasked", "reserved", "no text", "long", "its own farewell"],
)
@pytest.mark.parametrize("early", [False, True])
async def test_who_breaks_the_rules_of_websockets_is_told_to_the_application(
    sent: bytes, code: int, reason: str | None, early: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 6455, sections 5.1, 5.2 and 8.1; also before the client was let in, where no close frame can be sent."""
    ends: list[dict[str, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "websocket.connect"
        with suppress(OSError):
            await send({"type": "websocket.accept"})
        ends.append(dict(await receive()))

    async with bundled_server(app) as address, await anyio.connect_tcp(address.host, address.port) as stream:
        if early:
            await stream.send(HANDSHAKE.encode() + sent)
        else:
            await request(stream, HANDSHAKE)
            await stream.send(sent)
        answer = b""
        with anyio.fail_after(PATIENCE), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                answer += await stream.receive()
    (end,) = ends
    assert end["type"] == "websocket.disconnect"
    told = end.get(VIOLATION_KEY)
    assert told == reason if reason is None else str(told).startswith(reason)
    assert early or code.to_bytes(2) in answer
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def send_request_that_is_none(stream: SocketStream) -> None:
    assert (await request(stream, "nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def send_upgrade_to_something_else(stream: SocketStream) -> None:
    text = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert (await request(stream, text)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("send", [send_request_that_is_none, send_upgrade_to_something_else])
async def test_strangers_do_not_fill_the_log(
    send: Callable[[SocketStream], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async with bundled_server() as address:
        for _ in range(LINES + 5):
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                await send(stream)
    assert len(caplog.records) == LINES


async def test_defects_of_the_application_have_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("a defect")

    async with bundled_server(app) as address:
        for _ in range(LINES + 5):
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 500")
    assert len(caplog.records) == LINES
    assert all("ValueError: a defect" in str(record.exc_text) for record in caplog.records)


async def test_a_refusal_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.http.response.start", "status": 503, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"full"})

    async with bundled_server(refuse) as address:
        with pytest.raises(InvalidStatus, match="503"):
            await websocket(address)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("opening", ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", HANDSHAKE])
async def test_clients_that_do_not_read_are_dropped(
    opening: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.05)
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
        self.protocol: object = self

    def get_write_buffer_size(self) -> int:
        return self.left

    def is_closing(self) -> bool:
        return self.closing

    def get_protocol(self) -> object:
        return self.protocol


async def test_who_reads_a_little_now_and_then_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 3600.0)
    transport: Any = Transport()
    dropped: list[bool] = []
    reading = server._Reading(transport, transport, lambda: dropped.append(True))
    looks = 0

    def look(left: int) -> None:
        nonlocal looks
        transport.left = left
        reading._timer.cancel()
        reading._look()
        looks += 1

    # Little waits, and may go on to wait.
    for left in (0, 1000, 1000):
        look(left)
    reading.pause()
    # Much does, and enough of it is read between two looks, or all that waited.
    for left in (2**20, 2**20 - LEAST_READ, 2**20 - 2 * LEAST_READ):
        look(left)
    reading.resume()
    reading.pause()
    look(2**20)
    reading.resume()
    transport.closing = True
    look(10)
    look(0)
    look(10)
    assert not dropped
    look(10)
    assert dropped == [True]
    transport.protocol = None
    reading._look()
    reading.end()
    assert dropped == [True]


async def test_urls_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They may hold tokens."""
    with caplog.at_level(logging.DEBUG):
        async with bundled_server() as address:
            async with websocket(address, "/?token=a-secret") as client:
                await client.send(b"hi")
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                await request(stream, "GET /?token=a-secret HTTP/1.1\r\nHost: a\r\n\r\n")
    ours = [record for record in caplog.records if not record.name.startswith("websockets.client")]
    assert "a-secret" in caplog.text
    assert not any("a-secret" in record.getMessage() for record in ours)


async def test_signals_are_left_to_the_program() -> None:
    before = signal.getsignal(signal.SIGINT)
    async with bundled_server():
        assert signal.getsignal(signal.SIGINT) is before


async def test_an_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await serve(echo, port=taken.getsockname()[1])


async def test_an_address_that_cannot_be_used_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])
    # An address of documentation (RFC 5737), which no machine has.
    with pytest.raises(OSError, match="it is no address of this machine"):
        bind("192.0.2.1", 0)


async def test_a_connection_without_a_descriptor_is_closed_and_noted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, failures = socket.socket.accept, 0

    def fail_at_first(listener: socket.socket) -> tuple[socket.socket, Any]:
        nonlocal failures
        # The spare descriptor is given up before the second attempt.
        if isinstance(listener, Listener) and failures < 60 and listener._spare is not None:
            failures += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", fail_at_first)
    async with bundled_server() as address:
        for _ in range(60):
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)), anyio.fail_after(PATIENCE):
                    await stream.receive()
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            assert (await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 200")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LINES
    assert all("dropped: the process has no file descriptor left" in line for line in lines)


async def test_accepting_in_vain_makes_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with bundled_server():
        for _ in range(60):
            context = {"message": "out of system resource", "exception": OSError(errno.EMFILE, "no"), "socket": None}
            asyncio.get_running_loop().call_exception_handler(context)
        assert len(caplog.records) == LINES
        asyncio.get_running_loop().call_exception_handler({"message": "another"})
        assert caplog.records[-1].getMessage() == "another"


async def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    good, key, missing = TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key", tmp_path / "missing.pem"
    for tls in (TLS(missing, key), TLS(good, missing)):
        with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
            await serve(echo, tls=tls)
    with pytest.raises(OSError, match=r"localhost\.key and .*localhost\.key cannot be used for TLS: expected a chain"):
        await serve(echo, tls=TLS(key, key))
    with pytest.raises(OSError, match=r"the key in .*localhost\.key is not that of the certificate in .*ca\.pem"):
        await serve(echo, tls=TLS(TLS_FILES / "ca.pem", key))


async def test_a_certificate_is_renewed_without_a_restart(tmp_path: Path) -> None:
    """Also by one whose key is of another type; if the new files cannot be used, the former ones stay."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = [make_certificate(certificate, key, options) for options in (EC, RSA)]
    certificate.write_bytes(made[0][0])
    key.write_bytes(made[0][1])
    tls = TLS(certificate, key)
    async with bundled_server(tls=tls) as address:

        async def served() -> str:
            return await anyio.to_thread.run_sync(ssl.get_server_certificate, (address.host, address.port))

        assert await served() == made[0][0].decode()
        certificate.write_bytes(made[1][0])
        with pytest.raises(OSError, match="is not that of the certificate"):
            tls.reload()
        assert await served() == made[0][0].decode()
        key.write_bytes(made[1][1])
        tls.reload()
        assert await served() == made[1][0].decode()


async def test_a_certificate_that_is_about_to_expire_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[float] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        told.append(scope[CERTIFICATE_KEY])
        await echo(scope, receive, send)

    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(certificate, key, [*EC, "-days", "3"])
    tls = TLS(certificate, key)
    assert tls.not_after is None
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    async with bundled_server(app, tls=tls) as address, websocket(address, ssl=context):
        while not (told and caplog.messages):
            await anyio.sleep(0)
    assert told == [tls.not_after]
    (line,) = caplog.messages
    assert line.startswith("the certificate expires at ")
    assert line.endswith(", in 3 days: renew it, and send the server SIGHUP")


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_another_event_loop() -> None:
    with pytest.raises(RuntimeError, match="the bundled server runs on asyncio"):
        await serve(echo)


async def test_a_burst_of_connections_begins_over_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait would otherwise begin in one turn of the event loop: a thousand take a third of a second."""
    turn, begun, loop = 0, list[int](), asyncio.get_running_loop()
    connection_made = server._Protocol.connection_made

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(begun) < burst:
            loop.call_soon(count)

    def noted(protocol: server._Protocol, transport: asyncio.Transport) -> None:
        begun.append(turn)
        connection_made(protocol, transport)

    monkeypatch.setattr(server._Protocol, "connection_made", noted)
    burst = 10 * server.ACCEPTED_AT_ONCE
    async with bundled_server() as address:
        clients = [socket.create_connection((address.host, address.port), PATIENCE) for _ in range(burst)]
        count()
        with anyio.fail_after(PATIENCE):
            while len(begun) < burst:
                await anyio.sleep(0)
        for client in clients:
            client.close()
    assert max(begun.count(number) for number in begun) <= server.ACCEPTED_AT_ONCE


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("short", b"HTTP/1.1 400"),
        # Only one of the two parsers accepts it; the connection used to stay open without an answer.
        ("\x7f", b""),
    ],
)
async def test_failed_websocket_handshakes_end_and_are_logged(
    key: str, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    incidents = RateLimitedLog(server.LOGGER)
    # Servers may share what they count.
    async with (
        bundled_server(incidents=incidents) as address,
        bundled_server(incidents=incidents),
        await anyio.connect_tcp(address.host, address.port) as stream,
    ):
        host, port = stream.extra(SocketAttribute.local_address)[:2]
        await stream.send(HANDSHAKE.replace("dGhlIHNhbXBsZSBub25jZQ==", key).encode())
        found = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(PATIENCE):
            while True:
                found += await stream.receive()
    assert found[: len(b"HTTP/1.1 400")] == answer
    assert incidents.counts == {"bad_handshakes": 1}
    (line,) = caplog.messages
    assert line.startswith(f"{host}:{port}: ")
    assert "no WebSocket handshake: " in line
    assert line.isprintable()
