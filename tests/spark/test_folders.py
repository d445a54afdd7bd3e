"""Folders in which one process works at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossiplog.errors import StorageError
from gossiplog.spark.folders import locked


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


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Not a directory"), locked(str(tmp_path / "file" / "state")):
        raise AssertionError
