"""A client of a hub: keeps a log and the hub's in step, over a connection that is made again whenever it ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, NoReturn, get_args

import anyio

from gossiplog._core import redacted_url
from gossiplog.core import Node, SignedMessage
from gossiplog.errors import (
    Cause,
    ConnectionLost,
    NetworkError,
    ProtocolError,
    RefusedByPeer,
    RefusedMessage,
    StreamRefused,
)
from gossiplog.log import Log
from gossiplog.log.asynchronous.log import AsyncLog
from gossiplog.log.log import replica_of
from gossiplog.log.rebasing import rebase_command
from gossiplog.net import events
from gossiplog.net.arguments import check_callbacks, check_log, check_settings, check_texts, check_type
from gossiplog.net.event_stream import EventSource, EventStream
from gossiplog.net.events import PeerInfo
from gossiplog.net.http.access import bare_token, load_token
from gossiplog.net.replicator.defects import DefectFound
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.refusals import SETTLED_SECONDS
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import NetworkCounters
from gossiplog.net.service import Service, background
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.network import Network, open_network
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.sync import SyncServerConfig
from gossiplog.protocol.wire import ACCESS_HEADER, LOG_FAULTS, SHOWN_TOPIC, TOPIC_HEADER

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
# A connection that stood for so long was a good one: the next pause is the first again.
_GOOD_SECONDS = 5.0
_ENTER = "use async with gossiplog.connect(log, url) as client"


class Client(EventSource, Service):
    """A log that is kept in step with a hub's, for the time of its context. `connect` makes it; it runs once.

    Args:
        headers: more headers for the opening request.
        replication: arguments of `Driver`. The others are those of `connect`.

    Attributes:
        hub_root: the root of the hub's log when `synced` looked last; None before.
        may_write: whether the hub takes messages from this client; None before it said so, as canvas-js never does.
        hub_obstacle: what the hub said, when this client connected, of its log that may keep the two different; "" if
            nothing.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print(client.peers[0].kind, client.hub_root == log.root)
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        hub True
    """

    _ENTERED_AGAIN = "a client runs once: call gossiplog.connect again for another"

    def __init__(
        self,
        log: Log[Any] | AsyncLog[Any],
        url: str,
        *,
        headers: Sequence[tuple[str, str]],
        ca_file: str | os.PathLike[str] | None,
        reconnect: bool,
        give_up_on: Collection[Cause],
        token_file: str | os.PathLike[str] | None,
        **replication: Any,
    ) -> None:
        super().__init__()
        log = check_log(log, writes=True)
        check_type("url", url, str, "the address of a hub, such as 'ws://localhost:8000'")
        causes = check_texts("give_up_on", give_up_on, "token")
        if not set(causes) <= set(get_args(Cause)):
            raise ValueError(f"give_up_on is {give_up_on!r}: expected some of {', '.join(get_args(Cause))}")
        self._log = log
        self._url = url
        self._name = redacted_url(url)
        self._headers = headers
        self._ca_file = ca_file
        self._reconnect = reconnect
        self._give_up_on = causes
        # Of a command that reaches the hub as well. A token is not shown.
        self._options: list[str] = []
        if token_file is not None:
            self._options += ["--token-file", os.fsdecode(token_file)]
        elif any(name.lower() == "authorization" for name, _ in headers) or "token=" in url.partition("?")[2]:
            self._options += ["--token-file", "FILE"]
        if ca_file is not None:
            self._options += ["--ca-file", os.fsdecode(ca_file)]
        self._random = Random()
        self._driver = Driver(log, rebase_command=self._rebase_command, **replication)
        self._network: Network | None = None
        self._running = False
        self.hub_root: Node | None = None
        self.may_write: bool | None = None
        self.hub_obstacle: str = ""
        self._ended: NetworkError | ProtocolError | None = None
        # Whether the logs differed when `synced` looked last.
        self._differs = False

    def _rebase_command(self, peer: PeerSession) -> str:
        return rebase_command(replica_of(self._log).argument, self._name, list(peer.refusals.reported), self._options)

    async def _start(self, stack: AsyncExitStack) -> None:
        stack.callback(self._streams.end)
        self._network = network = await stack.enter_async_context(open_network())
        await stack.enter_async_context(self._driver)
        tasks = await stack.enter_async_context(background())
        tasks.start_soon(self._keep, network)
        stack.callback(self._stop)
        self._running = True

    def _stop(self) -> None:
        self._running = False
        self._driver.begin_shutdown()
        # Tasks beside the context wait for a connection.
        self._driver.peers_changed.set()

    def __await__(self) -> NoReturn:
        raise TypeError(f"a client cannot be awaited: {_ENTER}")

    def __enter__(self) -> NoReturn:
        raise TypeError(f"a client is an asynchronous context: {_ENTER}")

    def __exit__(self, *error: object) -> None:
        """Do nothing: `with` looks this up before it calls `__enter__`."""

    def __repr__(self) -> str:
        if not self._running:
            state = "not running"
        elif self.is_connected:
            state = "connected"
        else:
            state = "not connected" if self._ended is None else "ended"
        return f"<Client of {self._log!r} at {self._name}, {state}>"

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the hub now."""
        return bool(self._driver.peers)

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """The hub, while there is a connection to it."""
        return tuple(PeerInfo(each.name, "hub", replicates=True, dialer=True) for each in self._driver.peers)

    @property
    def _register_stream(self) -> Callable[[EventStream], object]:
        self._check_running()
        return self._driver.telemetry.register

    async def synced(self) -> None:
        """Wait until this log and the hub's hold the same messages, and `on_event` was called with how they came.

        While others write, that may be a moment between two of their messages. It waits on while this side cannot take
        what the hub has, or may not write: see `obstacle`. Without `reconnect` it raises, where that is known, once
        everything else has been exchanged.

        Raises:
            RefusedByPeer: the hub's application refuses messages of this log, and says so (wire format, "Refusals").
                All else has been exchanged.
            ProtocolError: the hub broke a rule of the protocols; nothing more is exchanged with it.
            NetworkError: there is no connection, and none will be made. Or `reconnect` is False, this log has messages
                that the hub lacks, and the hub lets this client read only, or has said that its log cannot be written
                or is damaged.
            RefusedMessage: `reconnect` is False, and this log's application refuses messages of the hub's log; its
                exception is the cause.
            RuntimeError: the client is not in its context, or leaves it meanwhile.
        """
        self._check_running()
        began = quiet_since = anyio.current_time()
        before = None

        async def is_in_step() -> bool:
            nonlocal quiet_since, before
            peer = await self._connected_peer()
            found = None
            try:
                self.hub_root, root = await self._driver.root_of(peer), await self._driver.root()
                self._differs = self.hub_root is not None and self.hub_root != root
                found = self.hub_root, root
            except NetworkError:
                # The connection ends, or the hub is busy.
                pass
            obstacle = self.obstacle
            # Others may write to the hub all the time: that it stays different is known.
            reported = max(began, peer.refusals.reported_at)
            if isinstance(obstacle, RefusedByPeer) and anyio.current_time() - reported >= SETTLED_SECONDS:
                raise obstacle
            if found is None or found != before or obstacle is None:
                quiet_since, before = anyio.current_time(), found
            elif not self._reconnect and anyio.current_time() - quiet_since >= SETTLED_SECONDS:
                raise obstacle
            return found is not None and found[0] == found[1]

        await self._driver.synced(is_in_step)

    async def ended(self) -> NetworkError | ProtocolError:
        """Wait until the client makes no more connections; return why.

        Raises:
            RuntimeError: the client is not in its context, or leaves it meanwhile.
        """
        self._check_running()
        while self._ended is None:
            await self._driver.peers_changed.wait()
            self._check_running()
        return self._ended

    @property
    def obstacle(self) -> RefusedMessage | NetworkError | None:
        """What keeps the logs different after all else has been exchanged; None where no obstacle is known.

        The first of these: the hub refuses messages of this log (RefusedByPeer), this log's application refuses
        messages of the hub's log, the hub lacks messages of this log and said when this client connected that its log
        cannot be written or is damaged, or it lacks them and lets this client read only. None also while `synced` has
        not found the logs to differ, and while messages come or go.
        """
        driver = self._driver
        # Before the hub has named its heads, nothing of its log is known to be missing here.
        if not (self._differs and driver.peers and driver.peers[0].has_named_heads):
            return None
        # A hub that cannot store messages asks for them again and again.
        if not (driver.has_all if self.hub_obstacle else driver.is_idle):
            return None
        if found := driver.refusals.error_for(driver.peers[0], self._name):
            return found
        last = driver.telemetry.last_refused
        if last is not None and last[0] in driver.skipped:
            refusal = RefusedMessage(
                f"{last[1].reason} ({self._name} has it; with those that descend from such messages,"
                f" {len(driver.skipped)} are skipped here)",
                last[1].id,
            )
            refusal.__cause__ = last[1].__cause__
            return refusal
        if self.hub_obstacle:
            return NetworkError(_fault_text(self._name, self.hub_obstacle))
        if self.may_write is False:
            return NetworkError(reader_text(self._name))
        return None

    @property
    def counters(self) -> NetworkCounters:
        """What was counted so far."""
        found, network = self._driver.counters, self._network
        return found if network is None else found._with_network(network.counts(), network.held())

    def _check_running(self) -> None:
        if not self._running:
            raise RuntimeError(f"the client is not running: {_ENTER}")

    async def _connected_peer(self) -> PeerSession:
        self._check_running()
        while not self._driver.peers:
            if self._ended is not None:
                raise self._ended
            await self._driver.peers_changed.wait()
            self._check_running()
        return self._driver.peers[0]

    async def _keep(self, network: Network) -> None:
        failures = 0
        while True:
            began = anyio.current_time()
            error = await self._exchange(network)
            is_final = isinstance(error, ConnectionLost) and error.cause in self._give_up_on
            if isinstance(error, ProtocolError) or is_final or not self._reconnect:
                self._ended = error
                self._driver.peers_changed.set()
                return
            if anyio.current_time() - began > _GOOD_SECONDS:
                failures = 0
            pause = min(_FIRST_PAUSE * 2.0 ** min(failures, 16), _LONGEST_PAUSE)
            failures += 1
            await anyio.sleep(pause * self._random.uniform(0.5, 1.0))

    async def _exchange(self, network: Network) -> NetworkError | ProtocolError:
        """One connection, from its making to its end: how it ended."""
        try:
            headers = [*self._headers, (TOPIC_HEADER, self._driver.protocols.topic)]
            connection = await network.dial(
                self._url, self._driver.protocols.all, headers=headers, ca_file=self._ca_file
            )
        except ConnectionLost as error:
            error = _with_advice(error, self._name)
            self._driver.telemetry.emit(events.Failed(f"connecting to {self._name}", error))
            return error
        try:
            self._read_hello(connection)
            blame = await self._driver.exchange(connection, self._name, dialer=True)
        except NetworkError as error:
            # The application and the log know of what a hub was dropped for, and of defects.
            if isinstance(error, ConnectionLost) and error.cause == "violation":
                return ProtocolError(f"{self._name}: {error}")
            if isinstance(error, StreamRefused) and error.cause == "refused":
                error = self._wrong_topic(None, error)
            if not isinstance(error, DefectFound):
                self._driver.telemetry.emit(events.Failed(f"exchanging with {self._name}", error))
            return error
        finally:
            await connection.leave()
        if blame:
            return ProtocolError(f"{self._name}: {blame}")
        closed = connection.closed
        if closed is None:
            return NetworkError(f"{self._name}: the connection ended")
        return ConnectionLost(closed.cause, f"{self._name}: {closed.reason}", closed.status)

    def _read_hello(self, connection: Connection) -> None:
        """Read the headers of the hub's answer; raise ConnectionLost if it serves another topic."""
        topic, access = connection.hello.get(TOPIC_HEADER), connection.hello.get(ACCESS_HEADER)
        self.hub_obstacle = ""
        if access is not None:
            right, _, fault = access.partition("; ")
            self.may_write = right != "read"
            self.hub_obstacle = fault if fault in LOG_FAULTS else ""
        if topic is not None and topic != self._driver.protocols.topic:
            raise self._wrong_topic(topic)

    def _wrong_topic(self, topic: str | None, error: StreamRefused | None = None) -> ConnectionLost:
        own = self._driver.protocols.topic[:SHOWN_TOPIC]
        if topic is None:
            reason = f"{self._name} does not exchange messages of this log's topic, {own!r} ({error})"
        else:
            reason = f"{self._name} serves the topic {topic[:SHOWN_TOPIC]!r}; this log's is {own!r}"
        return ConnectionLost("topic", reason)


