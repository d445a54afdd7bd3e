"""`gossiplog.event_loop`: which loop runs, and calls from threads."""

from __future__ import annotations

import threading

import anyio
import pytest

from gossiplog.event_loop import Caller, Outcome, asyncio_loop, loop_call_soon

pytestmark = pytest.mark.anyio


async def test_which_it_is(anyio_backend_name: str) -> None:
    assert (asyncio_loop() is not None) == (anyio_backend_name == "asyncio")


async def test_threads_call_back() -> None:
    here, called, called_with = threading.get_ident(), anyio.Event(), list[tuple[int, str]]()
    call_soon = loop_call_soon()

    def call(word: str) -> None:
        called_with.append((threading.get_ident(), word))
        called.set()

    threading.Thread(target=call_soon, args=(call, "word")).start()
    await called.wait()
    assert called_with == [(here, "word")]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_has_ended_is_called_in_vain(backend: str) -> None:
    async def run() -> Caller:
        return loop_call_soon()

    call_soon = anyio.run(run, backend=backend)
    call_soon(pytest.fail, "it was called")


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_outcome_is_waited_for(is_late: bool) -> None:
    """It may be there before somebody waits, and come from a thread."""
    results, failures = [Outcome[int]() for _ in range(2)], [Outcome[int]() for _ in range(2)]
    call_soon = loop_call_soon()

    def give() -> None:
        for number, result in enumerate(results):
            call_soon(result.succeed, number)
        for kind, failure in zip((ValueError, StopIteration), failures, strict=True):
            call_soon(failure.fail, kind("wrong"))

    async def check() -> None:
        assert [await result.wait() for result in results] == [0, 1]
        with pytest.raises(ValueError, match="wrong"):
            await failures[0].wait()
        # No coroutine can raise one.
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await failures[1].wait()
        assert isinstance(caught.value.__cause__, StopIteration)

    thread = threading.Thread(target=give)
    if not is_late:
        thread.start()
        thread.join()
        await anyio.sleep(0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check)
        if is_late:
            await anyio.sleep(0)
            thread.start()
    thread.join()


async def test_an_outcome_that_nobody_waits_for_any_more() -> None:
    outcome, failure = Outcome[int](), Outcome[int]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outcome.wait)
        tasks.start_soon(failure.wait)
        await anyio.sleep(0)
        tasks.cancel_scope.cancel()
    outcome.succeed(1)
    failure.fail(ValueError())
    await anyio.sleep(0)
