"""Every block of docs/simulator.md runs and prints what the page says, and its tables are those of the runs."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from benches.simulator_tables import table
from gossiplog.sim.named import read
from tests.readme import DOCS, Block, blocks, fits, run_command, run_program, steps

PAGE = DOCS / "simulator.md"
TIMEOUT = 600  # seconds: Spark takes its time where others work, too
BLOCKS = blocks(PAGE)
SESSIONS = [block for block in BLOCKS if block.language == "console"]


def test_there_is_nothing_else_than_what_is_tested() -> None:
    assert [block.language for block in BLOCKS if block.language != "console"] == ["toml", "python", "text"]
    assert len(SESSIONS) > 3


def marks(block: Block) -> list[pytest.MarkDecorator]:
    """What starts Spark is left out of the quick loop."""
    return [pytest.mark.integration, pytest.mark.timeout(1800)] if "gossiplog pipeline" in block.text else []


@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=marks(block), id=f"line {block.line}") for block in SESSIONS]
)
def test_session(block: Block, tmp_path: Path) -> None:
    (runs,) = (block for block in BLOCKS if block.language == "toml")
    (tmp_path / "mine.toml").write_text(runs.text, encoding="utf-8")
    for command, expected in steps(block):
        printed = run_command(command, tmp_path, TIMEOUT)
        assert fits(expected, printed), f"{command}\n{printed}"


def test_the_program(tmp_path: Path) -> None:
    ((program, printed),) = (pair for pair in pairwise(BLOCKS) if pair[0].language == "python")
    assert fits(printed.text, run_program(program.text, tmp_path, TIMEOUT))


def test_the_published_figures_stand_in_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for run in read().values():
        if not run.published:
            continue
        figures = [run.published[row] for row in ("graft", "!!publish", "ihave", "prune", "iwant")]
        name = run.name.replace("-", " ", 1).replace("-", ", ")
        assert f"| {name} | published | {' | '.join(f'{figure:,}' for figure in figures)} |" in text


def test_a_run_of_the_table_is_what_it_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = table([read()["run-1"]], 20, 1)
    assert len(lines) == 5
    assert "\n".join(lines[2:]) in text


def test_the_plots_are_there() -> None:
    plots = re.findall(r"!\[.*\]\((.*)\)", PAGE.read_text(encoding="utf-8"))
    assert len(plots) == 3
    assert all((DOCS / plot).read_text(encoding="utf-8").startswith("<svg") for plot in plots)
