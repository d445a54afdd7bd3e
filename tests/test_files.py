"""Files that a user names (`gossiplog.files`)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer
from gossiplog.errors import GossipLogError, KeyFileError, NotALog, StorageError
from gossiplog.files import add_name, check_file, explain_denial, open_file, publish


def special(kind: str, place: Path) -> Path:
    """Make something that is no file."""
    match kind:
        case "a named pipe":
            os.mkfifo(place)
        case "a folder":
            place.mkdir()
        case "a device":
            place.symlink_to("/dev/zero")
        case "a socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(place))
    return place


KINDS = ["a named pipe", "a folder", "a device", "a socket"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    place = special(kind, tmp_path / "x")
    with pytest.raises(OSError, match=f"it is {kind}; expected a file"):
        check_file(place)
    with pytest.raises(KeyFileError, match=f"cannot read the key file .*x: it is {kind}; expected a file"):
        Signer.load(place)
    with pytest.raises(NotALog, match=f"cannot open .*x: it is {kind}; expected the file of a log"):
        gossiplog.open(place, "notes")
    with (
        gossiplog.open(":memory:", "notes") as log,
        pytest.raises(GossipLogError, match=f"it is {kind}; expected the file of a log"),
    ):
        log.pull(place)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_sqlite_waits_for_no_pipe_beside_a_log(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "log.db"
    gossiplog.open(path, "notes").close()
    os.mkfifo(f"{path}{suffix}")
    for location in (path, f"file:{path}?mode=ro"):
        with pytest.raises(
            StorageError, match=f"log.db{suffix} is a named pipe, where SQLite keeps a file: mv .*log.db{suffix}.former"
        ):
            gossiplog.open(location)


def test_a_pipe_that_the_process_was_given_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    with open_file(f"/dev/fd/{reading}") as file:
        assert file.read() == b"text"
    os.close(reading)


def test_a_read_only_file_system_is_why_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = os.statvfs(tmp_path)
    flags = system.f_flag | os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result([*system[:8], flags, system[9]]))
    assert explain_denial(tmp_path, "write to") == "its file system is mounted read-only"
    assert explain_denial(tmp_path, "read").startswith(f"user {os.geteuid()} may not read it: ")


def test_names_need_not_be_utf_8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"log\xff.db")
    signer = Signer.generate()
    signer.save(tmp_path / os.fsdecode(b"key\xff"))
    with gossiplog.open(path, "notes", signer=Signer.load(tmp_path / os.fsdecode(b"key\xff"))) as log:
        log.append(1)
    with gossiplog.open(path, read_only=True) as log:
        assert len(log) == 1
        assert log.info().bytes > 0
    with gossiplog.open(":memory:", "notes") as log:
        assert log.pull(path).inserted == 1
    assert sorted(map(os.fsencode, os.listdir(tmp_path)))[0] == b"key\xff"


@pytest.mark.parametrize("can_link", [True, False])
def test_a_name_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    if not can_link:
        monkeypatch.setattr(os, "link", refuse)
    made, path = tmp_path / "made", tmp_path / "published"
    made.write_bytes(b"one")
    publish(made, path)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("published", b"one")]
    made.write_bytes(b"two")
    with pytest.raises(FileExistsError):
        publish(made, path)
    assert (made.read_bytes(), path.read_bytes()) == (b"two", b"one")


def test_a_file_that_is_gone_takes_no_name(tmp_path: Path) -> None:
    """The name was left with an empty file."""
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "gone", tmp_path / "name")
    assert list(tmp_path.iterdir()) == []


def test_a_name_stays_free_where_the_file_cannot_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hard links the name was left with an empty file."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    made = tmp_path / "made"
    made.write_bytes(b"one")
    for call in ("link", "replace"):
        monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="not permitted"):
        publish(made, tmp_path / "name")
    assert [each.name for each in tmp_path.iterdir()] == ["made"]


def test_a_second_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    made, path = tmp_path / "made", tmp_path / "name"
    made.write_bytes(b"one")
    assert add_name(made, path)
    assert made.samefile(path)
    with pytest.raises(FileExistsError):
        add_name(made, path)
    monkeypatch.setattr(os, "link", refuse)
    assert not add_name(made, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("give", [publish, add_name])
def test_a_name_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give: Callable[[Path, Path], object]
) -> None:
    made, path = tmp_path / "made", tmp_path / "name"
    made.write_bytes(b"one")
    synced: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(sorted(os.listdir(descriptor))))
    give(made, path)
    assert synced == [["name"] if give is publish else ["made", "name"]]
