"""Sync streams over a network: those that a driver asks on, and those that it serves.

The machines (`protocol.sync`) read the log, so they run on worker threads, a piece of the stream at a time; or on the
event loop, where the log is small and in memory, and waking a thread would take longer. What a source sends passes
three stages, each working on a batch of its own: the walk, the verification, and the transaction that stores it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypeVar, TypeVarTuple

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream as Receiver
from anyio.streams.memory import MemoryObjectSendStream as Sender

from gossiplog.core import Node
from gossiplog.errors import GossipLogError, NetworkError, ProtocolError, RefusedMessage, StorageError, StreamReset
from gossiplog.log.reading import raising_corrupt_log
from gossiplog.log.replica import Replica
from gossiplog.log.serving import CompleteSnapshot
from gossiplog.net.replicator.defects import defect_in
from gossiplog.net.replicator.fairness import Shares, parts
from gossiplog.net.replicator.refusals import Refusals
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.tracing import span
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.service import background
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.stream import CHUNK, Signal, Stream
from gossiplog.protocol import wire
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import SyncEnded, SyncResult
from gossiplog.protocol.sync import Aborted, Client, Event, Finished, Received, Send, Server, SyncClientConfig
from gossiplog.protocol.sync.server import SyncServerConfig
from gossiplog.protocol.wire import Protocols
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch, verify_received
from gossiplog.replication.sessions import Resumptions, SyncSession
from gossiplog.replication.verdicts import report_sync

_Event = TypeVar("_Event")
_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")
Insert: TypeAlias = Callable[[VerifiedBatch], Awaitable[InsertOutcome]]
"""Inserts a batch (see `Replica.insert`)."""
Report: TypeAlias = Callable[[broadcast.InEvent], None]
"""Tells the broadcast machine."""
_Part: TypeAlias = tuple[VerifiedBatch, float]
"""A batch, and how much of a turn it fills."""

_WRITE_SECONDS = 30.0
"""How long a client may take to read 64 KiB of an answer before its stream is given up."""
_READ_SECONDS = _WRITE_SECONDS / 3
"""How long batches of one read may wait to be stored before the stream is ended; the next sync goes on."""
_ROOT_SECONDS = 30.0
"""How long a peer may take to answer with its root."""
_AT_ONCE_BYTES = 2**11
"""From a peer, at most, that are handled without a thread: 300 requests, or as many children."""
_RESET = "the peer gave it up; if it happens again its log may be damaged: run `gossiplog doctor` on its machine"
"""What a peer cannot say as it gives up a sync stream: its log is damaged, or it pauses after fruitless streams."""


class _Sync(SyncSession):
    """A sync that has not ended, and what its walk has brought and nobody has taken yet."""

    def __init__(self, order: broadcast.StartSync) -> None:
        self.scope = anyio.CancelScope()
        self.pending: deque[Event] = deque()
        super().__init__(order, self.scope.cancel)


class Syncs:
    """Asks sources for what the log lacks, as the broadcast machine orders it.

    Args:
        insert: stores what came.
        shares: of the sources, whose messages wait when they have taken too much of the time.
        report: is called with how each sync goes, and its end in any case.
        fail: is called with what goes wrong on this side.
        defect: is called with what a source's answers made this side raise that it should not.
        refusals: names refused messages to the sources that have them.
    """

    def __init__(
        self,
        replica: Replica,
        workers: WorkerPool,
        insert: Insert,
        shares: Shares,
        report: Report,
        fail: Callable[[str, Exception], None],
        defect: Callable[[broadcast.PeerId, BaseException], None],
        telemetry: Telemetry,
        refusals: Refusals,
    ) -> None:
        self._replica = replica
        self._workers = workers
        self._insert = insert
        self._shares = shares
        self._report = report
        self._fail = fail
        self._defect = defect
        self._telemetry = telemetry
        self._refusals = refusals
        self._protocols = Protocols(replica.topic)
        self._running: dict[int, _Sync] = {}
        self._ended = Signal()
        self._resumptions = Resumptions(SyncClientConfig())

    async def run(self, order: broadcast.StartSync, peer: PeerSession | None) -> None:
        """Run a sync to its end.

        Args:
            order: of the broadcast machine.
            peer: to ask; None if it is gone.
        """
        sync = self._running[order.sync] = _Sync(order)
        reason = (
            "the connection ended before the sync began" if peer is None else "this side stopped before the sync ended"
        )
        ended = SyncEnded(order.sync, SyncResult.FAILED, reason=reason)
        began = anyio.current_time()
        try:
            if peer is not None:
                with span("sync") as describe:
                    ended = await self._run(sync, peer)
                    describe({"result": ended.result.value, "messages": ended.statistics.values})
        except StorageError as error:
            self._fail("syncing", error)
            ended = SyncEnded(order.sync, SyncResult.FAILED, reason=str(error))
        except BaseException as error:
            defect = defect_in(error)
            if defect is None:
                raise
            self._defect(order.peer, defect)
            ended = SyncEnded(order.sync, SyncResult.FAILED, reason=f"a defect of this side: {defect}")
        finally:
            del self._running[order.sync]
            self._telemetry.observe("sync", anyio.current_time() - began)
            self._report(ended)
            self._ended.set()

    async def drain(self) -> None:
        """Wait until the syncs that run now have ended."""
        now = set(self._running)
        while now & self._running.keys():
            await self._ended.wait()

    def stop(self, number: int) -> None:
        """End a sync early; what it has brought is kept."""
        sync = self._running.get(number)
        if sync is not None:
            sync.end(SyncResult.ABORTED)

    def forget(self, peer: broadcast.PeerId) -> None:
        """Forget how to ask a peer that is gone."""
        self._resumptions.forget(peer)

    async def _run(self, sync: _Sync, peer: PeerSession) -> SyncEnded:
        order = sync.order
        config = replace(self._resumptions.next(order.peer, peer.name), skip=order.skip)
        snapshot = await self._workers.read(self._replica.snapshot)
        client = Client(snapshot, self._replica.topic, config=config)
        to_verify, verifying = anyio.create_memory_object_stream[Received](1)
        to_write, writing = anyio.create_memory_object_stream[_Part](1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._verify, peer.writer, snapshot.state.count, verifying, to_write)
            tasks.start_soon(self._write, sync, peer, writing)
            async with to_verify:
                await self._walk(sync, client, peer.connection, to_verify)
        self._refusals.name_again(peer.number, client.skipped)
        self._resumptions.keep(sync, client, peer.name, is_connected=peer.connection.closed is None)
        return sync.conclude(client, tuple(await self._workers.read(self._replica.known, order.advertised)))

    async def _walk(self, sync: _Sync, client: Client, connection: Connection, batches: Sender[Received]) -> None:
        # Requests wait here: the source reads none while its answers are not read. The machine's window bounds them.
        requests, to_send = anyio.create_memory_object_stream[bytes](math.inf)
        with requests, to_send, sync.scope:
            try:
                async with await connection.open_stream(self._protocols.sync) as stream, background() as tasks:
                    tasks.start_soon(_send, stream, to_send)
                    requests.send_nowait(client.start())
                    while sync.result is None:
                        await self._step(sync, client, stream, requests, batches)
            except StreamReset as error:
                sync.end(SyncResult.FAILED, f"{error}: {_RESET}")
            except NetworkError as error:
                sync.end(SyncResult.FAILED, str(error))
        # What the walk has brought when it was ended.
        if sync.result is not SyncResult.FINISHED:
            events, _ = await self._workers.read(collect, client.end())
            sync.pending.extend(events)
        for event in sync.pending:
            if isinstance(event, Received):
                await batches.send(event)

    async def _step(
        self, sync: _Sync, client: Client, stream: Stream, requests: Sender[bytes], batches: Sender[Received]
    ) -> None:
        data = await stream.receive(4 * CHUNK)
        if not data:
            sync.end(SyncResult.FAILED, "the source closed the stream")
            return
        events, error = await _read(
            self._replica, self._workers, client.held + len(data), collect, client.receive(data)
        )
        stream.reserve_memory(client.held)
        sync.pending.extend(events)
        self._report(broadcast.SyncAdvanced(sync.order.sync, client.statistics))
        due, is_late = anyio.current_time() + _READ_SECONDS, False
        while sync.pending:
            # Taken out when it is done: the walk may be ended meanwhile.
            match sync.pending[0]:
                case Send(frames):
                    requests.send_nowait(frames)
                case Received() as received:
                    with anyio.move_on_at(due) as waiting:
                        await batches.send(received)
                    if waiting.cancelled_caught:
                        is_late = True
                        break
                case Aborted() | Finished() as end:
                    sync.note_end(end)
            sync.pending.popleft()
        if isinstance(error, ProtocolError):
            sync.end(SyncResult.VIOLATION, str(error))
        elif error is not None:
            self._fail("syncing", error)
            sync.end(SyncResult.FAILED, str(error))
        elif is_late:
            # Its source may neither count as stalled nor find this side silent.
            for event in sync.pending:
                if isinstance(event, Aborted):
                    sync.note_end(event)
                    return
            sync.end(SyncResult.ABORTED, "it sends faster than this log stores: the rest comes next")

    async def _verify(self, writer: str, count: int, received: Receiver[Received], batches: Sender[_Part]) -> None:
        async with received, batches:
            async for values in received:
                began = anyio.current_time()
                batch = await self._workers.verify(verify_received, values, count)
                filled = min(1.0, parts(values.values))
                self._shares.charge(writer, filled * (anyio.current_time() - began), anyio.current_time())
                await batches.send((batch, filled))

    async def _write(self, sync: _Sync, peer: PeerSession, batches: Receiver[_Part]) -> None:
        async with batches:
            async for batch, filled in batches:
                # Once the log could not take a batch, the parents of what comes later are missing.
                if sync.inserts:
                    await anyio.sleep_until(self._shares.due(peer.writer, anyio.current_time()))
                    began = anyio.current_time()
                    await self._store(sync, peer, batch)
                    self._shares.charge(peer.writer, filled * (anyio.current_time() - began), anyio.current_time())
                sync.judge(batch)

    async def _store(self, sync: _Sync, source: PeerSession, batch: VerifiedBatch) -> None:
        try:
            outcome = await self._insert(batch)
        except (StorageError, RefusedMessage) as error:
            self._fail("storing what a sync brought", error)
            sync.fail(str(error))
            return
        self._telemetry.inserted("sync", len(outcome.inserted))
        self._telemetry.brought(source.name, len(outcome.inserted))
        self._telemetry.count_outcome(outcome)
        self._refusals.note([source.number] * len(outcome.keys), outcome)
        self._report(report_sync(sync.order.sync, outcome))


async def _send(stream: Stream, requests: Receiver[bytes]) -> None:
    async for frames in requests:
        await stream.send(frames)


def collect(events: Iterator[_Event]) -> tuple[list[_Event], GossipLogError | None]:
    """Return the events of a machine, and what it raised after them."""
    found: list[_Event] = []
    try:
        with raising_corrupt_log:
            found.extend(events)
    except (ProtocolError, StorageError) as error:
        return found, error
    return found, None


async def serve_sync(
    stream: Stream,
    replica: Replica,
    workers: WorkerPool,
    config: SyncServerConfig,
    blame: Callable[[str], None],
    served: Callable[[int, int], None],
    fruitless: Callable[[], None] = lambda: None,
    pause: float = 0.0,
) -> bool:
    """Serve the log, as it is now, on a stream that a peer opened, and close it.

    Args:
        stream: of the sync protocol.
        replica: of the log.
        workers: to run on.
        config: the limits.
        blame: is called with what the peer did wrong.
        served: is called after each answer that was written: how many messages it held, and its bytes.
        fruitless: is called before the peer learns that the stream was fruitless (see `Server`).
        pause: seconds for which the peer is to be refused then; the answer says so.

    Returns:
        Whether the stream was aborted.

    Raises:
        CorruptLog: the log is damaged.
        StorageError: the database failed.
    """
    try:
        async with stream:
            snapshot = await workers.read(replica.snapshot)
            complete = CompleteSnapshot(snapshot.storage, snapshot.state)
            server = Server(complete, now=anyio.current_time(), config=config, pause=pause)
            while not server.closed:
                data: bytes | None = None
                with anyio.move_on_at(server.deadline):
                    data = await stream.receive()
                if data == b"":
                    return False
                await _answer(stream, server, replica, workers, data or b"", served, fruitless)
        return True
    except ProtocolError as error:
        blame(f"it broke the sync protocol: {error}")
    except TimeoutError:
        blame(f"it did not read an answer within {_WRITE_SECONDS:g} s")
    except NetworkError:
        # The peer has gone, or needs no more.
        pass
    return False


async def _answer(
    stream: Stream,
    server: Server,
    replica: Replica,
    workers: WorkerPool,
    data: bytes,
    served: Callable[[int, int], None],
    fruitless: Callable[[], None],
) -> None:
    values = server.values
    while answer := await _read(
        replica, workers, server.held + len(data), _receive, server, data, anyio.current_time()
    ):
        data = b""
        if server.fruitless:
            fruitless()
        stream.reserve_memory(server.held + len(answer))
        # In pieces: a slow line takes an answer of megabytes, too, as long as it takes something.
        for start in range(0, len(answer), CHUNK):
            with anyio.fail_after(_WRITE_SECONDS):
                await stream.send(answer[start : start + CHUNK])
        served(server.values - values, len(answer))
        values = server.values
    stream.reserve_memory(server.held)


async def _read(
    replica: Replica,
    workers: WorkerPool,
    size: int,
    call: Callable[[*_Arguments], _Result],
    *arguments: *_Arguments,
) -> _Result:
    """Run a call that reads the log, and takes `size` bytes from a peer: on a thread, unless waking it takes longer."""
    if size <= _AT_ONCE_BYTES:
        with replica.reading_at_once() as is_quick:
            if is_quick:
                return call(*arguments)
    return await workers.read(call, *arguments)


def _receive(server: Server, data: bytes, now: float) -> bytes:
    with raising_corrupt_log:
        return server.receive(data, now)


async def query_root(connection: Connection, protocol: str) -> Node | None:
    """Return the root of a peer's log, on a stream of its own; None if it is too busy to say.

    Args:
        connection: to the peer.
        protocol: the sync protocol of the log.

    Raises:
        ProtocolError: the answer is none.
        NetworkError: the peer does not answer.
    """
    try:
        with anyio.fail_after(_ROOT_SECONDS):
            frame = await _ask_root(connection, protocol)
    except TimeoutError:
        raise NetworkError(f"the peer did not send its root within {_ROOT_SECONDS:g} s") from None
    match wire.decode_answer(frame):
        case wire.Root(root):
            return root
        case wire.Abort():
            return None
        case answer:
            raise ProtocolError(f"the answer to GetRoot is {type(answer).__name__}")


async def _ask_root(connection: Connection, protocol: str) -> bytes:
    frames = wire.FrameReader(wire.MAX_FRAME)
    async with await connection.open_stream(protocol) as stream:
        await stream.send(wire.encode_request(wire.GetRoot()))
        while (frame := frames.next()) is None:
            data = await stream.receive()
            if not data:
                raise NetworkError("the peer closed the stream without an answer")
            frames.feed(data)
        return frame
