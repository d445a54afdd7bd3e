"""The application of examples/todo: its own tests, and the length that its pages promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "todo"
PROGRAMS = ("todo.py", "server.py", "client.py")
TIMEOUT = 300


def test_it_has_less_than_120_lines() -> None:
    assert sum(len((FOLDER / name).read_text(encoding="utf-8").splitlines()) for name in PROGRAMS) < 120


@pytest.mark.integration
def test_its_own_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", FOLDER]
    run = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'tests'}", FOLDER / "test_todo.py"],
        env=os.environ | {"PYTHONPATH": f"{FOLDER}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert "4 passed" in run.stdout, run.stdout + run.stderr
