"""The blocks of README.md, for the tests that run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code.

    Attributes:
        language: what stands after the opening fence.
        text: the lines between the fences.
        line: the line of README.md that the text begins on, from 1.
    """

    language: str
    text: str
    line: int


def blocks() -> list[Block]:
    """All blocks, in order."""
    readme = README.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], readme.count("\n", 0, match.start(2)) + 1)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    ]


def first_program() -> tuple[str, str]:
    """The first Python program, and what the README says that it prints."""
    found = blocks()
    index = next(index for index, block in enumerate(found) if block.language == "python")
    return found[index].text, found[index + 1].text
