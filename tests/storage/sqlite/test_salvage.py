"""What a damaged file still gives, and how another one takes its place."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import StorageError
from gossiplog.storage.sqlite import salvage
from gossiplog.storage.sqlite.commit_count import CommitCount
from gossiplog.storage.sqlite.database_file import read_identity_and_count
from gossiplog.storage.sqlite.files import wal_of
from gossiplog.storage.sqlite.replacement import is_open_elsewhere, locked_alone
from gossiplog.storage.sqlite.salvage import leftovers, take_place, working_folder
from gossiplog.storage.sqlite.write_ahead_log import copy_with_log

TOPIC = "org.example.test"
CALLS = ("replace", "link", "unlink", "fsync", "pwrite", "ftruncate", "chmod")


class Killed(BaseException):
    """The process has ended."""


@pytest.fixture(scope="module", params=[False, True], ids=["in one file", "with a damaged write-ahead log"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a damaged log, what it holds in one file, and the file that takes its place."""
    folder = tmp_path_factory.mktemp("start")
    with gossiplog.open(folder / "new.db", TOPIC, signer=Signer(bytes(32))) as log:
        for number in range(24):
            log.append(number)
        path = folder / "log.db"
        if request.param:
            for each in (folder / "new.db", wal_of(folder / "new.db")):
                shutil.copy(each, each.with_name(each.name.replace("new", "log")))
            wal = bytearray(wal_of(path).read_bytes())
            wal[len(wal) // 2] ^= 1
            wal_of(path).write_bytes(wal)
    if not request.param:
        shutil.copy(folder / "new.db", path)
    with closing(sqlite3.connect(folder / "new.db")) as connection, connection:
        connection.execute("UPDATE gossiplog_meta SET value = 'repaired' WHERE name = 'topic'")
    descriptor = os.open(path, os.O_RDONLY)
    copy_with_log(descriptor, path, folder / "merged.db")
    os.close(descriptor)
    return folder


@pytest.fixture
def path(start: Path, tmp_path: Path) -> Path:
    shutil.copytree(start, tmp_path / "log")
    return tmp_path / "log" / "log.db"


def contents(path: Path) -> object:
    """All that SQLite reads in a copy of a database."""
    copy = path.with_name("read.db")
    for each in (path, wal_of(path)):
        if each.exists():
            shutil.copy(each, each.with_name(each.name.replace(path.name, copy.name)))
    with closing(sqlite3.connect(copy)) as connection:
        (check,) = connection.execute("PRAGMA integrity_check").fetchone()
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = [check, *(sorted(connection.execute(f"SELECT * FROM {name}")) for name in sorted(tables))]
    for each in path.parent.glob("read.db*"):
        each.unlink()
    return found


def take(path: Path) -> Path:
    with locked_alone(path) as descriptor:
        return take_place(path.with_name("new.db"), path, descriptor, path.with_name("merged.db"))


def before_each(patch: pytest.MonkeyPatch, act: Callable[[str], object]) -> None:
    """Call a function before each call that changes files."""

    def replaced(name: str) -> Callable[..., object]:
        own = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            act(name)
            return own(*arguments, **named)

        return call

    for name in CALLS:
        patch.setattr(os, name, replaced(name))


def test_the_new_file_has_the_name_and_the_former_one_another(path: Path) -> None:
    new, merged = contents(path.with_name("new.db")), contents(path.with_name("merged.db"))
    former = take(path)
    assert former == path.with_name("log.db.damaged")
    assert (contents(path), contents(former)) == (new, merged)
    assert sorted(each.name for each in path.parent.iterdir() if each.name.startswith("log.db")) == [
        "log.db",
        "log.db-count",
        "log.db.damaged",
    ]
    assert CommitCount(str(path)).read() == read_identity_and_count(str(path))


def test_a_kill_between_any_two_steps_leaves_one_of_the_two_whole(start: Path, tmp_path: Path) -> None:
    allowed = {
        "as it was": contents(start / "log.db"),
        "with all of its write-ahead log": contents(start / "merged.db"),
        "repaired": contents(start / "new.db"),
    }
    seen = set()
    for step in range(100):
        path = Path(shutil.copytree(start, tmp_path / str(step))) / "log.db"
        left = iter(range(step))

        def end(_: str, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise Killed

        with pytest.MonkeyPatch.context() as patch:
            before_each(patch, end)
            try:
                take(path)
                done = True
            except Killed:
                done = False
        found = contents(path)
        assert found in allowed.values()
        seen.update(name for name, each in allowed.items() if each == found)
        if done:
            break
        if path.with_name("new.db").exists():
            # The kill is in no one's way.
            copy = path.with_name("merged.db")
            with locked_alone(path) as descriptor:
                copy_with_log(descriptor, path, copy)
            assert take(path) == path.with_name("log.db.damaged")
            assert contents(path) == allowed["repaired"]
    assert step > 5
    assert {"as it was", "repaired"} <= seen


@pytest.mark.integration
def test_nobody_opens_the_former_file_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process would write to a file that is about to lose its name, or its write-ahead log."""
    open_from = []
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        try:
            ours.close()
            while theirs.recv(1):
                theirs.send(b"\1" if is_open_elsewhere(path) else b"\0")
        finally:
            os._exit(1)
    theirs.close()

    def look(name: str) -> None:
        ours.send(b"?")
        answer = ours.recv(1)
        assert answer
        if answer == b"\0":
            open_from.append(name)

    try:
        before_each(monkeypatch, look)
        take(path)
    finally:
        ours.close()
        os.waitpid(pid, 0)
    # Of the folder, after the last step; and of the count.
    assert open_from == ["fsync", "pwrite"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_the_former_file_is_copied(path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, "no links")

    monkeypatch.setattr(os, "link", refuse)
    new, merged = contents(path.with_name("new.db")), contents(path.with_name("merged.db"))
    former = take(path)
    assert (contents(path), contents(former)) == (new, merged)
    assert not path.with_name("log.db.keeping").exists()


@pytest.mark.parametrize("call", ["link", "replace", "fsync"])
def test_a_file_system_that_fails(path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = [contents(path), contents(path.with_name("merged.db"))]

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(StorageError, match=r"no space\. What is there is whole, .*: repeat the command"):
            take(path)
    assert contents(path) in allowed


def test_the_owner_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may give a file away, so the calls are noted."""
    given: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(os, "chown", lambda place, user, group: given.update({Path(place).name: (user, group)}))
    path.chmod(0o640)
    owner = path.stat().st_uid, path.stat().st_gid
    with_log = wal_of(path).exists()
    take(path)
    assert given == {"new.db": owner} | ({"merged.db-wal": owner} if with_log else {})
    assert path.stat().st_mode & 0o777 == 0o640


def test_leftovers_of_other_logs_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    for name in ("a1.db", "a[1].db"):
        for kind in ("repair", "recover"):
            (tmp_path / f"{name}.{kind}-x").mkdir()
    assert leftovers(tmp_path / "a[1].db") == [tmp_path / "a[1].db.recover-x", tmp_path / "a[1].db.repair-x"]


def test_a_folder_in_use_is_no_leftover(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    left = tmp_path / "log.db.repair-x"
    left.mkdir()
    (tmp_path / "log.db.recover-x").touch()
    with working_folder(path, "recover"):
        assert leftovers(path) == [left]


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        ("repair", errno.ENOSPC, "repair beside {0}: No space left on device; free space there, or repair a copy in"),
        (
            "recover",
            errno.ENOSPC,
            "recovery beside {0}: No space left on device; free space there, or name another NEW",
        ),
        ("recover", errno.EACCES, "; change that, or name another NEW"),
    ],
)
def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Literal["repair", "recover"], code: int, expected: str
) -> None:
    def fail(**_: object) -> str:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    path = tmp_path / "log.db"
    with pytest.raises(StorageError) as raised, working_folder(path, kind):
        pass
    assert str(raised.value).startswith("cannot make a folder for the re")
    assert expected.format(path) in str(raised.value)


