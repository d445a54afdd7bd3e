"""Merkle sync between two logs in one process, over the real protocol."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import gossiplog.log
from gossiplog import core
from gossiplog.cli.bench.histories import AUTHORS, TOPIC, private_key
from gossiplog.cli.bench.stage import Result, Stage, timed
from gossiplog.log import Log, PullResult

_MISSING = 1000


def pull_everything(stage: Stage, size: int) -> tuple[Result, float]:
    """Measure a pull of a log into an empty one, beside `insert_many` of the same messages.

    Return the messages a second, too.
    """
    values = stage.mixed[:size]
    full = stage.logs.full("mixed", values)

    def floor() -> float:
        with gossiplog.log.open(stage.logs.path(), topic=TOPIC) as log:
            return timed(lambda: log.insert_many(values))

    def work(log: Log) -> None:
        with gossiplog.log.open(full) as source:
            log.pull(source)
        log.close()

    turns = stage.turns
    turns.run(work, floor, lambda: (gossiplog.log.open(stage.logs.path(), topic=TOPIC),))
    rate = size / turns.seconds
    result = Result(
        f"`pull` of {size:,} messages into an empty log",
        "1.3x `insert_many`",
        f"{turns.ratio:.2f}x",
        turns.ratio <= 1.3,
        turns.seconds,
        turns.floor_seconds,
        f"{rate:,.0f}/s beside {size / turns.floor_seconds:,.0f}/s",
    )
    return result, rate


def pull_the_end(stage: Stage) -> Result:
    """Measure a pull of the thousand messages that follow a log."""
    return _pull_a_difference(stage, "at the end", 0.05, 5)


def pull_scattered(stage: Stage) -> Result:
    """Measure a pull of a thousand messages, each a child of one from anywhere in the log."""
    return _pull_a_difference(stage, "scattered", 0.2, 8)


def difference(stage: Stage, place: str) -> tuple[Path, Path, list[bytes]]:
    """Two logs that nobody may change, of which the second has a thousand messages more, and those messages.

    Args:
        stage: of the benchmark.
        place: `at the end`, after all others; or `scattered`, each a child of a message from anywhere in the log.
    """
    count = min(_MISSING, stage.size)
    if place == "at the end":
        missing = stage.history("mixed", stage.size + count)[stage.size :]
    else:
        sample = random.Random(3).sample(stage.mixed, count)
        parents = [core.read_message(value, TOPIC) for value in sample]
        missing = [
            core.sign(TOPIC, parent.clock + 1, [parent.id], {"number": number}, private_key(number % AUTHORS))[1]
            for number, parent in enumerate(parents)
        ]
    shared = stage.logs.full("mixed", stage.mixed)
    return shared, stage.logs.extended(shared, place.replace(" ", "_"), missing), missing


def _pull_a_difference(stage: Stage, place: str, most_seconds: float, most_round_trips: int) -> Result:
    shared, larger, missing = difference(stage, place)
    pulled: list[PullResult] = []
    with ExitStack() as stack:
        source = stack.enter_context(gossiplog.log.open(larger))

        def copy() -> Log:
            return stack.enter_context(gossiplog.log.open(stage.logs.copy(shared)))

        def insert() -> float:
            log = copy()
            return timed(lambda: log.insert_many(missing))

        turns = stage.turns
        turns.run(lambda log: pulled.append(log.pull(source)), insert, lambda: (copy(),))
    cost = pulled[-1]
    return Result(
        f"`pull` where {stage.size:,} are shared and {len(missing):,} differ: {place}",
        f"{most_seconds} s over inserting the {len(missing):,}; at most {most_round_trips} sequential round trips",
        f"{turns.over:.3f} s; {cost.round_trips} round trips",
        turns.over <= most_seconds and cost.round_trips <= most_round_trips,
        turns.seconds,
        turns.floor_seconds,
        f"{turns.seconds:.3f} s beside {turns.floor_seconds:.3f} s;"
        f" {cost.requests:,} requests, {cost.bytes_sent:,} bytes up, {cost.bytes_received:,} down",
    )
