"""The files of the page: D3's are as they were published; ours keep to what the policy and hostile names need."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import gossiplog.dashboard

FOLDER = Path(gossiplog.dashboard.__file__).parent / "page"
OURS = sorted(path for path in FOLDER.glob("*.js") if path.name != "d3.min.js")


def test_d3_is_what_was_published() -> None:
    """The digests are those of npm's package, which the README names with its version."""
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    digests = dict(re.findall(r"\| `(\S+)` \| ([0-9a-f]{64}) \|", readme))
    assert set(digests) == {"d3.min.js", "d3.LICENSE.txt"}
    for name, digest in digests.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    head = (FOLDER / "d3.min.js").read_text(encoding="utf-8")[:100]
    version = re.search(r"D3 \(https://d3js\.org\) (\S+):", readme)
    assert version is not None
    assert f"// https://d3js.org v{version[1]} Copyright" in head


def test_every_file_is_named_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = {name for path in FOLDER.iterdir() if f"`{path.name}`" in readme for name in [path.name]}
    assert {path.name for path in FOLDER.iterdir()} - named == {"README.md", "icon.svg"}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_scripts_set_text_alone_and_load_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for unsafe in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        ".html(",
        "eval(",
        "setAttribute(",
    ):
        assert unsafe not in text
    assert not re.search(r"https?://", text)
    imported = re.findall(r'from "(\./[^"]+)"', text)
    assert all((FOLDER / name).is_file() for name in imported)
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 500


def test_the_page_runs_no_script_of_its_own() -> None:
    """The policy would forbid it: scripts, styles and handlers have files."""
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    for tag in re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL):
        assert tag == ""
    assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:|https?://", text)
    sources = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert sources
    assert all((FOLDER / name).is_file() for name in sources)
