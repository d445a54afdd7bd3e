"""What `gossiplog sync` counts and shows of an exchange with a hub, and how long it waits: under virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest
import trio.testing

import gossiplog
from gossiplog import Log
from gossiplog._core import PanicException
from gossiplog.cli.sync.hub import Listener, LogsDiffer, _OwnMessages, in_step, sync_with_hub
from gossiplog.core import Node, Tree
from gossiplog.errors import ConnectionLost, NetworkError
from gossiplog.event_loop import loop_call_soon
from gossiplog.net import events
from gossiplog.net.client import Client
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol.sync import SyncStatistics
from tests.net.support import serving

READ = "a-read-token-0123456789"


def root(number: int) -> Node:
    return Tree().insert([(bytes(20), b"message %d" % number)]).root


class Hub:
    """Stands in for a client: what the hub's root is, what keeps the logs different, and when both are equal."""

    def __init__(self) -> None:
        self.hub_root: Node | None = None
        self.obstacle: Exception | None = None
        self.equal = anyio.Event()

    async def synced(self) -> None:
        await self.equal.wait()


def listener(*, aloud: bool = False) -> Listener:
    return Listener(lambda *_: None, lambda: 10**6, aloud=aloud)


def run(test: Callable[[], Awaitable[None]]) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(test, backend="trio", backend_options={"clock": clock})


async def wait(hub: Hub, heard: Listener, *, give_up: bool = True) -> None:
    await in_step(cast("Client", hub), heard, "mine.db", "ws://hub", give_up=give_up)


STEPS: dict[str, Callable[[Hub, Listener, int], None]] = {
    "messages go": lambda hub, heard, step: heard(events.Served("hub", 1, 100, 1)),
    "messages come": lambda hub, heard, step: heard(events.SyncProgressed("hub", 0, SyncStatistics(values=step))),
    "the hub's root changes": lambda hub, heard, step: setattr(hub, "hub_root", root(step)),
}


@pytest.mark.slow
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


def test_a_failure_is_said_once_for_all_attempts(capfd: pytest.CaptureFixture[str]) -> None:
    heard = Listener(lambda *_: None, lambda: 0, aloud=True)
    refused = events.Failed("connecting to ws://hub", NetworkError("ws://hub cannot be reached: Connection refused"))
    for event in (refused, refused, events.Connected("ws://hub"), refused, refused):
        heard(event)
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "ws://hub cannot be reached: Connection refused",
        "connected to ws://hub",
        "ws://hub cannot be reached: Connection refused",
    ]


def test_what_keeps_logs_different_is_said_soon(capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        hub, heard = Hub(), listener()
        start = anyio.current_time()

        async def sync() -> None:
            # Nothing comes for a while.
            await anyio.sleep(10)
            hub.obstacle = NetworkError("ws://hub lets this client read only")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sync)
            with pytest.raises(LogsDiffer, match=r"^ws://hub lets this client read only$"):
                await wait(hub, heard)
        assert 10 <= anyio.current_time() - start <= 13
        with anyio.move_on_after(100):
            await wait(hub, heard, give_up=False)

    run(test)
    assert capfd.readouterr().err.count("ws://hub lets this client read only") == 1


def token_file(folder: Path, text: str) -> Path:
    path = folder / "token"
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("topic", "token", "cause"), [("notes", "another-0123456789", "token"), ("another", READ, "topic")]
)
async def test_who_follows_ends_where_the_hub_refuses_the_token_or_the_topic(
    opened: Callable[..., Log], topic: str, token: str, cause: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hub = gossiplog.Hub(opened(topic="notes"), access=gossiplog.Access(read_token=READ))
    async with serving(hub) as url:
        file = token_file(tmp_path, token)
        follow = partial(sync_with_hub, opened(topic=topic), "mine.db", url, token_file=file, ca_file=None, follow=True)
        with pytest.raises(ConnectionLost) as lost:
            await anyio.to_thread.run_sync(partial(follow, done=[].append))
    assert lost.value.cause == cause
    # The command says it as it ends, and nothing before.
    assert capfd.readouterr().err == ""


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_follows_ends_where_the_token_is_refused_later(
    opened: Callable[..., Log], port: int, tmp_path: Path
) -> None:
    ours, done, log = opened(), Signal(), opened()

    def tell(result: object) -> None:
        call_soon(done.set)

    call_soon = loop_call_soon()
    lost: list[ConnectionLost] = []

    async def follow() -> None:
        url, file = f"ws://127.0.0.1:{port}", token_file(tmp_path, READ)
        call = partial(sync_with_hub, ours, "mine.db", url, token_file=file, ca_file=None, follow=True)
        with pytest.raises(ConnectionLost) as caught:
            await anyio.to_thread.run_sync(partial(call, done=tell))
        lost.append(caught.value)

    async with anyio.create_task_group() as tasks:
        async with serving(gossiplog.Hub(log, access=gossiplog.Access(read_token=READ)), port):
            tasks.start_soon(follow)
            await done.wait()
        async with serving(gossiplog.Hub(log, access=gossiplog.Access(read_token="another-0123456789")), port):
            while not lost:
                await anyio.sleep(0.01)
    assert lost[0].cause == "token"


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
        (events.SyncEnded("hub", False, 0, 0, SyncStatistics(), "no bytes came"), "no bytes came"),
    ],
)
def test_who_follows_is_told_what_really_went_wrong(
    event: events.Event, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        hub, heard = Hub(), Listener(lambda *_: None, lambda: 10**6, aloud=True)
        heard(event)
        said = capfd.readouterr().err
        assert "connecting to" not in said
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: wait(hub, heard, give_up=False))
            await anyio.sleep(30)
            assert capfd.readouterr().err.rstrip().endswith(f"nothing has come for 20 s: {reason}")
            heard(events.Connected("hub"))
            assert heard.failure.text == ""
            hub.equal.set()

    run(test)


