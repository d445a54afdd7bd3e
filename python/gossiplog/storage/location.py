"""Which storage a location names: the one place that knows the kinds."""

from __future__ import annotations

import os
import re

from gossiplog.errors import StorageError
from gossiplog.storage.base import Storage
from gossiplog.storage.sqlite import SQLiteStorage, Synchronous
from gossiplog.storage.sqlite_files import text_path

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*)://")


def storage_at(
    location: str | os.PathLike[str] | Storage,
    synchronous: Synchronous = "full",
    *,
    read_only: bool = False,
    accept_loss: bool = False,
) -> Storage:
    """Return the storage of a location, not opened yet.

    Args:
        location: the path of an SQLite file, ":memory:", a URI that begins with "file:", or a storage, which is
            returned as it is.
        synchronous: as `SQLiteStorage` takes it.
        read_only: likewise.
        accept_loss: likewise; a storage has a setting of its own.

    Raises:
        StorageError: a URL of an unknown kind.
        TypeError: a location that is no path.
        ValueError: `read_only` with a storage, which has a setting of its own.
    """
    if isinstance(location, Storage):
        if read_only:
            raise ValueError(
                "read_only is for paths: give it to the storage, as in SQLiteStorage(path, read_only=True)"
            )
        return location
    if is_url(path := text_path(location)):
        raise StorageError(
            f"no storage for {path.partition('://')[0]}:// locations: expected the path of a file, ':memory:' or a"
            " Storage"
        )
    return SQLiteStorage(location, synchronous=synchronous, read_only=read_only, accept_loss=accept_loss)


def is_url(location: str) -> bool:
    """Return whether a location names a database by a URL: it is no file then, and holds no pattern."""
    scheme = _SCHEME.match(location)
    return scheme is not None and scheme[1] != "file"
