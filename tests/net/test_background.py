"""Tasks beside a block: which exception comes out, and that nothing goes on."""

from __future__ import annotations

import anyio
import pytest

from gossiplog._core import PanicException
from gossiplog.net.background import background

pytestmark = pytest.mark.anyio


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
