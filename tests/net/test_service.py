"""`gossiplog.net.service`: contexts, tasks beside a block."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, suppress

import anyio
import pytest
import sniffio

from gossiplog._core import PanicException
from gossiplog.event_loop import loop_call_soon
from gossiplog.net.service import Service, background, call_when_readable

pytestmark = pytest.mark.anyio


async def test_what_can_be_read_is_read_in_parts() -> None:
    received, whole = bytearray(), anyio.Event()

    def read() -> bool:
        with suppress(BlockingIOError):
            received.extend(here.recv(2))
        if len(received) == 5:
            whole.set()
        return len(received) % 2 == 0 and len(received) < 4

    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        async with background() as tasks:
            tasks.start_soon(call_when_readable, here.fileno(), read)
            there.send(b"abc")
            while len(received) < 3:
                await anyio.sleep(0.001)
            there.send(b"de")
            await whole.wait()
    assert received == b"abcde"


async def test_reading_ends_with_what_it_raises() -> None:
    error = KeyError(1)

    def read() -> bool:
        here.recv(1)
        raise error

    here, there = socket.socketpair()
    with here, there:
        there.send(b"ab")
        with pytest.raises(KeyError) as raised:
            await call_when_readable(here.fileno(), read)
        assert raised.value is error
        await anyio.sleep(0)
        assert here.recv(2) == b"b"


def test_callbacks_know_their_library_under_asyncio_run() -> None:
    """No task runs them, and no context says which library it is, where `asyncio.run` has started the loop."""
    found: list[float] = []

    async def run() -> None:
        assert sniffio.current_async_library_cvar.get() is None
        here, there = socket.socketpair()
        done = anyio.Event()

        def read() -> bool:
            here.recv(1)
            found.append(anyio.current_time())
            caller_of_loop(call)
            return False

        def call() -> None:
            found.append(anyio.current_time())
            done.set()

        caller_of_loop = loop_call_soon()
        with here, there:
            async with background() as tasks:
                tasks.start_soon(call_when_readable, here.fileno(), read)
                there.send(b"a")
                await done.wait()

    asyncio.run(run())
    assert len(found) == 2


async def fail(error: Exception) -> None:
    raise error


async def test_the_end_of_the_block_ends_the_tasks() -> None:
    async with background() as tasks:
        tasks.start_soon(anyio.sleep_forever)


async def test_a_task_that_fails_ends_the_block_with_its_error() -> None:
    error = KeyError(1)

    async def block() -> None:
        async with background() as tasks, background() as inner:
            inner.start_soon(anyio.sleep_forever)
            tasks.start_soon(fail, error)
            await anyio.sleep_forever()

    with pytest.raises(KeyError) as raised:
        await block()
    assert raised.value is error


async def test_the_errors_of_others_are_named_in_notes() -> None:
    async def block() -> None:
        async with background() as tasks:
            tasks.start_soon(fail, KeyError(1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        await block()
    assert raised.value.__notes__ == ["Meanwhile: KeyError: 1"]


async def test_a_group_of_the_blocks_own_stays_one() -> None:
    own = ExceptionGroup("ours", [KeyError(1), ExceptionGroup("deeper", [KeyError(2)])])
    with pytest.raises(ExceptionGroup) as raised:
        async with background():
            raise own
    assert raised.value is own


@pytest.mark.parametrize("error", [PanicException("a panic"), SystemExit(3)])
async def test_what_is_no_exception_comes_out_too(error: BaseException) -> None:
    async def block() -> None:
        async with background() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            raise error

    with pytest.raises(type(error)) as raised:
        await block()
    assert raised.value is error


async def test_a_cancelled_block_is_cancelled() -> None:
    with anyio.CancelScope() as scope:
        async with background() as tasks:
            tasks.start_soon(anyio.sleep_forever)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught


class Counting(Service):
    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.ended: list[int] = []

    async def _start(self, stack: AsyncExitStack) -> None:
        for number in range(2):
            stack.callback(self.ended.append, number)
        if self.fails:
            raise OSError("no port")


async def test_what_was_started_last_ends_first() -> None:
    service = Counting()
    async with service as entered:
        assert (entered, service.ended) == (service, [])
    assert service.ended == [1, 0]


async def test_what_was_started_ends_where_the_start_fails() -> None:
    service = Counting(fails=True)
    with pytest.raises(OSError, match="no port"):
        await service.__aenter__()
    assert service.ended == [1, 0]


async def test_a_service_runs_once() -> None:
    service = Counting()
    async with service:
        with pytest.raises(RuntimeError, match="it runs once"):
            await service.__aenter__()
    with pytest.raises(RuntimeError, match="it runs once"):
        await service.__aenter__()
