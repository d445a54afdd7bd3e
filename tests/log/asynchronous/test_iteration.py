from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import gossiplog
from gossiplog import AsyncLog, CursorOutdated, Log, LogClosed, LogWentBack, Signer
from gossiplog.log import following
from gossiplog.log.asynchronous import iteration
from gossiplog.log.asynchronous.iteration import AsyncPages

pytestmark = pytest.mark.anyio


@pytest.fixture
def shared(log: Log) -> AsyncLog:
    return AsyncLog(log)


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a wake-up can end a wait."""
    monkeypatch.setattr(following, "POLL_SECONDS", 1000.0)
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 1000.0)


async def test_a_page_takes_one_turn_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Any] = []
    run = iteration.run_in_thread

    async def counted(call: Callable[..., Any], *arguments: Any) -> Any:
        turns.append(call)
        return await run(call, *arguments)

    monkeypatch.setattr(iteration, "run_in_thread", counted)
    assert [number async for number in AsyncPages(lambda: iter(range(1000)), lambda _: 1)] == list(range(1000))
    assert len(turns) == 4
    turns.clear()
    assert [number async for number in AsyncPages(lambda: iter(range(3)), lambda _: 2**20)] == [0, 1, 2]
    assert len(turns) == 4


async def test_a_step_that_is_cancelled_loses_nothing() -> None:
    release, begun = threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        begun.set()
        release.wait(60)
        yield 2

    pages = AsyncPages(slow, lambda _: 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, pages)
        while not begun.is_set():
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    release.set()
    assert [number async for number in pages] == [1, 2]
    wrong: Any = pages
    with pytest.raises(TypeError, match="async for"):
        iter(wrong)


class _SlowPage(deque[int]):
    """Is filled by a thread that another one interrupts."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def extend(self, items: Iterable[int]) -> None:
        self.begun.set()
        self.go_on.wait(60)
        super().extend(items)


async def test_a_step_does_not_overtake_the_one_that_was_cancelled() -> None:
    """It found the end before the last page, which was lost."""
    pages = AsyncPages(lambda: iter([1, 2]), lambda _: 1)
    page = pages._page = _SlowPage()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, pages)
        while not page.begun.is_set():
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    found: list[int] = []

    async def take() -> None:
        found.extend([number async for number in pages])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        page.go_on.set()
    assert found == [1, 2]


@pytest.mark.usefixtures("only_woken")
async def test_messages_come_as_they_arrive(shared: AsyncLog) -> None:
    await shared.append(0)
    seen: list[Any] = []

    async def write() -> None:
        for number in range(1, 4):
            await anyio.wait_all_tasks_blocked()
            await shared.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        async for messages in shared.subscribe(after=0):
            seen += [message.payload for message in messages]
            assert messages.cursor == len(seen)
            if len(seen) == 4:
                break
    assert seen == [0, 1, 2, 3]
    cursor = messages.cursor - 2
    assert [message.payload for message in await anext(shared.subscribe(after=cursor, batch_size=1))] == [2]


@pytest.mark.usefixtures("only_woken")
async def test_a_block_begins_at_the_end_as_it_is_then(shared: AsyncLog) -> None:
    await shared.append("before")
    async with shared.subscribe() as subscription:
        await shared.append("after")
        assert [message.payload for message in await anext(subscription)] == ["after"]
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


@pytest.mark.usefixtures("only_woken")
async def test_a_wait_that_is_cancelled_loses_nothing(shared: AsyncLog) -> None:
    async with shared.subscribe() as subscription:
        for number in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anext, subscription, None)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            await shared.append(number)
            assert [message.payload for message in await anext(subscription)] == [number]
    assert shared.blocking._notifier._listeners == {}


@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("by", ["log", "task", "thread"])
async def test_closing_ends_it(shared: AsyncLog, by: str) -> None:
    subscription = shared.subscribe(after=0)

    async def close() -> None:
        await anyio.wait_all_tasks_blocked()
        if by == "log":
            await shared.close()
        elif by == "task":
            subscription.close()
        else:
            threading.Thread(target=subscription.close).start()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close)
        assert [messages async for messages in subscription] == []
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_one_that_begins_on_a_closed_log_says_so(shared: AsyncLog) -> None:
    await shared.append(1)
    running = shared.subscribe(after=0)
    assert len(await anext(running)) == 1
    late = shared.subscribe(after=1)
    await shared.close()
    for subscription in (running, late):
        assert [messages async for messages in subscription] == []
    for after in (0, 1, None):
        with pytest.raises(LogClosed, match="is closed: open it again"):
            shared.subscribe(after=after)


async def test_two_tasks_do_not_share_one(shared: AsyncLog) -> None:
    subscription = shared.subscribe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, subscription, None)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(
            RuntimeError,
            match=r"^another thread or task waits for the next of these: give each an iterator of its own$",
        ):
            await anext(subscription)
        tasks.cancel_scope.cancel()


async def test_commits_of_other_processes_are_found(tmp_path: Path, signer: Signer) -> None:
    with gossiplog.open(tmp_path / "log.db", "topic", signer=signer) as other:
        async with gossiplog.open_async(tmp_path / "log.db") as log, log.subscribe() as subscription:
            with anyio.move_on_after(0.01):
                await anext(subscription)
            await AsyncLog(other).append("other")
            assert [message.payload for message in await anext(subscription)] == ["other"]


def test_what_is_no_cursor_is_refused_at_once(shared: AsyncLog) -> None:
    wrong: Any = "0fttjet8"
    with pytest.raises(TypeError, match="expected the `cursor`"):
        shared.subscribe(after=wrong)
    with pytest.raises(ValueError, match="a batch_size of 0"):
        shared.subscribe(batch_size=0)
    sync: Any = shared.subscribe()
    with pytest.raises(TypeError, match="async for"):
        iter(sync)


async def test_cursors_of_other_logs_are_refused_at_the_first_step(shared: AsyncLog) -> None:
    with pytest.raises(LogWentBack):
        await anext(shared.subscribe(after=5))
    outdated = shared.subscribe(after=2**48 + 1)
    with pytest.raises(CursorOutdated):
        await anext(outdated)
    with pytest.raises(StopAsyncIteration):
        await anext(outdated)


@pytest.mark.usefixtures("only_woken")
async def test_those_that_wait_hold_no_threads(
    opened: Callable[..., Log], signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AsyncLog(opened(signer=signer))
    seen: list[Any] = []
    run, running = iteration.run_in_thread, set[object]()

    async def noted(call: Callable[..., Any], *arguments: Any) -> Any:
        running.add(key := object())
        try:
            return await run(call, *arguments)
        finally:
            running.discard(key)

    monkeypatch.setattr(iteration, "run_in_thread", noted)

    async def follow() -> None:
        async for messages in log.subscribe(after=0):
            seen.extend(messages)
            return

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        while running:
            await anyio.sleep(0.001)
        assert len(log.blocking._notifier._listeners) == 100
        await log.append(1)
    assert len(seen) == 100
