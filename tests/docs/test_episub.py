"""Every block of docs/episub.md runs and prints what the page says, and its tables are such as are measured."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benches.episub import TABLES, Run, lines_of, wrong
from benches.pages import head
from tests.readme import DOCS, blocks, run_here, run_steps, steps

PAGE = DOCS / "episub.md"
TIMEOUT = 120  # seconds


@pytest.mark.integration
def test_the_session(tmp_path: Path) -> None:
    (session,) = blocks(PAGE)
    assert session.language == "console"
    run_steps(session, tmp_path, TIMEOUT)


@pytest.mark.integration
def test_the_plots_are_those_of_the_session(tmp_path: Path) -> None:
    (session,) = blocks(PAGE)
    ((command, _),) = steps(session)
    run_here(f"{command} --plots plots", tmp_path, TIMEOUT)
    plots = re.findall(r"!\[.*\]\(episub/(.*)\)", PAGE.read_text(encoding="utf-8"))
    assert len(plots) == 3
    for plot in plots:
        assert (DOCS / "episub" / plot).read_text("utf-8") == (tmp_path / "plots" / plot).read_text("utf-8")


def smaller(run: Run) -> Run:
    # Half of the messages come before the failure.
    return replace(run, plan=replace(run.plan, nodes=20, messages=500 if run.plan.conditions.failures else 20))


@pytest.mark.integration
@pytest.mark.parametrize("number", range(len(TABLES)))
def test_the_tables_have_what_is_measured(number: int) -> None:
    name, title, measure, runs = TABLES[number]
    figures = [measure(smaller(run), 0) for run in runs]
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(f"<!-- {name} -->\n\n")
    lines = rest.partition(f"\n\n<!-- end of {name} -->")[0].splitlines()
    assert lines[:2] == head([title, ""], list(figures[0]))
    for run, found, median, spread in zip(runs, figures, lines[2::2], lines[3::2], strict=True):
        assert median.startswith(f"| {run.title} | median | ")
        assert spread.startswith("|  | least to most | ")
        # Spreads of one seed are its figures.
        alone = [line.split(" | ")[2:] for line in lines_of(run, [found])]
        assert alone[0] == alone[1]


def figure(cell: str) -> float:
    """The number at the beginning of a cell."""
    return float(cell.split(" ")[0].rstrip("%"))


@pytest.mark.parametrize("name", [name for name, *_ in TABLES])
def test_the_medians_of_the_tables_are_within_their_spreads(name: str) -> None:
    part = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n\n")[2]
    lines = [
        [cell.strip() for cell in line.split("|")[3:-1]] for line in part.partition("\n\n<!--")[0].splitlines()[2:]
    ]
    for medians, spreads in zip(lines[::2], lines[1::2], strict=True):
        for median, spread in zip(medians, spreads, strict=True):
            assert figure(spread.split(" to ")[0]) <= figure(median) <= figure(spread.split(" to ")[-1])


def test_medians_and_spreads() -> None:
    found = [{"delivered": share, "p50": seconds} for share, seconds in ((1.0, 0.1), (0.5, 0.3), (1.0, 0.2))]
    assert lines_of(Run("title", "episub", TABLES[0][3][0].plan), found) == [
        "| title | median | 100.00% | 200 ms |",
        "|  | least to most | 50.00% to 100.00% | 100 ms to 300 ms |",
    ]


def test_what_falls_short_is_named_by_its_seed() -> None:
    good = {"delivered": 1.0, "copies a delivery": 0.1, "slowest": 4.9}
    found = [good, {**good, "delivered": 0.9}, {**good, "slowest": 5.0, "copies a delivery": 0.2}]
    plan = TABLES[0][3][0].plan
    assert wrong(Run("ours", "episub", plan), found) == [
        "ours, seed 1: delivered is 0.9",
        "ours, seed 2: copies a delivery is 0.2",
        "ours, seed 2: slowest is 5.0",
    ]
    assert wrong(Run("theirs", "gossipsub", plan), found) == []
