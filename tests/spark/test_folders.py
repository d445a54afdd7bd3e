"""Folders in which one process works at a time, and those that are to be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossiplog.errors import OptionError, StorageError
from gossiplog.spark.folders import building, check_new, check_staging, locked, remove_locked


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


def test_a_folder_that_a_killed_job_left_is_taken_again(tmp_path: Path) -> None:
    for files in ((), (".lock",), (".lock", "work")):
        folder = tmp_path / str(len(files))
        folder.mkdir(0o700)
        for name in files:
            (folder / name).touch()
        check_staging(str(folder), 0o700)
        with locked(str(folder), 0o700, staging=True):
            pass
    check_staging(str(tmp_path / "none"), 0o700)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("file", "is no folder"),
        ("link", "is no folder"),
        ("open", "is open to other users"),
        ("files", "has files, but no .lock, which a job makes first"),
        ("another", "belongs to another user"),
    ],
)
def test_a_folder_that_no_job_left_is_refused(
    tmp_path: Path, kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target = tmp_path / "staging", tmp_path / "target"
    target.mkdir(0o700)
    match kind:
        case "file":
            folder.touch()
        case "link":
            folder.symlink_to(target)
        case _:
            folder.mkdir(0o700)
    if kind == "open":
        folder.chmod(0o770)
    elif kind == "files":
        (folder / "notes").touch()
    elif kind == "another":
        monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StorageError) as caught:
        check_staging(str(folder), 0o700)
    assert str(caught.value) == (
        f"a job works in {folder}, which is there already and {reason}: move it away, or remove it if nobody needs it"
    )
    with pytest.raises(StorageError), locked(str(folder), 0o700, staging=True):
        raise AssertionError
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_is_made_is_accepted_with_the_owner_that_its_file_system_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As some mounts do, which also give every folder the same mode.
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    with locked(str(tmp_path / "staging"), 0o700, staging=True):
        pass


def test_a_folder_is_built_under_another_name(tmp_path: Path) -> None:
    folder, partial = tmp_path / "report", tmp_path / "report.partial"
    # What a process that was killed has left.
    (partial / "tables").mkdir(parents=True)
    for name in (".lock", "page", "tables/1"):
        (partial / name).touch()
    with building(str(folder), "the report") as place:
        assert place == str(partial)
        assert os.listdir(place) == [".lock"]
        assert not folder.exists()
        with pytest.raises(StorageError, match="another process works in "), building(str(folder), "the report"):
            raise AssertionError
        (partial / "page").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["report", "page"]
    with pytest.raises(OptionError, match="is there already"), building(str(folder), "the report"):
        raise AssertionError


def test_a_folder_that_cannot_be_completed_is_removed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), building(f"{tmp_path}/report/", "the report"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_partial_folder_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "report.partial").mkdir()
    (tmp_path / "report.partial" / "notes").touch()
    with pytest.raises(StorageError, match=r"has files, but no \.lock"), building(f"{tmp_path}/report", "the report"):
        raise AssertionError
    assert [path.name for path in tmp_path.rglob("*")] == ["report.partial", "notes"]


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
