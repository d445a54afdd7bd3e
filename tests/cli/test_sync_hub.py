"""What `gossiplog sync` counts and shows of an exchange with a hub, and how long it waits: under virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import pytest
import trio.testing

from gossiplog._core import PanicException
from gossiplog.cli.sync_hub import Listener, LogsDiffer, _OwnMessages, in_step
from gossiplog.core import Node, Tree
from gossiplog.errors import ConnectionLost
from gossiplog.net import events
from gossiplog.net.client import Client
from gossiplog.protocol.sync import Statistics


def root(number: int) -> Node:
    return Tree().insert([(bytes(20), b"message %d" % number)]).root


class Hub:
    """Stands in for a client: what the hub's root is, whether it takes messages, and when both are equal."""

    def __init__(self, *, may_write: bool | None = None) -> None:
        self.hub_root: Node | None = None
        self.may_write = may_write
        self.equal = anyio.Event()

    async def synced(self) -> None:
        await self.equal.wait()


def listener() -> Listener:
    return Listener(lambda received, sent: None, aloud=False)


def run(test: Callable[[], Awaitable[None]]) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(test, backend="trio", backend_options={"clock": clock})


async def wait(hub: Hub, heard: Listener, *, give_up: bool = True) -> None:
    await in_step(cast("Client", hub), heard, "mine.db", "ws://hub", give_up=give_up)


STEPS: dict[str, Callable[[Hub, Listener, int], None]] = {
    "messages go": lambda hub, heard, step: heard(events.Served("hub", 1, 100)),
    "messages come": lambda hub, heard, step: heard(events.SyncProgressed("hub", 0, Statistics(values=step))),
    "the hub's root changes": lambda hub, heard, step: setattr(hub, "hub_root", root(step)),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_an_exchange_takes_as_long_as_it_moves(step: Callable[[Hub, Listener, int], None]) -> None:
    async def test() -> None:
        hub, heard = Hub(), listener()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, hub, heard)
            for number in range(1, 100):
                # Each wait of 20 s sees one of them.
                await anyio.sleep(15)
                step(hub, heard, number)
            hub.equal.set()

    run(test)


def test_logs_that_stay_different_are_an_error() -> None:
    async def test() -> None:
        hub, heard = Hub(), listener()
        hub.hub_root = root(0)
        start = anyio.current_time()
        with pytest.raises(LogsDiffer, match=r"mine\.db and ws://hub still differ, and nothing has come for 20 s"):
            await wait(hub, heard)
        assert anyio.current_time() - start == pytest.approx(20)

    run(test)


def test_who_may_only_read_is_told_so_once_everything_has_come() -> None:
    async def test() -> None:
        hub, heard = Hub(may_write=False), listener()
        start = anyio.current_time()

        async def sync() -> None:
            heard(events.SyncStarted("hub"))
            # Nothing comes for a while.
            await anyio.sleep(10)
            heard(events.SyncEnded("hub", True, 1, 0, Statistics(values=1), ""))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sync)
            with pytest.raises(LogsDiffer, match=r"ws://hub lets this client read only, and mine\.db has messages"):
                await wait(hub, heard)
        assert 12 <= anyio.current_time() - start <= 13

    run(test)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (
            events.Failed(
                "connecting to ws://hub", ConnectionLost("unavailable", "ws://hub answered with HTTP status 503", 503)
            ),
            "ws://hub answered with HTTP status 503",
        ),
        (events.Disconnected("hub", "the peer closed it", False), "the connection ended: the peer closed it"),
        (events.SyncEnded("hub", False, 0, 0, Statistics(), "no bytes came"), "no bytes came"),
    ],
)
def test_who_follows_is_told_what_really_went_wrong(
    event: events.Event, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        hub, heard = Hub(may_write=False), Listener(lambda received, sent: None, aloud=True)
        heard(event)
        said = capfd.readouterr().err
        assert "connecting to" not in said
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: wait(hub, heard, give_up=False))
            await anyio.sleep(30)
            assert capfd.readouterr().err.rstrip().endswith(f"nothing has come for 20 s: {reason}")
            heard(events.Connected("hub"))
            assert heard.failure == ""
            hub.equal.set()

    run(test)


def test_syncs_that_fail_again_and_again_are_no_progress(capfd: pytest.CaptureFixture[str]) -> None:
    async def fail(heard: Listener) -> None:
        cost = Statistics(requests=3, bytes_in=500)
        while True:
            await anyio.sleep(5)
            heard(events.SyncStarted("hub"))
            heard(events.SyncProgressed("hub", 0, cost))
            heard(events.SyncEnded("hub", False, 0, 0, cost, "no bytes came"))

    async def test() -> None:
        hub, heard = Hub(), listener()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, heard)
            with pytest.raises(LogsDiffer):
                await wait(hub, heard)
            tasks.cancel_scope.cancel()

    run(test)
    assert "syncing with hub: no bytes came" in capfd.readouterr().err


def test_who_follows_is_told_once_and_waits_on(capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        hub, heard = Hub(), listener()
        async with anyio.create_task_group() as tasks:
            for event in (None, events.Served("hub", 1, 100), events.Served("hub", 1, 100)):
                if event is not None:
                    heard(event)
                else:
                    tasks.start_soon(lambda: wait(hub, heard, give_up=False))
                await anyio.sleep(100)
            hub.equal.set()

    run(test)
    assert capfd.readouterr().err.count("still differ") == 3


def test_both_directions_are_counted_and_shown() -> None:
    shown: list[tuple[int, int]] = []
    heard = Listener(lambda received, sent: shown.append((received, sent)), aloud=False)
    heard(events.SyncProgressed("hub", 10, Statistics(values=12)))
    heard(events.Served("hub", 3, 1000))
    heard(events.SyncEnded("hub", True, 20, 1, Statistics(4, 50, 6000, 3, 22), ""))
    heard(events.Served("hub", 5, 2000))
    heard(events.SyncProgressed("hub", 1, Statistics(values=1)))
    assert shown == [(10, 0), (10, 3), (20, 3), (20, 8), (21, 8)]
    sums = heard.sums
    assert (sums.inserted, sums.sent, sums.refused, sums.requests, sums.round_trips) == (20, 8, 1, 4, 3)
    assert (sums.bytes_sent, sums.bytes_received) == (3050, 6000)


def test_a_defect_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    listener()(events.Defect("the hub", "syncing with it", PanicException("a panic"), 1))
    assert "the hub: a defect of gossiplog, syncing with it: PanicException: a panic" in capfd.readouterr().err


def test_who_may_only_read_hears_of_own_messages_once_a_connection(capsys: pytest.CaptureFixture[str]) -> None:
    own = _OwnMessages("mine.db", "wss://hub.example.org")

    def said(*happened: events.Event, may_write: bool | None = False) -> int:
        for event in happened:
            own(event, may_write)
        return capsys.readouterr().err.count("lets this client read only, and mine.db has messages")

    connected = events.Connected("the hub")
    received = events.Committed(3, root(3), 2, {"the hub": 3})
    written = events.Committed(4, root(4), 1)
    assert said(connected, received) == 0
    # One of them was counted as received before.
    assert said(written) == 0
    assert said(written) == 1
    assert said(written, received) == 0
    assert said(connected) == 1
    assert said(connected, written, may_write=True) == 0
    assert said(connected, may_write=True) == 0
    assert said(connected, received) == 0
