"""Following a log: messages in the order of their arrival, as they are committed, by whichever process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from gossiplog.errors import LogClosed
from gossiplog.log.results import Arrivals
from gossiplog.log.state import read_stored
from gossiplog.storage import Storage

POLL_SECONDS = 0.25
"""How often the commits of other processes are looked for."""


class Follower:
    """Wakes those who follow a log.

    Args:
        storage: of the log.
        topic: of the log.
    """

    def __init__(self, storage: Storage, topic: str) -> None:
        self._storage = storage
        self._topic = topic
        self._changed = threading.Condition()
        self._waiting = 0

    def wake(self) -> None:
        """Says that there are new messages, or that the log was closed."""
        # Whoever begins to wait after this look has counted first, and then finds what was committed before it.
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def follow(self, after: int | None, batch: int) -> Iterator[Arrivals]:
        """Messages after a sequence, None being the last one now; ends when the log is closed."""
        cursor = self._count() if after is None else after
        return self._follow(cursor, batch)

    def _follow(self, cursor: int, batch: int) -> Iterator[Arrivals]:
        try:
            while True:
                with self._storage.reader() as reader:
                    rows = reader.arrivals(cursor, batch)
                if rows:
                    cursor = rows[-1][0]
                    yield Arrivals((read_stored(value, self._topic) for _, value in rows), cursor)
                else:
                    self.wait(cursor)
        except LogClosed:
            return

    def wait(self, cursor: int) -> int:
        """Waits until there are messages after a sequence, but POLL_SECONDS at most.

        Returns:
            The sequence of the last message; that of before, if it had to wait.
        """
        with self._changed:
            self._waiting += 1
            try:
                # Looked up when it is known that somebody waits: what is committed from now on notifies.
                count = self._count()
                if count <= cursor:
                    self._changed.wait(POLL_SECONDS)
                return count
            finally:
                self._waiting -= 1

    def _count(self) -> int:
        with self._storage.reader() as reader:
            return reader.position().count
