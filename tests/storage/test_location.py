"""What a location means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gossiplog
from gossiplog import MemoryStorage, SQLiteStorage, StorageError
from gossiplog.storage.location import is_url, named_by, storage_at
from gossiplog.storage.postgres.storage import PostgresStorage
from gossiplog.storage.postgres.url import PostgresURL

URL = "postgresql://me:s3cret@localhost:1/logs?schema=notes"


def test_paths_are_sqlite_files(tmp_path: Path) -> None:
    for location in (tmp_path / "log.db", str(tmp_path / "log.db"), ":memory:", f"file:{tmp_path}/log.db?mode=ro"):
        assert isinstance(storage_at(location), SQLiteStorage)
        assert named_by(location) == str(location)


def test_urls_are_logs_in_postgres() -> None:
    for location in (URL, PostgresURL.parse(URL), URL.replace("postgresql", "postgres")):
        storage = storage_at(location, read_only=True)
        assert isinstance(storage, PostgresStorage)
        assert storage.read_only
        assert storage.place == "postgresql://me@localhost:1/logs?schema=notes"
        assert storage.argument == "'postgresql://me@localhost:1/logs?schema=notes'"
        assert named_by(location) == PostgresURL.parse(URL)


def test_a_storage_is_its_own_location() -> None:
    storage = MemoryStorage()
    assert storage_at(storage) is storage


def test_arguments_of_commands(tmp_path: Path) -> None:
    assert storage_at(MemoryStorage()).argument == ""
    assert storage_at(":memory:").argument == ""
    assert storage_at("a b.db").argument == "'a b.db'"


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(StorageError, match=r"no storage for mysql:// locations: .* postgresql://"):
        storage_at("mysql://localhost/logs")


@pytest.mark.parametrize("location", ["postgresql:/me:s3cret@localhost/logs", Path(URL)])
def test_what_is_nearly_a_url_is_no_file(location: str | Path) -> None:
    with pytest.raises(StorageError, match="no two slashes") as caught:
        storage_at(location)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("location", [URL, Path(URL)])
def test_what_takes_a_file_takes_no_url_and_repeats_none(location: str | Path, tmp_path: Path) -> None:
    with gossiplog.open(tmp_path / "log.db", "notes") as log:
        for function in (
            lambda: SQLiteStorage(location),
            lambda: log.backup(location),
            lambda: gossiplog.recover(location, tmp_path / "new.db"),
        ):
            with pytest.raises(StorageError) as caught:
                function()
            assert "s3cret" not in str(caught.value)


def test_a_log_is_pulled_from_no_other_url(tmp_path: Path) -> None:
    with gossiplog.open(tmp_path / "log.db", "notes") as log:
        with pytest.raises(StorageError, match="ws:// is no file"):
            log.pull("ws://localhost:8000")
        with pytest.raises(StorageError, match="cannot open postgresql://me@localhost:1/logs") as caught:
            log.pull(URL)
    assert "s3cret" not in str(caught.value)


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [*sys.modules]:
        if name.startswith("gossiplog.storage.postgres") and name != "gossiplog.storage.postgres.url":
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StorageError, match=r"driver is missing: pip install 'gossiplog\[postgres\]'") as caught:
        storage_at(URL)
    assert "s3cret" not in str(caught.value)


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(TypeError, match="not bytes"):
        storage_at(b"log.db")  # type: ignore[arg-type]


def test_urls() -> None:
    assert is_url("postgresql://localhost/logs")
    assert is_url("ws://localhost")
    assert not is_url("file:///tmp/log.db")
    assert not is_url("notes/a.db")
