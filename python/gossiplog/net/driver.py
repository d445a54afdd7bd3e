"""Drives the broadcast machine of one log over connections: the one place where protocol, log and network meet.

The machine (`protocol.broadcast`) decides; a driver reads streams, runs the log's calls on worker threads, keeps the
timers, and tells the machine what happened. Whatever else commits to the log, the application or another process, is
seen by following it.

Nothing here waits for a peer that does not read: what is pushed to one waits in a queue of its own, and when that is
long the machine is told that the peer is behind (its rule 10). No peer is read from faster than the log takes it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import TracebackType
from typing import Self, TypeVar

import anyio
import anyio.abc

from gossiplog.core import Batch, Node, SignedMessage
from gossiplog.errors import (
    ConnectionLost,
    CorruptLog,
    EncodeError,
    LogClosed,
    NetworkError,
    ProtocolError,
    Refused,
    StorageError,
)
from gossiplog.log import Log
from gossiplog.log.replica import Replica
from gossiplog.log.state import read_stored
from gossiplog.log.writing import Outcome
from gossiplog.net import events
from gossiplog.net.background import background
from gossiplog.net.probe import ask_root
from gossiplog.net.protocols import Protocols
from gossiplog.net.record import Counters, Record
from gossiplog.net.stream import CHUNK, Signal, Stream
from gossiplog.net.streams import Connection
from gossiplog.net.syncing import Syncs, collect, serve_sync
from gossiplog.net.threads import Threads
from gossiplog.protocol import broadcast_events as broadcast
from gossiplog.protocol import push
from gossiplog.protocol.broadcast import Broadcast
from gossiplog.protocol.broadcast_config import Config
from gossiplog.protocol.broadcast_events import Delivery, Judged, Verdict
from gossiplog.protocol.push import Push
from gossiplog.protocol.sync import ServerConfig

_MOST_WAITING = 2**20
"""Bytes that wait to be written to a peer before it counts as behind."""
_MOST_DELIVERIES = 1024
_MOST_DELIVERY_BYTES = 8 * 2**20
_PAGE = 256
_RETRY_SECONDS = 1.0
"""Between attempts to read the log, where nothing goes on without."""
_WRITE_SECONDS = 60.0
"""How long a peer may take to read CHUNK bytes of what is pushed to it."""
_RESUMPTION_SECONDS = 2.0
"""Within which a peer whose sync was aborted begins another, if it does so by itself."""

_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class Peer:
    """A connected peer.

    Attributes:
        number: that the machine knows it by.
        name: that people know it by.
        connection: to it.
        may_write: whether messages are taken from it.
    """

    number: int
    name: str
    connection: Connection
    may_write: bool
    push: Push | None = None
    waiting: deque[bytes] = field(default_factory=deque)
    size: int = 0
    behind: bool = False
    served: int = 0
    more: anyio.Event = field(default_factory=anyio.Event)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    blame: str = ""


class Driver:
    """Replicates one log with the peers that it is connected to, for the time of its context, which it is in once.

    When the log is closed or found damaged meanwhile, or a function of the application's raises, the context ends with
    that exception. A database that fails is tried again.

    Args:
        log: to replicate.
        config: limits and delays of the broadcast machine.
        server: limits of the sync streams that are served.
        patience: seconds in which a peer must have opened its push stream.
        random: for the jitter of delays.
        on_event: is called with what happens, in order, on the event loop; it must not block.
        on_message: is called with each message that the log gets, once, in the order of arrival; likewise.
    """

    def __init__(
        self,
        log: Log,
        *,
        config: Config | None = None,
        server: ServerConfig | None = None,
        patience: float = 30.0,
        random: Random | None = None,
        on_event: Callable[[events.Event], None] | None = None,
        on_message: Callable[[SignedMessage], None] | None = None,
    ) -> None:
        self.replica: Replica = log.replica
        self.protocols = Protocols(log.topic)
        self.peers_changed = Signal()
        self._server = server or ServerConfig()
        self._patience = patience
        self._record = Record(on_event)
        self._on_message = on_message
        self._machine = Broadcast(random or Random(), config)
        self._threads = Threads()
        self._encoder = Push(self.replica.known)
        self._syncs = Syncs(self.replica, self._threads, self._ingest, self._report, self._fail, self._record)
        self._numbers = itertools.count(1)
        # All that are being exchanged with, and those of them that have a push stream.
        self._exchanges: dict[int, Peer] = {}
        self._peers: dict[int, Peer] = {}
        self._inbox: deque[broadcast.InEvent] = deque()
        self._handling = False
        # Timers: the time of each, and a heap that may hold some that were set anew since.
        self._timers: dict[broadcast.Timer, float] = {}
        self._order: list[tuple[float, int, broadcast.Timer]] = []
        self._deliveries: deque[Delivery] = deque()
        self._delivery_bytes = 0
        self._to_update: dict[int, None] = {}
        # Sequences that this driver's own transactions have written, and whether one is under way.
        self._own: list[range] = []
        self._writing = anyio.Lock()
        self._timer_set = anyio.Event()
        self._delivered = anyio.Event()
        self._made_room = anyio.Event()
        self._update_due = anyio.Event()
        self._committed = anyio.Event()
        self._tasks: anyio.abc.TaskGroup
        self._stack = AsyncExitStack()
        self._is_open = False
        self._exchange_ended = Signal()

    async def __aenter__(self) -> Self:
        count = await self._threads.read(self.replica.count)
        async with AsyncExitStack() as stack:
            stack.callback(self._record.flush)
            self._tasks = await stack.enter_async_context(background())
            stack.push_async_callback(self._end_exchanges)
            for task in (self._follow, self._announce):
                self._tasks.start_soon(task, count)
            for loop in (self._insert, self._update, self._expire, self._record.run):
                self._tasks.start_soon(loop)
            self._is_open = True
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    async def _end_exchanges(self) -> None:
        self._is_open = False
        for peer in self._exchanges.values():
            peer.scope.cancel()
        # They run in tasks of others, and what they report at their end still needs this driver's own.
        with anyio.CancelScope(shield=True):
            while self._exchanges:
                await self._exchange_ended.wait()

    @property
    def peers(self) -> Sequence[Peer]:
        """Those that are connected now."""
        return tuple(self._peers.values())

    async def exchange(self, connection: Connection, name: str, *, dialer: bool, may_write: bool = True) -> str:
        """Exchanges messages with a peer until the connection ends.

        Args:
            connection: to the peer.
            name: that people know the peer by.
            dialer: whether this side made the connection, and so opens the push stream.
            may_write: whether to take messages from the peer; what one sends that may not is passed over.

        Returns:
            The rule that the peer broke; "" if the connection ended otherwise.

        Raises:
            NetworkError: the peer does not speak the protocols of this log.
        """
        if not self._is_open:
            raise NetworkError("the log is not replicated any more")
        peer = Peer(next(self._numbers), name, connection, may_write)
        self._exchanges[peer.number] = peer
        connection.watch(partial(self._record.incident, name))
        try:
            with peer.scope:
                await self._converse(peer, dialer)
        except ConnectionLost as error:
            # The connection itself may not have heard yet.
            if error.cause == "violation":
                peer.blame = peer.blame or error.reason
            raise
        finally:
            self._leave(peer)
        if peer.scope.cancelled_caught:
            raise NetworkError("this side has stopped")
        return peer.blame

    async def _converse(self, peer: Peer, dialer: bool) -> None:
        stream = await peer.connection.open_stream(self.protocols.push) if dialer else None
        async with background() as tasks:
            if stream is not None:
                tasks.start_soon(self._push, peer, stream)
            else:
                tasks.start_soon(self._expect_push, peer)
            tasks.start_soon(self._accept, peer, tasks)
            await peer.connection.wait_closed()

    def _leave(self, peer: Peer) -> None:
        closed = peer.connection.closed
        if closed is not None and closed.cause == "violation":
            peer.blame = peer.blame or closed.reason
        if peer.blame:
            self._record.dropped(peer.name, peer.blame)
        elif closed is not None and closed.cause == "overload":
            self._record.incident(peer.name, "overloads", 1, closed.reason)
        elif closed is not None and closed.cause == "internal":
            self._fail(f"exchanging with {peer.name}", NetworkError(closed.reason))
        del self._exchanges[peer.number]
        self._exchange_ended.set()
        if self._peers.pop(peer.number, None) is not None:
            self.peers_changed.set()
            self._syncs.forget(peer.number)
            self._report(broadcast.PeerDisconnected(peer.number))
            reason = peer.blame or (closed.reason if closed is not None else "this side ended the connection")
            self.tell(events.Disconnected(peer.name, reason, bool(peer.blame)))

    def blame(self, connection: Connection, reason: str) -> None:
        """Drops a peer that broke a rule which whoever carries the connection's bytes knows of."""
        for peer in self._exchanges.values():
            if peer.connection is connection:
                self._drop(peer, reason)

    async def root_of(self, peer: Peer) -> Node | None:
        """The root of a peer's log, None if it is too busy to say. Logs with equal roots hold the same messages.

        Raises:
            NetworkError: the peer does not answer.
            ProtocolError: what it answers is none; it is dropped.
        """
        try:
            return await ask_root(peer.connection, self.protocols.sync)
        except ProtocolError as error:
            self._drop(peer, f"it broke the sync protocol: {error}")
            raise

    async def settle(self) -> None:
        """Waits until the syncs that are under way have ended, and the application has heard of it."""
        await self._syncs.settle()
        self._record.flush()

    async def root(self) -> Node:
        """The root of the log."""
        return await self._threads.read(self.replica.root)

    async def committed(self) -> None:
        """Waits until the log has got messages."""
        await self._committed.wait()

    @property
    def counters(self) -> Counters:
        """What was counted so far."""
        return self._record.counters

    def tell(self, event: events.Event) -> None:
        """Lets the application know, after what it was told before."""
        self._record.tell(event)

    def refused(self, name: str, reason: str) -> None:
        """Takes notice of a peer that whoever carries the connections did not let in."""
        self._record.refused(name, reason)

    def count_bytes(self, *, received: int = 0, sent: int = 0) -> None:
        """Counts what went through the connections, told by whoever carries it."""
        self._record.count(bytes_received=received, bytes_sent=sent)

    # Streams

    async def _expect_push(self, peer: Peer) -> None:
        await anyio.sleep(self._patience)
        if peer.push is None:
            self._drop(peer, f"it opened no push stream within {self._patience:g} s")

    async def _accept(self, peer: Peer, tasks: anyio.abc.TaskGroup) -> None:
        async for protocol, stream in peer.connection:
            if protocol == self.protocols.push:
                tasks.start_soon(self._push, peer, stream)
            else:
                tasks.start_soon(self._serve, peer, stream)

    async def _serve(self, peer: Peer, stream: Stream) -> None:
        peer.served += 1
        served = peer.served
        try:
            aborted = await serve_sync(
                stream, self.replica, self._threads, self._server, lambda reason: self._drop(peer, reason)
            )
        except (CorruptLog, StorageError) as error:
            self._fail(f"serving {peer.name}", error)
            return
        if aborted:
            await anyio.sleep(_RESUMPTION_SECONDS)
            if served == peer.served:
                self._report(broadcast.ServingAborted(peer.number))

    async def _push(self, peer: Peer, stream: Stream) -> None:
        """Runs a push stream; the peer counts as connected while it stands."""
        if peer.push is not None:
            stream.reset()
            self._drop(peer, "it opened a second push stream")
            return
        peer.push = Push(self.replica.known)
        self._peers[peer.number] = peer
        self.peers_changed.set()
        self.tell(events.Connected(peer.name))
        self._report(broadcast.PeerConnected(peer.number))
        try:
            async with stream, background() as tasks:
                tasks.start_soon(self._write_push, peer, stream)
                while not peer.blame and (data := await stream.receive()):
                    await self._read_push(peer, stream, peer.push, data)
        except NetworkError:
            # The connection's end says why.
            pass
        peer.connection.close()

    async def _read_push(self, peer: Peer, stream: Stream, machine: Push, data: bytes) -> None:
        found, error = await self._threads.read(collect, machine.receive(data))
        stream.hold(machine.held + sum(len(event.value) for event in found if isinstance(event, push.Deliver)))
        for event in found if peer.may_write else ():
            match event:
                case push.Deliver(key, value):
                    while len(self._deliveries) >= _MOST_DELIVERIES or self._delivery_bytes > _MOST_DELIVERY_BYTES:
                        await self._made_room.wait()
                    self._report(broadcast.Received(Delivery(peer.number, key, value)))
                case push.UnknownHeads(keys, unchecked):
                    self._report(broadcast.HeadsReceived(peer.number, keys, unchecked))
        stream.hold(machine.held)
        if isinstance(error, ProtocolError):
            self._drop(peer, f"it broke the push protocol: {error}")
        elif error is not None:
            self._fail(f"looking up what {peer.name} has", error)
            # What it told of is not known now: a sync finds out, as soon as the log can be read.
            if peer.may_write:
                self._report(broadcast.HeadsReceived(peer.number, (), 1))

    async def _write_push(self, peer: Peer, stream: Stream) -> None:
        while True:
            await peer.more.wait()
            peer.more = anyio.Event()
            while peer.waiting:
                data = peer.waiting.popleft()
                # Small frames go together.
                while peer.waiting and len(data) + len(peer.waiting[0]) <= CHUNK:
                    data += peer.waiting.popleft()
                for start in range(0, len(data), CHUNK):
                    with anyio.move_on_after(_WRITE_SECONDS) as scope:
                        await stream.send(data[start : start + CHUNK])
                    if scope.cancelled_caught:
                        self._drop(peer, f"it did not read what was pushed to it for {_WRITE_SECONDS:g} s")
                        return
                peer.size -= len(data)
            if peer.behind:
                peer.behind = False
                self._report(broadcast.PeerCaughtUp(peer.number))

    def _queue(self, numbers: Sequence[broadcast.PeerId], data: bytes) -> None:
        for number in numbers:
            peer = self._peers.get(_number(number))
            if peer is not None:
                peer.waiting.append(data)
                peer.size += len(data)
                peer.more.set()
                if peer.size > _MOST_WAITING and not peer.behind:
                    peer.behind = True
                    self._report(broadcast.PeerBehind(peer.number))

    def _drop(self, peer: Peer, reason: str) -> None:
        peer.blame = peer.blame or reason
        peer.connection.close()

    # The machine

    def _report(self, event: broadcast.InEvent) -> None:
        """Tells the machine what happened, after whatever it is being told just now."""
        self._inbox.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._inbox:
                for out in self._machine.handle(self._inbox.popleft(), anyio.current_time()):
                    self._do(out)
        finally:
            self._handling = False

    def _do(self, event: broadcast.OutEvent) -> None:
        match event:
            case broadcast.SendInsert(peers, key, value):
                try:
                    self._queue(peers, self._encoder.insert(key, value))
                except EncodeError:
                    # Too large for a frame: who hears of the heads syncs.
                    self._plan_update(peers)
            case broadcast.SendUpdate(peers):
                self._plan_update(peers)
            case broadcast.Insert(delivery):
                self._deliveries.append(delivery)
                self._delivery_bytes += len(delivery.value)
                self._delivered.set()
            case broadcast.SetTimer(timer, at):
                self._timers[timer] = at
                heapq.heappush(self._order, (at, next(self._numbers), timer))
                self._timer_set.set()
            case broadcast.StartSync(peer=number):
                source = self._peers.get(_number(number))
                self._tasks.start_soon(self._syncs.run, event, source.connection if source is not None else None)
            case broadcast.StopSync(number):
                self._syncs.stop(number)
            case broadcast.Disconnect(number, reason):
                if (peer := self._peers.get(_number(number))) is not None:
                    self._drop(peer, reason)
            case broadcast.SyncStarted(number):
                self.tell(events.SyncStarted(self._name(number)))
            case broadcast.SyncProgress(number, inserted, statistics):
                self.tell(events.SyncProgressed(self._name(number), inserted, statistics))
            case broadcast.SyncOver(number, complete, inserted, refused, statistics, error):
                self.tell(events.SyncEnded(self._name(number), complete, inserted, refused, statistics, error))
            case broadcast.Publish() | broadcast.Validated():
                # There is no gossip on these connections.
                pass

    def _name(self, number: broadcast.PeerId) -> str:
        peer = self._peers.get(_number(number))
        return peer.name if peer is not None else "a peer that is gone"

    def _plan_update(self, peers: Sequence[broadcast.PeerId]) -> None:
        self._to_update.update((_number(number), None) for number in peers)
        self._update_due.set()

    async def _update(self) -> None:
        while True:
            await self._update_due.wait()
            self._update_due = anyio.Event()
            heads = await self._insist("reading the heads", lambda: self._threads.read(self.replica.heads))
            peers, self._to_update = self._to_update, {}
            self._queue(tuple(peers), self._encoder.update(heads))

    async def _expire(self) -> None:
        while True:
            now = anyio.current_time()
            while self._order and self._order[0][0] <= now:
                at, _, timer = heapq.heappop(self._order)
                if self._timers.get(timer) == at:
                    del self._timers[timer]
                    self._report(broadcast.TimerExpired(timer))
            with anyio.move_on_at(self._order[0][0] if self._order else float("inf")):
                await self._timer_set.wait()
            self._timer_set = anyio.Event()

    # The log

    async def _ingest(self, batch: Batch, count: int) -> Outcome:
        async with self._writing:
            outcome = await self._threads.write(self.replica.ingest, batch, count)
            self._own += [sequences for sequences in outcome.sequences if sequences]
        return outcome

    async def _insert(self) -> None:
        """Stores what was pushed, all that has come by then together."""
        while True:
            await self._delivered.wait()
            self._delivered = anyio.Event()
            deliveries = list(self._deliveries)
            judged = await self._judge(deliveries)
            for _ in deliveries:
                self._delivery_bytes -= len(self._deliveries.popleft().value)
            self._made_room.set()
            self._made_room = anyio.Event()
            for judgement in judged:
                self._report(judgement)

    async def _judge(self, deliveries: Sequence[Delivery]) -> Sequence[Judged]:
        try:
            batch, count = await self._threads.verify(self.replica.verify, [item.value for item in deliveries])
            outcome = await self._ingest(batch, count)
        except (CorruptLog, StorageError, Refused) as error:
            self._fail("storing what was pushed", error)
            return [Judged(delivery, Verdict.REFUSED) for delivery in deliveries]
        keys, invalid, inserted, orphans = batch.keys, dict(batch.invalid), set(outcome.inserted), dict(outcome.orphans)
        self._record.inserted("push", len(inserted))
        self._record.count(
            orphans=len(orphans), duplicates=outcome.duplicates, refused=len(outcome.refused), invalid=len(invalid)
        )
        judged: list[Judged] = []
        for index, delivery in enumerate(deliveries):
            if index in invalid:
                judged.append(Judged(delivery, Verdict.INVALID, reason=str(invalid[index])))
            elif keys[index] != delivery.key:
                judged.append(Judged(delivery, Verdict.INVALID, reason="its key is another message's"))
                if index in inserted:
                    # The message itself is valid, and the other peers' as much as any.
                    self._report(broadcast.Appended([(keys[index], delivery.value)]))
            elif index in orphans:
                judged.append(Judged(delivery, Verdict.ORPHAN, orphans[index]))
            elif index in outcome.refused:
                judged.append(Judged(delivery, Verdict.REFUSED))
            else:
                judged.append(Judged(delivery, Verdict.INSERTED if index in inserted else Verdict.DUPLICATE))
        # Parents are forwarded before what follows them.
        return sorted(judged, key=lambda judgement: judgement.delivery.key)

    async def _follow(self, cursor: int) -> None:
        """Tells the machine, and the application, of what others commit: other threads, and other processes."""
        while True:
            count = await self._news(cursor)
            if count <= cursor:
                continue
            # With the lock, the sequences of every transaction of ours are known.
            async with self._writing:
                others = list(_gaps(self._own, cursor, count))
                self._own = [own for own in self._own if own.stop > count + 1]
            cursor = count
            self._committed.set()
            self._committed = anyio.Event()
            self._record.inserted("append", sum(map(len, others)))
            if self._record.is_heard:
                self.tell(events.Committed(count, await self._insist("reading the root", self.root)))
            if self._peers:
                for sequences in others:
                    await self._forward(sequences)

    async def _forward(self, sequences: range) -> None:
        after = sequences.start - 1
        while after < sequences.stop - 1:
            limit = min(_PAGE, sequences.stop - 1 - after)
            rows = await self._arrivals(after, limit)
            messages = [read_stored(value, self.replica.topic) for _, value in rows]
            self._report(broadcast.Appended([(message.key, message.value) for message in messages]))
            after = rows[-1][0]

    async def _news(self, after: int) -> int:
        return await self._insist("following the log", lambda: self._threads.follow(self.replica.wait, after))

    async def _arrivals(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        return await self._insist(
            "reading new messages", lambda: self._threads.read(self.replica.arrivals, after, limit)
        )

    async def _insist(self, doing: str, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """A call that this driver cannot go on without: made again until the database answers.

        Raises:
            LogClosed: it never will.
            CorruptLog: likewise.
        """
        while True:
            try:
                return await call()
            except (CorruptLog, LogClosed):
                raise
            except StorageError as error:
                self._fail(doing, error)
            await anyio.sleep(_RETRY_SECONDS)

    async def _announce(self, cursor: int) -> None:
        """Hands every message to the application, once, in the order of arrival."""
        while self._on_message is not None:
            # Taken before the look: what is committed after it sets this one.
            committed = self._committed
            rows = await self._arrivals(cursor, _PAGE)
            for sequence, value in rows:
                self._on_message(read_stored(value, self.replica.topic))
                cursor = sequence
            if not rows:
                await committed.wait()

    # The application

    def _fail(self, doing: str, error: Exception) -> None:
        self.tell(events.Failed(doing, error))


def _number(peer: broadcast.PeerId) -> int:
    """The number that this driver has given a peer."""
    if not isinstance(peer, int):
        raise TypeError(f"{peer!r} is no number of a peer")
    return peer


def _gaps(own: Sequence[range], after: int, last: int) -> Iterator[range]:
    """The sequences after one, up to a last one, that are in none of the ranges."""
    start = after + 1
    for sequences in sorted(own, key=lambda sequences: sequences.start):
        if start < sequences.start:
            yield range(start, min(sequences.start, last + 1))
        start = max(start, sequences.stop)
    if start <= last:
        yield range(start, last + 1)
