"""Folders in which one process works at a time, and those that are to be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog.errors import OptionError, StorageError
from gossiplog.spark.folders import check_new, locked, remove_locked


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    with locked(folder):
        with pytest.raises(StorageError, match=f"another process works in {folder}"), locked(folder):
            raise AssertionError
        # The one that was refused has not released the other's lock.
        with pytest.raises(StorageError, match=f"another process works in {folder}"), locked(folder):
            raise AssertionError
    with locked(folder):
        assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_is_removed_with_its_lock_alone(tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    for folder in (mine, shared):
        with locked(str(folder)):
            if folder == shared:
                (folder / "notes").touch()
            remove_locked(str(folder))
    assert not mine.exists()
    assert sorted(path.name for path in shared.iterdir()) == [".lock", "notes"]
    remove_locked(str(mine))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"), locked(str(tmp_path / "file" / "state")):
        raise AssertionError


def test_a_folder_that_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_new(str(tmp_path / "a" / "b"), "the report")
    monkeypatch.chdir(tmp_path)
    check_new("report", "the report")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("folder", "is there already: name a new folder for the report"),
        ("link", "is there already"),
        ("file/report", "file is no folder: name a new folder for the report"),
        ("closed/report", "closed cannot be written: name a new folder for the report"),
    ],
)
def test_a_new_folder_that_cannot_be_made(
    tmp_path: Path, path: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("folder", "closed"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    # The superuser may write everywhere.
    monkeypatch.setattr("os.access", lambda place, _: not place.endswith("closed"))
    with pytest.raises(OptionError, match=complaint):
        check_new(str(tmp_path / path), "the report")
