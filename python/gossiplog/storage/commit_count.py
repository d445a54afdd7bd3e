"""A file beside a database with the number of messages that were acknowledged: PATH-count.

SQLite ends the recovery of a write-ahead log at the first frame that is damaged, and takes what follows for the rest of
an earlier log: messages that `append` has returned are gone then, without an error. The count says they were there.

It is written after each commit that waits for the disk, and not flushed: after a power cut it may be that of an
earlier commit, or none, but never that of a commit which is not on disk. Two processes that commit at once may write
their counts in the other order; then it is one commit behind until the next.

The file has 28 bytes: the identity of the database (16 bytes, `identity` of gossiplog_meta), the count (8 bytes, the
largest byte first), and the CRC-32 of both (4 bytes). What is anything else counts as no count: so a file of another
database, which had the name before, is overwritten.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from contextlib import suppress

from gossiplog.reprs import last_counted

COUNT_SUFFIX = "-count"
"""How the file's name ends; it begins with that of the database, after links."""

_COUNTED = struct.Struct(">16sQ")
_CHECKED = struct.Struct(">16sQI")
# A link, or a pipe that nobody reads, may be a stranger's.
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def describe_loss(lost: int, place: str = "") -> str:
    """Return a clause: "the last 2 acknowledged messages of log.db are lost"."""
    of = f" of {place}" if place else ""
    return f"the {last_counted(lost, 'acknowledged message')}{of} {'is' if lost == 1 else 'are'} lost"


class CommitCount:
    """The count of one database, for one thread at a time.

    Args:
        database: the path of the file.
    """

    def __init__(self, database: str) -> None:
        self._database = os.path.realpath(database)
        self._descriptor: int | None = None

    @property
    def path(self) -> str:
        """The path of the count's file."""
        return self._database + COUNT_SUFFIX

    def read(self) -> tuple[bytes, int] | None:
        """Return the identity of a database, and how many of its messages were acknowledged; None where none is."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | _FLAGS)
        except (OSError, ValueError):
            return None
        try:
            found = os.read(descriptor, _CHECKED.size) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        finally:
            os.close(descriptor)
        if len(found) != _CHECKED.size:
            return None
        identity, count, check = _CHECKED.unpack(found)
        return (identity, count) if check == zlib.crc32(found[: _COUNTED.size]) else None

    def write(self, identity: bytes, count: int) -> None:
        """Write the count. An append that is on disk does not fail because this does: then the count is behind."""
        if self._descriptor is None:
            self._descriptor = self._open()
        with suppress(OSError):
            counted = _COUNTED.pack(identity, count)
            os.pwrite(self._descriptor, counted + zlib.crc32(counted).to_bytes(4), 0)

    def close(self) -> None:
        """Close the file; `write` opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> int:
        """Return a descriptor of the file, made with the mode and the owner of the database; -1 where there is none."""
        try:
            database = os.stat(self._database)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        except OSError:
            return -1
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            return -1
        # As SQLite does for its own files: other users of the database are users of this.
        with suppress(OSError):
            if stat.S_IMODE(found.st_mode) != stat.S_IMODE(database.st_mode):
                os.fchmod(descriptor, stat.S_IMODE(database.st_mode))
            if os.geteuid() == 0 and (found.st_uid, found.st_gid) != (database.st_uid, database.st_gid):
                os.fchown(descriptor, database.st_uid, database.st_gid)
        return descriptor
