"""The socket of the bundled server."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from itertools import pairwise
from typing import Any

import anyio
import pytest

from gossiplog.net.http.listener import Address, Listener, bind, noting_accept_errors
from gossiplog.net.http.server import serve
from gossiplog.net.rate_limited_log import LINES, RateLimitedLog
from tests.net.http.clients import PATIENCE, request
from tests.net.support import bundled_server, echo

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_urls() -> None:
    assert Address("::1", 443, secure=True).url("ws") == "wss://[::1]:443"


async def test_an_address_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await serve(echo, port=taken.getsockname()[1])


async def test_an_address_that_cannot_be_used_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])
    # An address of documentation (RFC 5737), which no machine has.
    with pytest.raises(OSError, match="it is no address of this machine"):
        bind("192.0.2.1", 0)


async def test_a_small_message_after_a_large_one_is_sent_at_once() -> None:
    """Without TCP_NODELAY it waits for an acknowledgement that a client which only reads delays by 40 ms."""
    found = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connection = transport.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    listener = bind("127.0.0.1", 0)
    async with await asyncio.get_running_loop().create_server(Accepted, sock=listener):
        with socket.create_connection(listener.getsockname()[:2]):
            assert await found


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [
        ("127.0.0.1", 70_000, "expected a port from 0 to 65535"),
        ("127.0.0.1", -1, "expected a port from 0 to 65535"),
        ("a..b", 0, "cannot be the name of a host"),
        ("a" * 64, 0, "cannot be the name of a host"),
    ],
)
def test_what_is_no_address_is_refused(host: str, port: int, reason: str) -> None:
    with pytest.raises(OSError, match=f"cannot listen at {host}:{port}: .*{reason}") as caught:
        bind(host, port)
    assert reason in caught.value.strerror


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


async def test_a_server_that_ends_leaves_the_handler_of_one_that_began_later() -> None:
    loop, former = asyncio.get_running_loop(), asyncio.get_running_loop().get_exception_handler()
    others: list[dict[str, Any]] = []
    logs = [RateLimitedLog(logging.getLogger("gossiplog.net.http.server")) for _ in range(2)]
    first, second = (noting_accept_errors(loop, log) for log in logs)
    context = {"message": "out of system resource", "exception": OSError(errno.EMFILE, "no"), "socket": None}
    loop.set_exception_handler(lambda loop, context: others.append(context))
    try:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        loop.call_exception_handler(context)
        assert ([log.counts["no_descriptors"] for log in logs], others) == ([0, 1], [])
        second.__exit__(None, None, None)
        loop.call_exception_handler(context)
        assert ([log.counts["no_descriptors"] for log in logs], others) == ([0, 1], [context])
    finally:
        loop.set_exception_handler(former)


async def test_servers_that_take_each_other_s_place_leave_no_handlers() -> None:
    """The next begins before the last one ends, as often as it likes: what is left would be called one in another."""
    loop = asyncio.get_running_loop()
    log = RateLimitedLog(logging.getLogger("gossiplog.net.http.server"))
    before = loop.get_exception_handler()
    servers = [noting_accept_errors(loop, log) for _ in range(2000)]
    servers[0].__enter__()
    for last, following in pairwise(servers):
        following.__enter__()
        last.__exit__(None, None, None)
    others: list[str] = []
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(loop, "default_exception_handler", lambda context: others.append(context["message"]))
        loop.call_exception_handler({"message": "another error"})
    assert others == ["another error"]
    servers[-1].__exit__(None, None, None)
    assert loop.get_exception_handler() is before
