"""The programs of docs/wire-format.md run, and print what the page says; its dumps are bytes of the vectors."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.readme import DOCS, Block, blocks, fits, run_program

TESTS = DOCS.parent / "tests"
TIMEOUT = 60  # seconds
BLOCKS = blocks(DOCS / "wire-format.md")
PROGRAMS = [pair for pair in pairwise(BLOCKS) if pair[0].language == "python"]
DUMPS = [block for block in BLOCKS if block.language == "hex"]


def named(block: Block) -> str:
    return f"line {block.line}"


def test_there_is_nothing_else_than_what_is_tested() -> None:
    assert len(DUMPS) >= 2
    assert {block.language for block in BLOCKS} == {"python", "text", "hex"}
    assert [output.language for _, output in PROGRAMS] == ["text"] * sum(block.language == "text" for block in BLOCKS)


@pytest.mark.integration
@pytest.mark.parametrize(("program", "output"), PROGRAMS, ids=[named(program) for program, _ in PROGRAMS])
def test_program(program: Block, output: Block, tmp_path: Path) -> None:
    # They read the vectors, from the repository's root.
    (tmp_path / "tests").symlink_to(TESTS)
    printed = run_program(program.text, tmp_path, TIMEOUT)
    assert fits(output.text, printed), printed


@pytest.mark.parametrize("dump", DUMPS, ids=named)
def test_dump(dump: Block) -> None:
    """Bytes in hexadecimal, with comments behind `#`."""
    digits = re.sub(r"\s+|#.*", "", dump.text)
    assert bytes.fromhex(digits)
    assert any(digits in vectors.read_text(encoding="utf-8") for vectors in (TESTS / "vectors").glob("*.json"))
