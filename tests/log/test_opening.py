from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import gossiplog
from gossiplog import (
    EncodeError,
    Log,
    MemoryStorage,
    NotALog,
    SignedMessage,
    Signer,
    StorageError,
    TopicMismatch,
    TopicWarning,
)


def test_an_existing_log_needs_no_topic(tmp_path: Path, signer: Signer) -> None:
    path = tmp_path / "log.db"
    with gossiplog.open(path, "topic", signer=signer) as log:
        message = log.append(1)
    with gossiplog.open(str(path)) as log:
        assert (log.topic, log.heads) == ("topic", (message.id,))
    with pytest.raises(TopicMismatch, match="'topic', not 'another'"):
        gossiplog.open(path, "another")


def test_no_log_is_made_where_none_may_be(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    for topic, create in ((None, True), ("topic", False)):
        with pytest.raises(NotALog):
            gossiplog.open(path, topic, create=create)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"there is no folder .*missing; make it first"):
        gossiplog.open(tmp_path / "missing" / "log.db", "topic")


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_a_file_and_a_folder_that_are_closed_to_the_user_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "log.db", tmp_path / "folder"
    gossiplog.open(path, "topic").close()
    path.chmod(0o600)
    folder.mkdir(0o755)
    # Tests may run as root, who may do everything.
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    user = f"user {os.geteuid()} may not"
    with pytest.raises(StorageError, match=f"cannot open .*log.db: {user} read it: it is of user .*, with mode 0600"):
        gossiplog.open(path)
    with pytest.raises(StorageError, match=f"in the folder .*folder: {user} write to it: .*, with mode 0755"):
        gossiplog.open(folder / "log.db", "topic")


def test_a_folder_is_not_a_log(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open"):
        gossiplog.open(tmp_path, "topic")


@pytest.mark.parametrize("location", ["mysql://host/name", "http://host"])
def test_unknown_kinds_of_locations(location: str) -> None:
    with pytest.raises(StorageError, match=r"no storage for (mysql|http)://"):
        gossiplog.open(location, "topic")


def test_a_location_is_text() -> None:
    with pytest.raises(TypeError, match="text or a path"):
        gossiplog.open(b"log.db", "topic")  # type: ignore[arg-type]


def test_a_topic_is_checked_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(EncodeError, match="is no topic"):
        gossiplog.open(tmp_path / "log.db", "no topic")
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_the_release_refuses_warns() -> None:
    with pytest.warns(TopicWarning) as warnings, gossiplog.open(":memory:", "a:b"):
        pass
    assert warnings[0].filename == __file__


def test_a_storage_can_be_opened_again(opened: Callable[..., Log], signer: Signer) -> None:
    storage = MemoryStorage()
    with gossiplog.open(storage, "topic", signer=signer) as log:
        log.append(1)
        with pytest.raises(StorageError, match="open already"):
            gossiplog.open(storage)
        assert len(log) == 1
    assert len(opened(storage, None)) == 1


def test_a_log_that_cannot_be_used_is_closed_again(signer: Signer) -> None:
    storage = MemoryStorage()
    with pytest.raises(TypeError):
        gossiplog.open(storage, "topic", payload=object())
    with gossiplog.open(storage, "topic"):
        pass


def test_log_and_application_share_one_database(tmp_path: Path, signer: Signer) -> None:
    path = tmp_path / "app.db"

    def add(message: SignedMessage, transaction: Any) -> None:
        transaction.execute("INSERT INTO notes VALUES (?)", (message.payload,))

    with closing(sqlite3.connect(path)) as application:
        application.execute("CREATE TABLE notes (text)")
        with gossiplog.open(path, "topic", apply=add, signer=signer) as log:
            log.append("one")
            assert application.execute("SELECT text FROM notes").fetchall() == [("one",)]
    with gossiplog.open(path, apply=add) as log:
        assert log.verify().messages == 1
