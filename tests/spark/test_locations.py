"""Paths, patterns and URLs of logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gossiplog.errors import CorruptLog, NotALog, StorageError
from gossiplog.spark.locations import locations, opened
from tests.storage.damage import damage


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.db", "a.db", "c[1].db"):
        (tmp_path / name).touch()
    (tmp_path / "d.db").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_patterns_take_files_in_the_order_of_their_names(folder: Path) -> None:
    assert locations(["*.db"]) == ["a.db", "b.db", "c[1].db"]
    assert locations(["**/a.db"]) == ["a.db"]


def test_a_file_is_no_pattern(folder: Path) -> None:
    assert locations(["c[1].db"]) == ["c[1].db"]


def test_each_log_once(folder: Path) -> None:
    os.symlink("a.db", "link.db")
    assert locations(["b.db", "./b.db", str(folder / "*.db"), "link.db"]) == [
        "b.db",
        str(folder / "a.db"),
        str(folder / "c[1].db"),
    ]


def test_urls_are_left_to_the_storage(folder: Path) -> None:
    assert locations(["postgresql://host/logs?x=*", "file:a.db"]) == ["postgresql://host/logs?x=*", "file:a.db"]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("none.db", "there is no log none.db"),
        ("*.log", r"no file fits the pattern \*.log"),
        ("d.db", "d.db is a folder"),
    ],
)
def test_what_is_not_there(folder: Path, path: str, complaint: str) -> None:
    with pytest.raises(NotALog, match=complaint):
        locations([path])


def test_opened_tells_the_topic(make_log: Callable[..., Path]) -> None:
    with opened(str(make_log(topic="t"))) as (storage, topic), storage.reader() as reader:
        assert (topic, reader.position().count) == ("t", 10)


def test_damage_is_told_with_the_location(make_log: Callable[..., Path]) -> None:
    path = make_log()
    damage(path, "gossiplog_meta")
    with pytest.raises(CorruptLog, match=str(path)), opened(str(path)):
        pass


def test_an_unknown_kind_of_database() -> None:
    with pytest.raises(StorageError, match="no storage for mysql://"), opened("mysql://host/logs"):
        pass
