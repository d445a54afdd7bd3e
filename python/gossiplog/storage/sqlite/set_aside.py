"""Logs that are set aside or saved beside a database, by which advice and which way back, and what they hold."""

from __future__ import annotations

import os
from functools import lru_cache

from gossiplog.reprs import counted, frozen, shell_path
from gossiplog.storage.sqlite.database_file import count_if_sound, is_sound, read_identity_and_count
from gossiplog.storage.sqlite.files import (
    COPY_SUFFIX,
    DAMAGED_SUFFIX,
    SAVED_SUFFIX,
    formers,
    has_content,
    move_command,
    numbered,
    wal_of,
)

SET_ASIDE_SUFFIXES = (SAVED_SUFFIX, COPY_SUFFIX, DAMAGED_SUFFIX)
"""How the names of logs end that are set aside; a number may follow."""


@frozen
class SetAside:
    """A sound log that is set aside beside a database.

    Attributes:
        path: of its file, as texts name it.
        identity: of the database.
        count: how many messages it holds without its write-ahead log.
    """

    path: str
    identity: bytes
    count: int

    def describe(self) -> str:
        """Return a clause: "log.db.saved, which an earlier step has set aside, holds 3 messages"."""
        return f"{self.path}, which an earlier step has set aside, holds {counted(self.count, 'message')}"


@frozen
class WayBack:
    """How a database that is gone comes back from what is set aside beside it.

    Attributes:
        described: in words, with the command.
        command: the command alone.
    """

    described: str
    command: str


def find_set_aside(name: str) -> list[SetAside]:
    """Return the sound logs with messages that are set aside beside a database, that with the most messages first.

    Args:
        name: of the database, after links.
    """
    found = []
    for suffix in SET_ASIDE_SUFFIXES:
        for path in numbered(name, suffix):
            place = os.path.realpath(path)
            if os.path.exists(name) and os.path.samefile(place, name):
                # To open it and close it would release the locks on the database that this process has.
                continue
            count, _ = examine(place)
            if count and (read := read_identity_and_count(place)) is not None:
                found.append(SetAside(path, read[0], count))
    return sorted(found, key=lambda each: each.count, reverse=True)


def find_way_back(name: str, identity: bytes) -> WayBack | None:
    """Return how a database comes back that is gone, empty or cut off near its beginning; None where no way is found.

    Args:
        name: of the database, after links.
        identity: that it had, b"" where that is not known.
    """
    log, wal = shell_path(name), wal_of(name)
    for best in find_set_aside(name)[:1]:
        source = shell_path(best.path)
        # What a program has saved of the database, its write-ahead log was written for.
        is_own = best.identity == identity or (not identity and best.path.startswith(f"{name}{SAVED_SUFFIX}"))
        if has_content(wal) and not is_own:
            # SQLite would mix the two.
            command = f"gossiplog repair {log} --from {source}"
            return WayBack(f"{best.describe()}: {command} adds them to what the write-ahead log has", command)
        aside = f"{move_command(name, COPY_SUFFIX)} && " if os.path.exists(name) and os.path.getsize(name) else ""
        command = f"{aside}mv {source} {log}"
        return WayBack(f"{best.describe()}: {command} puts it back", command)
    left = [] if has_content(wal) else [former for former in formers(wal) if has_content(former)]
    if not left:
        return None
    former = max(left, key=os.path.getsize)
    command = f"mv {shell_path(former)} {shell_path(wal)} && gossiplog repair {log}"
    return WayBack(f"{former}, which an earlier step has set aside, may have what is lost: {command} reads it", command)


def examine(database: str) -> tuple[int | None, bool]:
    """Return how many messages a sound file holds, None where it is damaged or no log; and whether it is damaged.

    A log that is open names the file each time it is used, and the look takes as long as the file is large.

    Args:
        database: the path of the file, absolute.
    """
    try:
        status = os.stat(database)
    except OSError:
        return None, False
    return _examine(database, (status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns))


@lru_cache(maxsize=16)
def _examine(database: str, _: object) -> tuple[int | None, bool]:
    held = count_if_sound(database)
    return held, held is None and not is_sound(database)
