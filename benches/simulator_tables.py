"""Runs simsub's published runs with twenty seeds each, and writes their tables into docs/simulator.md.

Usage: .venv/bin/python -m benches.simulator_tables [SEEDS]. With another number of seeds the tables are only printed.

On two cores it takes some minutes. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from benches.pages import DOCS, head, line, rewrite
from gossiplog.sim.routers.named import Named, Row, compare, read, run_seeds

EXACT = ("publish", "deliver", "connect")
CLOSE = ("graft", "!!publish", "ihave")
OTHERS = (*CLOSE, "prune", "iwant")
SEEDS = 20

Counts: TypeAlias = Callable[[Named, Sequence[int]], Iterable[Mapping[str, float]]]


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
        line(name, "published", *published),
        line("", "median", *medians),
        line("", "least to most", *spread),
    ]


def table(runs: Sequence[Named], seeds: int, counts: Counts) -> list[str]:
    """Return the lines of a Markdown table of several runs, whose counts `counts` has for each seed."""
    lines = head(["run", ""], OTHERS)
    for run in runs:
        rows = compare(list(counts(run, range(seeds))), run.published)
        lines += lines_of(run, rows)
        print("\n".join(lines[-3:]), flush=True)
    return lines


def _median(row: Row, close: bool) -> str:
    figure = f"{row.median:,.1f}".removesuffix(".0")
    return f"{figure} ({row.deviation:+.1%})" if close and row.deviation is not None else figure


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    runs, counts = read(), partial(run_seeds, processes=os.cpu_count() or 1)
    parts = {
        "published runs": table([runs[f"run-{number}"] for number in range(1, 7)], seeds, counts),
        "runs with lag": table([runs["run-3-lag"], runs["run-6-lag"]], seeds, counts),
        "runs with late heartbeats": table([runs["run-4-late"], runs["run-5-late"]], seeds, counts),
    }
    if seeds == SEEDS:
        rewrite(DOCS / "simulator.md", parts)


if __name__ == "__main__":
    main()
