"""The documents that sources and pages name are there, and so are the sections that sources cite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.readme import DOCS, README

ROOT = README.parent
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
SOURCES = sorted(
    path
    for folder in ("python", "rust", "tests", "benches", "examples")
    for suffix in ("py", "pyi", "proto", "rs", "mjs")
    for path in (ROOT / folder).rglob(f"*.{suffix}")
    # This file has names for examples.
    if not {"node_modules", "target"} & set(path.parts) and path != Path(__file__)
)

# `wire format, "A" and "B"` and `"A" of the wire format`; `CONTRIBUTING.md, "A"`.
_CITATIONS = {
    DOCS / "wire-format.md": re.compile(
        r'wire format,? \(?((?:"[^"]+"(?:,? and |, )?)+)|("[^"]+")\)? (?:of|in) the wire format', re.IGNORECASE
    ),
    ROOT / "CONTRIBUTING.md": re.compile(r'CONTRIBUTING\.md, ("[^"]+")()'),
}


def prose(source: Path) -> str:
    """A source as one line, without the marks that comments begin with."""
    return re.sub(r"\s*\n\s*(?://[/!]?|#)?\s*", " ", source.read_text(encoding="utf-8"))


def sections(page: Path) -> set[str]:
    return set(re.findall(r"^#{2,} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def cited(page: Path) -> Iterator[tuple[str, str]]:
    """The sections of a page that sources cite, each behind the source."""
    for source in SOURCES:
        for match in _CITATIONS[page].finditer(prose(source)):
            for section in re.findall(r'"([^"]+)"', match[1] or match[2]):
                yield str(source.relative_to(ROOT)), section


@pytest.mark.slow
@pytest.mark.parametrize("page", _CITATIONS, ids=lambda page: page.name)
def test_sections_that_are_cited_are_there(page: Path) -> None:
    citations = list(cited(page))
    assert citations
    assert [citation for citation in citations if citation[1] not in sections(page)] == []


@pytest.mark.slow
def test_documents_that_are_named_are_there() -> None:
    named_by = {
        (source, name)
        for source in [*SOURCES, *PAGES]
        for name in re.findall(r"(?<![\w/.:-])(?:[\w-]+/)*[\w-]+\.md\b", source.read_text(encoding="utf-8"))
    }
    assert (README, "docs/wire-format.md") in named_by
    missing = [
        (str(source.relative_to(ROOT)), name)
        for source, name in sorted(named_by)
        if not any((folder / name).exists() for folder in (ROOT, DOCS, source.parent))
    ]
    assert missing == []
