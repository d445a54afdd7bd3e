"""Fair shares of a driver's time, by the writers whose messages cost it; no I/O, and no clock.

A writer is an origin of messages: an address, or one connection where the address says nothing. Two things keep one
from taking the hub from the others:

- *Turns*. Each writer has a queue of its own. A turn takes a part of TURN_BYTES and of TURN_MESSAGES at most from each,
  or READ_TURN_MESSAGES from a writer while the others only read. A message waits for one such part of every other
  writer. Long messages have turns of their own, one writer a turn: to verify one takes as long as a thousand short
  ones, and short ones do not wait for that.
- *Shares*. What a part costs is a debt of its writer, which it pays off at the rate of its share. While a writer owes
  more than BURST_SECONDS, its messages wait. It is a leaky bucket of seconds, as GCRA is one of cells (ITU-T I.371,
  Annex A): the queue of a writer that sends less than its share is short, whatever others send.

What a part costs is the seconds of its turn that it filled, or `cost` if that is more, by the processor time of storing
it. The first alone would leave out what it costs the clients, which all take in what the hub does, and what a turn
costs that has a single message in it. All of the seconds would be too much for that one: most are waiting for threads,
on a busy machine a multiple of the work.

A writer is not limited while nobody else writes or reads: an upload has the whole driver. Others who only read leave it
READ_SHARE, since messages that they have not taken in yet are in front of the first that somebody else writes. What
comes beyond waits with its writer, whose log is synced when much waits there. A mesh is not limited, whose peers pass
on what many have written.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gossiplog.net.rate_limited_log import keep_latest
from gossiplog.protocol.broadcast.events import Delivery

MESH = ""
"""The writer of all that comes by a mesh."""
SHARE = 0.25
"""Of the time, for one writer of several."""
READ_SHARE = 0.5
"""Of the time, for one writer among readers."""
RECENT_SECONDS = 10.0
"""For how long after its last message a writer is one of several."""
BURST_SECONDS = 0.25
"""What a writer may owe before it waits."""
MOST_SECONDS = 1.0
"""What it owes at most: after whatever it did, its next turn comes within MOST_SECONDS / SHARE."""
TURN_MESSAGES = 8
"""Messages in one writer's part of a turn while others write."""
READ_TURN_MESSAGES = 32
"""The same while others only read: no other writer waits for it."""
TURN_BYTES = 2**16
MOST_MESSAGES = 1024
"""In a turn of all writers, and in the queue of one that is not limited; others' queues have four turns."""
MOST_BYTES = 8 * 2**20
_QUEUED_TURNS = 4
TURN_SECONDS = 0.002
"""What a turn costs at least, on two cores that hub and clients share, its writers together,"""
MESSAGE_SECONDS = 0.0003
"""and each message in it,"""
BYTE_SECONDS = 1e-7
"""and each byte."""
CPU_FACTOR = 4
"""What the processor time of storing a part counts: others store it, too."""


def cost(values: Sequence[bytes], cpu_seconds: float = 0.0, writers: int = 1) -> float:
    """Return the seconds that a part of a turn counts at least, here and where it is passed on.

    Args:
        values: of the part.
        cpu_seconds: processor time that storing it took.
        writers: that have a part of the turn.
    """
    stored = max(TURN_SECONDS / writers + MESSAGE_SECONDS * len(values), CPU_FACTOR * cpu_seconds)
    return stored + BYTE_SECONDS * sum(map(len, values))


def parts(values: Sequence[bytes]) -> float:
    """Return how many parts of a turn of several writers some messages fill: by number or bytes, whichever is more."""
    return max(len(values) / TURN_MESSAGES, sum(map(len, values)) / TURN_BYTES)


@dataclass(frozen=True, slots=True)
class _Debt:
    paid: float
    since: float


