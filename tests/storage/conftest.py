"""What tests of storages share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gossiplog import SQLiteStorage
from gossiplog.storage.postgres.storage import PostgresStorage


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


@pytest.fixture
def in_postgres(postgres_url: str) -> Iterator[PostgresStorage]:
    """An open log in Postgres, without messages."""
    storage = PostgresStorage(postgres_url)
    storage.open("topic", True)
    yield storage
    storage.close()
