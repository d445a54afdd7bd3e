"""Every block in the README runs, in one shell from top to bottom, and prints what the README says.

`…` there stands for any text within a line.
"""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.readme import Block, Shell, blocks, steps, words
from tests.spark import java

ROOT = Path(__file__).parent.parent
BLOCKS = blocks()
TIMEOUT = 600  # seconds: Spark takes its time where others work, too


def test_there_is_nothing_else_than_what_is_tested() -> None:
    assert {block.language for block in BLOCKS} == {"python", "text", "console", "sh"}


@pytest.mark.integration
@pytest.mark.timeout(1800)
def test_every_block_in_one_shell(tmp_path: Path) -> None:
    """In their order, as pasted: what a block leaves in the folder, or in the background, does not hinder later ones.

    The one job on Spark starts Spark itself: in the tests' session, all these blocks would keep its tests waiting.
    """
    with Shell(tmp_path, TIMEOUT, java_options=java.archived()) as shell:
        for block, following in pairwise([*BLOCKS, Block("", "", 0)]):
            if block.language == "python":
                (tmp_path / "program.py").write_text(block.text, encoding="utf-8")
                shell.run("python -W error program.py", following.text if following.language == "text" else "")
            elif block.language == "console":
                for command, expected in steps(block):
                    shell.run(command, expected)


@pytest.mark.integration
def test_what_a_shell_is_held_to(tmp_path: Path) -> None:
    with Shell(tmp_path, TIMEOUT) as shell:
        shell.run("sleep 600 &", "")
        shell.run("x=1; printf there", "there")
        shell.run("echo $x", "1")
        with pytest.raises(AssertionError, match="echo 2"):
            shell.run("echo 2", "3")
        with pytest.raises(AssertionError, match="false"):
            shell.run("false", "")


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
