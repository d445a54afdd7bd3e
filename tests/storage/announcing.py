"""A storage that announces the commits of others when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from gossiplog import SQLiteStorage


class AnnouncingStorage(SQLiteStorage):
    """A log in a file, beside which a test is the database that announces commits.

    Attributes:
        watchers: the functions that are to be called.
        watched: set once there is one.
        is_announcing: what `announces_commits` says.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.watchers: list[Callable[[], object]] = []
        self.watched = threading.Event()
        self.is_announcing = True

    def watch(self, notify: Callable[[], object]) -> None:
        self.watchers.append(notify)
        self.watched.set()

    @property
    def announces_commits(self) -> bool:
        return self.is_announcing

    def announce(self) -> None:
        for notify in self.watchers:
            notify()
