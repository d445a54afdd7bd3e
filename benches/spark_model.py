"""What executors would take: a model of the pipeline's jobs, whose terms are measured on this machine.

    .venv/bin/python -m benches.spark_model [--task]

A job takes, on `k` executors of two cores each,

    start + logs x log_on_driver + (messages x message + logs x log + tasks x task) / 2k
        + longest + messages x shuffled / (k x network)

The first two terms are serial: they are the seconds in which no task runs. `longest` is the longest task, which may
begin when all others end. All but `network` are measured, by `benches.spark_growth` on `local[2]`. `terms.json` keeps
the terms, also of runs of which `growth.json` has not kept everything.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

from benches.fleet import LARGE, MESSAGES
from benches.pages import DOCS, head, line, rewrite
from benches.spark_growth import JOBS, LOCAL, Row, stored

CORES = 2
"""Of an executor."""
EXECUTORS = (1, 2, 4, 16, 64)
NETWORK = 100e6
"""Bytes a second into an executor, and out of it: a gigabit. It is assumed."""
PAGE = DOCS / "design/spark.md"
_STORE = Path(__file__).parent / "terms.json"
_TASK = "task"
_LARGE, _FLEET = LARGE[-1], 10_000
_TITLES = (
    "start, s",
    "a log, on the driver, ms",
    "a message, µs",
    "a log, ms",
    "a task, ms",
    "longest task, s",
    "shuffled, bytes a message",
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job costs, in seconds.

    Attributes:
        start: before the first task, after the last one, and between stages, for one log.
        log_on_driver: serial, for each log.
        message: of a core, for each message.
        log: of a core, for each log.
        task: of a core, for each task.
        longest: of the longest task, over the larger of the logs.
        largest: messages of that log, where the longest task grows with a log; else None.
        shuffled: bytes for each message.
    """

    start: float
    log_on_driver: float
    message: float
    log: float
    task: float
    longest: float
    largest: int | None
    shuffled: float

    def seconds(self, messages: int, logs: int, tasks: int, executors: float) -> float:
        """Return what the job takes.

        Args:
            messages: of all logs.
            logs: how many.
            tasks: how many.
            executors: of two cores; a half is one core.
        """
        work = messages * self.message + logs * self.log + tasks * self.task
        slots = CORES * executors
        # One core does the longest task as a part of all work; more of them may wait for it.
        scale = 1.0 if self.largest is None else messages / logs / self.largest
        tail = self.longest * scale * (1 - 1 / slots)
        network = messages * self.shuffled / (executors * NETWORK) if executors > 1 else 0.0
        return self.start + logs * self.log_on_driver + work / slots + tail + network


def serial(row: Row) -> float:
    """Return the seconds in which no task ran."""
    return row.measured.seconds - row.measured.tasks.busy_seconds


def sources(job: str, rows: Iterable[Row]) -> tuple[Row, Row, Row, Row]:
    """Return the runs that the terms of a job come from.

    They are those over the two largest logs, and over a fleet and a log with the same number of messages. Only what ran
    alone counts.

    Raises:
        ValueError: there are fewer.
    """
    own = sorted((row for row in rows if (row.job, row.master) == (job, LOCAL) and row.alone), key=lambda row: row.size)
    logs = [row for row in own if row.kind == "log"]
    pairs = [(row, log) for row in own if row.kind == "fleet" for log in logs if log.messages == row.messages]
    if len(logs) < 2 or not pairs:
        raise ValueError(f"{job}: two logs are needed, and a fleet of as many messages as one of them")
    fleet, equal = pairs[-1]
    return logs[-2], logs[-1], fleet, equal


def terms(job: str, rows: Iterable[Row], task: float) -> Terms:
    """Return what a job costs.

    Args:
        job: of the pipeline.
        rows: what was measured.
        task: seconds of a core for a task that does nothing.

    Raises:
        ValueError: some of it was not, or was not kept.
    """

    def work(row: Row) -> float:
        return row.measured.tasks.seconds - row.measured.tasks.count * task

    middle, large, fleet, equal = sources(job, rows)
    if any(isnan(row.measured.tasks.seconds) for row in (middle, large, fleet, equal)):
        raise ValueError(f"{job}: of its runs not everything was kept")
    return Terms(
        start=serial(middle),
        log_on_driver=max(serial(fleet) - serial(equal), 0) / (fleet.size - 1),
        message=max(work(large) - work(middle), 0) / (large.size - middle.size),
        log=max(work(fleet) - work(equal), 0) / (fleet.size - 1),
        task=task,
        longest=large.measured.tasks.longest,
        largest=large.size if large.measured.tasks.longest > 2 * middle.measured.tasks.longest else None,
        shuffled=large.measured.tasks.shuffled / large.size,
    )


