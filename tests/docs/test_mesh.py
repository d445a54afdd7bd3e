"""Every program of docs/mesh.md runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readme import DOCS, blocks, run_program

TIMEOUT = 120


@pytest.mark.integration
def test_the_programs(tmp_path: Path) -> None:
    (bootstrap,) = (block.text for block in blocks(DOCS / "mesh.md") if block.language == "python")
    first = run_program(bootstrap, tmp_path, TIMEOUT)
    assert first.startswith("/ip4/127.0.0.1/tcp/")
    # Its key stays.
    assert run_program(bootstrap, tmp_path, TIMEOUT).rpartition("/")[2] == first.rpartition("/")[2]
