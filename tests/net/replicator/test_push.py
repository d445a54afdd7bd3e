"""Push streams: among peers that gossip reaches, and to a log that takes messages slowly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, cast

import anyio
import pytest
import trio.testing

from gossiplog import CorruptLog, Log, Signer
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.replicator import push
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.fairness import MOST_SECONDS, Shares
from gossiplog.net.replicator.inserts import InsertQueue
from gossiplog.net.replicator.push import Pushes
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.network import Network
from gossiplog.net.transport.stream import CHUNK, Signal, Stream
from gossiplog.protocol import wire
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.replication.batches import InsertOutcome
from tests.net.memory import Inline, stream
from tests.net.support import FakeRouter, Heard, carry, connect_pair, guest, until_equal

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


class Listener:
    """What comes on push streams, whichever."""

    def __init__(self) -> None:
        self.events: list[wire.Push] = []
        self._changed = Signal()

    async def listen(self, stream: Stream) -> None:
        frames = wire.FrameReader(wire.MAX_FRAME)
        while data := await stream.receive():
            frames.feed(data)
            while (frame := frames.next()) is not None:
                self.events.append(wire.decode_push(frame))
                self._changed.set()

    async def wait(self, count: int) -> list[wire.Push]:
        while len(self.events) < count:
            await self._changed.wait()
        return self.events


async def test_both_sides_may_open_one(network: Network, opened: Open, signer: Signer) -> None:
    log, listener = opened(), Listener()
    driver = Driver(log, router=FakeRouter())
    with anyio.fail_after(60):
        async with (
            driver,
            guest(network, driver, dialer=True, gossips=True) as connection,
            anyio.create_task_group() as tasks,
        ):
            _, theirs = await connection.accept()
            tasks.start_soon(listener.listen, theirs)
            await listener.wait(1)
            ours = await connection.open_stream(driver.protocols.push)
            tasks.start_soon(listener.listen, ours)
            # Something may have been lost with another stream.
            assert await listener.wait(2) == [wire.Update([])] * 2
            # Both are read.
            for number, stream in enumerate((ours, theirs)):
                await stream.send(wire.encode_push(wire.Insert(*signer.sign(log.topic, 1, [], number))))
            while len(log) < 2:
                await driver.committed()
            assert (driver.counters.dropped, len(driver.peers)) == (0, 1)
            tasks.cancel_scope.cancel()


async def test_one_that_ends_is_followed_by_another(
    network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "OPENING_SECONDS", 0.01)
    heard = Heard()
    driver = Driver(opened(), router=FakeRouter(), on_event=heard)
    with anyio.fail_after(60):
        async with driver, guest(network, driver, dialer=True, gossips=True) as connection:
            for _ in range(3):
                protocol, stream = await connection.accept()
                assert protocol == driver.protocols.push
                async with stream:
                    assert await stream.receive()
    # It was one peer all the time.
    assert len(heard.of(events.Connected)) == 1


async def test_who_waits_in_vain_for_the_other_opens_one(
    network: Network, opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "OPENING_SECONDS", 0.01)
    ours, theirs = opened(signer=signer), opened()
    ours.append("hi")
    client, server = Driver(ours, router=FakeRouter()), Driver(theirs, router=FakeRouter())
    with anyio.fail_after(60):
        async with client, server, anyio.create_task_group() as tasks:
            ends = connect_pair(network, client.protocols.all)
            for driver, end in zip((client, server), ends, strict=True):
                tasks.start_soon(partial(driver.exchange, end, "the other", dialer=False, gossips=True))
            await until_equal(ours, theirs)
            for end in ends:
                await end.aclose()


async def test_who_refuses_push_streams_is_asked_again(
    network: Network, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "OPENING_SECONDS", 0.001)
    monkeypatch.setattr(push, "_LONGEST_PAUSE", 0.001)
    driver = Driver(opened(), router=FakeRouter())
    ours, theirs = network.attach([], client=True), network.attach([], client=False)
    with anyio.fail_after(60):
        async with driver, anyio.create_task_group() as tasks:
            tasks.start_soon(carry, ours, theirs)
            tasks.start_soon(carry, theirs, ours)
            tasks.start_soon(partial(driver.exchange, ours, "of another topic", dialer=True, gossips=True))
            while network.counts()["streams_refused"] < 3:
                await anyio.sleep(0.001)
            assert driver.peers == ()
            await ours.aclose()


class Unconnected:
    """A connection that can only be closed."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_few_messages_are_read_at_once_and_heads_looked_up_on_a_thread(
    opened: Open, signer: Signer, is_damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message would wait for the thread, at each peer on its way."""
    log, reported, failed, called = opened(), list[broadcast.InEvent](), list[str](), list[object]()
    ours, theirs = stream()

    class Noting(Inline):
        async def read(self, call: Callable[..., Any], *arguments: Any) -> Any:
            called.append(call)
            return await super().read(call, *arguments)

    def known(keys: Sequence[bytes]) -> NoReturn:
        raise CorruptLog(["a row is lost"])

    if is_damaged:
        monkeypatch.setattr(replica_of(log), "known", known)
    messages = [signer.sign(log.topic, 1, [], number) for number in range(8)]
    head, _ = signer.sign(log.topic, 1, [], "elsewhere")
    frames = [wire.encode_push(wire.Insert(*message)) for message in messages]
    frames.insert(4, wire.encode_push(wire.Update([head])))
    inserts = InsertQueue(cast("Any", None), Shares(), Telemetry(None), cast("Any", None), cast("Any", None))
    pushes = Pushes(
        replica_of(log),
        Noting(),
        cast("ChangeFeed", None),
        inserts,
        reported.append,
        lambda doing, error: failed.append(doing),
        lambda peer: None,
        cast("Any", None),
    )
    peer = PeerSession(1, "a peer", cast("Connection", Unconnected()), may_write=True, origin="a writer")
    with anyio.fail_after(60):
        async with ours, anyio.create_task_group() as tasks:
            tasks.start_soon(pushes.exchange, peer, cast("Stream", theirs))
            await ours.send(b"".join(frames))
            while len(reported) < 9:
                await anyio.sleep(0)
            tasks.cancel_scope.cancel()
    received = [broadcast.Received(broadcast.Delivery(1, *message)) for message in messages]
    heads = broadcast.HeadsReceived(1, (), 1) if is_damaged else broadcast.HeadsReceived(1, (head,), 0)
    assert reported == [*received[:4], heads, *received[4:]]
    assert called == [replica_of(log).known]
    assert failed == (["looking up what a peer has"] if is_damaged else [])


class TestVirtualTime:
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [100, 5_000, CHUNK + 1])
    @pytest.mark.parametrize("seconds", [0.001, 2 * MOST_SECONDS, 100.0])
    async def test_a_writer_that_waits_for_its_turns_is_read_from(
        self, opened: Open, signer: Signer, size: int, seconds: float
    ) -> None:
        """It blames who does not read 64 KiB for a minute. What does not get its turn in time is synced."""
        log, taken, named = opened(), list[bytes](), list[bytes]()
        ours, theirs = stream()

        async def insert(values: Sequence[bytes]) -> InsertOutcome:
            await anyio.sleep(seconds)
            return replica_of(log).insert(replica_of(log).verify(values))

        def report(event: broadcast.InEvent) -> None:
            match event:
                case broadcast.Received(delivery):
                    taken.append(delivery.key)
                    inserts.add("a writer", delivery)
                case broadcast.HeadsReceived(_, keys, 0):
                    named.extend(keys)

        def fail(*what: object) -> None:
            raise AssertionError(what)

        inserts = InsertQueue(insert, Shares(), Telemetry(None), lambda *events: None, fail, is_read=lambda: True)
        pushes = Pushes(
            replica_of(log), Inline(), cast("ChangeFeed", None), inserts, report, fail, lambda peer: None, fail
        )
        connection = cast("Connection", Unconnected())
        writer = PeerSession(1, "the hub", connection, may_write=True)
        peer = PeerSession(1, "the writer", connection, may_write=True, origin="a writer")
        messages = [signer.sign(log.topic, 1, [], f"{n}".ljust(size)) for n in range(max(100, 3 * CHUNK // size))]
        for message in messages:
            writer.queue(wire.encode_push(wire.Insert(*message)))
        async with ours, anyio.create_task_group() as tasks:
            for long in (False, True):
                tasks.start_soon(partial(inserts.run, long=long))
            tasks.start_soon(pushes.exchange, peer, cast("Stream", theirs))
            tasks.start_soon(writer.write, cast("Stream", ours), lambda: None)
            while len(taken) + len(named) < len(messages) and not writer.blamed_for:
                await anyio.sleep(1)
            tasks.cancel_scope.cancel()
        assert writer.blamed_for == ""
        assert {*taken, *named} == {key for key, _ in messages}
        # Who waits for nothing is not made to sync.
        assert named == [] or seconds > 1
