"""Which Python `make` makes the environment with: .ci/choose-python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci/choose-python"


def python(folder: Path, name: str, says: str) -> None:
    """Put an interpreter into a folder that has run a line before what it is told to."""
    (folder / name).mkdir(parents=True)
    (folder / name / "sitecustomize.py").write_text(f"import sys, sysconfig; {says}\n")
    program = folder / f"bin/{name}"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder / name}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)


def chosen(folder: Path) -> str:
    """What is printed where the interpreters of the folder come before all others."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.strip()


SLOW = "sys.base_prefix = '/opt'; sysconfig.get_config_var = lambda name: '--enable-shared'"
FAST = "sys.base_prefix = '/opt'; sysconfig.get_config_var = lambda name: '--enable-optimizations'"
OLD = f"{FAST}; sys.version_info = (3, 10, 9)"


def test_one_that_is_optimized_is_taken_as_it_is(tmp_path: Path) -> None:
    python(tmp_path, "python3", FAST)
    python(tmp_path, "python3.14", FAST)
    assert chosen(tmp_path) == "python3"


@pytest.mark.parametrize("says", [OLD, SLOW])
def test_one_that_is_old_or_slow_gives_way(tmp_path: Path, says: str) -> None:
    python(tmp_path, "python3", says)
    python(tmp_path, "python3.14", FAST)
    assert chosen(tmp_path) in ("/usr/bin/python3", "python3.14")
