"""Every block in the README runs, and prints what the README says. `…` there stands for any text within a line."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.readme import Block, blocks

ROOT = Path(__file__).parent.parent
BLOCKS = blocks()
PROGRAMS = [
    (block, following if following.language == "text" else None)
    for block, following in pairwise([*BLOCKS, Block("", "", 0)])
    if block.language == "python"
]
SESSIONS = [block for block in BLOCKS if block.language == "console"]


def named(block: Block) -> str:
    return f"line {block.line}"


def fits(expected: str, printed: str) -> bool:
    pattern = re.escape(expected.strip()).replace("…", "[^\n]*")
    return re.fullmatch(pattern, printed.strip()) is not None


def environment(home: Path) -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    inherited = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    return inherited | {
        "PATH": programs + os.pathsep + os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


def test_there_is_nothing_else_than_what_is_tested() -> None:
    assert len(PROGRAMS) >= 3
    assert len(SESSIONS) >= 1
    assert {block.language for block in BLOCKS} == {"python", "text", "console", "sh"}


@pytest.mark.parametrize(("block", "output"), PROGRAMS, ids=[named(block) for block, _ in PROGRAMS])
def test_program(block: Block, output: Block | None, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    assert run.returncode == 0
    expected = output.text if output else ""
    assert fits(expected, run.stdout), run.stdout


@pytest.mark.parametrize("block", SESSIONS, ids=named)
def test_session(block: Block, tmp_path: Path) -> None:
    """Commands behind `$ `, each followed by what it prints, in one folder; with ` &` by what it prints first."""
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    assert len(steps) == block.text.count("$ gossiplog") > 0
    with ExitStack() as stack:
        for command, expected in steps:
            if command.endswith(" &"):
                printed = stack.enter_context(background(command.removesuffix(" &"), tmp_path))
            else:
                printed = foreground(command, tmp_path)
            assert fits(expected, printed), f"{command}\n{printed}"


def foreground(command: str, folder: Path) -> str:
    """What a command prints until it ends."""
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout


@contextmanager
def background(command: str, folder: Path) -> Iterator[str]:
    """The first line that a command prints; it is ended with Ctrl-C."""
    arguments = shlex.split(command)
    with subprocess.Popen(
        arguments, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_make_targets() -> None:
    """The blocks of plain commands call make, and pip, which tests/integration/test_wheel.py runs."""
    commands = [
        line.split("#")[0].split() for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()
    ]
    assert commands
    targets = [arguments for program, *arguments in commands if program == "make"]
    assert ["demo"] in targets
    assert ["test"] in targets
    for arguments in targets:
        subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True, capture_output=True)
    assert {program for program, *_ in commands} <= {"make", "pip"}
