"""The source of a repair (`gossiplog.log.reassembly`); `test_repair.py` has what is written with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gossiplog import Log, Signer
from gossiplog.errors import CorruptSource, StorageError
from gossiplog.log.reassembly import open_source
from tests.storage.damage import damage

Open = Callable[..., Log]


def test_what_is_damaged_in_a_source_counts_as_missing(opened: Open, signer: Signer, tmp_path: Path) -> None:
    path = tmp_path / "source.db"
    log = opened(path, signer=signer)
    keys = [message.key for message in log.append_many(range(10))]
    # Its index covers all, so that no snapshot reads the values.
    assert log.root.level > 0
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE gossiplog_messages SET value = zeroblob(9) WHERE seq = 3")
        # Sound, but another message's.
        connection.execute(
            "UPDATE gossiplog_messages SET value = (SELECT value FROM gossiplog_messages WHERE seq = 9) WHERE seq = 5"
        )
    for source in (log, path, str(path)):
        with open_source(source) as found:
            assert found.topic == log.topic
            assert found.all_keys() == keys
            assert found.of([*keys, bytes(20)]).keys() == {*keys} - {keys[2], keys[4]}


def test_a_source_that_cannot_be_read(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "source.db"
    opened(path).close()
    damage(path, "gossiplog_meta")
    with pytest.raises(CorruptSource), open_source(path):
        pass
    with pytest.raises(StorageError, match="is no log's file, hub"), open_source("https://host/log"):
        pass
