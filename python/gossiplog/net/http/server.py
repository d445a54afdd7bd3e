"""Runs an ASGI application under the bundled server, uvicorn, on asyncio (why: docs/design/http.md).

uvicorn's own settings leave to be done here: an end within a bounded time when the caller is cancelled, signals left to
the caller, and limits on connections, on those that do not get as far as a request or do not read what is sent to them,
and on the parts of messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import h11
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from gossiplog.files import check_file
from gossiplog.net.arguments import check_texts, check_type
from gossiplog.net.event_loop import asyncio_loop
from gossiplog.net.http.addresses import Rates, host_of, is_within, limit_of, read_networks, source_of
from gossiplog.net.http.certificates import expiry_of, watch_certificate
from gossiplog.net.http.handshakes import CLIENT, watch_handshakes
from gossiplog.net.rate_limited_log import CERTIFICATE_KEY, SERVER_KEY, VIOLATION_KEY, RateLimitedLog, client_name
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.pacing import BODY_PART_BYTES, PART_BYTES, Paced
from gossiplog.reprs import short_repr

MAX_MESSAGE_BYTES = 2**20
"""Bytes in a WebSocket message. Peers send one frame of yamux in each, of 64 KiB (canvas-js)."""
MAX_HEAD_BYTES = 2**13
"""Bytes in the head of a request, which is parsed in one callback of the event loop."""
MAX_FRAGMENTS = 256
"""Parts of a WebSocket message. Empty ones count for nothing in its length, but take memory."""
REQUEST_SECONDS = 10.0
"""How long a connection may take, about, to send the head of a request."""
GRACE_SECONDS = 1
"""How long connections may take to end once the server is to stop; then their tasks are cancelled."""
UNREAD_SECONDS = 10.0
"""How long a client may go without reading LEAST_READ of what waits for it; it may take twice as long to be found."""
LEAST_READ = 2**14
"""Bytes, or all that waits."""
MOST_REFUSALS = 32
"""Answers of status 429 that an address gets at once, and as many again in RENEWAL_SECONDS. Then its connections are
closed as they are accepted: to refuse one costs as much as to let it in."""
REQUEST_CONNECTIONS = 64
"""Beyond those of the limits: a hub that is full still says so, and answers requests for its metrics."""
ACCEPTED_AT_ONCE = 8
"""New connections in a turn of the event loop; each takes a third of a millisecond."""
NO_DESCRIPTORS = "the process has no file descriptor left: raise its limit (LimitNOFILE= of systemd, ulimit -n)"
"""Why a connection is dropped that cannot be accepted."""
# https://www.rfc-editor.org/rfc/rfc6585#section-4
_TOO_MANY = 429
# https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1
_INVALID_DATA = 1007
# Those that wait to be accepted.
_BACKLOG = 1024
# What `accept` raises where the system lacks something that other connections may give back.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# How long tasks that are cancelled may take to end, before they are left behind.
_LAST_SECONDS = 0.5
# What OpenSSL says of a key that is not the certificate's, of the same type or of another.
_OTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
# What to do about an address that cannot be used.
_LISTENING = {
    errno.EADDRINUSE: "; another program listens there: stop it, or take another port",
    errno.EADDRNOTAVAIL: "; it is no address of this machine",
    errno.EACCES: "; ports below 1024 need the right to bind them",
}
LOGGER = logging.getLogger(__name__)
_LoopHandler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


@short_repr
@dataclass(slots=True)
class TLS:
    """The files by which a server is known.

    Attributes:
        certificate: the chain, in PEM.
        key: the private key, in PEM.
    """

    certificate: str | os.PathLike[str]
    key: str | os.PathLike[str]
    _renewed: ssl.SSLContext | None = field(default=None, init=False, repr=False, compare=False)
    _not_after: float | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def not_after(self) -> float | None:
        """When the certificate that was read last expires, in seconds since the epoch.

        None before `serve` has read it, or where that is not known.
        """
        return self._not_after

    def reload(self) -> None:
        """Read both files again, for the connections that are made from now on.

        Raises:
            OSError: a file cannot be read, or they do not hold a certificate and its key. The former ones stay in use.
        """
        self._renewed = self._read()

    def _read(self) -> ssl.SSLContext:
        """Return a context of the files as they are now; note when the certificate expires."""
        context = _context_of(self)
        try:
            self._not_after = expiry_of(Path(self.certificate).read_text(encoding="utf-8", errors="replace"))
        except ValueError:
            # OpenSSL can use what this package cannot read.
            self._not_after = None
        return context

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Use the renewed certificate for a handshake.

        A chain that is loaded into the context itself would stand beside the former one if its key is of another type.
        """
        if self._renewed is not None:
            connection.context = self._renewed


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
        """Return the base URL, for a scheme "http" or "ws"."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}{'s' if self.secure else ''}://{host}:{self.port}"


async def serve(
    app: ASGIApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    tls: TLS | None = None,
    limits: Limits | None = None,
    trusted_proxies: Sequence[str] = (),
    incidents: RateLimitedLog | None = None,
    listener: Listener | None = None,
    task_status: TaskStatus[Address] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until it is cancelled, then end within `GRACE_SECONDS` and a second.

    It is to be started in a task group: `address = await tasks.start(serve, app)`. The application gets no lifespan.
    Its scopes have what the server counted under SERVER_KEY.

    Args:
        app: an ASGI application.
        host: a name or an address; of a name the first address. Everything but the loopback lets others in.
        port: 0 takes one that is free.
        tls: None serves without. After its `reload`, new connections get the renewed certificate.
        limits: give the connections at a time, and those from one address; to each come REQUEST_CONNECTIONS. Beyond,
            a connection without a request gives way: the oldest of the address that has the most. None for the usual
            ones.
        trusted_proxies: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
        incidents: counts and logs what clients do in vain or against a limit; None makes its own. Servers may share it.
        listener: bound to the address already (see `bind`), in place of `host` and `port`.
        task_status: is told the address once it listens.

    Raises:
        OSError: the address cannot be used, or the files of `tls` cannot be read.
        ValueError: a proxy that is neither an address nor a network.
        TypeError: an application that is none, such as a log or its path, or `tls` or `limits` that are none.
        RuntimeError: the caller does not run on asyncio.
    """
    if not callable(app):
        raise TypeError(f"app is {app!r}: expected an ASGI application, such as gossiplog.Hub(gossiplog.open(path))")
    if tls is not None:
        check_type("tls", tls, TLS, "gossiplog.TLS, with the files of a certificate and its key")
    if limits is not None:
        check_type("limits", limits, Limits, "gossiplog.Limits")
    trusted_proxies = check_texts("trusted_proxies", trusted_proxies, "127.0.0.1")
    loop = asyncio_loop()
    if loop is None:
        raise RuntimeError("the bundled server runs on asyncio: run it with anyio.run(..., backend='asyncio')")
    incidents = incidents or RateLimitedLog(LOGGER)
    limits = limits or Limits()
    connection_table = _ConnectionTable(limits, trusted_proxies)

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        host = host_of(scope)

        async def watched(message: Message) -> None:
            if message.get("status") == _TOO_MANY:
                connection_table.refused(host)
                if message["type"] == "http.response.start" and connection_table.is_shut_out(host):
                    # On a connection that stands the client could go on.
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        is_limited = connection_table.most(host) is not None
        inner = {**scope, SERVER_KEY: incidents.counts, **expiry_scope(tls)}
        await app(inner, receive, watched if is_limited else send)

    behind: ASGI3Application = counted  # type: ignore[assignment]
    if trusted_proxies:
        behind = ProxyHeadersMiddleware(behind, list(trusted_proxies))
    config = _Config(
        behind,
        http=_Protocol,
        ws=_WebSocket,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        # On the levels below it logs URLs, with tokens in them (net/http/access.py).
        log_level="warning",
        access_log=False,
        # A server behind a proxy has it check hosts and origins. Its headers are believed only if it was named.
        proxy_headers=False,
        server_header=False,
        # uvicorn itself looks at this for requests alone, and answers them from this number on.
        limit_concurrency=limits.connections + REQUEST_CONNECTIONS + 1,
        # asyncio accepts so many in one callback, and begins all of them in the next turn.
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    if tls is not None:
        tls._read()
    config.incidents = incidents
    config.connection_table = connection_table
    config.load()
    if config.ssl is not None and tls is not None:
        config.ssl.sni_callback = tls._choose
        watch_handshakes(config.ssl, partial(_note_handshake, incidents))
    if listener is None:
        listener = await anyio.to_thread.run_sync(bind, host, port)
    with listener:
        listener.incidents = incidents
        listener.connection_table = connection_table
        listener.listen()
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
            if tls is not None:
                tasks.start_soon(watch_certificate, lambda: tls.not_after, partial(LOGGER.warning, "%s"))
            handler = loop.get_exception_handler()
            loop.set_exception_handler(partial(_on_loop_error, incidents, handler))
            try:
                task_status.started(address)
                await anyio.sleep_forever()
            finally:
                loop.set_exception_handler(handler)
                server.should_exit = True


def expiry_scope(tls: TLS | None) -> dict[str, Any]:
    """Return what a scope says of the certificate, for `/metrics`: nothing without one."""
    return {} if tls is None else {CERTIFICATE_KEY: tls.not_after}


def _on_loop_error(
    incidents: RateLimitedLog, other: _LoopHandler | None, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
) -> None:
    """Note that asyncio could not accept a connection; pass on other errors.

    asyncio repeats this one each second, with a traceback.
    """
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _EXHAUSTED and "socket" in context:
        incidents.note("no_descriptors", "unknown", f"not accepted: {NO_DESCRIPTORS}")
    elif other is not None:
        other(loop, context)
    else:
        loop.default_exception_handler(context)


def _note_handshake(incidents: RateLimitedLog, client: str, reason: str) -> None:
    incidents.note("bad_handshakes", client, f"no TLS handshake: {reason}")


def _context_of(tls: TLS) -> ssl.SSLContext:
    """Return a context with the certificate.

    Raises:
        OSError: a file cannot be read, or they do not hold a certificate and its key. Its text names the file.
    """
    for path in (tls.certificate, tls.key):
        # OpenSSL does not say which file it cannot read, and would wait for a pipe.
        check_file(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except ssl.SSLError as error:
        certificate, key = os.fspath(tls.certificate), os.fspath(tls.key)
        if error.reason in _OTHER_KEY:
            raise OSError(f"the key in {key} is not that of the certificate in {certificate}") from error
        raise OSError(
            f"{certificate} and {key} cannot be used for TLS: expected a chain of certificates and an unencrypted key,"
            f" each in PEM ({error.reason or error})"
        ) from error
    return context


def bind(host: str, port: int) -> Listener:
    """Take an address for a server that does not listen yet. It may wait for a name to be resolved.

    Args:
        host: a name or an address; of a name the first address.
        port: 0 takes one that is free.

    Raises:
        OSError: the address cannot be used; `strerror` says why.
    """
    listener = None
    try:
        (family, _, _, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listener = Listener(family, socket.SOCK_STREAM)
        if os.name == "posix":
            # As servers do, to listen again at once after their end; on Windows others could take the port as well.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(place)
    except OSError as error:
        if listener is not None:
            listener.close()
        number = error.errno or 0
        reason = os.strerror(number) if number in errno.errorcode else error.strerror
        raise OSError(number, f"cannot listen at {host}:{port}: {reason}{_LISTENING.get(number, '')}") from error
    return listener


class Listener(socket.socket):
    """A socket on which _BACKLOG connections may wait, and of which asyncio accepts few at once.

    asyncio has one number for both. The socket sets `gossiplog.net.http.handshakes.CLIENT` for each connection.

    Where no file descriptor is left, a connection is closed as soon as it is accepted, with one that was kept for that:
    a client that waits without an answer would wait until its own time limit.

    Attributes:
        incidents: takes notice of those connections; None before it is known.
        connection_table: says which addresses' connections are closed likewise; None before it is known.
    """

    incidents: RateLimitedLog | None = None
    connection_table: _ConnectionTable | None = None
    # Set where it is reached: `accept` of this socket runs on the event loop alone.
    _spare: int | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED or self._spare is None:
                raise
            self._drop_one()
            # To asyncio: there is nobody to be served.
            raise BlockingIOError from error
        if self._spare is None:
            self._open_spare()
        client = client_name(address[:2])
        if self.connection_table is not None and self.connection_table.is_shut_out(address[0]):
            connection.close()
            if self.incidents is not None:
                self.incidents.note("too_many_from_address", client, "not accepted: it went on after many refusals")
            raise BlockingIOError
        CLIENT.set(client)
        return connection, address

    def listen(self, backlog: int = 0, /) -> None:
        super().listen(_BACKLOG)
        if self._spare is None:
            self._open_spare()

    def close(self) -> None:
        self._give_up_spare()
        super().close()

    def _open_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _give_up_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _drop_one(self) -> None:
        self._give_up_spare()
        try:
            connection, address = super().accept()
        except OSError:
            # Another thread has taken the descriptor, or the client has left.
            pass
        else:
            connection.close()
            if self.incidents is not None:
                self.incidents.note("no_descriptors", client_name(address[:2]), f"dropped: {NO_DESCRIPTORS}")
        self._open_spare()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program: one that has an event loop handles them already."""
        yield

    async def drop_connections(self) -> None:
        """End what is left after the time of grace: connections whose peers do not read, tasks that were cancelled."""
        state = self.server_state
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        if state.tasks:
            _, left = await asyncio.wait(list(state.tasks), timeout=_LAST_SECONDS)
            if left:
                LOGGER.error("%d connections did not end: their handlers do not heed being cancelled", len(left))


class _Config(uvicorn.Config):
    """uvicorn's, which it hands to every connection.

    Attributes:
        incidents: takes notice of the connections that are dropped.
        connection_table: of the server.
    """

    incidents: RateLimitedLog
    connection_table: _ConnectionTable


class _ConnectionTable:
    """The connections of a server by their addresses, and who gives way when there are too many.

    Args:
        limits: of connections, in all and from one address.
        trusted_proxies: from which any number may come.
    """

    def __init__(self, limits: Limits, trusted_proxies: Sequence[str]) -> None:
        self._limits = limits
        self._proxies = read_networks(trusted_proxies)
        # By address, the oldest first.
        self._transports: dict[str, dict[asyncio.Transport, None]] = {}
        self._refused = Rates(time.monotonic)

    def enter(self, transport: asyncio.Transport, host: str | None) -> None:
        """Count a connection."""
        self._transports.setdefault(source_of(host), {})[transport] = None

    def leave(self, transport: asyncio.Transport, host: str | None) -> None:
        """Count a connection no more."""
        source = source_of(host)
        transports = self._transports.get(source, {})
        transports.pop(transport, None)
        if not transports:
            self._transports.pop(source, None)

    def most(self, host: str | None) -> int | None:
        """Return how many connections an address may have; None for any number."""
        limit = limit_of(source_of(host), self._limits.connections_per_address)
        if limit is None or host is None or is_within(host, self._proxies):
            return None
        return limit + REQUEST_CONNECTIONS

    def limit(self, host: str | None) -> int | None:
        """Return the limit of an address if it is reached, else None."""
        most = self.most(host)
        return most if most is not None and len(self._transports.get(source_of(host), ())) >= most else None

    def refused(self, host: str | None) -> None:
        """Note that a client was told that it has too much, or comes too often, or makes connections for nothing."""
        self._refused.count(source_of(host), MOST_REFUSALS)

    def is_shut_out(self, host: str | None) -> bool:
        """Return whether an address was told so that often that its connections are worth no answer now."""
        return self.most(host) is not None and self._refused.wait(source_of(host), MOST_REFUSALS) > 0

    def oldest_idle(self, host: str | None) -> _Protocol | None:
        """Return the oldest connection of an address on which no request is under way."""
        return _first_idle(self._transports.get(source_of(host), ()))

    def oldest_idle_of_most(self) -> _Protocol | None:
        """Return the oldest such connection of the address with the most connections that has one."""
        by_address = sorted(self._transports.values(), key=len, reverse=True)
        return next(filter(None, map(_first_idle, by_address)), None)


def _announced_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the length of a body that h11 reads up to; 0 for one in chunks."""
    fields = dict(headers)
    return 0 if b"transfer-encoding" in fields else int(fields.get(b"content-length", b"0"))


def _first_idle(transports: Iterable[asyncio.Transport]) -> _Protocol | None:
    return next(filter(None, map(_idle, transports)), None)


def _idle(transport: asyncio.Transport) -> _Protocol | None:
    protocol = transport.get_protocol()
    return protocol if isinstance(protocol, _Protocol) and protocol.is_idle else None


class _Reading:
    """Looks, now and then, whether a client reads what is written to its connection, and drops it if not.

    uvicorn waits for it without end, and a closed connection is there until it has read the rest.

    Args:
        protocol: of the connection; once it has another, this one's end is not looked at any more.
        transport: of the connection.
        drop: ends it.
    """

    def __init__(self, protocol: asyncio.Protocol, transport: asyncio.Transport, drop: Callable[[], None]) -> None:
        self._protocol = protocol
        self._transport = transport
        self._drop = drop
        self._paused = False
        # What waited at the last look; None when nothing did, or when it was read since.
        self._left: int | None = None
        self._look_later()

    def pause(self) -> None:
        """Much is waiting to be read: nothing more is written."""
        self._paused = True

    def resume(self) -> None:
        """Most of it was read."""
        self._paused = False
        self._left = None

    def end(self) -> None:
        """Stop looking: the connection is gone."""
        self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(UNREAD_SECONDS, self._look)

    def _look(self) -> None:
        if self._transport.get_protocol() is not self._protocol:
            return
        left = self._transport.get_write_buffer_size()
        # While nothing more is written, all that changes is what was read.
        if left == 0 or not (self._paused or self._transport.is_closing()):
            self._left = None
        elif self._left is not None and self._left - left < LEAST_READ:
            self._drop()
            return
        else:
            self._left = left
        self._look_later()


class _ConnectionLog(logging.Logger):
    """uvicorn's lines about a connection, counted and limited: strangers cause them, as often as they like."""

    def __init__(self, incidents: RateLimitedLog, client: str) -> None:
        super().__init__(__name__, logging.WARNING)
        self._incidents = incidents
        self._client = client

    def handle(self, record: logging.LogRecord) -> None:
        """Note what uvicorn says, with the traceback of what the application raised."""
        error = record.exc_info[1] if record.exc_info else None
        kind = "server_errors" if record.levelno >= logging.ERROR else "bad_requests"
        self._incidents.note(kind, self._client, record.getMessage(), error=error)


class _Dropping(Paced):
    """How both kinds of connections are dropped, and when: those whose client does not read."""

    config: uvicorn.Config
    transport: asyncio.Transport
    client: tuple[str, int] | None
    logger: logging.Logger

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if isinstance(self.config, _Config):
            self.logger = _ConnectionLog(self.config.incidents, client_name(self.client))
        self._reading = _Reading(self, transport, self._drop_unread)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.end()
        if isinstance(self.config, _Config):
            self.config.connection_table.leave(self._gate.inner, self._host())
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading.resume()

    def _drop(self, kind: str, text: str) -> None:
        """End the connection at once.

        Args:
            kind: under which it is counted.
            text: what the client did, as a clause.
        """
        if isinstance(self.config, _Config):
            self.config.incidents.note(kind, client_name(self.client), f"dropped: {text}")
        self.transport.abort()

    def _host(self) -> str | None:
        return None if self.client is None else str(self.client[0])

    def _drop_unread(self) -> None:
        self._drop("unread", f"it does not read what is sent to it: not {LEAST_READ} bytes in {UNREAD_SECONDS:g} s")


class _Protocol(_Dropping, H11Protocol):
    """HTTP on a connection, which is closed when its client is too slow.

    That is when a request does not begin on it, its head does not end, or the answer is not read: a server may
    otherwise be filled with connections that say nothing, or a letter a minute.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The request that was the latest one when this last looked.
        self._seen: RequestResponseCycle | None = None
        # The request whose body arrives, and how many of its bytes are still to come, at least.
        self._arriving: RequestResponseCycle | None = None
        self._body_left = 0
        self._look_later()
        if isinstance(self.config, _Config):
            self._register(self.config.connection_table)

    def _register(self, connection_table: _ConnectionTable) -> None:
        """Admit this connection; where there are too many, drop the oldest idle one, or else this one."""
        host = self._host()
        if (limit := connection_table.limit(host)) is not None:
            dropped = connection_table.oldest_idle(host) or self
            if not dropped.has_asked:
                # One after the other without a request: to accept the next costs more than to close it.
                connection_table.refused(host)
            dropped._drop("too_many_from_address", f"there are {limit} connections from its address")
        # WebSockets are among them.
        elif len(self.connections) >= (self.config.limit_concurrency or 0):
            (connection_table.oldest_idle_of_most() or self)._drop(
                "too_many_connections", f"there are {len(self.connections) - 1} connections"
            )
        connection_table.enter(self._gate.inner, host)

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        cycle: RequestResponseCycle | None = self.cycle
        return not self.transport.is_closing() and (cycle is None or cycle.response_complete)

    @property
    def has_asked(self) -> bool:
        """Whether there was a request."""
        # uvicorn says that it is never None, and begins with None.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _part_bytes(self) -> int:
        if self.conn.their_state is not h11.SEND_BODY:
            return PART_BYTES
        if self._arriving is not self.cycle:
            self._arriving = self.cycle
            # Of a body in chunks each may be one byte. The head's last part may have brought some of the body.
            self._body_left = _announced_length(self.headers) - PART_BYTES
        part = max(PART_BYTES, min(self._body_left, BODY_PART_BYTES))
        self._body_left -= part
        return part

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        if isinstance(protocol, _WebSocket):
            self.successor = protocol
            # Frames of a client that does not wait for the answer. uvicorn loses them.
            early, _ = self.conn.trailing_data
            protocol.data_received(bytes(early))

    def _look_later(self) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        if self.transport.get_protocol() is not self:
            # It has become a WebSocket.
            return
        # uvicorn says that it is never None, and begins with None.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is self._seen and (cycle is None or cycle.response_complete):
            self._drop("no_request", f"no request within {REQUEST_SECONDS:g} s")
        else:
            self._seen = cycle
            self._look_later()


class _WebSocket(_Dropping, WebSocketsSansIOProtocol):  # type: ignore[misc]
    """A WebSocket, which is closed when the client does not read, and when a message has very many parts.

    uvicorn keeps all parts until the last one.
    """

    async def send(self, message: ASGISendEvent) -> None:
        await self.writable.wait()
        if self.close_sent:
            # As after a client broke the protocol: uvicorn would blame the application, with a traceback each time.
            raise ClientDisconnected
        was_complete = self.handshake_complete
        await super().send(message)
        if self.handshake_complete and not was_complete:
            self.transport.resume_reading()
        # uvicorn takes a refusal for a handshake that was left incomplete, and writes a line about each.
        self.handshake_complete |= self.close_sent

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # h11 has accepted the head and websockets refuses it: uvicorn would wait for more forever.
            self._drop("bad_handshakes", f"no WebSocket handshake: {self.conn.handshake_exc}")

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.conn.handshake_exc is not None and isinstance(self.config, _Config):
            text = f"no WebSocket handshake: {self.conn.handshake_exc}"
            self.config.incidents.note("bad_handshakes", client_name(self.client), text)
        # uvicorn fails on frames that a client sends before it was let in.
        self.transport.pause_reading()

    def handle_parser_exception(self) -> None:
        """Blame a client that sent what no client may, such as a frame without a mask.

        uvicorn takes it for one that left.
        """
        error = self.conn.parser_exc
        if error is None or isinstance(error, (UnicodeDecodeError, ProtocolError, PayloadTooBig)):
            text = "text that is not UTF-8" if error is None else f"what no client may: {error}"
            reason = f"it sent {text} on the WebSocket"
            # Before uvicorn's own message, which has no room for it.
            message: Any = {"type": "websocket.disconnect", "code": _INVALID_DATA, VIOLATION_KEY: reason}
            self.queue.put_nowait(message)
        if self.conn.close_sent is None:
            # It came before the client was let in: uvicorn would fail.
            self.transport.abort()
            return
        super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                # uvicorn would write a traceback, as of an error of the server's.
                self.frames = []
                if self.conn.state is State.OPEN:
                    self.conn.send_close(_INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        if self.transport.is_closing():
            return
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
            return
        self.frames = []
        self._drop("too_many_parts", f"a message of more than {MAX_FRAGMENTS} parts")
