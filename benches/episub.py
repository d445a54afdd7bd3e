"""Episub beside gossipsub, with proximity and without, and when a tenth of the nodes fails: the tables of
docs/episub.md.

    python benches/episub.py

The runs are `gossiplog simulate episub` and `gossiplog simulate episub-failure`, with other routers and parameters. All
figures are of virtual time, so that a busy machine makes no difference to them: one seed, one result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from gossiplog.pubsub.episub.config import Config, Repair
from gossiplog.sim.named import read
from gossiplog.sim.plan import Plan
from gossiplog.sim.routers import KINDS, RouterKind, episub
from gossiplog.sim.simulation import Simulation

NAMED = read()
SOURCE = NAMED["episub"].plan
FEWER = replace(SOURCE, messages=500)
FAILING = NAMED["episub-failure"].plan
FAILED_AT = FAILING.conditions.failures[0].at
SETTLED = 100
"""Messages from the first on, in which the tree is made."""


@dataclass(frozen=True, slots=True)
class Run:
    """A router under a plan.

    Attributes:
        title: of its row.
        router: of the kinds that can be simulated.
        plan: what happens.
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
DISTANCES = [
    Run("alpha 2", "episub", FEWER),
    Run("alpha infinite", "episub", FEWER, INFINITE),
]
REPAIRS = [
    Run("episub, wait", "episub", FAILING),
    Run("episub, promote", "episub", FAILING, (("repair", Repair.PROMOTE),)),
    Run("gossipsub 1.0", "gossipsub", FAILING),
]


def tree(run: Run) -> list[str]:
    """Copies and latencies."""
    simulation = _run(run)
    summary = simulation.summary()
    expected = run.plan.nodes * run.plan.messages
    return [
        f"{summary.deliver / expected:.2%}",
        f"{summary.duplicates / summary.deliver:.3f}",
        _milliseconds(summary.latency["p50"]),
        _milliseconds(summary.latency["p95"]),
        _milliseconds(summary.latency["p99"]),
    ]


def distances(run: Run) -> list[str]:
    """Round trips of links."""
    simulation = _run(run)
    summary = simulation.summary()
    simulation.kind = replace(simulation.kind, neighbours=lambda router: router.views.active)
    return [
        _milliseconds(2 * simulation.link_delay()),
        _milliseconds(2 * summary.link_delay),
        _milliseconds(summary.latency["p50"]),
        _milliseconds(summary.latency["p95"]),
        f"{summary.duplicates / summary.deliver:.3f}",
    ]


def repairs(run: Run) -> list[str]:
    """When everybody is reached again, and how many messages are late meanwhile."""
    simulation = _run(run)
    plan, rows = run.plan, simulation.tally.deliveries
    up = [router is not None for router in simulation.routers]
    # When each message was published, in seconds after the failure.
    published = [plan.connect_delay + number * plan.message_delay - FAILED_AT for number in range(plan.messages)]
    deliveries = [
        (published[number], node, latency)
        for number, node, latency in zip(rows.message, rows.node, rows.latency, strict=True)
        if number >= SETTLED and up[node]
    ]
    before = sorted(latency for at, _, latency in deliveries if at < -1.0)
    late = 2 * before[round(0.99 * len(before))]
    after = [delivery for delivery in deliveries if delivery[0] >= 0.0]
    reached: dict[int, float] = {}
    for at, node, latency in after:
        reached[node] = min(reached.get(node, at + latency), at + latency)
    return [
        f"{len(after) / (sum(at >= 0.0 for at in published) * sum(up)):.2%}",
        f"{max(reached.values()):.2f} s",
        f"{max(latency for _, _, latency in after):.2f} s",
        f"{_share(before, late):.1%}",
        *(
            f"{_share([latency for at, _, latency in after if second <= at < second + 1], late):.1%}"
            for second in range(5)
        ),
        _connected(simulation),
    ]


def _share(latencies: list[float], late: float) -> float:
    return sum(latency > late for latency in latencies) / len(latencies)


def _connected(simulation: Simulation) -> str:
    """The nodes that links lead to from one of them; episub's are the active list."""
    neighbours = (
        (lambda router: router.views.active) if simulation.kind.name == "episub" else simulation.kind.neighbours
    )
    links = {node: neighbours(router) for node, router in enumerate(simulation.routers) if router is not None}
    first = next(iter(links))
    reached, pending = {first}, [first]
    while pending:
        for peer in links[pending.pop()]:
            if peer in links and peer not in reached:
                reached.add(peer)
                pending.append(peer)
    return f"{len(reached)} of {len(links)}"


def _run(run: Run) -> Simulation:
    simulation = Simulation(run.kind(), run.plan)
    simulation.run()
    return simulation


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"


TABLES: list[tuple[Callable[[Run], list[str]], list[Run], str]] = [
    (tree, TREES, "router | delivered | copies a delivery | p50 | p95 | p99"),
    (distances, DISTANCES, "proximity | round trip, active | round trip, eager | p50 | p95 | copies a delivery"),
    (
        repairs,
        REPAIRS,
        "router | delivered | all reached | slowest | late before | 1st s | 2nd s | 3rd s | 4th s | 5th s | connected",
    ),
]


def main() -> None:
    with ProcessPoolExecutor() as pool:
        found = [(pool.map(measure, runs), runs, heading) for measure, runs, heading in TABLES]
        for rows, runs, heading in found:
            columns = heading.count("|")
            print(f"\n| {heading} |\n| --- |{' ---: |' * columns}")
            for run, row in zip(runs, rows, strict=True):
                print(f"| {' | '.join([run.title, *row])} |", flush=True)


if __name__ == "__main__":
    main()