def test_a_folder_that_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """Such a folder holds a copy of the log, and takes as much space."""
    path = tmp_path / "log.db"
    others = [tmp_path / name for name in ("other.db.recover-x", "log.db.repair-x", "log.db.recover")]
    for folder in (tmp_path / "log.db.recover-x", *others):
        folder.mkdir()
    (tmp_path / "log.db.recover-x" / "copy.db").touch()
    with working_folder(path, "recover") as first, working_folder(path, "recover") as second:
        # What another process is in stays.
        assert sorted(tmp_path.iterdir()) == sorted([first, second, *others])
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_a_folder_that_another_run_removes_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run ended with "Resource temporarily unavailable", or worked in a folder that was gone."""
    path, lock = tmp_path / "log.db", salvage._lock
    steps = iter(("before", "at", "after"))

    def run(folder: Path) -> int:
        step = next(steps, None)
        if step == "at":
            taken = lock(folder)
            try:
                return lock(folder)
            finally:
                os.close(taken)
        if step == "before":
            folder.rmdir()
        descriptor = lock(folder)
        if step == "after":
            folder.rmdir()
        return descriptor

    monkeypatch.setattr(salvage, "_lock", run)
    with working_folder(path, "repair") as folder:
        assert folder.is_dir()
        assert next(steps, None) is None
    assert not folder.exists()
