"""Runs simsub's published runs with twenty seeds each, and writes their tables into docs/simulator.md.

Usage: .venv/bin/python benches/simulator_tables.py [SEEDS]. With another number of seeds the tables are only printed.

On two cores it takes some minutes. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gossiplog.sim.comparison import Row, compare, run_seeds
from gossiplog.sim.named import Named, read

PAGE = Path(__file__).parents[1] / "docs" / "simulator.md"
EXACT = ("publish", "deliver", "connect")
CLOSE = ("graft", "!!publish", "ihave")
OTHERS = (*CLOSE, "prune", "iwant")
SEEDS = 20


def lines_of(run: Named, rows: Sequence[Row]) -> list[str]:
    """Three lines of a table for one run: what was published, the medians, the spread."""
    of = {row.name: row for row in rows}
    wrong = [name for name in EXACT if {of[name].least, of[name].most} != {run.published[name]}]
    if wrong:
        raise SystemExit(f"{run.name}: {', '.join(wrong)} are not those that were published")
    name = run.name.replace("-", " ", 1).replace("-", ", ")
    published = [f"{of[row].published:,}" for row in OTHERS]
    medians = [_median(of[row], row in CLOSE) for row in OTHERS]
    spread = [f"{of[row].least:,} to {of[row].most:,}" for row in OTHERS]
    return [
        _line(name, "published", *published),
        _line("", "median", *medians),
        _line("", "least to most", *spread),
    ]


def table(runs: Sequence[Named], seeds: int, processes: int) -> list[str]:
    """A Markdown table of several runs."""
    lines = [_line("run", "", *OTHERS), _line("---", "---", *["---:"] * len(OTHERS))]
    for run in runs:
        rows = compare(list(run_seeds(run, range(seeds), processes)), run.published)
        lines += lines_of(run, rows)
        print("\n".join(lines[-3:]), flush=True)
    return lines


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """A page with other lines between the markers of a name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return "\n".join([before + begin, "", *lines, "", end + after])


def _median(row: Row, close: bool) -> str:
    figure = f"{row.median:,.1f}".removesuffix(".0")
    return f"{figure} ({row.deviation:+.1%})" if close and row.deviation is not None else figure


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    runs, processes = read(), os.cpu_count() or 1
    published = table([runs[f"run-{number}"] for number in range(1, 7)], seeds, processes)
    with_lag = table([runs["run-3-lag"], runs["run-6-lag"]], seeds, processes)
    late = table([runs["run-4-late"], runs["run-5-late"]], seeds, processes)
    if seeds != SEEDS:
        return
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (
        ("published runs", published),
        ("runs with lag", with_lag),
        ("runs with late heartbeats", late),
    ):
        text = replaced(text, name, lines)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
