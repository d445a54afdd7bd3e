"""Where a driver's calls run, and what becomes of those that hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import anyio
import pytest

from gossiplog.errors import NetworkError
from gossiplog.net.replicator import workers as workers_module
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.stream import Signal

pytestmark = pytest.mark.anyio


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What hangs waits for this."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("kind", ["read", "verify", "check", "write"])
async def test_calls_return_and_raise(kind: str) -> None:
    run = getattr(WorkerPool(), kind)
    assert await run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await run(divmod, 7, 0)


async def test_checks_and_writes_that_take_long_are_reported_once(
    release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "_LONG_SECONDS", 0.01)
    workers = WorkerPool()
    told: list[tuple[str, Exception]] = []
    changed = Signal()

    def tell(doing: str, error: Exception) -> None:
        told.append((doing, error))
        changed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers.watch, tell)
        tasks.start_soon(workers.read, release.wait)
        for count, run in enumerate((workers.check, workers.write), 1):
            tasks.start_soon(run, release.wait)
            while len(told) < count:
                await changed.wait()
        release.set()
        tasks.cancel_scope.cancel()
    # At the look that found the second, the first still hung.
    assert [doing for doing, _ in told] == ["checking payloads", "writing to the log"]
    assert all(isinstance(error, TimeoutError) for _, error in told)


async def test_a_call_that_is_cancelled_is_waited_for(release: threading.Event) -> None:
    ended = threading.Event()
    begun = anyio.Event()
    token = anyio.lowlevel.current_token()

    def write() -> None:
        anyio.from_thread.run_sync(begun.set, token=token)
        release.wait()
        ended.set()

    over = anyio.Event()

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(WorkerPool().write, write)
            await begun.wait()
            tasks.cancel_scope.cancel()
        assert ended.is_set()
        over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await begun.wait()
        await anyio.wait_all_tasks_blocked()
        assert not over.is_set()
        release.set()
        await over.wait()


@pytest.mark.parametrize("before", [True, False])
async def test_at_the_end_a_call_that_hangs_is_left_to_itself(
    before: bool, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = WorkerPool()
    begun, token = anyio.Event(), anyio.lowlevel.current_token()

    def hang() -> None:
        anyio.from_thread.run_sync(begun.set, token=token)
        release.wait()

    if before:
        monkeypatch.setattr(workers_module, "_LAST_SECONDS", 60.0)
        workers.end()
    monkeypatch.setattr(workers_module, "_LAST_SECONDS", 0.01)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.write, hang)
            await begun.wait()
            workers.end()
            tasks.cancel_scope.cancel()
    told: list[tuple[str, str]] = []
    workers.report_unfinished(lambda doing, error: told.append((doing, str(error).partition(":")[0])))
    assert told == [("writing to the log", "it has not ended and is left to itself")]
    assert not release.is_set()


async def test_after_the_end_nothing_is_called_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "_LAST_SECONDS", 0.0)
    workers = WorkerPool()
    workers.end()
    with pytest.raises(NetworkError, match="no longer replicated"):
        await workers.read(pytest.fail, "it was called")
    workers.report_unfinished(pytest.fail)
