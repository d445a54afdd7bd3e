"""Opening logs to read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.spark.source.opening import look_at, opened, split, unopened
from tests.storage.damage import damage

MakeLog = Callable[..., Path]


def test_opened_tells_the_topic(make_log: MakeLog) -> None:
    with opened(str(make_log(topic="t"))) as (storage, topic), storage.reader() as reader:
        assert (topic, reader.position().count) == ("t", 10)


def test_damage_is_told_with_the_location(make_log: MakeLog) -> None:
    path = make_log()
    damage(path, "gossiplog_meta")
    with pytest.raises(CorruptLog, match=str(path)), opened(str(path)):
        pass


def test_a_write_ahead_log_of_another_log_is_left_as_it_is(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log()
    wal = Path(f"{path}-wal")
    with gossiplog.open(tmp_path / "other.db", "other", signer=Signer(bytes(32))) as log:
        log.append_many(range(40))
        wal.write_bytes(Path(f"{tmp_path / 'other.db'}-wal").read_bytes())
    before = path.read_bytes(), wal.read_bytes()
    with pytest.raises(CorruptLog, match=f"{wal} was not written for {path}: message 10,"), opened(str(path)):
        pass
    assert (path.read_bytes(), wal.read_bytes()) == before


def test_an_unknown_kind_of_database() -> None:
    with pytest.raises(StorageError, match="no storage for mysql://"), opened("mysql://host/logs"):
        pass


def test_a_range_without_keys_is_none(make_log: MakeLog) -> None:
    log = look_at(str(make_log(messages=3)))
    assert split(log, 1, b"\5", b"\5") == []
    assert [(part.start, part.end) for part in split(log, 1, b"\1", b"\5")] == [(b"\1", b"\5")]


def test_an_unopened_log_counts_by_its_files(make_log: MakeLog, tmp_path: Path) -> None:
    path = make_log(messages=30)
    assert unopened(str(path)).messages == path.stat().st_size // 512 > 30
    with gossiplog.open(path) as log:
        log.append("in the write-ahead log", signer=Signer(bytes(32)))
        assert unopened(str(path)).size > path.stat().st_size
    assert unopened(str(tmp_path / "none.db")).size == 0
