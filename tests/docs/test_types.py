"""The programs of docs/types.md run, and print what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readme import DOCS, blocks, run_program

pytestmark = pytest.mark.integration


def test_the_programs(tmp_path: Path) -> None:
    texts = [block.text for block in blocks(DOCS / "types.md")]
    printed = [run_program(program, tmp_path, 120) for program in texts[::2]]
    assert printed == texts[1::2]
    assert len(printed) == 2
