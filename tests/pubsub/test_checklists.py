"""Every line of the checklists has a test that cites it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
CHECKLISTS = sorted((Path(__file__).parent / "checklists").glob("*.md"))
SOURCES = [path for folder in ("pubsub", "sim", "cli") for path in sorted((TESTS / folder).rglob("test_*.py"))]


def cited() -> set[tuple[str, int]]:
    """The (checklist, line) pairs that the docstrings of tests cite: "Seed 002, 7" or "Seed 002, 7 and 12"."""
    found = set()
    for path in SOURCES:
        for _, docstring in re.findall(r'def (test_\w+)[^"]*?:\n    """(.*?)"""', path.read_text("utf-8"), re.DOTALL):
            for checklist, numbers in re.findall(r"Seed (\d{3}),\s+((?:\d+(?:,\s+|\s+and\s+)?)+)", docstring):
                found |= {(checklist, int(number)) for number in re.findall(r"\d+", numbers)}
    return found


@pytest.mark.parametrize("path", CHECKLISTS, ids=[path.stem for path in CHECKLISTS])
def test_every_line_is_cited(path: Path) -> None:
    checklist = path.stem[:3]
    lines = [int(number) for number in re.findall(r"^(\d+)\. ", path.read_text("utf-8"), re.MULTILINE)]
    assert lines == list(range(1, len(lines) + 1))
    assert len(lines) > 10
    tested = {number for of, number in cited() if of == checklist}
    assert sorted(set(lines) - tested) == []
    assert sorted(tested - set(lines)) == []
