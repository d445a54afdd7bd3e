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
    """Ends a call that nobody waits for any more, or whose `progress` has raised."""


class Stop:
    """Says within a call, on its thread, whether it is to end.

    Attributes:
        failure: what the application's `progress` raised.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._is_set = False
        self._call_soon = loop_call_soon()

    def set(self) -> None:
        """Ask the call to stop at its next step."""
        self._is_set = True

    def check(self) -> None:
        """End the call by an exception if its task was cancelled, or its `progress` has raised."""
        if self._is_set:
            raise _Stopped

    def checking(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items as long as the call is to go on."""
        for item in items:
            self.check()
            yield item

    def reporting(self, progress: Progress | None) -> Progress:
        """Return a function for a call to report its progress by: it calls the application's on the event loop.

        What that raises ends the call at its next step, as it does a call without an event loop.
        """
        check_progress(progress)

        def report(done: int, total: int) -> None:
            self.check()
            if progress is not None:
                self._call_soon(self._report, progress, done, total)

        return report

    def _report(self, progress: Progress, done: int, total: int) -> None:
        if self._is_set:
            return
        try:
            progress(done, total)
        except Exception as error:  # noqa: BLE001 - the task raises it: of a callback trio would end, and asyncio go on
            self.failure = error
            self.set()


async def run_stoppable(call: Callable[[Stop], _Result]) -> _Result:
    """Call a function on a worker thread, and return its result.

    If cancelled, return at once; the call goes on to its next look at its argument, and its result is dropped.

    Raises:
        BaseException: what the function raises, or the `progress` that it reports to.
    """
    stop = Stop()
    # One, unless the call was stopped.
    results: list[_Result] = []
    try:
        results.append(await run_in_thread(call, stop))
    except _Stopped:
        pass
    finally:
        stop.set()
    # Here, so that it does not seem to come of the other.
    if stop.failure is not None:
        raise stop.failure
    return results[0]


async def run_acquiring(call: Callable[[Stop], _Result], release: Callable[[_Result], object]) -> _Result:
    """Call a function, as `run_stoppable` does, that returns something to be released: if nobody takes it, release it.

    Args:
        call: returns it.
        release: is called with what nobody takes, on a worker thread; what it raises is dropped.

    Raises: as `run_stoppable`.
    """
    lock = threading.Lock()
    made: list[_Result] = []
    is_wanted = True

    def make(stop: Stop) -> None:
        result = call(stop)
        with lock:
            if is_wanted:
                made.append(result)
                return
        _release(release, result)

    try:
        await run_stoppable(make)
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
