"""The event kernel: virtual time, an ordered queue of calls, and the one source of random numbers.

Nothing here waits: time jumps from one event to the next. Events at the same time happen in the order in which they
were scheduled, so a run is a function of its seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeAlias

Trace: TypeAlias = Callable[[str], object]


class Kernel:
    """A queue of events under virtual time.

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
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._trace = trace

    @property
    def tracing(self) -> bool:
        """Whether anybody reads the trace: ask before a line is made."""
        return self._trace is not None

    def log(self, who: object, what: str) -> None:
        """Adds a line to the trace."""
        if self._trace is not None:
            self._trace(f"{self.now:11.6f}  {who!s:>6}  {what}")

    def after(self, delay: float, call: Callable[..., object], *arguments: Any) -> None:
        """Calls a function after so many seconds."""
        self._scheduled += 1
        heappush(self._queue, (self.now + delay, self._scheduled, call, arguments))

    def at(self, time: float, call: Callable[..., object], *arguments: Any) -> None:
        """Calls a function at a time, or at once where it has passed."""
        self._scheduled += 1
        heappush(self._queue, (max(time, self.now), self._scheduled, call, arguments))

    def spread(self, call: Callable[..., object], delays: Iterable[tuple[float, Any]], argument: Any) -> None:
        """Calls a function once for each pair of a delay, in seconds, and a first argument; the second is the same."""
        queue, now, scheduled = self._queue, self.now, self._scheduled
        for delay, first in delays:
            scheduled += 1
            heappush(queue, (now + delay, scheduled, call, (first, argument)))
        self._scheduled = scheduled

    def run(self, until: float) -> None:
        """Lets everything happen up to a time, which is the time afterwards."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, call, arguments = heappop(queue)
            self.events += 1
            call(*arguments)
        self.now = until


class TraceHash:
    """Sums up a trace: two runs that did the same have the same digest."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def __call__(self, line: str) -> None:
        """Takes a line."""
        self._hash.update(line.encode() + b"\n")

    def digest(self) -> str:
        """Of the lines so far, in hexadecimal."""
        return self._hash.hexdigest()
