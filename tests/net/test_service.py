"""Contexts that are entered once, and what ends with them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from gossiplog.net.service import Service

pytestmark = pytest.mark.anyio


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
