from __future__ import annotations

from contextlib import nullcontext
from threading import Thread

import pytest

from gossiplog import MemoryStorage, StorageError
from gossiplog.storage import Storage
from gossiplog.storage.sqlite.storage import SQLiteStorage


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


@pytest.mark.parametrize("storage", [MemoryStorage(), SQLiteStorage(":memory:")])
def test_a_transaction_reads_the_settings_that_it_has_written(storage: Storage) -> None:
    """In memory it read what was committed."""
    storage.open("org.example.topic", True)
    for has_setup in (True, False):
        with storage.transaction() as transaction:
            transaction.begin_rebuild(2, has_setup=has_setup)
            transaction.set_index_fingerprint(f"{has_setup}")
            assert transaction.application_tables().has_setup is has_setup
            assert transaction.index_fingerprint() == f"{has_setup}"
        with storage.reader() as reader:
            assert (reader.application_tables().has_setup, reader.index_fingerprint()) == (has_setup, f"{has_setup}")
    storage.close()
