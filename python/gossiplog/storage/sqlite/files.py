"""The files of a database, looked at before SQLite opens them, since a stranger may have made them."""

from __future__ import annotations

import glob
import math
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count as count_up
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gossiplog.errors import NotALog, StorageError
from gossiplog.files import explain_denial, other_kind
from gossiplog.reprs import shell_path

MEMORY = ":memory:"
"""SQLite's name for a database in memory."""
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""SQLite's result codes for a file that is not what it wrote."""
# Bytes (https://sqlite.org/fileformat2.html, "WAL File Format").
_WAL_HEADER = 32
# A journal that names another ends with it as well (https://sqlite.org/fileformat2.html, "The Rollback Journal").
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
# https://sqlite.org/uri.html
_IMMUTABLE = "immutable=(?:1|yes|true|on)"
_IMMUTABLE_URI = re.compile(rf"file:[^#]*[?&]{_IMMUTABLE}(?:[&#]|$)")
READ_ONLY_URI = re.compile(rf"file:[^#]*[?&](?:mode=ro|{_IMMUTABLE})(?:[&#]|$)")
"""Fits a URI by which nothing can be written."""
SAVED_SUFFIX = ".saved"
"""How the name ends under which a file is saved that has lost its own; a number follows where that is taken."""
COPY_SUFFIX = ".copy"
"""How the name ends under which errors advise to set a database aside."""
DAMAGED_SUFFIX = ".damaged"
"""How the name ends under which a repair keeps the former file."""
FORMER_SUFFIX = ".former"
"""How the name ends under which they, and writers, set aside what stands beside a database."""
GENERATION_SUFFIX = ".generation-"
"""What stands before the generation in the name under which a rebase keeps the former file."""
REBASING_SUFFIX = ".rebasing"
"""How the name ends under which a rebase makes the new file."""
WORKING_KINDS = ("repair", "recover")
"""What stands in the names of folders in which a repair and a recovery work beside a log."""
_BESIDE = ("", "-wal", "-shm", "-journal", "-count")
_DESCRIPTORS = "/dev/fd"
"""Where a process finds what it has open: on Linux a link to /proc/self/fd."""
_PROCESSES = "/proc"
"""Where Linux shows what all processes have open."""
_DELETED = " (deleted)"
# In the row of a log's schema that has this name. SQLite has the schema in the first pages, also after `VACUUM`.
_TABLE = b"gossiplog_meta"
_SCHEMA_BYTES = 2**20
# Linux's time stamps are those of its ticks, of 10 ms at most; the coarsest file system's are FAT's, of two seconds.
_STAMP_NANOSECONDS = 3 * 10**7
_WHOLE_STAMP_NANOSECONDS = 4 * 10**9
# In which paths are not looked at again. What is written so soon after a file lost its name is lost no more than what
# was written before.
_TRUSTED_NANOSECONDS = 2 * 10**6


def text_path(location: str | os.PathLike[str]) -> str:
    """Return a location as text.

    Raises:
        TypeError: bytes, or nothing that is a path.
    """
    path = os.fspath(location)
    if not isinstance(path, str):
        raise TypeError(f"the location of a log is text or a path, not {type(path).__name__}: {path!r}")
    return path


def find_write_refusal(file: str) -> str:
    """Return why this user cannot write to a database, or to the write-ahead log beside it; "" if nothing hinders it.

    SQLite opens such a file all the same, to be read.
    """
    for path in (file, f"{file}-wal"):
        if os.path.exists(path) and not os.access(path, os.W_OK):
            return f"{path} cannot be written: {explain_denial(path, 'write to')}"
    return ""


def wal_of(path: str | Path) -> Path:
    """Return the path of the write-ahead log of a database."""
    return Path(f"{path}-wal")


def numbered_names(path: str | Path, suffix: str) -> Iterator[str]:
    """Yield the names under which a file is set aside or saved: from the second on, a number follows the suffix."""
    yield f"{path}{suffix}"
    yield from (f"{path}{suffix}-{number}" for number in count_up(2))


