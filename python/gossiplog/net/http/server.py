"""Runs an ASGI application under the bundled server, uvicorn, on asyncio (why: docs/design/http.md)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from starlette.types import ASGIApp, Receive, Scope, Send

from gossiplog.event_loop import asyncio_loop
from gossiplog.net.arguments import check_settings, check_texts, check_type
from gossiplog.net.http.connections import ConnectionTable, CountRefusals
from gossiplog.net.http.listener import Address, Listener, bind, noting_accept_errors
from gossiplog.net.http.tls import TLS, certificate_scope, watch_certificate
from gossiplog.net.http.uvicorn_internals import Config, Server
from gossiplog.net.rate_limited_log import SERVER_KEY, RateLimitedLog
from gossiplog.net.transport.limits import Limits

LOGGER = logging.getLogger(__name__)


async def serve(
    app: ASGIApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: TLS | None = None,
    limits: Limits | None = None,
    trusted_proxies: Sequence[str] = (),
    limited_log: RateLimitedLog | None = None,
    listener: Listener | None = None,
    task_status: TaskStatus[Address] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until it is cancelled, then end within two seconds.

    It is to be started in a task group: `address = await tasks.start(serve, app)`. The application gets no lifespan.
    Its scopes have what the server counted under "gossiplog.server".

    Args:
        app: an ASGI application.
        host: a name or an address; of a name the first address. Everything but the loopback lets others in.
        port: 0 takes one that is free.
        tls: None serves without. After its `reload`, new connections get the renewed certificate.
        limits: give the connections at a time, and those from one address; to each come REQUEST_CONNECTIONS. Beyond,
            a connection without a request gives way: the oldest of the address that has the most. None for the usual
            ones.
        trusted_proxies: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
        limited_log: counts and logs failed attempts of clients, and limits that they exceed; None makes its
            own. Servers may share it.
        listener: bound to the address already, in place of `host` and `port`.
        task_status: gets the address once it listens.

    Raises:
        OSError: the address cannot be used, or the files of `tls` cannot be read.
        ValueError: a proxy that is neither an address nor a network.
        TypeError: an application that is none, such as a log or its path, or `tls` or `limits` that are none.
        RuntimeError: the caller does not run on asyncio.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print(address.host, address.url("http").startswith("http://127.0.0.1:"))
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        127.0.0.1 True
    """
    if not callable(app):
        raise TypeError(f"app is {app!r}: expected an ASGI application, such as gossiplog.Hub(gossiplog.open(path))")
    if tls is not None:
        check_type("tls", tls, TLS, "gossiplog.TLS, with the files of a certificate and its key")
    check_settings(limits=(limits, Limits))
    trusted_proxies = check_texts("trusted_proxies", trusted_proxies, "127.0.0.1")
    loop = asyncio_loop()
    if loop is None:
        raise RuntimeError("the bundled server runs on asyncio: run it with anyio.run(..., backend='asyncio')")

    limited_log = limited_log or RateLimitedLog(LOGGER)
    table = ConnectionTable(limits or Limits(), trusted_proxies)
    context = None if tls is None else tls._server_context(partial(_note_handshake, limited_log))
    config = Config(
        _with_state(CountRefusals(app, table), limited_log, tls), context, limited_log, table, trusted_proxies
    )
    if listener is None:
        listener = await anyio.to_thread.run_sync(bind, host, port)
    with listener, noting_accept_errors(loop, limited_log):
        listener.begin(limited_log, table, secure=tls is not None)
        bound_host, bound_port, *_ = listener.getsockname()
        async with anyio.create_task_group() as tasks:
            if tls is not None:
                tasks.start_soon(watch_certificate, lambda: tls.not_after, partial(LOGGER.warning, "%s"))
            task_status.started(Address(bound_host, bound_port, tls is not None))
            await Server(config).run(listener)


def _with_state(app: ASGIApp, limited_log: RateLimitedLog, tls: TLS | None) -> ASGIApp:
    """Return an application whose scopes have the server's counts and the expiry of its certificate, for `/metrics`."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, SERVER_KEY: limited_log.counts, **certificate_scope(tls)}, receive, send)

    return run


def _note_handshake(limited_log: RateLimitedLog, client: str, reason: str) -> None:
    limited_log.note("bad_handshakes", client, f"no TLS handshake: {reason}")
