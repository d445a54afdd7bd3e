"""`gossiplog.net.timers`."""

from __future__ import annotations

import anyio
import pytest

from gossiplog.net.timers import Timers

pytestmark = pytest.mark.anyio


async def test_timers_expire_in_order_and_once_when_set_anew() -> None:
    first, second, third = range(3)
    expired: list[int] = []
    done = anyio.Event()

    def expire(timer: int) -> None:
        expired.append(timer)
        if timer == third:
            done.set()

    timers = Timers[int](expire)
    now = anyio.current_time()
    timers.set(first, now - 2)
    timers.set(second, now - 3)
    # Later than it was, so that the others come before it.
    timers.set(second, now - 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        await anyio.wait_all_tasks_blocked()
        assert expired == [first, second]
        # While it waits for none.
        timers.set(third, anyio.current_time() + 3600)
        await anyio.wait_all_tasks_blocked()
        timers.set(third, anyio.current_time() + 0.01)
        await done.wait()
        tasks.cancel_scope.cancel()
    assert expired == [first, second, third]
