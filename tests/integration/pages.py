"""Pages of our servers in headless Chromium, as a person sees and uses them: `js/visit.mjs`, for Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.javascript import Handle, Process


class Page(Handle):
    """A page in a browser, with storage of its own.

    Args:
        process: the browser's.
        url: of the page.
        size: of the window, in pixels.
        dark: whether the person prefers dark colours.
    """

    def __init__(self, process: Process, url: str, *, size: tuple[int, int] = (1280, 800), dark: bool = False) -> None:
        width, height = size
        super().__init__(process, kind="visit", url=url, width=width, height=height, dark=dark)

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the page, and requests to somewhere else."""
        return [str(event.fields["text"]) for event in self.events("complaint")]

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        return self._call("evaluate", expression=expression)

    def until(self, expression: str) -> Any:
        """What an expression is, as soon as it is true."""
        return self._call("until", expression=expression)

    def click(self, selector: str) -> None:
        self._call("click", selector=selector)

    def click_at(self, x: float, y: float, key: str | None = None) -> None:
        """Click a place, with a key held."""
        self._call("click_at", x=x, y=y, key=key)

    def move(self, x: float, y: float) -> None:
        """Move the mouse to a place."""
        self._call("move", x=x, y=y)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, by the names that they have in `KeyboardEvent.key`."""
        for key in keys:
            self._call("press", key=key)

    def type(self, text: str) -> None:
        self._call("type", text=text)

    def reload(self) -> None:
        """Load the page again."""
        self._call("reload")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page, as PNG."""
        self._call("screenshot", path=str(path), whole=whole)
