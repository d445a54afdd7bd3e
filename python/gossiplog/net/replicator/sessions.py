"""A peer as the driver knows it: its connection, its push streams, and what waits to be pushed to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.abc

from gossiplog.net.replicator.fairness import MESH
from gossiplog.net.transport.connection import Connection
from gossiplog.net.transport.stream import CHUNK, Signal, Stream
from gossiplog.protocol.refusals import RefusalWriter
from gossiplog.reprs import short_repr

_MOST_WAITING = 2**20
"""Bytes that wait to be written to a peer before it counts as behind."""
_WRITE_SECONDS = 60.0
"""How long a peer may take to read CHUNK bytes of what is pushed to it."""
READ_SECONDS = _WRITE_SECONDS / 3
"""How long this side takes to read CHUNK bytes of what is pushed to it, at most; what gets no turn is synced."""
_FRUITLESS_AT_ONCE = 8
"""Fruitless sync streams in a row without a pause: a client may have to ask for half as much so often."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 600.0
"""After further ones. Each is twice the one before."""


@dataclass(slots=True, eq=False)
class PeerRefusals:
    """What this side refuses of what a peer has, and the peer of what this log has.

    Attributes:
        writer: of the frames that name what this side refuses.
        changed: set when there is more to name.
        is_writing: whether a stream was opened for that.
        is_read: whether the peer has opened its stream.
        reported: messages of this log that the peer says it refuses: the reasons by id.
        more: how many it refuses beside those that it named.
        reported_at: when it said so last.
    """

    writer: RefusalWriter = field(default_factory=RefusalWriter)
    changed: Signal = field(default_factory=Signal)
    is_writing: bool = False
    is_read: bool = False
    reported: dict[str, str] = field(default_factory=dict)
    more: int = 0
    reported_at: float = float("-inf")


@short_repr
@dataclass(slots=True, eq=False)
class PeerSession:
    """A peer that is being exchanged with.

    Attributes:
        number: that the machine knows it by.
        name: that people know it by.
        connection: to it.
        may_write: whether messages are taken from it.
        gossips: whether gossip brings it messages. Such peers may have several push streams, or none for a while: when
            two dial each other at once, each opens one, and one of two connections may end.
        joined: whether it has had a push stream.
        has_named_heads: whether it has said which heads its log has, and these were looked up.
        pushes: how many push streams it has now.
        waiting: what is to be written to it,
        size: in bytes.
        behind: whether that was much, and some of it still waits.
        served: how many of its sync streams were served.
        fruitless: how many of them ended in a row at a request without an answer, before it got a message.
        served_from: the time from which it is served again.
        queued: set when something waits.
        changed: set when a push stream has begun or ended.
        scope: of the exchange with it.
        origin: by which it is recognised when it comes back.
        culprit: who pays for what it does, where that is only a part of the origin; else empty.
        blamed_for: the rule that it broke; "" as long as it has not.
        fault: the defect of this side that its input brought to light; "" as long as there is none.
        farewell: whether it has ended its push stream, or the layer below it, in order.
        noted: whether the log has a line about its connection.
        refused: whether it has refused a push stream.
        tasks: of the exchange with it; None before and after.
        refusals: what one side refuses of what the other has.
        began: when the exchange with it did.
    """

    number: int
    name: str
    connection: Connection
    may_write: bool
    gossips: bool = False
    origin: str = ""
    culprit: str = ""
    joined: bool = False
    has_named_heads: bool = False
    pushes: int = 0
    waiting: deque[bytes] = field(default_factory=deque)
    size: int = 0
    behind: bool = False
    served: int = 0
    fruitless: int = 0
    served_from: float = 0.0
    queued: anyio.Event = field(default_factory=anyio.Event)
    changed: Signal = field(default_factory=Signal)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    blamed_for: str = ""
    fault: str = ""
    farewell: bool = False
    noted: bool = False
    refused: bool = False
    tasks: anyio.abc.TaskGroup | None = None
    refusals: PeerRefusals = field(default_factory=PeerRefusals)
    began: float = 0.0

    @property
    def writer(self) -> str:
        """The one whose share of the time its messages cost (see `fairness`)."""
        return MESH if self.gossips else self.origin

    @property
    def next_pause(self) -> float:
        """The seconds for which it is not served after one more fruitless sync stream."""
        doublings = self.fruitless - _FRUITLESS_AT_ONCE
        return 0.0 if doublings < 0 else min(_FIRST_PAUSE * 2.0 ** min(doublings, 30), _LONGEST_PAUSE)

    def note_served(self, messages: int) -> None:
        """Note that an answer was written, with so many messages."""
        if messages:
            self.fruitless = 0

    def note_fruitless(self, now: float) -> None:
        """Note that a sync stream has ended as fruitless."""
        self.served_from = now + self.next_pause
        self.fruitless += 1

    def blame(self, reason: str) -> None:
        """Note the rule that the peer broke, and end the connection; the first reason counts.

        For what the broadcast machine decides, and for what a driver finds by itself (the machine's rule 9).
        """
        self.blamed_for = self.blamed_for or reason
        self.connection.close()

    def part(self, fault: str) -> None:
        """End the connection for a defect of this side: the peer may come back."""
        self.fault = self.fault or fault
        self.connection.close()

    def queue(self, data: bytes) -> bool:
        """Queue bytes for the peer, after what waits already; return True if it has just fallen behind."""
        self.waiting.append(data)
        self.size += len(data)
        self.queued.set()
        fell_behind = self.size > _MOST_WAITING and not self.behind
        self.behind |= fell_behind
        return fell_behind

    async def write(self, stream: Stream, caught_up: Callable[[], None]) -> None:
        """Write what is queued as fast as the peer reads, and blame it when it reads too little.

        Args:
            stream: of the push protocol.
            caught_up: called when nothing more waits for a peer that was behind.
        """
        while True:
            await self.queued.wait()
            self.queued = anyio.Event()
            while self.waiting:
                data = self.waiting.popleft()
                # Small frames go together.
                while self.waiting and len(data) + len(self.waiting[0]) <= CHUNK:
                    data += self.waiting.popleft()
                try:
                    for start in range(0, len(data), CHUNK):
                        with anyio.move_on_after(_WRITE_SECONDS) as scope:
                            await stream.send(data[start : start + CHUNK])
                        if scope.cancelled_caught:
                            self.blame(f"it did not read what was pushed to it for {_WRITE_SECONDS:g} s")
                            return
                finally:
                    # What is lost with the stream does not wait, either.
                    self.size -= len(data)
            if self.behind:
                self.behind = False
                caught_up()
