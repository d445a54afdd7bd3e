from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio.testing

from gossiplog.net.http import admission as module
from gossiplog.net.http.addresses import RENEWAL_SECONDS, UNIX
from gossiplog.net.http.admission import BODY_BURST, BODY_SECONDS, LEAST_BODY_BYTES, Admission, Overloaded, Reservation

pytestmark = pytest.mark.anyio


class Holder:
    """A task that asks for a reservation, and keeps it until it is released."""

    def __init__(self, admission: Admission, size: int) -> None:
        self.reservation: Reservation | None = None
        self.error: Overloaded | None = None
        self._admission = admission
        self._size = size
        self._let_go = anyio.Event()

    async def run(self) -> None:
        try:
            async with self._admission.reserve(self._size) as self.reservation:
                await self._let_go.wait()
        except Overloaded as error:
            self.error = error

    async def stall(self) -> None:
        """A client that is waited for, and does nothing."""
        try:
            async with self._admission.reserve(self._size) as self.reservation:
                with self.reservation.waiting_for_client():
                    await self._let_go.wait()
        except Overloaded as error:
            self.error = error

    def let_go(self) -> None:
        self._let_go.set()


async def until(reached: Callable[[], bool]) -> None:
    while not reached():
        await anyio.sleep(0.001)


async def test_shares_are_given_up_to_the_limit_and_in_order() -> None:
    kept: list[int] = []
    admission = Admission(10, kept=kept.append)
    first, second, third, small = (Holder(admission, size) for size in (6, 4, 5, 1))
    async with anyio.create_task_group() as tasks:
        for holder in (first, second):
            tasks.start_soon(holder.run)
            await until(lambda holder=holder: holder.reservation is not None)  # type: ignore[misc]
        assert admission.kept == 10
        tasks.start_soon(third.run)
        await until(lambda: len(admission._queue) == 1)
        tasks.start_soon(small.run)
        await until(lambda: len(admission._queue) == 2)
        # There is room for the small one, which came later.
        second.let_go()
        await until(lambda: admission.kept == 6)
        assert (third.reservation, small.reservation) == (None, None)
        first.let_go()
        await until(lambda: small.reservation is not None and third.reservation is not None)
        third.let_go()
        small.let_go()
    assert admission.kept == 0
    assert kept[-1] == 0
    assert max(kept) == 10


async def test_a_single_request_may_keep_more_than_the_limit() -> None:
    admission = Admission(10, room=lambda: -5)
    async with admission.reserve(1000) as reservation:
        assert admission.kept == 1000
        admission.resize(reservation, 3)
        assert admission.kept == 3


async def test_what_others_keep_counts() -> None:
    room = 4
    admission = Admission(100, room=lambda: room)
    waiting = Holder(admission, 5)
    async with anyio.create_task_group() as tasks:
        async with admission.reserve(1):
            tasks.start_soon(waiting.run)
            await until(lambda: len(admission._queue) == 1)
            assert waiting.reservation is None
            room = 5
            async with admission.reserve(4):
                pass
            await until(lambda: waiting.reservation is not None)
        waiting.let_go()


async def test_too_many_who_wait_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 1)
    admission = Admission(10)
    waiting, late = Holder(admission, 10), Holder(admission, 1)
    async with anyio.create_task_group() as tasks:
        async with admission.reserve(10):
            tasks.start_soon(waiting.run)
            await until(lambda: len(admission._queue) == 1)
            await late.run()
            assert str(late.error) == "too many requests wait already: try again later"
        await until(lambda: waiting.reservation is not None)
        waiting.let_go()


async def test_who_waits_too_long_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    admission = Admission(10)
    late = Holder(admission, 1)
    async with admission.reserve(10):
        await late.run()
    assert str(late.error) == "other requests keep the memory that this one needs: try again later"
    assert admission.kept == 0


async def test_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    monkeypatch.setattr(module, "MOST_RESERVATIONS", 1)
    admission = Admission(10)
    late = Holder(admission, 1)
    async with admission.reserve(1):
        await late.run()
    assert late.error is not None


async def test_a_stalled_client_s_share_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALLED_SECONDS", 0)
    admission = Admission(10)
    stalled, busy, waiting = Holder(admission, 5), Holder(admission, 5), Holder(admission, 5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stalled.stall)
        tasks.start_soon(busy.run)
        await until(lambda: admission.kept == 10)
        # Nobody needs its reservation.
        assert stalled.error is None
        tasks.start_soon(waiting.run)
        await until(lambda: waiting.reservation is not None)
        assert str(stalled.error).startswith("the client did not go on")
        assert busy.error is None
        for holder in (busy, waiting):
            holder.let_go()


async def test_who_is_cancelled_waits_no_more() -> None:
    admission = Admission(10)
    async with admission.reserve(10):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(Holder(admission, 1).run)
                await until(lambda: len(admission._queue) == 1)
                scope.cancel()
        assert len(admission._queue) == 0
    assert admission.kept == 0


async def test_a_cheap_call_does_not_wait_for_expensive_ones_nor_for_a_write() -> None:
    admission = Admission(10)
    ended = threading.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(admission.run_expensive, ended.wait)
            tasks.start_soon(admission.run_write, ended.wait)
        assert await admission.run_cheap(lambda: 1) == 1
        ended.set()
    assert await admission.run_expensive(lambda: 2) == 2


class TestVirtualTime:
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    async def _read(self, admission: Admission, source: str, size: int) -> float:
        """Read a body as fast as may be; return the seconds that it took."""
        began, part = anyio.current_time(), bytes(2**16)
        with admission.body() as body, body.scope:
            while len(body.data) < size:
                admission.extend(body, part)
                await admission.pace(body, source, len(part))
            body.is_whole = True
        return anyio.current_time() - began

    @pytest.mark.slow
    async def test_the_bodies_of_an_address_are_read_at_a_rate(self) -> None:
        admission, size = Admission(2**40), 2**22
        seconds = [await self._read(admission, "192.0.2.7", size) for _ in range(20)]
        at_once = BODY_BURST // size
        assert seconds[: at_once - 1] == [0.0] * (at_once - 1)
        assert sum(seconds) == pytest.approx(RENEWAL_SECONDS * (20 * size - BODY_BURST) / BODY_BURST, rel=0.02)
        # Others do not wait for it, nor do programs of this machine for anything.
        assert await self._read(admission, "192.0.2.8", size) == 0.0
        for source in ("127.0.0.1", UNIX):
            assert await self._read(admission, source, 4 * BODY_BURST) == 0.0

    @pytest.mark.slow
    async def test_a_body_does_not_end_for_what_it_was_made_to_wait(self) -> None:
        admission = Admission(2**40)
        sizes = 64 * [BODY_BURST // 16]
        ended: list[float] = []

        async def read(size: int) -> None:
            ended.append(await self._read(admission, "192.0.2.7", size))

        async with anyio.create_task_group() as tasks:
            for size in sizes:
                tasks.start_soon(read, size)
        assert len(ended) == len(sizes)
        assert max(ended) > BODY_SECONDS + sizes[0] / LEAST_BODY_BYTES / 2
        assert max(ended) == pytest.approx(RENEWAL_SECONDS * (sum(sizes) / BODY_BURST - 1), rel=0.05)
