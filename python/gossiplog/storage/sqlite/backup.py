"""Copies of a log's database, consistent while others write to it.

SQLite's backup interface copies the pages of one read transaction: those that other connections write meanwhile are in
the write-ahead log, and do not belong to it. `VACUUM INTO` would read and write every row, has no progress, and may
give the rows of an application's tables other rowids.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from gossiplog.errors import CorruptLog, StorageError
from gossiplog.files import publish, sync
from gossiplog.storage.sqlite.files import has_content, wal_of
from gossiplog.storage.sqlite.meta import format_origins, put_meta, stored_identity, stored_origins
from gossiplog.storage.sqlite.tables import BESIDE, storage_error

# Copied between two calls of `progress`: 4 MiB.
_PAGES = 1024


def back_up(
    source: sqlite3.Connection,
    target: str,
    mode: int,
    progress: Callable[[int, int], object] | None,
    *,
    is_copy: bool = True,
) -> None:
    """Copy the database of a connection to a new file, which has its name when it is whole and on the disk.

    The new file has no write-ahead log.

    Args:
        source: the state of its read transaction is copied, or without one the state when this begins.
        target: the path of the new file.
        mode: of the new file.
        progress: is called with the pages that are copied, and with all that there are.
        is_copy: whether it gets an identity of its own, since the former file goes on beside it.

    Raises:
        StorageError: there is a file of the name already, or the copy cannot be written.
    """
    path = Path(os.path.abspath(target))
    if os.path.lexists(path):
        raise StorageError(f"{target} is there already: give the name of a new file")
    if has_content(wal_of(path)):
        raise StorageError(
            f"{wal_of(path)} is there, of a file that {target} was before, which SQLite would take for the copy's: give"
            " another name, or move it away"
        )
    if not path.parent.is_dir():
        raise StorageError(f"cannot make {target}: there is no folder {path.parent}; make it first")
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")

    def report(_: int, left: int, total: int) -> None:
        if progress is not None:
            progress(total - left, total)

    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(mode)))
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy, _reading(source):
            copy.execute("PRAGMA synchronous = OFF")
            source.backup(copy, pages=_PAGES, progress=report)
            copy.execute("PRAGMA journal_mode = DELETE")
            if is_copy:
                _give_identity(copy)
        sync(str(partial))
        # A name that another program has taken meanwhile is not overwritten.
        publish(partial, path)
    except FileExistsError:
        raise StorageError(f"{target} is there already: give the name of a new file") from None
    except OSError as error:
        raise StorageError(f"cannot make {target}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise storage_error(target, "make", error) from error
    finally:
        for suffix in ("", *BESIDE):
            with suppress(OSError):
                os.unlink(f"{partial}{suffix}")


def _give_identity(copy: sqlite3.Connection) -> None:
    """Give a copy an identity of its own, and note up to which sequence it has the messages of the former one."""
    # Damage is copied as well: of what has no sound identity, nobody knows that this is a copy.
    with suppress(CorruptLog, sqlite3.DatabaseError):
        (last,) = copy.execute("SELECT coalesce(max(seq), 0) FROM gossiplog_messages").fetchone()
        put_meta(copy, "origins", format_origins(stored_origins(copy), stored_identity(copy), last))
    copy.execute("UPDATE gossiplog_meta SET value = ? WHERE name = 'identity'", (os.urandom(16).hex(),))


@contextmanager
def _reading(source: sqlite3.Connection) -> Iterator[None]:
    """Hold a read transaction for a block, unless there is one.

    Otherwise each step of a copy has one of its own, and what is written between two makes the copy start over.
    """
    if source.in_transaction:
        yield
        return
    source.execute("BEGIN")
    try:
        # It begins with the first read.
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        yield
    finally:
        if source.in_transaction:
            source.execute("ROLLBACK")
