from __future__ import annotations

from contextlib import nullcontext
from threading import Thread

import pytest

from gossiplog import MemoryStorage, StorageError


def test_it_has_no_sql() -> None:
    storage = MemoryStorage()
    storage.open("topic", True)
    with storage.transaction() as transaction, pytest.raises(StorageError, match="no SQL"):
        transaction.execute("SELECT 1")


def test_it_is_locked_only_if_it_is_free() -> None:
    storage = MemoryStorage()
    storage.open("topic", True)
    found = list[bool]()

    def try_lock() -> None:
        with storage.lock_if_free() as is_locked:
            found.append(is_locked)

    for block in (storage.reader(), storage.transaction(), nullcontext()):
        with block:
            thread = Thread(target=try_lock)
            thread.start()
            thread.join()
    assert found == [False, False, True]
