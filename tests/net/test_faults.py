"""Peers that misbehave: each is named in a line of the log and counted, loses its connection, and costs nobody else."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from gossiplog import Log, LogWentBack, Signer, core
from gossiplog.core import Node
from gossiplog.errors import ConnectionLost, NetworkError, StreamRefused, StreamReset
from gossiplog.log import following
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.replicator import driver, sessions
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.sync import serve_sync
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.limits import SMALLEST_PEER_BYTES, Limits
from gossiplog.net.transport.network import Connection, Network, open_network
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol import wire
from gossiplog.protocol.sync import SyncServerConfig
from tests.log.going_back import bring_back, keep
from tests.net.support import QUICK, TOPIC, Heard, guest, joined, until_equal, until_longer
from tests.storage.faults import inject

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]
Misdeed = Callable[[Connection, Driver], Awaitable[None]]


async def push(connection: Connection, driver: Driver, *frames: bytes) -> Stream:
    stream = await connection.open_stream(driver.protocols.push)
    await stream.send(b"".join(frames))
    return stream


async def ask(connection: Connection, driver: Driver, data: bytes) -> Stream:
    await push(connection, driver, wire.encode_push(wire.Update([])))
    stream = await connection.open_stream(driver.protocols.sync)
    await stream.send(data)
    return stream


def invalid() -> tuple[bytes, bytes]:
    """A message whose signature does not hold, and its key."""
    _, value = Signer(bytes(32)).sign(TOPIC, 1, [], "text")
    value = value.replace(b"text", b"TEXT")
    return core.read_message(value, TOPIC).key, value


def misplaced(signer: Signer) -> tuple[bytes, bytes]:
    """A valid message behind a key of another clock."""
    key, value = signer.sign(TOPIC, 1, [], "misplaced")
    return b"\2" + key[1:], value


async def push_malformed_protobuf(connection: Connection, driver: Driver) -> None:
    await push(connection, driver, b"\x03\xff\xff\xff")


async def push_an_oversized_frame(connection: Connection, driver: Driver) -> None:
    await push(connection, driver, b"\xff\xff\xff\x7f")


async def push_an_endless_length(connection: Connection, driver: Driver) -> None:
    await push(connection, driver, b"\xff" * 100)


async def push_an_invalid_message(connection: Connection, driver: Driver) -> None:
    await push(connection, driver, wire.encode_push(wire.Insert(*invalid())))


async def push_another_messages_value(connection: Connection, driver: Driver) -> None:
    key, value = invalid()
    await push(connection, driver, wire.encode_push(wire.Insert(key[:-1] + b"!", value)))


async def push_twice(connection: Connection, driver: Driver) -> None:
    await push(connection, driver, wire.encode_push(wire.Update([])))
    # The other side may end the connection before its answer is read.
    with contextlib.suppress(ConnectionLost):
        await connection.open_stream(driver.protocols.push)


async def ask_malformed_protobuf(connection: Connection, driver: Driver) -> None:
    await ask(connection, driver, b"\x03\xff\xff\xff")


async def ask_for_the_children_of_a_leaf(connection: Connection, driver: Driver) -> None:
    await ask(connection, driver, wire.encode_request(wire.GetChildren(0, None)))


@pytest.mark.parametrize(
    ("misdeed", "reason"),
    [
        (push_malformed_protobuf, "it broke the push protocol: "),
        (push_an_oversized_frame, "it broke the push protocol: "),
        (push_an_endless_length, "it broke the push protocol: "),
        (push_an_invalid_message, "it pushed an invalid message: "),
        (push_another_messages_value, "it broke the push protocol: the value of an Insert is not that of its key"),
        (push_twice, "it opened a second push stream"),
        (ask_malformed_protobuf, "it broke the sync protocol: "),
        (ask_for_the_children_of_a_leaf, "it broke the sync protocol: GetChildren of a node of level 0"),
    ],
)
async def test_who_breaks_a_rule_is_dropped_and_others_are_not(
    network: Network, opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture, misdeed: Misdeed, reason: str
) -> None:
    ours, theirs = opened(signer=signer), opened()
    heard = Heard()
    async with Driver(theirs, on_event=heard) as server, Driver(ours) as client, joined(network, client, server):
        await heard.wait(events.Connected)
        async with guest(network, server) as connection:
            await misdeed(connection, server)
            (left,) = await heard.wait(events.Disconnected)
            closed = await connection.wait_closed()
        assert left.blamed
        assert left.reason.startswith(reason)
        assert closed.cause == "remote"
        assert server.counters.dropped == 1
        assert server.counters.connections == 1
        ours.append("as ever")
        await until_equal(ours, theirs)
    lines = [record.message for record in caplog.records if record.name == "gossiplog"]
    assert [line for line in lines if ": dropped: " in line] == [f"the guest: dropped: {left.reason}"]


@pytest.mark.parametrize("in_order", [True, False])
async def test_who_ends_its_push_stream_has_left(network: Network, opened: Open, in_order: bool) -> None:
    heard = Heard()
    async with Driver(opened(), on_event=heard) as server, guest(network, server) as connection:
        stream = await connection.open_stream(server.protocols.push)
        await heard.wait(events.Connected)
        if in_order:
            await stream.aclose()
        else:
            stream.reset()
        (left,) = await heard.wait(events.Disconnected)
    assert (left.reason, left.blamed) == ("the peer closed the connection", False)


async def test_an_unknown_protocol_is_refused_and_the_peer_stays(network: Network, opened: Open) -> None:
    async with Driver(opened()) as server, guest(network, server) as connection:
        await push(connection, server, wire.encode_push(wire.Update([])))
        with pytest.raises(StreamRefused):
            await connection.open_stream("/canvas/v1/another/sync")
        assert connection.closed is None


async def test_a_valid_message_behind_a_wrong_key_is_kept_and_forwarded(
    network: Network, opened: Open, signer: Signer
) -> None:
    ours, theirs = opened(), opened()
    heard = Heard()
    async with Driver(theirs, on_event=heard) as server, Driver(ours) as client, joined(network, client, server):
        await heard.wait(events.Connected)
        async with guest(network, server) as connection:
            await push(connection, server, wire.encode_push(wire.Insert(*misplaced(signer))))
            (left,) = await heard.wait(events.Disconnected)
            assert left.reason == "it pushed an invalid message: its key is another message's"
            await until_longer(ours, 0)
            await until_equal(ours, theirs)
        assert len(ours) == 1


@pytest.mark.parametrize("words", ["gossiplog_messages", "gossiplog_leaves", "gossiplog_meta", "BEGIN"])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR_READ])
async def test_an_error_of_the_disk_that_passes_ends_nothing(
    network: Network,
    opened: Open,
    signer: Signer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    words: str,
) -> None:
    faults = inject(monkeypatch)
    monkeypatch.setattr(following, "POLL_SECONDS", 0.02)
    ours, theirs = (opened(tmp_path / name, signer=signer, synchronous="off") for name in ("ours.db", "theirs.db"))
    # As another process has it: the driver reads from the file what it appends.
    beside = opened(tmp_path / "ours.db", signer=signer, synchronous="off")
    heard = Heard()
    async with (
        Driver(ours, broadcast=QUICK, on_message=heard.message) as server,
        Driver(theirs, broadcast=QUICK) as client,
        joined(network, server, client),
    ):
        for number in range(6):
            # What is read again must not fail again: that would be an error that stays.
            with faults.failing(code, words, times=number % 2):
                beside.append(number)
            with faults.failing(code, words, times=1 - number % 2):
                await until_longer(theirs, number)
            messages = await heard.wait_for_messages(number + 1)
    assert faults.failed
    assert [message.payload for message in messages] == [*range(6)]
    assert ours.root == theirs.root


async def test_peers_bring_back_what_a_log_has_lost_that_went_back(
    network: Network, opened: Open, signer: Signer, tmp_path: Path
) -> None:
    """As after a failover to a server that lacks the last commits."""
    path, theirs = tmp_path / "log.db", opened(signer=signer)
    ours = opened(path, signer=signer, synchronous="normal")
    ours.append_many(range(3))
    keep(path)
    left = anyio.Event()

    def notice(event: events.Event) -> None:
        if isinstance(event, events.Disconnected):
            left.set()

    async with Driver(theirs, broadcast=QUICK, on_event=notice) as client:

        async def replicate() -> None:
            async with Driver(ours, broadcast=QUICK) as server, joined(network, client, server):
                theirs.append("a client's")
                await until_longer(ours, 3)
                ours.append("ours")
                await until_equal(ours, theirs)
                before.append(ours.root)
                bring_back(path)
                await anyio.sleep_forever()

        before: list[Node] = []
        # Without anybody who writes: what it would serve contradicts what it has said.
        with pytest.raises(LogWentBack, match="it has 3 messages, and this program has seen 5"):
            await replicate()
        await left.wait()
        again = opened(path, synchronous="normal")
        assert len(again) == 3
        async with Driver(again, broadcast=QUICK) as server, joined(network, client, server):
            await until_equal(again, theirs)
    assert [again.root] == before
    again.verify()


async def test_an_orphan_is_repaired_by_a_sync(network: Network, opened: Open, signer: Signer) -> None:
    ours, theirs = opened(signer=signer), opened()
    ours.append_many(range(50))
    ((_, last),) = replica_of(ours).arrivals(49, 1)
    heard = Heard()
    async with Driver(theirs, broadcast=QUICK, on_event=heard) as server, guest(network, server) as connection:
        await push(connection, server, wire.encode_push(wire.Insert(last.key, last.value)))
        _, asked = await connection.accept()
        await serve_sync(
            asked, replica_of(ours), WorkerPool(), SyncServerConfig(), pytest.fail, lambda messages, size: None
        )
        await heard.wait(events.SyncEnded)
        assert ours.root == theirs.root
        assert server.counters.orphans == 1
        assert server.counters.inserted["sync"] == 50


async def answer(connection: Connection, driver: Driver, request: wire.Request) -> wire.Answer:
    """The answer to a request on a sync stream of its own."""
    frames = wire.FrameReader(wire.MAX_FRAME)
    async with await connection.open_stream(driver.protocols.sync) as stream:
        await stream.send(wire.encode_request(request))
        while (frame := frames.next()) is None:
            frames.feed(await stream.receive())
        return wire.decode_answer(frame)


async def test_who_asks_again_for_what_has_no_answer_is_refused_for_a_while(
    network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As canvas-js does at a node with very many leaves."""
    monkeypatch.setattr(sessions, "_FRUITLESS_AT_ONCE", 2)
    monkeypatch.setattr(sessions, "_FIRST_PAUSE", 300.0)
    absent = wire.GetChildren(60, None)
    async with Driver(opened()) as server, guest(network, server) as connection:
        await push(connection, server, wire.encode_push(wire.Update([])))
        for number, pause in enumerate((0, 0, 300_000), 1):
            assert await answer(connection, server, absent) == wire.Abort(pause)
            # The answer may come before the end of the stream that it is on is noted.
            while server.peers[0].fruitless < number:
                await anyio.sleep(0.001)
        for request in (absent, wire.GetRoot()):
            with pytest.raises(StreamReset):
                await answer(connection, server, request)


