"""Runs simsub's published runs with twenty seeds each, and writes their tables into docs/simulator.md.

What was counted with each seed goes into simulator_counts.json, which the tests hold against the page, and single seeds
of it against what they count.

Usage: .venv/bin/python -m benches.simulator_tables [SEEDS]. With another number of seeds the tables are only printed.

On two cores it takes some minutes. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from benches.pages import DOCS, head, line, rewrite
from gossiplog.sim.routers.named import Named, Row, compare, read, run_seeds

EXACT = ("publish", "deliver", "connect")
CLOSE = ("graft", "!!publish", "ihave")
OTHERS = (*CLOSE, "prune", "iwant")
SEEDS = 20

# The parts of the page, with their runs.
PARTS = {
    "published runs": [f"run-{number}" for number in range(1, 7)],
    "runs with lag": ["run-3-lag", "run-6-lag"],
    "runs with late heartbeats": ["run-4-late", "run-5-late"],
}
COUNTS = Path(__file__).with_name("simulator_counts.json")

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


def read_counts() -> dict[str, list[dict[str, float]]]:
    """Return what was counted in each run, by seed."""
    runs = json.loads(COUNTS.read_text(encoding="utf-8"))
    return {
        run: [dict(zip(rows, of, strict=True)) for of in zip(*rows.values(), strict=True)] for run, rows in runs.items()
    }


def write_counts(counted: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Write what was counted in each run by seed, a line for each row."""
    runs = []
    for run, seeds in counted.items():
        rows = [f"    {json.dumps(row)}: {json.dumps([of[row] for of in seeds])}" for row in seeds[0]]
        runs.append(f"  {json.dumps(run)}: {{\n" + ",\n".join(rows) + "\n  }")
    COUNTS.write_text("{\n" + ",\n".join(runs) + "\n}\n", encoding="utf-8")


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    runs = read()
    counted: dict[str, list[dict[str, float]]] = {}

    def counts(run: Named, chosen: Sequence[int]) -> list[dict[str, float]]:
        counted[run.name] = list(run_seeds(run, chosen, os.cpu_count() or 1))
        return counted[run.name]

    parts = {part: table([runs[name] for name in names], seeds, counts) for part, names in PARTS.items()}
    if seeds == SEEDS:
        write_counts(counted)
        rewrite(DOCS / "simulator.md", parts)


if __name__ == "__main__":
    main()
