"""Timers of a machine or of a router, which may be set anew before they expire."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

_Timer = TypeVar("_Timer")


class Timers(Generic[_Timer]):
    """Timers by any value.

    Args:
        expired: is called with each that expires.
    """

    def __init__(self, expired: Callable[[_Timer], None]) -> None:
        self._expired = expired
        # The time of each, and a heap that may hold some that were set anew since.
        self._times: dict[_Timer, float] = {}
        self._order: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()
        self._changed = anyio.Event()

    def set(self, timer: _Timer, at: float) -> None:
        """Set a timer to a time of the event loop's clock, instead of the one that it was set to before."""
        self._times[timer] = at
        heapq.heappush(self._order, (at, next(self._numbers), timer))
        self._changed.set()

    async def run(self) -> None:
        """Wait for the timers, without end."""
        while True:
            now = anyio.current_time()
            while self._order and self._order[0][0] <= now:
                at, _, timer = heapq.heappop(self._order)
                if self._times.get(timer) == at:
                    del self._times[timer]
                    self._expired(timer)
            with anyio.move_on_at(self._order[0][0] if self._order else float("inf")):
                await self._changed.wait()
            self._changed = anyio.Event()
