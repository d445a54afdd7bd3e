"""What a location means."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog import MemoryStorage, SQLiteStorage, StorageError
from gossiplog.storage.location import is_url, storage_at


def test_paths_are_sqlite_files(tmp_path: Path) -> None:
    for location in (tmp_path / "log.db", str(tmp_path / "log.db"), ":memory:", f"file:{tmp_path}/log.db?mode=ro"):
        assert isinstance(storage_at(location), SQLiteStorage)


def test_a_storage_is_its_own_location() -> None:
    storage = MemoryStorage()
    assert storage_at(storage) is storage


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(StorageError, match="no storage for mysql:// locations"):
        storage_at("mysql://localhost/logs")


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(TypeError, match="not bytes"):
        storage_at(b"log.db")  # type: ignore[arg-type]


def test_urls() -> None:
    assert is_url("postgresql://localhost/logs")
    assert not is_url("file:///tmp/log.db")
    assert not is_url("notes/a.db")
