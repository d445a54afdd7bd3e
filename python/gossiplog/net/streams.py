"""Connections, and streams by protocol name on them, for async code: on trio and on asyncio, through anyio.

A thin layer over `gossiplog._core.Network`, whose thread moves the bytes ("Streams" of the wire format: a WebSocket's
binary messages, on them yamux, on each of its streams multistream-select). Here, one task waits for its file descriptor
and wakes whoever waits for what became ready. Nothing is queued: a call takes or gives what there is room for, and
waits for more room, so a slow reader holds up the senders of its own streams and nobody else.

    async with open_network() as network:
        async with await network.dial("ws://localhost:8000", [SYNC]) as connection:
            async with await connection.open_stream(PUSH) as stream:
                await stream.send(data)

Every call is a checkpoint. A cancelled one has done nothing, but for `send` (which see).
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType

import anyio
import anyio.abc
import anyio.lowlevel

from gossiplog import _core
from gossiplog._core import Closed, ConnectionEvent, StreamEvent, shown_url
from gossiplog.errors import ConnectionLost, StreamRefused, StreamReset
from gossiplog.net.limits import Limits
from gossiplog.net.stream import CHUNK, Signal, Stream

__all__ = ["Closed", "Connection", "Network", "PipeConnection", "Stream", "open_network"]


class Connection:
    """A connection to a peer. Leaving its context closes it.

    Iterating gives the streams that the peer opens, as `accept` does, until the connection ends.

    Attributes:
        closed: how it ended; None while it stands.
    """

    def __init__(self, manager: Network, handle: int, name: str) -> None:
        self.closed: Closed | None = None
        self._manager = manager
        self._network = manager._network
        self._handle = handle
        self._name = name
        self._streams: dict[int, Stream] = {}
        self._inbound: deque[Stream] = deque()
        self._established = False
        self._gone: str | None = None
        # What the peer did in vain, until somebody wants to be told: how often and what, by kind.
        self._incidents: dict[str, tuple[int, str]] = {}
        self._told: Callable[[str, int, str], None] | None = None
        self._changed = Signal()
        self._readable = Signal()
        self._writable = Signal()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._handle} {self._name}>"

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def open_stream(self, protocol: str) -> Stream:
        """A new stream that speaks `protocol`. Waits until the peer agrees.

        Raises:
            StreamRefused: the peer does not offer the protocol, or did not agree in time.
            ConnectionLost: the connection has ended, or ends meanwhile.
            NetworkError: too many streams are open.
        """
        await anyio.lowlevel.checkpoint()
        self._check()
        stream = self._add(self._network.open(self._handle, protocol), protocol)
        try:
            await stream._open()
        except (StreamRefused, StreamReset):
            self._check()
            if self.closed is not None:
                raise ConnectionLost(self.closed.cause, self.closed.reason) from None
            raise
        return stream

    async def accept(self) -> tuple[str, Stream]:
        """The next stream that the peer opens, and its protocol. Waits for it.

        Raises:
            ConnectionLost: the connection has ended, and all its streams were accepted.
        """
        await anyio.lowlevel.checkpoint()
        while not self._inbound:
            self._check()
            if self.closed is not None:
                raise ConnectionLost(self.closed.cause, self.closed.reason)
            await self._changed.wait()
        stream = self._inbound.popleft()
        return stream.protocol, stream

    def __aiter__(self) -> Connection:
        return self

    async def __anext__(self) -> tuple[str, Stream]:
        try:
            return await self.accept()
        except ConnectionLost:
            raise StopAsyncIteration from None

    async def wait_closed(self) -> Closed:
        """How the connection ended. Waits until it does."""
        await anyio.lowlevel.checkpoint()
        while self.closed is None:
            self._check()
            await self._changed.wait()
        return self.closed

    def watch(self, told: Callable[[str, int, str], None]) -> None:
        """Has a function told what the peer does in vain, and has done so far: the kind (one of `Network.counts`), how
        often, and what it did the last time, as a clause."""
        self._told = told
        for kind, (count, text) in self._incidents.items():
            told(kind, count, text)
        self._incidents.clear()

    def close(self) -> None:
        """Begins to close: what was sent goes out first, if the peer takes it in time. `wait_closed` waits for that."""
        if self._gone is None and self.closed is None:
            self._network.close(self._handle)

    async def aclose(self) -> None:
        """Closes, waits until it is closed, and lets go of the connection and its streams. Cancelled, it does not
        wait."""
        if self._gone is None:
            self.close()
            try:
                # Not if the network is stopped meanwhile.
                with contextlib.suppress(ConnectionLost):
                    await self.wait_closed()
            finally:
                self._let_go("this side let go of the connection")

    def _check(self) -> None:
        if self._gone is not None:
            raise ConnectionLost("local", self._gone)

    def _let_go(self, reason: str) -> None:
        if self._gone is None:
            self._manager._connections.pop(self._handle, None)
            self._network.release(self._handle)
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        """Wakes everybody, to find that the connection is gone."""
        self._gone = self._gone or reason
        self._inbound.clear()
        for stream in self._streams.values():
            stream._stop(reason)
        self._streams.clear()
        for signal in (self._changed, self._readable, self._writable):
            signal.set()

    async def _establish(self) -> None:
        """Waits until a dialled connection stands."""
        while not self._established:
            self._check()
            if self.closed is not None:
                raise ConnectionLost(self.closed.cause, self.closed.reason)
            await self._changed.wait()

    def _add(self, handle: int, protocol: str) -> Stream:
        stream = self._streams[handle] = Stream(self._network, handle, protocol, self._streams.pop)
        return stream

    def _deliver(self, event: ConnectionEvent) -> None:
        self._established |= event.established
        self.closed = event.closed or self.closed
        if event.established or event.closed is not None:
            self._changed.set()
        if event.readable:
            self._readable.set()
        if event.writable:
            self._writable.set()
        for kind, count, text in event.incidents:
            if self._told is not None:
                self._told(kind, count, text)
            else:
                before, _ = self._incidents.get(kind, (0, ""))
                self._incidents[kind] = before + count, text

    def _deliver_stream(self, event: StreamEvent) -> None:
        stream = self._streams.get(event.stream)
        if stream is None and event.inbound and event.protocol is not None:
            stream = self._add(event.stream, event.protocol)
            self._inbound.append(stream)
            self._changed.set()
        if stream is not None:
            stream._deliver(event)


class PipeConnection(Connection):
    """A connection whose bytes somebody else carries: what comes from the peer is fed, what goes to the peer is
    drained."""

    def __init__(self, manager: Network, handle: int, name: str) -> None:
        super().__init__(manager, handle, name)
        self._feeding = anyio.ResourceGuard("feeding")
        self._draining = anyio.ResourceGuard("draining")

    async def __aenter__(self) -> PipeConnection:
        return self

    async def feed(self, data: bytes) -> None:
        """Gives bytes that came from the peer. Waits while there is no room. Cancelled, it may have given a part of
        them.

        Raises:
            ConnectionLost: the connection has ended.
        """
        await anyio.lowlevel.checkpoint()
        with self._feeding:
            taken = 0
            while taken < len(data):
                self._check()
                fed = self._network.feed(self._handle, data, taken)
                taken += fed
                if fed == 0:
                    await self._writable.wait()

    def feed_eof(self) -> None:
        """Says that no more bytes come from the peer. The connection ends."""
        if self._gone is None:
            self._network.feed_eof(self._handle)

    async def drain(self, limit: int = CHUNK) -> bytes:
        """Bytes to send to the peer, from 1 to `limit`; b"" when there will be no more. Waits for them.

        Raises:
            ConnectionLost: this side let go of the connection.
        """
        await anyio.lowlevel.checkpoint()
        with self._draining:
            while True:
                self._check()
                data = self._network.drain(self._handle, limit)
                if data is not None:
                    return data
                await self._readable.wait()


class Network:
    """Connections, driven on a thread of its own: made by `open_network`, for the time of its context."""

    def __init__(self, network: _core.Network) -> None:
        self._network = network
        self._connections: dict[int, Connection] = {}
        self._last: dict[str, int] | None = None
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Network:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._dispatch)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            # Without the error: the group would wrap it, and its tasks are ours alone.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._last = self._network.counts()
            self._network.stop()
            for connection in self._connections.values():
                connection._stop("the network was stopped")
            self._connections.clear()

    def attach(self, protocols: Sequence[str], *, client: bool) -> PipeConnection:
        """A connection over bytes that somebody else carries, such as an ASGI server's WebSocket.

        Args:
            protocols: what streams that the peer opens may speak.
            client: this end is yamux's client; exactly one end is.

        Raises:
            NetworkError: too many connections, or a name that cannot be a protocol's.
        """
        connection = PipeConnection(self, self._network.attach(protocols, client), "over a pipe")
        self._connections[connection._handle] = connection
        return connection

    async def dial(
        self,
        url: str,
        protocols: Sequence[str],
        *,
        headers: Sequence[tuple[str, str]] = (),
        ca_file: str | os.PathLike[str] | None = None,
        connect_timeout: float = 10.0,
        keepalive: float = 20.0,
        max_message: int = 1 << 20,
    ) -> Connection:
        """A connection to a hub's WebSocket, `ws://` or `wss://`. Waits until it stands.

        Args:
            protocols: what streams that the hub opens may speak.
            headers: more headers for the opening request.
            ca_file: a PEM file of certificate authorities to trust beside the platform's.
            connect_timeout: seconds.
            keepalive: seconds between pings; after twice as long without a sign of life the connection is given up.
            max_message: bytes of the largest message that is accepted.

        Raises:
            ConnectionLost: it cannot be reached, or does not answer.
            NetworkError: too many connections, or an address that is none.
        """
        await anyio.lowlevel.checkpoint()
        handle = self._network.dial(url, protocols, headers, ca_file, connect_timeout, keepalive, max_message)
        connection = self._connections[handle] = Connection(self, handle, f"to {shown_url(url)}")
        try:
            await connection._establish()
        finally:
            if not connection._established:
                connection._let_go("it was not established")
        return connection

    def counts(self) -> dict[str, int]:
        """What was counted from the start to the end, by name: see `gossiplog._core.Network.counts`."""
        return self._network.counts() if self._last is None else self._last

    def held(self) -> int:
        """Bytes that are kept for peers now: see `Limits`."""
        return self._network.held() if self._last is None else 0

    async def _dispatch(self) -> None:
        while True:
            await anyio.wait_readable(self._network.fileno())
            for event in self._network.poll():
                connection = self._connections.get(event.connection)
                match event:
                    case ConnectionEvent() if connection is not None:
                        connection._deliver(event)
                    case StreamEvent() if connection is not None:
                        connection._deliver_stream(event)


def open_network(limits: Limits | None = None) -> Network:
    """A network for the time of its context: `async with open_network() as network`.

    Leaving the context ends what connections there still are, at once; close those that matter before.

    Args:
        limits: None for the usual ones.

    Raises:
        NetworkError: the system refuses a thread or a socket.
    """
    return Network(_core.Network(**asdict(limits or Limits())))
