"""Where a driver's calls of the log run: on worker threads, so many of each kind at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

_READERS = 4
_VERIFIERS = 2


class Threads:
    """Runs calls that block. Reads, verification and writes do not wait for each other; writes take turns anyway."""

    def __init__(self) -> None:
        self._readers = anyio.CapacityLimiter(_READERS)
        self._verifiers = anyio.CapacityLimiter(_VERIFIERS)
        self._writer = anyio.CapacityLimiter(1)

    async def read(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """A call that reads the log."""
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._readers)

    async def verify(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """A call that verifies, on all cores."""
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._verifiers)

    async def write(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """A call that writes to the log. Cancelled, it is waited for all the same."""
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._writer)
