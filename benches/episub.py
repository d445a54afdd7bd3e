"""Simulates episub beside gossipsub, with proximity and without, and where a tenth of the nodes fails, with five seeds
each, and writes the tables into docs/episub.md.

Usage: .venv/bin/python -m benches.episub [SEEDS]. With another number of seeds the tables are only printed.

The runs are `gossiplog simulate episub` and `gossiplog simulate episub-failure`, with other routers and parameters. On
two cores they take half an hour. All figures are of virtual time: they depend on the seeds alone, not on the machine.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, TypeAlias

from benches.pages import DOCS, head, line, rewrite
from gossiplog.pubsub.episub.config import Config, Repair
from gossiplog.sim.routers.kinds import KINDS, RouterKind, episub
from gossiplog.sim.routers.named import read
from gossiplog.sim.routers.plan import Plan
from gossiplog.sim.routers.simulation import Simulation

NAMED = read()
SOURCE = NAMED["episub"].plan
FEWER = replace(SOURCE, messages=500)
FAILING = NAMED["episub-failure"].plan
FAILED_AT = FAILING.conditions.failures[0].at
SETTLED = 100
"""Messages from the first on, in which the tree is made."""
LATE = 0.5
"""Seconds: two to three times as long as 99 % of the deliveries take where no node fails."""
SECONDS = ("1st s", "2nd s", "3rd s", "4th s", "5th s")
"""Of those after the failure."""
SEEDS = 5

Figures: TypeAlias = dict[str, float]
"""By the titles of their columns."""


@dataclass(frozen=True, slots=True)
class Run:
    """A router under a plan.

    Attributes:
        title: of its row.
        router: of the kinds that can be simulated.
        plan: what happens, with any seed.
        options: of episub's configuration.
    """

    title: str
    router: str
    plan: Plan
    options: tuple[tuple[str, Any], ...] = ()

    def kind(self) -> RouterKind:
        return episub(Config(**dict(self.options))) if self.options else KINDS[self.router]()


INFINITE = (("alpha", float("inf")),)
TREES = [Run("episub", "episub", SOURCE), Run("gossipsub 1.0", "gossipsub", SOURCE)]
DISTANCES = [Run("alpha 2", "episub", FEWER), Run("alpha infinite", "episub", FEWER, INFINITE)]
REPAIRS = [
    Run("episub, wait", "episub", FAILING),
    Run("episub, promote", "episub", FAILING, (("repair", Repair.PROMOTE),)),
    Run("gossipsub 1.0", "gossipsub", FAILING),
]


def tree(run: Run, seed: int) -> Figures:
    """Copies and latencies."""
    summary = _run(run, seed).summary()
    return {
        "delivered": summary.deliver / (run.plan.nodes * run.plan.messages),
        "copies a delivery": summary.duplicates / summary.deliver,
        **_quantiles(summary.latency, "p50", "p95", "p99"),
    }


def distances(run: Run, seed: int) -> Figures:
    """Round trips of links."""
    simulation = _run(run, seed)
    summary = simulation.summary()
    simulation.kinds = [replace(kind, neighbours=lambda router: router.views.active) for kind in simulation.kinds]
    return {
        "round trip, active": 2 * simulation.link_delay(),
        "round trip, eager": 2 * summary.link_delay,
        **_quantiles(summary.latency, "p50", "p95"),
        "copies a delivery": summary.duplicates / summary.deliver,
    }


def repairs(run: Run, seed: int) -> Figures:
    """When everybody is reached again, and how many messages are late meanwhile."""
    simulation = _run(run, seed)
    plan, rows = run.plan, simulation.tally.deliveries
    up = [router is not None for router in simulation.routers]
    # When each message was published, in seconds after the failure.
    published = [plan.connect_delay + number * plan.message_delay - FAILED_AT for number in range(plan.messages)]
    deliveries = [
        (published[number], node, latency)
        for number, node, latency in zip(rows.message, rows.node, rows.latency, strict=True)
        if number >= SETTLED and up[node]
    ]
    after = [delivery for delivery in deliveries if delivery[0] >= 0.0]
    reached: dict[int, float] = {}
    for at, node, latency in after:
        reached[node] = min(reached.get(node, at + latency), at + latency)
    figures = {
        "delivered": len(after) / (sum(at >= 0.0 for at in published) * sum(up)),
        "all reached": max(reached.values()),
        "slowest": max(latency for _, _, latency in after),
        "late before": _late(deliveries, -math.inf, -1.0),
    }
    for second, title in enumerate(SECONDS):
        figures[title] = _late(after, second, second + 1.0)
    return {**figures, "connected": _connected(simulation)}


def _late(deliveries: Sequence[tuple[float, int, float]], begin: float, end: float) -> float:
    """The share of late ones among those that were published within some seconds after the failure."""
    latencies = [latency for at, _, latency in deliveries if begin <= at < end]
    return sum(latency > LATE for latency in latencies) / len(latencies)


def _connected(simulation: Simulation) -> float:
    """The share of the nodes that links lead to from one of them; episub's are the active list."""
    kind = simulation.mixture.common
    neighbours = (lambda router: router.views.active) if kind.name == "episub" else kind.neighbours
    links = {node: neighbours(router) for node, router in enumerate(simulation.routers) if router is not None}
    first = next(iter(links))
    reached, pending = {first}, [first]
    while pending:
        for peer in links[pending.pop()]:
            if peer in links and peer not in reached:
                reached.add(peer)
                pending.append(peer)
    return len(reached) / len(links)


