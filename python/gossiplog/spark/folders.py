"""Folders in which one process works at a time, that survive a power cut, and that are to be made."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gossiplog.errors import OptionError, StorageError

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


def remove_locked(folder: str) -> None:
    """Remove a folder in which this process alone works, unless others have put something into it."""
    # Fails where another process begins to work in it.
    with suppress(OSError):
        if os.listdir(folder) == [_LOCK]:
            os.unlink(os.path.join(folder, _LOCK))
            os.rmdir(folder)


def check_new(folder: str, purpose: str) -> None:
    """Check that a folder can be made.

    Args:
        folder: its path.
        purpose: what it is for, in errors.

    Raises:
        OptionError: something is there already, or it cannot be made there.
    """
    if os.path.lexists(folder):
        raise OptionError(f"{folder} is there already: name a new folder for {purpose}")
    parent = os.path.dirname(os.path.abspath(folder))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise OptionError(f"{folder} cannot be made, because {parent} is no folder: name a new folder for {purpose}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OptionError(
            f"{folder} cannot be made, because {parent} cannot be written: name a new folder for {purpose}"
        )


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
