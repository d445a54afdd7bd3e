"""Files that a user names: opened without waiting, and refused if they are something else than files.

To open a named pipe waits until somebody writes to it, and a device such as /dev/zero has no end. Pipes that this
process was given are files here, as `<(command)` of a shell and /dev/stdin name them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader

# Names under which a process finds what it was given open.
_INHERITED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# What file systems without hard links say, and one whose file has as many as it may.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file to read its bytes; never wait for a writer.

    Args:
        path: of the file, or of a pipe that this process was given.

    Raises:
        OSError: it cannot be opened, or is no file; `strerror` says which.
    """
    _check(path, os.stat(path).st_mode)
    # What is there may be exchanged between the two looks, and no open may wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        _check(path, mode)
        if stat.S_ISFIFO(mode):
            os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what cannot be opened to read, or is no file, for a library that would wait for it.

    Raises:
        OSError: as `open_file`.
    """
    open_file(path).close()


def other_kind(mode: int) -> str:
    """Return what a mode stands for, such as "a named pipe"; "" if it is a file."""
    return _KINDS.get(stat.S_IFMT(mode), "")


def _check(path: str | os.PathLike[str], mode: int) -> None:
    kind = other_kind(mode)
    if kind and not (stat.S_ISFIFO(mode) and os.fsdecode(path).startswith(_INHERITED)):
        raise OSError(errno.EINVAL, f"it is {kind}; expected a file", os.fsdecode(path))


def sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on disk.

    Raises:
        OSError: they cannot be written.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(made: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Give a finished file another name in one step, unless something has that name; the file's former name goes.

    When this returns, the new name is on the disk.

    Args:
        made: the path of the file, on the disk.
        path: its new name, in the same file system.

    Raises:
        FileExistsError: something has the name.
        FileNotFoundError: the file, or the folder of the name, is gone.
        OSError: the file system failed.
    """
    with _folder_of(path) as folder:
        try:
            _link(made, path, folder)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:
            _rename(made, path)
        else:
            os.unlink(made)


def add_name(made: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Give a finished file a second name, unless something has that name; when this returns, it is on the disk.

    Args:
        made: the path of the file, on the disk; of one without a name, on Linux, that of its descriptor in /proc.
        path: its new name, in the same file system.

    Returns:
        False if the file system has no hard links, or the file has as many as it may.

    Raises:
        OSError: as `publish`.
    """
    with _folder_of(path) as folder:
        try:
            _link(made, path, folder)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
    return True


@contextmanager
def _folder_of(path: str | os.PathLike[str]) -> Iterator[int]:
    """Provide a descriptor of the folder of a name; after a block that has not raised, its names are on the disk."""
    folder = os.open(os.path.dirname(path) or os.curdir, os.O_RDONLY)
    try:
        yield folder
        os.fsync(folder)
    finally:
        os.close(folder)


def _link(made: str | os.PathLike[str], path: str | os.PathLike[str], folder: int) -> None:
    # With a folder's descriptor, so that a link in /proc is followed: linkat(2), AT_SYMLINK_FOLLOW.
    os.link(made, os.path.basename(path), dst_dir_fd=folder)


def _rename(made: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    # A file that is renamed takes the name of any other, so it takes that of one that was made here.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        os.replace(made, path)
    except BaseException:
        with suppress(OSError):
            # Nobody else has written to it.
            if not os.path.getsize(path):
                os.unlink(path)
        raise


def may_exist(path: str | os.PathLike[str]) -> bool:
    """Return whether there is something at a path, or the user of this process may not look whether there is."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def explain_denial(path: str | os.PathLike[str], doing: str) -> str:
    """Return why the user of this process may not do something with a file or a folder: who it is, owner and mode.

    Args:
        path: of the file or the folder.
        doing: "read" or "write to".
    """
    if os.name != "posix":
        return f"this user may not {doing} it"
    try:
        status = os.stat(path)
        if doing != "read" and os.statvfs(path).f_flag & os.ST_RDONLY:
            return "its file system is mounted read-only"
    except OSError as error:
        return f"user {os.geteuid()} cannot look at it: {error.strerror}"
    mode = stat.S_IMODE(status.st_mode)
    owned = f"it is of user {status.st_uid} and group {status.st_gid}, with mode {mode:04o}"
    return f"user {os.geteuid()} may not {doing} it: {owned}"


def copy_owner(path: str, target: str) -> None:
    """Give a file the owner and the mode of another one, as far as this user may."""
    before = os.stat(path)
    os.chmod(target, stat.S_IMODE(before.st_mode))
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        # Only root may give a file away; the mode counts more.
        with suppress(PermissionError):
            os.chown(target, before.st_uid, before.st_gid)
