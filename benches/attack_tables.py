"""Attacks floodsub and gossipsub in the simulator, and writes what comes of it into docs/simulator.md.

Usage: .venv/bin/python -m benches.attack_tables

It takes some minutes. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from statistics import median

from benches.pages import DOCS, head, line, rewrite
from gossiplog.sim.attacks import ATTACKS, Outcome, attacked

ROUTERS = ("floodsub", "gossipsub")
HONEST, MESSAGES, SEEDS = 30, 50, 3


def row(name: str, router: str, outcomes: list[Outcome]) -> str:
    """A line of the table: medians over the seeds, and the least that was delivered."""
    shares = [outcome.delivered for outcome in outcomes]
    cells = [ATTACKS[name].about, router, f"{median(shares):.1%}", f"{min(shares):.1%}"]
    for column in ("p50", "p95"):
        times = [time for outcome in outcomes if (time := getattr(outcome, column)) is not None]
        cells.append(f"{median(times):.2f}" if times else "-")
    return line(name, *cells)


def main() -> None:
    lines = head(["attack", "hostile nodes", "router"], ["delivered", "least", "p50, s", "p95, s"])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name in ATTACKS:
            for router in ROUTERS:
                runs = [pool.submit(attacked, router, name, HONEST, MESSAGES, seed) for seed in range(SEEDS)]
                lines.append(row(name, router, [run.result() for run in runs]))
                print(lines[-1], flush=True)
    rewrite(DOCS / "simulator.md", {"attacks": lines})


if __name__ == "__main__":
    main()
