"""Drivers, hubs and clients for tests: joined in memory, or over loopback sockets."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.abc
import hypercorn.asyncio
import hypercorn.config
import hypercorn.trio
import sniffio
import trio
from hypercorn.trio.tcp_server import TCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

from gossiplog import Log, SignedMessage, _core
from gossiplog.core import GossipValidator
from gossiplog.errors import NetworkError
from gossiplog.event_loop import loop_call_soon
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.http.listener import Address
from gossiplog.net.http.server import serve
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.log_writer import LogWriter
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.service import background
from gossiplog.net.transport.host import Answer
from gossiplog.net.transport.network import Connection, Network, PipeConnection
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.pubsub.gossipsub import GossipConfig

TOPIC = "org.example.test"
"""Of the logs that `opened` opens."""
QUICK = BroadcastConfig(backoff=0.01, longest_backoff=0.05, retry=0.01, longest_retry=0.05)
"""Delays of a driver that waits for nothing."""
LISTEN = "/ip4/127.0.0.1/tcp/0/ws"
"""Where hosts of tests listen."""
FOREIGN = "/ip4/192.0.2.1/tcp/0/ws"
"""Where they cannot: an address that no machine has (RFC 5737)."""
TLS_FILES = Path(__file__).parents[2] / "rust" / "net" / "tests" / "tls"
"""A certificate for localhost with its key, and that of the authority."""
GOSSIP = GossipConfig(heartbeat_interval=0.1)
"""Of their gossip: a mesh forms within some heartbeats."""
EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
RSA = ["-newkey", "rsa:2048"]
"""Keys, as `make_certificate` takes them."""

Kind = TypeVar("Kind", bound=events.Event)
_HostCore = _core.Host


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request, sends messages back, or sends without end."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})
        return
    await receive()
    await send({"type": "websocket.accept"})
    while scope["path"] == "/flood":
        await send({"type": "websocket.send", "bytes": bytes(2**16)})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


@asynccontextmanager
async def bundled_server(app: ASGIApp = echo, **settings: Any) -> AsyncIterator[Address]:
    """Run an application in the bundled server."""
    async with anyio.create_task_group() as tasks:

        async def run(*, task_status: anyio.abc.TaskStatus[Address]) -> None:
            await serve(app, task_status=task_status, **settings)

        address = await tasks.start(run)
        yield address
        tasks.cancel_scope.cancel()


class Defective:
    """The core of a host, to stand for `gossiplog._core.Host`, which fails as one does whose thread has panicked."""

    def __init__(self, **arguments: Any) -> None:
        self._core = _HostCore(**arguments)
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def poll(self) -> list[Any]:
        happened = self._core.poll()
        if self._failed:
            raise NetworkError("the host's task panicked")
        return happened

    def panic(self) -> None:
        self._failed = True
        # Nobody listens there: that much is told, and has the core polled.
        self._core.dial("/ip4/127.0.0.1/tcp/1")


class Heard:
    """What an application hears: pass it as `on_event`, and its `message` as `on_message`."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self.messages: list[SignedMessage] = []
        self._changed = Signal()

    def __call__(self, event: events.Event) -> None:
        self.events.append(event)
        self._changed.set()

    def message(self, message: SignedMessage) -> None:
        self.messages.append(message)
        self._changed.set()

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    async def changed(self) -> None:
        """Waits until it hears something more."""
        await self._changed.wait()

    async def wait(self, kind: type[Kind], count: int = 1) -> list[Kind]:
        """The events of a kind, once there are so many."""
        while len(self.of(kind)) < count:
            await self._changed.wait()
        return self.of(kind)

    async def wait_for_messages(self, count: int) -> list[SignedMessage]:
        while len(self.messages) < count:
            await self._changed.wait()
        return self.messages


class FakeRouter:
    """A router of gossip that keeps what it is given.

    Attributes:
        published: what the log wanted published.
        batches: the answers, as they came together.
    """

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.batches: list[list[tuple[int, Answer]]] = []
        self._changed = Signal()

    def publish(self, data: bytes) -> bool:
        self.published.append(data)
        self._changed.set()
        return True

    def validate(self, answers: Sequence[tuple[int, Answer]]) -> None:
        self.batches.append(list(answers))
        self._changed.set()

    async def wait_for_publications(self, count: int) -> list[bytes]:
        """What was published, once there are so many."""
        while len(self.published) < count:
            await self._changed.wait()
        return self.published

    @property
    def answers(self) -> dict[int, Answer]:
        return {ticket: answer for batch in self.batches for ticket, answer in batch}

    async def answered(self, count: int) -> dict[int, Answer]:
        """The answers, once there are so many."""
        while len(self.answers) < count:
            await self._changed.wait()
        return self.answers