class Shares:
    """What writers owe for what their messages cost.

    Args:
        share: of the time, for one writer of several: above 0, up to 1.
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        # When each debt is paid off, and when the writer was charged. The one charged last is the last. They outlive
        # connections: a writer that comes back still owes.
        self._debts: dict[str, _Debt] = {}

    def is_limited(self, writer: str, now: float) -> bool:
        """Return whether a writer has to leave something to others: one of them has written lately."""
        if writer == MESH:
            return False
        other = next((other for other in reversed(self._debts) if other != writer), None)
        return other is not None and now - self._debts[other].since < RECENT_SECONDS

    def charge(self, writer: str, seconds: float, now: float, alone: float | None = None) -> None:
        """Add seconds to what a writer owes.

        Args:
            writer: who owes them.
            seconds: that its messages cost.
            now: the time.
            alone: its share while nobody else writes; None for the share of one of several.
        """
        share = self._share if alone is None or self.is_limited(writer, now) else alone
        owed = min(self._left(writer, now) + seconds / share, MOST_SECONDS / share)
        keep_latest(self._debts, writer, _Debt(now + owed, now))

    def due(self, writer: str, now: float, alone: float | None = None) -> float:
        """Return when a writer may go on: `now`, or later.

        Args:
            writer: who owes something, or nothing.
            now: the time.
            alone: its share while nobody else writes; None for all of the time.
        """
        share = self._share if self.is_limited(writer, now) else alone
        if writer == MESH or share is None:
            return now
        return now + max(0.0, self._left(writer, now) - BURST_SECONDS / share)

    def _left(self, writer: str, now: float) -> float:
        """Return seconds until a debt is paid off."""
        debt = self._debts.get(writer)
        return 0.0 if debt is None else max(0.0, debt.paid - now)


@dataclass(slots=True, eq=False)
class _Lane:
    waiting: deque[Delivery] = field(default_factory=deque)
    size: int = 0
    is_busy: bool = False


class FairQueue:
    """Messages that wait to be stored, a queue for each writer.

    Args:
        shares: of the writers.
        is_read: says whether what one writer sends is passed on to others.
    """

    def __init__(self, shares: Shares, is_read: Callable[[], bool] = lambda: False) -> None:
        self._shares = shares
        self._is_read = is_read
        # Whose turn was longest ago is the first.
        self._lanes: dict[str, _Lane] = {}

    def add(self, writer: str, delivery: Delivery) -> None:
        """Put a message at the end of its writer's queue."""
        lane = self._lanes.setdefault(writer, _Lane())
        lane.waiting.append(delivery)
        lane.size += len(delivery.value)

    def has_room(self, writer: str, now: float) -> bool:
        """Return whether more should be read from a writer: its queue is not full."""
        lane = self._lanes.get(writer)
        if lane is None:
            return True
        messages, size = (_QUEUED_TURNS * part for part in self._part(writer, now))
        return len(lane.waiting) < min(messages, MOST_MESSAGES) and lane.size <= min(size, MOST_BYTES)

    def take(self, now: float, *, long: bool) -> Mapping[str, Sequence[Delivery]]:
        """Take a turn out of the queues: parts of writers that take part in no other turn until `finish`.

        Args:
            now: the time.
            long: take long messages of one writer, instead of short ones of all.
        """
        turn: dict[str, Sequence[Delivery]] = {}
        messages, size = MOST_MESSAGES, MOST_BYTES
        ready = [
            (writer, lane)
            for writer, lane in self._lanes.items()
            if self._is_ready(writer, lane, now, long=long) and self._due(writer, now) <= now
        ]
        for writer, lane in ready:
            turn[writer] = part = self._first(writer, lane, now, messages, long=long)
            messages -= len(part)
            size -= sum(len(delivery.value) for delivery in part)
            if long or messages <= 0 or size <= 0:
                break
        for writer in turn:
            lane = self._lanes[writer] = self._lanes.pop(writer)
            lane.is_busy = True
            for _ in turn[writer]:
                lane.size -= len(lane.waiting.popleft().value)
        return turn

    def next_due(self, now: float, *, long: bool) -> float:
        """Return when `take` will have something for what waits now; infinity if nothing waits for the time alone."""
        ready = (writer for writer, lane in self._lanes.items() if self._is_ready(writer, lane, now, long=long))
        return min((self._due(writer, now) for writer in ready), default=math.inf)

    def finish(
        self, turn: Mapping[str, Sequence[Delivery]], seconds: float, now: float, cpu_seconds: float = 0.0
    ) -> None:
        """End a turn, and charge its writers with what their parts of it cost.

        Args:
            turn: that `take` returned.
            seconds: that it took.
            now: the time.
            cpu_seconds: processor time that storing it took; 0 where that is not known.
        """
        values = {writer: [delivery.value for delivery in part] for writer, part in turn.items()}
        filled = {writer: parts(part) for writer, part in values.items()}
        total = sum(filled.values())
        for writer, part in values.items():
            own = cpu_seconds * filled[writer] / total
            owed = max(seconds * filled[writer] / max(1.0, total), cost(part, own, len(turn)))
            self._shares.charge(writer, owed, now, self._read_share)
            lane = self._lanes[writer]
            lane.is_busy = False
            if not lane.waiting:
                del self._lanes[writer]

    @property
    def _read_share(self) -> float | None:
        return READ_SHARE if self._is_read() else None

    def _is_limited(self, writer: str, now: float) -> bool:
        return writer != MESH and (self._is_read() or self._shares.is_limited(writer, now))

    def _due(self, writer: str, now: float) -> float:
        return self._shares.due(writer, now, self._read_share)

    def _part(self, writer: str, now: float) -> tuple[int, int]:
        """Return the most messages, and bytes, of a writer in one turn."""
        if not self._is_limited(writer, now):
            return MOST_MESSAGES, MOST_BYTES
        return TURN_MESSAGES if self._shares.is_limited(writer, now) else READ_TURN_MESSAGES, TURN_BYTES

    def _is_long(self, writer: str, delivery: Delivery, now: float) -> bool:
        return len(delivery.value) > TURN_BYTES and self._is_limited(writer, now)

    def _is_ready(self, writer: str, lane: _Lane, now: float, *, long: bool) -> bool:
        return not lane.is_busy and bool(lane.waiting) and self._is_long(writer, lane.waiting[0], now) == long

    def _first(self, writer: str, lane: _Lane, now: float, messages: int, *, long: bool) -> Sequence[Delivery]:
        """Return the first messages of a queue that are long, or short: one at least."""
        part: list[Delivery] = []
        most, left = self._part(writer, now)
        for delivery in lane.waiting:
            left -= len(delivery.value)
            if part and (len(part) >= min(most, messages) or left < 0 or self._is_long(writer, delivery, now) != long):
                break
            part.append(delivery)
        return part
