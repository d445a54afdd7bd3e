"""Connections of any kind: hub and client over WebSockets (`network`), or a libp2p host (`host`).

A thin layer over what moves the bytes on a thread of its own (`gossiplog._core`). Here, one task waits for its file
descriptor and wakes the tasks that wait for what became ready. Nothing is queued: a call takes or gives what there is
room for, and waits for more room, so a slow reader holds up the senders of its own streams and nobody else.

Every call is a checkpoint. A cancelled one has done nothing, but for `Stream.send` (which see).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

import anyio
import anyio.abc
import anyio.lowlevel

from gossiplog._core import Closed, ConnectionEvent, StreamEvent, Streams
from gossiplog.errors import ConnectionLost, NetworkError, StreamRefused, StreamReset
from gossiplog.net.service import call_when_readable
from gossiplog.net.transport.pacing import TimeSlice
from gossiplog.net.transport.stream import Signal, Stream

__all__ = ["Closed", "Connection", "Transport"]

_FAREWELL_SECONDS = 2.0
"""How long a cancelled task still waits for the peer to take what was sent and the close."""


class Core(Protocol):
    """The thread that drives connections: `gossiplog._core.Network` or `gossiplog._core.Host`. No call waits."""

    @property
    def streams(self) -> Streams: ...
    def fileno(self) -> int: ...
    def poll(self) -> Sequence[object]: ...
    def counts(self) -> dict[str, int]: ...
    def held(self) -> int: ...
    def stop(self) -> None: ...


class Connection:
    """A connection to a peer. Leaving its context closes it.

    Iterating gives the streams that the peer opens, as `accept` does, until the connection ends. Its transport calls
    `wait_established`, `deliver`, `deliver_stream`, `release` and `mark_released`.

    Attributes:
        established: whether it has been established.
        closed: how it ended; None while it stands.
        hello: what a hub said of itself when it was dialled: values of headers by their names.
    """

    def __init__(self, streams: Streams, handle: int, name: str, forget: Callable[[int], object]) -> None:
        self.established = False
        self.closed: Closed | None = None
        self.hello: Mapping[str, str] = {}
        self._table = streams
        self._handle = handle
        self._name = name
        # Notifies the transport that the handle was released.
        self._forget = forget
        self._streams: dict[int, Stream] = {}
        self._inbound: deque[Stream] = deque()
        self._gone: str | None = None
        # Until there is a function to call with them: how often and what the peer did, by kind.
        self._incidents: dict[str, tuple[int, str]] = {}
        self._on_incident: Callable[[str, int, str], None] | None = None
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
        """Return a new stream that speaks `protocol`. Waits until the peer agrees.

        Raises:
            StreamRefused: the peer does not offer the protocol, or did not agree in time.
            ConnectionLost: the connection has ended, or ends meanwhile.
            NetworkError: too many streams are open.
        """
        await anyio.lowlevel.checkpoint()
        self._check()
        stream = self._add(self._table.open(self._handle, protocol), protocol)
        try:
            await stream.wait_opened()
        except (StreamRefused, StreamReset):
            self._check()
            if self.closed is not None:
                raise self._lost(self.closed) from None
            raise
        return stream

    async def accept(self) -> tuple[str, Stream]:
        """Return the next stream that the peer opens, and its protocol. Waits for it.

        Raises:
            ConnectionLost: the connection has ended, and all its streams were accepted.
        """
        await anyio.lowlevel.checkpoint()
        while not self._inbound:
            self._check()
            if self.closed is not None:
                raise self._lost(self.closed)
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
        """Return how the connection ended. Waits until it does."""
        await anyio.lowlevel.checkpoint()
        while self.closed is None:
            self._check()
            await self._changed.wait()
        return self.closed

    def watch(self, on_incident: Callable[[str, int, str], None]) -> None:
        """Call a function with the peer's failed attempts, those so far included.

        Its arguments are the kind (one of `Network.counts`), how often, and what the peer did the last time, as a
        clause.
        """
        self._on_incident = on_incident
        for kind, (count, text) in self._incidents.items():
            on_incident(kind, count, text)
        self._incidents.clear()

    def close(self) -> None:
        """Begin to close: what was sent goes out first, if the peer takes it in time. `wait_closed` waits for that."""
        if self._gone is None and self.closed is None:
            self._table.close(self._handle)

    async def aclose(self) -> None:
        """Close the connection, wait until it is closed, and release it and its streams.

        Cancelled, it does not wait.
        """
        if self._gone is None:
            self.close()
            try:
                # Not if the network is stopped meanwhile.
                with contextlib.suppress(ConnectionLost):
                    await self.wait_closed()
            finally:
                self.release("this side released the connection")

    async def leave(self) -> None:
        """Close in order even when cancelled, in two seconds at most: the peer is not to take it for a failure."""
        with anyio.move_on_after(_FAREWELL_SECONDS, shield=True):
            await self.aclose()

    def release(self, reason: str) -> None:
        """End the connection at once if it has not ended, and fail all further calls. Does nothing the second time."""
        if self._gone is None:
            self._forget(self._handle)
            self._table.release(self._handle)
            self.mark_released(reason)

    def mark_released(self, reason: str) -> None:
        """Wake every task, to find that the connection is gone."""
        self._gone = self._gone or reason
        self._inbound.clear()
        for stream in self._streams.values():
            stream.mark_released(reason)
        self._streams.clear()
        for signal in (self._changed, self._readable, self._writable):
            signal.set()

    async def wait_established(self) -> None:
        """Wait until a dialled connection is established.

        Raises:
            ConnectionLost: it has failed, or this side released it.
        """
        while not self.established:
            self._check()
            if self.closed is not None:
                raise self._lost(self.closed)
            await self._changed.wait()

    def deliver(self, event: ConnectionEvent) -> None:
        """Wake the tasks that the event concerns."""
        if event.established:
            self.established = True
            self.hello = dict(event.hello)
        self.closed = event.closed or self.closed
        if event.established or event.closed is not None:
            self._changed.set()
        if event.readable:
            self._readable.set()
        if event.writable:
            self._writable.set()
        for kind, count, text in event.incidents:
            if self._on_incident is not None:
                self._on_incident(kind, count, text)
            else:
                before, _ = self._incidents.get(kind, (0, ""))
                self._incidents[kind] = before + count, text

    def deliver_stream(self, event: StreamEvent) -> None:
        """Pass an event to its stream, and make the stream if the peer has opened it."""
        stream = self._streams.get(event.stream)
        if stream is None and event.inbound and event.protocol is not None:
            stream = self._add(event.stream, event.protocol)
            self._inbound.append(stream)
            self._changed.set()
        if stream is not None:
            stream.deliver(event)

    def _check(self) -> None:
        if self._gone is not None:
            raise ConnectionLost("local", self._gone)

    @staticmethod
    def _lost(closed: Closed) -> ConnectionLost:
        return ConnectionLost(closed.cause, closed.reason, closed.status)

    def _add(self, handle: int, protocol: str) -> Stream:
        stream = self._streams[handle] = Stream(self._table, handle, protocol, self._streams.pop)
        return stream


class Transport:
    """Connections that are driven on a thread of its own, for the time of its context.

    Args:
        core: that drives them.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._connections: dict[int, Connection] = {}
        # That came and were not passed on yet.
        self._events: deque[object] = deque()
        self._last: dict[str, int] | None = None
        self._tasks = anyio.create_task_group()
        # Shielded: a cancelled task still needs events, to close its connections in order. Leaving the context ends it.
        self._dispatching = anyio.CancelScope(shield=True)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._dispatch)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        self._dispatching.cancel()
        try:
            # Without the error: the group would wrap it, and its tasks are ours alone.
            await self._tasks.__aexit__(None, None, None)
        except anyio.get_cancelled_exc_class() as cancelled:
            # On asyncio, where a scope around the network is cancelled. The block's own error is not to be lost for it:
            # the scope cancels whatever comes next.
            if error is None or isinstance(error, type(cancelled)):
                raise
        finally:
            self._last = self._core.counts()
            self._core.stop()
            for connection in self._connections.values():
                connection.mark_released("the network was stopped")
            self._connections.clear()

    def counts(self) -> dict[str, int]:
        """Return what was counted from the start to the end, by name: see `gossiplog._core.Network.counts`."""
        return self._core.counts() if self._last is None else self._last

    def held(self) -> int:
        """Return how many bytes are kept for peers now: see `Limits`."""
        return self._core.held() if self._last is None else 0

    async def _dispatch(self) -> None:
        with self._dispatching:
            await call_when_readable(self._core.fileno(), self._take_some)

    def _take_some(self) -> bool:
        """Pass events to their connections for a while; return True if there are more."""
        if not self._events:
            try:
                self._events.extend(self._core.poll())
            except NetworkError as error:
                self._fail(error)
                self._dispatching.cancel()
        time_slice = TimeSlice()
        while self._events and not time_slice.is_over:
            self._take(self._events.popleft())
        return bool(self._events)

    def _add(self, handle: int, name: str) -> Connection:
        connection = self._connections[handle] = Connection(self._core.streams, handle, name, self._forget)
        return connection

    def _forget(self, handle: int) -> None:
        self._connections.pop(handle, None)

    def _fail(self, error: NetworkError) -> None:
        """Wake every task: the thread that drives the connections has failed."""
        for connection in self._connections.values():
            connection.mark_released(str(error))

    def _take(self, event: object) -> None:
        """Pass an event to its connection."""
        match event:
            case ConnectionEvent() if (connection := self._connections.get(event.connection)) is not None:
                connection.deliver(event)
            case StreamEvent() if (connection := self._connections.get(event.connection)) is not None:
                connection.deliver_stream(event)
