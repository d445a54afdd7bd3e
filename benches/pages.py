"""The parts of Markdown pages that programs write: what stands between `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def rewrite(page: Path, parts: Mapping[str, Sequence[str]]) -> None:
    """Gives some parts of a page other lines.

    Args:
        page: with each of them once.
        parts: the lines, by the names of the parts.

    Raises:
        ValueError: the page lacks a part. Nothing is written.
    """
    text = page.read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, begun, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not begun or not ended:
            raise ValueError(f"{page} has no part {name!r}: expected {begin}, and {end} behind it")
        text = "\n".join([before + begin, "", *lines, "", end + after])
    page.write_text(text, encoding="utf-8")


def line(*cells: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def head(texts: Sequence[str], figures: Sequence[str]) -> list[str]:
    """The first two lines of a table, by the titles of its columns: those of text, and those of figures behind them."""
    return [line(*texts, *figures), line(*["---"] * len(texts), *["---:"] * len(figures))]
