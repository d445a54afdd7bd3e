"""Faults put into each machine: what a stranger brings to light costs it its connection, and nobody else anything."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from gossiplog import Hub, Log, Signer, core
from gossiplog._core import PanicException
from gossiplog.errors import NetworkError, ProtocolError, StorageError
from gossiplog.log.replica import Replica
from gossiplog.net import client as client_module
from gossiplog.net import events, rate_limited_log
from gossiplog.net import hub as hub_module
from gossiplog.net.client import connect
from gossiplog.net.replicator.defects import SECONDS, STRIKES, TOO_MANY, Defects, defect_in
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.service import background
from gossiplog.net.transport.host import Publication
from gossiplog.net.transport.network import Connection, Network
from gossiplog.protocol import gossip, push, wire
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.protocol.broadcast.schedule import Schedule
from gossiplog.protocol.sync import client as sync_client
from gossiplog.protocol.sync import events as sync_events
from gossiplog.protocol.sync import server as sync_server
from gossiplog.protocol.wire import Insert, Protocols, Update
from tests.net.meshes import member, running
from tests.net.support import (
    QUICK,
    TOPIC,
    FakeRouter,
    Heard,
    connect_pair,
    joined,
    serving,
    until_equal,
)

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]
Misdeed = Callable[[Connection], Awaitable[object]]

MARK = b"a fault is put in here"
HEAD = MARK[:20]
PROTOCOLS = Protocols(TOPIC)
ERRORS: list[BaseException] = [KeyError("a key"), RuntimeError("a state"), PanicException("a panic")]


def marked(signer: Signer) -> tuple[bytes, bytes]:
    return signer.sign(TOPIC, 1, [], MARK.decode())


# Where faults are put in


def put_in(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException) -> None:
    """Have a function raise whenever the mark is in one of its arguments."""
    original = getattr(owner, name)

    def fail(*arguments: Any) -> Any:
        # A stream's bytes may come in any pieces: the mark is short enough to come whole.
        if any(HEAD in shown(argument) for argument in arguments):
            raise error
        return original(*arguments)

    monkeypatch.setattr(owner, name, fail)


def shown(argument: object) -> bytes:
    match argument:
        case bytes():
            return argument
        case sync_events.Received():
            return b"".join(argument.values)
        case list() if all(isinstance(part, bytes) for part in argument):
            return b"".join(argument)
        case _:
            return repr(argument).encode()


async def push_a_message(connection: Connection) -> None:
    await open_push(connection, wire.encode_push(Insert(*marked(Signer(b"\7" * 32)))))


async def push_a_head(connection: Connection) -> None:
    await open_push(connection, wire.encode_push(Update([HEAD])))


async def open_push(connection: Connection, data: bytes) -> None:
    stream = await connection.open_stream(PROTOCOLS.push)
    await stream.send(wire.encode_push(Update([])) + data)


async def ask(connection: Connection) -> None:
    await open_push(connection, b"")
    stream = await connection.open_stream(PROTOCOLS.sync)
    await stream.send(wire.encode_request(wire.GetValues([HEAD])))


async def answer(connection: Connection) -> None:
    """Be synced with, and answer with the mark."""
    await open_push(connection, wire.encode_push(Update([bytes(20)])))
    _, stream = await connection.accept()
    await stream.receive()
    await stream.send(wire.encode_answer(wire.Values([HEAD])))


async def hang_up(connection: Connection) -> None:
    """Be synced with, and end the sync after a head with the mark."""
    await open_push(connection, wire.encode_push(Update([HEAD])))
    _, stream = await connection.accept()
    stream.reset()


FAULTS: dict[str, tuple[Any, str, str, Misdeed]] = {
    "reading a push stream": (push.Push, "receive", "push", push_a_message),
    "decoding what is pushed": (wire, "decode_push", "push", push_a_message),
    "looking up heads": (Replica, "known", "push", push_a_head),
    "answering": (sync_server.Server, "receive", "serving", ask),
    "reading a request": (wire, "decode_request", "serving", ask),
    "reading an answer": (sync_client.Client, "receive", "sync", answer),
    "decoding an answer": (wire, "decode_answer", "sync", answer),
    "storing": (Replica, "verify", "storing", push_a_message),
    "the shared machine": (Broadcast, "handle", "broadcast", push_a_message),
    "its judgement": (Broadcast, "_judge", "broadcast", push_a_message),
    "its heads": (Broadcast, "handle", "broadcast", push_a_head),
    "its syncs": (Schedule, "_conclude", "broadcast", hang_up),
    "what it asks for": (Driver, "_do", "broadcast", push_a_message),
}


@asynccontextmanager
async def visited(
    network: Network, server: Driver, results: list[object], name: str = "the guest"
) -> AsyncIterator[Connection]:
    """The end of a connection to a driver; how the other end's exchange ended is added to the results."""
    ours, theirs = connect_pair(network, server.protocols.all)

    async def exchange() -> None:
        try:
            results.append(await server.exchange(theirs, name, dialer=False))
        except NetworkError as error:
            results.append(error)
        finally:
            await theirs.leave()

    async with background() as tasks:
        tasks.start_soon(exchange)
        yield ours