def numbered(path: str | Path, suffix: str) -> list[str]:
    """Return those of a file's numbered names under which there is a file, and none of its companions."""
    name = re.compile(re.escape(f"{path}{suffix}") + r"(?:-\d+)?")
    found = glob.glob(f"{glob.escape(f'{path}{suffix}')}*")
    return sorted(each for each in found if name.fullmatch(each) and os.path.isfile(each))


def free_name(path: str | Path, suffix: str) -> str:
    """Return the first of a file's numbered names that nothing has, and that nothing stands beside.

    SQLite would read what stands beside it, as a write-ahead log, into the file.
    """
    names = numbered_names(path, suffix)
    return next(name for name in names if not any(os.path.lexists(f"{name}{each}") for each in _BESIDE))


def move_command(path: str | Path, suffix: str) -> str:
    """Return the command that sets a file aside, and overwrites none."""
    return f"mv {shell_path(path)} {shell_path(free_name(path, suffix))}"


def has_content(wal: str | Path) -> bool:
    """Return whether there is a write-ahead log, by its path, with more than a header."""
    try:
        return os.path.getsize(wal) > _WAL_HEADER
    except OSError:
        return False


def error_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 for an error of the driver's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def distrust(connection: sqlite3.Connection) -> None:
    """Switch off what a stranger's or a damaged database may misuse (https://sqlite.org/security.html)."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def check_files(path: str) -> None:
    """Refuse a database, or a write-ahead log beside it, that is no file: SQLite may wait for a pipe without end.

    Args:
        path: of the database, or its URI.

    Raises:
        NotALog: the database is something else.
        StorageError: its write-ahead log, or the index of that, is something else.
    """
    if not file_of(path):
        return
    file = os.path.realpath(file_of(path))
    for name in (file, str(wal_of(file)), f"{file}-shm"):
        try:
            kind = other_kind(os.stat(name).st_mode)
        except (OSError, ValueError):
            continue
        if kind and name == file:
            raise NotALog(f"cannot open {path}: it is {kind}; expected the file of a log")
        if kind:
            raise StorageError(
                f"cannot open {path}: {name} is {kind}, where SQLite keeps a file: {move_command(name, FORMER_SUFFIX)}"
            )


def file_of(path: str) -> str:
    """Return the path of a database that is given by its path or its URI."""
    return unquote(urlsplit(path).path, errors="surrogateescape") if path.startswith("file:") else path


def formers(path: Path) -> list[Path]:
    """Return the write-ahead logs that were set aside beside one."""
    return [Path(each) for each in numbered(path, FORMER_SUFFIX)]


def file_id(path: str) -> tuple[int, int] | None:
    """Return the device and the number of the file that a path names; None where there is none, and for ""."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def open_status(file: tuple[int, int]) -> os.stat_result | None:
    """Return the status of a file that this process has open, which may have no name.

    Args:
        file: as `file_id` returns it.

    Returns:
        None where it is not open, or the system does not list what a process has open.
    """
    return next((status for _, status in _own_descriptors(file)), None)


def open_name(file: tuple[int, int]) -> str:
    """Return the path that a file has now which this process has open; "" where the system does not say it.

    Args:
        file: as `file_id` returns it.
    """
    for descriptor, _ in _own_descriptors(file):
        with suppress(OSError):
            name = os.readlink(f"{_DESCRIPTORS}/{descriptor}")
            # A file that was deleted has a name that is another file's, or none's.
            if file_id(name) == file:
                return name
    return ""


def _own_descriptors(file: tuple[int, int]) -> Iterator[tuple[int, os.stat_result]]:
    """Yield the descriptors by which this process has a file open, and its status by each."""
    try:
        descriptors = os.listdir(_DESCRIPTORS)
    except OSError:
        return
    for descriptor in descriptors:
        # Other threads close theirs meanwhile, as `listdir` its own.
        with suppress(OSError):
            status = os.fstat(int(descriptor))
            if (status.st_dev, status.st_ino) == file:
                yield int(descriptor), status


def holders(path: str) -> dict[int, str]:
    """Find the processes that have a log open whose file was deleted, or replaced by another one, ascending.

    Args:
        path: that the file had, after links.

    Returns:
        By those that this user may see, the path under which Linux shows the file; empty on other systems.
    """
    deleted, found = f"{path}{_DELETED}", dict[int, str]()
    for descriptor in _all_descriptors():
        # Of other users, or closed meanwhile.
        with suppress(OSError):
            if os.readlink(descriptor) == deleted and _is_deleted_log(descriptor):
                found[int(descriptor.split("/")[2])] = descriptor
    return dict(sorted(found.items()))


