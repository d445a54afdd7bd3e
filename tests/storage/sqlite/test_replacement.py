"""A log's file that another takes the place of."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import gossiplog
from gossiplog import NotALog, Signer, StorageError
from gossiplog.storage.sqlite.commit_count import CommitCount
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from gossiplog.storage.sqlite.replacement import Replacement

TOPIC = "org.example.test"
SIGNER = Signer(bytes(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "log.db", "old")
    return tmp_path / "log.db"


def write(path: Path | str, *payloads: str) -> None:
    with gossiplog.open(path, TOPIC, signer=SIGNER) as log:
        log.append_many(payloads)


def payloads(path: Path | str) -> list[object]:
    with gossiplog.open(path, read_only=True) as log:
        return [message.payload for message in log.messages()]


def names(path: Path) -> list[str]:
    return sorted({each.name for each in path.parent.iterdir()} - {f"{path.name}-count"})


def replace(path: Path, *payloads: str) -> str:
    with Replacement(str(path), ".new") as replacement:
        write(replacement.new, *payloads)
        return replacement.publish(".generation-0", {"generation": 1})


def test_the_new_file_has_the_name_and_the_former_one_another(path: Path) -> None:
    assert replace(path, "new") == f"{path}.generation-0"
    assert names(path) == ["log.db", "log.db.generation-0"]
    assert (payloads(path), payloads(f"{path}.generation-0")) == (["new"], ["old"])
    assert CommitCount(str(path)).read() == read_identity_and_count(str(path))


def test_what_is_in_the_write_ahead_log_is_kept(path: Path, tmp_path: Path) -> None:
    with gossiplog.open(path, signer=SIGNER) as log:
        log.append("later")
        # As a killed program leaves it: not moved into the file.
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for name in ("log.db", "log.db-wal"):
            shutil.copy(tmp_path / name, crashed / name)
    kept = replace(crashed / "log.db", "new")
    assert payloads(kept) == ["old", "later"]


def test_a_block_that_raises_leaves_the_file_as_it_is(path: Path) -> None:
    def fail() -> None:
        with Replacement(str(path), ".new") as replacement:
            write(replacement.new, "new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(path) == ["log.db"]
    assert payloads(path) == ["old"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_that_is_open_here_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.storage.sqlite.replacement._PATIENCE", 0.0)
    for read_only in (False, True):
        with (
            gossiplog.open(path, read_only=read_only),
            pytest.raises(StorageError, match=f"{path} is open in another program, or elsewhere in this one: close it"),
            Replacement(str(path), ".new"),
        ):
            pass
        assert payloads(path) == ["old"]


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the log open."""
    program = f"import gossiplog; log = gossiplog.open({str(path)!r}); print(len(log), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


@pytest.mark.integration
def test_a_file_that_another_process_has_open_is_refused(
    path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossiplog.storage.sqlite.replacement._PATIENCE", 0.0)
    with pytest.raises(StorageError, match="is open in another program"), Replacement(str(path), ".new"):
        pass
    holder.communicate("\n")
    assert replace(path, "new")


def test_nobody_opens_the_file_to_write_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.storage.sqlite.storage.LOCK_TIMEOUT", 0.0)
    with Replacement(str(path), ".new") as replacement:
        with pytest.raises(StorageError, match="did not release its lock"), gossiplog.open(path) as log:
            log.append("lost", signer=SIGNER)
        # Readers read what is there.
        assert payloads(path) == ["old"]
        write(replacement.new, "new")
        replacement.publish(".generation-0", {"generation": 1})
    assert payloads(path) == ["new"]


def test_a_file_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write to everything, so the system's answer stands in."""
    for refused in (str(path), str(path.parent)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda place, mode, refused=refused, **_: place != refused)
            with pytest.raises(StorageError, match=f"cannot replace {path}"):
                Replacement(str(path), ".new")


@pytest.mark.parametrize("location", [":memory:", "file:log.db"])
def test_what_is_no_file(location: str) -> None:
    with pytest.raises(StorageError, match="names no file that could be replaced"):
        Replacement(location, ".new")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="there is no log"):
        Replacement(str(tmp_path / "log.db"), ".new")


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    link = folder / "link.db"
    link.symlink_to(path)
    assert replace(link, "new") == f"{path}.generation-0"
    assert link.is_symlink()
    assert (payloads(link), names(link)) == (["new"], ["link.db"])


def test_the_mode_stays(path: Path) -> None:
    path.chmod(0o640)
    replace(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_an_attempt_left_is_removed(path: Path) -> None:
    write(f"{path}.new", "half")
    Path(f"{path}.new-wal").write_bytes(b"half")
    # It had come as far as the name of the former file.
    os.link(path, f"{path}.generation-0")
    assert replace(path, "new") == f"{path}.generation-0"
    assert names(path) == ["log.db", "log.db.generation-0"]


def test_a_name_that_is_taken(path: Path) -> None:
    for number in ("", "-2"):
        Path(f"{path}.generation-0{number}").write_bytes(b"of an earlier restore")
    assert replace(path, "new") == f"{path}.generation-0-3"
    assert payloads(f"{path}.generation-0-3") == ["old"]


def test_without_hard_links_the_former_file_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    monkeypatch.setattr(os, "link", refuse)
    kept = replace(path, "new")
    assert names(path) == ["log.db", "log.db.generation-0"]
    assert (payloads(path), payloads(kept)) == (["new"], ["old"])
    # The next name is taken before the copy is made, and the one after it by another program meanwhile.
    copy, other = Replacement._copy, Path(f"{path}.generation-0-2")

    def appear(replacement: Replacement, target: str) -> None:
        other.write_bytes(b"another program's")
        copy(replacement, target)

    monkeypatch.setattr(Replacement, "_copy", appear)
    assert replace(path, "newer") == f"{path}.generation-0-3"
    assert other.read_bytes() == b"another program's"
    assert (payloads(path), payloads(f"{path}.generation-0-3")) == (["newer"], ["new"])
    assert not Path(f"{path}.keeping").exists()


@pytest.mark.parametrize("call", ["link", "replace", "fsync", "chmod"])
def test_a_file_system_that_fails(path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageError, match=f"cannot replace {path}: .*no space"):
            replace(path, "new")
    assert payloads(path) == ["old"]
    assert replace(path, "new") == f"{path}.generation-0"


def test_tables_of_an_application_are_named(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT)")
    with Replacement(str(path), ".new") as replacement:
        assert replacement.other_tables == ["notes"]
