"""A full disk and a read-only file: a clear error, and a log that still opens with all that was in it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossiplog
from gossiplog import Signer

pytestmark = pytest.mark.integration

FULL = """
import resource, sys
import gossiplog

with gossiplog.open(sys.argv[1], signer=gossiplog.Signer(bytes(32))) as log:
    before = len(log), log.root
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
    try:
        while True:
            log.append(bytes(100_000))
            before = len(log), log.root
    except gossiplog.StorageError as error:
        print(error)
    assert (len(log), log.root) == before
    try:
        log.insert_many([gossiplog.Signer(bytes(32)).sign("topic", 1, [], bytes(300_000))[1]])
    except gossiplog.StorageError as error:
        print(error)
    assert (len(log), log.root) == before
print(before[0])
"""

READ_ONLY = """
import os, sys
import gossiplog

if os.getuid() == 0:
    os.setuid(65534)
try:
    log = gossiplog.open(sys.argv[1], signer=gossiplog.Signer(bytes(32)))
except gossiplog.StorageError as error:
    print(error)
    sys.exit()
with log:
    print(len(list(log)))
    try:
        log.append("more")
    except gossiplog.StorageError as error:
        print(error)
    print(len(list(log)))
"""


def run(script: str, *arguments: object) -> list[str]:
    process = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


@pytest.fixture
def path(signer: Signer) -> Iterator[Path]:
    # pytest's folders are closed to other users, and every pytest that starts closes them again.
    with tempfile.TemporaryDirectory(prefix="gossiplog-") as folder:
        path = Path(folder) / "log.db"
        with gossiplog.open(path, "topic", signer=signer) as log:
            log.append_many(range(50))
        yield path


@pytest.mark.parametrize("limit", [700_000, 1_000_000])
def test_a_file_that_cannot_grow(path: Path, limit: int) -> None:
    first, second, count = run(FULL, path, limit)
    assert first.startswith(f"cannot write to {path}: the disk ")
    assert second.startswith(f"cannot write to {path}: the disk ")
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        assert len(log) == int(count) > 50
        log.verify()
        log.append("more")


@pytest.fixture
def read_only(path: Path) -> Iterator[Path]:
    """A log that a process may read and not write, not even as root: READ_ONLY takes another user's identity."""
    path.chmod(0o444)
    yield path
    path.parent.chmod(0o755)
    path.chmod(0o644)
    with gossiplog.open(path, signer=Signer(bytes(32))) as log:
        log.append("more")
        log.verify()


def test_a_read_only_file(read_only: Path) -> None:
    read_only.parent.chmod(0o777)
    before, error, after = run(READ_ONLY, read_only)
    assert (before, after) == ("50", "50")
    assert error.startswith(f"cannot write to {read_only}: the file or its folder is read-only")


def test_a_read_only_folder(read_only: Path) -> None:
    read_only.parent.chmod(0o755)
    (error,) = run(READ_ONLY, read_only)
    assert error.startswith(f"cannot open {read_only}: the file or its folder is read-only")
    before, error, after = run(READ_ONLY, f"file:{read_only}?immutable=1")
    assert (before, after) == ("50", "50")
    assert "the file or its folder is read-only" in error
