"""`gossiplog.threads`: calls that block."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sniffio

from gossiplog import threads
from gossiplog.threads import run_in_thread

pytestmark = pytest.mark.anyio

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE")


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What hangs waits for this."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_call_returns_and_raises() -> None:
    assert await run_in_thread(divmod, 7, 2) == (3, 1)
    error = KeyError(1)
    with pytest.raises(KeyError) as raised:
        await run_in_thread(fail, error)
    assert raised.value is error
    with pytest.raises(SystemExit):
        await run_in_thread(fail, SystemExit(3))
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await run_in_thread(next, iter(()))


def fail(error: BaseException) -> None:
    raise error


async def test_a_call_has_the_context_of_its_task_and_no_event_loop() -> None:
    VARIABLE.set("ours")

    def look() -> tuple[str, bool]:
        VARIABLE.set("the thread's")
        try:
            sniffio.current_async_library()
        except sniffio.AsyncLibraryNotFoundError:
            return "", threading.current_thread().daemon
        return "it runs an event loop", True

    assert await run_in_thread(look) == ("", True)
    assert VARIABLE.get() == "ours"


async def test_calls_run_at_the_same_time() -> None:
    barrier = threading.Barrier(3, timeout=30)

    async def wait() -> None:
        await run_in_thread(barrier.wait)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(wait)


async def test_a_call_that_is_cancelled_is_left_to_itself(release: threading.Event) -> None:
    begun, ended = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait()
        ended.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, hang)
            while not begun.is_set():
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        assert not ended.is_set()
        release.set()
        assert await run_in_thread(ended.wait, 30)


class TestAsyncio:
    @pytest.fixture(params=["asyncio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    async def test_one_thread_takes_one_call_after_the_other(self) -> None:
        first = await run_in_thread(threading.get_ident)
        assert {await run_in_thread(threading.get_ident) for _ in range(10)} == {first}

    async def test_a_thread_without_calls_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "IDLE_SECONDS", 0.0)
        monkeypatch.setattr(threads, "_pool", type(threads._pool)())
        thread = await run_in_thread(threading.current_thread)
        await anyio.to_thread.run_sync(thread.join, 30)
        assert not thread.is_alive()

    async def test_few_calls_run_at_a_time_first_come_first_served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "MOST_RUNNING", 3)
        monkeypatch.setattr(threads, "_pool", type(threads._pool)())
        lock = threading.Lock()
        running, most, begun = 0, 0, list[int]()

        def work(number: int) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                begun.append(number)
            time.sleep(0.001)
            with lock:
                running -= 1

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(run_in_thread, work, number)
        assert most == 3
        # A thread may be held up between taking a call and running it: so two others at most run before a call's turn.
        assert all(len({*range(number)} - {*begun[:place]}) < 3 for place, number in enumerate(begun))

    async def test_calls_that_hang_leave_their_places_to_others(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        monkeypatch.setattr(threads, "MOST_RUNNING", 2)
        monkeypatch.setattr(threads, "LONG_SECONDS", 0.02)
        monkeypatch.setattr(threads, "_pool", type(threads._pool)())
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(7):
                    tasks.start_soon(run_in_thread, release.wait)
                await anyio.sleep(0)
                assert [await run_in_thread(divmod, number, 3) for number in (7, 8)] == [(2, 1), (2, 2)]
                release.set()
        # Those that returned late are not counted twice: as many run as before.
        barrier = threading.Barrier(2, timeout=30)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(run_in_thread, barrier.wait)
        assert len(threads._pool._running) == 0

    async def test_a_call_that_is_cancelled_before_its_turn_does_not_run(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        monkeypatch.setattr(threads, "MOST_RUNNING", 1)
        monkeypatch.setattr(threads, "_pool", type(threads._pool)())
        called: list[int] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_in_thread, release.wait)
            await anyio.sleep(0)
            with anyio.move_on_after(0.001):
                await run_in_thread(called.append, 1)
            release.set()
            await run_in_thread(called.append, 2)
        assert called == [2]

    async def test_a_thread_that_cannot_be_started_leaves_nothing_behind(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        """The call ran later, for nobody, and no call that hung left its place to others any more."""
        monkeypatch.setattr(threads, "MOST_RUNNING", 1)
        monkeypatch.setattr(threads, "LONG_SECONDS", 0.02)
        monkeypatch.setattr(threads, "_pool", type(threads._pool)())
        called: list[int] = []

        def fail(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_in_thread, release.wait)
                await anyio.sleep(0)
                with monkeypatch.context() as patch:
                    patch.setattr(threading.Thread, "start", fail)
                    with pytest.raises(RuntimeError, match="can't start"):
                        await run_in_thread(called.append, 1)
                await run_in_thread(called.append, 2)
                release.set()
        assert called == [2]

    async def test_a_forked_process_has_threads_of_its_own(self) -> None:
        await run_in_thread(threading.get_ident)
        assert threads._pool.idle
        child = os.fork()
        if not child:
            os._exit(len(threads._pool.idle))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_call_outlives_its_event_loop(release: threading.Event) -> None:
    ended = threading.Event()

    def hang() -> None:
        release.wait()
        ended.set()

    async def run(hang: Callable[[], None]) -> None:
        with anyio.move_on_after(0.01):
            await run_in_thread(hang)

    anyio.run(run, hang)
    release.set()
    assert ended.wait(30)

    async def call_again() -> None:
        # The thread that could not report is fit for another call.
        with anyio.fail_after(30):
            for _ in range(3):
                await run_in_thread(threading.current_thread)

    anyio.run(call_again)
