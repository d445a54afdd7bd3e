"""`gossiplog.event_loop`: which loop runs, and calls from threads."""

from __future__ import annotations

import threading

import anyio
import pytest

from gossiplog.event_loop import Caller, asyncio_loop, caller

pytestmark = pytest.mark.anyio


async def test_which_it_is(anyio_backend_name: str) -> None:
    assert (asyncio_loop() is not None) == (anyio_backend_name == "asyncio")


async def test_threads_call_back() -> None:
    here, called, called_with = threading.get_ident(), anyio.Event(), list[tuple[int, str]]()
    call_soon = caller()

    def call(word: str) -> None:
        called_with.append((threading.get_ident(), word))
        called.set()

    threading.Thread(target=call_soon, args=(call, "word")).start()
    await called.wait()
    assert called_with == [(here, "word")]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_has_ended_is_called_in_vain(backend: str) -> None:
    async def run() -> Caller:
        return caller()

    call_soon = anyio.run(run, backend=backend)
    call_soon(pytest.fail, "it was called")
