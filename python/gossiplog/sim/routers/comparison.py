"""Many seeds of one run, beside what was published of it."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gossiplog.sim.routers.named import Named
from gossiplog.sim.routers.simulation import simulate

FIGURES = ("delivered", "p50", "p95")
"""What is compared of the outcome of an attack."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the summaries of several seeds, or one figure of what came of an attack.

    Attributes:
        name: of the row.
        median: over the seeds that have it.
        least: of any seed.
        most: of any seed.
        published: to compare it with; None where there is nothing.
    """

    name: str
    median: float
    least: float
    most: float
    published: int | None

    @property
    def deviation(self) -> float | None:
        """Of the median, as a share of what was published; None where that is nothing, or 0."""
        return (self.median - self.published) / self.published if self.published else None


def run_seeds(run: Named, seeds: Sequence[int], processes: int) -> Iterator[dict[str, float]]:
    """Yield the counts of a run with each of the seeds, in their order, and what came of its attack, if there is one.

    Args:
        run: with any seed.
        seeds: to run it with.
        processes: at a time; 1 is this one.
    """
    jobs = [run.with_seed(seed) for seed in seeds]
    if processes == 1:
        yield from map(_counts, jobs)
        return
    # Spawned, because the core's threads do not survive a fork. Ctrl-C is this process's, which ends the others.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(_counts, jobs)


def compare(found: Sequence[Mapping[str, float]], published: Mapping[str, int]) -> list[Row]:
    """Return the rows of several summaries, in one.

    Args:
        found: the counts of each seed; one at least.
        published: by the names of the rows.
    """
    names = list(dict.fromkeys(name for counts in found for name in counts))
    columns = {name: [counts[name] for counts in found if name in counts] for name in names}
    return [Row(name, median(of), min(of), max(of), published.get(name)) for name, of in columns.items()]


def _counts(run: Named) -> dict[str, float]:
    summary = simulate(run.routers(), run.plan, trace=None).summary()
    outcome = {} if summary.attack is None else {name: getattr(summary.attack, name) for name in FIGURES}
    return summary.counts | {name: figure for name, figure in outcome.items() if figure is not None}


def record(row: Row) -> dict[str, Any]:
    """Return a row, as JSON takes it."""
    fields: dict[str, Any] = {"row": row.name, "median": row.median, "least": row.least, "most": row.most}
    if row.published is not None:
        fields["published"] = row.published
    if row.deviation is not None:
        fields["deviation"] = round(row.deviation, 4)
    return fields
