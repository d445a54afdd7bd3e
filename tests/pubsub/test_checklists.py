"""Every line of the checklists has a test that cites it; `make mutants` shows what the tests are worth."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.citations import Rule, cited, numbered

TESTS = Path(__file__).parent.parent
CHECKLISTS = sorted((Path(__file__).parent / "checklists").glob("*.md"))
SOURCES = [path for folder in ("pubsub", "sim", "cli") for path in sorted((TESTS / folder).rglob("test_*.py"))]


def cited_by_tests() -> set[Rule]:
    return {
        rule
        for path in SOURCES
        for docstring in re.findall(r'def test_\w+[^"]*?:\n    """(.*?)"""', path.read_text("utf-8"), re.DOTALL)
        for rule in cited(docstring)
    }


@pytest.mark.parametrize("path", CHECKLISTS, ids=[path.stem for path in CHECKLISTS])
def test_every_line_is_cited(path: Path) -> None:
    document = f"Seed {path.stem[:3]}"
    lines = numbered(path.read_text("utf-8"))
    assert lines == list(range(1, len(lines) + 1))
    assert len(lines) > 10
    tested = {number for of, number in cited_by_tests() if of == document}
    assert sorted(set(lines) - tested) == []
    assert sorted(tested - set(lines)) == []
