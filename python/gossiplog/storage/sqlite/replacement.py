"""The replacement of a log's file by another one: whenever the process ends, one of the two has its name, whole.

Nobody else may have the file open. It is locked for the time of the replacement, by SQLite or, where SQLite cannot read
it, by the lock that SQLite would take. All that is in its write-ahead log is moved into it, so that it is one file,
which a hard link keeps under another name. The new file is made beside it, written to the disk, and takes its name in
one step.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from gossiplog.errors import NotALog, StorageError
from gossiplog.files import add_name, copy_owner, explain_denial, publish, sync
from gossiplog.storage.sqlite.commit_count import CommitCount
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from gossiplog.storage.sqlite.files import error_code, numbered_names
from gossiplog.storage.sqlite.tables import BESIDE, foreign_tables, storage_error

_PATIENCE = 2.0
"""Seconds to wait for a program that is about to close the file."""
_MOST_NAMES = 999
# Where SQLite locks a database (https://sqlite.org/src/file/src/os.h, "PENDING_BYTE"): a connection to one with a
# write-ahead log holds a read lock on the shared range for as long as it is open.
_SHARED_FIRST = 0x40000002
_SHARED_SIZE = 510


class Replacement:
    """A file that is to be replaced, locked for the time of a block.

    Args:
        path: of the log's file, or of a link to it.
        suffix: is appended to the log's file name, and makes the name of the new file.

    Attributes:
        path: of the file itself.
        new: where the new file is to be made; nothing is there when the block begins.

    Raises:
        NotALog: there is no such file.
        CorruptLog: it is gone, or was replaced, and a program has the former file open.
        StorageError: it is in no file, or the file or its folder cannot be written.
    """

    def __init__(self, path: str, suffix: str) -> None:
        if path == ":memory:" or path.startswith("file:"):
            raise StorageError(f"{path} names no file that could be replaced: expected the path of a log's file")
        if not os.path.exists(path):
            CommitCount(path).check_not_gone()
            raise NotALog(f"there is no log {path}")
        CommitCount(path).check_not_held()
        self.path = os.path.realpath(path)
        self.new = self.path + suffix
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
                raise in_use(self.path) from error
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
            raise in_use(self.path)

    def _remove_new(self) -> None:
        for suffix in ("", *BESIDE):
            Path(self.new + suffix).unlink(missing_ok=True)

    @property
    def other_tables(self) -> list[str]:
        """The names of the tables in the file that are not the log's."""
        if self._connection is None:
            raise StorageError(f"{self.path} is not locked: enter the context")
        return foreign_tables(self._connection)

    def publish(self, suffix: str, meta: Mapping[str, int]) -> str:
        """Give the log's name to the new file, and keep the former one.

        Args:
            suffix: how the name of the former file ends.
            meta: rows of gossiplog_meta to change in the new file, by name.

        Returns:
            The path of the former file.

        Raises:
            StorageError: the file system or SQLite failed. The former file has its name still.
        """
        try:
            with closing(sqlite3.connect(self.new, isolation_level=None)) as connection:
                connection.executemany(
                    "UPDATE gossiplog_meta SET value = ? WHERE name = ?",
                    [(value, name) for name, value in meta.items()],
                )
                connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise storage_error(self.new, "write to", error) from error
        try:
            former = put_in_place(self.new, self.path, suffix, self._copy)
        except OSError as error:
            raise StorageError(f"cannot replace {self.path}: {error}") from error
        self._is_replaced = True
        return former

    def _copy(self, target: str) -> None:
        # SQLite copies. To open and close the file in another way would release this process's lock on it.
        try:
            with (
                closing(sqlite3.connect(f"{Path(self.path).as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(target)) as copy,
            ):
                source.backup(copy)
        except sqlite3.Error as error:
            raise storage_error(self.path, "copy", error) from error


def put_in_place(new: str, path: str, suffix: str, copy: Callable[[str], object]) -> str:
    """Give a log's name to a finished file, and keep the former one under another name.

    The count of acknowledged messages beside it is that of the finished file then: all of them are on disk.

    Args:
        new: the path of the finished file, in the same folder, closed. It gets the owner and the mode of the former.
        path: of the log's file, which is locked, and has no write-ahead log.
        suffix: how the name of the former file ends; a number follows where that name is taken.
        copy: writes a copy of the former file to a path, for a file system without hard links.

    Returns:
        The path of the former file.

    Raises:
        StorageError: a thousand such names are taken.
        OSError: the file system failed. The former file has its name still.
    """
    copy_owner(path, new)
    sync(new)
    former = _keep(path, suffix, copy)
    found = read_identity_and_count(new)
    os.replace(new, path)
    sync(os.path.dirname(path))
    if found is not None and found[1] is not None:
        count = CommitCount(path)
        beside = count.read()
        # Otherwise another program has opened the new file, and appended to it.
        if beside is None or beside[0] != found[0]:
            count.write(found[0], found[1])
            count.close()
    return former


def _keep(path: str, suffix: str, copy: Callable[[str], object]) -> str:
    """Keep a file under another name as well, and return that."""
    for former in islice(numbered_names(path, suffix), _MOST_NAMES):
        try:
            _link_or_copy(path, former, copy)
        except FileExistsError:
            if not os.path.exists(former) or not os.path.samefile(former, path):
                continue
            # An attempt that did not come to its end made it.
            return former
        return former
    raise StorageError(f"cannot keep {path}: move away {path}{suffix} and the files with a number after that name")


def _link_or_copy(path: str, former: str, copy: Callable[[str], object]) -> None:
    if add_name(path, former):
        return
    if os.path.lexists(former):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), former)
    part = f"{path}.keeping"
    Path(part).unlink(missing_ok=True)
    copy(part)
    copy_owner(path, part)
    sync(part)
    publish(part, former)


@contextmanager
def locked_alone(path: Path, *, makes: bool = False) -> Iterator[int]:
    """Keep all programs from a database for a block, without reading it: it may be damaged.

    The block must not open the file by its path: when a process closes a file, its locks on it end.

    Args:
        path: of the file.
        makes: whether an empty file stands in for one that is gone, for the time of the block.

    Yields:
        A descriptor of the file.

    Raises:
        StorageError: a program has it open, or this user may not write to it.
    """
    # Windows has no such module.
    import fcntl

    is_made = False
    try:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            if not makes:
                raise
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            is_made = True
    except PermissionError as error:
        raise StorageError(f"cannot write to {path}: {explain_denial(path, 'write to')}") from error
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from error
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError as error:
            raise in_use(path) from error
        try:
            yield descriptor
        finally:
            # While it is locked: later, another program may have made a log of it.
            if is_made and not path.stat().st_size:
                path.unlink()
    finally:
        os.close(descriptor)


def is_open_elsewhere(path: Path) -> bool | None:
    """Return whether another program has a database open; None where this user may not find out."""
    try:
        with locked_alone(path):
            return False
    except StorageError:
        return True if os.access(path, os.W_OK) else None


def in_use(path: str | os.PathLike[str]) -> StorageError:
    """Return the error for a file that cannot be replaced because it is open."""
    return StorageError(
        f"{path} is open in another program, or elsewhere in this one: close it there (stop the server), and repeat the"
        " command"
    )
