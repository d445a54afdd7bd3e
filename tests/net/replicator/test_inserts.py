"""What is pushed, on its way into the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
import trio.testing

from gossiplog import Log, MemoryStorage, Signer, core
from gossiplog._core import PanicException
from gossiplog.errors import StorageError
from gossiplog.log.log import replica_of
from gossiplog.net.replicator.driver import Driver
from gossiplog.net.replicator.fairness import (
    BURST_SECONDS,
    MESH,
    MOST_MESSAGES,
    MOST_SECONDS,
    READ_SHARE,
    READ_TURN_MESSAGES,
    RECENT_SECONDS,
    SHARE,
    TURN_BYTES,
    TURN_MESSAGES,
    Shares,
    cost,
)
from gossiplog.net.replicator.inserts import InsertQueue
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.host import Publication
from gossiplog.protocol import gossip
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import Delivery, Judged, Verdict
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch
from tests.net.support import TOPIC, FakeRouter

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


def no_defect(delivery: Delivery, error: BaseException | None) -> None:
    raise AssertionError(error)


async def judged(
    log: Log, pushed: list[tuple[bytes, bytes]], *, fails: bool = False
) -> tuple[list[broadcast.InEvent], Telemetry]:
    """What is reported of messages that one peer has pushed, and the counts."""
    reported: list[broadcast.InEvent] = []
    telemetry, threads, done = Telemetry(None), WorkerPool(), anyio.Event()

    async def insert(values: Sequence[bytes]) -> InsertOutcome:
        if fails:
            raise StorageError("the disk is full")
        return await threads.write(lambda: replica_of(log).insert(replica_of(log).verify(values)))

    def report(*events: broadcast.InEvent) -> None:
        reported.extend(events)
        if sum(isinstance(event, Judged) for event in reported) == len(pushed):
            done.set()

    waiting = InsertQueue(insert, Shares(), telemetry, report, no_defect)
    for key, value in pushed:
        waiting.add("a peer", Delivery(1, key, value))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(waiting.run, long=False))
        await done.wait()
        tasks.cancel_scope.cancel()
    return reported, telemetry


async def test_each_gets_its_verdict_parents_first(opened: Open, signer: Signer) -> None:
    log = opened()
    first = signer.sign(log.topic, 1, [], "first")
    second = signer.sign(log.topic, 2, [core.encode_id(first[0])], "second")
    orphan = signer.sign(log.topic, 3, [core.encode_id(b"\2" + bytes(19))], "orphan")
    invalid = (b"\1" + bytes(19), first[1].replace(b"first", b"FIRST"))
    reported, telemetry = await judged(log, [orphan, second, first, first, invalid])
    verdicts = [(event.delivery.key, event.verdict) for event in reported if isinstance(event, Judged)]
    assert verdicts == [
        (invalid[0], Verdict.INVALID),
        (first[0], Verdict.INSERTED),
        (first[0], Verdict.DUPLICATE),
        (second[0], Verdict.INSERTED),
        (orphan[0], Verdict.ORPHAN),
    ]
    assert dict(telemetry.counters.inserted) == {"push": 2}
    assert (telemetry.counters.orphans, telemetry.counters.invalid) == (1, 1)


@pytest.mark.parametrize("defective", [False, True])
async def test_accepted_gossip_is_stored_out_of_turn(opened: Open, signer: Signer, defective: bool) -> None:
    log, reported = opened(), list[broadcast.InEvent]()
    key, value = signer.sign(log.topic, 1, [], "first")
    delivery = Delivery(1, key, value, broadcast.ACCEPTED)
    telemetry, threads, done = Telemetry(None), WorkerPool(), anyio.Event()

    async def insert(values: Sequence[bytes]) -> InsertOutcome:
        return await threads.write(lambda: replica_of(log).insert(replica_of(log).verify(values)))

    async def insert_batch() -> InsertOutcome:
        if defective:
            raise RuntimeError("a defect")
        return await insert([value])

    def report(*events: broadcast.InEvent) -> None:
        reported.extend(events)
        done.set()

    waiting = InsertQueue(insert, Shares(), telemetry, report, no_defect)
    async with anyio.create_task_group() as tasks:
        await waiting.store([delivery], insert_batch)
        # What a defect kept from being stored waits for its turn.
        assert done.is_set() is not defective
        tasks.start_soon(partial(waiting.run, long=False))
        await done.wait()
        tasks.cancel_scope.cancel()
    assert reported == [Judged(delivery, Verdict.INSERTED)]
    assert dict(telemetry.counters.inserted) == {"gossip": 1}


@pytest.mark.parametrize("trouble", [None, "has to wait", StorageError("it is closed"), RuntimeError("a defect")])
async def test_accepted_gossip_is_stored_at_once(opened: Open, signer: Signer, trouble: Exception | str | None) -> None:
    log, reported = opened(MemoryStorage()), list[broadcast.InEvent]()
    key, value = signer.sign(log.topic, 1, [], "first")
    delivery = Delivery(1, key, value, broadcast.ACCEPTED)
    telemetry = Telemetry(None)

    def insert() -> InsertOutcome | None:
        if isinstance(trouble, Exception):
            raise trouble
        return None if trouble is not None else replica_of(log).insert_at_once(replica_of(log).verify([value]))

    queue = InsertQueue(insert_nothing, Shares(), telemetry, lambda *events: reported.extend(events), no_defect)
    is_stored = queue.store_at_once([delivery], insert)
    if trouble is None:
        assert is_stored
        assert reported == [Judged(delivery, Verdict.INSERTED)]
        assert dict(telemetry.counters.inserted) == {"gossip": 1}
    elif isinstance(trouble, StorageError):
        assert is_stored
        assert reported == [Judged(delivery, Verdict.UNSTORED)]
        assert telemetry.counters.errors == {"StorageError": 1}
    else:
        # It is stored on a thread, which meets the defect as well.
        assert not is_stored
        assert not reported


async def test_a_valid_message_under_a_wrong_key_is_inserted_and_its_sender_blamed(
    opened: Open, signer: Signer
) -> None:
    log = opened()
    (key, value), (other, _) = sorted(signer.sign(log.topic, 1, [], text) for text in "ab")
    reported, telemetry = await judged(log, [(other, value)])
    assert reported == [
        broadcast.Appended([(key, value)]),
        Judged(Delivery(1, other, value), Verdict.INVALID, reason="its key is another message's"),
    ]
    assert [message.key for message in log] == [key]
    assert dict(telemetry.counters.inserted) == {"push": 1}


async def test_a_copy_of_an_orphan_is_an_orphan(opened: Open, signer: Signer) -> None:
    """As a duplicate it would be accepted by gossip, and so forwarded by a peer that does not hold it."""
    log = opened()
    orphan = signer.sign(log.topic, 3, [core.encode_id(b"\2" + bytes(19))], "orphan")
    reported, telemetry = await judged(log, [orphan, orphan])
    assert reported == [Judged(Delivery(1, *orphan), Verdict.ORPHAN, [b"\2" + bytes(19)])] * 2
    assert telemetry.counters.orphans == 1


async def test_what_cannot_be_stored_is_left_to_a_sync(opened: Open, signer: Signer) -> None:
    log = opened()
    (event,), telemetry = await judged(log, [signer.sign(log.topic, 1, [], "a")], fails=True)
    assert isinstance(event, Judged)
    assert event.verdict is Verdict.UNSTORED
    assert telemetry.counters.errors == {"StorageError": 1}


@pytest.mark.parametrize("error", [KeyError("a key"), PanicException("a panic")])
async def test_a_defect_costs_the_peer_whose_message_brought_it_to_light(
    opened: Open, signer: Signer, error: BaseException
) -> None:
    """The messages of others are stored; what one peer sent after such a message is not looked at any more."""
    log = opened()
    messages = [signer.sign(log.topic, 1, [], number) for number in range(20)]
    marked = {messages[number][1] for number in (3, 9, 12)}
    reported: list[broadcast.InEvent] = []
    defects: list[tuple[Delivery, BaseException | None]] = []
    sizes: list[int] = []

    async def insert(values: Sequence[bytes]) -> InsertOutcome:
        sizes.append(len(values))
        if not marked.isdisjoint(values):
            raise error
        return replica_of(log).insert(replica_of(log).verify(values))

    done = anyio.Event()

    def report(*events: broadcast.InEvent) -> None:
        reported.extend(events)
        done.set()

    waiting = InsertQueue(insert, Shares(), Telemetry(None), report, lambda *found: defects.append(found))
    deliveries = [Delivery(number % 3 + 1, *message) for number, message in enumerate(messages)]
    for delivery in deliveries:
        waiting.add("peers", delivery)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(waiting.run, long=False))
        await done.wait()
        tasks.cancel_scope.cancel()
    # The fourth, tenth and thirteenth are the first peer's.
    of_the_first = [delivery for delivery in deliveries if delivery.source == 1]
    assert [found for found in defects if found[1] is not None] == [(deliveries[3], error)]
    assert [delivery for delivery, found in defects if found is None] == of_the_first[2:]
    verdicts = {event.delivery: event.verdict for event in reported if isinstance(event, Judged)}
    assert set(verdicts) == set(deliveries) - set(of_the_first[1:])
    assert set(verdicts.values()) == {Verdict.INSERTED}
    assert [event.delivery.key for event in reported if isinstance(event, Judged)] == sorted(
        delivery.key for delivery in verdicts
    )
    assert len(sizes) < len(messages)


async def test_what_the_applications_function_does_to_end_the_process_goes_its_way(
    opened: Open, signer: Signer
) -> None:
    async def insert(values: Sequence[bytes]) -> InsertOutcome:
        raise SystemExit(3)

    waiting = InsertQueue(insert, Shares(), Telemetry(None), lambda *events: None, no_defect)
    waiting.add("a peer", Delivery(1, *signer.sign(TOPIC, 1, [], "a")))
    with pytest.raises(SystemExit):
        await waiting.run(long=False)


async def test_a_burst_by_gossip_costs_one_verification(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def check(payload: object) -> None:
        begun.set()
        go_on.wait()

    router, tickets = FakeRouter(), range(201)
    data = [gossip.encode(*signer.sign(TOPIC, 1, [], number)) for number in tickets]
    publications = [Publication(ticket, None, "somebody", data[ticket]) for ticket in tickets]
    sizes: list[int] = []
    async with Driver(log := opened(payload=check), router=router) as driver:
        verify = driver.replica.verify

        def count(values: Sequence[bytes]) -> VerifiedBatch:
            sizes.append(len(values))
            return verify(values)

        monkeypatch.setattr(driver.replica, "verify", count)
        try:
            await driver.take_gossip(publications[:1])
            await anyio.to_thread.run_sync(begun.wait)
            # The log is busy with the first; the others come one by one.
            for publication in publications[1:]:
                await driver.take_gossip([publication])
        finally:
            go_on.set()
        answers = await router.answered(201)
        assert set(answers.values()) == {"accept"}
        assert len(log) == 201
    assert sizes == [1, 200]
    assert list(map(len, router.batches)) == [1, 200]


async def test_a_peer_waits_while_many_of_its_messages_do(opened: Open, signer: Signer) -> None:
    log = opened()
    done = anyio.Event()
    waiting = InsertQueue(insert_nothing, Shares(), Telemetry(None), lambda *events: done.set(), no_defect)
    for number in range(MOST_MESSAGES):
        await waiting.room(MESH)
        waiting.add(MESH, Delivery(1, *signer.sign(log.topic, 1, [], number)))
    with anyio.move_on_after(0) as scope:
        await waiting.room(MESH)
    assert scope.cancelled_caught
    await waiting.room("another")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(waiting.run, long=False))
        await waiting.room(MESH)
        await done.wait()
        tasks.cancel_scope.cancel()


async def insert_nothing(values: Sequence[bytes]) -> InsertOutcome:
    raise StorageError("nothing is stored here")


async def flood(queue: InsertQueue, signer: Signer, topic: str) -> None:
    """Send without a pause, as the writer "busy"."""
    for number in range(10**6):
        await queue.room("busy")
        queue.add("busy", Delivery(1, *signer.sign(topic, 1, [], number)))


class TestVirtualTime:
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    @pytest.mark.slow
    async def test_a_message_waits_for_one_turn_of_another_writer(self, opened: Open, signer: Signer) -> None:
        """One writer sends without a pause, the other one message a second; each takes a millisecond to store."""
        log = opened()
        arrived: dict[bytes, float] = {}
        inserted = 0

        async def insert(values: Sequence[bytes]) -> InsertOutcome:
            await anyio.sleep(0.001 * len(values))
            return replica_of(log).insert(replica_of(log).verify(values))

        def report(*events: broadcast.InEvent) -> None:
            nonlocal inserted
            inserted += len(events)
            arrived.update((event.delivery.key, anyio.current_time()) for event in events if isinstance(event, Judged))

        shares = Shares()
        for writer in ("busy", "quiet"):
            shares.charge(writer, 0.0, anyio.current_time())
        waiting = InsertQueue(insert, shares, Telemetry(None), report, no_defect)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, waiting, signer, log.topic)
            tasks.start_soon(partial(waiting.run, long=False))
            delays = []
            for number in range(5):
                await anyio.sleep(1)
                key, value = signer.sign(log.topic, 1, [], f"quiet {number}")
                began = anyio.current_time()
                waiting.add("quiet", Delivery(2, key, value))
                await anyio.sleep(0.5)
                delays.append(arrived[key] - began)
            tasks.cancel_scope.cancel()
        assert max(delays) <= 0.001 * (2 * TURN_MESSAGES + 2)
        # A quarter of the time, and what it may owe.
        assert 1000 * (0.25 * 7.5) <= inserted <= 1000 * (0.25 * 7.5 + 0.25) + 2 * TURN_MESSAGES

    @pytest.mark.integration
    async def test_the_first_message_of_another_writer_waits_for_one_turn_among_readers(
        self, opened: Open, signer: Signer
    ) -> None:
        """One writer has sent without a pause, alone, and no more of it is passed on than others take in."""
        log = opened()
        began = anyio.current_time()
        arrived: dict[bytes, float] = {}

        async def insert(values: Sequence[bytes]) -> InsertOutcome:
            await anyio.sleep(0.0001 * len(values))
            return replica_of(log).insert(replica_of(log).verify(values))

        def report(*events: broadcast.InEvent) -> None:
            arrived.update((event.delivery.key, anyio.current_time()) for event in events if isinstance(event, Judged))

        waiting = InsertQueue(insert, Shares(), Telemetry(None), report, no_defect, is_read=lambda: True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, waiting, signer, log.topic)
            tasks.start_soon(partial(waiting.run, long=False))
            await anyio.sleep(3)
            stored = len(arrived)
            key, value = signer.sign(log.topic, 1, [], "quiet")
            sent = anyio.current_time()
            waiting.add("quiet", Delivery(2, key, value))
            await anyio.sleep(0.5)
            tasks.cancel_scope.cancel()
        assert arrived[key] - sent <= 0.0001 * (2 * READ_TURN_MESSAGES + 1)
        part = READ_TURN_MESSAGES / cost([value] * READ_TURN_MESSAGES)
        assert stored <= part * (READ_SHARE * (sent - began) + BURST_SECONDS) + 2 * READ_TURN_MESSAGES

    async def test_a_long_message_is_stored_when_its_writer_is_not_limited_any_more(
        self, opened: Open, signer: Signer
    ) -> None:
        """It waits for a turn of long messages, and is one of the others when that comes."""
        log = opened()

        async def insert(values: Sequence[bytes]) -> InsertOutcome:
            return replica_of(log).insert(replica_of(log).verify(values))

        shares = Shares()
        began = anyio.current_time()
        shares.charge("other", 0.0, began)
        waiting = InsertQueue(insert, shares, Telemetry(None), lambda *events: None, no_defect)
        async with anyio.create_task_group() as tasks:
            for long in (False, True):
                tasks.start_soon(partial(waiting.run, long=long))
            await anyio.sleep(RECENT_SECONDS - 1)
            shares.charge("a", MOST_SECONDS, anyio.current_time())
            waiting.add("a", Delivery(1, *signer.sign(log.topic, 1, [], "x" * 2 * TURN_BYTES)))
            await anyio.sleep(MOST_SECONDS / SHARE)
            assert len(log) == 1
            tasks.cancel_scope.cancel()
