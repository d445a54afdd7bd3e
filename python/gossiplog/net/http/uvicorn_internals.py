"""The one module that knows uvicorn's private classes: its connections, with limits that it lacks.

uvicorn does not promise these names, so `pyproject.toml` admits the minor release alone that is tested, and
`tests/net/http/test_uvicorn_pin.py` lists the names and says how to go on to another release.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Sequence
from email.utils import formatdate
from typing import Any

import anyio
import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from gossiplog.net.http.connections import ConnectionTable, ReadTimeout
from gossiplog.net.http.listener import Listener
from gossiplog.net.rate_limited_log import VIOLATION_KEY, RateLimitedLog, client_name
from gossiplog.net.transport.pacing import BODY_PART_BYTES, PART_BYTES, Paced

MAX_MESSAGE_BYTES = 2**20
"""Bytes in a WebSocket message. Peers send one frame of yamux in each, of 64 KiB (canvas-js)."""
MAX_HEAD_BYTES = 2**13
"""Bytes in the head of a request, which is parsed in one callback of the event loop."""
MAX_FRAGMENTS = 256
"""Parts of a WebSocket message. Empty ones count for nothing in its length, but take memory."""
REQUEST_SECONDS = 10.0
"""How long a connection may take, about, to send the head of a request, and before that for a handshake of TLS."""
GRACE_SECONDS = 1
"""How long connections may take to end once the server is to stop; then their tasks are cancelled."""
ACCEPTED_AT_ONCE = 1
"""New connections in a turn of the event loop. Each takes a third of a millisecond, and so does each of several turns
of its handshake, for all that were accepted together: with 8, what others sent waited 15 to 27 ms behind a crowd."""
# How long tasks that are cancelled may take to end, before they are left behind.
_CANCELLATION_SECONDS = 0.5
# Between looks whether all connections have ended: most do at once.
_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS = 0.001, 0.1
# asyncio makes an accepted connection in a task of its own, and notifies its protocol a turn later. One made after the
# server has closed would stay open, known to nobody.
_TURNS_TO_CONNECTION = 2
# How old the date in an answer may be.
_DATE_SECONDS = 1
# https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1
_INVALID_DATA = 1007
LOGGER = logging.getLogger(__name__)


class Config(uvicorn.Config):
    """uvicorn's configuration, which it hands to every connection.

    Args:
        app: an ASGI application, which gets no lifespan.
        context: of TLS; None to serve without.
        limited_log: counts and logs failed attempts of clients, and limits that they exceed.
        table: of the server's connections.
        trusted_proxies: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    """

    def __init__(
        self,
        app: ASGIApp,
        context: ssl.SSLContext | None,
        limited_log: RateLimitedLog,
        table: ConnectionTable,
        trusted_proxies: Sequence[str],
    ) -> None:
        super().__init__(
            app,
            http=HTTPConnection,
            ws=WebSocketConnection,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            # On the levels below it logs URLs, with tokens in them (net/http/access.py).
            log_level="warning",
            access_log=False,
            # uvicorn would believe a proxy on this machine that was not named.
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            server_header=False,
            # uvicorn applies it to requests alone, and answers them from this number on; the table drops connections.
            limit_concurrency=table.capacity + 1,
            # asyncio accepts so many in one callback, and begins all of them in the next turn.
            backlog=ACCEPTED_AT_ONCE,
            ssl_context_factory=None if context is None else lambda config, default: context,
        )
        self.limited_log = limited_log
        self.table = table


class Server:
    """Accepts connections, in place of uvicorn's server.

    That one handles signals, which a program with an event loop does already, gives a handshake of TLS a minute, and
    looks ten times a second whether it is to end.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._state = ServerState()

    async def run(self, listener: Listener) -> None:
        """Serve until it is cancelled, then end within GRACE_SECONDS and a second."""
        config = self._config
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: HTTPConnection(config=config, server_state=self._state, app_state={}),
            sock=listener,
            ssl=config.ssl,
            backlog=config.backlog,
            ssl_handshake_timeout=None if config.ssl is None else REQUEST_SECONDS,
            start_serving=False,
        )
        try:
            await server.start_serving()
            while True:
                self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
                await asyncio.sleep(_DATE_SECONDS)
        finally:
            listener.stop_accepting()
            try:
                with anyio.CancelScope(shield=True):
                    for _ in range(_TURNS_TO_CONNECTION):
                        await asyncio.sleep(0)
            finally:
                # Whatever comes between, as asyncio's own cancellation, which no scope keeps off: the event loop would
                # take the next socket of this number for the listener that was closed.
                server.close()
            with anyio.CancelScope(shield=True):
                await self._end_connections()

    async def _end_connections(self) -> None:
        """Have the connections end, and cut off those that are left after the time of grace, with their tasks."""
        state, time = self._state, asyncio.get_running_loop().time
        for connection in list(state.connections):
            connection.shutdown()
        deadline, pause = time() + GRACE_SECONDS, _FIRST_PAUSE_SECONDS
        while (state.connections or state.tasks) and time() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS)
        self._config.table.drop_handshakes()
        for connection in list(state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        for task in state.tasks:
            task.cancel()
        if state.tasks:
            _, left = await asyncio.wait(list(state.tasks), timeout=_CANCELLATION_SECONDS)
            if left:
                LOGGER.error("%d connections did not end: their handlers do not heed being cancelled", len(left))


class _ConnectionLog(logging.Logger):
    """uvicorn's lines about a connection, counted and limited: strangers cause them, as often as they like."""

    def __init__(self, limited_log: RateLimitedLog, client: str) -> None:
        super().__init__(__name__, logging.WARNING)
        self._limited_log = limited_log
        self._client = client

    def handle(self, record: logging.LogRecord) -> None:
        """Note what uvicorn says, with the traceback of what the application raised."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            # The server ends, and nothing else cancels the application: a client did not read its answer in time.
            return
        kind = "server_errors" if record.levelno >= logging.ERROR else "bad_requests"
        self._limited_log.note(kind, self._client, record.getMessage(), error=error)


class _LimitedConnection(Paced):
    """Mixin of both kinds of connections: log what concerns them, and drop those whose client does not read."""

    config: Config
    transport: asyncio.Transport
    client: tuple[str, int] | None
    logger: logging.Logger

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _ConnectionLog(self.config.limited_log, client_name(self.client))
        self._read_timeout = ReadTimeout(transport, self.drop)

    def connection_lost(self, exc: Exception | None) -> None:
        self._read_timeout.cancel()
        self.config.table.remove(self._gate.inner)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timeout.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_timeout.resume_writing()

    def drop(self, kind: str, text: str) -> None:
        """End the connection at once.

        Args:
            kind: under which it is counted.
            text: what the client did, as a clause.
        """
        self.config.limited_log.note(kind, client_name(self.client), f"dropped: {text}")
        self.transport.abort()


class HTTPConnection(_LimitedConnection, H11Protocol):  # type: ignore[misc]
    """HTTP on a connection, which is dropped when its client is too slow.

    That is when a request does not begin on it, its head does not end, or the answer is not read: a server may
    otherwise be filled with connections that say nothing, or a letter a minute.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The latest request at the last check.
        self._seen: RequestResponseCycle | None = None
        # The request whose body arrives, and how many of its bytes are still to come, at least.
        self._arriving: RequestResponseCycle | None = None
        self._body_left = 0
        self._schedule_request_check()
        self.config.table.admit(self._gate.inner, self, None if self.client is None else str(self.client[0]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_timer.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether it is open, no WebSocket, and no request is under way."""
        return self.successor is None and not self.transport.is_closing() and self._is_answered

    @property
    def has_request(self) -> bool:
        """Whether a request has begun on it."""
        return self._cycle is not None

    @property
    def _cycle(self) -> RequestResponseCycle | None:
        """The latest request. uvicorn declares it as never None, and begins with None."""
        return self.cycle

    @property
    def _is_answered(self) -> bool:
        return self._cycle is None or self._cycle.response_complete

    def _part_bytes(self) -> int:
        if self.conn.their_state is not h11.SEND_BODY:
            return PART_BYTES
        if self._arriving is not self.cycle:
            self._arriving = self.cycle
            # Of a body in chunks each may be one byte. The head's last part may have brought some of the body.
            self._body_left = _content_length(self.headers) - PART_BYTES
        part = max(PART_BYTES, min(self._body_left, BODY_PART_BYTES))
        self._body_left -= part
        return part

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        if isinstance(protocol, WebSocketConnection):
            self.successor = protocol
            # The WebSocket has its own timers, and asyncio reports the end of the connection to it alone.
            self._request_timer.cancel()
            self._read_timeout.cancel()
            # Frames of a client that does not wait for the answer. uvicorn loses them.
            early, _ = self.conn.trailing_data
            protocol.data_received(bytes(early))

    def _schedule_request_check(self) -> None:
        self._request_timer = self.loop.call_later(REQUEST_SECONDS, self._check_request)

    def _check_request(self) -> None:
        if self._cycle is self._seen and self._is_answered:
            self.drop("no_request", f"no request within {REQUEST_SECONDS:g} s")
        else:
            self._seen = self._cycle
            self._schedule_request_check()


def _content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the length of a body that h11 reads up to; 0 for one in chunks."""
    fields = dict(headers)
    return 0 if b"transfer-encoding" in fields else int(fields.get(b"content-length", b"0"))


class WebSocketConnection(_LimitedConnection, WebSocketsSansIOProtocol):  # type: ignore[misc]
    """A WebSocket, which is dropped when the client does not read, and when a message has very many parts.

    uvicorn keeps all parts until the last one.
    """

    def shutdown(self) -> None:
        if self.conn.state is State.CLOSING and not self.close_sent:
            # The client has closed it and does not read the rest. uvicorn would send a second close frame, and fail.
            self.transport.close()
            return
        super().shutdown()

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
            self.drop("bad_handshakes", f"no WebSocket handshake: {self.conn.handshake_exc}")

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.conn.handshake_exc is not None:
            text = f"no WebSocket handshake: {self.conn.handshake_exc}"
            self.config.limited_log.note("bad_handshakes", client_name(self.client), text)
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
        self.drop("too_many_parts", f"a message of more than {MAX_FRAGMENTS} parts")
