"""A stream of bytes, for async code: what `gossiplog.net.transport.connection` hands out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

import anyio
import anyio.lowlevel

from gossiplog._core import Closed, StreamEvent, Streams
from gossiplog.errors import StreamRefused, StreamReset
from gossiplog.event_loop import asyncio_loop

# How many bytes move in one call: a few of yamux's data frames, of 16 KiB.
CHUNK = 64 * 1024


class Signal:
    """Wakes all who wait now; who comes later waits for the next time.

    On asyncio a wait is a future: an event of anyio's takes four times as long.
    """

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[None]] = []
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake all who wait."""
        if self._futures:
            futures, self._futures = self._futures, []
            for future in futures:
                if not future.done():
                    future.set_result(None)
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next `set`."""
        loop = asyncio_loop()
        if loop is None:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
            return
        future = loop.create_future()
        self._futures.append(future)
        try:
            await future
        except BaseException:
            # It may never be set again.
            if future in self._futures:
                self._futures.remove(future)
            raise


class Stream:
    """A stream of bytes in both directions. Leaving its context closes it, or resets it after an exception.

    One task may receive while another sends. Its connection calls `wait_opened`, `deliver` and `mark_released`.

    Attributes:
        protocol: the protocol that both sides agreed on.
    """

    def __init__(self, streams: Streams, handle: int, protocol: str, forget: Callable[[int], object]) -> None:
        self.protocol = protocol
        self._streams = streams
        self._handle = handle
        # Notifies the connection that the handle was released.
        self._forget = forget
        self._readable = Signal()
        self._writable = Signal()
        self._receiving = anyio.ResourceGuard("receiving from")
        self._sending = anyio.ResourceGuard("sending on")
        self._opened = False
        self._reserved = 0
        self._failed: Closed | None = None
        self._gone: str | None = None

    def __repr__(self) -> str:
        return f"<Stream {self._handle} {self.protocol}>"

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            self.reset()

    async def receive(self, limit: int = CHUNK) -> bytes:
        """Return what the peer sent, from 1 to `limit` bytes; b"" at the end. Waits for it.

        Raises:
            StreamReset: the peer reset the stream, or this side released it.
            ConnectionLost: before the stream's end.
        """
        await anyio.lowlevel.checkpoint()
        with self._receiving:
            while True:
                self._check()
                data = self._streams.read(self._handle, limit)
                if data is not None:
                    return data
                await self._readable.wait()

    async def send(self, data: bytes) -> None:
        """Send all of it. Waits while the peer has no room.

        Cancelled after a part of it was taken, it resets the stream: whatever is sent next would be misread.

        Raises:
            StreamReset: the peer reset the stream, or this side released it.
            ConnectionLost: the connection ended.
        """
        await anyio.lowlevel.checkpoint()
        with self._sending:
            taken = 0
            try:
                while taken < len(data):
                    self._check()
                    wrote = self._streams.write(self._handle, data, taken)
                    taken += wrote
                    if wrote == 0:
                        await self._writable.wait()
            except anyio.get_cancelled_exc_class():
                if taken:
                    self._reset("a send was cancelled halfway")
                raise

    def reserve_memory(self, size: int) -> None:
        """Set how many bytes this side keeps in memory for the stream.

        They are what is not a whole message yet, or an answer that waits, and count with what was not received (see
        `Limits`) until the next call, or until the stream is released.
        """
        if self._gone is None and size != self._reserved:
            self._reserved = size
            self._streams.reserve_memory(self._handle, size)

    def reset(self) -> None:
        """Release the stream at once: the peer sees a reset. Does nothing on a stream that was released."""
        self._reset("this side reset the stream")

    async def aclose(self) -> None:
        """Release the stream in order, without waiting: what was sent will arrive, what arrives is passed over."""
        if self._gone is None:
            self._gone = "this side closed the stream"
            self._streams.finish(self._handle)
            self._forget(self._handle)
            self._wake()
        await anyio.lowlevel.checkpoint()

    async def wait_opened(self) -> None:
        """Wait until the peer has agreed on the protocol; reset the stream if that fails or is cancelled.

        Raises:
            StreamRefused: the peer does not offer the protocol, or did not agree in time.
            StreamReset: this side released the stream.
        """
        try:
            while not self._opened:
                await self._readable.wait()
                if self._failed is not None:
                    raise StreamRefused(self._failed.cause, f"no stream for {self.protocol}: {self._failed.reason}")
                self._check()
        finally:
            if not self._opened:
                self.reset()

    def deliver(self, event: StreamEvent) -> None:
        """Wake the tasks that the event concerns."""
        opened = event.protocol is not None and not self._opened
        self._opened |= opened
        self._failed = event.failed or self._failed
        if event.readable or opened or event.failed is not None:
            self._readable.set()
        if event.writable:
            self._writable.set()

    def mark_released(self, reason: str) -> None:
        """Fail all further calls: the connection has released the stream."""
        self._gone = self._gone or reason
        self._wake()

    def _check(self) -> None:
        if self._gone is not None:
            raise StreamReset(self._gone)

    def _reset(self, reason: str) -> None:
        if self._gone is None:
            self._gone = reason
            self._streams.reset(self._handle)
            self._forget(self._handle)
            self._wake()

    def _wake(self) -> None:
        self._readable.set()
        self._writable.set()
