"""What holds for the files of every page: they keep to what the policy and hostile texts need."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import gossiplog.net.http

SHARED = Path(gossiplog.net.http.__file__).parent / "page"


def scripts(folder: Path) -> list[Path]:
    """Our own scripts in a folder."""
    return sorted(path for path in folder.glob("*.js") if path.name != "d3.min.js")


def check_readme(folder: Path) -> None:
    """The README names every file but itself and the icon."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in folder.iterdir()}
    assert {name for name in names if f"`{name}`" not in readme} <= {"README.md", "icon.svg"}


def check_script(path: Path) -> None:
    """It sets text alone, and loads nothing from elsewhere."""
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
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    _check_served(re.findall(r'from "\./([^"]+)"', text), path.parent)
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 500


def check_document(path: Path, prefix: str = "") -> None:
    """It has no script or style of its own, which the policy would forbid: they have files.

    Args:
        path: of the document.
        prefix: of the addresses of its files.
    """
    text = path.read_text(encoding="utf-8")
    for tag in re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL):
        assert tag == ""
    assert not re.search(r"<style|\son\w+=|\sstyle=|javascript:|https?://", text)
    sources = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert sources
    assert all(source.startswith(prefix) for source in sources)
    _check_served([source.removeprefix(prefix) for source in sources], path.parent)


def _check_served(names: Iterable[str], folder: Path) -> None:
    for name in names:
        assert (folder / name).is_file() or (SHARED / name).is_file(), name