def _run(run: Run, seed: int) -> Simulation:
    simulation = Simulation(run.kind(), replace(run.plan, seed=seed))
    simulation.run()
    return simulation


def _quantiles(latency: Mapping[str, float], *names: str) -> Figures:
    return {name: latency[name] for name in names}


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


FORMS: Mapping[str, Callable[[float], str]] = {
    "delivered": "{:.2%}".format,
    "copies a delivery": "{:.3f}".format,
    **dict.fromkeys(("round trip, active", "round trip, eager", "p50", "p95", "p99"), _milliseconds),
    **dict.fromkeys(("all reached", "slowest"), "{:.2f} s".format),
    **dict.fromkeys(("late before", *SECONDS, "connected"), "{:.1%}".format),
}
"""How figures are written."""
BELOW = {"copies a delivery": 0.2, "all reached": 5.0, "slowest": 5.0}
"""Where episub's figures have to be with every seed, while it delivers everything."""
TABLES: list[tuple[str, str, Callable[[Run, int], Figures], list[Run]]] = [
    ("beside gossipsub", "router", tree, TREES),
    ("proximity", "proximity", distances, DISTANCES),
    ("nodes that fail", "router", repairs, REPAIRS),
]


def lines_of(run: Run, found: Sequence[Figures]) -> list[str]:
    """Two lines of a table for one run: the medians over the seeds, and the spread."""
    columns = {name: [figures[name] for figures in found] for name in found[0]}
    return [
        line(run.title, "median", *(FORMS[name](median(column)) for name, column in columns.items())),
        line("", "least to most", *(_spread(column, FORMS[name]) for name, column in columns.items())),
    ]


def _spread(column: Sequence[float], form: Callable[[float], str]) -> str:
    least, most = form(min(column)), form(max(column))
    return least if least == most else f"{least} to {most}"


def wrong(run: Run, found: Sequence[Figures]) -> list[str]:
    """What episub falls short of, by seed."""
    return [
        f"{run.title}, seed {seed}: {name} is {figure}"
        for seed, figures in enumerate(found)
        for name, figure in figures.items()
        if run.router == "episub" and (figure >= BELOW.get(name, math.inf) or (name == "delivered" and figure < 1.0))
    ]


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    parts, short = {}, []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            (name, title, [(run, [pool.submit(measure, run, seed) for seed in range(seeds)]) for run in runs])
            for name, title, measure, runs in TABLES
        ]
        for name, title, runs in jobs:
            found = [(run, [job.result() for job in of]) for run, of in runs]
            parts[name] = head([title, ""], list(found[0][1][0]))
            for run, figures in found:
                parts[name] += lines_of(run, figures)
                short += wrong(run, figures)
            print("\n".join(["", *parts[name]]), flush=True)
    if short:
        raise SystemExit("\n".join(short))
    if seeds == SEEDS:
        rewrite(DOCS / "episub.md", parts)


if __name__ == "__main__":
    main()
