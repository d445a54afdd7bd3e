"""The event loop that runs now, asyncio's or trio's, where anyio does not say which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVarTuple, cast

import anyio.lowlevel

_Arguments = TypeVarTuple("_Arguments")


class Caller(Protocol):
    """Has an event loop call functions soon. Any thread may call it, and none waits."""

    def __call__(self, call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None: ...


class _TrioToken(Protocol):
    """What trio calls by this name: named here, because trio need not be installed."""

    def run_sync_soon(self, call: Callable[[*_Arguments], object], /, *arguments: *_Arguments) -> None: ...


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs now; None if it is not one of asyncio's."""
    loop = anyio.lowlevel.current_token().native_token
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def caller() -> Caller:
    """Return a function that calls others on the loop that runs now. When that has ended, it does nothing."""
    loop = asyncio_loop()
    if loop is not None:
        call_soon: Callable[..., object] = loop.call_soon_threadsafe
    else:
        call_soon = cast(_TrioToken, anyio.lowlevel.current_token().native_token).run_sync_soon

    def call_in_loop(call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        # What both raise once the loop has ended.
        with suppress(RuntimeError):
            call_soon(call, *arguments)

    return call_in_loop
