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

    def wake(self) -> None:
        """Says that there are new messages, or that the log was closed."""
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
                    self._wait(cursor)
        except LogClosed:
            return

    def _wait(self, cursor: int) -> None:
        with self._changed:
            # Looked up with the condition held: what is committed from now on notifies.
            if self._count() <= cursor:
                self._changed.wait(POLL_SECONDS)

    def _count(self) -> int:
        with self._storage.reader() as reader:
            return reader.position().count
