"""How long the callbacks of an event loop take: no stranger is to make one take long, since all others wait for it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LONGEST_CALLBACK = 20.0
"""Units of processor time: what a callback of a hub's event loop may take, whatever a stranger sends."""


def unit() -> float:
    """Return the seconds of processor time that a fixed piece of work takes this thread, the least of several.

    It is a millisecond on the machines that the limits were measured on: slower ones have longer limits.
    """
    return min(_seconds_of_work() for _ in range(5))


def _seconds_of_work() -> float:
    began, found = time.thread_time(), dict[int, str]()
    for number in range(11_000):
        found[number % 97] = str(number)
    return time.thread_time() - began


@dataclass(slots=True)
class Callbacks:
    """What was measured.

    Attributes:
        longest: seconds of processor time that the longest callback took.
        what: that callback.
        count: how many there were.
        unit: seconds; see `unit`.
    """

    longest: float = 0.0
    what: str = ""
    count: int = 0
    unit: float = 0.0

    def assert_short(self, units: float = LONGEST_CALLBACK) -> None:
        """Fail if one took longer than so many units."""
        assert self.count > 0
        assert self.longest < units * self.unit, f"{self.longest / self.unit:.1f} units in {self.what}"


@contextmanager
def measured_callbacks() -> Iterator[Callbacks]:
    """A block that measures the callbacks of the asyncio loop that runs it, in processor time of its thread.

    The wall's clock would count what other processes do, and the waits for threads of this one: whether those let go of
    the interpreter's lock has tests of its own. Garbage is not collected meanwhile: how much there is depends on the
    tests before.
    """
    found = Callbacks()
    thread = threading.get_ident()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread:
            run(handle)
            return
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        found.count += 1
        if took > found.longest:
            found.longest, found.what = took, repr(handle)[:1000]

    gc.collect()
    gc.disable()
    before = unit()
    asyncio.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield found
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        found.unit = max(before, unit())
        gc.enable()
