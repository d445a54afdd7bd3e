"""Attacks floodsub and gossipsub in the simulator, and writes what comes of it into docs/simulator.md.

Usage: .venv/bin/python benches/attack_tables.py

It takes some minutes. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from gossiplog.sim.attacks import ATTACKS, Outcome, attacked

PAGE = Path(__file__).parents[1] / "docs" / "simulator.md"
BEGIN, END = "<!-- attacks -->", "<!-- end of attacks -->"
ROUTERS = ("floodsub", "gossipsub")
HONEST, MESSAGES, SEEDS = 30, 50, 3


def row(name: str, router: str, outcomes: list[Outcome]) -> str:
    """A line of the table: medians over the seeds, and the least that was delivered."""
    shares = [outcome.delivered for outcome in outcomes]
    cells = [ATTACKS[name].about, router, f"{median(shares):.1%}", f"{min(shares):.1%}"]
    for column in ("p50", "p95"):
        times = [time for outcome in outcomes if (time := getattr(outcome, column)) is not None]
        cells.append(f"{median(times):.2f}" if times else "-")
    return f"| {' | '.join((name, *cells))} |"


def main() -> None:
    lines = ["| attack | hostile nodes | router | delivered | least | p50, s | p95, s |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name in ATTACKS:
            for router in ROUTERS:
                runs = [pool.submit(attacked, router, name, HONEST, MESSAGES, seed) for seed in range(SEEDS)]
                lines.append(row(name, router, [run.result() for run in runs]))
                print(lines[-1], flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]), encoding="utf-8")


if __name__ == "__main__":
    main()
