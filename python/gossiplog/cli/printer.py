"""Lines for a reader that may be slow, or gone: the caller never waits."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gossiplog.reprs import counted

MOST_BYTES = 2**20
"""Bytes of lines that wait to be written; what does not fit is dropped."""
# For what waits to be written at the end.
_LAST_SECONDS = 2.0


def missing_lines(count: int) -> str:
    """Return the text that stands for lines that were dropped."""
    return counted(count, "line is missing here: it was", "lines are missing here: they were") + " not read in time"


class Printer:
    """Writes lines to a file descriptor on a thread of its own, for the time of its context.

    It does not go through `sys.stdout`: a thread that is left behind in a write would hold its lock at the end of the
    program, and Python would abort.

    Args:
        descriptor: to write to.
        dropped: makes the line that stands for so many that were dropped before it.
        gone: is called, once, with the reason why nothing more is written; lines that come later are passed over.
    """

    def __init__(self, descriptor: int, dropped: Callable[[int], bytes], gone: Callable[[OSError], None]) -> None:
        self._descriptor = descriptor
        self._dropped_line = dropped
        self._tell_gone = gone
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._ended = self._gone = False
        # A daemon: nothing ends a write that nobody reads, and the program is to end all the same.
        self._thread = threading.Thread(target=self._run, name="printer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(_LAST_SECONDS)
        if self._thread.is_alive():
            self._give_up(TimeoutError("the last lines were not read"))

    def say(self, line: bytes) -> None:
        """Queue a line to be written in turn; drop it where too many wait. Returns at once."""
        with self._changed:
            if self._gone:
                return
            if self._dropped or self._size + len(line) > MOST_BYTES:
                # Also what would fit by itself, until it was said that some are missing.
                self._dropped += 1
            else:
                self._lines.append(line)
                self._size += len(line)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while lines := self._next():
                self._write(lines)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        with self._changed:
            known, self._gone = self._gone, True
            self._lines.clear()
        if not known:
            self._tell_gone(error)

    def _next(self) -> bytes:
        """Return what waits, once something does; b"" at the end."""
        with self._changed:
            while not (self._lines or self._dropped or self._ended):
                self._changed.wait()
            lines = b"".join(self._lines)
            self._lines.clear()
            self._size = 0
            if self._dropped:
                lines += self._dropped_line(self._dropped)
                self._dropped = 0
            return lines

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
