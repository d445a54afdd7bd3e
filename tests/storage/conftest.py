"""What tests of SQLite's storage share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossiplog import SQLiteStorage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log may be; nothing is there."""
    return tmp_path / "log.db"


@pytest.fixture
def storage(path: Path) -> Iterator[SQLiteStorage]:
    """An open log at the path, without messages."""
    storage = SQLiteStorage(path)
    storage.open("topic", True)
    yield storage
    storage.close()
