"""What gossiplog changes in uvicorn, over sockets of this process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import h11
import pytest
from anyio.abc import SocketAttribute, SocketStream
from starlette.types import Receive, Scope, Send
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gossiplog.net.http import server, uvicorn_internals
from gossiplog.net.http.uvicorn_internals import (
    ACCEPTED_AT_ONCE,
    MAX_FRAGMENTS,
    MAX_HEAD_BYTES,
    MAX_MESSAGE_BYTES,
    HTTPConnection,
)
from gossiplog.net.rate_limited_log import LINES, VIOLATION_KEY, RateLimitedLog
from gossiplog.net.transport.pacing import BODY_PART_BYTES, PART_BYTES
from tests.net.http.clients import HANDSHAKE, PATIENCE, request, websocket
from tests.net.loops import measured_callbacks
from tests.net.support import bundled_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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


async def test_connections_without_a_request_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, server.__name__):
        async with bundled_server() as address, websocket(address) as client:
            # Not before the client has made its own request.
            monkeypatch.setattr(uvicorn_internals, "REQUEST_SECONDS", 0.05)
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


async def test_an_answer_that_the_end_of_the_server_cuts_off_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uvicorn_internals, "GRACE_SECONDS", 0.1)
    begun = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await anyio.sleep_forever()

    async with bundled_server(app) as address:
        stream = await anyio.connect_tcp(address.host, address.port)
        await stream.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await begun.wait()
    await stream.aclose()
    assert [record.message for record in caplog.records if record.name.startswith("gossiplog")] == []


async def test_a_refusal_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.http.response.start", "status": 503, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"full"})

    async with bundled_server(refuse) as address:
        with pytest.raises(InvalidStatus, match="503"):
            await websocket(address)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_burst_of_connections_begins_over_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait would otherwise begin in one turn of the event loop: a thousand take a third of a second.

    What begins together goes on together, so that others wait for all of their handshakes in each turn.
    """
    turn, begun, loop = 0, list[int](), asyncio.get_running_loop()
    connection_made = HTTPConnection.connection_made

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(begun) < burst:
            loop.call_soon(count)

    def noted(protocol: HTTPConnection, transport: asyncio.Transport) -> None:
        begun.append(turn)
        connection_made(protocol, transport)

    monkeypatch.setattr(HTTPConnection, "connection_made", noted)
    burst = 80
    async with bundled_server() as address:
        clients = [socket.create_connection((address.host, address.port), PATIENCE) for _ in range(burst)]
        count()
        with anyio.fail_after(PATIENCE):
            while len(begun) < burst:
                await anyio.sleep(0.001)
        for client in clients:
            client.close()
    # One more for some versions of asyncio.
    assert max(begun.count(number) for number in begun) <= ACCEPTED_AT_ONCE + 1 == 2


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
    limited_log = RateLimitedLog(server.LOGGER)
    # Servers may share what they count.
    async with (
        bundled_server(limited_log=limited_log) as address,
        bundled_server(limited_log=limited_log),
        await anyio.connect_tcp(address.host, address.port) as stream,
    ):
        host, port = stream.extra(SocketAttribute.local_address)[:2]
        await stream.send(HANDSHAKE.replace("dGhlIHNhbXBsZSBub25jZQ==", key).encode())
        found = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(PATIENCE):
            while True:
                found += await stream.receive()
    assert found[: len(b"HTTP/1.1 400")] == answer
    assert limited_log.counts == {"bad_handshakes": 1}
    (line,) = caplog.messages
    assert line.startswith(f"{host}:{port}: ")
    assert "no WebSocket handshake: " in line
    assert line.isprintable()
