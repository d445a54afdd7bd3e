"""TLS of the bundled server: its certificate, and handshakes over sockets of this process."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from starlette.types import Receive, Scope, Send

from gossiplog.net.http import connections, uvicorn_internals
from gossiplog.net.http.server import serve
from gossiplog.net.http.tls import TLS, expiry_of, expiry_warning, reason_of, watch_certificate
from gossiplog.net.rate_limited_log import (
    CERTIFICATE_KEY,
    client_name,
)
from tests.net.http.clients import websocket
from tests.net.support import EC, RSA, TLS_FILES, bundled_server, echo, make_certificate

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


DAY = 86_400
NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_when_a_certificate_expires() -> None:
    text = (TLS_FILES / "localhost.pem").read_text()
    assert expiry_of(text) == datetime(2126, 10, 28, 9, 55, 5, tzinfo=UTC).timestamp()
    # The first one of a chain counts, whatever is written before it.
    assert expiry_of(f"subject=é\n{text}\n{'x' * 99}") == expiry_of(text)


@pytest.mark.parametrize("options", [EC, [*EC, "-days", "20000"]], ids=["UTCTime", "GeneralizedTime"])
def test_openssl_agrees(options: list[str], tmp_path: Path) -> None:
    certificate, _ = make_certificate(tmp_path / "certificate", tmp_path / "key", options)
    context = ssl.create_default_context(cadata=certificate.decode())
    (expected,) = (found for found in context.get_ca_certs() if ("commonName", "localhost") in found["subject"][0])
    assert expiry_of(certificate.decode()) == ssl.cert_time_to_seconds(str(expected["notAfter"]))


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----", "MAAwAA=="])
def test_what_is_no_certificate(text: str) -> None:
    with pytest.raises(ValueError, match="expected a certificate in PEM"):
        expiry_of(text)
    with pytest.raises(ValueError, match="expected a certificate in PEM"):
        expiry_of(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----")


def test_a_certificate_is_reported_in_its_last_14_days() -> None:
    assert expiry_warning(NOW + 14 * DAY, NOW) == ""
    assert expiry_warning(NOW + 13 * DAY, NOW) == (
        "the certificate expires at 2026-01-14 00:00 UTC, in 13 days: renew it, and send the server SIGHUP"
    )
    assert ", in 1 day: " in expiry_warning(NOW + 1.2 * DAY, NOW)
    assert expiry_warning(NOW, NOW) == (
        "the certificate has expired at 2026-01-01 00:00 UTC, so that clients refuse it: renew it, and send the"
        " server SIGHUP"
    )


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_it_is_reported_once_a_day() -> None:
    now, expiry, lines = NOW, NOW + 15 * DAY, list[tuple[float, str]]()

    async def sleep(seconds: float) -> None:
        nonlocal now, expiry
        now += seconds
        if now == NOW + 4 * DAY:
            # It was renewed.
            expiry += 90 * DAY
        if now == NOW + 8 * DAY:
            scope.cancel()
        await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        await watch_certificate(lambda: expiry, lambda text: lines.append((now, text)), clock=lambda: now, sleep=sleep)
    assert [(when - NOW) / DAY for when, _ in lines] == [2, 3]


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


async def test_what_is_timed_of_a_websocket_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.3)
    async with bundled_server(tls=TLS(TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key")) as address:
        async with websocket(address, ssl=trusting(), server_hostname="localhost") as client:
            await client.send(b"hi")
            assert await client.recv() == b"hi"
        await anyio.sleep(0.5)
    assert caplog.messages == []


async def test_a_handshake_has_as_long_as_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that says nothing has no place in the table of connections before it is over."""
    monkeypatch.setattr(uvicorn_internals, "REQUEST_SECONDS", 0.1)
    tls = TLS(TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key")
    async with bundled_server(tls=tls) as address, await anyio.connect_tcp(address.host, address.port) as stream:
        with anyio.fail_after(30), pytest.raises(anyio.EndOfStream):
            await stream.receive()


def test_other_reasons_are_in_openssl_s_words() -> None:
    error = ssl.SSLError(1, "a text")
    error.reason = "BAD_KEY_SHARE"
    assert reason_of(error) == "bad key share"


def test_a_certificate_that_is_not_its_authority_s_is_untrusted() -> None:
    error = ssl.SSLError(1, "a text")
    error.reason = "TLSV1_ALERT_DECRYPT_ERROR"
    assert reason_of(error) == "it does not trust the certificate that it was shown"


async def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    good, key, missing = TLS_FILES / "localhost.pem", TLS_FILES / "localhost.key", tmp_path / "missing.pem"
    for tls in (TLS(missing, key), TLS(good, missing)):
        with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
            await serve(echo, tls=tls)
    with pytest.raises(OSError, match=r"localhost\.key and .*localhost\.key cannot be used for TLS: expected a chain"):
        await serve(echo, tls=TLS(key, key))
    with pytest.raises(OSError, match=r"the key in .*localhost\.key is not that of the certificate in .*ca\.pem"):
        await serve(echo, tls=TLS(TLS_FILES / "ca.pem", key))


@pytest.mark.slow
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


async def test_a_server_that_starts_after_a_reload_reads_the_files_again(tmp_path: Path) -> None:
    """So does one that began earlier with the same files: `not_after` is that of the certificate that all show."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    tls = TLS(certificate, key)
    make_certificate(certificate, key, EC)
    async with bundled_server(tls=tls) as first:
        tls.reload()
        renewed, _ = make_certificate(certificate, key, [*EC, "-days", "60"])
        async with bundled_server(tls=tls) as second:
            for address in (first, second):
                place = (address.host, address.port)
                shown = await anyio.to_thread.run_sync(ssl.get_server_certificate, place)
                assert shown == renewed.decode()
                assert tls.not_after == expiry_of(shown)


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
            await anyio.sleep(0.001)
    assert told == [tls.not_after]
    (line,) = caplog.messages
    assert line.startswith("the certificate expires at ")
    assert line.endswith(", in 3 days: renew it, and send the server SIGHUP")