def _all_descriptors() -> Iterator[str]:
    """Yield the paths under which Linux shows what processes have open, of those that this user may see."""
    # Not by `glob`, which matches each of the thousands of names, in five times the time.
    with suppress(OSError):
        for process in os.listdir(_PROCESSES):
            if process.isdecimal():
                with suppress(OSError):
                    folder = f"{_PROCESSES}/{process}/fd"
                    for descriptor in os.listdir(folder):
                        yield f"{folder}/{descriptor}"


def _is_deleted_log(descriptor: str) -> bool:
    """Return whether what a process has open is a file without a name that has the tables of a log.

    Any process may have had a file of the name, also in a file system that only it sees. The identity says less: the
    count may be that of another log since.

    Args:
        descriptor: the path by which Linux shows it.
    """
    status = os.stat(descriptor)
    if status.st_nlink or not stat.S_ISREG(status.st_mode):
        return False
    # Closing another descriptor of a file would release the locks that SQLite has on it for this process.
    for own, _ in _own_descriptors((status.st_dev, status.st_ino)):
        return _TABLE in os.pread(own, _SCHEMA_BYTES, 0)
    with open(descriptor, "rb", buffering=0) as file:
        return _TABLE in file.read(_SCHEMA_BYTES)


def how_to_keep(path: str, found: Mapping[int, str]) -> str:
    """Return sentences about the content of a file that has lost its name, which processes have open.

    Args:
        path: that the file had, after links.
        found: by the processes, where they have the file open, as `holders` finds them.
    """
    # Of a process that has the write-ahead log as well, both go with each other.
    logs = {descriptor: log for descriptor in found.values() if (log := _log_beside(path, descriptor))}
    descriptor = next(iter(logs or found.values()))
    log = logs.get(descriptor, "")
    if not log and not os.path.lexists(path) and has_content(wal_of(path)):
        log = shell_path(wal_of(path))
    copy = f"cp {descriptor} COPY && {f'cp {log} COPY-wal && ' if log else ''}gossiplog verify COPY"
    return (
        f"The program may be the only one that has it. Before you stop it, {copy} makes a copy. A program that writes"
        " to the log with gossiplog (the server) saves all itself: stop it with Ctrl-C or SIGTERM, not with SIGKILL,"
        f" and it is in {path}{SAVED_SUFFIX}; gossiplog sync COPY SERVER --topic TOPIC, with the server's ws://"
        " address, gets a copy until then. A reader of the log, sqlite3 or tail saves nothing"
    )


def _log_beside(path: str, descriptor: str) -> str:
    """Return where a process that has a database open has its write-ahead log open, "" if it has not."""
    wal = str(wal_of(path))
    for other in glob.iglob(f"{os.path.dirname(descriptor)}/*"):
        with suppress(OSError):
            if os.readlink(other) in (wal, f"{wal}{_DELETED}"):
                return other
    return ""


def is_settled(changed: int, now: int) -> bool:
    """Return whether another change would get another time stamp than the last one, both in nanoseconds."""
    return changed + (_STAMP_NANOSECONDS if changed % 10**9 else _WHOLE_STAMP_NANOSECONDS) < now