async def test_who_was_refused_for_a_while_is_sent_the_heads_when_it_is_served_again(
    network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_FRUITLESS_AT_ONCE", 0)
    monkeypatch.setattr(sessions, "_FIRST_PAUSE", 0.3)
    monkeypatch.setattr(driver, "_RESUMPTION_SECONDS", 0.01)
    async with Driver(opened()) as server, guest(network, server) as connection:
        update = wire.encode_push(wire.Update([]))
        stream = await push(connection, server, update)
        assert await stream.receive() == update
        for pause in (0.3, 0.6):
            begin = anyio.current_time()
            assert await answer(connection, server, wire.GetChildren(60, None)) == wire.Abort(round(1000 * pause))
            assert await stream.receive() == update
            assert anyio.current_time() - begin >= pause
        assert isinstance(await answer(connection, server, wire.GetRoot()), wire.Root)


async def test_children_pushed_before_their_parents_are_forwarded_after_them(
    network: Network, opened: Open, signer: Signer
) -> None:
    first = signer.sign(TOPIC, 1, [], "first")
    second = signer.sign(TOPIC, 2, [core.encode_id(first[0])], "second")
    ours, theirs = opened(), opened()
    heard = Heard()
    async with Driver(theirs, on_event=heard) as server, Driver(ours) as client, joined(network, client, server):
        await heard.wait(events.Connected)
        async with guest(network, server) as connection:
            frames = [wire.encode_push(wire.Insert(*message)) for message in (second, first)]
            await push(connection, server, *frames)
            await until_longer(ours, 0)
            await until_equal(ours, theirs)
        assert client.counters.orphans == 0


async def test_too_many_keys_in_one_request_are_an_abort(network: Network, opened: Open) -> None:
    async with Driver(opened()) as server, guest(network, server) as connection:
        request = wire.encode_request(wire.GetValues([os.urandom(20) for _ in range(4097)]))
        stream = await ask(connection, server, request)
        frames = wire.FrameReader(wire.MAX_FRAME)
        while data := await stream.receive():
            frames.feed(data)
        frame = frames.next()
        assert frame is not None
        assert isinstance(wire.decode_answer(frame), wire.Abort)
        assert connection.closed is None


@pytest.mark.slow
async def test_100_000_heads_that_do_not_exist_cost_syncs_and_then_the_connection(
    network: Network, opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    async with Driver(opened(), broadcast=QUICK, on_event=heard) as server, guest(network, server) as connection:
        stream = await push(connection, server)
        empty = core.Tree().root
        update = wire.encode_push(wire.Update([bytes([1]) + os.urandom(19) for _ in range(100_000)]))

        async def answer() -> None:
            # Until it is dropped.
            with contextlib.suppress(NetworkError):
                async for _, asked in connection:
                    await asked.send(wire.encode_answer(wire.Root(empty)))
                    await stream.send(update)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await stream.send(update)
            (left,) = await heard.wait(events.Disconnected)
            tasks.cancel_scope.cancel()
    assert left.reason == "it advertised messages that it does not have, 3 times"
    assert {event.inserted for event in heard.of(events.SyncEnded)} == {0}


@pytest.mark.slow
async def test_a_peer_that_never_reads_is_dropped_and_holds_nothing_up(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_WRITE_SECONDS", 0.5)
    monkeypatch.setattr(sessions, "_MOST_WAITING", 2**16)
    ours, theirs = opened(), opened(signer=signer)
    heard = Heard()
    async with Driver(theirs, on_event=heard) as server, Driver(ours) as client, joined(network, client, server):
        async with guest(network, server) as connection:
            await push(connection, server, wire.encode_push(wire.Update([])))
            await heard.wait(events.Connected, 2)
            (stalled,) = [peer for peer in server.peers if peer.name == "the guest"]
            most = 0
            for _ in range(40):
                theirs.append(os.urandom(50_000))
                await until_equal(ours, theirs)
                most = max(most, stalled.size)
            (left,) = await heard.wait(events.Disconnected)
        assert left.reason == "it did not read what was pushed to it for 0.5 s"
        assert most < 2**16 + 2 * 50_200
        assert server.counters.connections == 1


HALF = b"\xff\xff\xff\x01" + bytes(2**20)
"""A quarter of a message of 4 MiB, and its length."""


async def open_halves(connection: Connection, driver: Driver, streams: int) -> None:
    """Sends a part of a message on each of so many streams, until the connection ends."""
    with contextlib.suppress(NetworkError):
        await push(connection, driver, wire.encode_push(wire.Update([])), HALF)
        for _ in range(streams - 1):
            stream = await connection.open_stream(driver.protocols.sync)
            await stream.send(HALF)


async def test_who_begins_many_messages_and_ends_none_is_dropped(opened: Open, signer: Signer) -> None:
    limits = Limits(peer_bytes=SMALLEST_PEER_BYTES)
    ours, theirs, heard = opened(signer=signer), opened(), Heard()
    async with (
        open_network(limits) as network,
        Driver(theirs, on_event=heard) as server,
        Driver(ours) as client,
        joined(network, client, server),
    ):
        await heard.wait(events.Connected)
        async with guest(network, server) as connection:
            await open_halves(connection, server, limits.streams)
            (left,) = await heard.wait(events.Disconnected)
            assert network.held() <= limits.peer_bytes
        assert left.blamed
        assert f"; {SMALLEST_PEER_BYTES} at most are" in left.reason
        assert server.counters.dropped == 1
        ours.append("as ever")
        await until_equal(ours, theirs)


async def test_who_asks_for_much_and_reads_nothing_is_dropped(opened: Open, signer: Signer) -> None:
    log, heard = opened(signer=signer), Heard()
    key = log.append(bytes(3 * 2**20)).key
    async with (
        open_network(Limits(peer_bytes=SMALLEST_PEER_BYTES)) as network,
        Driver(log, on_event=heard) as server,
        guest(network, server) as connection,
    ):
        with contextlib.suppress(NetworkError):
            for _ in range(4):
                await ask_again(connection, server, wire.encode_request(wire.GetValues([key])))
        (left,) = await heard.wait(events.Disconnected)
        assert left.blamed
        assert "answers that it does not take" in left.reason


async def ask_again(connection: Connection, driver: Driver, data: bytes) -> None:
    if not driver.peers:
        await push(connection, driver, wire.encode_push(wire.Update([])))
    stream = await connection.open_stream(driver.protocols.sync)
    await stream.send(data)


@pytest.mark.slow
async def test_many_that_end_no_message_lose_their_connections_and_others_do_not(
    opened: Open, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(peer_bytes=SMALLEST_PEER_BYTES, total_bytes=2 * SMALLEST_PEER_BYTES)
    ours, theirs, heard = opened(signer=signer), opened(), Heard()
    async with (
        open_network(limits) as network,
        Driver(theirs, on_event=heard) as server,
        Driver(ours) as client,
        joined(network, client, server),
        contextlib.AsyncExitStack() as stack,
    ):
        await heard.wait(events.Connected)
        connections = [
            await stack.enter_async_context(guest(network, server, f"guest {number}")) for number in range(12)
        ]
        async with anyio.create_task_group() as tasks:
            for connection in connections:
                tasks.start_soon(open_halves, connection, server, 3)
        # 36 MiB have come or will, of which 16 may be kept.
        left = await heard.wait(events.Disconnected, 7)
        assert network.held() <= limits.total_bytes
        assert not any(event.blamed for event in left)
        assert all("and this one the most" in event.reason for event in left)
        assert server.counters.dropped == 0
        assert network.counts()["overloads"] >= 7
        ours.append("as ever")
        await until_equal(ours, theirs)
    assert "the peers have more than 16777216 bytes kept in memory, and this one the most" in caplog.text


async def test_a_peer_that_leaves_in_the_middle_of_a_message(network: Network, opened: Open, signer: Signer) -> None:
    heard = Heard()
    log = opened()
    async with Driver(log, on_event=heard) as server:
        async with guest(network, server) as connection:
            key, value = signer.sign(TOPIC, 1, [], bytes(1000))
            await push(connection, server, wire.encode_push(wire.Insert(key, value))[:500])
            await heard.wait(events.Connected)
            await connection.aclose()
            (left,) = await heard.wait(events.Disconnected)
        assert not left.blamed
        assert len(log) == 0


async def test_a_source_that_breaks_off_is_asked_again(network: Network, opened: Open, signer: Signer) -> None:
    heard = Heard()
    async with Driver(opened(), broadcast=QUICK, on_event=heard) as server, guest(network, server) as connection:
        await push(connection, server, wire.encode_push(wire.Update([b"\1" + bytes(19)])))
        for _ in range(3):
            _, asked = await connection.accept()
            # A reset before the server asks would overtake the agreement on the protocol.
            await asked.receive()
            asked.reset()
        ended = await heard.wait(events.SyncEnded, 3)
        assert not any(event.complete for event in ended)
        (error,) = {event.error for event in ended}
        assert error.startswith("the peer reset the stream: ")
        # Its log is damaged, or it pauses: a single reset tells neither.
        assert "if it happens again its log may be damaged: run `gossiplog doctor`" in error
        assert connection.closed is None
        assert server.counters.syncs == {"failed": 3}
