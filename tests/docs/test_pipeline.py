"""Every block of docs/pipeline.md runs, one behind the other in one folder, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.readme import DOCS, blocks, fits, run_command, run_program, steps

TIMEOUT = 600  # seconds: Spark takes its time where others work, too


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_the_tutorial(tmp_path: Path) -> None:
    found = blocks(DOCS / "pipeline.md")
    assert {block.language for block in found} == {"python", "text", "console"}
    printed = ""
    for block in found:
        match block.language:
            case "python":
                printed = run_program(block.text, tmp_path, TIMEOUT)
            case "text":
                assert fits(block.text, printed), f"line {block.line}\n{printed}"
            case "console":
                for command, expected in steps(block):
                    said = run_command(command, tmp_path, TIMEOUT)
                    assert fits(expected, said), f"{command}\n{said}"
