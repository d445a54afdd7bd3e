"""What is committed to a log, and by whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from gossiplog import Log, MemoryStorage, SignedMessage, Signer
from gossiplog.core import GossipValidator
from gossiplog.errors import InvalidPayload, LogClosed, StorageError
from gossiplog.log import following
from gossiplog.log.log import replica_of
from gossiplog.net import events
from gossiplog.net.replicator import change_feed
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.transport.pacing import TimeSlice
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol.broadcast import events as broadcast
from tests.net.support import Heard, feed_and_writer
from tests.storage.announcing import AnnouncingStorage

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


async def test_only_what_others_commit_is_reported(opened: Open, signer: Signer, other_signer: Signer) -> None:
    log = opened(signer=signer)
    reported: list[broadcast.InEvent] = []
    told = anyio.Event()

    def report(event: broadcast.InEvent) -> None:
        reported.append(event)
        told.set()

    heard = Heard()
    telemetry = Telemetry(heard)
    made, writer = feed_and_writer(log, heard.message, telemetry, report)
    values = [other_signer.sign(log.topic, 1, [], number)[1] for number in range(3)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.follow, 0)
        tasks.start_soon(made.deliver, 0)
        await writer.insert(replica_of(log).verify(values))
        await heard.wait_for_messages(3)
        theirs = log.append("the application's")
        await heard.wait_for_messages(4)
        await told.wait()
        tasks.cancel_scope.cancel()
    assert reported == [broadcast.Appended([(theirs.key, theirs.value)])]
    assert telemetry.counters.inserted == {"append": 1}


class Told:
    """In the place of a validator: keeps what it learns of."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._changed = Signal()

    def stored(self, keys: Sequence[bytes]) -> None:
        self.keys += keys
        self._changed.set()

    async def until(self, key: bytes) -> None:
        while key not in self.keys:
            await self._changed.wait()


async def test_a_validator_learns_of_the_heads_that_others_wrote_while_nobody_hears(
    opened: Open, signer: Signer, tmp_path: Path
) -> None:
    log, told = opened(tmp_path / "log.db"), Told()
    made, _ = feed_and_writer(log, validator=cast("GossipValidator", told))
    keys = [opened(tmp_path / "log.db", signer=signer).append(number).key for number in range(3)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.follow, 0)
        with anyio.fail_after(60):
            await told.until(keys[-1])
        tasks.cancel_scope.cancel()
    assert told.keys == keys[-1:]


@pytest.mark.parametrize("size", [1, change_feed._READ_AT_ONCE], ids=["short", "long"])
async def test_a_validator_learns_of_what_is_appended_while_nobody_hears(
    opened: Open, signer: Signer, size: int
) -> None:
    log, told = opened(signer=signer), Told()
    made, _ = feed_and_writer(log, validator=cast("GossipValidator", told))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.follow, 0)
        await anyio.wait_all_tasks_blocked()
        keys = [log.append("x" * size).key for _ in range(20)]
        with anyio.fail_after(60):
            await told.until(keys[-1])
        tasks.cancel_scope.cancel()
    assert set(told.keys) >= set(keys[-change_feed._NEWEST :])


