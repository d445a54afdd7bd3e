"""Folders in which one process works at a time, and that survive a power cut."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gossiplog.errors import StorageError

_LOCK = ".lock"


@contextmanager
def locked(folder: str, mode: int = 0o755) -> Iterator[None]:
    """A block in which this process alone works in a folder, which is made where there is none.

    Args:
        folder: its path.
        mode: who may enter it, if it is made.

    Raises:
        StorageError: another process is at it, or it cannot be made.
    """
    try:
        os.makedirs(folder, mode, exist_ok=True)
        lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror}") from error
    try:
        # Released by the system when the process ends, in whichever way.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StorageError(f"another process works in {folder}: run one at a time") from error
    try:
        yield
    finally:
        os.close(lock)


def sync(path: str) -> None:
    """Waits until a file, or the names in a folder, are on disk.

    Raises:
        OSError: they cannot be written.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
