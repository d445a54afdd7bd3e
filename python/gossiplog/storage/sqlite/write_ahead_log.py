"""A write-ahead log of SQLite, read and written byte by byte (https://sqlite.org/fileformat2.html, "WAL File Format").

SQLite ends where a checksum is wrong, and what was committed after that is lost. Here each page is taken as it stands,
up to the last commit, and its damage is left to the checks of the database.
"""

from __future__ import annotations

import errno
import filecmp
import os
import sqlite3
import struct
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from gossiplog.errors import StorageError
from gossiplog.files import add_name, copy_owner, publish, sync
from gossiplog.reprs import counted, shell_path
from gossiplog.storage.sqlite.files import FORMER_SUFFIX, file_id, file_of, move_command, numbered_names, wal_of
from gossiplog.storage.sqlite.pages import page_size

_CHUNK = 2**20
_HEADER = 32
_FRAME_HEADER = 24
# Of a file whose checksums are over words with the smallest byte first.
_MAGIC = 0x377F0682
_FORMAT = 3007000
# What another process is writing at this moment may look like damage.
_LOOKS = 5
_MOST_FORMER = 1000
_BETWEEN_SECONDS = 0.02
# To wait for another process's lock as a connection is closed.
_LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Committed:
    """What was committed to a write-ahead log.

    Attributes:
        page_size: in bytes.
        places: by the number of a page, from 1 on, where the latest version of it begins in the file.
        length: how many pages the database has after the last commit; the number may be damaged.
    """

    page_size: int
    places: Mapping[int, int]
    length: int


def _committed(log: BinaryIO) -> _Committed:
    """Find what was committed to a write-ahead log."""
    header = log.read(_HEADER)
    size = page_size(bytes(16) + header[10:12])
    frames: list[tuple[bytes, int, int, int]] = []
    for frame in _frames(log, size):
        page, pages = int.from_bytes(frame[:4]), int.from_bytes(frame[4:8])
        frames.append((frame[8:16], page, pages, log.tell() - size))
    salt = _salt(header, (salt for salt, *_ in frames))
    current = [frame for frame in frames if frame[0] == salt]
    commits = [index for index, (_, _, pages, _) in enumerate(current) if pages]
    if not commits:
        return _Committed(size, {}, 0)
    current = current[: commits[-1] + 1]
    length = current[-1][2]
    return _Committed(size, {page: start for _, page, _, start in current if 0 < page <= length}, length)


