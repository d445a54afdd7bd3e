"""Where a driver's calls of the log run: on worker threads, so many of each kind at a time.

A call that is cancelled is waited for, because it may be in the middle of something. One that hangs, because a function
of the application's does or the database, cannot be ended: it is reported, and left to itself when the driver ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar, TypeVarTuple

import anyio

from gossiplog.errors import NetworkError
from gossiplog.threads import run_in_thread

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

_READERS = 4
_VERIFIERS = 2
_LONG_SECONDS = 10.0
"""After which a check or a write is reported."""
_LAST_SECONDS = 5.0
"""How long calls are waited for when the driver ends."""

_CHECKING = "checking payloads"
_WRITING = "writing to the log"
_REASONS = {
    _CHECKING: "the application's `payload` function has not returned for {:g} s, and what peers send waits for it",
    _WRITING: "a transaction has not ended for {:g} s, and all writes wait for it: the application's `apply` function,"
    " or the database, takes so long",
}


@dataclass(slots=True, eq=False)
class _Call:
    """A call that runs.

    Attributes:
        doing: what.
        began: when.
        scope: that waits for it.
        reported: whether that it takes long was reported.
    """

    doing: str
    began: float
    scope: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))
    reported: bool = False


class WorkerPool:
    """Runs calls that block.

    Reads, verification, checks and writes do not wait for each other; writes take turns anyway. Some seconds after
    `end` every call raises NetworkError.
    """

    def __init__(self) -> None:
        # Free most of the time, and then not worth a turn of the event loop.
        self._readers = anyio.Semaphore(_READERS, fast_acquire=True)
        self._verifiers = anyio.Semaphore(_VERIFIERS, fast_acquire=True)
        self._checker = anyio.Semaphore(1, fast_acquire=True)
        self._writer = anyio.Semaphore(1, fast_acquire=True)
        self._running: set[_Call] = set()
        self._end = math.inf
        # What calls were doing that had not returned by then.
        self._left: list[str] = []

    async def read(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run a call that reads the log."""
        return await self._run("reading the log", self._readers, call, *arguments)

    async def verify(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run a call that verifies, on all cores."""
        return await self._run("verifying messages", self._verifiers, call, *arguments)

    async def check(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run a call of the application's payload check."""
        return await self._run(_CHECKING, self._checker, call, *arguments)

    async def write(self, call: Callable[[*_Arguments], _Result], *arguments: *_Arguments) -> _Result:
        """Run a call that writes to the log."""
        return await self._run(_WRITING, self._writer, call, *arguments)

    async def watch(self, report: Callable[[str, Exception], None]) -> None:
        """Report each check and each write that takes long, once, without end.

        Args:
            report: is called with what is being done, and what is wrong with it.
        """
        while True:
            await anyio.sleep(_LONG_SECONDS / 4)
            late = anyio.current_time() - _LONG_SECONDS
            for call in self._running:
                if call.began <= late and not call.reported and call.doing in _REASONS:
                    call.reported = True
                    report(call.doing, TimeoutError(_REASONS[call.doing].format(_LONG_SECONDS)))

    def end(self) -> None:
        """Give calls some seconds to return, after which they are left to themselves.

        The driver ends, and cancels every wait. What the calls write they write whole, or not at all.
        """
        self._end = anyio.current_time() + _LAST_SECONDS
        for call in self._running:
            call.scope.deadline = self._end

    def report_unfinished(self, report: Callable[[str, Exception], None]) -> None:
        """Report the calls that were left to themselves, as `watch` does long ones."""
        for doing in self._left:
            reason = "it has not ended and is left to itself: a function of the application's, or the database, hangs"
            report(doing, TimeoutError(reason))

    async def _run(
        self,
        doing: str,
        places: anyio.Semaphore,
        call: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
    ) -> _Result:
        if anyio.current_time() >= self._end:
            await self._gone()
        async with places:
            running = _Call(doing, anyio.current_time())
            self._running.add(running)
            with running.scope as scope:
                scope.deadline = self._end
                try:
                    return await run_in_thread(call, *arguments)
                finally:
                    self._running.discard(running)
        self._left.append(doing)
        await self._gone()

    async def _gone(self) -> NoReturn:
        # The driver's own tasks are cancelled meanwhile.
        await anyio.sleep(_LAST_SECONDS)
        raise NetworkError("the log is no longer replicated")
