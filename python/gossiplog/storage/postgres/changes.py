"""Commits of others to a log in Postgres, as its NOTIFY announces them.

Each commit of messages notifies the log's channel. A thread with a connection of its own listens, from the moment
when somebody first waits. Any role of the database may notify any channel, so that a notification says no more than
that there may be something new.

Where nothing can be heard, as on a standby, nobody is told so by silence: a listener takes it for granted only once it
has heard a notification that it sent itself, over another connection. A pooler that lends connections for a transaction
at a time, as PgBouncer's transaction mode, accepts LISTEN and forwards nothing.
"""

from __future__ import annotations

import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from gossiplog.errors import StorageError

Connection: TypeAlias = psycopg.Connection[Any]

PROBE = "probe "
"""How the payload of a notification begins that announces no commit."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.25, 30.0
"""Between attempts to listen; each waits twice as long as the one before."""
PROBE_SECONDS = 5.0
"""Within which a notification has to come back."""
# A connection that is being made cannot be interrupted; its thread ends by itself.
_CLOSING_SECONDS = 2.0
_SEND = "SELECT pg_catalog.pg_notify(%s, %s)"


def channel_of(schema_oid: int) -> str:
    """Return the name of the channel on which commits to the log in a schema are announced."""
    return f"gossiplog_{schema_oid}"


class CommitListener:
    """Calls functions when others commit to a log, on a thread with a connection of its own.

    Args:
        connect: returns a new connection that commits each statement.
        channel: on which commits are announced.
        is_own: whether a server process is one by which this program commits itself.
    """

    def __init__(self, connect: Callable[[], Connection], channel: str, is_own: Callable[[int], bool]) -> None:
        self._connect = connect
        self._channel = channel
        self._is_own = is_own
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_announcing = False
        # Ends every wait of the thread: readable once the listener is closed.
        self._ended, self._end = -1, -1

    @property
    def is_announcing(self) -> bool:
        """Whether all commits of others are heard of now."""
        return self._is_announcing

    def add(self, notify: Callable[[], object]) -> None:
        """Call a function when others may have committed, and when `is_announcing` has changed; it must not wait."""
        with self._lock:
            self._listeners = (*self._listeners, notify)
            if self._thread is None and not self._is_closed:
                self._ended, self._end = os.pipe()
                self._thread = threading.Thread(target=self._run, name="gossiplog commits", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread and its connection; a second call does nothing."""
        with self._lock:
            thread, was_closed, self._is_closed = self._thread, self._is_closed, True
        if thread is None or was_closed:
            return
        os.close(self._end)
        if thread is not threading.current_thread():
            thread.join(_CLOSING_SECONDS)

    def _run(self) -> None:
        pause = FIRST_RETRY_SECONDS
        try:
            while not self._is_closed:
                try:
                    with closing(self._connect()) as connection, self._announcing(connection):
                        pause = FIRST_RETRY_SECONDS
                        self._listen(connection)
                except (psycopg.Error, StorageError, OSError):
                    # A standby, a server that is away, or none that forwards notifications: others look by themselves.
                    pass
                self._wait(-1, pause)
                pause = min(2 * pause, LAST_RETRY_SECONDS)
        finally:
            os.close(self._ended)

    @contextmanager
    def _announcing(self, connection: Connection) -> Iterator[None]:
        """Provide a block in which commits are heard of.

        Raises:
            psycopg.Error: the server does not take it.
            StorageError: no notification comes.
        """
        # What came before the listener was known to listen, those who are called look for themselves.
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self._probe(connection)
        self._set_announcing(True)
        try:
            yield
        finally:
            self._set_announcing(False)

    def _set_announcing(self, is_announcing: bool) -> None:
        self._is_announcing = is_announcing
        self._notify()

    def _notify(self) -> None:
        for notify in self._listeners:
            notify()

    def _probe(self, connection: Connection) -> None:
        """Send a notification over another connection, and wait until it comes."""
        payload = f"{PROBE}{secrets.token_hex(16)}"
        with closing(self._connect()) as other:
            other.execute(_SEND, [self._channel, payload])
        until = time.monotonic() + PROBE_SECONDS
        while not self._is_closed and (left := until - time.monotonic()) > 0:
            self._wait(connection.pgconn.socket, left)
            if any(found == payload for _, found in _received(connection)):
                return
        raise StorageError("notifications do not come through")

    def _listen(self, connection: Connection) -> None:
        """Call the listeners for each commit of others, until the connection is lost or the listener closed."""
        while not self._is_closed:
            self._wait(connection.pgconn.socket)
            found = _received(connection)
            if any(not payload.startswith(PROBE) and not self._is_own(process) for process, payload in found):
                self._notify()

    def _wait(self, descriptor: int, seconds: float | None = None) -> None:
        """Wait until a descriptor can be read, the listener is closed, or so long."""
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if seconds is None else seconds * 1000)


def _received(connection: Connection) -> list[tuple[int, str]]:
    """Return the notifications (server process, payload) that have come.

    Raises:
        psycopg.OperationalError: the connection is lost.
    """
    connection.pgconn.consume_input()
    found: list[tuple[int, str]] = []
    while (notification := connection.pgconn.notifies()) is not None:
        found.append((notification.be_pid, notification.extra.decode("utf-8", "replace")))
    return found
