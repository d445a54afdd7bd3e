"""The logs that a read names: paths, patterns, URLs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gossiplog.errors import CorruptLog, NotALog
from gossiplog.storage import Storage
from gossiplog.storage.location import is_url, storage_at


def locations(paths: Iterable[str]) -> list[str]:
    """The locations of logs, each once, in the order of the paths; those of a pattern in the order of their names.

    Args:
        paths: of files, patterns as `glob` has them, "file:" URIs (also Spark's own, as file:///data/chat.db), or URLs
            of databases.

    Raises:
        NotALog: a file that is not there, a folder, or a pattern that no file has.
    """
    found: dict[str, str] = {}
    for path in paths:
        for location in _matching(path):
            found.setdefault(identity(location), location)
    return list(found.values())


def identity(location: str) -> str:
    """The one location among those of the same log that does not depend on links or the working folder."""
    return location if is_uri(location) else os.path.realpath(location)


def is_uri(location: str) -> bool:
    """Whether a location is no plain path."""
    return is_url(location) or location.startswith("file:")


def _matching(path: str) -> list[str]:
    if is_uri(path):
        return [path]
    if os.path.isdir(path):
        raise NotALog(f"{path} is a folder: name the logs in it with a pattern, as {os.path.join(path, '*.db')}")
    if os.path.exists(path):
        return [path]
    if not glob.has_magic(path):
        raise NotALog(f"there is no log {path}")
    matches = [match for match in sorted(glob.glob(path, recursive=True)) if os.path.isfile(match)]
    if not matches:
        raise NotALog(f"no file fits the pattern {path}")
    return matches


@contextmanager
def opened(location: str, topic: str | None = None) -> Iterator[tuple[Storage, str]]:
    """A log's storage, open for a block, and its topic.

    Args:
        location: of the log.
        topic: what it must have; None takes any.

    Raises:
        StorageError: what opening or reading it raises, with the location.
    """
    storage = storage_at(location)
    try:
        yield storage, storage.open(topic, create=False)
    except CorruptLog as error:
        # A read may have many logs: its message says only what is wrong.
        raise CorruptLog([f"{location}: {problem}" for problem in error.problems]) from error
    finally:
        storage.close()
