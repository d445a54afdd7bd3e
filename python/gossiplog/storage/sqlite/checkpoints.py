"""Checkpoints of a log's database: when its write-ahead log is moved into its file, and when it must not be.

SQLite's automatic checkpoints are off. They would move the pages also into a file that was copied over the database
while it was open, and destroy both: the copy, and what only the write-ahead log has.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress

from gossiplog.storage.sqlite.database_file import WatchedFile
from gossiplog.storage.sqlite.write_ahead_log import WatchedLog, close_leaving_log

# Pages in the write-ahead log from which a checkpoint moves them, as SQLite's automatic ones do.
_PAGES = 1000
# Its bytes from which it begins anew. How long that waits for readers, in milliseconds, in vain where these read
# back to back and take half as long for each transaction; and how long where it has grown to twice the bytes.
_LOG_BYTES = 16 * 2**20
_READERS_MILLISECONDS = 250
_LONG_READERS_MILLISECONDS = 1000
# Where they went on, it is tried again when it has twice the bytes that it had, or, since they may end, after seconds.
_RETRY_SECONDS = 10.0
# The write-ahead log's size is looked at once in so many commits, and after those of more than so many messages.
_COMMITS = 16
_MANY_MESSAGES = 32


class Checkpoints:
    """The checkpoints of one connection that writes.

    Args:
        database: the path of the file, after links.
        wal: the path of its write-ahead log.
        identity: of the database, b"" where it is not known.
        lock_timeout: the seconds that the connection waits for a lock otherwise.
    """

    def __init__(self, database: str, wal: str, identity: bytes, lock_timeout: float) -> None:
        self._database = database
        self._lock_timeout = lock_timeout
        self._commits = 0
        # Where readers went on when the write-ahead log was to begin anew: when, and from which size on, to try again.
        self._retry_at = 0.0
        self._retry_bytes = 0
        self.log = WatchedLog(wal)
        self.file = WatchedFile(database, identity)
        self.change = self.file.find_change()
        """How the file differed, when it was last looked at, from the one that was opened; "" if it did not."""

    def look(self) -> None:
        """Compare the file with the one that was opened, and keep the result in `change`."""
        self.change = self.file.find_change(quick=True)

    def find_change(self) -> str:
        """Return how the file differs from the one that was opened, as far as the last look found; "" if not at all."""
        if self.change:
            # It may have been put right.
            self.change = self.file.find_change()
        return self.change

    def committed(self, connection: sqlite3.Connection, messages: int | None) -> None:
        """Note a commit, and run a checkpoint now and then where one is due.

        Called after each commit, under the lock of the writes.

        Args:
            connection: that has committed.
            messages: how many it has written; None where it wrote none, but perhaps an application's rows.
        """
        self._commits += 1
        if self._commits % _COMMITS == 0 or messages is None or messages > _MANY_MESSAGES:
            self._run(connection)

    def finish(self, connection: sqlite3.Connection) -> None:
        """Run a checkpoint where one is due after the last commits of a connection, which others may outlive."""
        if self._commits % _COMMITS:
            self._run(connection)

    def is_changed(self) -> bool:
        """Return whether the file is another one, or its write-ahead log was cut off: neither goes with the other."""
        self.change = self.file.find_change()
        self.log.look()
        return bool(self.change) or self.log.is_cut_off

    def move_all(self, connection: sqlite3.Connection) -> bool:
        """Move the write-ahead log into the file, and return whether all of it is there.

        Raises:
            sqlite3.Error: the file cannot be written, as on a full disk.
        """
        if self.is_changed():
            return False
        _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(frames == moved)

    def _run(self, connection: sqlite3.Connection) -> None:
        """Move the write-ahead log into the file where it is long, and have it begin anew where it is large.

        The first alone does not shorten it: SQLite begins it anew only when a writer finds no reader that uses it, and
        among several that read one after the other there is always one.
        """
        is_due, size = self._find_due()
        self.change = self.file.find_change(quick=not is_due)
        if self.change or not is_due:
            return
        # The messages are committed: what fails here is tried again, or the next read or write names it.
        with suppress(sqlite3.Error):
            if size:
                self._begin_anew(connection, size)
            else:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # A copy that was made before must not take the place of the file.
            self.change = self.file.find_change()

    def _begin_anew(self, connection: sqlite3.Connection, size: int) -> None:
        has_grown = size >= max(2 * _LOG_BYTES, self._retry_bytes)
        patience = _LONG_READERS_MILLISECONDS if has_grown else _READERS_MILLISECONDS
        connection.execute(f"PRAGMA busy_timeout = {patience}")
        try:
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self._lock_timeout * 1000)}")
        self._retry_at, self._retry_bytes = (time.monotonic() + _RETRY_SECONDS, 2 * size) if busy else (0.0, 0)

    def _find_due(self) -> tuple[bool, int]:
        """Return whether a checkpoint is due, and the write-ahead log's bytes if it is to begin anew, 0 otherwise."""
        self.log.look()
        size = self.log.size
        if self.log.is_cut_off:
            return False, 0
        if size < _LOG_BYTES:
            return self.log.frames >= _PAGES, 0
        is_due = size >= self._retry_bytes or time.monotonic() >= self._retry_at
        return is_due, size if is_due else 0

    def close(self, connection: sqlite3.Connection) -> None:
        """Close a connection; the last one moves the write-ahead log into the file, unless one of them has changed."""
        if self.is_changed():
            close_leaving_log(connection, self._database, self._lock_timeout)
        else:
            connection.close()