@pytest.mark.parametrize("error", ERRORS[::2], ids=repr)
@pytest.mark.parametrize("place", FAULTS)
async def test_a_defect_costs_who_brought_it_to_light_a_connection_and_the_third_more(
    network: Network,
    opened: Open,
    signer: Signer,
    other_signer: Signer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    error: BaseException,
) -> None:
    owner, name, kind, misdeed = FAULTS[place]
    put_in(monkeypatch, owner, name, error)
    ours, theirs = opened(signer=signer), opened(signer=other_signer)
    heard = Heard()
    results: list[object] = []
    with anyio.fail_after(60):
        async with (
            Driver(theirs, broadcast=QUICK, on_event=heard) as server,
            Driver(ours, broadcast=QUICK) as client,
            joined(network, client, server),
        ):
            await heard.wait(events.Connected)
            for times in range(1, STRIKES + 1):
                ours.append("before")
                async with visited(network, server, results) as connection:
                    await misdeed(connection)
                    found = (await heard.wait(events.Defect, times))[-1]
                    await connection.wait_closed()
                    await heard.wait(events.Disconnected, times)
                assert (found.peer, found.error, found.times) == ("the guest", error, times)
                theirs.append("after")
                await until_equal(ours, theirs)
            async with visited(network, server, results) as connection:
                await connection.wait_closed()
            assert len(server.peers) == 1
            ours.append("as ever")
            await until_equal(ours, theirs)
            assert server.counters.defects == {kind: STRIKES}
            assert server.counters.dropped == 1
            assert server.counters.refused_connections == {"banned": 1}
    assert [isinstance(result, NetworkError) for result in results] == [True, True, False, False]
    assert results[2:] == [TOO_MANY, TOO_MANY]
    left = heard.of(events.Disconnected)[:STRIKES]
    assert [event.blamed for event in left] == [False, False, True]
    assert all(event.reason.startswith("a defect of this side, ") for event in left[:2])
    lines = [record for record in caplog.records if record.levelno == logging.ERROR and record.name == "gossiplog"]
    (line,) = lines
    assert line.message.startswith("the guest: a defect of gossiplog, please report it: ")
    assert line.exc_info is not None
    assert line.exc_info[1] is error


