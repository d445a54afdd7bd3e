"""Appends of tasks: those that wait at once are written by one worker thread in one transaction."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Generic

from gossiplog.errors import StorageError
from gossiplog.event_loop import Caller, Outcome, current_loop, loop_call_soon
from gossiplog.log.appending import AppendRequest, Wanted
from gossiplog.log.payloads import P
from gossiplog.log.writing import MOST_SIGNED
from gossiplog.message import SignedMessage
from gossiplog.signer import Signer
from gossiplog.threads import start_in_thread


class AppendCall(AppendRequest, Generic[P]):
    """A call of a task's that appends.

    Args:
        wanted: the payloads, the signer and the codec.
        call_soon: of the task's loop.

    Attributes:
        outcome: that the task waits for.
    """

    __slots__ = ("call_soon", "outcome")

    def __init__(self, wanted: Wanted, call_soon: Caller) -> None:
        super().__init__(wanted)
        self.call_soon = call_soon
        # No `Outcome[...]()`: a call of a subscripted class takes some microseconds.
        self.outcome: Outcome[list[SignedMessage[P]]] = Outcome()


class AppendQueue(Generic[P]):
    """Appends that wait, in their order.

    Args:
        append_some: appends of what several callers want what one transaction has time for: `Log._append_some`.
    """

    def __init__(self, append_some: Callable[[Sequence[AppendRequest]], None]) -> None:
        self._append_some = append_some
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        # Guarded by the lock, as whether a thread takes them. A dictionary, since any may be cancelled.
        self._waiting: dict[AppendCall[P], None] = {}
        self._is_running = False
        # Of the thread that takes them, where one does.
        self._thread: int | None = None
        self._caller: tuple[object, Caller] | None = None

    async def append(self, payloads: Sequence[P], signer: Signer | None, codec: str) -> list[SignedMessage[P]]:
        """Append messages. If cancelled, no transaction begins with any of them any more.

        Raises: as `Log.append_many`.
        """
        if self._process != os.getpid():
            # Forked: whatever thread took appends, or held the lock, is not in this process.
            self._begin()
        if self._thread == threading.get_ident():
            # It would wait for itself.
            raise StorageError("this thread appends to the log: `apply` and `payload` must not append or insert")
        append: AppendCall[P] = AppendCall((payloads, signer, codec), self._call_soon())
        with self._lock:
            self._waiting[append] = None
            is_first, self._is_running = not self._is_running, True
        try:
            if is_first:
                self._start(append)
            return await append.outcome.wait()
        finally:
            # Cancelled, it is taken out, unless a thread has it, which does not give it back then.
            with self._lock:
                append.is_cancelled = True
                self._waiting.pop(append, None)

    def _call_soon(self) -> Caller:
        loop = current_loop()
        # Read once: a task of another loop, on its thread, may replace it meanwhile. It is kept, and no task's context
        # with it.
        found = self._caller
        if found is None or found[0] is not loop:
            found = self._caller = (loop, loop_call_soon(Context()))
        return found[1]

    def _start(self, first: AppendCall[P]) -> None:
        try:
            start_in_thread(self._run)
        except BaseException as error:
            # Those of other threads' loops that came meanwhile would wait for the next append.
            with self._lock:
                self._is_running = False
                stranded, self._waiting = self._waiting, {}
            stranded.pop(first, None)
            for append in stranded:
                append.error = error
                append.call_soon(_deliver, [append])
            raise

    def _run(self) -> None:
        """Append what waits, on a worker thread, until nothing does."""
        taken: Sequence[AppendCall[P]] = ()
        while taken := self._take(taken):
            try:
                self._append_some(taken)
            except BaseException as error:  # noqa: BLE001 - the tasks raise it
                for append in taken:
                    append.error = error
            ended = [append for append in taken if append.has_ended]
            for call_soon, group in itertools.groupby(ended, lambda append: append.call_soon):
                call_soon(_deliver, [*group])

    def _take(self, taken: Sequence[AppendCall[P]]) -> Sequence[AppendCall[P]]:
        """Return the next that wait, after what is left of those that were taken before was put back.

        One of which a part is stored, or checked, goes behind the others: it may be long, and they wait for all of it.
        """
        with self._lock:
            left = [append for append in taken if not (append.has_ended or append.is_cancelled)]
            if left:
                whole = [append for append in left if append.is_whole]
                part = [append for append in left if not append.is_whole]
                self._waiting = dict.fromkeys([*whole, *self._waiting, *part])
            taken, number = [], 0
            for append in self._waiting:
                number += append.left
                taken.append(append)
                if number >= MOST_SIGNED:
                    break
            for append in taken:
                del self._waiting[append]
            self._is_running = bool(taken)
            self._thread = threading.get_ident() if taken else None
            return taken


def _deliver(appends: Sequence[AppendCall[Any]]) -> None:
    for append in appends:
        if append.error is not None:
            append.outcome.fail(append.error)
        else:
            append.outcome.succeed(append.messages)
