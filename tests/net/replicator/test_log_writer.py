"""A driver's own transactions on a log that cannot be written for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest

from gossiplog import Log, Signer, core
from gossiplog.errors import CorruptLog, StorageError
from gossiplog.log.log import replica_of
from gossiplog.log.state import INDEX_LAG, State, States, UnindexedMessages
from gossiplog.net import events
from gossiplog.net.replicator import log_writer
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch
from gossiplog.storage.base import Transaction
from gossiplog.storage.memory import MemoryStorage
from tests.net.support import feed_and_writer

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


async def test_a_log_that_cannot_be_written_is_tried_again(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what failed: on a full disk a small write may still fit, and `/readyz` answered 200 after it."""
    log, telemetry, reported = opened(), Telemetry(None), list[broadcast.InEvent]()
    replica = replica_of(log)
    feed, made = feed_and_writer(log, telemetry=telemetry, report=reported.append)
    known, new = (signer.sign(log.topic, 1, [], text) for text in ("known", "new"))
    await made.insert_values([known[1]])
    failures, tried, insert = [StorageError("the disk is full")] * 4, 0, replica.insert

    def fail(batch: VerifiedBatch) -> InsertOutcome:
        nonlocal tried
        if batch.batch.keys == [known[0]]:
            return insert(batch)
        assert telemetry.cannot_store == ("the disk is full" if tried else "")
        tried += 1
        if failures:
            raise failures.pop()
        return insert(batch)

    monkeypatch.setattr(replica, "insert", fail)
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.follow, 1)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(StorageError):
            await made.insert_values([new[1]])
        # These need no room.
        assert (await made.insert_values([known[1]])).duplicates == 1
        replica.try_writing()
        assert (tried, telemetry.cannot_store) == (1, "the disk is full")
        tasks.start_soon(made.retry)
        while telemetry.cannot_store or not reported:
            await anyio.sleep(0.001)
        assert tried == 5
        tasks.cancel_scope.cancel()
    assert [message.key for message in log] == sorted([known[0], new[0]])
    # The machine had given it up: it forwards it now, and asks nobody for it.
    assert reported == [broadcast.Appended([new])]


@pytest.mark.parametrize("trouble", ["stored meanwhile", "a defect", "an index"])
async def test_where_there_is_nothing_left_to_store_a_small_write_shows_that_the_log_can_be_written(
    opened: Open, signer: Signer, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, telemetry = opened(), Telemetry(None)
    replica, (_, made) = replica_of(log), feed_and_writer(log, telemetry=telemetry)
    value, failures, insert = (
        signer.sign(log.topic, 1, [], "new")[1],
        [StorageError("the disk is full")],
        replica.insert,
    )

    def fail(batch: VerifiedBatch) -> InsertOutcome:
        if failures:
            raise failures.pop()
        if trouble == "a defect":
            raise KeyError("a key")
        return insert(batch)

    def fail_index(unindexed: UnindexedMessages) -> NoReturn:
        raise StorageError("the disk is full")

    monkeypatch.setattr(replica, "insert", fail)
    monkeypatch.setattr(replica, "index", fail_index)
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.0)
    if trouble == "an index":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.write_index)
            await anyio.wait_all_tasks_blocked()
            made._feed.index_behind.set()
            monkeypatch.setattr(type(replica), "is_index_behind", True)
            while not telemetry.cannot_store:
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    else:
        with pytest.raises(StorageError):
            await made.insert_values([value])
        if trouble == "stored meanwhile":
            log.insert(value)
    assert telemetry.cannot_store
    tries, write = 0, replica.try_writing

    def try_writing() -> None:
        nonlocal tries
        tries += 1
        write()

    monkeypatch.setattr(replica, "try_writing", try_writing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.retry)
        while telemetry.cannot_store:
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert tries == 1


