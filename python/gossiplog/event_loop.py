"""The event loop that runs now: asyncio's or trio's, and how threads call it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, TypeVarTuple, cast

import anyio.lowlevel

if TYPE_CHECKING:
    import trio

try:
    import sniffio
except ImportError:
    # Without trio it may be absent.
    async_library: ContextVar[str | None] | None = None
else:
    async_library = sniffio.current_async_library_cvar
    """Which library runs, for code that no task runs (sniffio)."""

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


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


def callback_context(context: Context | None = None) -> Context:
    """Return a context for callbacks of asyncio's loop in which anyio finds out that it is asyncio's.

    Where sniffio is installed it looks for a task, which a callback has not, unless the context says so. Those of
    `anyio.run` do; those of `asyncio.run`, and of servers that are started so, do not.

    Args:
        context: to be used. By default a copy of the current one.
    """
    context = copy_context() if context is None else context
    if async_library is not None:
        context.run(async_library.set, "asyncio")
    return context


def loop_call_soon(context: Context | None = None) -> Caller:
    """Return a function that calls others on the loop that runs now. When that has ended, it does nothing.

    Args:
        context: that the functions run in on asyncio. By default a copy of the current one, which is kept as long as
            the returned function is, with all that its variables hold.
    """
    loop = asyncio_loop()
    if loop is not None:
        call_soon: Callable[..., object] = partial(loop.call_soon_threadsafe, context=callback_context(context))
    else:
        call_soon = cast(_TrioToken, anyio.lowlevel.current_token().native_token).run_sync_soon

    def call_in_loop(call: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        # What both raise once the loop has ended.
        with suppress(RuntimeError):
            call_soon(call, *arguments)

    return call_in_loop


def current_loop() -> object:
    """Return what is one and the same for all tasks of a loop, and another for those of another."""
    return asyncio_loop() or anyio.lowlevel.current_token().native_token


class Outcome(Generic[_Result]):
    """What a task waits for, and somebody on the same loop gives: a result or an error.

    On asyncio a future, on trio the task itself: both wake in half the time that an `anyio.Event` takes.
    """

    __slots__ = ("_error", "_future", "_is_given", "_result", "_task")

    def __init__(self) -> None:
        loop = asyncio_loop()
        self._future: asyncio.Future[_Result] | None = None if loop is None else loop.create_future()
        self._result: _Result | None = None
        self._error: BaseException | None = None
        self._is_given = False
        # Of trio's, while it waits.
        self._task: trio.lowlevel.Task | None = None

    def succeed(self, result: _Result) -> None:
        """Give a result; nobody may wait any more."""
        if self._future is None:
            self._result = result
            self._wake()
        elif not self._future.done():
            self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Give an error; nobody may wait any more."""
        if isinstance(error, StopIteration):
            # No future can hold one.
            cause, error = error, RuntimeError("StopIteration was raised")
            error.__cause__ = cause
        if self._future is None:
            self._error = error
            self._wake()
        elif not self._future.done():
            self._future.set_exception(error)

    def _wake(self) -> None:
        self._is_given = True
        task, self._task = self._task, None
        if task is not None:
            sys.modules["trio"].lowlevel.reschedule(task)

    async def wait(self) -> _Result:
        """Wait for the result.

        Raises:
            BaseException: the error that was given.
        """
        if self._future is not None:
            return await self._future
        if not self._is_given:
            lowlevel = sys.modules["trio"].lowlevel
            self._task = lowlevel.current_task()
            await lowlevel.wait_task_rescheduled(self._abandon)
        if self._error is not None:
            raise self._error
        return cast(_Result, self._result)

    def _abandon(self, raise_cancel: object) -> object:
        self._task = None
        return sys.modules["trio"].lowlevel.Abort.SUCCEEDED
