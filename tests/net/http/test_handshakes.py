"""TLS handshakes with the bundled server, over sockets of this process."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.to_thread
import pytest

from gossiplog.net.http.handshakes import reason_of
from gossiplog.net.http.server import TLS
from gossiplog.net.rate_limited_log import client_name
from tests.net.support import TLS_FILES, bundled_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=TLS_FILES / "ca.pem")


def anonymous() -> ssl.SSLContext:
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    # The server has a key for none of these.
    context.set_ciphers("aNULL:@SECLEVEL=0")
    return context


@pytest.mark.parametrize(
    ("speak", "reason"),
    [
        (ssl.create_default_context, "it does not trust the certificate that it was shown"),
        (anonymous, "it offered no cipher that is used here"),
        (b"GET / HTTP/1.1\r\n\r\n", "it spoke HTTP without TLS: its address has to begin with https:// or wss://"),
        (b"\0" * 100, "it did not speak TLS"),
    ],
    ids=["untrusted", "ciphers", "http", "garbage"],
)
async def test_a_failed_handshake_is_logged_with_the_client(
    speak: bytes | Callable[[], ssl.SSLContext], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    def connect(host: str, port: int) -> str:
        """The name of the client, whose handshake fails."""
        with socket.create_connection((host, port)) as stream:
            name = client_name(stream.getsockname())
            # However it ends for the client.
            with suppress(OSError):
                if isinstance(speak, bytes):
                    stream.sendall(speak)
                    stream.recv(1)
                else:
                    speak().wrap_socket(stream, server_hostname="localhost").close()
        return name

    async with bundled_server(tls=TLS(TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key")) as address:
        client = await anyio.to_thread.run_sync(connect, address.host, address.port)
        with anyio.fail_after(60):
            while not caplog.messages:
                await anyio.sleep(0.01)
        assert caplog.messages == [f"{client}: no TLS handshake: {reason}"]
        # The next client is served.
        caplog.clear()
        async with await anyio.connect_tcp(
            address.host,
            address.port,
            tls=True,
            ssl_context=trusting(),
            tls_hostname="localhost",
            tls_standard_compatible=False,
        ) as stream:
            await stream.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
    assert caplog.messages == []


def test_other_reasons_are_in_openssl_s_words() -> None:
    error = ssl.SSLError(1, "a text")
    error.reason = "BAD_KEY_SHARE"
    assert reason_of(error) == "bad key share"