async def test_the_work_of_a_transaction_is_measured_as_its_threads_processor_time(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread waits for, on a busy machine, is nobody's work."""
    log = opened()
    replica, (_, made) = replica_of(log), feed_and_writer(log)
    insert = replica.insert
    used: list[float] = []

    def measured(batch: VerifiedBatch) -> InsertOutcome:
        time.sleep(0.05)
        began = time.thread_time()
        outcome = insert(batch)
        used.append(time.thread_time() - began)
        return outcome

    monkeypatch.setattr(replica, "insert", measured)
    outcome = await made.insert_values([signer.sign(replica.topic, 1, [], number)[1] for number in range(8)])
    assert len(outcome.inserted) == 8
    assert used[0] <= outcome.cpu_seconds < used[0] + 0.04


@pytest.mark.parametrize(
    ("in_memory", "checks", "size", "turns"),
    [
        (True, False, 10, ["writing to the log"]),
        (True, True, 10, ["checking payloads"]),
        (True, True, 2**16, ["verifying messages", "checking payloads", "writing to the log"]),
        (False, False, 10, ["writing to the log"]),
        (False, True, 10, ["checking payloads", "writing to the log"]),
        (False, True, 2**16, ["verifying messages", "checking payloads", "writing to the log"]),
    ],
)
async def test_short_messages_take_few_turns_on_threads(
    opened: Open,
    signer: Signer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    in_memory: bool,
    checks: bool,
    size: int,
    turns: list[str],
) -> None:
    """Each turn of a thread is a millisecond of a message's latency where many peers share a process."""
    taken: list[str] = []
    run = WorkerPool._run

    async def noting(self: WorkerPool, doing: str, *arguments: Any) -> Any:
        taken.append(doing)
        return await run(self, doing, *arguments)

    def refuse(payload: object) -> None:
        if payload == "refused":
            raise ValueError("not that")

    log = opened(MemoryStorage() if in_memory else ":memory:", payload=refuse if checks else None)
    _, made = feed_and_writer(log)
    values = [signer.sign(log.topic, 1, [], payload)[1] for payload in ("x" * size, "refused")]
    monkeypatch.setattr(WorkerPool, "_run", noting)
    outcome = await made.insert_values(values)
    assert taken == turns
    assert list(outcome.refused) == ([1] if checks else [])
    assert list(outcome.inserted) == ([0] if checks else [0, 1])
    assert len(log) == len(outcome.inserted)
    again = await made.insert_values(values)
    assert again.duplicates == len(outcome.inserted)


async def test_the_index_follows_messages_in_transactions_of_its_own(opened: Open, signer: Signer) -> None:
    """A message that writes the index over many others keeps those who wait for it waiting."""
    log = opened()
    replica, (_, made) = replica_of(log), feed_and_writer(log)
    values = [signer.sign(replica.topic, 1, [], number)[1] for number in range(3 * INDEX_LAG)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.write_index)
        await anyio.wait_all_tasks_blocked()
        for start in range(0, len(values), 32):
            before = replica.position().indexed
            await made.insert_values(values[start : start + 32])
            assert replica.position().indexed == before
            while replica.is_index_behind:
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert replica.position().count - replica.position().indexed <= INDEX_LAG / 2


async def test_no_message_waits_while_others_are_read_for_the_index(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under an attack with roots, the slowest messages waited for that."""
    log = opened()
    replica, (feed, made) = replica_of(log), feed_and_writer(log)
    read_batch = core.read_batch
    kept_waiting: list[bool] = []

    def noting(values: Sequence[bytes], topic: str) -> core.Batch:
        kept_waiting.append(feed.writing.locked())
        return read_batch(values, topic)

    monkeypatch.setattr(core, "read_batch", noting)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.write_index)
        await anyio.wait_all_tasks_blocked()
        await made.insert_values([signer.sign(replica.topic, 1, [], n)[1] for n in range(INDEX_LAG // 2 + 1)])
        while replica.is_index_behind:
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert kept_waiting
    assert not any(kept_waiting)


@pytest.mark.parametrize("late", [False, True])
async def test_an_index_that_another_process_has_written_is_not_written_again(
    opened: Open, signer: Signer, tmp_path: Path, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = (opened(tmp_path / "log.db", synchronous="off") for _ in range(2))
    replica, (_, made) = replica_of(log), feed_and_writer(log)
    await made.insert_values([signer.sign(replica.topic, 1, [], n)[1] for n in range(200)])
    assert replica.is_index_behind
    transactions: list[int] = []
    transaction, read = log._storage.transaction, replica.read_unindexed

    def counted() -> AbstractContextManager[Transaction]:
        transactions.append(1)
        return transaction()

    def read_unindexed() -> UnindexedMessages:
        if not late:
            replica_of(other).index()
        found = read()
        if late:
            replica_of(other).index()
        return found

    monkeypatch.setattr(log._storage, "transaction", counted)
    monkeypatch.setattr(replica, "read_unindexed", read_unindexed)
    written: list[States] = []
    index = States.index

    def noted(states: States, *arguments: Any, **options: Any) -> State:
        written.append(states)
        return index(states, *arguments, **options)

    monkeypatch.setattr(States, "index", noted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.write_index)
        await anyio.wait_all_tasks_blocked()
        made._feed.index_behind.set()
        while replica.is_index_behind:
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    # Only with the lock it is known that nobody has written it since it was read.
    assert (len(transactions), written) == (int(late), [other._states])
    assert replica.position().indexed == 200


async def test_an_index_that_cannot_be_written_is_written_after_a_later_message(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened()
    replica, (_, made) = replica_of(log), feed_and_writer(log)
    failures = [StorageError("the disk is full"), CorruptLog(["a row is lost"])]
    index = replica.index

    def fail(unindexed: UnindexedMessages) -> None:
        if failures:
            raise failures.pop()
        index(unindexed)

    monkeypatch.setattr(replica, "index", fail)
    values = [signer.sign(replica.topic, 1, [], number)[1] for number in range(INDEX_LAG)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.write_index)
        await anyio.wait_all_tasks_blocked()
        await made.insert_values(values[: INDEX_LAG // 2 + 1])
        while len(failures) == 2:
            await anyio.sleep(0.001)
        for value in values[INDEX_LAG // 2 + 1 :]:
            await made.insert_values([value])
            await anyio.wait_all_tasks_blocked()
        while replica.is_index_behind:
            await anyio.sleep(0.001)
        assert not failures
        tasks.cancel_scope.cancel()


async def test_files_that_lose_their_names_are_reported_once(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hub that nobody wrote to went on without a word."""
    monkeypatch.setattr(log_writer, "LOOK_SECONDS", 0.0)
    path, moved = tmp_path / "log.db", tmp_path / "moved.db"
    log = opened(path)
    happened: list[events.Event] = []
    telemetry = Telemetry(happened.append)
    look, looks = replica_of(log).check_files, 0
    # No file is moved in the middle of a look, which would say where it is by then.
    looking = threading.Lock()

    def check_files() -> None:
        nonlocal looks
        with looking:
            looks += 1
            look()

    async def look_again() -> None:
        before = looks
        while looks < before + 3:
            await anyio.sleep(0.001)
        telemetry.flush()

    monkeypatch.setattr(replica_of(log), "check_files", check_files)
    _, made = feed_and_writer(log, telemetry=telemetry)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.watch_files)
        await look_again()
        assert not happened
        for reports in (1, 2):
            with looking:
                path.rename(moved)
            await look_again()
            assert [str(event.error) for event in happened if isinstance(event, events.Failed)] == [
                f"the file {path} was moved away while the log was open, so nothing more is written to it: move it"
                f" back from {moved} to go on"
            ] * reports
            with looking:
                moved.rename(path)
            await look_again()
        log.close()
