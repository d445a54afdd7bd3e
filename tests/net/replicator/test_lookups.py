"""`gossiplog.net.replicator.lookups`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import anyio
import pytest

from gossiplog.errors import StorageError
from gossiplog.log.replica import Replica
from gossiplog.net.replicator.lookups import Lookups
from gossiplog.net.replicator.workers import WorkerPool

pytestmark = pytest.mark.anyio

A, B, C, D = (bytes([number]) * 20 for number in range(4))


class Held:
    """A log whose look-ups take until they are let go."""

    def __init__(self, *keys: bytes) -> None:
        self.keys = set(keys)
        self.asked: list[set[bytes]] = []
        self.let_go = anyio.Event()
        self.errors: list[StorageError] = []
        self.at_once: Collection[bytes] | None = None

    def known_at_once(self, keys: Sequence[bytes]) -> Collection[bytes] | None:
        return self.at_once

    def known(self, keys: Sequence[bytes]) -> Collection[bytes]:
        self.asked.append(set(keys))
        if self.errors:
            raise self.errors.pop()
        return {key: number for number, key in enumerate(keys) if key in self.keys}

    async def read(self, call: Callable[..., Any], *arguments: object) -> Any:
        await self.let_go.wait()
        return call(*arguments)


def over(held: Held) -> Lookups:
    return Lookups(cast("Replica", held), cast("WorkerPool", held))


async def answers(lookups: Lookups, *asked: Sequence[bytes], then: Callable[[], None]) -> list[object]:
    found: list[object] = [None] * len(asked)

    async def ask(place: int, keys: Sequence[bytes]) -> None:
        try:
            found[place] = await lookups.known(keys)
        except StorageError as error:
            found[place] = error

    async with anyio.create_task_group() as tasks:
        for place, keys in enumerate(asked):
            tasks.start_soon(ask, place, keys)
            await anyio.wait_all_tasks_blocked()
        then()
    return found


async def test_one_call_answers_all_that_came_meanwhile() -> None:
    held = Held(A, B)
    assert await answers(over(held), [A], [B, C], [C, A], then=held.let_go.set) == [[A], [B], [A]]
    assert held.asked == [{A}, {A, B, C}]


async def test_what_is_known_at_once_takes_no_call() -> None:
    held = Held()
    held.at_once = frozenset({A})
    assert await over(held).known([A, B]) == [A]
    assert held.asked == []


async def test_an_error_reaches_all_who_asked_and_no_others() -> None:
    held = Held(A)
    error = StorageError("the disk")
    held.errors.append(error)
    lookups = over(held)
    assert await answers(lookups, [A], [B], [C], then=held.let_go.set) == [error, [], []]
    assert await lookups.known([A, D]) == [A]


async def test_a_caller_that_is_cancelled_leaves_the_others_to_one_of_them() -> None:
    held = Held(A, B)
    lookups = over(held)
    found: list[Collection[bytes]] = []

    async def ask(keys: Sequence[bytes]) -> None:
        found.append(await lookups.known(keys))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, [C])
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as those:
                those.start_soon(ask, [D])
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(ask, [A])
                tasks.start_soon(ask, [A, B])
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        held.let_go.set()
    assert sorted(map(list, found)) == [[], [A], [A, B]]
