"""Every block in the README runs, and prints what the README says. `…` there stands for any text within a line."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.readme import (
    Block,
    blocks,
    environment,
    fits,
    run_command,
    run_here,
    run_program,
    starts_spark,
    steps,
    words,
)

ROOT = Path(__file__).parent.parent
BLOCKS = blocks()
PROGRAMS = [
    (block, following if following.language == "text" else None)
    for block, following in pairwise([*BLOCKS, Block("", "", 0)])
    if block.language == "python"
]
SESSIONS = [block for block in BLOCKS if block.language == "console"]
TIMEOUT = 600  # seconds: Spark takes its time where others work, too


def named(block: Block) -> str:
    return f"line {block.line}"


def test_there_is_nothing_else_than_what_is_tested() -> None:
    assert len(PROGRAMS) >= 3
    assert len(SESSIONS) >= 1
    assert {block.language for block in BLOCKS} == {"python", "text", "console", "sh"}


@pytest.mark.integration
@pytest.mark.parametrize(("block", "output"), PROGRAMS, ids=[named(block) for block, _ in PROGRAMS])
def test_program(block: Block, output: Block | None, tmp_path: Path) -> None:
    expected = output.text if output else ""
    printed = run_program(block.text, tmp_path, TIMEOUT)
    assert fits(expected, printed), printed


@pytest.mark.integration
@pytest.mark.parametrize("block", [block for block in SESSIONS if not starts_spark(block)], ids=named)
def test_session(block: Block, tmp_path: Path) -> None:
    """Commands behind `$ `, each followed by what it prints, in one folder; with ` &` by what it prints first."""
    with ExitStack() as stack:
        for command, expected in steps(block):
            if command.endswith(" &"):
                printed = stack.enter_context(background(command.removesuffix(" &"), tmp_path))
            else:
                printed = run_command(command, tmp_path, TIMEOUT)
            assert fits(expected, printed), f"{command}\n{printed}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", [block for block in SESSIONS if starts_spark(block)], ids=named)
def test_session_with_jobs_on_spark(block: Block, workplace: Path) -> None:
    """As above, with the jobs in the tests' Spark session."""
    for command, expected in steps(block):
        printed = run_here(command, workplace, TIMEOUT)
        assert fits(expected, printed), f"{command}\n{printed}"


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
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("""gossiplog a 'b | c' "d(e, '$.f')" --g""", ["gossiplog", "a", "b | c", "d(e, '$.f')", "--g"]),
        ("gossiplog read '*.db'", ["gossiplog", "read", "*.db"]),
        ("gossiplog read *.db", None),
        ("gossiplog read a.db | head", None),
        ("gossiplog read a.db > b", None),
        ("gossiplog read a.db || true", None),
        ('gossiplog read "$HOME/a.db"', None),
        ("gossiplog read ~/a.db", None),
    ],
)
def test_what_needs_a_shell(command: str, expected: list[str] | None) -> None:
    assert words(command) == expected


@pytest.mark.integration
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
