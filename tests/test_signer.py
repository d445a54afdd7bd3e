from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from gossiplog import KeyFileError, Signer, core, default_key_path
from gossiplog import signer as signer_module
from gossiplog.signer import read_secret


def test_a_signer_has_a_did_and_hides_its_private_key() -> None:
    signer = Signer(b"\7" * 32)
    assert signer.public_key == core.SigningKey(b"\7" * 32).public_key
    assert signer.did == core.SigningKey(b"\7" * 32).did
    assert signer.private_key == b"\7" * 32
    assert repr(signer) == f"Signer({signer.did})"


def test_generated_signers_differ() -> None:
    assert Signer.generate().did != Signer.generate().did


@pytest.mark.parametrize("text", ["alice.key", "0" * 32, "0" * 64])
def test_the_path_of_a_key_file_is_no_private_key(text: str) -> None:
    with pytest.raises(TypeError, match=r"32 bytes, not text: gossiplog\.Signer\.load\(path\) reads a key file"):
        Signer(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_private_keys_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"a private key of {length} bytes"):
        Signer(bytes(length))


@pytest.mark.parametrize("codec", ["dag-cbor", "dag-json"])
def test_what_it_signs_is_valid(codec: str) -> None:
    signer = Signer.generate()
    key, value = signer.sign("topic", 1, [], {"text": "hi"}, codec)
    message = core.verify(value, "topic")
    assert (message.key, message.author, message.codec) == (key, signer.did, codec)


def test_it_signs_bytes_of_other_protocols() -> None:
    signer = Signer.generate()
    assert core.verify_bytes(signer.public_key, signer.sign_bytes(b"content"), b"content")


def test_a_key_file_holds_the_key_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "key"
    signer = Signer.generate()
    signer.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Signer.load(path).did == signer.did
    assert list(path.parent.iterdir()) == [path]


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    signer = Signer.generate()
    signer.save(path)
    with pytest.raises(KeyFileError, match="never overwritten"):
        Signer.generate().save(path)
    assert Signer.load(path).did == signer.did


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_file_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    Signer.generate().save(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match="chmod 600"):
        Signer.load(path)


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
@pytest.mark.parametrize(
    ("mode", "is_given", "is_read_only", "command"),
    [
        # As Kubernetes mounts secrets: 0644 where nothing is said, 0440 with `fsGroup` and `defaultMode: 0400`.
        (0o644, True, True, ""),
        (0o444, True, True, ""),
        (0o440, True, True, ""),
        # For a program that runs as root.
        (0o644, False, True, ""),
        # Elsewhere root may choose a group.
        (0o440, True, False, ""),
        (0o640, True, False, ""),
        (0o444, True, False, "chmod 640"),
        (0o660, True, False, "chmod 640"),
        (0o440, False, False, "chmod 600"),
        (0o664, True, True, "chmod 640"),
        (0o602, False, True, "chmod 600"),
    ],
)
def test_secrets_that_are_given_have_the_modes_of_who_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_given: bool, is_read_only: bool, command: str
) -> None:
    # A mounted secret is a link to a folder that is swapped for a new one.
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "key").write_bytes(b"a secret")
    path = tmp_path / "key"
    path.symlink_to(Path("..data", "key"))
    path.chmod(mode)
    status, system = path.stat(), os.statvfs(path)
    as_root = os.stat_result([*status[:4], 0 if is_given else 1000, *status[5:]])
    flags = system.f_flag & ~os.ST_RDONLY | (os.ST_RDONLY if is_read_only else 0)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fstat", lambda descriptor: as_root)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: os.statvfs_result([*system[:8], flags, system[9]]))
    if command:
        with pytest.raises(KeyFileError, match=f"open to other users: run {command} {path}"):
            read_secret(path, "token file", 100)
    else:
        assert read_secret(path, "token file", 100) == b"a secret"


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
@pytest.mark.parametrize(("owner", "mode", "is_service"), [(0, 0o640, True), (0, 0o644, False), (1000, 0o640, False)])
def test_root_is_not_advised_to_lock_a_service_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, is_service: bool
) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"a secret")
    path.chmod(mode)
    status = path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    monkeypatch.setattr(os, "fstat", lambda descriptor: os.stat_result([*status[:4], owner, *status[5:]]))
    with pytest.raises(KeyFileError, match="run chmod 600") as raised:
        read_secret(path, "token file", 100)
    assert ("run this command as the service's user instead" in str(raised.value)) == is_service


