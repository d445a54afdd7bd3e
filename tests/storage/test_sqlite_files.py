"""`gossiplog.storage.sqlite_files`: whether a path still names a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gossiplog.storage.sqlite_files import NamedFile


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"other")
    other.replace(path)


@pytest.fixture(params=["the system tells names", "it does not"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def fail(link: str) -> str:
        raise FileNotFoundError(link)

    if request.param == "it does not":
        monkeypatch.setattr(os, "readlink", fail)
    found = Path(os.path.realpath(tmp_path)) / "a file"
    found.write_bytes(b"file")
    return found


@pytest.mark.parametrize("lose", [Path.unlink, replace, lambda path: path.rename(path.with_name("moved"))])
def test_a_file_that_lost_its_name(path: Path, lose: Callable[[Path], object]) -> None:
    named = NamedFile(str(path))
    path.write_bytes(b"more")
    assert named.is_named()
    lose(path)
    assert not named.is_named()
    named.close()


def test_a_file_that_was_moved_back(path: Path) -> None:
    named = NamedFile(str(path))
    moved = path.rename(path.with_name("moved"))
    moved.rename(path)
    assert named.is_named()
    named.close()
    named.close()


def test_a_path_that_named_nothing_loses_nothing(path: Path) -> None:
    path.unlink()
    named = NamedFile(str(path))
    path.write_bytes(b"new")
    assert named.is_named()
    named.close()
