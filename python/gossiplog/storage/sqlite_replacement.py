"""The replacement of a log's file by another one: whenever the process ends, one of the two has its name, whole.

Nobody else may have the file open. It is locked for the time of the replacement, and all that is in its write-ahead log
is moved into it, so that it is one file, which a hard link keeps under another name. The new file is made beside it,
written to the disk, and takes its name in one step.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gossiplog.errors import NotALog, StorageError
from gossiplog.files import explain_denial
from gossiplog.storage.base import Position
from gossiplog.storage.sqlite_tables import BESIDE, PREFIX, error_code, storage_error

_PATIENCE = 2.0
"""Seconds to wait for a program that is about to close the file."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NEW = ".rebasing"
_MOST_NAMES = 1000


class Replacement:
    """A file that is to be replaced, locked for the time of a block.

    Args:
        path: of the log's file, or of a link to it.

    Attributes:
        path: of the file itself.
        new: where the new file is to be made; nothing is there when the block begins.

    Raises:
        NotALog: there is no such file.
        StorageError: it is in no file, or the file or its folder cannot be written.
    """

    def __init__(self, path: str) -> None:
        if path == ":memory:" or path.startswith("file:"):
            raise StorageError(f"{path} names no file that could be replaced: expected the path of a log's file")
        if not os.path.exists(path):
            raise NotALog(f"there is no log {path}")
        self.path = os.path.realpath(path)
        self.new = self.path + _NEW
        self._connection: sqlite3.Connection | None = None
        self._former_mode = ""
        self._is_replaced = False
        folder = os.path.dirname(self.path)
        for place, mode in ((self.path, os.R_OK | os.W_OK), (folder, os.W_OK | os.X_OK)):
            if not os.access(place, mode):
                raise StorageError(f"cannot replace {self.path}: {explain_denial(place, 'write to')}")

    def __enter__(self) -> Self:
        uri = f"{Path(self.path).as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=True)
        try:
            self._lock(connection)
        except sqlite3.Error as error:
            connection.close()
            if error_code(error) == sqlite3.SQLITE_BUSY:
                raise self._in_use() from error
            raise storage_error(self.path, "lock", error) from error
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._remove_new()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove_new()
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
                if self._former_mode == "wal" and not self._is_replaced:
                    connection.execute("PRAGMA journal_mode = WAL")
            connection.close()

    def _lock(self, connection: sqlite3.Connection) -> None:
        (self._former_mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        # Succeeds where no other connection is open. Who opens the log to write from now on waits, and fails.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN IMMEDIATE")
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "delete":
            raise self._in_use()

    def _in_use(self) -> StorageError:
        return StorageError(f"{self.path} is open in another program, or elsewhere in this one: close it there first")

    def _remove_new(self) -> None:
        for suffix in ("", *BESIDE):
            Path(self.new + suffix).unlink(missing_ok=True)

    @property
    def other_tables(self) -> list[str]:
        """The names of the tables in the file that are not the log's."""
        if self._connection is None:
            raise StorageError(f"{self.path} is not locked: enter the context")
        query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        names = [str(name) for (name,) in self._connection.execute(query)]
        return [name for name in names if not name.lower().startswith(PREFIX)]

    def publish(self, position: Position) -> str:
        """Give the log's name to the new file, and keep the former one.

        Args:
            position: of the former file, which is kept as that of its generation. The new one is of the next, and
                `apply` has the same version.

        Returns:
            The path of the former file.

        Raises:
            StorageError: the file system or SQLite failed. The former file has its name still.
        """
        try:
            self._finish(position)
            kept = self._keep(position.generation)
            os.replace(self.new, self.path)
            self._is_replaced = True
            self._sync(os.path.dirname(self.path))
        except OSError as error:
            raise StorageError(f"cannot replace {self.path}: {error}") from error
        return kept

    def _finish(self, position: Position) -> None:
        """Make the new file whole, with the owner and the mode of the former one, and write it to the disk."""
        try:
            with closing(sqlite3.connect(self.new, isolation_level=None)) as connection:
                connection.executemany(
                    "UPDATE gossiplog_meta SET value = ? WHERE name = ?",
                    [(position.generation + 1, "generation"), (position.apply_version, "apply_version")],
                )
                connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise storage_error(self.new, "write to", error) from error
        before = os.stat(self.path)
        os.chmod(self.new, stat.S_IMODE(before.st_mode))
        if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            # Only root may give a file away; the mode counts more.
            with suppress(PermissionError):
                os.chown(self.new, before.st_uid, before.st_gid)
        self._sync(self.new)

    def _keep(self, generation: int) -> str:
        """Keep the former file under another name, and return that."""
        for number in range(1, _MOST_NAMES):
            kept = f"{self.path}.generation-{generation}{f'-{number}' if number > 1 else ''}"
            if os.path.exists(kept):
                if not os.path.samefile(kept, self.path):
                    continue
                # An attempt that did not come to its end made it.
                return kept
            try:
                os.link(self.path, kept)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._copy(kept)
            self._sync(os.path.dirname(self.path))
            return kept
        raise StorageError(f"cannot keep {self.path}: move away {self.path}.generation-{generation} and those after it")

    def _copy(self, kept: str) -> None:
        """Copy the former file, on a file system without hard links."""
        # By SQLite: whoever opens and closes the file in this process otherwise releases the lock on it.
        part = f"{self.path}.keeping"
        Path(part).unlink(missing_ok=True)
        try:
            with (
                closing(sqlite3.connect(f"{Path(self.path).as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(part)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise storage_error(self.path, "copy", error) from error
        self._sync(part)
        os.replace(part, kept)

    @staticmethod
    def _sync(path: str) -> None:
        """Wait until a file, or the names in a folder, are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
