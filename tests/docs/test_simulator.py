"""Every block of docs/simulator.md runs and prints what the page says, and its tables are those of the runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from benches import attack_tables, simulator_tables
from gossiplog.sim.routers.named import Named
from tests.readme import DOCS, Block, blocks, fits, run_here, run_program, run_steps
from tests.simulations import RUNS, recounted, stored

PAGE = DOCS / "simulator.md"
TIMEOUT = 600  # seconds: Spark takes its time where others work, too
BLOCKS = blocks(PAGE)
SESSIONS = [block for block in BLOCKS if block.language == "console"]


def test_there_is_nothing_else_than_what_is_tested() -> None:
    assert [block.language for block in BLOCKS if block.language != "console"] == ["toml", "python", "text"]
    assert len(SESSIONS) > 3


@pytest.mark.integration
def test_the_plots_are_those_of_the_command(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (command,) = re.findall(r"`(gossiplog simulate .*) --plots docs/simulator`", text)
    run_here(f"{command} --plots plots", tmp_path, TIMEOUT)
    plots = re.findall(r"!\[.*\]\(simulator/(.*)\)", text)
    assert len(plots) == 3
    for plot in plots:
        assert (DOCS / "simulator" / plot).read_text("utf-8") == (tmp_path / "plots" / plot).read_text("utf-8")


def marks(block: Block) -> list[pytest.MarkDecorator]:
    """Half an hour for what starts Spark."""
    return [pytest.mark.timeout(1800)] if "gossiplog pipeline" in block.text else []


@pytest.mark.integration
@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=marks(block), id=f"line {block.line}") for block in SESSIONS]
)
def test_session(block: Block, tmp_path: Path) -> None:
    (runs,) = (block for block in BLOCKS if block.language == "toml")
    (tmp_path / "mine.toml").write_text(runs.text, encoding="utf-8")
    run_steps(block, tmp_path, TIMEOUT)


@pytest.mark.slow
def test_the_program(tmp_path: Path) -> None:
    ((program, printed),) = (pair for pair in pairwise(BLOCKS) if pair[0].language == "python")
    assert fits(printed.text, run_program(program.text, tmp_path, TIMEOUT))


def tabled() -> Iterator[tuple[Named, dict[str, list[str]]]]:
    """The runs of the tables, with the cells of their lines: "published", "median" and "least to most"."""
    text = PAGE.read_text(encoding="utf-8")
    for run in RUNS.values():
        if run.published:
            name = run.name.replace("-", " ", 1).replace("-", ", ")
            (lines,) = re.findall(rf"^\| {name} (\|.*\n\| +\|.*\n\| +\|.*)$", text, re.MULTILINE)
            cells = [[cell.strip() for cell in line.split("|")[-7:-1]] for line in lines.splitlines()]
            yield run, {title: figures for title, *figures in cells}


def number(cell: str) -> float:
    """The figure at the beginning of a cell."""
    return float(cell.partition(" ")[0].replace(",", ""))


def test_the_published_figures_stand_in_the_tables() -> None:
    for run, lines in tabled():
        assert lines["published"] == [f"{run.published[row]:,}" for row in simulator_tables.OTHERS]


def test_the_medians_of_the_tables_are_close_to_what_was_published() -> None:
    for run, lines in tabled():
        medians = dict(zip(simulator_tables.OTHERS, map(number, lines["median"]), strict=True))
        deviations = {row: medians[row] / run.published[row] - 1 for row in ("graft", "!!publish", "ihave")}
        # Those that lagged, without lag.
        if run.name in ("run-3", "run-6"):
            assert deviations.pop("ihave") < -0.4
        assert {row: deviation for row, deviation in deviations.items() if abs(deviation) > 0.1} == {}, run.name


@pytest.mark.parametrize("part", simulator_tables.PARTS)
def test_the_tables_are_those_of_what_was_counted(part: str) -> None:
    runs = [RUNS[name] for name in simulator_tables.PARTS[part]]
    lines = simulator_tables.table(runs, simulator_tables.SEEDS, lambda run, _: stored(run.name))
    assert len(lines) == 2 + 3 * len(runs)
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join([f"<!-- {part} -->", "", *lines, "", f"<!-- end of {part} -->"]) in text


@pytest.mark.integration
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", simulator_tables.read_counts())
def test_seeds_count_what_was_counted(name: str) -> None:
    assert len(stored(name)) == simulator_tables.SEEDS
    again = recounted(name)
    assert len(again) > 0
    assert again == stored(name)[: len(again)]


@pytest.mark.slow
def test_an_attack_of_the_table_went_as_it_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    outcomes = [attack_tables.attacked("simsub", "eclipse", 30, seed) for seed in range(attack_tables.SEEDS)]
    figures = attack_tables.cells(outcomes)
    assert f"| eclipse | simsub | {' | '.join(figures)} |" in text


def test_the_plots_are_there() -> None:
    plots = re.findall(r"!\[.*\]\((.*)\)", PAGE.read_text(encoding="utf-8"))
    assert len(plots) == 3
    assert all((DOCS / plot).read_text(encoding="utf-8").startswith("<svg") for plot in plots)
