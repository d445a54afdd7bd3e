"""Sync streams, asked on and served: real logs over streams in memory, under virtual time."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
import trio.testing

import gossiplog
from gossiplog import Log, MemoryStorage, Signer, core
from gossiplog._core import PanicException
from gossiplog.errors import CorruptLog, StorageError, StreamReset
from gossiplog.log import replica, writing
from gossiplog.log.log import replica_of
from gossiplog.net.replicator import sync
from gossiplog.net.replicator.fairness import Shares
from gossiplog.net.replicator.refusals import Refusals
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.sync import Syncs, serve_sync
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.network import Connection
from gossiplog.net.transport.stream import Stream
from gossiplog.protocol import wire
from gossiplog.protocol.broadcast.events import (
    InEvent,
    PeerId,
    StartSync,
    SyncAdvanced,
    SyncBrought,
    SyncEnded,
    SyncResult,
)
from gossiplog.protocol.sync import SyncServerConfig, client, events
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch
from gossiplog.storage.sqlite.tables import SQLiteReader
from tests.conftest import TOPIC
from tests.net.memory import End, Inline, stream

pytestmark = pytest.mark.anyio

Open = Callable[..., Log]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


Source = Callable[[End], Awaitable[object]]


class Peer:
    """A connection to a source, which answers on each stream as told."""

    def __init__(self, tasks: anyio.abc.TaskGroup, source: Source) -> None:
        self.closed = None
        self._tasks = tasks
        self._source = source

    async def open_stream(self, protocol: str) -> End:
        assert protocol.endswith("/sync")
        ours, theirs = stream()
        self._tasks.start_soon(self._source, theirs)
        return ours


def serving(log: Log, config: SyncServerConfig | None = None) -> Source:
    """A source that follows the rules."""

    def blame(reason: str) -> None:
        raise AssertionError(reason)

    async def source(end: End) -> None:
        await serve_sync(
            cast("Stream", end),
            replica_of(log),
            Inline(),
            config or SyncServerConfig(),
            blame,
            lambda messages, size: None,
        )

    return source


def until(log: Log, stop: type[wire.Request], then: Callable[[End, wire.Request], Awaitable[None]]) -> Source:
    """A source that follows the rules up to the first request of a kind."""

    async def source(end: End) -> None:
        frames = wire.FrameReader(wire.MAX_FRAME)
        ours, theirs = stream()
        async with end, ours, anyio.create_task_group() as tasks:
            tasks.start_soon(serving(log), theirs)
            while data := await end.receive():
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    request = wire.decode_request(frame)
                    if isinstance(request, stop):
                        await then(end, request)
                        tasks.cancel_scope.cancel()
                        return
                    await ours.send(wire.encode_request(request))
                    await end.send(await ours.receive())

    return source


async def silence(end: End, request: wire.Request) -> None:
    while await end.receive():
        pass


async def hang_up(end: End, request: wire.Request) -> None:
    pass


class Bench:
    """Syncs of one log, and what they report."""

    def __init__(self, log: Log, tasks: anyio.abc.TaskGroup) -> None:
        self.log = log
        self.reports: list[InEvent] = []
        self.failures: list[tuple[str, Exception]] = []
        self.defects: list[tuple[PeerId, BaseException]] = []
        self.broken: BaseException | None = None
        self.seconds = 0.0
        """That a batch takes to be stored."""
        self.telemetry = Telemetry(None)
        self._tasks = tasks
        self._numbers = 0
        self.syncs = Syncs(
            replica_of(log),
            Inline(),
            self._insert,
            Shares(),
            self.reports.append,
            self._fail,
            self._find,
            self.telemetry,
            Refusals(replica_of(log), Inline(), self.telemetry, "refusals", {}, lambda peer: ""),
        )

    async def _insert(self, batch: VerifiedBatch) -> InsertOutcome:
        if self.broken is not None:
            raise self.broken
        await anyio.sleep(self.seconds)
        return replica_of(self.log).insert(batch)

    def _fail(self, doing: str, error: Exception) -> None:
        self.failures.append((doing, error))

    def _find(self, peer: PeerId, error: BaseException) -> None:
        self.defects.append((peer, error))

    async def run(
        self,
        source: Source | None,
        wanted: Sequence[bytes] = (),
        stop_after: float | None = None,
        *,
        peer_id: PeerId = "the peer",
    ) -> SyncEnded:
        """A sync with a source, from its beginning to its end."""
        self._numbers += 1
        order = StartSync(self._numbers, peer_id, wanted, frozenset())
        connection = cast("Connection", Peer(self._tasks, source)) if source is not None else None
        peer = PeerSession(1, "the peer", connection, may_write=True) if connection is not None else None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.syncs.run, order, peer)
            if stop_after is not None:
                await anyio.sleep(stop_after)
                self.syncs.stop(order.sync)
        ended = self.reports[-1]
        assert isinstance(ended, SyncEnded)
        assert ended.sync == order.sync
        return ended

    def of(self, kind: type[Any]) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]


@asynccontextmanager
async def bench(log: Log) -> AsyncIterator[Bench]:
    async with anyio.create_task_group() as tasks:
        yield Bench(log, tasks)
        tasks.cancel_scope.cancel()


@pytest.fixture(scope="module")
def full() -> Iterator[Log]:
    """A log of 1,000 messages, to be read only."""
    with gossiplog.open(":memory:", TOPIC, signer=Signer(bytes(32))) as log:
        log.append_many(range(1000))
        yield log


# Asking


async def test_a_sync_brings_what_the_source_has_and_says_so(opened: Open, full: Log) -> None:
    keys = [core.decode_id(message.id) for message in full]
    async with bench(opened()) as here:
        ended = await here.run(serving(full), wanted=[bytes(20), *keys[-2:]])
        assert (ended.result, ended.reason, ended.unanswered) == (SyncResult.FINISHED, "", "")
        assert set(ended.held) == set(keys[-2:])
        assert here.log.root == full.root
        brought = here.of(SyncBrought)
        assert [key for report in brought for key in report.held] == keys
        assert sum(report.inserted for report in brought) == ended.statistics.values == 1000
        assert here.telemetry.counters.inserted == {"sync": 1000}
        advanced = [report.statistics.bytes_received for report in here.of(SyncAdvanced)]
        assert advanced == sorted(advanced)
        assert advanced[-1] == ended.statistics.bytes_received
        again = await here.run(serving(full))
        assert (again.result, again.statistics.values) == (SyncResult.FINISHED, 0)


@pytest.mark.parametrize(("limit", "is_at_once"), [("", True), ("_AT_ONCE_BYTES", False), ("_FEW_STORED", False)])
async def test_small_logs_in_memory_are_read_without_a_thread(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch, limit: str, is_at_once: bool
) -> None:
    if limit:
        monkeypatch.setattr(sync if limit == "_AT_ONCE_BYTES" else replica, limit, 0)
    calls = list[object]()

    async def read(pool: WorkerPool, call: Callable[..., Any], *arguments: Any) -> Any:
        calls.append(call)
        return call(*arguments)

    monkeypatch.setattr(Inline, "read", read)
    source, target = opened(MemoryStorage(), signer=signer), opened(MemoryStorage())
    source.append_many(range(100))
    target.insert_many([message.value for message in source][:98])
    async with bench(target) as here:
        assert (await here.run(serving(source))).result is SyncResult.FINISHED
    assert source.root == target.root
    assert (sync.collect in calls, sync._receive in calls) == (not is_at_once, not is_at_once)


@pytest.mark.parametrize("seconds", [3.0, 12.0, 100.0])
async def test_a_log_that_stores_slowly_keeps_no_source_waiting(
    opened: Open, signer: Signer, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """A source blames who does not read an answer for half a minute (`serving` fails then)."""
    monkeypatch.setattr(client, "_BATCH_MESSAGES", 1)
    full = opened(signer=signer)
    full.append_many([f"{number}".ljust(30_000) for number in range(200)])
    async with bench(opened()) as here:
        here.seconds = seconds
        counts = [0]
        while here.log.root != full.root:
            ended = await here.run(serving(full))
            counts.append(len(here.log))
            if ended.result is not SyncResult.FINISHED:
                assert ended.result is SyncResult.ABORTED
                assert "the rest comes next" in ended.reason
        # Each sync brought something.
        assert counts == sorted(set(counts))
        assert (len(counts) > 2) == (seconds > 10)


@pytest.mark.parametrize(
    ("last", "result", "cooldown"),
    [
        (b"\xff" * 16, SyncResult.VIOLATION, 0.0),
        (wire.encode_answer(wire.Abort(30_000)), SyncResult.ABORTED, 30.0),
        (b"", SyncResult.ABORTED, 0.0),
    ],
    ids=["garbage", "abort", "nothing"],
)
async def test_what_ends_a_sync_counts_behind_batches_that_wait(
    opened: Open, full: Log, monkeypatch: pytest.MonkeyPatch, last: bytes, result: SyncResult, cooldown: float
) -> None:
    monkeypatch.setattr(client, "_BATCH_MESSAGES", 1)

    async def source(end: End) -> None:
        frames, answered = wire.FrameReader(wire.MAX_FRAME), 0
        ours, theirs = stream()
        async with end, ours, anyio.create_task_group() as tasks:
            tasks.start_soon(serving(full), theirs)
            while data := await end.receive():
                frames.feed(data)
                while (frame := frames.next()) is not None:
                    request = wire.decode_request(frame)
                    answered += isinstance(request, wire.GetValues)
                    await ours.send(wire.encode_request(request))
                    with suppress(StreamReset):
                        await end.send(await ours.receive() + (last if answered > 4 else b""))
            tasks.cancel_scope.cancel()

    async with bench(opened()) as here:
        here.seconds = 100.0
        ended = await here.run(source)
    assert (ended.result, ended.cooldown) == (result, cooldown)


async def test_a_peer_that_is_gone_is_a_failure(log: Log) -> None:
    async with bench(log) as here:
        ended = await here.run(None)
    assert (ended.result, ended.reason) == (SyncResult.FAILED, "the connection ended before the sync began")


async def test_a_sync_that_this_side_ends_with_all_else_does_not_blame_the_connection(opened: Open) -> None:
    asked = anyio.Event()

    async def source(end: End) -> None:
        async with end:
            await end.receive()
            asked.set()
            await anyio.sleep_forever()

    async with bench(opened()) as here, anyio.create_task_group() as tasks:
        tasks.start_soon(here.run, source)
        await asked.wait()
        tasks.cancel_scope.cancel()
    (ended,) = here.of(SyncEnded)
    assert (ended.result, ended.reason) == (SyncResult.FAILED, "this side stopped before the sync ended")


async def test_a_source_that_hangs_up_is_a_failure_and_what_came_stays(opened: Open, full: Log) -> None:
    answered = 0

    async def one_answer(end: End, request: wire.Request) -> None:
        nonlocal answered
        assert isinstance(request, wire.GetValues)
        values = replica_of(full).snapshot().values(request.keys, wire.MAX_FRAME)
        assert values is not None
        answered = len(values)
        await end.send(wire.encode_answer(wire.Values(values)))

    async with bench(opened()) as here:
        ended = await here.run(until(full, wire.GetValues, one_answer))
        assert (ended.result, ended.reason) == (SyncResult.FAILED, "the source closed the stream")
        assert len(here.log) == answered > 4
        assert await here.run(serving(full)) == here.reports[-1]
        assert here.log.root == full.root


async def test_a_stopped_sync_says_what_was_not_answered(opened: Open, full: Log) -> None:
    ids = [message.id for message in full]
    asked: list[int] = []

    async def fall_silent(end: End, request: wire.Request) -> None:
        assert isinstance(request, wire.GetValues)
        asked.append(len(request.keys))
        await silence(end, request)

    async with bench(opened()) as here:
        root = await here.run(until(full, wire.GetRoot, silence), stop_after=15)
        children = await here.run(until(full, wire.GetChildren, silence), stop_after=15)
        values = await here.run(until(full, wire.GetValues, fall_silent), stop_after=15)
        # It asks for less and less of what the source does not answer.
        for _ in range(5):
            last = await here.run(until(full, wire.GetValues, fall_silent), stop_after=15)
        here.syncs.forget("the peer")
        await here.run(until(full, wire.GetValues, fall_silent), stop_after=15)
    assert {root.result, children.result, values.result, last.result} == {SyncResult.ABORTED}
    assert root.unanswered == "its root"
    assert children.unanswered == f"the children of node ({full.root.level}, null)"
    # The values of the first leaves are asked for before the walk goes on.
    assert values.unanswered == f"62 messages from {ids[0]} to {ids[61]}"
    assert last.unanswered == f"message {ids[0]}"
    assert asked == [62, 15, 3, 1, 1, 1, 62]


async def test_what_walks_found_is_kept_for_the_last_four_peers(opened: Open, full: Log) -> None:
    async def hang_up(end: End, request: wire.Request) -> None:
        pass

    async with bench(opened()) as here:
        first = {}
        for number in range(6):
            ended = await here.run(until(full, wire.GetValues, hang_up), peer_id=f"peer {number}")
            first[number] = ended.statistics.requests
        assert len({*first.values()}) == 1
        again = {}
        # The newest first: to come back makes a peer the newest.
        for number in reversed(range(6)):
            ended = await here.run(until(full, wire.GetValues, hang_up), peer_id=f"peer {number}")
            again[number] = ended.statistics.requests
    assert max(again[number] for number in (2, 3, 4, 5)) < min(again[number] for number in (0, 1))


async def test_an_abort_tells_how_long_to_wait(opened: Open, full: Log) -> None:
    async with bench(opened()) as here:
        ended = await here.run(serving(full, SyncServerConfig(requests=2, cooldown=2500)))
    assert (ended.result, ended.cooldown) == (SyncResult.ABORTED, 2.5)


async def test_a_violation_is_named(opened: Open, full: Log) -> None:
    async def lie(end: End, request: wire.Request) -> None:
        await end.send(wire.encode_answer(wire.Values([])))

    async with bench(opened()) as here:
        ended = await here.run(until(full, wire.GetChildren, lie))
    assert ended.result is SyncResult.VIOLATION
    assert ended.reason == "an answer of the kind Values to GetChildren"


async def test_a_value_of_another_message_is_a_violation_and_what_came_before_stays(opened: Open, full: Log) -> None:
    async def swap(end: End, request: wire.Request) -> None:
        assert isinstance(request, wire.GetValues)
        values = replica_of(full).snapshot().values(request.keys, wire.MAX_FRAME)
        assert values is not None
        await end.send(wire.encode_answer(wire.Values([*values[:10], *reversed(values[10:])])))
        await silence(end, request)

    async with bench(opened()) as here:
        ended = await here.run(until(full, wire.GetValues, swap), stop_after=15)
        assert len(here.log) == 10
    assert ended.result is SyncResult.VIOLATION
    assert ended.reason.startswith("the value for message ")


@pytest.mark.parametrize("error", [KeyError("a key"), PanicException("a panic")])
@pytest.mark.parametrize("place", ["start", "receive", "verify", "store", "end"])
async def test_a_defect_ends_the_sync_alone_and_is_its_sources(
    opened: Open, full: Log, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    def fail(*arguments: object) -> Any:
        raise error

    async with bench(opened()) as here:
        with monkeypatch.context() as patched:
            if place == "store":
                patched.setattr(here, "broken", error)
            else:
                patched.setattr(events.Received if place == "verify" else client.Client, place, fail)
            if place == "end":
                ended = await here.run(until(full, wire.GetChildren, hang_up))
            else:
                ended = await here.run(serving(full))
        assert ended == SyncEnded(1, SyncResult.FAILED, reason=f"a defect of this side: {error}")
        assert here.defects == [("the peer", error)]
        assert (len(here.log), here.failures) == (0, [])
        assert (await here.run(serving(full))).result is SyncResult.FINISHED
        assert here.log.root == full.root


async def test_a_log_that_cannot_take_a_batch_gets_none_of_the_later_ones(opened: Open, full: Log) -> None:
    async with bench(opened()) as here:
        here.broken = StorageError("the disk is full")
        ended = await here.run(serving(full))
        assert (ended.result, ended.reason) == (SyncResult.FAILED, "the disk is full")
        assert [doing for doing, _ in here.failures] == ["storing what a sync brought"]
        assert (len(here.log), here.of(SyncBrought)) == (0, [])
        here.broken = None
        assert (await here.run(serving(full))).result is SyncResult.FINISHED
        assert here.log.root == full.root


async def test_a_log_that_lost_a_parent_does_not_blame_the_source(
    opened: Open, signer: Signer, other_signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "INDEX_LAG", 0)
    path = tmp_path / "log.db"
    source = opened(signer=signer)
    source.append_many(range(100))
    opened(path).pull(source)
    # Who has inserted the parent itself knows it.
    log = opened(path)
    early, *_, last = source
    source.insert(other_signer.sign(source.topic, last.clock + 1, [early.id, last.id], "more")[1])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM gossiplog_leaves WHERE seq = 1")
    async with bench(log) as here:
        ended = await here.run(serving(source))
        assert ended.result is SyncResult.FAILED
        assert ended.reason.startswith("the log is damaged: the tree: ")
        assert [doing for doing, _ in here.failures] == ["storing what a sync brought"]
        # What is reported of an orphan would be held against the source.
        assert here.of(SyncBrought) == []


async def test_a_log_that_is_closed_is_a_failure(opened: Open, full: Log) -> None:
    async with bench(opened()) as here:
        here.log.close()
        ended = await here.run(serving(full))
    assert ended.result is SyncResult.FAILED
    assert [doing for doing, _ in here.failures] == ["syncing"]


async def test_settling_waits_for_the_syncs_that_run_now(opened: Open, full: Log) -> None:
    settled: list[float] = []

    async def drain() -> None:
        await here.syncs.drain()
        settled.append(anyio.current_time() - start)

    async with bench(opened()) as here, anyio.create_task_group() as tasks:
        await here.syncs.drain()
        start = anyio.current_time()
        for number, seconds in enumerate((40.0, 70.0), 100):
            tasks.start_soon(here.run, until(full, wire.GetRoot, silence), (), seconds)
            await anyio.sleep(10 * number - 990)
            tasks.start_soon(drain)
    assert settled == [40.0, 80.0]


# Serving


class Reader:
    """Serves a log on a stream, whose other end a test holds; what that told."""

    def __init__(self, log: Log, config: SyncServerConfig | None = None) -> None:
        self.blamed: list[str] = []
        self.served: list[tuple[int, int]] = []
        self.aborted: bool | None = None
        self.end, self._theirs = stream()
        self._log = log
        self._config = config or SyncServerConfig()

    async def run(self) -> None:
        self.aborted = await serve_sync(
            cast("Stream", self._theirs),
            replica_of(self._log),
            Inline(),
            self._config,
            self.blamed.append,
            lambda messages, size: self.served.append((messages, size)),
        )

    @property
    def was_reset(self) -> bool:
        return self._theirs.was_reset


async def test_who_ends_the_stream_was_served(full: Log) -> None:
    reader = Reader(full)
    keys = [core.decode_id(message.id) for message in full]
    async with anyio.create_task_group() as tasks, reader.end:
        tasks.start_soon(reader.run)
        await reader.end.send(wire.encode_request(wire.GetRoot()) + wire.encode_request(wire.GetValues(keys[:7])))
        first = await reader.end.receive()
        await reader.end.send(wire.encode_request(wire.GetValues(keys[:3])))
        second = await reader.end.receive()
    assert (reader.aborted, reader.blamed) == (False, [])
    # What is asked for again counts again.
    assert reader.served == [(7, len(first)), (3, len(second))]


@pytest.mark.parametrize("damage", ["another value", "a value that is missing"])
async def test_a_damaged_value_is_not_given_out(full: Log, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = (core.decode_id(message.id) for message in full)
    values = SQLiteReader.values

    def read(reader: SQLiteReader, keys: Sequence[bytes], *limits: Any) -> dict[bytes, bytes]:
        found = values(reader, keys, *limits)
        other = found[first]
        return {first: other} if damage == "a value that is missing" else dict.fromkeys(found, other)

    monkeypatch.setattr(SQLiteReader, "values", read)
    reader = Reader(full)

    async def refuse() -> None:
        with pytest.raises(CorruptLog, match=f"message {core.encode_id(second)}"):
            await reader.run()

    async with reader.end, anyio.create_task_group() as tasks:
        tasks.start_soon(refuse)
        await reader.end.send(wire.encode_request(wire.GetValues([first, second])))
    assert (reader.blamed, reader.served) == ([], [])


async def test_who_asks_nothing_is_aborted(full: Log) -> None:
    reader = Reader(full, SyncServerConfig(idle=60.0, cooldown=9))
    start = anyio.current_time()
    async with reader.end, anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        answer = await reader.end.receive()
    assert anyio.current_time() - start == pytest.approx(60)
    assert answer == wire.encode_answer(wire.Abort(9))
    assert (reader.aborted, reader.blamed) == (True, [])


async def test_who_does_not_read_an_answer_is_blamed(full: Log) -> None:
    reader = Reader(full)
    start = anyio.current_time()
    async with reader.end, anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        await reader.end.send(wire.encode_request(wire.GetRoot()))
    assert anyio.current_time() - start == pytest.approx(30)
    assert (reader.aborted, reader.blamed) == (False, ["it did not read an answer within 30 s"])
    assert reader.served == []
    assert reader.was_reset


async def test_who_breaks_the_protocol_is_blamed(full: Log) -> None:
    reader = Reader(full)
    async with reader.end, anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        await reader.end.send(wire.encode_request(wire.GetChildren(0, None)))
    assert (reader.aborted, reader.was_reset) == (False, True)
    assert reader.blamed == ["it broke the sync protocol: GetChildren of a node of level 0, which is a leaf"]


async def test_who_vanishes_is_not_blamed(full: Log) -> None:
    reader = Reader(full)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        async with reader.end:
            await reader.end.send(wire.encode_request(wire.GetRoot()))
    assert (reader.aborted, reader.blamed, reader.was_reset) == (False, [], True)


async def test_a_log_that_is_closed_cannot_be_served(full: Log) -> None:
    full.close()
    reader = Reader(full)
    async with reader.end:
        with pytest.raises(StorageError):
            await reader.run()
    assert reader.blamed == []
