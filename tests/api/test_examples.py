"""The examples of the reference pages run, and print what they say. They are the docstrings' (`test_pages.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.examples import PREAMBLE, failures
from tests.readme import DOCS, blocks

PAGES = sorted((DOCS / "reference").glob("*.md"))
EXAMPLES = {
    f"{path.stem}{number or ''}": block.text
    for path in PAGES
    for number, block in enumerate(block for block in blocks(path) if block.language == "pycon")
}


def test_there_is_one_for_each_name() -> None:
    # The index has none, nor has the page of the jobs on Spark: docs/pipeline.md has a program.
    assert len(EXAMPLES) >= len(PAGES) - 2


def test_each_prints_something() -> None:
    """What prints nothing shows nothing, and cannot fail."""
    silent = [
        name
        for name, text in EXAMPLES.items()
        if not any(line and not line.startswith((">>>", "...")) for line in text.splitlines())
    ]
    assert silent == []


def test_they_begin_as_the_index_says() -> None:
    assert PREAMBLE in {block.text for block in blocks(DOCS / "reference" / "README.md")}


@pytest.mark.parametrize(
    "name",
    # Those with an event loop take up to half a second.
    [pytest.param(name, marks=[pytest.mark.slow] if "anyio.run" in text else []) for name, text in EXAMPLES.items()],
)
def test_an_example(name: str, tmp_path: Path) -> None:
    assert failures(name, EXAMPLES[name], tmp_path) == ""


def test_what_an_example_prints_is_compared(tmp_path: Path) -> None:
    assert "Expected:\n    2" in failures("wrong", ">>> 1 + 2\n2\n", tmp_path)
