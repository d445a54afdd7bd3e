"""The connections of a server: how many each address may have, and which ones are dropped.

A connection is dropped when there are too many and it is the oldest idle one, or when its client does not read what is
sent to it. An address that goes on after many refusals is blocked: its connections are closed as they are accepted.
With TLS a connection counts from its acceptance on, as an idle one until its handshake has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from gossiplog.net.http.addresses import Rates, host_of, is_within, limit_of, read_networks, source_of
from gossiplog.net.rate_limited_log import RateLimitedLog, client_name
from gossiplog.net.transport.limits import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_CONNECTIONS = 64
"""Beyond those of the limits: a hub that is full still says so, and answers requests for its metrics."""
MAX_REFUSALS = 32
"""Answers of status 429 that an address gets at once, and as many again in RENEWAL_SECONDS. Then it is blocked: to
refuse a connection costs as much as to let it in."""
UNREAD_SECONDS = 10.0
"""How long a client may go without reading MIN_READ_BYTES of what waits for it; a client is dropped after this time or
up to twice as long."""
MIN_READ_BYTES = 2**14
"""Bytes, or all that waits."""
# https://www.rfc-editor.org/rfc/rfc6585#section-4
_TOO_MANY_REQUESTS = 429


_Handle: TypeAlias = asyncio.Transport | socket.socket


class Connection(Protocol):
    """What the table asks of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether it is open and no request is under way."""

    @property
    def has_request(self) -> bool:
        """Whether a request has begun on it."""

    def drop(self, kind: str, text: str) -> None:
        """End it at once.

        Args:
            kind: under which it is counted.
            text: what the client did, as a clause.
        """


class ConnectionTable:
    """The connections of a server by their addresses.

    Args:
        limits: of connections, in all and from one address; to each come REQUEST_CONNECTIONS.
        trusted_proxies: from which any number may come.

    Attributes:
        capacity: connections in all.

    Raises:
        ValueError: a proxy that is neither an address nor a network.
    """

    def __init__(self, limits: Limits, trusted_proxies: Sequence[str]) -> None:
        self.capacity = limits.connections + REQUEST_CONNECTIONS
        self._per_address = limits.connections_per_address
        self._proxies = read_networks(trusted_proxies)
        # The oldest first.
        self._by_source: dict[str, dict[_Handle, Connection]] = {}
        self._sources: dict[_Handle, str] = {}
        # By file descriptor, by which a transport names its socket.
        self._handshakes: dict[int, Handshake] = {}
        self._refusals = Rates(time.monotonic)

    def begin_handshake(self, handshake: Handshake) -> None:
        """Add a connection that was accepted, until its socket is closed or `admit` gets its transport."""
        self._handshakes[handshake.fileno()] = handshake
        self._add(handshake, handshake, handshake.host)

    def end_handshake(self, descriptor: int) -> None:
        """Forget the handshake on a file descriptor, if there is one."""
        handshake = self._handshakes.pop(descriptor, None)
        if handshake is not None:
            self.remove(handshake)

    def drop_handshakes(self) -> None:
        """End all connections whose handshakes have not ended."""
        for handshake in [*self._handshakes.values()]:
            handshake.shut_down()

    def admit(self, transport: asyncio.Transport, connection: Connection, host: str | None) -> None:
        """Add a connection; where there are too many, drop the oldest idle one, or else this one."""
        accepted = transport.get_extra_info("socket")
        if accepted is not None:
            self.end_handshake(accepted.fileno())
        self._add(transport, connection, host)

    def _add(self, handle: _Handle, connection: Connection, host: str | None) -> None:
        source = source_of(host)
        own = self._by_source.setdefault(source, {})
        limit = self.limit_of(host)
        if limit is not None and len(own) >= limit:
            dropped = _first_idle(own.values()) or connection
            if not dropped.has_request:
                # One after the other without a request: to accept the next costs more than to close it.
                self.count_refusal(host)
            dropped.drop("too_many_from_address", f"there are {limit} connections from its address")
        elif len(self._sources) >= self.capacity:
            dropped = self._oldest_idle() or connection
            dropped.drop("too_many_connections", f"there are {len(self._sources)} connections")
        own[handle] = connection
        self._sources[handle] = source

    def remove(self, handle: _Handle) -> None:
        """Forget a connection that has ended."""
        source = self._sources.pop(handle, None)
        if source is not None:
            own = self._by_source[source]
            del own[handle]
            if not own:
                del self._by_source[source]

    def limit_of(self, host: str | None) -> int | None:
        """Return how many connections an address may have; None for any number."""
        limit = limit_of(source_of(host), self._per_address)
        if limit is None or host is None or is_within(host, self._proxies):
            return None
        return limit + REQUEST_CONNECTIONS

    def count_refusal(self, host: str | None) -> None:
        """Count that a client was refused, for too much or too often, or was dropped without a request."""
        self._refusals.count(source_of(host), MAX_REFUSALS)

    def is_blocked(self, host: str | None) -> bool:
        """Return whether an address was refused so often that its connections are not accepted now."""
        return self.limit_of(host) is not None and self._refusals.wait(source_of(host), MAX_REFUSALS) > 0

    def _oldest_idle(self) -> Connection | None:
        """Return the oldest idle connection of the address with the most connections that has one."""
        by_count = sorted(self._by_source.values(), key=len, reverse=True)
        return next(filter(None, (_first_idle(connections.values()) for connections in by_count)), None)


class Handshake(socket.socket):
    """An accepted socket whose TLS handshake has not ended; asyncio closes it when that fails.

    asyncio has no transport for it until the handshake has ended, and calls nothing when it fails.
    """

    host: str
    _address: tuple[str, int]
    _table: ConnectionTable
    _limited_log: RateLimitedLog
    _is_shut_down = False

    @classmethod
    def begin(
        cls, accepted: socket.socket, address: tuple[str, int], table: ConnectionTable, limited_log: RateLimitedLog
    ) -> Self:
        """Take the place of a socket that was accepted, and of its connection in the table.

        Args:
            accepted: of no further use.
            address: host and port of the client.
            table: that counts it.
            limited_log: counts and logs that it is dropped.
        """
        handshake = cls(accepted.family, accepted.type, accepted.proto, accepted.detach())
        handshake.host, handshake._address, handshake._table, handshake._limited_log = (
            address[0],
            address,
            table,
            limited_log,
        )
        table.begin_handshake(handshake)
        return handshake

    @property
    def is_idle(self) -> bool:
        """Whether it is open: no request can have begun on it."""
        return not self._is_shut_down

    @property
    def has_request(self) -> bool:
        """False, always."""
        return False

    def drop(self, kind: str, text: str) -> None:
        """End it at once; asyncio sees the end of its bytes."""
        self._limited_log.note(kind, client_name(self._address), f"dropped: {text}")
        self.shut_down()

    def shut_down(self) -> None:
        """End it at once, without a line in the log."""
        self._is_shut_down = True
        # The client may have left.
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._table.end_handshake(self.fileno())
        super().close()


def _first_idle(connections: Iterable[Connection]) -> Connection | None:
    return next((connection for connection in connections if connection.is_idle), None)


class CountRefusals:
    """ASGI middleware that counts answers of status 429 by address, and ends the connections of blocked addresses."""

    def __init__(self, app: ASGIApp, table: ConnectionTable) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = host_of(scope)

        async def counting_send(message: Message) -> None:
            if message.get("status") == _TOO_MANY_REQUESTS:
                self._table.count_refusal(host)
                if message["type"] == "http.response.start" and self._table.is_blocked(host):
                    # The client could go on with requests on the open connection.
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        is_limited = self._table.limit_of(host) is not None
        await self._app(scope, receive, counting_send if is_limited else send)


class ReadTimeout:
    """Drops a connection whose client does not read what is written to it.

    uvicorn waits for it without end, and a closed connection is there until the client has read the rest.

    Args:
        transport: of the connection.
        drop: ends it, as `Connection.drop` does.
    """

    def __init__(self, transport: asyncio.Transport, drop: Callable[[str, str], None]) -> None:
        self._transport = transport
        self._drop = drop
        self._is_paused = False
        # What waited at the last check; None when nothing did, or when it was read since.
        self._unread: int | None = None
        self._schedule()

    def pause_writing(self) -> None:
        """Much waits to be read, and nothing more is written."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Most of it was read."""
        self._is_paused = False
        self._unread = None

    def cancel(self) -> None:
        """Stop checking: the connection has ended, or has another protocol."""
        self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(UNREAD_SECONDS, self._check)

    def _check(self) -> None:
        try:
            unread = self._transport.get_write_buffer_size()
        except AttributeError:
            # A connection with TLS that was closed twice: asyncio has let go of it, and ends it itself.
            return
        # While nothing more is written, all that changes is what was read.
        if unread == 0 or not (self._is_paused or self._transport.is_closing()):
            self._unread = None
        elif self._unread is not None and self._unread - unread < MIN_READ_BYTES:
            text = f"it does not read what is sent to it: not {MIN_READ_BYTES} bytes in {UNREAD_SECONDS:g} s"
            self._drop("unread", text)
            return
        else:
            self._unread = unread
        self._schedule()