async def test_commits_that_come_close_together_are_one_event(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(signer=signer)
    heard = Heard()
    telemetry = Telemetry(heard)
    made, _ = feed_and_writer(log, heard.message, telemetry)
    paused, go_on, sleep = anyio.Event(), anyio.Event(), anyio.sleep

    async def pause(seconds: float) -> None:
        if seconds == change_feed._REPORT_SECONDS:
            paused.set()
            await go_on.wait()
        else:
            await sleep(seconds)

    monkeypatch.setattr(anyio, "sleep", pause)
    async with anyio.create_task_group() as tasks:
        for task in (made.follow, made.deliver, made.report_commits):
            tasks.start_soon(task, 0)
        tasks.start_soon(telemetry.run)
        await anyio.wait_all_tasks_blocked()
        log.append("first")
        (committed,) = await heard.wait(events.Committed)
        assert committed == events.Committed(1, log.root, 1, {}, (log.get(log.heads[0]).author,))
        for number in range(5):
            log.append(number)
        await heard.wait_for_messages(6)
        await paused.wait()
        assert len(heard.of(events.Committed)) == 1
        go_on.set()
        assert await heard.wait(events.Committed, 2) == [
            committed,
            events.Committed(6, log.root, 5, {}, committed.authors),
        ]
        tasks.cancel_scope.cancel()


async def test_what_was_committed_before_it_follows_is_reported_at_once(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 1e9)
    log = opened(signer=signer)
    heard = Heard()
    made, _ = feed_and_writer(log, heard.message)
    log.append("before")
    async with anyio.create_task_group() as tasks:
        for task in (made.follow, made.deliver):
            tasks.start_soon(task, 0)
        await heard.wait_for_messages(1)
        tasks.cancel_scope.cancel()


async def test_commits_that_a_database_announces_are_reported_at_once(
    opened: Open, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 1e9)
    storage = AnnouncingStorage(tmp_path / "log.db")
    log, other = opened(storage), opened(tmp_path / "log.db", signer=signer)
    heard = Heard()
    made, _ = feed_and_writer(log, heard.message)
    async with anyio.create_task_group() as tasks:
        for task in (made.follow, made.deliver):
            tasks.start_soon(task, 0)
        await anyio.to_thread.run_sync(storage.watched.wait)
        for number in range(3):
            other.append(number)
            # Once for nothing: all roles of a database may notify.
            for _ in range(2):
                await anyio.to_thread.run_sync(storage.announce)
            await heard.wait_for_messages(number + 1)
        tasks.cancel_scope.cancel()
    assert [message.payload for message in heard.messages] == [0, 1, 2]


async def test_an_announcement_beside_a_commit_of_this_process_is_not_lost(
    opened: Open, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "ANNOUNCED_POLL_SECONDS", 1e9)
    storage = AnnouncingStorage(tmp_path / "log.db")
    log, other = opened(storage, signer=signer), opened(tmp_path / "log.db", signer=signer)
    heard = Heard()
    made, _ = feed_and_writer(log, heard.message)
    async with anyio.create_task_group() as tasks:
        for task in (made.follow, made.deliver):
            tasks.start_soon(task, 0)
        await anyio.to_thread.run_sync(storage.watched.wait)
        await anyio.wait_all_tasks_blocked()
        # All before the feed gets a turn.
        log.append("ours")
        other.append("another's")
        storage.announce()
        await heard.wait_for_messages(2)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("own", "after", "last", "gaps"),
    [
        ([], 0, 3, [(1, 4)]),
        ([range(1, 4)], 0, 3, []),
        ([range(5, 7), range(2, 3)], 0, 8, [(1, 2), (3, 5), (7, 9)]),
        ([range(1, 3)], 2, 2, []),
        ([range(5, 9)], 0, 3, [(1, 4)]),
    ],
)
def test_gaps(own: list[range], after: int, last: int, gaps: list[tuple[int, int]]) -> None:
    assert [(gap.start, gap.stop) for gap in change_feed._gaps(own, after, last)] == gaps


async def test_retrying_ends_with_the_log(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "_RETRY_SECONDS", 0.0)
    heard = Heard()
    telemetry = Telemetry(heard)
    made, _ = feed_and_writer(opened(), None, telemetry)
    errors = [StorageError("the disk is full"), LogClosed("it is closed")]

    async def call() -> None:
        raise errors.pop(0)

    with pytest.raises(LogClosed):
        await made.retry_until_available("reading", call)
    telemetry.flush()
    assert [(event.doing, str(event.error)) for event in heard.of(events.Failed)] == [("reading", "the disk is full")]


