"""Which Python `make` makes the environment with: .ci/choose-python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci/choose-python"
CHOICES = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_VERSION")
# Code that a stand-in interpreter runs first, as its sitecustomize.
SLOW = "sys.base_prefix = '/opt'; sysconfig.get_config_var = lambda name: '--enable-shared'"
FAST = "sys.base_prefix = '/opt'; sysconfig.get_config_var = lambda name: '--enable-optimizations'"
DEBIAN = "sys.base_prefix = '/usr'; sysconfig.get_config_var = lambda name: None"
OLD = f"{FAST}; sys.version_info = (3, 10, 9)"
INCOMPLETE = f"{FAST}; import importlib.util; importlib.util.find_spec = lambda name: None"
CHATTY = f"{FAST}; print('hello')"
BROKEN = "import os; os._exit(1)"

pytestmark = pytest.mark.integration


def chosen(folder: Path, interpreters: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return what the script prints, given these interpreters as candidates, by name and code."""
    for name, before in interpreters.items():
        (folder / name).mkdir()
        (folder / name / "sitecustomize.py").write_text(f"import sys, sysconfig; {before}\n")
        program = folder / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{folder / name}" exec "{sys.executable}" "$@"\n')
        program.chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in CHOICES}
    path = f"{folder / 'programs'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", SCRIPT, *interpreters],
        env=inherited | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        (FAST, FAST, "first"),
        (DEBIAN, FAST, "first"),
        (CHATTY, FAST, "first"),
        (SLOW, FAST, "second"),
        (SLOW, DEBIAN, "second"),
        (OLD, FAST, "second"),
        (INCOMPLETE, FAST, "second"),
        (BROKEN, FAST, "second"),
        (SLOW, SLOW, "first"),
        (SLOW, INCOMPLETE, "first"),
        (INCOMPLETE, SLOW, "second"),
        (INCOMPLETE, OLD, "first"),
        (OLD, BROKEN, ""),
    ],
)
def test_one_that_is_optimized_comes_first(tmp_path: Path, first: str, second: str, name: str) -> None:
    assert chosen(tmp_path, {"first": first, "second": second}, {}) == name


@pytest.mark.parametrize("variable", CHOICES)
def test_the_users_own_choice_is_taken(tmp_path: Path, variable: str) -> None:
    assert chosen(tmp_path, {"first": SLOW, "second": FAST}, {variable: "/opt/its"}) == "first"