class NamedFiles:
    """Whether paths still name the files that they named.

    Naming, moving and deleting a file change the time of its folder, so that mostly only the folder is looked at.
    After `stat` of a file, its next write gets a time stamp of its own
    (https://docs.kernel.org/filesystems/multigrain-ts.html), so that each flush would write the inode as well.

    Args:
        files: what `file_id` found, by the paths, which are absolute; None where a path names nothing.
    """

    def __init__(self, files: Mapping[str, tuple[int, int] | None]) -> None:
        self._files = files
        # A link may lead to any folder.
        has_links = any(map(os.path.islink, files))
        self._folders = [] if has_links else sorted({os.path.dirname(path) for path in files})
        # Of the folders, when the files were last looked at; empty where that was soon after a change.
        self._stamps: list[tuple[int, int, int]] = []
        # When nothing was found to be lost, on the monotonic clock.
        self._found_at = -math.inf

    def find_lost(self, *, is_last: bool = False) -> str | None:
        """Return the first path that names another file now, or none; None where each names its own.

        Paths that named nothing may name anything. For two milliseconds after a look nothing is looked at: it would
        take a tenth of the time of commits that follow each other.

        Args:
            is_last: whether no look follows, so that this one is made in any case.
        """
        asked_at = time.monotonic_ns()
        if not is_last and asked_at - self._found_at < _TRUSTED_NANOSECONDS:
            return None
        stamps = self._read_stamps()
        if stamps and stamps == self._stamps:
            self._found_at = asked_at
            return None
        for path, named in self._files.items():
            if named is not None and file_id(path) != named:
                return path
        # What is done to a folder soon after a change may leave its time as it is.
        now = time.time_ns()
        self._stamps = stamps if all(is_settled(modified, now) for _, _, modified in stamps) else []
        self._found_at = asked_at
        return None

    def is_named(self, path: str, *, by: str) -> bool:
        """Return whether the file that a path named has another path's name."""
        return file_id(by) == self._files[path]

    def _read_stamps(self) -> list[tuple[int, int, int]]:
        """Return which folders the paths lead to, and when these were last changed; nothing where one is missing."""
        try:
            return [(status.st_dev, status.st_ino, status.st_mtime_ns) for status in map(os.stat, self._folders)]
        except OSError:
            return []


def check_journal(path: str) -> None:
    """Refuse a rollback journal that makes SQLite delete another file.

    SQLite undoes what a journal beside a database says was left half done. If that names the journal of a transaction
    over several databases, it deletes that file then, whatever it is (https://sqlite.org/fileformat2.html, "The
    Rollback Journal"; `pager_delsuper`). A stranger's journal may name any file of the user. A log's own transactions
    are over one database.

    Args:
        path: of the database, or its URI.

    Raises:
        StorageError: there is such a journal, or something that is no file.
    """
    # SQLite, too, follows links before it looks for the journal.
    journal = os.path.realpath(file_of(path)) + "-journal"
    try:
        status = os.stat(journal)
        # A pipe would be waited for.
        is_file = stat.S_ISREG(status.st_mode)
        with open(journal if is_file else os.devnull, "rb") as stream:
            stream.seek(max(0, status.st_size - len(_JOURNAL_MAGIC)))
            names_another = stream.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    except (OSError, ValueError):
        # There is none, as nearly always, or SQLite cannot read it either.
        return
    if names_another or not is_file:
        fault = "names another file, which SQLite would delete" if is_file else "is no file"
        raise StorageError(
            f"cannot open {path}: the journal {journal} {fault}. If you trust who wrote it, let that program open the"
            " database first; else delete the journal, or open a copy of the database without it"
        )


def check_unlocked(path: str) -> None:
    """Refuse a URI with `immutable=1` of a database that is not all in its file: SQLite would pass over the rest.

    Args:
        path: of the database, or its URI.

    Raises:
        StorageError: a program writes to the database, or has ended before it was done.
    """
    if not _IMMUTABLE_URI.match(path):
        return
    real = os.path.realpath(file_of(path))
    for rest in (str(wal_of(real)), f"{real}-journal"):
        if os.path.exists(rest) and os.path.getsize(rest):
            raise StorageError(
                f"cannot open {path}: immutable=1 leaves out what is in {rest}. Open the database without it, in a"
                " folder that you may write to: copy both files there, or have the owner of the log open it"
            )


def existing_uri(path: str) -> str:
    """Return a URI with which SQLite opens an existing database and creates none (https://sqlite.org/uri.html).

    Its mode is not `ro`: the last such connection leaves files of the write-ahead log, owned by its own user, which may
    keep the owner of the log out.
    """
    if path == MEMORY:
        return path
    uri, mark, fragment = (path if path.startswith("file:") else Path(path).absolute().as_uri()).partition("#")
    if re.search(r"[?&](mode|immutable)=", uri):
        return path
    return f"{uri}{'&' if '?' in uri else '?'}mode=rw{mark}{fragment}"