async def test_own_messages_are_handed_to_the_application_as_they_are_committed(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, heard, turns = opened(MemoryStorage()), Heard(), list[TimeSlice]()

    async def rest(time_slice: TimeSlice) -> None:
        turns.append(time_slice)

    monkeypatch.setattr(TimeSlice, "rest", rest)
    made, writer = feed_and_writer(log, heard.message)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.follow, 0)
        tasks.start_soon(made.deliver, 0)
        await anyio.wait_all_tasks_blocked()
        for number in range(3):
            batch = replica_of(log).verify([signer.sign(log.topic, 1, [], number)[1]])
            assert writer.insert_at_once(batch) is not None
            assert [message.payload for message in heard.messages] == [*range(number + 1)]
        await anyio.wait_all_tasks_blocked()
        assert len(turns) == 1, "the task of `deliver` was woken"
        # What is long is read on a thread, and what follows it comes after it.
        await writer.insert(replica_of(log).verify([signer.sign(log.topic, 1, [], "x" * 2**15)[1]]))
        await writer.insert(replica_of(log).verify([signer.sign(log.topic, 1, [], "last")[1]]))
        await heard.wait_for_messages(5)
        tasks.cancel_scope.cancel()
    assert [message.payload for message in heard.messages] == [0, 1, 2, "x" * 2**15, "last"]


async def test_what_the_application_raises_at_a_message_ends_the_delivery(opened: Open, signer: Signer) -> None:
    log, calls = opened(MemoryStorage()), list[object]()

    def fail(message: SignedMessage) -> None:
        calls.append(message.payload)
        raise KeyError("the application's")

    made, writer = feed_and_writer(log, fail)
    with pytest.RaisesGroup(pytest.RaisesExc(KeyError, match="the application's")):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.follow, 0)
            tasks.start_soon(made.deliver, 0)
            await anyio.wait_all_tasks_blocked()
            for number in range(2):
                batch = replica_of(log).verify([signer.sign(log.topic, 1, [], number)[1]])
                # The message is stored, and passed on.
                assert writer.insert_at_once(batch) is not None
    assert calls == [0]
    assert len(log) == 2


async def test_nothing_is_inserted_at_once_while_a_transaction_of_ours_runs(opened: Open, signer: Signer) -> None:
    log = opened(MemoryStorage())
    made, writer = feed_and_writer(log, None)
    batch = replica_of(log).verify([signer.sign(log.topic, 1, [], "a root")[1]])
    async with made.writing:
        assert writer.insert_at_once(batch) is None
    assert writer.insert_at_once(batch) is not None


class Note(BaseModel):
    text: str


async def test_messages_are_of_the_logs_type_and_others_are_passed_over(
    opened: Open, signer: Signer, tmp_path: Path
) -> None:
    opened(tmp_path / "log.db", signer=signer).append_many([{"text": "a"}, {"title": "b"}, {"text": "c"}])
    log = opened(tmp_path / "log.db", payload=Note, signer=signer)
    texts, done = list[str](), anyio.Event()

    def on_message(message: SignedMessage[Note]) -> None:
        texts.append(message.payload.text)
        if message.payload.text == "d":
            done.set()

    made, _ = feed_and_writer(log, on_message)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.follow, 0)
        tasks.start_soon(made.deliver, 0)
        while len(texts) < 2:
            await anyio.sleep(0.001)
        log.append(Note(text="d"))
        await done.wait()
        tasks.cancel_scope.cancel()
    assert texts == ["a", "c", "d"]


async def test_the_payload_of_another_message_ends_the_feed(opened: Open, signer: Signer, tmp_path: Path) -> None:
    plain = opened(tmp_path / "log.db", signer=signer)
    first, _ = plain.append_many([1, {"text": "c"}])
    log = opened(tmp_path / "log.db", payload=Note)

    def on_message(message: SignedMessage[Note]) -> None:
        if message.id != first.id:
            _ = log.get(first.id).payload

    made, _ = feed_and_writer(log, on_message)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.follow, 0)
        with pytest.raises(InvalidPayload, match=first.id):
            await made.deliver(0)
        tasks.cancel_scope.cancel()
