"""Opening a log to read it, in the state in which it was found: what a job reads is of one log, in one state.

A task opens what it reads for itself. Another log may have taken the place of the one that was found, or take it while
it is read: that is an error, and nothing comes of both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gossiplog.errors import CorruptLog, LogReplaced, StorageError
from gossiplog.spark.source import remote
from gossiplog.spark.source.fleet import FoundLog, KeyRange, OpenedLog, split_open
from gossiplog.spark.source.locations import file_id_of, identity, locations, shown, without_password
from gossiplog.spark.source.locks import LockPatience, is_locked
from gossiplog.spark.source.marks import check_mark, is_replaced, is_written_over, mark_of, replaced
from gossiplog.storage import Storage
from gossiplog.storage.location import is_url, storage_at
from gossiplog.storage.sqlite.files import file_of, wal_of


@contextmanager
def opened(
    location: str, topic: str | None = None, patience: LockPatience | None = None
) -> Iterator[tuple[Storage, str]]:
    """Open a log's storage for a block that reads it, which gets it with its topic.

    Args:
        location: of the log. One on a file system that is not mounted is copied as a whole for each block.
        topic: what it must have; None takes any.
        patience: where the log is one of many; None waits for a lock as long as everywhere.

    Raises:
        StorageError: what opening or reading it raises, with the location.
    """
    location = without_password(location)
    before = file_id_of(location)
    with remote.mounted(location) as place:

        def named(text: str) -> str:
            # In one line: no more comes of an error that a worker raised.
            return text.replace(place, shown(location))

        storage = storage_at(place, read_only=True, lock_timeout=None if patience is None else patience.seconds)
        has_failed = False
        try:
            yield storage, storage.open(topic, create=False)
        except StorageError as error:
            has_failed = True
            is_other = isinstance(error, LogReplaced) or _is_other_file(storage, location, before)
            if is_other and not is_replaced(error):
                # No damage, and nothing to repair: what was read may be of both.
                raise replaced(shown(location)) from None
            if isinstance(error, CorruptLog):
                # A read may have many logs: its message says only what is wrong. Some name the log themselves.
                problems = [named(problem) for problem in error.problems]
                problems = [text if shown(location) in text else f"{shown(location)}: {text}" for text in problems]
                raise CorruptLog(problems) from error
            if patience is not None and is_locked(error):
                patience.spend()
            # Nobody knows a copy, which is gone when the error is read.
            error.args = tuple(named(part) if isinstance(part, str) else part for part in error.args)
            raise
        finally:
            try:
                storage.close()
            except StorageError:
                # What it says of the file is known by another error.
                if not has_failed:
                    raise


def _is_other_file(storage: Storage, location: str, before: tuple[int, int] | None) -> bool:
    """Return whether another file is in the place of a log's, or was written over it, since it was opened."""
    if before is None or (now := file_id_of(location)) is None:
        return False
    return now != before or is_written_over(storage)


def look_at(location: str, topic: str | None = None, patience: LockPatience | None = None) -> FoundLog:
    """Open a log to see what there is to do. One that is not mounted is not opened, since that takes a copy.

    Args:
        location: of the log.
        topic: that it must have; None takes any.
        patience: as `opened` takes it.

    Raises:
        TopicMismatch: it has another topic.
        StorageError: it cannot be read.
    """
    if remote.is_remote(location):
        return FoundLog(location, identity(location), topic, remote.size_of(location))
    with opened(location, topic, patience) as (storage, own):
        mark = mark_of(storage)
        return OpenedLog(location, identity(location), own, storage.size(), mark.count, mark)


def unopened(location: str, topic: str | None = None) -> FoundLog:
    """Return a log without opening it, whose state is that which its task finds.

    Its size is that of its file and of what stands in the write-ahead log; 0 where that is not known.
    """
    size = 0
    if not is_url(location):
        path = file_of(location)
        for part in (path, wal_of(path)):
            try:
                size += os.stat(part).st_size
            except OSError:
                # Whoever opens the log says what is wrong with it.
                continue
    return FoundLog(location, identity(location), topic, size)


@contextmanager
def opened_log(log: FoundLog, patience: LockPatience | None = None) -> Iterator[tuple[Storage, OpenedLog]]:
    """Open a log for a block that reads it in the state in which it was found, or that which it has if none is known.

    Args:
        log: to be opened.
        patience: as `opened` takes it.

    Yields:
        Its storage, and the log in that state.

    Raises:
        CursorOutdated: it was rebased since it was found, or amid the block.
        TopicMismatch: it has another topic.
        StorageError: it cannot be read, or another log is in its place since it was found, or amid the block.
    """
    # Of one that was opened before, the mark says whether another is in its place, of whatever topic.
    with opened(log.location, None if isinstance(log, OpenedLog) else log.topic, patience) as (storage, topic):
        if isinstance(log, OpenedLog):
            check_mark(log.name, storage, log.mark)
            own = log
        else:
            mark = mark_of(storage)
            own = OpenedLog(log.name, log.location, topic, log.size or storage.size(), mark.count, mark)
        yield storage, own
        check_mark(log.name, storage, own.mark)


def split(
    log: FoundLog,
    parts: int,
    first: bytes = b"",
    last: bytes | None = None,
    patience: LockPatience | None = None,
) -> list[KeyRange]:
    """Return ranges of a log of about equal numbers of messages, at keys of the tree's level 1.

    Args:
        log: is opened where it is to be split. One that is copied is not.
        parts: about how many.
        first: the least key, itself included.
        last: the key before which they end, None at the end of the log.
        patience: as `opened` takes it.

    Raises:
        StorageError: the log cannot be read.
    """
    if last is not None and last <= first:
        return []
    if parts < 2 or remote.is_remote(log.location):
        return [KeyRange(log, first, last, log.weight)]
    with opened_log(log, patience) as (storage, own):
        return split_open(storage, own, parts, first, last)


def check_logs(
    paths: Iterable[str], topic: str | None = None, *, recursive: bool = False, name_filter: str | None = None
) -> dict[str, str | None]:
    """Check that each log can be opened, and return the topics by the locations.

    Of a log on a file system that is not mounted, only its file is looked for, and the topic is None: to open it takes
    a copy.

    Args:
        paths: as `locations` takes them.
        topic: that each log must have; None takes any.
        recursive: as `locations` takes it.
        name_filter: likewise.

    Raises:
        OptionError: as `locations`.
        TopicMismatch: a log has another topic.
        StorageError: a log is not there, or cannot be read.
    """
    topics: dict[str, str | None] = {}
    for location in locations(paths, recursive=recursive, name_filter=name_filter):
        if remote.is_remote(location):
            remote.size_of(location)
            topics[location] = None
            continue
        with opened(location, topic) as (_, topics[location]):
            pass
    return topics
