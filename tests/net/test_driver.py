"""Drivers on both event loops, joined in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import pytest

import gossiplog
from gossiplog import Log, Signer, core
from gossiplog.errors import ConnectionLost, LogClosed, NetworkError, StorageError
from gossiplog.net import events, feed
from gossiplog.net.driver import Driver
from gossiplog.net.streams import Network, open_network
from gossiplog.protocol.broadcast_config import Config
from tests.net.support import Heard, connect_pair, joined, until_equal

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]

QUICK = Config(backoff=0.01, longest_backoff=0.05, retry=0.01, longest_retry=0.05)


async def test_messages_go_both_ways_and_are_told_of_once_in_order(
    network: Network, opened: Open, signer: Signer, other_signer: Signer
) -> None:
    ours, theirs = opened(signer=signer), opened(signer=other_signer)
    ours.append_many(range(300))
    heard, told = Heard(), Heard()
    async with (
        Driver(ours, on_event=heard, on_message=heard.message) as client,
        Driver(theirs, on_event=told, on_message=told.message) as server,
        joined(network, client, server),
    ):
        await told.wait_for_messages(300)
        for number in range(20):
            ours.append(["ours", number])
            theirs.append(["theirs", number])
        await until_equal(ours, theirs)
        await told.wait_for_messages(340)
        await heard.wait_for_messages(40)
    assert [message.id for message in told.messages] == [message.id for message, _ in arrivals(theirs)]
    assert [message.id for message in heard.messages] == [message.id for message, _ in arrivals(ours)][300:]
    (ended, *_) = told.of(events.SyncEnded)
    assert (ended.peer, ended.complete, ended.inserted, ended.error) == ("the client", True, 300, "")
    assert [event.peer for event in told.of(events.Connected)] == ["the client"]
    served = heard.of(events.Served)
    assert {event.peer for event in served} == {"the server"}
    assert sum(event.messages for event in served) >= 300
    assert sum(event.size for event in served) >= ended.statistics.bytes_in
    assert server.counters.inserted["sync"] >= 300
    assert sum(server.counters.inserted.values()) == 340
    assert server.counters.inserted["append"] == 20


def arrivals(log: Log) -> list[tuple[gossiplog.SignedMessage, int]]:
    return [(core.read_message(value, log.topic), sequence) for sequence, value in log.replica.arrivals(0, 100_000)]


async def test_leaving_ends_the_exchanges_and_says_so(network: Network, opened: Open, signer: Signer) -> None:
    heard, told = Heard(), Heard()
    async with Driver(opened(), on_event=heard) as client:
        here, there = connect_pair(network, client.protocols.all)

        async def serve(server: Driver) -> None:
            async with there:
                with pytest.raises(NetworkError, match="this side has stopped"):
                    await server.exchange(there, "the client", dialer=False)

        async with anyio.create_task_group() as tasks:
            async with Driver(opened(), on_event=told) as server:
                tasks.start_soon(serve, server)
                tasks.start_soon(partial(client.exchange, here, "the server", dialer=True))
                await told.wait(events.Connected)
            assert server.peers == ()
            assert [event.reason for event in told.of(events.Disconnected)] == ["this side ended the connection"]
        with pytest.raises(NetworkError, match="not replicated any more"):
            await server.exchange(there, "another", dialer=False)
        assert client.peers == ()
    assert [event.reason for event in heard.of(events.Disconnected)] == ["the peer closed the connection"]


async def test_a_stopped_network_is_an_error_and_no_group(opened: Open) -> None:
    async with Driver(opened()) as server, anyio.create_task_group() as tasks, open_network() as network:
        _, there = connect_pair(network, server.protocols.all)

        async def serve() -> None:
            with pytest.raises(NetworkError, match="the network was stopped"):
                await server.exchange(there, "the client", dialer=False)

        tasks.start_soon(serve)
        await anyio.wait_all_tasks_blocked()


async def test_a_log_closed_meanwhile_ends_the_context(opened: Open) -> None:
    log = opened()

    async def replicate() -> None:
        async with Driver(log):
            log.close()
            await anyio.sleep_forever()

    with pytest.raises(LogClosed):
        await replicate()


async def test_a_closed_log_is_not_replicated(opened: Open) -> None:
    log = opened()
    log.close()
    with pytest.raises(LogClosed):
        async with Driver(log):
            pass


@pytest.mark.parametrize("kind", ["on_event", "on_message"])
async def test_what_a_function_of_the_application_raises_ends_the_context(
    opened: Open, signer: Signer, kind: str
) -> None:
    log = opened(signer=signer)
    calls: list[object] = []

    def fail(what: object) -> None:
        calls.append(what)
        raise ZeroDivisionError("theirs")

    async def replicate() -> None:
        async with Driver(log, **{kind: fail}):
            log.append_many(range(3))
            await anyio.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="theirs"):
        await replicate()
    assert len(calls) == 1


async def test_an_error_of_the_block_comes_out_as_it_is(opened: Open) -> None:
    own = ExceptionGroup("ours", [KeyError(1), KeyError(2)])
    with pytest.raises(ExceptionGroup) as raised:
        async with Driver(opened()):
            raise own
    assert raised.value is own


async def test_a_database_that_fails_for_a_moment(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_RETRY_SECONDS", 0.01)
    ours, theirs = opened(signer=signer), opened()
    heard = Heard()
    server = Driver(theirs, on_event=heard, on_message=heard.message)
    for name in ("wait", "heads", "arrivals", "root"):
        monkeypatch.setattr(server.replica, name, failing(getattr(server.replica, name), 2))
    async with (
        Driver(ours) as client,
        server,
        joined(network, client, server),
    ):
        ours.append_many(range(10))
        await heard.wait_for_messages(10)
        await heard.wait(events.Committed)
        assert ours.root == theirs.root
    failed = {event.doing for event in heard.of(events.Failed)}
    assert failed == {"following the log", "reading the heads", "reading new messages", "reading the root"}
    assert server.counters.errors == {"StorageError": 8}


def failing(call: Callable[..., object], times: int) -> Callable[..., object]:
    """A call that fails some times before it works."""
    left = [times]

    def attempt(*arguments: object) -> object:
        if left[0]:
            left[0] -= 1
            raise StorageError("the disk took a break")
        return call(*arguments)

    return attempt


async def test_heads_that_cannot_be_looked_up_are_synced_with(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(signer=signer), opened()
    ours.append("before")
    heard = Heard()
    server = Driver(theirs, config=QUICK, on_event=heard)
    monkeypatch.setattr(server.replica, "known", failing(server.replica.known, 1))
    async with (
        Driver(ours, config=QUICK) as client,
        server,
        joined(network, client, server),
    ):
        await until_equal(ours, theirs)
    assert [event.doing for event in heard.of(events.Failed)] == ["looking up what the client has"]


async def test_pushed_messages_that_cannot_be_stored_come_again(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(signer=signer), opened()
    heard = Heard()
    async with (
        Driver(ours, config=QUICK) as client,
        Driver(theirs, config=QUICK, on_event=heard) as server,
        joined(network, client, server),
    ):
        await heard.wait(events.Connected)
        # When this has arrived, no Update is under way: the next one is pushed.
        ours.append("first")
        await until_equal(ours, theirs)
        await heard.wait(events.Committed)
        monkeypatch.setattr(server.replica, "ingest", failing(server.replica.ingest, 3))
        ours.append("second")
        await until_equal(ours, theirs)
    doing = {event.doing for event in heard.of(events.Failed)}
    assert doing == {"storing what peers sent", "storing what a sync brought"}
    assert heard.of(events.Disconnected)[0].blamed is False
    failures = [event for event in heard.of(events.SyncEnded) if event.error]
    assert "the disk took a break" in {event.error for event in failures}
    assert not any(event.complete for event in failures)
    assert server.counters.dropped == 0


async def test_messages_that_the_application_refuses_blame_nobody_and_come_again(
    network: Network, opened: Open, signer: Signer
) -> None:
    willing = False

    def apply(message: object, transaction: object) -> None:
        if not willing:
            raise ValueError("not yet")

    ours, theirs = opened(signer=signer), opened(apply=apply)
    heard = Heard()
    async with (
        Driver(ours, config=QUICK) as client,
        Driver(theirs, config=QUICK, on_event=heard) as server,
        joined(network, client, server),
    ):
        await heard.wait(events.Connected)
        ours.append_many(range(5))
        (ended, *_) = await heard.wait(events.SyncEnded)
        assert len(theirs) == 0
        assert ended.refused
        assert server.counters.refused
        willing = True
        await until_equal(ours, theirs)
        assert server.counters.dropped == 0


async def test_a_server_that_is_no_hub_is_blamed(network: Network, opened: Open) -> None:
    server = network.attach([], client=True)
    async with Driver(opened()) as client:
        await server.feed(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionLost, match="no yamux frame"):
            await client.exchange(server, "no hub", dialer=True)
        assert client.counters.dropped == 1
