"""Folders in which one process works at a time, that survive a power cut, and that are to be made."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gossiplog.errors import OptionError, StorageError

_LOCK = ".lock"
# A mode: the process's own mask says who may enter.
_ANYBODY = 0o777


@contextmanager
def locked(folder: str, mode: int = 0o755, *, staging: bool = False) -> Iterator[None]:
    """Lock a folder for a block, so that this process alone works in it; make it where there is none.

    Args:
        folder: its path.
        mode: who may enter it, if it is made.
        staging: refuse a folder that is there, unless such a block has left it (`check_staging`).

    Raises:
        StorageError: another process is at it, it cannot be made, or it is refused.
    """
    try:
        try:
            os.makedirs(folder, mode, exist_ok=not staging)
        except FileExistsError:
            if not staging:
                raise
            check_staging(folder, mode)
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


def check_staging(folder: str, mode: int) -> None:
    """Check that a folder, if it is there, was left by a job of this user's that was killed.

    What lies in it is removed, and may be taken as verified.

    Args:
        folder: its path.
        mode: with which jobs make it.

    Raises:
        StorageError: it is something else, or others may enter it.
    """
    try:
        status = os.lstat(folder)
    except OSError:
        return
    if not stat.S_ISDIR(status.st_mode):
        reason = "is no folder"
    elif status.st_uid != os.geteuid():
        reason = "belongs to another user"
    elif stat.S_IMODE(status.st_mode) & 0o777 & ~mode:
        reason = "is open to other users"
    elif (names := os.listdir(folder)) and _LOCK not in names:
        reason = f"has files, but no {_LOCK}, which a job makes first"
    else:
        return
    raise StorageError(
        f"a job works in {folder}, which is there already and {reason}: move it away, or remove it if nobody needs it"
    )


@contextmanager
def building(folder: str, purpose: str) -> Iterator[str]:
    """Provide a new folder for a block to fill, under another name until the block ends without an error.

    Args:
        folder: to be made.
        purpose: what it is for, in errors.

    Yields:
        The path of the folder in the block: `folder` with ".partial" after it. It is removed if the block fails; what a
        process that was killed has left there is removed first.

    Raises:
        OptionError: something is at `folder` already, or it cannot be made there.
        StorageError: what is at the other path was not left by such a process, or one still works there.
        OSError: it cannot be written.
    """
    check_building(folder, purpose)
    partial = _partial(folder)
    with locked(partial, _ANYBODY, staging=True):
        try:
            _clear(partial)
            yield partial
            os.unlink(os.path.join(partial, _LOCK))
            os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_building(folder: str, purpose: str) -> None:
    """Check that `building` can begin, so that nobody waits for what then has no place.

    Raises:
        OptionError: as `check_new`.
        StorageError: as `building`, but for a process that works there.
    """
    check_new(folder, purpose)
    check_staging(_partial(folder), _ANYBODY)


def _partial(folder: str) -> str:
    return f"{folder.rstrip('/')}.partial"


def _clear(folder: str) -> None:
    """Remove all but the lock."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != _LOCK:
                os.unlink(entry.path)


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
