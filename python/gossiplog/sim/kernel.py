"""The event kernel: virtual time, a calendar of calls, and the one source of random numbers.

Nothing here waits: time jumps from one event to the next. Events at the same time happen in the order in which they
were scheduled, so a run is a function of its seed.
"""

from __future__ import annotations

import hashlib
from bisect import insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import itemgetter
from random import Random
from typing import Any, TypeAlias

Trace: TypeAlias = Callable[[str], object]
_Event: TypeAlias = tuple[float, Callable[[Any, Any], object], Any, Any]

_SLOTS = 1000  # a second
_NEVER = 1e300  # seconds: no run comes to it, and what is infinite has no slot
_time: Callable[[_Event], float] = itemgetter(0)


class Kernel:
    """A calendar of events under virtual time.

    The events of each millisecond are gathered, and sorted when it comes (R. Brown, "Calendar queues: a fast O(1)
    priority queue implementation for the simulation event set problem", CACM 31(10), 1988): a heap of millions would be
    read from end to end of memory, again and again. It is made for delays of many milliseconds: what an event schedules
    for its own millisecond is sorted in one by one.

    Args:
        seed: of the random numbers.
        trace: called with each line that `log` is given; None for none.

    Attributes:
        now: the time, in seconds since the start of the run.
        random: for whatever the run leaves to chance.
        events: how many have happened.
    """

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.events = 0
        # Of the slot that has begun, sorted. Those that have happened leave it when the slot, or the run, is through.
        self._current: list[_Event] = []
        self._slot = -1
        # Of later slots, in the order in which they were scheduled, and a heap of these slots.
        self._later: dict[int, list[_Event]] = {}
        self._slots: list[int] = []
        self._trace = trace

    @property
    def tracing(self) -> bool:
        """Whether anybody reads the trace: ask before a line is made."""
        return self._trace is not None

    def log(self, who: object, what: str) -> None:
        """Add a line to the trace."""
        if self._trace is not None:
            self._trace(f"{self.now:11.6f}  {who!s:>6}  {what}")

    def after(self, delay: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function after so many seconds: at once where they are fewer than 0, never where infinitely many."""
        self._schedule((self.now + max(delay, 0.0), _apply, call, arguments))

    def at(self, time: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function at a time, or at once where it has passed."""
        self._schedule((max(time, self.now), _apply, call, arguments))

    def spread(self, call: Callable[..., object], delays: Iterable[tuple[float, Any]], argument: Any) -> None:
        """Call a function once for each pair of a finite delay, in seconds, and a first argument.

        The second argument is the same in all calls.
        """
        now, later = self.now, self._later
        for delay, first in delays:
            time = now + delay
            slot = int(time * _SLOTS)
            # As `_schedule` does, which would take longer: millions of packets go this way.
            if slot in later:
                later[slot].append((time, call, first, argument))
            else:
                self._schedule((time, call, first, argument))

    def at_with(self, time: float, call: Callable[[Any, Any], object], first: Any, second: Any) -> None:
        """Call a function with two arguments at a time that has not passed. `at` takes longer: it packs arguments."""
        self._schedule((time, call, first, second))

    def run(self, until: float) -> None:
        """Run all events up to a time, which is the time afterwards."""
        while self._begin():
            current, happened = self._current, 0
            try:
                for now, call, first, second in current:
                    if now > until:
                        self.now = until
                        return
                    self.now = now
                    happened += 1
                    # What it schedules for this slot comes into the list behind it.
                    call(first, second)
            finally:
                del current[:happened]
                self.events += happened
        self.now = until

    def _schedule(self, event: _Event) -> None:
        if event[0] >= _NEVER:
            return
        slot = int(event[0] * _SLOTS)
        if slot <= self._slot:
            insort(self._current, event, key=_time)
        elif slot in self._later:
            self._later[slot].append(event)
        else:
            self._later[slot] = [event]
            heappush(self._slots, slot)

    def _begin(self) -> bool:
        """Begin the next slot with events, unless the last has some left; return False if there is none."""
        if not self._current:
            if not self._slots:
                return False
            self._slot = heappop(self._slots)
            self._current = self._later.pop(self._slot)
            self._current.sort(key=_time)
        return True


def _apply(call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    call(*arguments)


class TraceHash:
    """Sums up a trace: two runs that did the same have the same digest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def __call__(self, line: str) -> None:
        """Take a line."""
        self._hash.update(line.encode() + b"\n")

    def digest(self) -> str:
        """Of the lines so far, in hexadecimal."""
        return self._hash.hexdigest()
