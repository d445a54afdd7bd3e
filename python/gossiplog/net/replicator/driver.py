"""Drives the broadcast machine of one log over connections: the one place where protocol, log and network meet.

The machine (`protocol.broadcast`) decides about messages; a driver reads streams, runs the log's calls on worker
threads, keeps the timers, and notifies the machine of what happened. Messages that peers push (`push`) or publish
(`gossip`) go into the log by `inserts`, those of a sync by `sync`, both through `log_writer`; `change_feed` reports
what others commit to it.

Nothing here waits for a peer that does not read: what is pushed to one waits in a queue of its own, and when that is
long the machine learns that the peer is behind (its rule 10). No peer is read from faster than the log takes it.

What this package raises on a peer's input, and should not, ends that peer's connection (`defects`); when it was the
machine that raised, another takes its place (`machine`).
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from random import Random

import anyio
import anyio.abc

from gossiplog.core import Batch, GossipValidator, Node, SignedMessage
from gossiplog.errors import (
    ConnectionLost,
    CorruptLog,
    EncodeError,
    NetworkError,
    ProtocolError,
    StorageError,
)
from gossiplog.log import Log
from gossiplog.log.log import replica_of
from gossiplog.log.replica import Replica
from gossiplog.net import events
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.defects import TOO_MANY, DefectFound, Defects
from gossiplog.net.replicator.fairness import MESH, Shares
from gossiplog.net.replicator.gossip import NOBODY, GossipAdapter
from gossiplog.net.replicator.inserts import InsertQueue
from gossiplog.net.replicator.log_writer import LogWriter
from gossiplog.net.replicator.machine import SharedMachine
from gossiplog.net.replicator.mesh_peers import GossipStreams, MeshPeers
from gossiplog.net.replicator.push import Pushes
from gossiplog.net.replicator.refusals import Refusals
from gossiplog.net.replicator.sessions import PeerSession
from gossiplog.net.replicator.sync import Syncs, query_root, serve_sync
from gossiplog.net.replicator.telemetry import NetworkCounters, Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.service import Service, background
from gossiplog.net.timers import Timers
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.host import Publication, Router
from gossiplog.net.transport.stream import Signal, Stream
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.protocol.sync import SyncServerConfig
from gossiplog.protocol.wire import DAMAGED, UNWRITABLE, Protocols
from gossiplog.replication.batches import NOT_MARKED, VerifiedBatch
from gossiplog.replication.verdicts import accepted_deliveries

# Seconds between checks of `synced`: few at first, because small logs are quick.
_FIRST_CHECK, _LAST_CHECK = 0.02, 1.0
_AT_ONCE_SECONDS = 2.0
"""Within which a peer closes a connection that it does not let in; one that nobody uses stands for longer."""
_RESUMPTION_SECONDS = 2.0
"""Within which a peer whose sync was aborted begins another, if it does so by itself."""


class Driver(Service):
    """Replicates one log with the peers that it is connected to, for the time of its context, which is entered once.

    When the log is closed or found damaged meanwhile, or a function of the application's raises, the context ends with
    that exception. A database that fails is tried again.

    Args:
        log: to replicate.
        broadcast: limits and delays of the broadcast machine.
        sync_server: limits of the sync streams that are served.
        push_timeout: seconds in which a peer must have opened its push stream.
        router: of gossip, for peers that it reaches (see `exchange`); None where there are none.
        gossip_streams: the router's, which it has with peers that it reaches; None where another layer has them.
        validator: with which the router accepts messages before they are stored; None where it accepts none.
        rebase_command: returns the command that rebases the log without what a peer refuses; "" if there is none.
        topics_of: returns the topics of which a peer of a mesh exchanges messages; None before it has said so.
        random: for the jitter of delays.
        on_event: is called with what happens, in order, on the event loop; it must not block.
        on_message: is called with each message that the log gets, once, in the order of arrival; likewise.

    Attributes:
        protocols: that peers of the log speak.
        peers_changed: set when a peer has joined or left.
        telemetry: counts, and notifies the application; also of what those know who carry the connections.
        defects: reports this package's own; likewise.
        refusals: names what is refused, in both directions.

    Examples:
        >>> from gossiplog.lowlevel import Driver, driver_of
        >>> async def main():
        ...     async with gossiplog.Peer(log) as peer:
        ...         print(isinstance(driver_of(peer), Driver))
        >>> anyio.run(main)
        True
    """

    def __init__(
        self,
        log: Log,
        *,
        broadcast: BroadcastConfig | None = None,
        sync_server: SyncServerConfig | None = None,
        push_timeout: float = 30.0,
        router: Router | None = None,
        gossip_streams: GossipStreams | None = None,
        validator: GossipValidator | None = None,
        rebase_command: Callable[[PeerSession], str] = lambda peer: "",
        topics_of: Callable[[str], Sequence[str] | None] = lambda name: None,
        random: Random | None = None,
        on_event: Callable[[events.Event], None] | None = None,
        on_message: Callable[[SignedMessage], None] | None = None,
    ) -> None:
        super().__init__()
        self.replica: Replica = replica_of(log)
        self.protocols: Protocols = Protocols(log.topic)
        self.peers_changed: Signal = Signal()
        self._sync_server = sync_server or SyncServerConfig()
        self._push_timeout = push_timeout
        self.telemetry: Telemetry = Telemetry(on_event, self.replica.argument)
        self._workers = WorkerPool()
        self._feed = ChangeFeed(
            self.replica, self._workers, self.telemetry, self._report, lambda: bool(self._peers), on_message, validator
        )
        self._validator = validator
        self._writer = LogWriter(self.replica, self._workers, self.telemetry, self._feed)
        self._shares = Shares()
        self._numbers = itertools.count(1)
        # All that are being exchanged with, and those of them that have a push stream.
        self._sessions: dict[int, PeerSession] = {}
        self._peers: dict[int, PeerSession] = {}
        self._by_connection: dict[Connection | None, int] = {}
        self.refusals: Refusals = Refusals(
            self.replica, self._workers, self.telemetry, self.protocols.refusals, self._sessions, rebase_command
        )
        self._inserts = InsertQueue(
            self._writer.insert_values,
            self._shares,
            self.telemetry,
            self._report,
            self._unjudged,
            self._name,
            is_read=lambda: len(self._peers) > 1,
            note=lambda peers, outcome: self.refusals.note([_number(peer) for peer in peers], outcome),
        )
        self.defects: Defects = Defects(self.telemetry, self._sessions)
        self._mesh = MeshPeers(gossip_streams, topics_of, self.protocols.topic, self.telemetry, self.defects)
        self._pushes = Pushes(
            self.replica,
            self._workers,
            self._feed,
            self._inserts,
            self._report_pushed,
            self._fail,
            self._join,
            self._mesh.note_refusal,
        )
        self._gossip: GossipAdapter | None = None
        if router is not None:
            self._gossip = GossipAdapter(
                router, self._workers, partial(self._inserts.room, MESH), self._report, self._unread, self.telemetry
            )
        self._syncs = Syncs(
            self.replica,
            self._workers,
            self._writer.insert,
            self._shares,
            self._report,
            self._fail,
            self._unsynced,
            self.telemetry,
            self.refusals,
        )
        make_machine = partial(Broadcast, random or Random(), broadcast, itertools.count(1))
        self._machine = SharedMachine(
            make_machine,
            self._do,
            self.defects,
            members=lambda: self.peers,
            start_over=self._start_over,
            update_all=self._update_all,
            pass_over=self._pass_over,
            give_up=self._give_up,
        )
        self._timers = Timers(self._expire)
        self._tasks: anyio.abc.TaskGroup
        self._is_open = False
        # Sync streams that are being served.
        self._serving = 0
        self._session_ended = Signal()

    async def _start(self, stack: AsyncExitStack) -> None:
        count = await self._workers.read(self.replica.count)
        if self._validator is not None:
            # Most messages follow the heads, or what follows them.
            self._validator.stored(await self._workers.read(self.replica.heads))
        stack.callback(self.telemetry.flush)
        stack.callback(self._workers.report_unfinished, self._fail)
        self._tasks = await stack.enter_async_context(background())
        stack.push_async_callback(self._end_sessions)
        for task in (self._feed.follow, self._feed.deliver, self._feed.report_commits):
            self._tasks.start_soon(task, count)
        self._tasks.start_soon(self._workers.watch, self._fail)
        if not self.replica.write_refusal:
            self._tasks.start_soon(self._writer.write_index)
        for loop in (
            self._writer.retry,
            self._writer.watch_files,
            self._pushes.run,
            self._timers.run,
            self.telemetry.run,
        ):
            self._tasks.start_soon(loop)
        for long in (False, True):
            self._tasks.start_soon(partial(self._inserts.run, long=long))
        if self._gossip is not None:
            self._tasks.start_soon(self._gossip.run)
        self._is_open = True
        stack.callback(self.begin_shutdown)

    def begin_shutdown(self) -> None:
        """Prepare for the end of the context.

        Calls of the log that do not return within seconds are left to themselves.
        """
        self._workers.end()

    async def _end_sessions(self) -> None:
        self._is_open = False
        for peer in self._sessions.values():
            peer.scope.cancel()
        # They run in tasks of others, and what they report at their end still needs this driver's own.
        with anyio.CancelScope(shield=True):
            while self._sessions:
                await self._session_ended.wait()

    @property
    def peers(self) -> Sequence[PeerSession]:
        """Those that are connected now."""
        return tuple(self._peers.values())

    async def exchange(
        self,
        connection: Connection,
        name: str,
        *,
        dialer: bool,
        may_write: bool = True,
        gossips: bool = False,
        origin: str = "",
        culprit: str = "",
    ) -> str:
        """Exchange messages with a peer until the connection ends.

        Args:
            connection: to the peer.
            name: that people know the peer by.
            dialer: whether this side made the connection, and so opens the push stream.
            may_write: whether to take messages from the peer; what one sends that may not is passed over.
            gossips: whether the router of gossip brings the peer messages, so that they are not pushed to it.
            origin: by which the peer is recognised when it comes back; its name, if empty.
            culprit: who is not let in after defects, where that is only a part of the origin; else empty.

        Returns:
            The rule that the peer broke, which may be to bring too many defects of this side to light; "" if the
            connection ended otherwise.

        Raises:
            NetworkError: the peer does not speak the protocols of this log, or has brought a defect to light.
        """
        if not self._is_open:
            raise NetworkError("the log is no longer replicated")
        origin = origin or name
        began = anyio.current_time()
        peer = PeerSession(next(self._numbers), name, connection, may_write, gossips, origin, culprit, began=began)
        if any(map(self.defects.bans, (peer.origin, peer.culprit))):
            self.telemetry.refused(name, "banned", TOO_MANY)
            return TOO_MANY
        self._sessions[peer.number] = peer
        self._by_connection[connection] = peer.number
        connection.watch(partial(self._note, peer))
        try:
            with peer.scope:
                await self._converse(peer, dialer)
        except ConnectionLost as error:
            # The connection itself may not know yet.
            if error.cause == "violation":
                peer.blamed_for = peer.blamed_for or error.reason
            raise
        except BaseException as error:
            if not self.defects.catch("push", peer.number, "exchanging messages with it", error):
                raise
        finally:
            self._leave(peer, dialer)
        if peer.scope.cancelled_caught:
            raise NetworkError("this side has stopped")
        if peer.fault and not peer.blamed_for:
            raise DefectFound(peer.fault)
        return peer.blamed_for

    async def _converse(self, peer: PeerSession, dialer: bool) -> None:
        opens = dialer and not peer.gossips
        stream = await peer.connection.open_stream(self.protocols.push) if opens else None
        async with background() as tasks:
            peer.tasks = tasks
            if stream is not None:
                tasks.start_soon(self._pushes.exchange, peer, stream)
            elif peer.gossips:
                tasks.start_soon(partial(self._pushes.keep, peer, self.protocols.push, at_once=dialer))
            else:
                tasks.start_soon(self._expect_push, peer)
            if peer.gossips:
                self._mesh.start(peer, tasks)
            tasks.start_soon(self._accept, peer, tasks)
            try:
                await peer.connection.wait_closed()
            finally:
                peer.tasks = None

    def _join(self, peer: PeerSession) -> None:
        self._peers[peer.number] = peer
        self.peers_changed.set()
        self.telemetry.emit(events.Connected(peer.name))
        self._report(broadcast.PeerConnected(peer.number, peer.gossips))

    def _note(self, peer: PeerSession, kind: str, count: int, text: str) -> None:
        peer.noted = True
        self.telemetry.incident(peer.name, kind, count, text)

    def _leave(self, peer: PeerSession, dialer: bool) -> None:
        closed = peer.connection.closed
        if closed is not None and closed.cause == "violation":
            peer.blamed_for = peer.blamed_for or closed.reason
        if closed is not None and closed.cause == "internal":
            error = ConnectionLost(closed.cause, closed.reason, closed.status)
            self.defects.report("connection", peer.number, "carrying its bytes", error)
        is_quick = anyio.current_time() - peer.began < _AT_ONCE_SECONDS
        is_closed = closed is not None and closed.cause in ("remote", "transport")
        is_untouched = not (peer.joined or peer.served or peer.noted or peer.scope.cancel_called)
        is_turned_away = dialer and peer.gossips and is_untouched and is_quick and is_closed
        if peer.blamed_for:
            self.telemetry.dropped(peer.name, peer.blamed_for)
        elif closed is not None and closed.cause == "overload":
            self.telemetry.incident(peer.name, "overloads", 1, closed.reason)
        elif is_untouched and not (dialer or peer.gossips):
            # It may have been refused a stream of another topic, which is not reported if it leaves at once.
            text = f"it left without opening {self.protocols.push}, a stream of this log: its topic may be another"
            self.telemetry.incident(peer.name, "left_at_once", 1, text)
        elif is_turned_away:
            text = (
                "it closed the connection at once: it may not let this peer in (`allow_peers`, --allow-peer), have"
                " blocked it, or have no room"
            )
            self.telemetry.incident(peer.name, "closed_at_once", 1, text, repeats=False)
        del self._sessions[peer.number], self._by_connection[peer.connection]
        self.defects.leave(peer)
        self._session_ended.set()
        if self._peers.pop(peer.number, None) is None:
            if peer.blamed_for:
                self.telemetry.emit(events.Rejected(peer.name, peer.blamed_for))
        else:
            self.peers_changed.set()
            self._syncs.forget(peer.number)
            self._pushes.forget(peer)
            self._report(broadcast.PeerDisconnected(peer.number))
            reason = peer.blamed_for or peer.fault
            if not reason and (closed is None or peer.scope.cancel_called):
                reason = "this side ended the connection"
            elif not reason and closed is not None:
                # After a farewell it is chance whether this side or the end of the bytes is seen first.
                is_plain = peer.farewell and closed.cause in ("local", "transport")
                reason = "the peer closed the connection" if is_plain else closed.reason
            self.telemetry.emit(events.Disconnected(peer.name, reason, bool(peer.blamed_for)))

    def leave(self, connection: Connection) -> None:
        """End the exchange over a connection."""
        for peer in self._sessions.values():
            if peer.connection is connection:
                peer.scope.cancel()

    def note_farewell(self, connection: Connection) -> None:
        """Note that a peer ends the connection in order, by a word of the layer that carries the connection's bytes."""
        for peer in self._sessions.values():
            if peer.connection is connection:
                peer.farewell = True

    def blame(self, connection: Connection, reason: str) -> None:
        """Drop a peer that broke a rule of the layer that carries the connection's bytes."""
        for peer in self._sessions.values():
            if peer.connection is connection:
                peer.blame(reason)

    async def root_of(self, peer: PeerSession) -> Node | None:
        """Return the root of a peer's log, None if it is too busy to say. Logs with equal roots hold the same messages.

        Raises:
            NetworkError: the peer does not answer.
            ProtocolError: what it answers is none; it is dropped.
        """
        try:
            return await query_root(peer.connection, self.protocols.sync)
        except ProtocolError as error:
            peer.blame(f"it broke the sync protocol: {error}")
            raise
        except BaseException as error:
            if not self.defects.catch("sync", peer.number, "asking it for its root", error):
                raise
            raise NetworkError(peer.fault) from error

    async def drain(self) -> None:
        """Wait until the syncs that are under way have ended, and the application was notified."""
        await self._syncs.drain()
        self.telemetry.flush()

    @property
    def skipped(self) -> Collection[bytes]:
        """Keys of peers' messages that this log's application refuses, or that descend from such messages."""
        return self._machine.skipped

    @property
    def is_idle(self) -> bool:
        """Whether no sync runs in either direction, and peers have advertised nothing that needs one."""
        return self.has_all and not self._serving

    @property
    def has_all(self) -> bool:
        """Whether no sync brings messages, and peers have advertised nothing that needs one."""
        return self._machine.is_idle

    async def root(self) -> Node:
        """Return the root of the log."""
        return await self._feed.root()

    async def committed(self) -> None:
        """Wait until messages are committed to the log."""
        await self._feed.committed()

    async def synced(self, is_in_step: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a condition on the peers' logs holds, the syncs have ended, and the application was notified.

        The condition is checked after each commit, and now and then: peers do not acknowledge what is pushed to them.
        """
        pause = _FIRST_CHECK
        while not await is_in_step():
            with anyio.move_on_after(pause):
                await self.committed()
            pause = min(2 * pause, _LAST_CHECK)
        await self.drain()

    @property
    def unready(self) -> str:
        """Why `/readyz` answers 503; "" if it does not."""
        if self.telemetry.damage:
            return f"{DAMAGED}: {self.telemetry.damage}"
        reason = self.telemetry.cannot_store or self.telemetry.file_fault
        return f"{UNWRITABLE}: {reason}" if reason else ""

    @property
    def counters(self) -> NetworkCounters:
        """What was counted so far."""
        return self.telemetry.counters

    # Streams

    async def _expect_push(self, peer: PeerSession) -> None:
        await anyio.sleep(self._push_timeout)
        if not peer.joined:
            peer.blame(f"it opened no push stream within {self._push_timeout:g} s")

    async def _accept(self, peer: PeerSession, tasks: anyio.abc.TaskGroup) -> None:
        async for protocol, stream in peer.connection:
            if protocol == self.protocols.push:
                tasks.start_soon(self._pushes.exchange, peer, stream)
            elif protocol == self.protocols.refusals:
                tasks.start_soon(self._hear_refusals, peer, stream)
            elif protocol in self._mesh.protocols:
                self._mesh.accept(peer, stream)
            else:
                tasks.start_soon(self._serve, peer, stream)

    async def _hear_refusals(self, peer: PeerSession, stream: Stream) -> None:
        try:
            await self.refusals.read(peer, stream)
        except BaseException as error:
            if not self.defects.catch("refusals", peer.number, "reading what it refuses", error):
                raise

    async def _serve(self, peer: PeerSession, stream: Stream) -> None:
        if anyio.current_time() < peer.served_from:
            # canvas-js comes again at once after an Abort, whatever cooldown the Abort has, but not after this.
            stream.reset()
            return
        peer.served += 1
        self._serving += 1
        served = peer.served

        def note(messages: int, size: int) -> None:
            peer.note_served(messages)
            self.telemetry.emit(events.Served(peer.name, messages, size, served))

        try:
            aborted = await serve_sync(
                stream,
                self.replica,
                self._workers,
                self._sync_server,
                blame=peer.blame,
                served=note,
                fruitless=lambda: peer.note_fruitless(anyio.current_time()),
                pause=peer.next_pause,
            )
        except (CorruptLog, StorageError) as error:
            self._fail(f"serving {peer.name}", error)
            return
        except BaseException as error:
            if not self.defects.catch("serving", peer.number, "answering it", error):
                raise
            return
        finally:
            self._serving -= 1
        if aborted:
            await anyio.sleep_until(max(anyio.current_time() + _RESUMPTION_SECONDS, peer.served_from))
            if served == peer.served:
                self._report(broadcast.ServingAborted(peer.number))

    async def take_gossip(self, publications: Sequence[Publication]) -> None:
        """Take messages that the router holds back, as fast as the log does; the router will be answered."""
        if self._gossip is None:
            raise RuntimeError("a driver without a router takes no gossip")
        await self._gossip.take(publications, self._by_connection)

    def store_accepted_at_once(self, batch: Batch, sources: Sequence[Connection | None]) -> bool:
        """Store what the validator has accepted, if nothing has to be waited for; return whether that is done.

        Args:
            batch: the messages.
            sources: as `store_accepted` takes them.
        """
        if self._validator is None or not self._is_open:
            return False
        is_stored = self._inserts.store_at_once(
            self._accepted_deliveries(batch, sources),
            lambda: self._writer.insert_at_once(VerifiedBatch(batch, NOT_MARKED)),
        )
        if is_stored:
            self._validator.finish(batch)
        return is_stored

    async def store_accepted(self, batch: Batch, sources: Sequence[Connection | None]) -> None:
        """Store what the validator has accepted.

        Args:
            batch: the messages.
            sources: for each the connection to the peer that passed it on; None if that is gone.
        """
        if self._validator is None:
            raise RuntimeError("a driver without a validator of gossip stores nothing that one accepted")
        deliveries = self._accepted_deliveries(batch, sources)
        try:
            await self._inserts.store(deliveries, lambda: self._writer.insert(VerifiedBatch(batch, NOT_MARKED)))
        finally:
            self._validator.finish(batch)

    async def report_held(self, keys: Sequence[bytes]) -> None:
        """Report to the validator which of some messages the log holds; none if it cannot be read."""
        if self._validator is None:
            raise RuntimeError("a driver without a validator of gossip reports nothing to one")
        with suppress(StorageError):
            self._validator.stored([*await self._pushes.lookups.known(keys)])

    def _accepted_deliveries(self, batch: Batch, sources: Sequence[Connection | None]) -> Sequence[broadcast.Delivery]:
        return accepted_deliveries(batch, [self._by_connection.get(source, NOBODY) for source in sources])

    # The machine

    def _report(self, *happened: broadcast.InEvent) -> None:
        """Report to the machine what happened, after whatever is being reported just now."""
        self._machine.report(*happened)
        if self._gossip is not None:
            self._gossip.flush()

    def _report_pushed(self, event: broadcast.InEvent) -> None:
        """Report what came on a push stream, and name to the peer what is skipped of it."""
        if skipped := self._machine.skipped:
            match event:
                case broadcast.Received(delivery) if delivery.key in skipped:
                    self.refusals.name_again(_number(delivery.source), [delivery.key])
                case broadcast.HeadsReceived(peer, keys):
                    self.refusals.name_again(_number(peer), [key for key in keys if key in skipped])
        self._report(event)

    def _expire(self, timer: broadcast.Timer) -> None:
        self._report(broadcast.TimerExpired(timer))

    def _do(self, event: broadcast.OutEvent) -> None:
        match event:
            case broadcast.SendInsert(peers, key, value):
                self._pushes.insert(self._those(peers), key, value)
            case broadcast.SendUpdate(peers):
                self._pushes.update(self._those(peers))
            case broadcast.Publish(key, value):
                self._publish(key, value)
            case broadcast.GossipAnswered():
                if self._gossip is not None:
                    self._gossip.answer(event)
            case broadcast.Insert(delivery):
                source = self._peers.get(_number(delivery.source)) if delivery.ticket is None else None
                self._inserts.add(MESH if source is None else source.writer, delivery)
            case broadcast.SetTimer(timer, at):
                self._timers.set(timer, at)
            case broadcast.StartSync(peer=number):
                source = self._peers.get(_number(number))
                self._tasks.start_soon(self._syncs.run, event, source)
            case broadcast.StopSync(number):
                self._syncs.stop(number)
            case broadcast.Disconnect(number, reason):
                if (peer := self._peers.get(_number(number))) is not None:
                    peer.blame(reason)
            case broadcast.SyncStarted(number):
                self.telemetry.emit(events.SyncStarted(self._name(number)))
            case broadcast.SyncProgress(number, inserted, statistics):
                self.telemetry.emit(events.SyncProgressed(self._name(number), inserted, statistics))
            case broadcast.SyncOver(number, complete, inserted, refused, statistics, error, blamed):
                peer = self._peers.get(_number(number))
                is_dropped = blamed or (peer is not None and bool(peer.blamed_for))
                reasons = self.refusals.reasons(refused)
                name, skipped = self._name(number), len(refused)
                ended = events.SyncEnded(name, complete, inserted, skipped, statistics, error, reasons)
                self.telemetry.emit(ended, logged=is_dropped)

    def _name(self, number: broadcast.PeerId) -> str:
        return self.defects.name(_number(number)) or "a peer that is gone"

    def _those(self, numbers: Sequence[broadcast.PeerId]) -> list[PeerSession]:
        found = (self._peers.get(_number(number)) for number in numbers)
        return [peer for peer in found if peer is not None]

    def _publish(self, key: bytes, value: bytes) -> None:
        if self._gossip is None:
            return
        try:
            published = self._gossip.publish(key, value)
        except (EncodeError, NetworkError):
            published = False
        if not published:
            # Too large for gossip, or too much: peers that are sent the heads sync.
            self._pushes.update([peer for peer in self._peers.values() if peer.gossips])

    # Defects

    def _unjudged(self, delivery: broadcast.Delivery, error: BaseException | None) -> None:
        if error is not None:
            self.defects.catch("storing", _number(delivery.source) or None, "storing what it sent", error)
        self._pass_over(delivery)
        if self._gossip is not None:
            self._gossip.flush()

    def _unread(self, publication: Publication, error: BaseException) -> None:
        self.defects.catch("gossip", self._by_connection.get(publication.connection), "reading its gossip", error)

    def _unsynced(self, number: broadcast.PeerId, error: BaseException) -> None:
        self.defects.catch("sync", _number(number), "syncing with it", error)

    def _pass_over(self, delivery: broadcast.Delivery) -> None:
        if self._gossip is not None:
            self._gossip.answer(
                broadcast.GossipAnswered(delivery.source, delivery.ticket, broadcast.GossipAnswer.IGNORE)
            )
        # It may have been stored, and what came with it.
        self._update_all()

    def _update_all(self) -> None:
        """Advertise the heads to all peers: what the log got may not have been passed on."""
        self._pushes.update(self.peers)

    def _start_over(self, syncs: Sequence[int]) -> None:
        for number in syncs:
            self._syncs.stop(number)
        if self._gossip is not None:
            self._gossip.ignore_all()

    def _give_up(self, error: BaseException) -> None:
        self._tasks.start_soon(_raise, error)

    # The application

    def _fail(self, doing: str, error: Exception) -> None:
        self.telemetry.emit(events.Failed(doing, error))


async def _raise(error: BaseException) -> None:
    raise error


def _number(peer: broadcast.PeerId) -> int:
    """Return the number that this driver has given a peer."""
    if not isinstance(peer, int):
        raise TypeError(f"{peer!r} is no number of a peer")
    return peer
