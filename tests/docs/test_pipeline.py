"""Every block of docs/pipeline.md runs, one behind the other in one folder, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readme import DOCS, README, blocks, fits, run_here, run_program, steps, words

TIMEOUT = 600  # seconds: Spark takes its time where others work, too


@pytest.mark.timeout(3600)
def test_the_tutorial(workplace: Path) -> None:
    found = blocks(DOCS / "pipeline.md")
    assert {block.language for block in found} == {"python", "text", "console"}
    printed = ""
    for block in found:
        match block.language:
            case "python":
                printed = run_program(block.text, workplace, TIMEOUT)
            case "text":
                assert fits(block.text, printed), f"line {block.line}\n{printed}"
            case "console":
                for command, expected in steps(block):
                    said = run_here(command, workplace, TIMEOUT)
                    assert fits(expected, said), f"{command}\n{said}"


def test_one_job_of_all_pages_starts_spark_itself() -> None:
    """The others run in the tests' session. This one is for a shell, which runs it as users do."""
    commands = [
        command
        for page in (README, *DOCS.glob("*.md"))
        for block in blocks(page)
        if block.language == "console"
        for command, _ in steps(block)
    ]
    jobs = [command for command in commands if command.startswith("gossiplog pipeline ")]
    assert len(jobs) > 5
    assert len([command for command in jobs if words(command) is None]) == 1
