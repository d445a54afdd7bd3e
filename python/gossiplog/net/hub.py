"""A hub: browsers and other clients join a log through its WebSocket (wire format, "Hub").

`Hub(log)` is an ASGI application and an async context manager. Run by a server of its own, it enters its context at the
server's start ("lifespan"); mounted in another application, that one enters it, and until then the hub answers 503.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import anyio
import anyio.abc
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gossiplog.checks import check_number
from gossiplog.core import SignedMessage
from gossiplog.errors import NetworkError, StorageError
from gossiplog.log import Log
from gossiplog.log.asynchronous.log import AsyncLog
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.arguments import check_callbacks, check_log, check_settings
from gossiplog.net.event_stream import EventSource, EventStream
from gossiplog.net.events import PeerInfo
from gossiplog.net.http.access import SCOPE_KEY, Access, Allowed, Tokens, as_response, as_tokens, protect
from gossiplog.net.http.addresses import Addresses, Refusal, culprit_of, host_of, is_local, source_of
from gossiplog.net.http.admission import Admission
from gossiplog.net.http.application import create_application
from gossiplog.net.http.metrics import HEALTH_PATHS
from gossiplog.net.log_page.server import LogPage
from gossiplog.net.peer import Peer, driver_of
from gossiplog.net.rate_limited_log import VIOLATION_KEY, RateLimitedLog, client_name
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.telemetry import LOGGER, NetworkCounters
from gossiplog.net.service import Service, background
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.limits import Limits
from gossiplog.net.transport.network import Network, PipeConnection, open_network
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.sync import SyncServerConfig
from gossiplog.protocol.wire import ACCESS_HEADER, SHOWN_TOPIC, TOPIC_HEADER, UNWRITABLE
from gossiplog.reprs import counted

# https://www.rfc-editor.org/rfc/rfc6455#section-7.4.1, and for the last two the IANA registry.
_NORMAL, _GOING_AWAY, _UNSUPPORTED, _NO_STATUS, _VIOLATION = 1000, 1001, 1003, 1005, 1008
_RESTART, _TRY_AGAIN = 1012, 1013
_NOT_STARTED = "the hub has not started, or has stopped: the application that it is mounted in enters `async with hub`"
_READ_ONLY = "this hub takes no messages: its log cannot be written"
_UNNAMED_PROXY = (
    "it passes on a proxy's clients, and was not named: they all count as programs of this machine, without limits for"
    " each address, and none is paused for what it does. Name it with --trusted-proxy (`trusted_proxies` of `serve`)"
)
# What a server has for the port of a client whose address a proxy has reported.
_NO_PORT = 0
_PUSH_TIMEOUT = 30.0
# For clients to take their leave when the hub stops.
_CLOSING_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class _Running:
    """What there is of a hub while it runs.

    Attributes:
        peer: whose driver it is; None if it is the hub's own.
        joined: WebSockets that are being served.
        left: set when one of them no longer is.
        connections: over which clients exchange messages, and what each of these may do.
    """

    network: Network
    driver: Driver
    peer: Peer | None
    joined: int = 0
    left: Signal = field(default_factory=Signal)
    connections: dict[Connection, Allowed] = field(default_factory=dict)

    @property
    def counters(self) -> NetworkCounters:
        found = self.driver.counters if self.peer is None else self.peer.counters
        return found._with_network(self.network.counts(), self.network.held())

    def let_go(self) -> None:
        """End the exchanges with all clients."""
        for connection in self.connections:
            self.driver.leave(connection)


class Hub(EventSource, Service):
    """Serves a log to clients over WebSockets, as an ASGI application, for the time of its context.

    Its context raises LogClosed or CorruptLog when the log is closed or found damaged meanwhile, and what `on_event` or
    `on_message` raise.

    Args:
        log: to serve, a Log or an AsyncLog. One that was opened read-only, or that this user or this role cannot write,
            is served to readers alone.
        access: who may use it; None lets in who calls it by a loopback name, and pages of its own origin.
        limits: of connections, streams and memory; None for the usual ones.
        peer: of a mesh over the same log, which runs for as long as the hub does: what comes to one goes on to the
            other. Its settings are the hub's too, so that only `access` and `limits` may be given beside it.
        push_timeout: seconds in which a client must have opened its push stream; None for 30.
        broadcast: limits and delays of the exchange with peers, a BroadcastConfig; None for the usual ones.
        sync_server: limits of the sync streams that are served, a SyncServerConfig; likewise.
        on_event: is called with what happens, in order, on the event loop; it must not block.
        on_message: is called with each message that the log gets, once, in the order of arrival; likewise.
        dashboard: whether a browser that opens the hub's address gets a page about the log, for who may read.

    Raises:
        ValueError: a peer over another log, a setting beside it that is the peer's, or a timeout that is not above 0.
        TypeError: a log, an access, limits, a peer or settings that are none, such as a path; or a coroutine or
            generator function, whose body would not run, as a callback.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print(len(log), [peer.kind for peer in hub.peers])
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        1 ['client']
    """

    _ENTERED_AGAIN = "the hub is running already: enter it once, by its server or by your application"

    def __init__(
        self,
        log: Log[Any] | AsyncLog[Any],
        *,
        access: Access | None = None,
        limits: Limits | None = None,
        peer: Peer | None = None,
        push_timeout: float | None = None,
        broadcast: BroadcastConfig | None = None,
        sync_server: SyncServerConfig | None = None,
        on_event: Callable[[events.Event], None] | None = None,
        on_message: Callable[[SignedMessage], None] | None = None,
        dashboard: bool = False,
    ) -> None:
        super().__init__()
        log = check_log(log, writes=False)
        check_callbacks(on_event=on_event, on_message=on_message)
        check_settings(broadcast=(broadcast, BroadcastConfig), sync_server=(sync_server, SyncServerConfig))
        check_settings(access=(access, Access), limits=(limits, Limits), peer=(peer, Peer))
        if push_timeout is not None:
            check_number("push_timeout", push_timeout)
            if not 0 < push_timeout < math.inf:
                raise ValueError(f"push_timeout is {push_timeout}: expected a number above 0")
        if peer is not None:
            if peer.log is not log:
                raise ValueError("the hub and the peer that it shares the work with are over different logs")
            if any(setting is not None for setting in (push_timeout, broadcast, sync_server, on_event, on_message)):
                names = "push_timeout, broadcast, sync_server, on_event and on_message"
                raise ValueError(f"{names} are the peer's: give them to it")
        self._log = log
        self._is_read_only = bool(replica_of(log).write_refusal)
        self._peer = peer
        self._addresses = Addresses(None if limits is None else limits.connections_per_address)
        self._open_network = partial(open_network, limits)
        self._make_driver = partial(
            Driver,
            log,
            broadcast=broadcast,
            sync_server=sync_server,
            push_timeout=_PUSH_TIMEOUT if push_timeout is None else push_timeout,
            on_event=on_event,
            on_message=on_message,
        )
        self._running: _Running | None = None
        self._has_warned = False
        # Of the WebSockets since the start.
        self._numbers = itertools.count(1)
        self._counters = NetworkCounters()
        self._total_bytes = (limits or Limits()).total_bytes
        admission = Admission((limits or Limits()).request_bytes, self._room, self._keep)
        self._connections = (limits or Limits()).connections
        self._refusals = RateLimitedLog(LOGGER)
        self._refused_websockets: Counter[str] = Counter()
        self._page = (
            LogPage(
                log,
                lambda: self.counters,
                lambda: self.peers,
                lambda: self.obstacle,
                admission,
                failed=self._note_failure,
            )
            if dashboard
            else None
        )
        self._application = create_application(
            log,
            self._names,
            lambda: self.counters,
            lambda: self.peers,
            admission,
            unready=lambda: self.obstacle,
            failed=self._note_failure,
            more=() if self._page is None else self._page.routes(),
        )
        self._access = access or Access()
        self._protected = protect(
            self._answer,
            lambda: self._access,
            self._refusals,
            open_paths=HEALTH_PATHS,
            websockets=self._refused_websockets,
            addresses=self._addresses,
            browser=None if self._page is None else self._page.browser_paths,
        )

    async def _start(self, stack: AsyncExitStack) -> None:
        stack.callback(self._allow_restart)
        stack.callback(self._streams.end)
        network = await stack.enter_async_context(self._open_network())
        driver = self._make_driver() if self._peer is None else driver_of(self._peer)
        running = _Running(network, driver, self._peer)
        stack.push_async_callback(self._wait_for_leavers, running)
        if self._peer is None:
            await stack.enter_async_context(driver)
        else:
            # The driver goes on with its other peers.
            stack.callback(running.let_go)
        if self._page is not None:
            stack.enter_context(driver.telemetry.listening(self._page.note))
            tasks = await stack.enter_async_context(background())
            tasks.start_soon(self._page.run)
        stack.callback(self._stop, running)
        self._running = running

    def _allow_restart(self) -> None:
        self._entered = False

    def _stop(self, running: _Running) -> None:
        self._counters = running.counters
        self._running = None

    @property
    def _register_stream(self) -> Callable[[EventStream], object]:
        if self._running is None:
            raise RuntimeError(_NOT_STARTED)
        return self._running.driver.telemetry.register

    def replace_tokens(self, read_token: Tokens, write_token: Tokens) -> int:
        """Ask callers for other tokens from now on, and disconnect clients whose token does not give the same rights.

        These come back by themselves, and are refused then, or let in with the rights that their token gives now.
        Requests that are being answered are answered to their end, but pages of the log have to show their token again.

        Args:
            read_token: for reading, as `Access` takes it, or None.
            write_token: for writing, likewise.

        Returns:
            How many clients were disconnected.
        """
        self._access = replace(self._access, read_token=as_tokens(read_token), write_token=as_tokens(write_token))
        if self._page is not None:
            self._page.end_streams()
        running = self._running
        if running is None:
            return 0
        changed = [each for each, allowed in running.connections.items() if self._has_changed(allowed)]
        for connection in changed:
            running.driver.leave(connection)
        return len(changed)

    def _has_changed(self, allowed: Allowed) -> bool:
        return self._access.rights(allowed.token) != allowed

    @property
    def counters(self) -> NetworkCounters:
        """What was counted since the hub started; after its end, until then."""
        found = self._running.counters if self._running is not None else self._counters
        websockets = self._refused_websockets
        joined = 0 if self._running is None else self._running.joined
        return replace(
            found,
            refused_requests=MappingProxyType(Counter(self._refusals.counts) - websockets),
            refused_connections=MappingProxyType(Counter(found.refused_connections) + websockets),
            open_connections=MappingProxyType({**found.open_connections, "hub": joined}),
            connection_limits=MappingProxyType({**found.connection_limits, "hub": self._connections}),
        )

    @property
    def obstacle(self) -> str:
        """Why `/readyz` answers 503; "" if it does not."""
        if self._running is None:
            return _NOT_STARTED
        most = self._connections
        if self._running.joined >= most:
            return f"{counted(most, 'client is', 'clients are')} connected, as many as there may be"
        return self._running.driver.unready

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """Those that are connected now: the peers of the mesh, where there is one, and the clients."""
        if self._running is None:
            return ()
        clients = (
            PeerInfo(each.name, "client", replicates=True, dialer=False)
            for each in self._running.driver.peers
            if not each.gossips
        )
        return (*(self._peer.peers if self._peer is not None else ()), *clients)

    def __repr__(self) -> str:
        running = self._running
        return f"<Hub of {self._log!r}, {'not running' if running is None else f'running, clients: {running.joined}'}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection, as an ASGI application (https://asgi.readthedocs.io/en/latest/specs/main.html)."""
        match scope["type"]:
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await self._meet(scope, receive, send)
            case "http":
                await self._protected(scope, receive, send)
            case kind:
                raise RuntimeError(f"a hub has no use for ASGI's {kind!r}")

    async def _meet(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a WebSocket come as far as the checks of `access`, unless its address opens too many.

        It counts whether or not they let it in: to refuse one costs nearly as much.
        """
        host = host_of(scope)
        if (refusal := self._addresses.refusal(host, self._access._page(scope))) is None:
            with self._addresses.connected(host):
                await self._protected(scope, receive, send)
            return
        if self._running is not None:
            self._running.driver.telemetry.refused(self._name(scope), refusal.kind, refusal.reason)
        await receive()
        await _refuse(scope, receive, send, refusal)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket or a request that was let in."""
        if scope["type"] == "websocket":
            await self._join(scope, receive, send)
        elif self._running is None:
            await JSONResponse({"error": _NOT_STARTED}, 503)(scope, receive, send)
        elif self._is_read_only and scope["method"] == "POST":
            await JSONResponse({"error": _READ_ONLY}, 403)(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    def _room(self) -> int:
        """Return how many more bytes may be kept in memory for strangers."""
        return self._total_bytes - (self._running.network.held() if self._running is not None else 0)

    def _keep(self, size: int) -> None:
        """Charge the memory of HTTP requests to the network's total."""
        if self._running is not None:
            self._running.network.set_external_bytes(size)

    def _note_failure(self, error: StorageError) -> None:
        if self._running is not None:
            self._running.driver.telemetry.emit(events.Failed("answering a request", error))

    def _names(self) -> list[str]:
        return [peer.name for peer in self._running.driver.peers] if self._running is not None else []

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        stage = "startup"
        try:
            async with self:
                await send({"type": "lifespan.startup.complete"})
                stage = "shutdown"
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{stage}.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    async def _join(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One client, from its WebSocket's opening to its end."""
        await receive()
        running = self._running
        if running is None:
            await _refuse(scope, receive, send, _NOT_STARTED)
            return
        name = self._name(scope)
        if not self._has_warned and _is_behind_unnamed_proxy(scope):
            self._has_warned = True
            running.driver.telemetry.incident(name, "unnamed_proxies", 1, _UNNAMED_PROXY)
        try:
            connection = running.network.attach(running.driver.protocols.all, client=False)
        except NetworkError as error:
            running.driver.telemetry.refused(name, "limit", str(error))
            await _refuse(scope, receive, send, str(error))
            return
        running.joined += 1
        try:
            socket = _Socket(receive, send, running.driver)
            await self._exchange(running, connection, name, scope, socket)
        finally:
            running.joined -= 1
            running.left.set()

    async def _exchange(
        self, running: _Running, connection: PipeConnection, name: str, scope: Scope, socket: _Socket
    ) -> None:
        allowed = scope[SCOPE_KEY]
        host, page = host_of(scope), self._access._page(scope)
        may_write = allowed.write and not self._is_read_only
        code = _GOING_AWAY
        try:
            # What follows the colon is for the hub's operator.
            fault = running.driver.unready.partition(":")[0] or (UNWRITABLE if self._is_read_only else "")
            await socket.accept(may_write=may_write, fault=fault)
            own, asked = running.driver.protocols.topic, _topic(scope)
            if asked is not None and asked != own:
                # The client reads the hub's topic in the answer, and leaves.
                text = f"its log has the topic {asked[:SHOWN_TOPIC]!r}; this hub serves {own[:SHOWN_TOPIC]!r}"
                running.driver.telemetry.count(other_topics=1)
                running.driver.telemetry.count_refused("topic")
                running.driver.telemetry.incident(name, "other_topics", 1, text)
                await socket.close(_VIOLATION)
                return
            if self._has_changed(allowed):
                # The tokens were replaced while the client was let in.
                await socket.close(_GOING_AWAY)
                return
            async with background() as tasks:
                tasks.start_soon(socket.feed, connection)
                tasks.start_soon(socket.drain, connection)
                running.connections[connection] = allowed
                try:
                    if await running.driver.exchange(
                        connection,
                        name,
                        dialer=False,
                        may_write=may_write,
                        origin=culprit_of(host, ""),
                        culprit=culprit_of(host, page),
                    ):
                        code = _VIOLATION
                except NetworkError:
                    # The hub is being stopped, or has a defect: the client may come again.
                    pass
                finally:
                    running.connections.pop(connection, None)
                    if code == _VIOLATION or (connection.closed is not None and connection.closed.cause == "violation"):
                        self._addresses.shun(host, page)
                # While what is left to say goes out.
                await connection.aclose()
                if connection.closed is not None and connection.closed.cause == "overload":
                    code = _TRY_AGAIN
        finally:
            # Nobody carries its bytes now, so there is nothing to wait for.
            with anyio.move_on_after(0):
                await connection.aclose()
        with anyio.move_on_after(_CLOSING_SECONDS):
            await socket.close(code)

    def _name(self, scope: Scope) -> str:
        """Return the name of a client: its address and port, or where a proxy says no port, a number of its own."""
        client = scope.get("client")
        number = next(self._numbers)
        if client is None or client[1] != _NO_PORT:
            return client_name(client)
        return f"{client_name(client).removesuffix(f':{_NO_PORT}')}#{number}"

    async def _wait_for_leavers(self, running: _Running) -> None:
        with anyio.move_on_after(_CLOSING_SECONDS):
            while running.joined:
                await running.left.wait()


class _Socket:
    """A WebSocket of the ASGI server's, as a pipe of bytes."""

    def __init__(self, receive: Receive, send: Send, driver: Driver) -> None:
        self._receive = receive
        self._send = send
        self._driver = driver
        self._gone = False
        self._is_text = False

    async def accept(self, *, may_write: bool, fault: str) -> None:
        """Accept the client, and say which topic it finds here, what it may do, and what may keep the logs different.

        Args:
            may_write: whether messages are taken from it.
            fault: what is wrong with the log, "" if nothing is known.
        """
        access = "write" if may_write else "read"
        hello = [
            (TOPIC_HEADER.encode(), self._driver.protocols.topic.encode()),
            (ACCESS_HEADER.encode(), (f"{access}; {fault}" if fault else access).encode()),
        ]
        await self._send_message({"type": "websocket.accept", "headers": hello})

    async def feed(self, connection: PipeConnection) -> None:
        """Receive what the client sends, until it is gone."""
        try:
            while (message := await self._receive())["type"] == "websocket.receive":
                data = message.get("bytes")
                if data is None:
                    self._is_text = True
                    self._driver.blame(connection, "it sent text on the WebSocket, where streams travel in binary")
                    return
                self._driver.telemetry.count(bytes_received=len(data))
                await connection.feed(data)
        except NetworkError:
            return
        if (violation := message.get(VIOLATION_KEY)) is not None:
            self._driver.blame(connection, violation)
            return
        self._gone = True
        if _is_orderly(message):
            # canvas-js and pages say no more: this is their farewell.
            self._driver.note_farewell(connection)
        elif message.get("code") == _RESTART:
            # The server stops, and has closed the WebSocket itself.
            self._driver.leave(connection)
        connection.feed_eof()

    async def drain(self, connection: PipeConnection) -> None:
        """Send what goes to the client, as fast as it reads.

        What goes to a client that is gone is taken all the same: a connection that this side closes waits for that.
        """
        try:
            while data := await connection.drain():
                if self._gone:
                    continue
                await self._send_message({"type": "websocket.send", "bytes": data})
                # Who is gone may have sent something before: `feed` finds the end.
                self._driver.telemetry.count(bytes_sent=len(data))
        except NetworkError:
            return

    async def close(self, code: int) -> None:
        """Close it, unless the client did."""
        if not self._gone:
            await self._send_message({"type": "websocket.close", "code": _UNSUPPORTED if self._is_text else code})

    async def _send_message(self, message: MutableMapping[str, Any]) -> None:
        try:
            await self._send(message)
        except OSError:
            # What a server raises for a client that is gone.
            self._gone = True


def _is_orderly(message: Mapping[str, Any]) -> bool:
    """Return whether a client has closed its WebSocket, of which servers say with a code how it ended."""
    code = message.get("code")
    # uvicorn has the code of no status for connections that were lost, too: then there is no reason.
    return code in (_NORMAL, _GOING_AWAY) or (code == _NO_STATUS and "reason" in message)


def _topic(scope: Scope) -> str | None:
    """Return the topic of the client's log; None if it does not say, as canvas-js does not."""
    names = [value.decode("latin-1") for name, value in scope["headers"] if name == TOPIC_HEADER.encode()]
    return names[0] if len(names) == 1 else None


def _is_behind_unnamed_proxy(scope: Scope) -> bool:
    """Return whether a proxy on this machine has passed a client on whose address it says, and is not believed."""
    client = scope.get("client")
    if client is not None and client[1] == _NO_PORT:
        # The proxy is believed, and its client is a program of this machine.
        return False
    names = {name for name, _ in scope["headers"]}
    return is_local(source_of(host_of(scope))) and not names.isdisjoint((b"x-forwarded-for", b"forwarded"))


async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str | Refusal) -> None:
    """Answer a WebSocket's opening with 503, or with 429 to an address that is not let in now.

    Where the server lets no application say which, the answer is 403.
    """
    if "websocket.http.response" in (scope.get("extensions") or {}):
        response = as_response(reason) if isinstance(reason, Refusal) else JSONResponse({"error": reason}, 503)
        await response(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": _TRY_AGAIN})
