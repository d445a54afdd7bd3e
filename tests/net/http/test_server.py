"""The bundled server, over sockets of this process."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from gossiplog import Hub, Log
from gossiplog.net.http import connections, uvicorn_internals
from gossiplog.net.http.access import Access
from gossiplog.net.http.addresses import USUAL_CONNECTIONS
from gossiplog.net.http.listener import Address, Listener, bind
from gossiplog.net.http.server import serve
from gossiplog.net.transport.limits import Limits
from tests.net.http.clients import HANDSHAKE, PATIENCE, request, websocket
from tests.net.support import bundled_server, echo

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
    monkeypatch.setattr(uvicorn_internals, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(uvicorn_internals, "REQUEST_SECONDS", 10.0 * PATIENCE)
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 10.0 * PATIENCE)
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


async def test_its_end_drops_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    state = ServerState()
    monkeypatch.setattr(uvicorn_internals, "ServerState", lambda: state)
    monkeypatch.setattr(uvicorn_internals, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 10.0 * PATIENCE)
    full = anyio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            with anyio.move_on_after(0.1) as waiting:
                await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
            if waiting.cancelled_caught:
                full.set()

    async with bundled_server(flood) as address:
        stream = await anyio.connect_tcp(address.host, address.port)
        await stream.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await full.wait()
        assert len(state.connections) == 1
    await anyio.wait_all_tasks_blocked()
    assert state.connections == set()
    await stream.aclose()


async def test_its_end_drops_who_has_closed_and_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose closing frame was answered, behind what it has not read; the others get theirs."""
    state = ServerState()
    monkeypatch.setattr(uvicorn_internals, "ServerState", lambda: state)
    monkeypatch.setattr(uvicorn_internals, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 10.0 * PATIENCE)
    async with bundled_server() as address:
        stream = await anyio.connect_tcp(address.host, address.port)
        await stream.send(HANDSHAKE.encode())
        with anyio.fail_after(PATIENCE):
            while not any(one.transport.get_write_buffer_size() for one in state.connections):
                await anyio.sleep(0)
            (flooded,) = state.connections
            clients = [await websocket(address) for _ in range(8)]
            await stream.send(b"\x88\x80\0\0\0\0")
            while not flooded.transport.is_closing():
                await anyio.sleep(0)
    for client in clients:
        with pytest.raises(ConnectionClosed) as raised:
            await client.recv()
        assert raised.value.rcvd is not None
        assert raised.value.rcvd.code == 1012
    assert state.connections == set()
    await stream.aclose()


async def test_it_ends_at_once_where_no_request_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the event loop has closed idle connections; and it wakes for the date of answers alone."""
    pauses = list[float]()
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        pauses.append(delay)
        await sleep(delay)

    monkeypatch.setattr(asyncio, "sleep", noted)
    async with bundled_server() as address:
        stream = await anyio.connect_tcp(address.host, address.port)
        assert b"\r\ndate: " in await request(stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        before = len(pauses)
    await stream.aclose()
    assert {*pauses[:before]} == {1}
    # Two turns for what was just accepted, and a moment.
    assert pauses[before:] == [0, 0, 0.001]


async def test_connections_that_come_as_it_ends_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio accepts one in a turn, and hands it to the server two turns later."""
    accept = Listener.accept
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(serve, echo)

        def accept_at_the_end(listener: Listener) -> tuple[socket.socket, Any]:
            tasks.cancel_scope.cancel()
            return accept(listener)

        monkeypatch.setattr(Listener, "accept", accept_at_the_end)
        # The system connects them before they are accepted.
        clients = [socket.create_connection((address.host, address.port), PATIENCE) for _ in range(5)]
        await anyio.sleep_forever()
    for client in clients:
        with client, suppress(ConnectionResetError):
            assert await anyio.to_thread.run_sync(client.recv, 1) == b""


@pytest.mark.parametrize("turns", range(4))
async def test_a_server_that_is_cancelled_twice_leaves_nothing_in_the_event_loop(turns: int) -> None:
    """By tasks of asyncio, from whose cancellation no scope shields."""
    bound = bind("127.0.0.1", 0)
    number, server = bound.fileno(), asyncio.create_task(serve(echo, listener=bound))
    loop = asyncio.get_running_loop()
    with anyio.fail_after(PATIENCE):
        while number not in loop._selector.get_map():  # type: ignore[attr-defined]
            await asyncio.sleep(0)
    server.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    server.cancel()
    with pytest.raises(asyncio.CancelledError):
        await server
    assert number not in loop._selector.get_map()  # type: ignore[attr-defined]


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


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_another_event_loop() -> None:
    with pytest.raises(RuntimeError, match="the bundled server runs on asyncio"):
        await serve(echo)