@pytest.mark.skipif(os.name != "posix", reason="files have no modes")
def test_a_secret_that_the_user_may_not_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.touch(0o640)
    owner = path.stat()

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(signer_module, "open_file", refuse)
    expected = f"of user {owner.st_uid} and group {owner.st_gid}, with mode 0640"
    with pytest.raises(KeyFileError, match=f"user {os.geteuid()} may not read it: it is {expected}"):
        read_secret(path, "token file", 100)


@pytest.mark.parametrize("content", [b"", b"00", b"0" * 65, b"g" * 64, b"\xff" * 64, b"0" * 1000])
def test_a_damaged_key_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="damaged: expected 64 hexadecimal digits"):
        Signer.load(path)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="nowhere"):
        Signer.load(tmp_path / "nowhere")


def test_a_key_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KeyFileError, match="cannot write the key file"):
        Signer.generate().save(tmp_path / "file" / "key")


def test_a_key_is_made_at_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    signer = Signer.load_or_create()
    assert Signer.load_or_create().did == signer.did
    assert default_key_path() == tmp_path / "gossiplog" / "key"
    assert Signer.load(default_key_path()).did == signer.did


@pytest.mark.parametrize("configured", ["", "relative/path"])
def test_without_a_configuration_folder_the_key_is_in_the_home(
    configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", configured)
    monkeypatch.setenv("HOME", os.sep + "home-of-somebody")
    assert default_key_path() == Path(os.sep + "home-of-somebody", ".config", "gossiplog", "key")


@pytest.mark.parametrize("configured", [True, False])
def test_a_key_that_an_earlier_version_made_is_found_on_every_system(
    configured: bool, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise somebody would get another identity by an upgrade."""
    system = tmp_path / "Library" / "gossiplog"
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name, appauthor: system)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config") if configured else "")
    earlier = tmp_path / ("config" if configured else ".config") / "gossiplog" / "key"
    assert default_key_path() == system / "key"
    signer.save(earlier)
    assert default_key_path() == earlier
    assert Signer.load_or_create().did == signer.did
    Signer(b"\1" * 32).save(system / "key")
    assert default_key_path() == earlier
    earlier.unlink()
    # A link to a disk that is not mounted is a key that cannot be read, not one that is missing.
    earlier.symlink_to(tmp_path / "unmounted")
    assert default_key_path() == earlier
    with pytest.raises(KeyFileError):
        Signer.load_or_create()


KILLED = """
import os, signal, sys
from gossiplog import Signer

path, is_nameless, left = sys.argv[1], sys.argv[2] == "nameless", int(sys.argv[3])
if not is_nameless:
    del os.O_TMPFILE

def counted(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

for name in ("open", "fsync", "link", "unlink", "mkdir", "close"):
    setattr(os, name, counted(getattr(os, name)))
print(Signer.load_or_create(path).did)
"""


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_a_kill_leaves_no_key_that_is_not_the_key(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "keys"
    kills = 0
    for step in range(40):
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder / "key"), kind, str(step)], capture_output=True, text=True
        )
        left = [*folder.iterdir()] if folder.exists() else []
        assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in left)
        unpublished = [file for file in left if file.name != "key"]
        if kind == "nameless":
            assert not unpublished
        for file in unpublished:
            os.utime(file, (0, 0))
        made = Signer.load_or_create(folder / "key")
        assert [file.name for file in folder.iterdir()] == ["key"]
        if process.returncode == 0:
            assert process.stdout.split() == [made.did]
            break
        assert process.returncode == -signal.SIGKILL, process.stderr
        kills += 1
    assert kills >= 4


def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    path = tmp_path / "key"
    writing, another = (tmp_path / f".{name}.gossiplog-unpublished-abc" for name in ("key", "other"))
    for file in (writing, another):
        file.write_bytes(b"")
    os.utime(another, (0, 0))
    Signer.load_or_create(path)
    assert writing.exists()
    assert another.exists()


@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_the_name_of_a_key_file_is_on_the_disk(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    synced: list[bool] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        # The folder comes after the link.
        assert (tmp_path / "key").exists() is synced[-1]
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    signer = Signer.generate()
    signer.save(tmp_path / "key")
    assert synced == [False, True]
    assert Signer.load(tmp_path / "key").did == signer.did
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyFileError, match="never overwritten"):
        Signer.generate().save(tmp_path / "key")
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_key_is_kept_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a FAT file system: it said "Operation not permitted"."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    signer = Signer.load_or_create(tmp_path / "key")
    assert Signer.load(tmp_path / "key").did == signer.did
    with pytest.raises(KeyFileError, match="never overwritten"):
        signer.save(tmp_path / "key")
    assert [file.name for file in tmp_path.iterdir()] == ["key"]
