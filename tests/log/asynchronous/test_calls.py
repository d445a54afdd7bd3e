from __future__ import annotations

import threading

import anyio
import pytest

from gossiplog.log.asynchronous.calls import Stop, run_handing_over, run_stoppable

pytestmark = pytest.mark.anyio


async def test_a_call_returns_and_raises() -> None:
    def divide(stop: Stop) -> int:
        stop.check()
        return sum(stop.checking([1, 2])) // 0

    with pytest.raises(ZeroDivisionError):
        await run_stoppable(divide)
    assert await run_stoppable(lambda stop: [*stop.checking("ab")]) == ["a", "b"]


async def test_one_that_is_cancelled_ends_at_its_next_look() -> None:
    begun, cancelled, ended = threading.Event(), threading.Event(), threading.Event()
    steps: list[int] = []

    def call(stop: Stop) -> None:
        report = stop.reporting(None)
        try:
            for number in range(5):
                steps.append(number)
                report(number, 5)
                begun.set()
                cancelled.wait(60)
        finally:
            ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_stoppable, call)
        while not begun.is_set():
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    cancelled.set()
    assert ended.wait(60)
    assert steps == [0, 1]


@pytest.mark.parametrize("is_late", [True, False])
async def test_what_nobody_takes_is_released(is_late: bool) -> None:
    begun, cancelled, released = threading.Event(), threading.Event(), threading.Event()
    found: list[str] = []

    def make() -> str:
        begun.set()
        if is_late:
            cancelled.wait(60)
        return "made"

    def release(made: str) -> None:
        found.append(made)
        released.set()

    assert await run_handing_over(lambda: "taken", release) == "taken"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_handing_over, make, release)
        while not begun.is_set():
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    cancelled.set()
    if is_late:
        assert released.wait(60)
    # Otherwise it may have been handed over before it was cancelled.
    assert found in ([], ["made"])
