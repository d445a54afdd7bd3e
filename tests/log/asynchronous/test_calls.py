from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

from gossiplog import StorageError
from gossiplog.log.asynchronous import calls
from gossiplog.log.asynchronous.calls import Stop, run_acquiring, run_stoppable

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
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    cancelled.set()
    assert ended.wait(60)
    assert steps == [0, 1]


async def test_what_is_made_for_nobody_is_released() -> None:
    begun, cancelled, released = threading.Event(), threading.Event(), threading.Event()
    found: list[str] = []

    def make() -> str:
        begun.set()
        cancelled.wait(60)
        return "made"

    def release(made: str) -> None:
        found.append(made)
        released.set()

    assert await run_acquiring(lambda: "taken", release) == "taken"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_acquiring, make, release)
        while not begun.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    cancelled.set()
    assert released.wait(60)
    assert found == ["made"]


async def test_what_was_made_and_not_taken_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a thread: closing a log may wait for a disk."""
    found: list[tuple[str, bool]] = []
    released = threading.Event()

    async def run_in_thread(make: Callable[[], None]) -> None:
        make()
        # The thread has ended, and the task was cancelled before the loop came to it.
        await anyio.sleep_forever()

    def release(made: str) -> None:
        found.append((made, threading.current_thread() is threading.main_thread()))
        released.set()
        raise StorageError("nobody hears of it")

    monkeypatch.setattr(calls, "run_in_thread", run_in_thread)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_acquiring, lambda: "made", release)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert released.wait(60)
    assert found == [("made", False)]
