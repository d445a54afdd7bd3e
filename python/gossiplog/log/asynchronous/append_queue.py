"""Appends of tasks: those that wait at once are written by one worker thread in one transaction."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Generic

from gossiplog.event_loop import Caller, Outcome, current_loop, loop_call_soon
from gossiplog.log.appending import Wanted
from gossiplog.log.payloads import P
from gossiplog.log.writing import MOST_SIGNED
from gossiplog.message import SignedMessage
from gossiplog.signer import Signer
from gossiplog.threads import start_in_thread


class AppendCall(Generic[P]):
    """A call of a task's that appends.

    Attributes:
        wanted: the payloads, the signer and the codec.
        call_soon: of the task's loop.
        outcome: that the task waits for.
    """

    __slots__ = ("call_soon", "outcome", "wanted")

    def __init__(self, wanted: Wanted, call_soon: Caller) -> None:
        self.wanted = wanted
        self.call_soon = call_soon
        # No `Outcome[...]()`: a call of a subscripted class takes some microseconds.
        self.outcome: Outcome[list[SignedMessage[P]]] = Outcome()


class AppendQueue(Generic[P]):
    """Appends that wait, in their order.

    Args:
        append_each: appends what several callers want, and returns what each gets or is to raise: `Log._append_each`.
    """

    def __init__(
        self, append_each: Callable[[Sequence[Wanted]], Sequence[list[SignedMessage[P]] | BaseException]]
    ) -> None:
        self._append_each = append_each
        self._lock = threading.Lock()
        # Guarded by the lock, as whether a thread takes them. A dictionary, since any may be cancelled.
        self._waiting: dict[AppendCall[P], None] = {}
        self._is_running = False
        self._caller: tuple[object, Caller] | None = None

    async def append(self, payloads: Sequence[P], signer: Signer | None, codec: str) -> list[SignedMessage[P]]:
        """Append messages. If cancelled before a transaction has begun with them, nothing of them is stored.

        Raises: as `Log.append_many`.
        """
        append: AppendCall[P] = AppendCall((payloads, signer, codec), self._call_soon())
        with self._lock:
            self._waiting[append] = None
            is_first, self._is_running = not self._is_running, True
        try:
            if is_first:
                self._start()
            return await append.outcome.wait()
        finally:
            # Cancelled, it is taken out, unless it was begun.
            with self._lock:
                self._waiting.pop(append, None)

    def _call_soon(self) -> Caller:
        loop = current_loop()
        # Read once: a task of another loop, on its thread, may replace it meanwhile.
        found = self._caller
        if found is None or found[0] is not loop:
            found = self._caller = (loop, loop_call_soon())
        return found[1]

    def _start(self) -> None:
        try:
            start_in_thread(self._run)
        except BaseException:
            with self._lock:
                self._is_running = False
            raise

    def _run(self) -> None:
        """Append what waits, on a worker thread, until nothing does."""
        while taken := self._take():
            try:
                results = self._append_each([append.wanted for append in taken])
            except BaseException as error:  # noqa: BLE001 - the tasks raise it
                results = [error] * len(taken)
            pairs = zip(taken, results, strict=True)
            for call_soon, group in itertools.groupby(pairs, lambda pair: pair[0].call_soon):
                call_soon(_deliver, [*group])

    def _take(self) -> Sequence[AppendCall[P]]:
        with self._lock:
            taken: list[AppendCall[P]] = []
            number = 0
            for append in self._waiting:
                number += len(append.wanted[0])
                taken.append(append)
                if number >= MOST_SIGNED:
                    break
            for append in taken:
                del self._waiting[append]
            self._is_running = bool(taken)
            return taken


def _deliver(pairs: Sequence[tuple[AppendCall[P], list[SignedMessage[P]] | BaseException]]) -> None:
    for append, result in pairs:
        if isinstance(result, BaseException):
            append.outcome.fail(result)
        else:
            append.outcome.succeed(result)