async def until_equal(*logs: Log) -> None:
    """Waits until all logs have the same root."""
    await _until(lambda: len({log.root for log in logs}) == 1, logs)


async def until_longer(log: Log, count: int) -> None:
    """Waits until a log has more messages than so many."""
    await _until(lambda: len(log) > count, [log])


async def _until(reached: Callable[[], bool], logs: Sequence[Log]) -> None:
    """Looks again whenever one of the logs got messages."""
    committed, call_soon = Signal(), loop_call_soon()
    with ExitStack() as stack:
        for log in logs:
            stack.enter_context(replica_of(log).listening(lambda last: call_soon(committed.set)))
        while not reached():
            await committed.wait()


def connect_pair(network: Network, protocols: Sequence[str]) -> tuple[Connection, Connection]:
    """Two connections of one process, joined by pipes: the client's end and the server's. Both offer `protocols`."""
    client, server = network.attach(protocols, client=True), network.attach(protocols, client=False)
    network._tasks.start_soon(carry, client, server)
    network._tasks.start_soon(carry, server, client)
    return client, server


async def carry(source: PipeConnection, target: PipeConnection) -> None:
    """Carries bytes from one end to the other until either is gone."""
    try:
        while data := await source.drain():
            await target.feed(data)
    except NetworkError:
        # One of the two is gone; the other hears of it.
        pass
    target.feed_eof()


def feed_and_writer(
    log: Log,
    on_message: Callable[[SignedMessage], None] | None = None,
    telemetry: Telemetry | None = None,
    report: Callable[[broadcast.InEvent], None] | None = None,
    validator: GossipValidator | None = None,
) -> tuple[ChangeFeed, LogWriter]:
    """A log's feed, which reports what others commit if there is a report, and what writes to the log for a driver."""
    workers, telemetry = WorkerPool(), telemetry or Telemetry(None)
    feed = ChangeFeed(
        replica_of(log),
        workers,
        telemetry,
        report or (lambda event: None),
        lambda: report is not None,
        on_message,
        validator,
    )
    return feed, LogWriter(replica_of(log), workers, telemetry, feed)


@asynccontextmanager
async def joined(
    network: Network, client: Driver, server: Driver, **options: bool
) -> AsyncIterator[tuple[Connection, Connection]]:
    """Two drivers that exchange messages; the first is the one that dialled."""
    ends = connect_pair(network, client.protocols.all)
    async with background() as tasks:
        for driver, end, name in zip((client, server), ends, ("the server", "the client"), strict=True):
            tasks.start_soon(partial(driver.exchange, end, name, dialer=driver is client, **options))
        yield ends


@asynccontextmanager
async def guest(
    network: Network, server: Driver, name: str = "the guest", **options: bool
) -> AsyncIterator[Connection]:
    """The end of a connection to a driver, for a test to misbehave on. The driver's end is let go at the end."""
    ours, theirs = connect_pair(network, server.protocols.all)
    async with background() as tasks:
        tasks.start_soon(partial(server.exchange, theirs, name, **{"dialer": False, **options}))
        yield ours


_protocol_send = TCPServer.protocol_send


async def _send_unless_closing(server: TCPServer, event: Any) -> None:
    """Send; what comes while hypercorn 0.18.0 closes the connection is lost, instead of ending the whole server."""
    with suppress(trio.BusyResourceError):
        await _protocol_send(server, event)


TCPServer.protocol_send = _send_unless_closing  # type: ignore[method-assign]


@asynccontextmanager
async def serving(app: Callable[..., Awaitable[None]], port: int = 0) -> AsyncIterator[str]:
    """An ASGI application behind a server on a port of the loopback interface, 0 being a free one: its address."""
    listener = socket.create_server(("127.0.0.1", port))
    port = listener.getsockname()[1]
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = 0.1
    config.loglevel = "CRITICAL"
    serve: Any = {"trio": hypercorn.trio.serve, "asyncio": hypercorn.asyncio.serve}[sniffio.current_async_library()]
    stopped, stop = anyio.Event(), anyio.Event()

    async def run() -> None:
        try:
            await serve(app, config, shutdown_trigger=stop.wait)
        finally:
            stopped.set()

    async with background() as tasks:
        tasks.start_soon(run)
        try:
            yield f"ws://127.0.0.1:{port}"
        finally:
            stop.set()
            with anyio.CancelScope(shield=True), anyio.move_on_after(20):
                await stopped.wait()


def make_certificate(certificate: Path, key: Path, options: list[str]) -> tuple[bytes, bytes]:
    """Return a certificate that signs itself, and its key, in PEM."""
    command = ["openssl", "req", "-x509", "-nodes", *options, "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate.read_bytes(), key.read_bytes()
