"""The blocks of README.md and of the pages in docs/, for the tests that run them, and how they are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
DOCS = README.parent / "docs"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code.

    Attributes:
        language: what stands after the opening fence.
        text: the lines between the fences.
        line: the line of the page that the text begins on, from 1.
    """

    language: str
    text: str
    line: int


def blocks(page: Path = README) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def first_program() -> tuple[str, str]:
    """The first Python program, and what the README says that it prints."""
    found = blocks()
    index = next(index for index, block in enumerate(found) if block.language == "python")
    return found[index].text, found[index + 1].text


def steps(block: Block) -> list[tuple[str, str]]:
    """The commands behind `$ ` in a block, each with what it prints."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    assert len(found) == block.text.count("$ gossiplog") > 0
    return found


def fits(expected: str, printed: str) -> bool:
    """Whether this is what a page says is printed: `…` there stands for any text within a line."""
    pattern = re.escape(expected.strip()).replace("…", "[^\n]*")
    return re.fullmatch(pattern, printed.strip()) is not None


def environment(home: Path) -> dict[str, str]:
    """That of a user with nothing in a home folder."""
    programs = str(Path(sys.executable).parent)
    inherited = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    return inherited | {
        "PATH": programs + os.pathsep + os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


def run_program(text: str, folder: Path, timeout: float) -> str:
    """What a program prints that says nothing on stderr and succeeds."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert run.stderr == ""
    assert run.returncode == 0
    return run.stdout


def run_command(command: str, folder: Path, timeout: float) -> str:
    """What a command prints until it ends well."""
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout
