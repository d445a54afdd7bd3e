"""Drivers on both event loops, joined in memory."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import pytest

import gossiplog
from gossiplog import Log, Signer, core
from gossiplog.errors import ConnectionLost, LogClosed, NetworkError, StorageError
from gossiplog.event_loop import loop_call_soon
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.replicator import change_feed
from gossiplog.net.replicator import gossip as validation
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.transport.host import Answer, Publication
from gossiplog.net.transport.network import Connection, Network, open_network
from gossiplog.protocol import gossip
from gossiplog.protocol.broadcast.config import BroadcastConfig
from tests.net.support import QUICK, TOPIC, FakeRouter, Heard, connect_pair, joined, until_equal
from tests.strategies import alternative

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


async def test_messages_go_both_ways_and_are_reported_once_in_order(
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
    assert sum(event.size for event in served) >= ended.statistics.bytes_received
    assert server.counters.inserted["sync"] >= 300
    assert sum(server.counters.inserted.values()) == 340
    assert server.counters.inserted["append"] == 20


def arrivals(log: Log) -> list[tuple[gossiplog.SignedMessage, int]]:
    return [(message, sequence) for sequence, message in replica_of(log).arrivals(0, 100_000)]


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
                # Until then the client opens its stream, and hears of the end as an error.
                await heard.wait(events.Connected)
            assert server.peers == ()
            assert [event.reason for event in told.of(events.Disconnected)] == ["this side ended the connection"]
        with pytest.raises(NetworkError, match="no longer replicated"):
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


async def test_of_several_encodings_the_first_is_announced(opened: Open, signer: Signer) -> None:
    log, other = opened(signer=signer), opened(signer=signer)
    values = [other.append({"n": n}).value for n in range(3)]
    heard = Heard()
    async with Driver(log, on_message=heard.message):
        with anyio.fail_after(60):
            log.insert(values[0])
            await heard.wait_for_messages(1)
            log.insert_many([alternative(values[0]), alternative(values[1]), alternative(values[1], 1)])
            log.insert_many([values[1], values[2]])
            messages = await heard.wait_for_messages(3)
    assert [message.payload["n"] for message in messages] == [0, 1, 2]
    assert len(log) == 6


async def test_an_error_of_the_block_comes_out_as_it_is(opened: Open) -> None:
    own = ExceptionGroup("ours", [KeyError(1), KeyError(2)])
    with pytest.raises(ExceptionGroup) as raised:
        async with Driver(opened()):
            raise own
    assert raised.value is own


async def test_a_database_that_fails_for_a_moment(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "_RETRY_SECONDS", 0.01)
    ours, theirs = opened(signer=signer), opened()
    heard = Heard()
    server = Driver(theirs, on_event=heard, on_message=heard.message)
    monkeypatch.setattr(server.replica, "recent", lambda after, limit: ())
    for name in ("heads", "arrivals", "state"):
        monkeypatch.setattr(server.replica, name, failing(getattr(server.replica, name), 2))
    async with Driver(ours) as client, server:
        monkeypatch.setattr(server.replica, "count", failing(server.replica.count, 2))
        # Before anything comes from a peer: to store it, the messages are counted, too.
        await heard.wait(events.Failed, 2)
        async with joined(network, client, server):
            ours.append_many(range(10))
            await heard.wait_for_messages(10)
            await heard.wait(events.Committed)
            await heard.wait(events.Failed, 8)
            assert ours.root == theirs.root
    failed = {event.doing for event in heard.of(events.Failed)}
    assert failed == {"following the log", "reading the heads", "reading new messages", "reading the root"}
    assert server.counters.errors == {"StorageError": 8}


def failing(call: Callable[..., object], times: int) -> Callable[..., object]:
    """A call that fails some times before it works. Several threads may make it."""
    failures = iter(range(times))

    def attempt(*arguments: object) -> object:
        if next(failures, None) is not None:
            raise StorageError("the disk took a break")
        return call(*arguments)

    return attempt


async def test_heads_that_cannot_be_looked_up_are_synced_with(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = opened(signer=signer), opened()
    ours.append("before")
    heard = Heard()
    server = Driver(theirs, broadcast=QUICK, on_event=heard)
    monkeypatch.setattr(server.replica, "known", failing(server.replica.known, 1))
    async with (
        Driver(ours, broadcast=QUICK) as client,
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
        Driver(ours, broadcast=QUICK) as client,
        Driver(theirs, broadcast=QUICK, on_event=heard) as server,
        joined(network, client, server),
    ):
        await heard.wait(events.Connected)
        # When this has arrived, no Update is under way: the next one is pushed.
        ours.append("first")
        await until_equal(ours, theirs)
        await heard.wait(events.Committed)
        monkeypatch.setattr(server.replica, "insert", failing(server.replica.insert, 3))
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
        Driver(ours, broadcast=QUICK) as client,
        Driver(theirs, broadcast=QUICK, on_event=heard) as server,
        joined(network, client, server),
    ):
        await heard.wait(events.Connected)
        ours.append_many(range(5))
        while sum(ended.refused > 0 for ended in heard.of(events.SyncEnded)) < 3:
            await heard.wait(events.SyncEnded, len(heard.of(events.SyncEnded)) + 1)
        assert len(theirs) == 0
        # The first of them was tried each time; the others follow from it.
        assert server.counters.refused == 1
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


# Gossip


class Gossiping:
    """Two drivers that are joined, and that gossip reaches: the first side's publications can be given to the second,
    as any data can.

    Attributes:
        router: of the second side,
        heard: and what its application hears.
    """

    def __init__(self, ours: Log, theirs: Log, config: BroadcastConfig = QUICK) -> None:
        self.source = FakeRouter()
        self.router = FakeRouter()
        self.heard = Heard()
        self.client = Driver(ours, router=self.source, broadcast=config)
        self.server = Driver(theirs, router=self.router, broadcast=config, on_event=self.heard)
        self._end: Connection | None = None
        self._tickets = itertools.count(1)

    @asynccontextmanager
    async def running(self, network: Network) -> AsyncIterator[None]:
        greeted = self._greeting()
        with anyio.fail_after(60):
            async with self.client, self.server, joined(network, self.client, self.server, gossips=True) as (_, end):
                self._end = end
                await self.heard.wait(events.Connected)
                await greeted.wait()
                yield

    def _greeting(self) -> anyio.Event:
        """Set when the first side has read the heads that it advertises at the beginning: of a log that gets messages
        before, they would be synced, and not come by gossip alone."""
        replica, greeted, call_soon = self.client.replica, anyio.Event(), loop_call_soon()
        heads = replica.heads

        def read() -> list[bytes]:
            found = heads()
            call_soon(greeted.set)
            return found

        replica.heads = read  # type: ignore[method-assign]
        return greeted

    async def give(self, *data: bytes) -> list[int]:
        """Has the second side's router bring messages; their tickets."""
        found = [Publication(next(self._tickets), self._end, "the client", item) for item in data]
        await self.server.take_gossip(found)
        return [publication.ticket for publication in found]

    async def answers(self, tickets: list[int]) -> list[Answer]:
        found = await self.router.answered(tickets[-1])
        return [found[ticket] for ticket in tickets]


async def test_an_append_is_published_and_what_comes_by_gossip_is_accepted(
    network: Network, opened: Open, signer: Signer
) -> None:
    ours, theirs = opened(signer=signer), opened()
    pair = Gossiping(ours, theirs)
    async with pair.running(network):
        ours.append_many(range(20))
        published = await pair.source.wait_for_publications(20)
        tickets = await pair.give(*published)
        assert await pair.answers(tickets) == ["accept"] * 20
        assert ours.root == theirs.root
        # What came by gossip is not published again, and what is there already is accepted: others may lack it.
        assert await pair.answers(await pair.give(published[0])) == ["accept"]
        assert pair.router.published == []
        assert pair.server.counters.inserted["gossip"] == 20


async def test_a_burst_is_answered_in_batches(network: Network, opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    pair = Gossiping(ours, theirs)
    async with pair.running(network):
        ours.append_many(range(300))
        published = await pair.source.wait_for_publications(300)
        await pair.answers(await pair.give(*published))
    assert len(pair.router.batches) < 100
    assert sum(map(len, pair.router.batches)) == 300


async def test_an_orphan_is_ignored_and_its_source_synced_with(network: Network, opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    # There is no room for it to wait.
    pair = Gossiping(ours, theirs, replace(QUICK, orphan_bytes=1))
    async with pair.running(network):
        ours.append_many(range(3))
        *_, last = await pair.source.wait_for_publications(3)
        assert await pair.answers(await pair.give(last)) == ["ignore"]
        (ended, *_) = await pair.heard.wait(events.SyncEnded)
        assert (ended.peer, ended.inserted) == ("the client", 3)
        assert ours.root == theirs.root


async def test_an_orphan_whose_parents_follow_is_accepted(network: Network, opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    pair = Gossiping(ours, theirs, replace(QUICK, orphan_wait=60.0))
    async with pair.running(network):
        ours.append_many(range(3))
        first, second, third = await pair.source.wait_for_publications(3)
        tickets = [*await pair.give(third), *await pair.give(second), *await pair.give(first)]
        assert await pair.answers(tickets) == ["accept"] * 3
        assert ours.root == theirs.root


async def test_an_invalid_message_is_rejected_and_the_rest_of_its_batch_is_not(
    network: Network, opened: Open, signer: Signer
) -> None:
    ours, theirs = opened(signer=signer), opened()
    key, value = signer.sign(ours.topic, 1, [], "true")
    forged = value.replace(b"true", b"lies")
    forged_key = core.encode_clock(1) + hashlib.sha256(forged).digest()[: len(key) - 1]
    other_topic = signer.sign("org.example.other", 1, [], "hi")
    pair = Gossiping(ours, theirs)
    async with pair.running(network):
        data = [gossip.encode(*message) for message in ((forged_key, forged), (key, value), other_topic)]
        assert await pair.answers(await pair.give(*data)) == ["reject", "accept", "reject"]
        # The router penalises; the connection stays.
        assert len(pair.server.peers) == 1
        assert pair.server.counters.invalid == 2


@pytest.mark.parametrize("function", ["apply", "payload"])
async def test_a_function_that_raises_has_the_message_ignored_and_nothing_else(
    network: Network, opened: Open, signer: Signer, function: str, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: object) -> None:
        payload = getattr(arguments[0], "payload", arguments[0])
        if payload == "bad":
            raise ValueError("a defect of theirs")

    ours, theirs = opened(signer=signer), opened(**{function: refuse})
    messages = [signer.sign(ours.topic, 1, [], payload) for payload in ("bad", "good")]
    pair = Gossiping(ours, theirs)
    async with pair.running(network):
        tickets = await pair.give(*(gossip.encode(*message) for message in messages))
        assert await pair.answers(tickets) == ["ignore", "accept"]
        assert len(theirs) == 1
        assert (pair.server.counters.refused, pair.server.counters.dropped) == (1, 0)
    assert "a defect of theirs" in caplog.text


async def test_a_function_that_hangs_has_messages_ignored(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_ANSWER_SECONDS", 0.05)
    release = threading.Event()
    ours, theirs = opened(signer=signer), opened(payload=lambda payload: release.wait())
    theirs_too = opened(signer=signer)
    pair = Gossiping(ours, theirs)
    async with pair.running(network):
        try:
            tickets = await pair.give(gossip.encode(*signer.sign(ours.topic, 1, [], "a")))
            assert await pair.answers(tickets) == ["ignore"]
            (failed,) = await pair.heard.wait(events.Failed)
            assert failed.doing == "validating gossip"
            # The log can be read and served meanwhile.
            assert await pair.client.root_of(pair.client.peers[0]) == theirs_too.root
        finally:
            release.set()
        while not len(theirs):
            await pair.server.committed()
        assert pair.router.answers == {1: "ignore"}


@pytest.mark.slow
async def test_what_is_too_large_for_gossip_is_synced(network: Network, opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    pair = Gossiping(ours, theirs)
    async with pair.running(network):
        ours.append("x" * gossip.MAX_DATA)
        await until_equal(ours, theirs)
        assert pair.source.published == []


async def test_gossip_of_a_peer_that_is_gone_is_accepted(network: Network, opened: Open, signer: Signer) -> None:
    driver = Driver(opened(), router=(router := FakeRouter()))
    with anyio.fail_after(60):
        async with driver:
            data = gossip.encode(*signer.sign(TOPIC, 1, [], "a"))
            await driver.take_gossip([Publication(1, None, "gone", data)])
            assert await router.answered(1) == {1: "accept"}


async def test_without_a_router_there_is_no_gossip(opened: Open) -> None:
    async with Driver(opened()) as driver:
        with pytest.raises(RuntimeError, match="without a router"):
            await driver.take_gossip([])
