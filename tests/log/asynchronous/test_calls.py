from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
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

    def make(stop: Stop) -> str:
        begun.set()
        cancelled.wait(60)
        return "made"

    def release(made: str) -> None:
        found.append(made)
        released.set()

    assert await run_acquiring(lambda stop: "taken", release) == "taken"
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

    async def run_in_thread(make: Callable[[Stop], None], stop: Stop) -> None:
        make(stop)
        # The thread has ended, and the task was cancelled before the loop came to it.
        await anyio.sleep_forever()

    def release(made: str) -> None:
        found.append((made, threading.current_thread() is threading.main_thread()))
        released.set()
        raise StorageError("nobody hears of it")

    monkeypatch.setattr(calls, "run_in_thread", run_in_thread)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_acquiring, lambda stop: "made", release)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert released.wait(60)
    assert found == [("made", False)]


async def test_what_progress_raises_ends_the_call() -> None:
    """On asyncio it was a line of the loop's log, and on trio the end of the program."""
    steps: list[int] = []
    mistake = ValueError("no more")

    def fail(done: int, total: int) -> None:
        steps.append(done)
        raise mistake

    def call(stop: Stop) -> str:
        report = stop.reporting(fail)
        for number in range(2):
            report(number, 2)
        while True:
            stop.check()

    with anyio.fail_after(60), pytest.raises(ValueError, match="no more") as raised:
        await run_stoppable(call)
    assert raised.value is mistake
    assert raised.value.__context__ is None
    assert steps == [0]


async def test_what_progress_raises_at_the_last_step_is_raised_too() -> None:
    released = threading.Event()
    found: list[str] = []

    def fail(done: int, total: int) -> None:
        raise ValueError("no more")

    def call(stop: Stop) -> str:
        stop.reporting(fail)(1, 1)
        return "made"

    def release(made: str) -> None:
        found.append(made)
        released.set()

    with pytest.raises(ValueError, match="no more"):
        await run_stoppable(call)
    with pytest.raises(ValueError, match="no more"):
        await run_acquiring(call, release)
    assert await anyio.to_thread.run_sync(released.wait, 60)
    assert found == ["made"]
