"""Attacks routers in the simulator, and writes what comes of it into docs/simulator.md.

Usage: .venv/bin/python -m benches.attack_tables

It takes a quarter of an hour on two cores. The figures depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from statistics import median

from benches.pages import DOCS, head, line, rewrite
from gossiplog.sim.routers import named
from gossiplog.sim.routers.kinds import KINDS, kind_named
from gossiplog.sim.routers.plan import ATTACKS, attack_named
from gossiplog.sim.routers.simulation import simulate
from gossiplog.sim.routers.summary import Outcome, outcome

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
    lines = head(["attack", "router"], [f"{honest} nodes: {name}" for honest in sizes for name in HEADINGS])
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
            lines.append(line(attack, router, *figures))
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    rewrite(DOCS / "simulator.md", {"attacks": table(["none", *ATTACKS], SIZES, SEEDS)})


if __name__ == "__main__":
    main()
