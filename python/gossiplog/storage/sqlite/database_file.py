"""The file of a database, read without its write-ahead log: whether it is the one that the log was written for.

SQLite ties the two by nothing. Where another file takes the place of the database, or is copied over it, SQLite mixes
the pages of both. Until that is noticed, the write-ahead log is all that is left of what was written last.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gossiplog import core
from gossiplog.errors import CorruptLog
from gossiplog.reprs import counted
from gossiplog.storage.sqlite.files import DAMAGE, distrust, error_code, file_id, has_content, is_settled, wal_of
from gossiplog.storage.sqlite.meta import stored_identity
from gossiplog.storage.sqlite.pages import SMALLEST_PAGE
from gossiplog.storage.sqlite.write_ahead_log import unread_for_good

OTHER_IDENTITY = "it has another identity, as each backup has"
"""A clause about a file whose identity is not that of the former one."""
# Random identities differ in about 64 of 128 bits, a rotten one in few.
_ROTTEN_BITS = 16
# Pages that another process is moving from the write-ahead log at this moment may look like a change.
_LOOKS = 5
_BETWEEN_SECONDS = 0.02


class WatchedFile:
    """Whether the file of a database that is open is still the one that was opened, where its name is the same.

    Only checkpoints write to the file. So it is read again only when the system says that it has changed.

    Args:
        database: the path of the file, after links.
        identity: of the database; b"" where that is not known, and then no change is found.
    """

    def __init__(self, database: str, identity: bytes) -> None:
        self._database = database
        self._identity = identity
        self._file = file_id(database)
        # As the last look found them.
        self._count: int | None = None
        self._size = 0
        self._stamp: tuple[int, int] | None = None
        self._is_settled = False
        self._change = ""

    @property
    def count(self) -> int:
        """How many messages the file holds without its write-ahead log, 0 where that is not known."""
        return self._count or 0

    def find_change(self, *, quick: bool = False) -> str:
        """Return how the file differs from the one that was opened, as a clause; "" if it does not.

        Args:
            quick: whether a change may be passed over that came within a step of the system's clock after another.
        """
        try:
            status = os.stat(self._database)
        except OSError:
            return ""
        if not self._identity or (status.st_dev, status.st_ino) != self._file:
            # `NamedFiles` finds another file of the name, and SQLite leaves that alone.
            return ""
        # `cp -p` sets the time of the last write, but nobody that of the last change.
        stamp = status.st_size, status.st_ctime_ns
        if stamp != self._stamp or not (quick or self._is_settled):
            for look in range(_LOOKS):
                if look:
                    time.sleep(_BETWEEN_SECONDS)
                self._change = self._compare()
                if not self._change:
                    break
            self._stamp, self._is_settled = stamp, is_settled(status.st_ctime_ns, time.time_ns())
        return self._change

    def _compare(self) -> str:
        try:
            size = os.path.getsize(self._database)
            found = _read(self._database)
        except sqlite3.Error as error:
            return "" if self._count is None else self._describe_unreadable(size, error)
        except (OSError, UnicodeError, CorruptLog):
            return ""
        if found is None:
            return "it holds no log" if self._count is not None and is_sound(self._database) else ""
        identity, count = found
        if is_other_identity(identity, self._identity):
            return OTHER_IDENTITY
        if count is not None and self._count is not None and count < self._count:
            return describe_fewer_if_sound(self._database, self._count)
        self._size = size
        if count is not None:
            self._count = count
        return ""

    def _describe_unreadable(self, size: int, error: sqlite3.Error) -> str:
        """Return a clause about a file that cannot be read by itself; "" where it can with its write-ahead log.

        While readers use that, some of the file's pages may be newer than others for any time. Its size says nothing
        then: SQLite makes a file shorter as well.
        """
        if size < self._size and (size < SMALLEST_PAGE or _is_damaged(self._database, _is_sound)):
            return f"it has {size:,} bytes, and had {self._size:,}"
        if error_code(error) == sqlite3.SQLITE_NOTADB:
            return "it is no SQLite database"
        if _is_damaged(self._database, lambda connection: _read_from(connection) is not None):
            return "it cannot be read, nor with its write-ahead log"
        return ""


def is_other_identity(one: bytes, other: bytes) -> bool:
    """Return whether two identities are of two databases, and neither is the other one with damage."""
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count() > _ROTTEN_BITS


def describe_fewer_if_sound(database: str, before: int) -> str:
    """Return a clause about a sound file that holds fewer messages than the former one; "" if it does not."""
    found = read_identity_and_count(database)
    if found is None or found[1] is None or found[1] >= before:
        return ""
    count = count_if_sound(database)
    if count is None or count >= before:
        return ""
    return f"it holds {counted(count, 'message')}, and the former file had {before:,}"


def find_contradiction(database: str) -> str:
    """Return what shows that a write-ahead log was not written for a sound file, as a clause; "" if nothing does.

    Messages are only added. So what the file holds, the log has at the same place when it is read with its own
    write-ahead log, and what that adds follows. A log that has the same messages up to there may pass.

    Args:
        database: the path of the file, after links.
    """
    if not has_content(wal_of(database)):
        return ""
    file = file_id(database)
    try:
        with closing(_connect(database)) as connection:
            found, last = _read_from(connection), _last_message(connection)
    except (sqlite3.Error, UnicodeError, OSError, CorruptLog):
        return ""
    if found is None:
        return ""
    try:
        # A connection that cannot write to the file leaves the write-ahead log as it is, also as the last one.
        with closing(_connect(database, "mode=ro")) as connection:
            clause = _contradict(connection, found[0], last)
    except (sqlite3.Error, CorruptLog) as error:
        # It may be locked, or in a folder that cannot be written to.
        is_damage = isinstance(error, CorruptLog) or error_code(error) in DAMAGE
        clause = "the file is sound, and cannot be read with it" if is_damage else ""
    except (UnicodeError, OSError):
        return ""
    # Damage, pages that are being moved at this moment, and another file that a program puts there may look alike.
    if not clause or file_id(database) != file or not is_consistent(database):
        return ""
    # Where SQLite reads a part of it, that may be older than the file which it was written for.
    return "" if unread_for_good(wal_of(database)) else clause


def _contradict(connection: sqlite3.Connection, identity: bytes, last: tuple[int, bytes]) -> str:
    """Return in what a database with a write-ahead log contradicts its file alone, as a clause; "" if in nothing.

    Args:
        connection: that reads the write-ahead log.
        identity: that the file has.
        last: the sequence and the value of the last message in the file.
    """
    found = _read_from(connection)
    if found is None:
        return "with it there is no log in the file"
    if is_other_identity(found[0], identity):
        return "it is of a log with another identity"
    sequence, value = last
    rows = dict(
        connection.execute(
            "SELECT seq, value FROM gossiplog_messages WHERE seq >= ? ORDER BY seq LIMIT 2", (max(sequence, 1),)
        )
    )
    if sequence and rows.get(sequence) != value:
        return (
            f"message {sequence:,}, the last one in the file, {'differs' if sequence in rows else 'is missing'} in it"
        )
    if rows.keys() - {sequence} and sequence + 1 not in rows:
        return f"message {sequence + 1:,}, which would follow the last one in the file, is missing in it"
    return ""


def _last_message(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """Return the sequence and the value of the last message, (0, b"") where there is none."""
    row = connection.execute("SELECT seq, value FROM gossiplog_messages ORDER BY seq DESC LIMIT 1").fetchone()
    return (0, b"") if row is None else row


def count_if_sound(database: str) -> int | None:
    """Return how many messages a sound file holds without its write-ahead log; None where it is damaged, or no log."""
    if not is_consistent(database):
        return None
    # Pages that were being moved may have looked like anything before it was found to be sound.
    found = read_identity_and_count(database)
    return None if found is None else found[1]


def read_identity_and_count(database: str) -> tuple[bytes, int | None] | None:
    """Return the identity of a database and how many messages it holds without its write-ahead log.

    Returns:
        None if both are unknown; None for the number where pages are being moved.
    """
    try:
        return _read(database)
    except (sqlite3.Error, UnicodeError, OSError, CorruptLog):
        return None


def _read(database: str) -> tuple[bytes, int | None] | None:
    """Return what `read_identity_and_count` does; None where there is no log.

    Raises:
        sqlite3.Error, UnicodeError, CorruptLog: it cannot be read, as where pages are being moved.
        OSError: there is no file.
    """
    with closing(_connect(database)) as connection:
        return _read_from(connection)


def _read_from(connection: sqlite3.Connection) -> tuple[bytes, int | None] | None:
    # The file may be a stranger's, whose views have rows without end.
    (tables,) = connection.execute(
        "SELECT count(*) FROM sqlite_schema WHERE rootpage > 0"
        " AND name IN ('gossiplog_messages', 'gossiplog_leaves', 'gossiplog_meta')"
    ).fetchone()
    if tables != 3:
        return None
    return stored_identity(connection), _count(connection)


def _count(connection: sqlite3.Connection) -> int | None:
    """Return how many messages there are, as far as the last one and its leaf show; None where they do not agree.

    While pages are being moved, the last page of the messages may be one of another table's.
    """
    count, value = _last_message(connection)
    if not count:
        return 0
    if not isinstance(value, bytes):
        return None
    (key,) = core.read_batch([value], "").keys
    leaf = connection.execute("SELECT seq FROM gossiplog_leaves WHERE key = ?", (key,)).fetchone()
    return count if leaf == (count,) else None


def is_sound(database: str) -> bool:
    """Return whether SQLite finds no damage in a database without its write-ahead log."""
    return _holds(database, _is_sound)


def is_consistent(database: str) -> bool:
    """Return whether a database is a sound one without its write-ahead log, with a leaf for each message."""
    query = (
        "SELECT count(*) = max(seq) AND count(*) = (SELECT count(*) FROM gossiplog_leaves) OR max(seq) IS NULL"
        " FROM gossiplog_messages"
    )
    return _holds(database, lambda connection: connection.execute(query).fetchone() == (1,) and _is_sound(connection))


def _is_sound(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]


def _holds(database: str, condition: Callable[[sqlite3.Connection], bool]) -> bool:
    """Return whether a condition holds for a database without its write-ahead log; False where it cannot be read."""
    try:
        with closing(_connect(database)) as connection:
            return condition(connection)
    except (sqlite3.Error, UnicodeError, OSError):
        return False


def _is_damaged(database: str, condition: Callable[[sqlite3.Connection], bool]) -> bool:
    """Return whether SQLite meets damage, or a condition does not hold, in a database with its write-ahead log."""
    try:
        with closing(_connect(database, "mode=ro")) as connection:
            return not condition(connection)
    except sqlite3.Error as error:
        return error_code(error) in DAMAGE
    except (UnicodeError, OSError, CorruptLog):
        return False


def _connect(database: str, mode: str = "mode=ro&immutable=1") -> sqlite3.Connection:
    """Return a connection that reads a database, without its write-ahead log and without a lock unless a mode is given.

    Open it by SQLite alone: closing another descriptor of the file would release SQLite's locks in this process.

    Raises:
        sqlite3.DatabaseError: the file is empty.
        OSError: there is none.
    """
    if not os.path.getsize(database):
        raise sqlite3.DatabaseError("SQLite deletes the write-ahead log of an empty file")
    connection = sqlite3.connect(f"{Path(database).as_uri()}?{mode}", uri=True)
    distrust(connection)
    return connection