async def test_what_other_peers_had_advertised_is_not_forgotten(
    network: Network, opened: Open, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new machine asks for what only the old one knew: that a sync waits for its time."""
    put_in(monkeypatch, Broadcast, "handle", ERRORS[0])
    ours, theirs = opened(signer=signer), opened(signer=other_signer)
    ours.append_many(range(10))
    heard = Heard()
    server = Driver(theirs, broadcast=BroadcastConfig(backoff=3600, longest_backoff=3600), on_event=heard)
    snapshot, failures = server.replica.snapshot, iter([StorageError("the disk took a break")])

    def fail_once() -> object:
        for error in failures:
            raise error
        return snapshot()

    monkeypatch.setattr(server.replica, "snapshot", fail_once)
    with anyio.fail_after(60):
        async with server, Driver(ours) as client, joined(network, client, server):
            await heard.wait(events.SyncEnded)
            assert len(theirs) == 0
            async with visited(network, server, []) as connection:
                await push_a_head(connection)
                await connection.wait_closed()
            await until_equal(ours, theirs)
    assert len(theirs) == 10


async def test_gossip_that_waited_in_the_old_machine_is_answered(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(monkeypatch, Broadcast, "handle", ERRORS[0])
    router, heard = FakeRouter(), Heard()
    orphan = signer.sign(TOPIC, 2, [core.encode_id(b"\1" + bytes(19))], "an orphan")
    config = BroadcastConfig(orphan_wait=3600)
    with anyio.fail_after(60):
        async with Driver(opened(), broadcast=config, router=router, on_event=heard) as driver:
            await driver.take_gossip([Publication(1, None, "somebody", gossip.encode(*orphan))])
            while not driver.counters.orphans:
                await anyio.sleep(0.001)
            async with visited(network, driver, []) as connection:
                await push_a_head(connection)
                await connection.wait_closed()
            assert await router.answered(1) == {1: "ignore"}
            # And what is marked itself.
            put_in(monkeypatch, gossip, "decode", ERRORS[2])
            await driver.take_gossip([Publication(2, None, "somebody", gossip.encode(*marked(signer)))])
            assert (await router.answered(2))[2] == "ignore"
    assert [found.peer for found in heard.of(events.Defect)] == ["the guest", ""]
    assert driver.counters.defects == {"broadcast": 1, "gossip": 1}


async def test_a_root_that_brings_a_defect_to_light(
    network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(monkeypatch, wire, "decode_answer", ERRORS[2])
    heard = Heard()

    async def answer_once(connection: Connection) -> None:
        _, stream = await connection.accept()
        await stream.send(wire.encode_answer(wire.Values([HEAD])))

    with anyio.fail_after(60):
        async with (
            Driver(opened(), on_event=heard) as driver,
            visited(network, driver, []) as connection,
            background() as tasks,
        ):
            await open_push(connection, b"")
            await heard.wait(events.Connected)
            tasks.start_soon(answer_once, connection)
            with pytest.raises(NetworkError, match=r"of this side, asking it for its root: PanicException: a panic"):
                await driver.root_of(driver.peers[0])
            await heard.wait(events.Disconnected)
    assert driver.counters.defects == {"sync": 1}


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*arguments: object) -> Any:
        raise error

    return fail


async def test_a_machine_without_use_ends_the_context_with_its_error(
    network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = KeyError("in every machine")

    async def replicate() -> None:
        heard = Heard()
        async with Driver(opened(), on_event=heard) as server, visited(network, server, []) as connection:
            await open_push(connection, b"")
            await heard.wait(events.Connected)
            monkeypatch.setattr(Broadcast, "_connect", fails(error))
            async with visited(network, server, []) as another:
                await open_push(another, b"")
                await anyio.sleep_forever()

    with anyio.fail_after(60), pytest.raises(KeyError) as raised:
        await replicate()
    assert raised.value is error


async def test_a_connection_that_ends_by_a_defect_of_the_network_counts(network: Network, opened: Open) -> None:
    heard, results = Heard(), list[object]()
    with anyio.fail_after(60):
        async with Driver(opened(), on_event=heard) as driver:
            for times in range(1, STRIKES + 1):
                async with visited(network, driver, results) as connection:
                    await open_push(connection, b"")
                    await heard.wait(events.Connected, times)
                    (peer,) = driver.peers
                    closed: Any = SimpleNamespace(
                        cause="internal", reason="the connection's task panicked", status=None
                    )
                    peer.connection.closed = closed
                    peer.connection._changed.set()
                    await heard.wait(events.Defect, times)
    assert [str(found.error) for found in heard.of(events.Defect)] == ["the connection's task panicked"] * STRIKES
    assert driver.counters.defects == {"connection": STRIKES}
    assert results[-1] == TOO_MANY


# Hubs, clients and peers


@pytest.mark.parametrize("error", ERRORS[1:], ids=repr)
async def test_a_hub_goes_on_and_bans_an_address(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    put_in(monkeypatch, wire, "decode_push", error)
    # They come from addresses of other machines.
    monkeypatch.setattr(hub_module, "culprit_of", lambda host, page: host)
    log, ours, heard = opened(), opened(signer=signer), Heard()
    hub = Hub(log, broadcast=QUICK, on_event=heard)
    with anyio.fail_after(60):
        async with serving(hub) as url, connect(ours, url) as client:
            await client.synced()
            for times in range(1, STRIKES + 1):
                async with await network.dial(url, PROTOCOLS.all) as connection:
                    await push_a_message(connection)
                    await connection.wait_closed()
                await heard.wait(events.Defect, times)
            ours.append("as ever")
            await until_equal(ours, log)
            async with await network.dial(url, PROTOCOLS.all) as connection:
                await connection.wait_closed()
            await client.synced()
    assert [found.times for found in heard.of(events.Defect)] == [1, 2, 3]
    assert (hub.counters.defects, hub.counters.refused_connections) == ({"push": 3}, {"banned": 1})


async def test_a_hub_bans_no_local_address(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may be there, behind a proxy that nobody has named."""
    put_in(monkeypatch, wire, "decode_push", ERRORS[1])
    heard = Heard()
    hub = Hub(opened(), broadcast=QUICK, on_event=heard)
    with anyio.fail_after(60):
        async with serving(hub) as url:
            for times in range(1, STRIKES + 2):
                async with await network.dial(url, PROTOCOLS.all) as connection:
                    await push_a_message(connection)
                    await connection.wait_closed()
                await heard.wait(events.Defect, times)
    assert [found.times for found in heard.of(events.Defect)] == [1] * (STRIKES + 1)
    assert hub.counters.refused_connections == {}


@pytest.mark.parametrize("error", ERRORS[1:], ids=repr)
@pytest.mark.parametrize(("owner", "name"), [(wire, "decode_push"), (sync_events.Received, "verify")])
async def test_a_client_connects_again_until_the_third_time(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException
) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.01)
    theirs, heard = opened(signer=signer), Heard()
    put_in(monkeypatch, owner, name, error)
    with anyio.fail_after(60):
        theirs.append(MARK.decode())
        async with serving(Hub(theirs)) as url, connect(opened(), url, broadcast=QUICK, on_event=heard) as client:
            for times in range(1, STRIKES + 1):
                await heard.wait(events.Connected, times)
                theirs.append(MARK.decode())
                await heard.wait(events.Defect, times)
            await heard.wait(events.Disconnected, STRIKES)
            with pytest.raises(ProtocolError, match="brought defects of this side to light 3 times"):
                await client.synced()
    assert {found.peer for found in heard.of(events.Defect)} == {url}


