"""Appends of coroutines to a file, beside a thread of one's own that appends as many by the blocking log."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from itertools import count

import anyio
import pytest
from conftest import Results

import gossiplog
from gossiplog.cli.bench.stage import TOPIC, Result, Stage, payload, private_key, timed

APPENDS = 1000
LIMIT = 1.3


async def one_after_the_other(append: Callable[[], Awaitable[object]]) -> None:
    for _ in range(APPENDS):
        await append()


async def fifty_tasks(append: Callable[[], Awaitable[object]]) -> None:
    async def several() -> None:
        for _ in range(APPENDS // 50):
            await append()

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(several)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", [one_after_the_other, fifty_tasks])
def test_append(
    kind: Callable[[Callable[[], Awaitable[object]]], Awaitable[None]], backend: str, stage: Stage, results: Results
) -> None:
    signer, numbers = gossiplog.Signer(private_key(0)), count()
    with (
        gossiplog.open(stage.logs.path(), TOPIC, signer=signer) as shared,
        gossiplog.open(stage.logs.path(), TOPIC, signer=signer) as other,
    ):

        def append_all() -> None:
            for _ in range(APPENDS):
                other.append(payload(next(numbers)))

        def in_a_thread() -> None:
            thread = threading.Thread(target=append_all)
            thread.start()
            thread.join()

        async def main() -> None:
            log = gossiplog.AsyncLog(shared)
            await kind(lambda: log.append(payload(next(numbers))))

        def work() -> None:
            anyio.run(main, backend=backend)

        work()
        in_a_thread()
        turns = stage.turns
        turns.run(work, lambda: timed(in_a_thread))
    name = "one after the other" if kind is one_after_the_other else "of fifty tasks"
    results.add(
        Result(
            f"coroutines: durable appends {name}, on {backend}",
            f"{LIMIT}x of blocking appends in a thread of one's own",
            f"{turns.ratio:.2f}x",
            turns.ratio <= LIMIT,
            turns.seconds,
            turns.floor_seconds,
            f"{turns.seconds / APPENDS * 1e6:.0f} beside {turns.floor_seconds / APPENDS * 1e6:.0f} microseconds each",
        )
    )
