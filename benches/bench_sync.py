"""Merkle sync between two logs in one process, over the real protocol."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest
from bench_log import timed
from conftest import Comparison, Logs, Results
from data import TOPIC, history, private_key

import gossiplog
from gossiplog import core

SMALL = 100_000
MISSING = 1000
rates: dict[int, float] = {}


@pytest.mark.parametrize("share", [SMALL, None], ids=["small", "large"])
def test_pull_everything(
    share: int | None, compare: Comparison, logs: Logs, results: Results, mixed: list[bytes], size: int
) -> None:
    values = mixed[:share]
    full = logs.full("mixed", values)

    def floor() -> float:
        with gossiplog.open(logs.path(), topic=TOPIC) as log:
            return timed(lambda: log.insert_many(values))

    def work(log: gossiplog.Log) -> None:
        with gossiplog.open(full) as source:
            assert log.pull(source).inserted == len(values)
            assert log.root == source.root
        log.close()

    compare.run(work, floor, lambda: (gossiplog.open(logs.path(), topic=TOPIC),))
    rates[len(values)] = len(values) / compare.seconds
    results.add(
        f"`pull` of {len(values):,} messages into an empty log",
        "1.3x `insert_many`",
        f"{compare.ratio:.2f}x",
        compare.ratio <= 1.3,
        f"{rates[len(values)]:,.0f}/s beside {len(values) / compare.floor_seconds:,.0f}/s",
    )
    if len(rates) == 2:
        small, large = rates[min(rates)], rates[max(rates)]
        results.add(
            f"the rate of `pull` at {size:,}",
            f"within 15 % of that at {SMALL:,}",
            f"{large / small:.0%}",
            large / small >= 0.85,
        )


def at_the_end(values: list[bytes]) -> list[bytes]:
    """The thousand that follow."""
    return history("mixed", len(values) + MISSING)[len(values) :]


def scattered(values: list[bytes]) -> list[bytes]:
    """A thousand, each a child of a message from anywhere in the log."""
    parents = [core.read_message(value, TOPIC) for value in random.Random(3).sample(values, MISSING)]
    return [
        core.sign(TOPIC, parent.clock + 1, [parent.id], {"number": number}, private_key(number % 100))[1]
        for number, parent in enumerate(parents)
    ]


@pytest.mark.parametrize(
    ("place", "most_seconds", "most_rounds"), [(at_the_end, 0.05, 5), (scattered, 0.2, 8)], ids=["end", "scattered"]
)
def test_pull_a_difference(
    place: object,
    most_seconds: float,
    most_rounds: int,
    logs: Logs,
    results: Results,
    mixed: list[bytes],
    size: int,
) -> None:
    missing = place(mixed)  # type: ignore[operator]
    shared = logs.full("mixed", mixed)
    source_path = Path(str(shared)).with_suffix(f".{place.__name__}")  # type: ignore[attr-defined]
    if not source_path.exists():
        logs.copy(shared).rename(source_path)
        with gossiplog.open(source_path) as log:
            assert log.insert_many(missing).inserted == MISSING
    over = []
    with gossiplog.open(source_path) as source:
        for _ in range(3):
            with gossiplog.open(logs.copy(shared)) as log:
                insert = timed(lambda: log.insert_many(missing))
            with gossiplog.open(logs.copy(shared)) as log:
                pulled = []
                pull = timed(lambda: pulled.append(log.pull(source)))  # noqa: B023
                assert log.root == source.root
            over.append((pull - insert, pull, insert))
        statistic = pulled[0]
    assert statistic.inserted == MISSING
    seconds, pull, insert = (statistics.median(column) for column in zip(*over, strict=True))
    results.add(
        f"`pull` where {size:,} are shared and {MISSING:,} differ: {place.__name__.replace('_', ' ')}",  # type: ignore[attr-defined]
        f"{most_seconds} s over inserting the {MISSING:,}; at most {most_rounds} sequential round trips",
        f"{seconds:.3f} s; {statistic.round_trips} round trips",
        seconds <= most_seconds and statistic.round_trips <= most_rounds,
        f"{pull:.3f} s beside {insert:.3f} s; {statistic.requests:,} requests, {statistic.bytes_sent:,} bytes up,"
        f" {statistic.bytes_received:,} down",
    )
