from __future__ import annotations

import pytest

from gossiplog import MemoryStorage, StorageError


def test_it_has_no_sql() -> None:
    storage = MemoryStorage()
    storage.open("topic", True)
    with storage.transaction() as transaction, pytest.raises(StorageError, match="no SQL"):
        transaction.execute("SELECT 1")