def _frames(log: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the frames of a write-ahead log with pages of a size, with their headers."""
    log.seek(_HEADER)
    while len(frame := log.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
        yield frame


def _salt(header: bytes, salts: Iterable[bytes]) -> bytes:
    """Return the salts of the frames that belong to a header: those of an earlier use of the file have others.

    Args:
        header: of the write-ahead log; where it is damaged, its own salts may be what is.
        salts: of the frames, in order; zeros where the beginning was cut off while a program wrote on.
    """
    if _is_sound(header):
        return header[16:24]
    found = Counter(islice(filter(any, chain([header[16:24]], salts)), 3)).most_common(1)
    return found[0][0] if found else b""


def _is_sound(header: bytes) -> bool:
    """Return whether the header of a write-ahead log has the checksum that it should have."""
    if len(header) < _HEADER or not any(header):
        return False
    return _checksum(header[:24], (0, 0), _order(header)) == struct.unpack(">II", header[24:])


def _order(header: bytes) -> str:
    """Return the order of the bytes in the words that checksums are over."""
    return ">" if header[3] & 1 else "<"


def copy_with_log(descriptor: int, path: Path, target: Path) -> None:
    """Copy a database, with what was committed to its write-ahead log in its place.

    Args:
        descriptor: of the database.
        path: of the database.
        target: the copy, to be made.

    Raises:
        StorageError: SQLite has yet to undo a transaction of another kind.
    """
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and journal.stat().st_size:
        raise StorageError(
            f"{journal} has a transaction to be undone: gossiplog info {shell_path(path)} does that. If it cannot, the"
            f" file is damaged as well: {move_command(journal, FORMER_SUFFIX)}. Then run this command again"
        )
    with target.open("wb") as copy:
        copy_bytes(descriptor, copy)
        wal = wal_of(path)
        if wal.exists():
            with wal.open("rb") as log:
                committed = _committed(log)
                size = committed.page_size
                for page, start in sorted(committed.places.items()):
                    log.seek(start)
                    copy.seek((page - 1) * size)
                    copy.write(log.read(size))
                copy.flush()
                # A damaged length may be anything; SQLite passes over pages that no table has.
                if 0 < committed.length * size <= os.fstat(copy.fileno()).st_size:
                    copy.truncate(committed.length * size)
        copy.flush()
        os.fsync(copy.fileno())


def copy_bytes(descriptor: int, copy: BinaryIO) -> None:
    """Copy what a descriptor has open."""
    offset = 0
    while chunk := os.pread(descriptor, _CHUNK, offset):
        copy.write(chunk)
        offset += len(chunk)


def move_into_database(descriptor: int, path: Path, merged: Path) -> None:
    """Move what was committed to a write-ahead log into its database, and remove the log.

    First another log takes its place, in one step, with the same pages and checksums that are right: from then on
    SQLite reads all of it, and reads the same before, while and after the pages are written to the database.

    Args:
        descriptor: of the database, which this process has locked.
        path: of the database.
        merged: what `copy_with_log` made; another file is made beside it.

    Raises:
        OSError: the file system failed. The database is whole.
    """
    wal = wal_of(path)
    if wal.exists():
        with wal.open("rb") as log:
            committed = _committed(log)
        if committed.places:
            rewritten = wal_of(merged)
            _write(rewritten, merged, committed)
            copy_owner(str(path), str(rewritten))
            sync(str(rewritten))
            # The index of the former one.
            path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
            os.replace(rewritten, wal)
            sync(str(path.parent))
            with merged.open("rb") as pages:
                for page in committed.places:
                    offset = (page - 1) * committed.page_size
                    os.pwrite(descriptor, os.pread(pages.fileno(), committed.page_size, offset), offset)
                os.ftruncate(descriptor, os.fstat(pages.fileno()).st_size)
            os.fsync(descriptor)
    for companion in ("-shm", "-wal"):
        path.with_name(f"{path.name}{companion}").unlink(missing_ok=True)
    sync(str(path.parent))


def _write(wal: Path, merged: Path, committed: _Committed) -> None:
    """Write a write-ahead log of one transaction, with the pages that another one has, as they are in a file."""
    size = committed.page_size
    salts = os.urandom(8)
    header = struct.pack(">IIII", _MAGIC, _FORMAT, size, 0) + salts
    checksum = _checksum(header, (0, 0), "<")
    with merged.open("rb") as source, wal.open("wb") as target:
        target.write(header + struct.pack(">II", *checksum))
        numbers = sorted(committed.places)
        for page in numbers:
            content = os.pread(source.fileno(), size, (page - 1) * size)
            length = os.fstat(source.fileno()).st_size // size if page == numbers[-1] else 0
            frame = struct.pack(">II", page, length)
            checksum = _checksum(frame + content, checksum, "<")
            target.write(frame + salts + struct.pack(">II", *checksum) + content)


def unread_commits(path: Path) -> int:
    """Return how many transactions of a write-ahead log SQLite would not read, because a checksum is wrong.

    Args:
        path: of the write-ahead log, which need not exist.
    """
    if not path.exists():
        return 0
    with path.open("rb") as log:
        header = log.read(_HEADER)
        if len(header) < _HEADER:
            return 0
        size = page_size(bytes(16) + header[10:12])
        order, checksum, sound = _order(header), struct.unpack(">II", header[24:]), _is_sound(header)
        salt = _salt(header, (frame[8:16] for frame in _frames(log, size)))
        unread = 0
        for frame in _frames(log, size):
            if frame[8:16] != salt:
                # What an earlier use left, unless it is the damage.
                sound = False
                continue
            if sound:
                checksum = _checksum(frame[:8] + frame[_FRAME_HEADER:], checksum, order)
                sound = checksum == struct.unpack(">II", frame[16:24])
            # The last page of a transaction has the size of the database.
            unread += not sound and any(frame[4:8])
    return unread


def unread_for_good(path: Path) -> int:
    """Return what `unread_commits` does, 0 where it is that of a program that writes at this moment."""
    found = 0
    for look in range(_LOOKS):
        if look:
            time.sleep(_BETWEEN_SECONDS)
        if not (found := unread_commits(path)):
            break
    return found


def describe_unread(path: Path, unread: int, by: str = "the next program that opens the log") -> str:
    """Return a clause about a write-ahead log with transactions that SQLite does not read.

    Args:
        path: of the write-ahead log.
        unread: how many there are.
        by: what drops them.
    """
    return (
        f"{path} is damaged, or a power cut came in the midst of a commit: {by} drops {counted(unread, 'transaction')}"
    )


def keep_former(path: Path) -> str:
    """Copy a write-ahead log to a free name beside it, unless there is such a copy already.

    Returns:
        The path of the copy.

    Raises:
        OSError: it cannot be written, as on a full disk, or a thousand such names are taken.
    """
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
    try:
        with path.open("rb") as log, partial.open("xb") as copy:
            copy_bytes(log.fileno(), copy)
            copy.flush()
            os.fsync(copy.fileno())
        copy_owner(str(path), str(partial))
        for former in islice(numbered_names(path, FORMER_SUFFIX), _MOST_FORMER):
            with suppress(FileExistsError):
                publish(partial, former)
                return former
            if filecmp.cmp(partial, former, shallow=False):
                return former
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), former)
    finally:
        with suppress(OSError):
            os.unlink(partial)


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    """Return the checksum of a write-ahead log ("WAL File Format", "Checksum Algorithm")."""
    one, two = before
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


class WatchedLog:
    """The write-ahead log of a database that is open: how long it is, and whether it was cut off.

    SQLite goes on where it knows the end to be. What was cut off before reads as zeros then, without an error, and a
    checkpoint moves these into the database.

    Args:
        path: of the write-ahead log, which need not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = file_id(path)
        self.size = 0
        """In bytes, when it was last looked at."""
        self.frames = 0
        """How many were found since it last began. The last ones may be of a transaction that was rolled back, and
        others take their place then; but none of them is taken away until it begins anew."""
        self.is_cut_off = False
        """Whether frames were missing."""
        self._salts = b""
        self._lock = threading.Lock()
        with suppress(OSError), self._opened() as (descriptor, header, self.size):
            self._salts, frame = header[16:24], _frame_size(header)
            ends = range(_HEADER + frame, self.size + 1, frame)
            # Those of an earlier use follow.
            self.frames = bisect_left(ends, True, key=lambda end: not _has_salts(descriptor, end - frame, self._salts))

    def look(self) -> None:
        """Look at it anew, if it can be opened."""
        # Connections of readers are closed on their threads.
        with self._lock, suppress(OSError), self._opened() as (descriptor, header, size):
            # Another file in its place is not this one, which SQLite still has.
            is_cut_off = self._is_cut_off(descriptor, header, size) and self._file in (None, _id_of(descriptor))
            self.is_cut_off = self.is_cut_off or is_cut_off
            self.size = size

    def _is_cut_off(self, descriptor: int, header: bytes, size: int) -> bool:
        salts, frame = header[16:24], _frame_size(header)
        if salts == bytes(8):
            # Of a log without a header that a crash has left, SQLite reads nothing.
            return self.frames > 0 or salts != self._salts
        if salts != self._salts:
            self._salts, self.frames = salts, 0
        end = _HEADER + self.frames * frame
        if self.frames and _is_missing(descriptor, end - frame):
            # Unless it began anew, or was emptied, in the midst of this look.
            return os.pread(descriptor, 8, 16) == salts
        while _has_salts(descriptor, end, salts):
            end += frame
        self.frames = (end - _HEADER) // frame
        # Zeros may be what a crash has left, but not where the file has grown since.
        is_hole = self.size <= end <= size - frame and _is_missing(descriptor, end)
        return is_hole and os.pread(descriptor, 8, 16) == salts

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, bytes, int]]:
        """Provide a descriptor, the header and the size."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # After `stat` the next write to a file costs more: see `NamedFiles`.
            yield descriptor, os.pread(descriptor, _HEADER, 0), os.lseek(descriptor, 0, os.SEEK_END)
        finally:
            os.close(descriptor)


def _id_of(descriptor: int) -> tuple[int, int]:
    """Return what `file_id` returns of the path of an open file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _has_salts(descriptor: int, start: int, salts: bytes) -> bool:
    """Return whether a frame from here on has the salts of a header; False where there is no header."""
    return any(salts) and os.pread(descriptor, 8, start + 8) == salts


