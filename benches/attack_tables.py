"""Attacks routers in the simulator, and writes what comes of it into docs/simulator.md.

Usage: .venv/bin/python benches/attack_tables.py

It takes half an hour on two cores. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median

from gossiplog.sim import named
from gossiplog.sim.attacks import ATTACKS, attack_named
from gossiplog.sim.routers import KINDS, kind_named
from gossiplog.sim.simulation import simulate
from gossiplog.sim.summary import Outcome, outcome

PAGE = Path(__file__).parents[1] / "docs" / "simulator.md"
BEGIN, END = "<!-- attacks -->", "<!-- end of attacks -->"
SIZES, SEEDS = (30, 100), 3
HEADINGS = ("delivered", "least", "p50, s", "p95, s")


def attacked(router: str, attack: str, honest: int, seed: int) -> Outcome:
    """What comes of one run: `gossiplog simulate attacked` with these options prints the same."""
    plan = replace(named.read()["attacked"].plan, nodes=honest, seed=seed, attack=attack_named(attack))
    return outcome(plan, simulate(kind_named(router), plan, trace=None).tally.deliveries)


def cells(outcomes: list[Outcome]) -> list[str]:
    """Medians over the seeds, and the least that was delivered."""
    shares = [found.delivered or 0.0 for found in outcomes]
    times = [[getattr(found, name) for found in outcomes if found.delivered] for name in ("p50", "p95")]
    return [
        f"{median(shares):.1%}",
        f"{min(shares):.1%}",
        *(f"{median(seconds):.2f}" if seconds else "-" for seconds in times),
    ]


def table(attacks: list[str], sizes: tuple[int, ...], seeds: int) -> list[str]:
    """The lines of the table, each printed when it is known."""
    lines = [
        f"| attack | router |{''.join(f' {honest} nodes: {name} |' for honest in sizes for name in HEADINGS)}",
        f"| --- | --- |{' ---: |' * len(sizes) * len(HEADINGS)}",
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs: dict[tuple[str, str], list[list[Future[Outcome]]]] = {
            (attack, router): [
                [pool.submit(attacked, router, attack, honest, seed) for seed in range(seeds)] for honest in sizes
            ]
            for attack in attacks
            for router in KINDS
        }
        for (attack, router), found in runs.items():
            figures = [cell for of_size in found for cell in cells([run.result() for run in of_size])]
            lines.append(f"| {' | '.join((attack, router, *figures))} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    lines = table(["none", *ATTACKS], SIZES, SEEDS)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]), encoding="utf-8")


if __name__ == "__main__":
    main()
