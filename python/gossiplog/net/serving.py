"""Runs an ASGI application under the bundled server, uvicorn, on asyncio (why: CONTRIBUTING.md, "Design notes").

uvicorn's own settings leave to be done here: an end within a bounded time when the caller is cancelled, signals left to
the caller, and limits on connections, on those that do not get as far as a request, and on the parts of messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import anyio
import sniffio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

MAX_MESSAGE_BYTES = 2**20
"""Bytes in a WebSocket message. Peers send one frame of yamux in each, of 64 KiB (the original)."""
MAX_FRAGMENTS = 256
"""Parts of a WebSocket message. Empty ones count for nothing in its length, but take memory."""
REQUEST_SECONDS = 10.0
"""How long a connection may take, about, to send the head of a request."""
GRACE_SECONDS = 1
"""How long connections may take to end once the server is to stop; then their tasks are cancelled."""
MAX_CONNECTIONS = 2000
"""Connections at a time: those above it are closed."""
# How long tasks that are cancelled may take to end, before they are left behind.
_LAST_SECONDS = 0.5
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TLS:
    """The files by which a server is known.

    Attributes:
        certificate: the chain, in PEM.
        key: the private key, in PEM.
    """

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: a numeric address.
        port: the one that was given by the system where 0 was asked for.
        secure: whether it speaks TLS.
    """

    host: str
    port: int
    secure: bool

    def url(self, scheme: str) -> str:
        """The base URL, for a scheme "http" or "ws"."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}{'s' if self.secure else ''}://{host}:{self.port}"


async def serve(
    app: ASGIApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: TLS | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    max_connections: int = MAX_CONNECTIONS,
    task_status: TaskStatus[Address] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serves an application until it is cancelled, and then ends within `GRACE_SECONDS` and a second.

    It is to be started in a task group: `address = await tasks.start(serve, app)`. The application gets no lifespan.

    Args:
        app: an ASGI application.
        host: a name or an address; of a name the first address. Everything but the loopback lets others in.
        port: 0 takes one that is free.
        tls: None serves without.
        max_message_bytes: in a WebSocket message; the connection of a longer one is closed.
        max_connections: at a time.
        task_status: is told the address once it listens.

    Raises:
        OSError: the address cannot be used, or the files of `tls` cannot be read.
        RuntimeError: the caller does not run on asyncio.
    """
    if sniffio.current_async_library() != "asyncio":
        raise RuntimeError("the bundled server runs on asyncio: run it with anyio.run(..., backend='asyncio')")
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws=_WebSocket,
        ws_max_size=max_message_bytes,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        # On the levels below it logs URLs, with tokens in them (net/access.py).
        log_level="warning",
        access_log=False,
        # Whoever stands behind a proxy has it check hosts and origins: its headers are not believed.
        proxy_headers=False,
        server_header=False,
        # uvicorn itself looks at this for requests alone, and answers them from this number on.
        limit_concurrency=max_connections + 1,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    config.load()
    with await _listen(host, port) as listener:
        bound_host, bound_port, *_ = listener.getsockname()
        address = Address(bound_host, bound_port, tls is not None)
        server = _Server(config)
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                # It ends by itself when it is told to; cancelled, it would leave the tasks of its connections behind.
                with anyio.CancelScope(shield=True):
                    await server.serve(sockets=[listener])
                    await server.drop_connections()

            tasks.start_soon(run)
            try:
                task_status.started(address)
                await anyio.sleep_forever()
            finally:
                server.should_exit = True


async def _listen(host: str, port: int) -> socket.socket:
    """A socket that connections can be made to at once, before the server takes them."""
    (family, _, _, _, place), *_ = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return socket.create_server(place, family=family, backlog=1024)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the program: one that has an event loop handles them already."""
        yield

    async def drop_connections(self) -> None:
        """Ends what is left after the time of grace: connections whose peers do not read, tasks that were cancelled."""
        state = self.server_state
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        if state.tasks:
            _, left = await asyncio.wait(list(state.tasks), timeout=_LAST_SECONDS)
            if left:
                _LOGGER.error("%d connections did not end: their handlers do not heed being cancelled", len(left))


class _Protocol(H11Protocol):
    """HTTP on a connection, which is closed when a request does not begin on it, or its head does not end: a server may
    otherwise be filled with connections that say nothing, or a letter a minute.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The request that was the latest one when this last looked.
        self._seen: RequestResponseCycle | None = None
        self._look_later()
        # WebSockets are among them.
        if len(self.connections) >= (self.config.limit_concurrency or 0):
            _LOGGER.warning("closed a connection from %s: there are %d", self.client, len(self.connections) - 1)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        if self.transport.get_protocol() is not self:
            # It has become a WebSocket.
            return
        # uvicorn says that it is never None, and begins with None.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is self._seen and (cycle is None or cycle.response_complete):
            _LOGGER.info("dropped a connection from %s: no request within %g s", self.client, REQUEST_SECONDS)
            self.transport.abort()
        else:
            self._seen = cycle
            self._look_later()


class _WebSocket(WebSocketsSansIOProtocol):
    """A WebSocket, which is closed when a message has very many parts: uvicorn keeps them all until the last one."""

    def handle_cont(self, event: Frame) -> None:
        if self.transport.is_closing():
            return
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
            return
        _LOGGER.info("dropped a WebSocket from %s: a message of more than %d parts", self.client, MAX_FRAGMENTS)
        self.frames = []
        self.transport.abort()