@pytest.mark.integration
@pytest.mark.usefixtures("quick_gossip")
async def test_a_peer_goes_on_and_shuns_who_did_it_three_times(
    opened: Open, signer: Signer, other_signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(monkeypatch, gossip, "decode", ERRORS[2])
    logs = [opened(signer=signer), opened(signer=other_signer)]
    # Where gossip waits for the log, Python reads it.
    async with running(*logs, forward="stored") as (peers, heard):
        for times in range(1, STRIKES + 1):
            async with member(peers[0]) as (host, arrival):
                host.publish(gossip.encode(*signer.sign(TOPIC, 1, [], f"{MARK.decode()} {times}")))
                await heard[0].wait(events.Defect, times)
                await arrival.connection.wait_closed()
            for log in logs:
                log.append("as ever")
            await until_equal(*logs)
        assert [found.times for found in heard[0].of(events.Defect)] == [1, 2, 3]
        assert {found.peer for found in heard[0].of(events.Defect)} == {host.peer_id}
        assert peers[0].counters.defects == {"gossip": 3}
        assert peers[0].counters.dropped == 1


# What counts


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ERRORS[0], ERRORS[0]),
        (ERRORS[2], ERRORS[2]),
        (BaseExceptionGroup("", [NetworkError("gone"), ERRORS[2]]), ERRORS[2]),
        (ExceptionGroup("", [anyio.BrokenResourceError(), ExceptionGroup("", [ERRORS[0]])]), ERRORS[0]),
        (BaseExceptionGroup("", [ERRORS[0], SystemExit(3)]), None),
        (ExceptionGroup("", [ERRORS[0], StorageError("the disk is full")]), None),
        (NetworkError("gone"), None),
        (KeyboardInterrupt(), None),
    ],
    ids=repr,
)
def test_what_is_a_defect(error: BaseException, expected: BaseException | None) -> None:
    assert defect_in(error) is expected


def test_cancellation_is_none() -> None:
    async def main() -> None:
        assert defect_in(anyio.get_cancelled_exc_class().__new__(anyio.get_cancelled_exc_class())) is None

    anyio.run(main)


async def test_defects_are_forgotten_with_the_time_and_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(anyio, "current_time", lambda: now[0])
    monkeypatch.setattr(rate_limited_log, "MOST_REMEMBERED", 2)
    peers: dict[int, Any] = {number: PeerSession(number, name, Line(), True, origin=name) for number, name in NAMES}
    found = Defects(Telemetry(None), peers)
    for number in (1, 1, 1, 2, 2):
        assert found.catch("push", number, "testing", ERRORS[0])
    assert [found.bans(name) for _, name in NAMES] == [True, False, False]
    assert [peers[number].blamed_for for number, _ in NAMES] == [TOO_MANY, "", ""]
    now[0] = SECONDS
    assert not found.bans("a")
    found.catch("push", 2, "testing", ERRORS[0])
    assert not found.bans("b")
    for number in (3, 3, 3, 1):
        found.catch("push", number, "testing", ERRORS[0])
    assert found.bans("c")
    assert (len(found._times), len(found._faulty)) == (2, 2)
    for peer in peers.values():
        found.leave(peer)
    assert len(found._left) == 2


NAMES = [(1, "a"), (2, "b"), (3, "c")]


class Line:
    def close(self) -> None:
        pass
