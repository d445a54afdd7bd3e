"""Threads for calls that block.

`anyio.to_thread.run_sync` takes an event loop longer than most calls of a log take a thread: a turn before the call, a
limiter, a scope, and what its threads need to call back. On asyncio a call takes a future and a queue here; on trio it
is anyio's.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from gossiplog.net.service import asyncio_loop

try:
    import sniffio
except ImportError:
    # Without trio it may be absent.
    _library: ContextVar[str | None] | None = None
else:
    _library = sniffio.current_async_library_cvar

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

IDLE_SECONDS = 10.0
"""After which a thread without calls ends."""

# A stack: the thread that was used last gets the next call, so that the others end.
_idle: deque[_Thread] = deque()
os.register_at_fork(after_in_child=_idle.clear)


async def run_in_thread(call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
    """Call a function on a worker thread, and return its result. If cancelled, abandon the call: its result is dropped.

    Raises:
        BaseException: what the function raises.
    """
    loop = asyncio_loop()
    if loop is None:
        limiter = anyio.CapacityLimiter(math.inf)
        return await anyio.to_thread.run_sync(call, *arguments, limiter=limiter, abandon_on_cancel=True)
    future = loop.create_future()
    context = copy_context()
    if _library is not None:
        # The thread runs no event loop.
        context.run(_library.set, None)

    def finish(result: _Result | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> Callable[[], object]:
        result: _Result | None = None
        error: BaseException | None = None
        try:
            result = context.run(call, *arguments)
        except StopIteration as stop:
            # No future can hold one.
            error = RuntimeError(f"{call} raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # noqa: BLE001 - raised on the event loop
            error = raised
        return lambda: loop.call_soon_threadsafe(finish, result, error)

    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
        thread.start()
    thread.calls.put(work)
    found: _Result = await future
    return found


class _Thread(threading.Thread):
    """Runs calls until there has been none for a while.

    Attributes:
        calls: to run; each returns a function that reports its result.
    """

    def __init__(self) -> None:
        super().__init__(name="gossiplog-worker", daemon=True)
        self.calls: SimpleQueue[Callable[[], Callable[[], object]]] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=IDLE_SECONDS)
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    # It was taken just now: a call comes.
                    continue
                return
            report = call()
            # Before the report: the task that it wakes may call at once, and is to find this thread.
            _idle.append(self)
            # The loop may have ended.
            with suppress(RuntimeError):
                report()
            del call, report
