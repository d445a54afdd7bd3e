from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "python" / "gossiplog"
SCRIPT = Path(sys.executable).parent / "gossiplog"
MISSING = "gossiplog's compiled core is missing: install a wheel"


@pytest.fixture
def without_core(tmp_path: Path) -> dict[str, str]:
    """An environment in which the package is found without its compiled core."""
    shutil.copytree(PACKAGE, tmp_path / "gossiplog", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name != "GOSSIPLOG_CORE"}
    return environment | {"PYTHONPATH": str(tmp_path)}


def run(command: Sequence[str | Path], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", [(SCRIPT,), (sys.executable, "-m", "gossiplog")], ids=["script", "module"])
def test_a_missing_core_is_one_line(program: Sequence[str | Path], without_core: dict[str, str]) -> None:
    done = run([*program, "info", "no.db"], without_core)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"gossiplog: {MISSING}")


@pytest.mark.parametrize("program", [(SCRIPT,), (sys.executable, "-m", "gossiplog")], ids=["script", "module"])
def test_an_unknown_core_is_one_line(program: Sequence[str | Path]) -> None:
    done = run([*program, "info", "no.db"], os.environ | {"GOSSIPLOG_CORE": "foo"})
    expected = "gossiplog: GOSSIPLOG_CORE is 'foo'; it must be 'rust' or 'python'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


@pytest.mark.parametrize(
    "statement", ["from gossiplog import open", "import gossiplog; gossiplog.open", "from gossiplog import core"]
)
def test_a_library_gets_the_exception(statement: str, without_core: dict[str, str]) -> None:
    done = run([sys.executable, "-c", statement], without_core)
    assert done.returncode == 1
    assert f"ImportError: {MISSING}" in done.stderr


def test_a_library_gets_an_error_for_unknown_names(without_core: dict[str, str]) -> None:
    done = run([sys.executable, "-c", "import gossiplog; gossiplog.opne"], without_core)
    assert "AttributeError: module 'gossiplog' has no attribute 'opne'" in done.stderr
