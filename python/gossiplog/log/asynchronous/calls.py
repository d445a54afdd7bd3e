"""Long calls on worker threads, which end soon after the task that waits for them was cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

from gossiplog.event_loop import loop_call_soon
from gossiplog.log.callbacks import check_progress
from gossiplog.storage.base import Progress
from gossiplog.threads import run_in_thread, start_in_thread

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class _Stopped(Exception):
    """Ends a call that nobody waits for any more."""


class Stop:
    """Says within a call, on its thread, whether it is to end."""

    def __init__(self) -> None:
        self._is_set = False
        self._call_soon = loop_call_soon()

    def set(self) -> None:
        """Ask the call to stop at its next step."""
        self._is_set = True

    def check(self) -> None:
        """End the call by an exception if its task was cancelled."""
        if self._is_set:
            raise _Stopped

    def checking(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items as long as the call is to go on."""
        for item in items:
            self.check()
            yield item

    def reporting(self, progress: Progress | None) -> Progress:
        """Return a function for a call to report its progress by: it calls the application's on the event loop."""
        check_progress(progress)

        def report(done: int, total: int) -> None:
            self.check()
            if progress is not None:
                self._call_soon(progress, done, total)

        return report


async def run_stoppable(call: Callable[[Stop], _Result]) -> _Result:
    """Call a function on a worker thread, and return its result.

    If cancelled, return at once; the call goes on to its next look at its argument, and its result is dropped.
    """
    stop = Stop()
    try:
        return await run_in_thread(call, stop)
    finally:
        stop.set()


async def run_acquiring(call: Callable[[], _Result], release: Callable[[_Result], object]) -> _Result:
    """Call a function on a worker thread that returns something to be released: if cancelled, it is released there.

    Args:
        call: returns it.
        release: is called with what nobody takes, on a worker thread; what it raises is dropped.
    """
    lock = threading.Lock()
    made: list[_Result] = []
    is_wanted = True

    def make() -> None:
        result = call()
        with lock:
            if is_wanted:
                made.append(result)
                return
        _release(release, result)

    try:
        await run_in_thread(make)
    except BaseException:
        with lock:
            is_wanted = False
        for result in made:
            # It may wait for a disk, which the event loop must not.
            start_in_thread(partial(_release, release, result))
        raise
    return made[0]


def _release(release: Callable[[_Result], object], result: _Result) -> None:
    with suppress(Exception):
        release(result)