def _is_missing(descriptor: int, start: int) -> bool:
    """Return whether no frame was ever written here: each has the number of a page.

    Not each has the salts of the header. A transaction that writes a page twice, and is too large for SQLite's memory,
    leaves frames without salts where it is rolled back (`walEncodeFrame` of SQLite, `iReCksum`).
    """
    return not any(os.pread(descriptor, _FRAME_HEADER, start))


def _frame_size(header: bytes) -> int:
    """Return the size of a frame of a write-ahead log with this header."""
    return _FRAME_HEADER + page_size(bytes(16) + header[10:12])


def close_leaving_log(connection: sqlite3.Connection, path: str, lock_timeout: float) -> None:
    """Close a connection to the database at a path, and have SQLite leave the write-ahead log as it is.

    Otherwise the last connection moves what SQLite reads of it into the file, and removes the rest, from which `repair`
    may get back what was lost.

    Args:
        connection: to be closed.
        path: of the database.
        lock_timeout: the seconds to wait for another process's lock, five at most: who holds it has the log open, too.
    """
    database = os.path.realpath(file_of(path))
    if not os.path.exists(database):
        # SQLite, too, leaves the write-ahead log of a file that has lost its name.
        connection.close()
        return
    if os.path.getsize(database):
        with ExitStack() as stack:
            # Where no other connection can be made, this one has not opened the write-ahead log either. The other one
            # opens it, and holds the lock, even where the database cannot be read.
            with suppress(sqlite3.Error, UnicodeError):
                uri = f"{Path(database).as_uri()}?mode=ro"
                last = stack.enter_context(
                    closing(sqlite3.connect(uri, timeout=min(lock_timeout, _LOCK_SECONDS), uri=True))
                )
                last.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            connection.close()
        return
    # SQLite deletes the write-ahead log of an empty file that it opens.
    wal = wal_of(database)
    # `doctor` finds it by this name after a kill.
    kept = f"{wal}{FORMER_SUFFIX}-{int.from_bytes(os.urandom(4))}"
    try:
        is_kept = add_name(wal, kept)
    except FileNotFoundError:
        connection.close()
        return
    if not is_kept:
        # A file system without hard links. Imported here, since few are.
        import shutil

        shutil.copyfile(wal, kept)
    connection.close()
    try:
        publish(kept, wal)
    except FileExistsError:
        # Another program has the database open.
        os.unlink(kept)
    else:
        os.truncate(database, 0)
