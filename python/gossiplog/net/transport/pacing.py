"""Handles what a client sends in small parts, so that other callbacks of the event loop run in between.

A server's parsers handle all that one read brought, 256 KiB, in one callback. That may be 40,000 chunks of a body, or
as many frames of a WebSocket, of a byte each: most of a second. Here a callback handles a part, and more of them only
as long as it has taken less than some milliseconds. Nothing more is read meanwhile, nor handled while the protocol
wants no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import anyio.lowlevel

PART_BYTES = 2**10
"""Handled at once. The costliest take 10 milliseconds: chunks, or frames, of one byte."""
BODY_PART_BYTES = 2**16
"""Handled at once of a body whose length is known: one event, however many bytes it has."""
SLICE_SECONDS = 0.002
"""After which no other part is handled in a callback."""


class TimeSlice:
    """Lets other callbacks run now and then, in a loop over what strangers sent."""

    def __init__(self) -> None:
        self._end = time.perf_counter() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether this task or callback has run for long."""
        return time.perf_counter() >= self._end

    async def rest(self) -> None:
        """Yield to the event loop, if this task has run for long; a checkpoint only then."""
        if self.is_over:
            await anyio.lowlevel.checkpoint()
            self._end = time.perf_counter() + SLICE_SECONDS


class Gate:
    """A transport that reads while the protocol wants it and has handled what was read before.

    Args:
        transport: to read from.
        resumed: called when the protocol wants to go on with what waits.

    Attributes:
        inner: the transport.
        is_wanted: whether the protocol wants to be given more.
    """

    def __init__(self, transport: asyncio.Transport, resumed: Callable[[], None]) -> None:
        # Of a protocol that the connection has changed from: it no longer reads.
        self.inner: asyncio.Transport = transport.inner if isinstance(transport, Gate) else transport
        self.is_wanted = True
        self._resumed = resumed
        self._is_busy = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def pause_reading(self) -> None:
        """Give the protocol nothing more."""
        self.is_wanted = False
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        """Go on: with what waits, if something does."""
        self.is_wanted = True
        if self._is_busy:
            self._resumed()
        else:
            self.inner.resume_reading()

    def set_busy(self, is_busy: bool) -> None:
        """Read nothing more while something waits to be handled."""
        self._is_busy = is_busy
        if is_busy:
            self.inner.pause_reading()
        elif self.is_wanted:
            self.inner.resume_reading()


class Paced(asyncio.Protocol):
    """Mixin that passes received data to the protocol in parts, of PART_BYTES unless the protocol says otherwise.

    Attributes:
        successor: the protocol that the connection has changed to, which is given the rest; None as long as it has not.
    """

    successor: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._gate = Gate(transport, self._handle_soon)
        self._unhandled = b""
        self._handled = 0
        self._is_due = False
        super().connection_made(self._gate)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._unhandled, self._handled = b"", 0
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle a part of it, and the rest in callbacks that follow."""
        self._unhandled = self._unhandled[self._handled :] + data
        self._handled = 0
        if not self._is_due:
            self._handle()

    def _part_bytes(self) -> int:
        """Return how many of the next bytes may be handled at once."""
        return PART_BYTES

    def _handle_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._handle)

    def _handle(self) -> None:
        self._is_due = False
        end = time.perf_counter() + SLICE_SECONDS
        while self._handled < len(self._unhandled) and self._gate.is_wanted and not self._gate.is_closing():
            if self.successor is not None:
                rest, self._unhandled = self._unhandled[self._handled :], b""
                self.successor.data_received(rest)
                return
            part = self._unhandled[self._handled : self._handled + self._part_bytes()]
            self._handled += len(part)
            super().data_received(part)
            if time.perf_counter() >= end and self._handled < len(self._unhandled):
                self._handle_soon()
                break
        if self._handled == len(self._unhandled) or self._gate.is_closing():
            self._unhandled, self._handled = b"", 0
        self._gate.set_busy(bool(self._unhandled))
