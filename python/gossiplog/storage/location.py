"""Which storage a location names: the one place that knows the kinds.

A location is the path of a file, SQLite's ":memory:" or a URI of its that begins with "file:", the URL of a log in
Postgres, or a storage. Other URLs are none: those of hubs name a log that a sync reads, and no place to open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from gossiplog.errors import StorageError
from gossiplog.storage.base import Storage, Synchronous
from gossiplog.storage.postgres.url import SHAPE, PostgresURL, check_nearly, is_postgres_url
from gossiplog.storage.sqlite.files import text_path
from gossiplog.storage.sqlite.replacement import Replacement
from gossiplog.storage.sqlite.storage import SQLiteStorage

if TYPE_CHECKING:
    from gossiplog.storage.postgres.health import ServerHealth
    from gossiplog.storage.postgres.replacement import SchemaReplacement

Location: TypeAlias = str | os.PathLike[str] | PostgresURL
"""What names a log: the path of its file, or its URL in Postgres. ":memory:" is a log that ends with its program.

Examples:
    >>> from pathlib import Path
    >>> for location in (":memory:", Path("other.db")):
    ...     with gossiplog.open(location, "org.example.notes") as notes:
    ...         print(len(notes))
    0
    0
"""

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*)://")


def storage_at(
    location: Location | Storage,
    synchronous: Synchronous = "full",
    *,
    read_only: bool = False,
    accept_loss: bool = False,
    lock_timeout: float | None = None,
) -> Storage:
    """Return the storage of a location, not opened yet.

    Args:
        location: the path of an SQLite file, ":memory:", a URI that begins with "file:", a URL that begins with
            "postgresql://", or a storage, which is returned as it is.
        synchronous: as `SQLiteStorage` takes it.
        read_only: likewise.
        accept_loss: likewise; a storage has a setting of its own, and a server of Postgres no file that could lose its
            end.
        lock_timeout: as `SQLiteStorage` takes it.

    Raises:
        StorageError: a URL of an unknown kind, or one of Postgres without its driver.
        TypeError: a location that is no path.
        ValueError: `read_only` with a storage, which has a setting of its own.
    """
    if isinstance(location, Storage):
        if read_only:
            raise ValueError(
                "read_only is for paths: give it to the storage, as in SQLiteStorage(path, read_only=True)"
            )
        return location
    named = named_by(location)
    if isinstance(named, PostgresURL):
        return _postgres(named, synchronous, read_only, lock_timeout)
    return SQLiteStorage(
        named, synchronous=synchronous, read_only=read_only, accept_loss=accept_loss, lock_timeout=lock_timeout
    )


def named_by(location: Location) -> str | PostgresURL:
    """Return what a location names: a log in Postgres, or a file by its path or its "file:" URI, as text.

    Raises:
        StorageError: a URL of an unknown kind, or what is nearly one of Postgres.
        TypeError: a location that is no path.
    """
    if isinstance(location, PostgresURL):
        return location
    path = text_path(location)
    if is_postgres_url(path):
        return PostgresURL.parse(path)
    check_nearly(path)
    if is_url(path):
        raise StorageError(
            f"no storage for {path.partition('://')[0]}:// locations: expected the path of a file, {SHAPE}, ':memory:'"
            " or a Storage"
        )
    return path


def is_url(location: str) -> bool:
    """Return whether a location is a URL of any kind but "file:": it is no file then, and holds no pattern."""
    scheme = _SCHEME.match(location)
    return scheme is not None and scheme[1] != "file"


def replacement_at(location: Location, suffix: str) -> Replacement | SchemaReplacement:
    """Return what replaces a log by another one that is made in a file.

    Args:
        location: of the log.
        suffix: is appended to the name of a log's file for that of the new file.

    Raises: as `Replacement`; StorageError for a log in Postgres without its driver.
    """
    named = named_by(location)
    if not isinstance(named, PostgresURL):
        return Replacement(named, suffix)
    return schema_replacement(named, "replace")


def schema_replacement(url: PostgresURL, doing: str) -> SchemaReplacement:
    """Return what replaces a log in Postgres; see `SchemaReplacement`.

    Raises:
        StorageError: the driver is missing.
    """
    with _driver_of(url):
        from gossiplog.storage.postgres.replacement import SchemaReplacement
    return SchemaReplacement(url, doing)


def server_health(url: PostgresURL) -> ServerHealth:
    """Ask a server of Postgres about itself and a log there; see `look_at_server`.

    Raises:
        StorageError: it cannot be reached, or the driver is missing.
    """
    with _driver_of(url):
        from gossiplog.storage.postgres.health import look_at_server
    return look_at_server(url)


def _postgres(url: PostgresURL, synchronous: Synchronous, read_only: bool, lock_timeout: float | None) -> Storage:
    with _driver_of(url):
        from gossiplog.storage.postgres.storage import PostgresStorage
    return PostgresStorage(url, synchronous=synchronous, read_only=read_only, lock_timeout=lock_timeout)


@contextmanager
def _driver_of(url: PostgresURL) -> Iterator[None]:
    """Import what uses the driver of Postgres, which is a part of its own."""
    try:
        yield
    except ImportError as error:
        # Without a name it is the driver's own, which does not find libpq.
        if error.name not in (None, "psycopg"):
            raise
        raise StorageError(
            f"{url} is in Postgres, whose driver is missing: pip install 'gossiplog[postgres]' installs it"
        ) from error
