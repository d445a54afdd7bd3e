"""Push streams over a network: what peers push goes into the log, and what the log gets is pushed to peers.

A hub's client opens one stream, and its end is the end of the connection. Two peers of a mesh may dial each other at
once, so that each opens one, or neither, if each took the other for the dialer; nor does one of two connections take
the peer along when it ends. So of peers that gossip reaches all streams are read, whatever waits for one goes out on
any, and a peer that has none for some seconds opens one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.abc

from gossiplog.errors import EncodeError, NetworkError, StorageError, StreamRefused, StreamReset
from gossiplog.log.replica import Replica
from gossiplog.net.replicator.change_feed import ChangeFeed
from gossiplog.net.replicator.inserts import InsertQueue
from gossiplog.net.replicator.lookups import Lookups
from gossiplog.net.replicator.sessions import READ_SECONDS, PeerSession
from gossiplog.net.replicator.sync import Report, collect
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.service import background
from gossiplog.net.transport.pacing import TimeSlice
from gossiplog.net.transport.stream import CHUNK, Stream
from gossiplog.protocol import push
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import Delivery
from gossiplog.protocol.push import Push

OPENING_SECONDS = 5.0
"""Without a push stream to or from a peer that gossip reaches, after which this side opens one."""
_LONGEST_PAUSE = 60.0
"""Between attempts to open one, which double each time."""
_READ_AT_ONCE = 2**14
"""Bytes of frames whose reading takes less time than a thread takes to wake."""


class Pushes:
    """The push streams of one log.

    Args:
        workers: to run on.
        inserts: takes what is pushed.
        report: is called with what peers send, and with those that fall behind.
        fail: is called with what goes wrong on this side.
        joined: is called at a peer's first stream.
        refused: called for a peer that gossip reaches and that refuses a stream.

    Attributes:
        lookups: which keys the log has.
    """

    def __init__(
        self,
        replica: Replica,
        workers: WorkerPool,
        feed: ChangeFeed,
        inserts: InsertQueue,
        report: Report,
        fail: Callable[[str, Exception], None],
        joined: Callable[[PeerSession], None],
        refused: Callable[[PeerSession, StreamRefused], None],
    ) -> None:
        self._replica = replica
        self._workers = workers
        self.lookups = Lookups(replica, workers)
        self._feed = feed
        self._inserts = inserts
        self._report = report
        self._fail = fail
        self._joined = joined
        self._refused = refused
        self._encoder = Push()
        self._to_update: dict[PeerSession, None] = {}
        self._update_due = anyio.Event()

    # Writing

    def insert(self, peers: Sequence[PeerSession], key: bytes, value: bytes) -> None:
        """Queue a message to be pushed to peers; where it is too large, queue the heads."""
        try:
            self._queue(peers, self._encoder.insert(key, value))
        except EncodeError:
            self.update(peers)

    def update(self, peers: Sequence[PeerSession]) -> None:
        """Schedule a push of the heads to peers, as they will be when they have been read."""
        self._to_update.update(dict.fromkeys(peers))
        self._update_due.set()

    def forget(self, peer: PeerSession) -> None:
        """Forget a peer that is gone."""
        self._to_update.pop(peer, None)

    async def run(self) -> None:
        """Announce the heads to peers when it is time to, without end."""
        while True:
            await self._update_due.wait()
            self._update_due = anyio.Event()
            heads = await self._feed.retry_until_available(
                "reading the heads", lambda: self._workers.read(self._replica.heads)
            )
            peers, self._to_update = self._to_update, {}
            self._queue(tuple(peers), self._encoder.update(heads))

    def _queue(self, peers: Sequence[PeerSession], data: bytes) -> None:
        for peer in peers:
            if peer.queue(data):
                self._report(broadcast.PeerBehind(peer.number))

    # Streams

    async def keep(self, peer: PeerSession, protocol: str, *, at_once: bool) -> None:
        """Open streams to a peer that gossip reaches, whenever there has been none for a while.

        Args:
            peer: to open them to.
            protocol: that they speak.
            at_once: whether to open the first now, as the dialer does.
        """
        pause = 0.0 if at_once else OPENING_SECONDS
        while True:
            with anyio.move_on_after(pause):
                while not peer.pushes:
                    await peer.changed.wait()
            if not peer.pushes:
                try:
                    stream = await peer.connection.open_stream(protocol)
                except NetworkError as error:
                    if isinstance(error, StreamRefused):
                        self._refused(peer, error)
                    # The peer does not speak the log's protocols, or not yet; or the connection ends.
                    pause = min(max(2 * pause, OPENING_SECONDS), _LONGEST_PAUSE)
                    continue
                await self.exchange(peer, stream)
            while peer.pushes:
                await peer.changed.wait()
            pause = OPENING_SECONDS

    async def exchange(self, peer: PeerSession, stream: Stream) -> None:
        """Read and write a push stream to its end; the peer joins with its first."""
        if peer.joined and not peer.gossips:
            stream.reset()
            peer.blame("it opened a second push stream")
            return
        if peer.joined:
            # Something may have been under way on another that has ended.
            self.update([peer])
        else:
            peer.joined = True
            self._joined(peer)
        peer.pushes += 1
        peer.changed.set()
        is_ended = False
        try:
            async with stream, background() as tasks:
                tasks.start_soon(peer.write, stream, lambda: self._report(broadcast.PeerCaughtUp(peer.number)))
                machine = Push()
                while not peer.blamed_for and (data := await stream.receive()):
                    await self._read(peer, stream, machine, data)
                is_ended = not peer.blamed_for
        except StreamReset:
            is_ended = not peer.blamed_for
        except NetworkError:
            # The connection's end says why.
            pass
        finally:
            peer.pushes -= 1
            peer.changed.set()
            if peer.pushes:
                # What was under way on this one may not have come.
                self.update([peer])
        if not peer.gossips:
            peer.farewell = peer.farewell or is_ended
            peer.connection.close()

    async def _read(self, peer: PeerSession, stream: Stream, machine: Push, data: bytes) -> None:
        """Queue what a peer pushed; report only the keys of what finds no room in time, so that a sync brings it."""
        due = anyio.current_time() + READ_SECONDS * len(data) / CHUNK
        if len(data) > _READ_AT_ONCE:
            found, violation = await self._workers.read(collect, machine.receive(data))
        else:
            found, violation = collect(machine.receive(data))
        stream.reserve_memory(
            machine.held + sum(len(event.value) for event in found if isinstance(event, push.Deliver))
        )
        time_slice, late = TimeSlice(), list[bytes]()
        for event in found if peer.may_write else ():
            await time_slice.rest()
            match event:
                case push.Deliver(key, value):
                    if await self._inserts.room(peer.writer, due):
                        self._report(broadcast.Received(Delivery(peer.number, key, value)))
                    else:
                        late.append(key)
                case push.Heads():
                    await self._look_up(peer, event)
        if late:
            self._report(broadcast.HeadsReceived(peer.number, tuple(late), 0))
        # What still waits is bounded by the writer's queue, and is not counted: reading goes on when the time is up.
        await self._inserts.room(peer.writer, due)
        stream.reserve_memory(machine.held)
        if violation is not None:
            peer.blame(f"it broke the push protocol: {violation}")

    async def _look_up(self, peer: PeerSession, heads: push.Heads) -> None:
        """Report which of a peer's heads the log lacks."""
        try:
            unknown = push.unknown_heads(heads, await self.lookups.known(heads.keys))
        except StorageError as error:
            self._fail(f"looking up what {peer.name} has", error)
            # A sync finds out, as soon as the log can be read.
            unknown = push.Heads((), 1)
        if unknown is not None:
            self._report(broadcast.HeadsReceived(peer.number, unknown.keys, unknown.unchecked))
        peer.has_named_heads = True