def reader_text(hub: str) -> str:
    """Return what to say of messages that a hub does not take."""
    return (
        f"{hub} lets this client read only, and lacks messages of this log, which has all of the hub's:"
        " give the token of a writer"
    )


def _fault_text(hub: str, fault: str) -> str:
    return (
        f"{hub} said when this client connected that {fault}, and lacks messages of this log, which has all of the"
        " hub's: see the log of its server, and sync again once that is mended, or with another hub"
    )


def _with_advice(error: ConnectionLost, url: str) -> ConnectionLost:
    """Add a hint to a refused connection where the URL may lack a slash at its end."""
    address, mark, query = url.partition("?")
    if error.cause != "refused" or address.endswith("/") or "/" not in address.partition("://")[2]:
        return error
    hint = f"a hub that is mounted in an application has a slash at its end: {address}/{mark}{query}"
    return ConnectionLost(error.cause, f"{error.reason} ({hint})", error.status)


def connect(
    log: Log[Any] | AsyncLog[Any],
    url: str,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca_file: str | os.PathLike[str] | None = None,
    reconnect: bool = True,
    give_up_on: Collection[Cause] = (),
    broadcast: BroadcastConfig | None = None,
    sync_server: SyncServerConfig | None = None,
    on_event: Callable[[events.Event], None] | None = None,
    on_message: Callable[[SignedMessage], None] | None = None,
) -> Client:
    """Keep a log in step with a hub's, for the time of the context.

        async with gossiplog.connect(log, "ws://localhost:8000") as client:
            await client.synced()

    What either side appends meanwhile arrives at the other. A connection that fails or ends is made again, with
    pauses that grow from half a second up to a minute and begin anew after a connection of five seconds, also where
    something answers that is no hub, or does not let this client in (a server may be about to start, and a token to be
    changed there). `on_event` gets a Failed each time, whose error is a
    ConnectionLost with the cause, and the logger `gossiplog` a line. To stop instead where waiting does not help:

        gossiplog.connect(log, url, token=token, give_up_on=["token", "topic"])

    Args:
        log: to keep in step, a Log or an AsyncLog; it may be used as before meanwhile.
        url: of the hub, `ws://` or `wss://`. Its query is left out of messages and logs; a user name is refused.
        token: the text of the hub's bearer token for reading or writing, if it asks for one. A line end around it does
            not count.
        token_file: the file that has it, instead of `token`: one line, in a file that only its owner can read.
        ca_file: a PEM file of certificate authorities to trust beside the platform's.
        reconnect: False makes one connection only; `synced` then raises how it ended, or what keeps the logs different.
        give_up_on: causes of ConnectionLost after which no other connection is made; `synced` then raises that error,
            and `Client.ended` returns it.
        broadcast: limits and delays of the exchange with the hub, a BroadcastConfig; None for the usual ones.
        sync_server: limits of the sync streams that are served to the hub, a SyncServerConfig; likewise.
        on_event: is called with what happens, in order, on the event loop; it must not block.
        on_message: is called with each message that the log gets, once, in the order of arrival; likewise.

    Raises:
        TypeError: a log, a URL, a token or settings that are none, such as a path; or a coroutine or generator
            function, whose body would not run, as a callback.
        ValueError: a log that was opened read-only, a token with a character that no token has, a token and a file of
            one, or a cause that there is not.
        KeyFileError: the token's file is missing, holds no token, or is open to others than its owner.
        NetworkError: an address that is none, or the system refuses a thread or a socket.
        CorruptLog: the log is damaged.
        StorageError: the database failed, or the log is closed.

    Examples:
        >>> async def main():
        ...     hub_log = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     hub_log.append("from the hub")
        ...     async with gossiplog.Hub(hub_log) as hub, anyio.create_task_group() as tasks:
        ...         address = await tasks.start(gossiplog.serve, hub)
        ...         async with gossiplog.connect(log, address.url("ws")) as client:
        ...             await client.synced()
        ...             print([message.payload for message in log])
        ...         tasks.cancel_scope.cancel()
        >>> anyio.run(main)
        ['from the hub']
    """
    check_callbacks(on_event=on_event, on_message=on_message)
    check_settings(broadcast=(broadcast, BroadcastConfig), sync_server=(sync_server, SyncServerConfig))
    if token_file is not None:
        if token is not None:
            raise ValueError("both token and token_file are given: expected one of them")
        token = load_token(token_file)
    headers = [] if token is None else [("Authorization", f"Bearer {bare_token(token)}")]
    return Client(
        log,
        url,
        headers=headers,
        token_file=token_file,
        ca_file=ca_file,
        reconnect=reconnect,
        give_up_on=give_up_on,
        broadcast=broadcast,
        sync_server=sync_server,
        on_event=on_event,
        on_message=on_message,
    )