def task_seconds(tasks: int = 400) -> float:
    """Measure the seconds of a core that a task takes of itself: one that returns the row that it gets."""
    from gossiplog import spark

    session = spark.session(LOCAL, driver_memory="1g")
    frame = session.range(0, tasks, 1, tasks).mapInArrow(lambda batches: batches, "id long")
    frame.count()
    begun = time.monotonic()
    frame.count()
    seconds = CORES * (time.monotonic() - begun) / tasks
    session.stop()
    return seconds


def known_terms(rows: Sequence[Row], kept: Mapping[str, Any], task: float) -> dict[str, Terms]:
    """Return what jobs cost, by their runs, else by what was kept."""
    costs: dict[str, Terms] = {}
    for job in JOBS:
        try:
            costs[job] = terms(job, rows, task)
        except ValueError as error:
            print(error)
            if job in kept:
                costs[job] = Terms(**kept[job])
    return costs


def write(rows: Sequence[Row], costs: Mapping[str, Terms]) -> None:
    """Write the terms, what executors would take, and the check of the model into the page."""
    named = head(["job"], list(_TITLES))
    for job, cost in costs.items():
        named.append(
            line(
                job,
                f"{cost.start:.1f}",
                f"{cost.log_on_driver * 1e3:.2f}",
                f"{cost.message * 1e6:.1f}",
                f"{cost.log * 1e3:.2f}",
                f"{cost.task * 1e3:.0f}",
                f"{cost.longest:.1f}",
                f"{cost.shuffled:.1f}",
            )
        )
    table = head(["job", "over"], [f"k = {k}" for k in EXECUTORS])
    for job, cost in costs.items():
        _, large, fleet, _ = sources(job, rows)
        for row, what, scale in (
            (large, f"one log of {_LARGE:,}", _LARGE / large.size),
            (fleet, f"{_FLEET:,} logs of {MESSAGES:,}", _FLEET / fleet.size),
        ):
            sizes = (round(number * scale) for number in (row.messages, row.logs, row.measured.tasks.count))
            messages, logs, tasks = sizes
            found = [cost.seconds(messages, 1 if row.kind == "log" else logs, tasks, k) for k in EXECUTORS]
            # What was not run at this size is carried on from a smaller one.
            table.append(line(job, what if scale == 1 else f"{what}*", *(f"{seconds:,.0f} s" for seconds in found)))
    rewrite(PAGE, {"terms": named, "executors": table, "check": check(costs, rows)})


def check(costs: Mapping[str, Terms], rows: Sequence[Row]) -> list[str]:
    """Return a table of what the model says of runs from which it has no term, beside what they took."""
    table = head(["job", "over", "master"], ["by the model, s", "measured, s", "off by", "load before"])
    masters = {"local[1]": 0.5, "local[2]": 1.0}
    for row in rows:
        is_term = row in sources(row.job, rows) if row.job in costs else False
        if row.job not in costs or row.master not in masters or is_term or isnan(row.measured.seconds):
            continue
        found = costs[row.job].seconds(row.messages, row.logs, row.measured.tasks.count, masters[row.master])
        off = found / row.measured.seconds - 1
        took = f"{row.measured.seconds:,.1f}"
        table.append(
            line(row.job, row.what, row.master, f"{found:,.1f}", took, f"{off:+.0%}", f"{row.measured.load:.1f}")
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="store_true", help="measure what a task takes of itself, anew")
    chosen = parser.parse_args()
    kept = json.loads(_STORE.read_text())
    task = task_seconds() if chosen.task else kept[_TASK]
    rows = [*stored().values()]
    costs = known_terms(rows, kept, task)
    _STORE.write_text(json.dumps({_TASK: task} | {job: asdict(cost) for job, cost in costs.items()}, indent=1) + "\n")
    write(rows, costs)


if __name__ == "__main__":
    main()
