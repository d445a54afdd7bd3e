"""The streams of a router to one peer, as libp2p's pubsub has them: each side writes on a stream that it has opened.

What is written waits in a queue of its own, so a peer that does not read holds up nobody. A queue holds `MAX_QUEUED`
bytes, all of them together `MAX_TOTAL_QUEUED`; what finds no room is not sent. A peer that takes nothing for
`WRITE_SECONDS` gets no gossip for a second. All of that is gossip, which a sync makes up for.

What is read is bounded by the frame: half of one is kept, and counts for its peer as what it sent and nobody read. What
is in frames beside messages is metered as a host meters it (rust/net/src/mesh/rate_limiter.rs): `CONTROL_BYTES` at
once, of which a sixteenth comes back each second. A packet counts as the work that it takes here, and so does a
message that the same peer has sent before, which a router asks for again at most now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio

from gossiplog.errors import ConnectionLost, NetworkError, ProtocolError, StreamReset
from gossiplog.net.routing.kinds import CHANGE_COST, DecodedFrame, RouterKind
from gossiplog.net.service import background
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.pacing import TimeSlice
from gossiplog.net.transport.stream import Signal, Stream
from gossiplog.protocol.wire import FrameReader

MAX_QUEUED = 8 * 2**20
"""Bytes that wait for a peer: two of the largest frames."""
MAX_TOTAL_QUEUED = 64 * 2**20
"""Bytes that wait for all peers together."""
WRITE_SECONDS = 10.0
"""How long a peer may take to read CHUNK bytes of gossip."""
CONTROL_BYTES = 16 * 2**20
"""Bytes beside messages, and of work, that a peer may cause at once."""
MAX_STREAMS = 16
"""Streams that a peer may open within STREAMS_SECONDS: one is enough, and each takes the place of the one before."""
STREAMS_SECONDS = 60.0
MAX_REMEMBERED = 2048
"""Messages of a peer, the latest, by which a repeated one is known."""
_CONTROL_SECONDS = 16.0
_CHUNK = 64 * 1024


class Allowance:
    """Bytes that may be spent, which come back with time.

    Args:
        limit: what may be spent at once.
        seconds: within which all of it comes back.
    """

    def __init__(self, limit: float, seconds: float) -> None:
        self._limit = limit
        self._rate = limit / seconds
        self._left = limit
        self._at = float("-inf")

    def spend(self, amount: float, now: float) -> bool:
        """Spend some; return whether there was enough."""
        if self._left < self._limit:
            self._left = min(self._limit, self._left + self._rate * (now - self._at))
        self._at = now
        self._left -= amount
        return self._left >= 0


class Budget:
    """Bytes that wait for all peers."""

    def __init__(self, limit: int = MAX_TOTAL_QUEUED) -> None:
        self.limit = limit
        self.queued = 0


class GossipSession:
    """What a router exchanges with one peer, as long as there is a connection.

    Args:
        name: of the peer.
        connection: to it.
        kind: of the router.
        budget: that the queues of all peers share.
        blame: is called with the rule that the peer broke; it is dropped.

    Attributes:
        name: of the peer.
        connection: to it.
        blame: as given.
        is_up: whether the router knows of it: a stream of this side is open.
        wanted: whether this side, or the peer, wants it to be up.
        refused_until: when it may be asked again, if it has refused to speak the protocol.
    """

    def __init__(
        self, name: str, connection: Connection, kind: RouterKind, budget: Budget, blame: Callable[[str], object]
    ) -> None:
        self.name = name
        self.connection = connection
        self.blame = blame
        self.is_up = False
        self.wanted = not kind.chooses_neighbours
        self.refused_until = float("-inf")
        self._kind = kind
        self._budget = budget
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._inbound: Stream | None = None
        self._outbound: Stream | None = None
        self._control = Allowance(CONTROL_BYTES, _CONTROL_SECONDS)
        self._streams = Allowance(MAX_STREAMS, STREAMS_SECONDS)
        # Hashes of what the peer sent, the oldest first.
        self._received: dict[int, None] = {}
        self._changed = Signal()
        self._closing = False
        self._ended = False

    @property
    def has_inbound(self) -> bool:
        """Whether the peer has a stream open."""
        return self._inbound is not None

    def want(self) -> None:
        """Have the session come up."""
        self.wanted = True
        self._changed.set()

    def close(self) -> None:
        """End the session after what is queued; nothing more is taken."""
        self._closing = True
        self._changed.set()

    def abort(self) -> None:
        """End the session at once; what is queued is not sent, nor the rest of what is being sent."""
        self._ended = True
        self._changed.set()
        if self._outbound is not None:
            # A peer that does not read would hold it up.
            self._outbound.reset()

    def queue(self, data: bytes) -> bool:
        """Queue frames for the peer; return False if there is no room."""
        size = len(data)
        # One may always wait, however large it is.
        is_full = self._queued and self._queued + size > MAX_QUEUED
        if self._closing or self._ended or is_full or self._budget.queued + size > self._budget.limit:
            return False
        self._queue.append(data)
        self._queued += size
        self._budget.queued += size
        self._changed.set()
        return True

    async def wait_wanted(self, until: float) -> None:
        """Wait until the session is wanted, and not before a time."""
        await anyio.sleep_until(until)
        while not self.wanted:
            await self._changed.wait()

    async def open(self) -> Stream | None:
        """Open a stream to the peer; return None if it speaks none of the router's protocols.

        Raises:
            ConnectionLost: the connection has ended.
        """
        for protocol in self._kind.protocols:
            try:
                return await self.connection.open_stream(protocol)
            except ConnectionLost:
                raise
            except NetworkError:
                # Refused, or not agreed on in time; or there are too many streams.
                pass
        return None

    def accept(self, stream: Stream, now: float) -> None:
        """Take a stream that the peer has opened, in the place of the last one."""
        if not self._streams.spend(1, now):
            stream.reset()
            self.blame(f"it opened more than {MAX_STREAMS} streams for gossip within {STREAMS_SECONDS:g} s")
            return
        if self._inbound is not None:
            self._inbound.reset()
        self._inbound = stream
        self.want()

    def refuse(self) -> None:
        """Let go of the stream that the peer has opened: it speaks nothing that this side could answer in."""
        if self._inbound is not None:
            self._inbound.reset()
            self._inbound = None

    def begin(self) -> None:
        """Note that a stream is open, and the router knows."""
        self.is_up = True
        self.wanted = not self._kind.chooses_neighbours
        self._closing = self._ended = False

    def end(self) -> None:
        """Note that the session has ended; what waited is gone."""
        self.is_up = False
        self._budget.queued -= self._queued
        self._queue.clear()
        self._queued = 0
        self.refuse()

    async def write(self, stream: Stream) -> None:
        """Write what is queued to a stream, until the session is closed or aborted.

        Raises:
            StreamReset: the peer has reset the stream, or reads too slowly.
            ConnectionLost: the connection has ended.
        """
        self._outbound = stream
        try:
            async with stream, background() as tasks:
                tasks.start_soon(_watch, stream)
                await self._write_queue(stream)
        except StreamReset:
            if not self._ended:
                raise
        finally:
            self._outbound = None

    async def _write_queue(self, stream: Stream) -> None:
        while not self._ended:
            if not self._queue:
                if self._closing:
                    return
                await self._changed.wait()
                continue
            data = self._queue.popleft()
            try:
                for start in range(0, len(data), _CHUNK):
                    if self._ended:
                        return
                    with anyio.fail_after(WRITE_SECONDS):
                        await stream.send(data[start : start + _CHUNK])
            except TimeoutError:
                raise StreamReset(f"the peer took none of what was written for {WRITE_SECONDS:g} s") from None
            finally:
                self._queued -= len(data)
                self._budget.queued -= len(data)

    async def read(self, take: Callable[[DecodedFrame], object]) -> None:
        """Read the peer's streams, one after the other; return at the end of one where the router asks for sessions.

        Args:
            take: is called with what comes.

        Raises:
            ConnectionLost: the connection has ended.
        """
        while not self._ended:
            while (stream := self._inbound) is None:
                await self._changed.wait()
            # Reset by the peer, or for one that takes its place.
            with suppress(StreamReset):
                await self._read(stream, take)
            if self._inbound is stream:
                self._inbound = None
                stream.reset()
                if self._kind.chooses_neighbours:
                    return

    async def _read(self, stream: Stream, take: Callable[[DecodedFrame], object]) -> None:
        frames, time_slice = FrameReader(self._kind.max_frame), TimeSlice()
        while data := await stream.receive():
            frames.feed(data)
            stream.reserve_memory(frames.held)
            try:
                while (frame := frames.next()) is not None:
                    received = self._kind.decode(frame)
                    cost = received.cost + self._note_repeats(received.messages)
                    if not self._control.spend(cost, anyio.current_time()):
                        raise ProtocolError(f"it said more beside messages than it may: {CONTROL_BYTES} bytes at once")
                    take(received)
                    await time_slice.rest()
            except ProtocolError as error:
                self.blame(f"it broke the protocol of gossip: {error}")
                return
            stream.reserve_memory(frames.held)

    def _note_repeats(self, messages: Sequence[bytes]) -> int:
        """Return what those of a peer's messages cost that it has sent before."""
        cost = 0
        for data in messages:
            # Keyed anew in each process, so nobody finds two messages with one.
            key = hash(data)
            if key in self._received:
                cost += CHANGE_COST + len(data)
            else:
                self._received[key] = None
                if len(self._received) > MAX_REMEMBERED:
                    del self._received[next(iter(self._received))]
        return cost


async def _watch(stream: Stream) -> None:
    """Wait until the peer resets a stream that this side writes on; what it writes there is passed over."""
    while await stream.receive():
        pass
