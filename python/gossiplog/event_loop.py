"""The event loop that runs now: asyncio's or trio's, and how threads call it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Protocol, TypeVarTuple, cast

import anyio.lowlevel

try:
    import sniffio
except ImportError:
    # Without trio it may be absent.
    library: ContextVar[str | None] | None = None
else:
    library = sniffio.current_async_library_cvar
    """Which library runs, for code that no task runs (sniffio)."""

_Arguments = TypeVarTuple("_Arguments")


class Caller(Protocol):
    """Has an event loop call functions soon. Any thread may call it, and none waits."""

    def __call__(self, call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None: ...


class _TrioToken(Protocol):
    """What trio calls by this name: named here, because trio need not be installed."""

    def run_sync_soon(self, call: Callable[[*_Arguments], object], /, *arguments: *_Arguments) -> None: ...


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs the current task; None if it is not one of asyncio's."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    # A task of trio's may run as a guest on asyncio's loop.
    return task.get_loop() if task is not None else None


def callback_context() -> Context:
    """Return a context for callbacks of asyncio's loop in which anyio finds out that it is asyncio's.

    Where sniffio is installed it looks for a task, which a callback has not, unless the context says so. Those of
    `anyio.run` do; those of `asyncio.run`, and of servers that are started so, do not.
    """
    context = copy_context()
    if library is not None:
        context.run(library.set, "asyncio")
    return context


def caller() -> Caller:
    """Return a function that calls others on the loop that runs now. When that has ended, it does nothing."""
    loop = asyncio_loop()
    if loop is not None:
        call_soon: Callable[..., object] = partial(loop.call_soon_threadsafe, context=callback_context())
    else:
        call_soon = cast(_TrioToken, anyio.lowlevel.current_token().native_token).run_sync_soon

    def call_in_loop(call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        # What both raise once the loop has ended.
        with suppress(RuntimeError):
            call_soon(call, *arguments)

    return call_in_loop
