"""`gossiplog.net.transport.stream`: signals. Streams are tested with the network that carries them (`test_network`)."""

from __future__ import annotations

import anyio
import pytest

from gossiplog.net.transport.stream import Signal

pytestmark = pytest.mark.anyio


async def test_a_signal_wakes_who_waits_and_not_who_comes_later() -> None:
    signal, woken = Signal(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait()
        woken.append(number)

    async with anyio.create_task_group() as tasks:
        for number in (1, 2):
            tasks.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        signal.set()
        tasks.start_soon(wait, 3)
        await anyio.wait_all_tasks_blocked()
        assert sorted(woken) == [1, 2]
        signal.set()
    assert sorted(woken) == [1, 2, 3]


async def test_a_signal_forgets_who_waits_no_more() -> None:
    signal = Signal()
    for _ in range(3):
        with anyio.move_on_after(0):
            await signal.wait()
    assert not signal._futures
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal.wait)
            await anyio.wait_all_tasks_blocked()
            # Woken and cancelled in one turn of the loop.
            signal.set()
            scope.cancel()
    assert not signal._futures
