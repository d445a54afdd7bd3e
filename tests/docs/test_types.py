"""The program of docs/types.md runs, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readme import DOCS, blocks, run_program

pytestmark = pytest.mark.integration


def test_the_program(tmp_path: Path) -> None:
    program, printed = (block.text for block in blocks(DOCS / "types.md"))
    assert run_program(program, tmp_path, 120) == printed
