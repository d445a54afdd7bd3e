"""Timers of an event loop's clock."""

from __future__ import annotations

import anyio
import pytest

from gossiplog.net.replicator.machine import Timers
from gossiplog.protocol.broadcast.events import SyncDue, Timer

pytestmark = pytest.mark.anyio

FIRST, SECOND, THIRD = (SyncDue(number) for number in range(3))


async def test_they_expire_in_order_and_once_when_set_anew() -> None:
    expired: list[Timer] = []
    done = anyio.Event()

    def expire(timer: Timer) -> None:
        expired.append(timer)
        if timer == THIRD:
            done.set()

    timers = Timers(expire)
    now = anyio.current_time()
    timers.set(FIRST, now - 2)
    timers.set(SECOND, now - 3)
    # Later than it was, so that the others come before it.
    timers.set(SECOND, now - 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        await anyio.wait_all_tasks_blocked()
        assert expired == [FIRST, SECOND]
        # While it waits for none.
        timers.set(THIRD, anyio.current_time() + 3600)
        await anyio.wait_all_tasks_blocked()
        timers.set(THIRD, anyio.current_time() + 0.01)
        await done.wait()
        tasks.cancel_scope.cancel()
    assert expired == [FIRST, SECOND, THIRD]
