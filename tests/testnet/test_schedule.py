"""What happens by itself, under virtual time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
import pytest

from gossiplog.dashboard.events import MOST_RATE
from gossiplog.errors import NetworkError
from gossiplog.net.service import background
from gossiplog.testnet.schedule import AutoAppend, Churn, part_for

trio = pytest.importorskip("trio")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    import trio.testing

    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


async def test_messages_are_appended_at_a_rate_that_changes() -> None:
    appended: list[float] = []

    async def append() -> None:
        appended.append(anyio.current_time() - start)

    start = anyio.current_time()
    schedule = AutoAppend(append)
    async with background() as tasks:
        tasks.start_soon(schedule.run)
        await anyio.sleep(10)
        assert appended == []
        schedule.set_rate(4)
        await anyio.sleep(1.1)
        assert appended == pytest.approx([10.25, 10.5, 10.75, 11.0])
        schedule.set_rate(1)
        await anyio.sleep(2.5)
        assert appended[4:] == pytest.approx([12.1, 13.1])
        schedule.set_rate(0)
        await anyio.sleep(10)
        assert len(appended) == 6


async def test_appends_that_are_slower_than_the_rate_are_not_caught_up() -> None:
    appended: list[float] = []

    async def append() -> None:
        appended.append(anyio.current_time())
        if len(appended) == 1:
            await anyio.sleep(100)

    async with background() as tasks:
        tasks.start_soon(AutoAppend(append, 10).run)
        await anyio.sleep(102)
    # Those of the last second before it went on, and of two seconds since.
    assert 10 <= len(appended) <= 32


def fail_test(*found: Any) -> None:
    pytest.fail(f"there was no error to report: {found}")


@dataclass
class Peer:
    number: int
    runs: bool = True


async def test_peers_stop_and_start_again() -> None:
    peers = [Peer(number) for number in range(10)]
    log: list[tuple[str, int]] = []
    most_stopped = 0

    async def stop(peer: Any) -> None:
        nonlocal most_stopped
        peer.runs = False
        log.append(("stop", peer.number))
        most_stopped = max(most_stopped, sum(not each.runs for each in peers))

    async def start(peer: Any) -> None:
        peer.runs = True
        log.append(("start", peer.number))

    async def run() -> list[tuple[str, int]]:
        log.clear()
        with anyio.move_on_after(100):
            await Churn(lambda: peers, stop, start, fail_test, rate=2, random=Random(1)).run()
        for peer in peers:
            peer.runs = True
        return list(log)

    first = await run()
    counts = Counter(what for what, _ in first)
    assert 100 < counts["stop"] < 220
    assert counts["stop"] - counts["start"] <= 5
    assert len({number for _, number in first}) == 10
    assert most_stopped == 5
    assert await run() == first


async def test_a_peer_that_does_not_start_again_is_reported_and_others_go_on() -> None:
    peers = [Peer(number) for number in range(4)]
    started: list[int] = []
    reported: list[tuple[int, str]] = []

    async def stop(peer: Any) -> None:
        if peer.number == 1:
            raise NetworkError("it does not stop")
        peer.runs = False

    async def start(peer: Any) -> None:
        if peer.number == 0:
            raise NetworkError("its port is taken")
        peer.runs = True
        started.append(peer.number)

    def report(peer: Any, error: NetworkError) -> None:
        reported.append((peer.number, str(error)))

    with anyio.move_on_after(100):
        await Churn(lambda: peers, stop, start, report, rate=2, random=Random(1)).run()
    assert set(reported) == {(0, "its port is taken"), (1, "it does not stop")}
    # The first is not waited for.
    assert len(started) > 20
    assert set(started) == {2, 3}


async def test_a_network_is_parted_for_a_time() -> None:
    log: list[tuple[str, float]] = []
    start = anyio.current_time()

    async def part() -> None:
        log.append(("part", anyio.current_time() - start))

    async def heal() -> None:
        log.append(("heal", anyio.current_time() - start))

    await part_for(7.5, part, heal)
    assert log == [("part", 0.0), ("heal", 7.5)]


@pytest.mark.parametrize("rate", [-1.0, MOST_RATE + 1, float("nan"), float("inf")])
async def test_rates_that_cannot_be(rate: float) -> None:
    async def nothing(*_: Any) -> None: ...

    with pytest.raises(ValueError, match="times a second: expected 0 to 10,000"):
        AutoAppend(nothing, rate)
    with pytest.raises(ValueError, match="times a second: expected 0 to 10,000"):
        Churn(list, nothing, nothing, fail_test, rate=rate, random=Random(0))


async def test_peers_that_never_stop_are_no_churn() -> None:
    async def nothing(*_: Any) -> None: ...

    with pytest.raises(ValueError, match="expected a rate above 0"):
        Churn(list, nothing, nothing, fail_test, rate=0, random=Random(0))
