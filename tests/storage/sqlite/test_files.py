"""`gossiplog.storage.sqlite.files`: whether a path still names a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gossiplog.storage.sqlite import files as sqlite_files
from gossiplog.storage.sqlite.files import NamedFiles, file_id


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"other")
    other.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a file"
    found.write_bytes(b"file")
    settle(tmp_path)
    return found


def settle(folder: Path) -> None:
    """Have a folder as if its last change were long ago."""
    os.utime(folder, (1, 1))


def named(*paths: Path) -> NamedFiles:
    return NamedFiles({str(path): file_id(str(path)) for path in paths})


LOSSES = [Path.unlink, replace, lambda path: path.rename(path.with_name("moved"))]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_file_that_lost_its_name(path: Path, lose: Callable[[Path], object]) -> None:
    files = named(path)
    path.write_bytes(b"more")
    assert files.find_lost() is None
    assert files.find_lost() is None
    lose(path)
    assert files.find_lost() == str(path)
    assert files.find_lost() == str(path)


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize(
    ("changed", "age"),
    [(10**18 + 1, 0), (10**18 + 1, 2 * 10**7), (10**18, 15 * 10**8)],
    ids=["now", "a tick", "whole seconds"],
)
def test_a_file_that_lost_its_name_within_one_step_of_the_clock(
    path: Path, lose: Callable[[Path], object], changed: int, age: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: changed + age)
    os.utime(path.parent, ns=(changed, changed))
    before = path.parent.stat()
    files = named(path)
    assert files.find_lost() is None
    lose(path)
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.find_lost() == str(path)


def test_files_are_looked_at_only_when_their_folder_has_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, looked = named(path), list[str]()

    def look(name: str) -> tuple[int, int] | None:
        looked.append(name)
        return file_id(name)

    monkeypatch.setattr(sqlite_files, "file_id", look)
    for _ in range(3):
        assert files.find_lost() is None
        path.write_bytes(b"more")
    assert looked == [str(path)]
    path.with_name("another").write_bytes(b"")
    for _ in range(3):
        assert files.find_lost() is None
    assert looked == 4 * [str(path)]


@pytest.mark.parametrize("replaced", ["folder", "file"])
def test_links_that_lead_elsewhere(path: Path, replaced: str) -> None:
    link = path.with_name("link")
    target = path.parent if replaced == "folder" else path
    link.symlink_to(target)
    linked = link / path.name if replaced == "folder" else link
    settle(path.parent)
    files = named(linked, path)
    assert files.find_lost() is None
    other = path.parent / "elsewhere"
    other.mkdir()
    (other / path.name).write_bytes(b"other")
    settle(other)
    link.unlink()
    link.symlink_to(other if replaced == "folder" else other / path.name)
    settle(path.parent)
    assert files.find_lost() == str(linked)


def test_a_file_that_was_moved_back(path: Path) -> None:
    files = named(path)
    moved = path.rename(path.with_name("moved"))
    moved.rename(path)
    assert files.find_lost() is None


def test_a_path_that_named_nothing_loses_nothing(path: Path) -> None:
    path.unlink()
    files = named(path)
    path.write_bytes(b"new")
    assert files.find_lost() is None


def test_no_files_lose_nothing() -> None:
    assert NamedFiles({}).find_lost() is None


def test_for_two_milliseconds_nothing_is_looked_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5 * 10**9]
    monkeypatch.setattr(sqlite_files, "_TRUSTED_NANOSECONDS", 2 * 10**6)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    files = named(path)
    assert files.find_lost() is None
    path.unlink()
    now[0] += 2 * 10**6 - 1
    assert files.find_lost() is None
    now[0] += 1
    assert files.find_lost() == str(path)
    assert files.find_lost() == str(path)
