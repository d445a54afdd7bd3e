"""Pages of which programs write parts: `benches/pages.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.pages import head, line, rewrite

PAGE = """# Title

<!-- first -->

old

<!-- end of first -->
between
<!-- second -->
<!-- end of second -->
"""


def test_parts_are_rewritten_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(PAGE, encoding="utf-8")
    rewrite(page, {"second": ["é"], "first": [*head(["a", "b"], ["c"]), line("x", "y", "1")]})
    assert page.read_text(encoding="utf-8") == (
        "# Title\n\n<!-- first -->\n\n| a | b | c |\n| --- | --- | ---: |\n| x | y | 1 |\n\n<!-- end of first -->\n"
        "between\n<!-- second -->\n\né\n\n<!-- end of second -->\n"
    )
    written = page.read_bytes()
    rewrite(page, {"second": ["é"]})
    assert page.read_bytes() == written


@pytest.mark.parametrize("text", ["", "<!-- first -->", "<!-- end of first -->\n<!-- first -->"])
def test_a_page_that_lacks_a_part_stays_as_it_is(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(f"{text}\n<!-- second -->\n<!-- end of second -->", encoding="utf-8")
    written = page.read_bytes()
    with pytest.raises(ValueError, match="has no part 'first': expected <!-- first -->, and <!-- end of first -->"):
        rewrite(page, {"second": ["new"], "first": ["new"]})
    assert page.read_bytes() == written
