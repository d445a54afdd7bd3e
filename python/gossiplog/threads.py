"""Threads for calls that block.

`anyio.to_thread.run_sync` takes an event loop longer than most calls of a log take a thread: a turn before the call, a
limiter, a scope, and what its threads need to call back. On asyncio a call takes a future and a queue here; on trio it
is anyio's.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from gossiplog.event_loop import async_library, asyncio_loop

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")
_Call = Callable[[], Callable[[], object]]

IDLE_SECONDS = 10.0
"""After which a thread without calls ends."""
MOST_RUNNING = max(8, 4 + (os.cpu_count() or 1))
"""Calls that run at a time: as many as one log may have, or a few more than there are cores. Threads take turns at the
interpreter's lock, and hundreds of them (many logs in a process) have the event loop wait for each of its turns."""
LONG_SECONDS = 0.5
"""After which a call no longer counts among those that run: it waits for something, which others must not."""


async def run_in_thread(
    call: Callable[[*_Arguments], _Result], *arguments: *_Arguments, is_essential: bool = False
) -> _Result:
    """Call a function on a worker thread, and return its result. If cancelled, abandon the call: its result is dropped.

    On asyncio calls beyond `MOST_RUNNING` wait for another to return, or to take `LONG_SECONDS`; cancelled, they do not
    run, unless they are essential.

    Args:
        call: the function.
        arguments: of it.
        is_essential: whether it is to run, as what gives something back is, also if its task is cancelled meanwhile: on
            trio the caller shields it, which on asyncio holds off the cancellation by scopes alone.

    Raises:
        BaseException: what the function raises.
    """
    loop = asyncio_loop()
    if loop is None:
        limiter = anyio.CapacityLimiter(math.inf)
        return await anyio.to_thread.run_sync(call, *arguments, limiter=limiter, abandon_on_cancel=True)
    future = loop.create_future()
    context = copy_context()
    if async_library is not None:
        # The thread runs no event loop.
        context.run(async_library.set, None)

    def finish(result: _Result | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> Callable[[], object]:
        if future.cancelled() and not is_essential:
            return lambda: None
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

    _pool.run(work)
    found: _Result = await future
    return found


def start_in_thread(call: Callable[[], object]) -> None:
    """Call a function on a worker thread as soon as few enough run. It must not raise, and nobody waits for it."""

    def work() -> Callable[[], object]:
        call()
        return lambda: None

    _pool.run(work)


class _Pool:
    """Threads, and calls that wait for one.

    Attributes:
        idle: threads without a call. A stack: the one that was used last gets the next call, so that the others end.
    """

    def __init__(self) -> None:
        self.idle: deque[_Thread] = deque()
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        # Those that count, in the order in which their calls began.
        self._running: dict[_Thread, float] = {}
        self._watched = False

    def run(self, call: _Call) -> None:
        """Run a call on a thread, as soon as few enough run."""
        with self._lock:
            if len(self._running) < MOST_RUNNING:
                self._start(call)
                return
            if not self._watched:
                # Where it cannot be started, nothing has changed: whoever calls gets the error, and no result.
                threading.Thread(target=self._watch, name="gossiplog-watch", daemon=True).start()
                self._watched = True
            self._waiting.append(call)

    def next(self, thread: _Thread) -> _Call | None:
        """Return the next call of a thread whose call has returned, if one waits; else the thread is idle."""
        with self._lock:
            counted = self._running.pop(thread, None) is not None
            if self._waiting and (counted or len(self._running) < MOST_RUNNING):
                self._running[thread] = time.monotonic()
                return self._waiting.popleft()
            self.idle.append(thread)
            return None

    def end(self, thread: _Thread) -> bool:
        """Take an idle thread out; return False if it was taken just now, and a call comes."""
        with self._lock:
            try:
                self.idle.remove(thread)
            except ValueError:
                return False
            return True

    def _start(self, call: _Call) -> None:
        try:
            thread = self.idle.pop()
        except IndexError:
            thread = _Thread()
            thread.start()
        self._running[thread] = time.monotonic()
        thread.calls.put(call)

    def _watch(self) -> None:
        while True:
            time.sleep(LONG_SECONDS / 2)
            with self._lock:
                # Also where no thread can be started: the next call that has to wait tries again.
                self._watched = False
                self._pass_over_long_calls()
                self._watched = bool(self._waiting)
                if not self._watched:
                    return

    def _pass_over_long_calls(self) -> None:
        long_ago = time.monotonic() - LONG_SECONDS
        while self._running and next(iter(self._running.values())) <= long_ago:
            self._running.pop(next(iter(self._running)))
        while self._waiting and len(self._running) < MOST_RUNNING:
            self._start(self._waiting[0])
            self._waiting.popleft()


class _Thread(threading.Thread):
    """Runs calls until there has been none for a while.

    Attributes:
        calls: to run; each returns a function that reports its result.
    """

    def __init__(self) -> None:
        super().__init__(name="gossiplog-worker", daemon=True)
        self.calls: SimpleQueue[_Call] = SimpleQueue()

    def run(self) -> None:
        while True:
            try:
                call: _Call | None = self.calls.get(timeout=IDLE_SECONDS)
            except Empty:
                if _pool.end(self):
                    return
                continue
            while call is not None:
                report = call()
                # Before the report: the task that it wakes may call at once, and is to find this thread.
                call = _pool.next(self)
                # The loop may have ended.
                with suppress(RuntimeError):
                    report()
                del report


_pool = _Pool()


def _forget_threads() -> None:
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget_threads)
