"""What tells a log that a job reads from another one that takes its place amid the job.

Tasks open a log for themselves, one after the other: what they read of two logs must not come to one figure. A file may
be replaced by a rebase, a repair, a backup or anybody, and so may a schema in Postgres.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

from gossiplog.errors import CorruptLog, CursorOutdated, LogChanged, StorageError
from gossiplog.spark.source.locations import shown
from gossiplog.spark.source.offsets import digest
from gossiplog.storage import Storage
from gossiplog.storage.location import storage_at
from gossiplog.storage.sqlite.files import file_id


@dataclass(frozen=True, slots=True)
class LogMark:
    """A log in one state, as another one in its place is not.

    Attributes:
        identity: of the database; b"" where it is not known, as in a file that an earlier version wrote.
        generation: of the log.
        count: of messages.
        digest: of the last one; None where there is none that can be read.
        file: the machine, the device and the number of the file; None where the log is in none, or in a copy.
    """

    identity: bytes
    generation: int
    count: int
    digest: str | None
    file: tuple[str, int, int] | None


def mark_of(storage: Storage) -> LogMark:
    """Return what a log is known by in the state that it has now.

    Args:
        storage: of the log, open.

    Raises:
        CorruptLog: what it says of its state cannot be.
        StorageError: it cannot be read.
    """
    file = _file(storage)
    with storage.reader(single=True) as reader:
        position = reader.position()
    last = _digest(storage, position.count)
    return LogMark(storage.identity, position.generation, position.count, last, file)


def check_mark(name: str, storage: Storage, mark: LogMark) -> None:
    """Check that a log is the one that was found, in that state or a later one.

    Args:
        name: of the log, in errors.
        storage: of the log, open.
        mark: of what was found.

    Raises:
        CursorOutdated: it was rebased since.
        LogChanged: it is another one.
        StorageError: it cannot be read.
    """
    try:
        storage.check_files()
    except StorageError:
        # What is read of a file that was written over may be of both. Jobs name damage.
        if storage.file is None or is_written_over(storage):
            raise replaced(name) from None
    file = _file(storage)
    with storage.reader(single=True) as reader:
        position = reader.position()
    check_generation(name, mark, position.generation)
    is_same = storage.identity == mark.identity and position.count >= mark.count and _may_be(file, mark.file)
    if not is_same or _digest(storage, mark.count) not in (mark.digest, None):
        raise replaced(name)


def check_generation(name: str, mark: LogMark, generation: int) -> None:
    """Check that the sequences of a log are not other messages' by now.

    Args:
        name: of the log, in errors.
        mark: of what was found.
        generation: of the log now.

    Raises:
        CursorOutdated: they are.
    """
    if generation != mark.generation:
        raise CursorOutdated(
            f"{shown(name)} was rebased while it was read (generation {generation}, the read is of {mark.generation}):"
            " run the job again",
            mark.generation,
            generation,
        )


def replaced(name: str) -> LogChanged:
    """Return the error of a log in whose place another one is."""
    return LogChanged(f"{shown(name)} was replaced while the job read it: run the job again")


def is_replaced(error: BaseException) -> bool:
    """Return whether an error says that another log is in the place of the one that was to be read."""
    return isinstance(error, CursorOutdated | LogChanged)


def is_written_over(storage: Storage) -> bool:
    """Return whether a log is by now in the file of one that is open which is another one."""
    if not storage.identity:
        return False
    with closing(storage_at(storage.place, read_only=True, lock_timeout=0.0)) as there:
        try:
            there.open(None, create=False)
        except StorageError:
            return False
        return there.identity != storage.identity


def _digest(storage: Storage, sequence: int) -> str | None:
    if sequence == 0:
        return None
    try:
        with storage.reader(single=True) as reader:
            rows = reader.arrivals(sequence - 1, 1)
    except CorruptLog:
        # Jobs name what is damaged.
        return None
    return digest(rows[0][1]) if rows and rows[0][0] == sequence else None


def _file(storage: Storage) -> tuple[str, int, int] | None:
    # What a URI names may be a copy that is made for each task, or a file that nobody changes.
    if storage.file is None or storage.place.startswith("file:") or (found := file_id(str(storage.file))) is None:
        return None
    return os.uname().nodename, *found


def _may_be(file: tuple[str, int, int] | None, other: tuple[str, int, int] | None) -> bool:
    """Return whether two files may be one. Each machine has numbers of its own for devices."""
    return file is None or other is None or file[:2] != other[:2] or file == other
