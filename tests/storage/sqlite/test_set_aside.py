from __future__ import annotations

import os
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from gossiplog.storage.sqlite.files import free_name, numbered
from gossiplog.storage.sqlite.set_aside import find_set_aside, find_way_back


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a [1].db"


def make(path: str, count: int) -> str:
    with gossiplog.open(path, "org.example.test", signer=Signer(bytes(32))) as log:
        log.append_many(range(count))
    return path


def test_sound_logs_with_messages_are_found_that_with_the_most_first(path: Path) -> None:
    os.link(make(str(path), 4), f"{path}.copy-2")
    few, many = make(f"{path}.saved-2", 2), make(f"{path}.copy", 3)
    make(f"{path}.damaged", 0)
    Path(f"{path}.damaged-2").write_bytes(b"no log")
    Path(f"{path}.copy-of-mine").write_bytes(Path(many).read_bytes())
    found = find_set_aside(str(path))
    assert [(aside.path, aside.count) for aside in found] == [(many, 3), (few, 2)]
    assert found[0].describe() == f"{many}, which an earlier step has set aside, holds 3 messages"


@pytest.mark.parametrize("is_own", [True, False])
def test_a_log_is_put_back_unless_sqlite_would_mix_it_with_a_write_ahead_log(path: Path, is_own: bool) -> None:
    copy = make(f"{path}.copy", 3)
    read = read_identity_and_count(copy)
    assert read is not None
    Path(f"{path}-wal").write_bytes(bytes(100))
    way = find_way_back(str(path), read[0] if is_own else b"")
    assert way is not None
    assert way.command == (f"mv '{copy}' '{path}'" if is_own else f"gossiplog repair '{path}' --from '{copy}'")
    assert way.command in way.described


def test_what_is_left_of_a_file_is_set_aside_before_another_is_put_back(path: Path) -> None:
    copy = make(f"{path}.copy", 3)
    path.write_bytes(bytes(600))
    way = find_way_back(str(path), b"")
    assert way is not None
    assert way.command == f"mv '{path}' '{path}.copy-2' && mv '{copy}' '{path}'"


def test_the_largest_write_ahead_log_comes_back_where_no_log_is_set_aside(path: Path) -> None:
    assert find_way_back(str(path), b"") is None
    wal = Path(f"{path}-wal")
    for number, size in (("", 100), ("-2", 200), ("-3", 32)):
        Path(f"{wal}.former{number}").write_bytes(bytes(size))
    way = find_way_back(str(path), b"")
    assert way is not None
    assert way.command == f"mv '{wal}.former-2' '{wal}' && gossiplog repair '{path}'"
    wal.write_bytes(bytes(100))
    assert find_way_back(str(path), b"") is None


def test_a_free_name_has_nothing_beside_it(path: Path) -> None:
    assert free_name(path, ".copy") == f"{path}.copy"
    for taken in (".copy", ".copy-2-wal", ".copy-3-count"):
        Path(f"{path}{taken}").touch()
    assert free_name(path, ".copy") == f"{path}.copy-4"
    assert numbered(path, ".copy") == [f"{path}.copy"]
