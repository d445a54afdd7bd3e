"""The folders of runs that end and begin at a time."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

from _pytest.pathlib import make_numbered_dir_with_cleanup

from tests.conftest import pytest_sessionfinish


def folder_of_a_run(root: Path, ending: ExitStack) -> Path:
    """As pytest makes it, and locks it."""
    return make_numbered_dir_with_cleanup(
        root=root, prefix="pytest-", mode=0o700, keep=3, lock_timeout=3600, register=ending.callback
    )


def test_a_run_that_ends_leaves_the_lock_of_one_that_begins(tmp_path: Path) -> None:
    with ExitStack() as one, ExitStack() as other:
        folder = folder_of_a_run(tmp_path, one)
        pytest_sessionfinish(
            SimpleNamespace(config=SimpleNamespace(_tmp_path_factory=SimpleNamespace(_exit_stack=one)))
        )
        # pytest's own end of a run that passed, with another one that begins meanwhile.
        shutil.rmtree(folder)
        assert folder_of_a_run(tmp_path, other) == folder
        one.close()
        # Runs after it, of which three are kept: the last one cleans up.
        for _ in range(4):
            with ExitStack() as later:
                folder_of_a_run(tmp_path, later)
        assert folder.exists()