def test_syncs_that_fail_again_and_again_are_no_progress(capfd: pytest.CaptureFixture[str]) -> None:
    async def fail(heard: Listener) -> None:
        cost = SyncStatistics(requests=3, bytes_received=500)
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
            for event in (None, events.Served("hub", 1, 100, 1), events.Served("hub", 1, 100, 1)):
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
    heard = Listener(lambda received, sent, _: shown.append((received, sent)), lambda: 10**6, aloud=False)
    heard(events.SyncProgressed("hub", 10, SyncStatistics(values=12)))
    heard(events.Served("hub", 3, 1000, 1))
    heard(events.SyncEnded("hub", True, 20, 1, SyncStatistics(4, 50, 6000, 3, 22), ""))
    heard(events.Served("hub", 5, 2000, 1))
    heard(events.SyncProgressed("hub", 1, SyncStatistics(values=1)))
    assert shown == [(10, 0), (10, 3), (20, 3), (20, 8), (21, 8)]
    sums = heard.sums
    assert (sums.inserted, sums.sent, sums.refused, sums.requests, sums.round_trips) == (20, 8, 1, 4, 3)
    assert (sums.bytes_sent, sums.bytes_received) == (3050, 6000)


def test_messages_that_the_hub_asks_for_again_are_no_progress() -> None:
    async def test() -> None:
        hub = Hub()
        # Of which the hub has all but 60.
        heard = Listener(lambda *_: None, lambda: 1000, aloud=False)

        async def look() -> None:
            while True:
                hub.hub_root = root(0)
                await anyio.sleep(1)

        async def ask() -> None:
            for sync in count(1):
                for _ in range(3):
                    heard(events.Served("hub", 20, 1000, sync))
                    await anyio.sleep(2)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            tasks.start_soon(ask)
            with pytest.raises(LogsDiffer, match="20 s: it asks again for messages that it was sent"):
                await wait(hub, heard)
            tasks.cancel_scope.cancel()
        assert heard.sums.sent == 60

    run(test)


def test_what_the_hub_stores_at_last_counts_once() -> None:
    heard, hub = listener(), Hub()
    heard.hub_root = lambda: hub.hub_root
    sent, asked_again = [], []
    for sync, (messages, found) in enumerate([(60, 0), (60, 0), (60, 1), (40, 2)], 1):
        heard(events.Served("hub", messages, 1000, sync))
        hub.hub_root = root(found)
        sent.append(heard.count_progress()[1])
        asked_again.append(heard.is_asked_again)
    # Of the first two syncs nothing was stored.
    assert (sent, asked_again) == ([60, 60, 60, 100], [False, True, False, False])


def test_a_defect_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    listener()(events.Defect("the hub", "syncing with it", PanicException("a panic"), 1))
    assert "the hub: a defect of gossiplog, syncing with it: PanicException: a panic" in capfd.readouterr().err


def test_who_may_only_read_hears_of_own_messages_once_a_connection(capsys: pytest.CaptureFixture[str]) -> None:
    own = _OwnMessages("wss://hub.example.org")

    def said(*happened: events.Event, may_write: bool | None = False) -> int:
        for event in happened:
            own(event, may_write)
        return capsys.readouterr().err.count("lets this client read only, and lacks messages of this log")

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


def test_who_follows_is_shown_the_way_back_from_all_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    listener(aloud=True)(events.RefusalsReported("ws://hub", (("id2", "ugly"),), 0, "rebase id1 id2"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith('message id2: "ugly". To go on without what it refuses: rebase id1 id2')
