"""Admission control for HTTP requests: worker threads, and a bounded amount of memory.

Cheap requests have threads of their own. An expensive one first reserves a part of a fixed amount of memory, for as
long as it is answered; there is a queue for it, and a request that finds it full, or waits too long, is turned away.
The work itself takes turns on few threads. A stranger who asks for much and reads slowly thus keeps a reservation, and
nothing else: it is taken back from a client that has not moved for a while, as soon as somebody else waits for it.

The body of a request takes memory as it arrives, and a reservation only when it is whole. One that arrives too slowly
ends, and of several that are too much together the slowest: what is announced and not sent costs nobody anything. What
arrives costs the event loop, so that the bodies of one address are read no faster than BODY_BURST in RENEWAL_SECONDS.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio import to_thread

from gossiplog.errors import GossipLogError
from gossiplog.net.http.addresses import Rates, is_local

MOST_RESERVATIONS = 64
"""Expensive requests that are answered at a time."""
MOST_WAITING = 64
"""Requests that wait for a reservation; more are turned away."""
WAIT_SECONDS = 10.0
"""How long one waits at most."""
STALLED_SECONDS = 1.0
"""How long a client may not read, or not send, before its reservation is taken back for another."""

MOST_BODIES = 64
"""Bodies that arrive at a time."""
BODY_SECONDS = 10.0
"""How long a body may take to arrive, and how much longer for each LEAST_BODY_BYTES of it that have."""
LEAST_BODY_BYTES = 2**15
"""Bytes a second."""
BODY_BURST = 2**24
"""Bytes of bodies that are read from one address at once, and as many again in RENEWAL_SECONDS."""

_CHEAP_THREADS = 4
# One core stays free for the event loop.
_EXPENSIVE_THREADS = max(1, (os.cpu_count() or 1) - 1)

_Result = TypeVar("_Result")


class Overloaded(GossipLogError):
    """There are more requests than are answered at a time."""


@dataclass(slots=True, eq=False)
class Reservation:
    """The memory of one request.

    Attributes:
        size: bytes that the request may keep.
        scope: of the request; cancelled when its reservation is taken back.
        stalled_since: when its client was last waited for; None while it is not.
    """

    size: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    stalled_since: float | None = None

    @contextmanager
    def waiting_for_client(self) -> Iterator[None]:
        """Note that nothing happens in the block until the client reads, or sends, something."""
        self.stalled_since = anyio.current_time()
        try:
            yield
        finally:
            self.stalled_since = None


@dataclass(slots=True, eq=False)
class Body:
    """The body of a request, as far as it has arrived.

    Attributes:
        began: when the request was read.
        scope: of the reading; cancelled when the body is too slow.
        data: its bytes.
        is_whole: whether all of them are there.
        gave_way: whether it was the slowest of too many.
    """

    began: float
    scope: anyio.CancelScope
    data: bytearray = field(default_factory=bytearray)
    is_whole: bool = False
    gave_way: bool = False

    def rate(self, now: float) -> float:
        """Return the bytes a second; of one that has just begun, infinity."""
        age = now - self.began
        return len(self.data) / age if age > STALLED_SECONDS else math.inf


@dataclass(slots=True, eq=False)
class _Waiting:
    size: int
    reservation: Reservation | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)


class Admission:
    """Lets requests use the log: each on a thread, and within the memory of all.

    It is used on one event loop. Cancelled calls of the log are waited for.

    Args:
        limit: bytes that all of them may keep together; a single one may keep more.
        room: gives how many more bytes may be kept by all together; None where nobody else keeps any.
        kept: is called with how many bytes the requests keep, whenever that has changed.
    """

    def __init__(
        self, limit: int, room: Callable[[], int] | None = None, kept: Callable[[int], None] | None = None
    ) -> None:
        self._limit = limit
        self._room = room or (lambda: limit)
        self._tell_kept = kept or (lambda size: None)
        self._cheap = anyio.CapacityLimiter(_CHEAP_THREADS)
        self._expensive = anyio.CapacityLimiter(_EXPENSIVE_THREADS)
        # A write may hang, with the application's `apply` or with another process: reading goes on.
        self._writing = anyio.CapacityLimiter(1)
        self._reservations: set[Reservation] = set()
        self._queue: deque[_Waiting] = deque()
        # The oldest first.
        self._bodies: dict[Body, None] = {}
        self._rates = Rates(anyio.current_time)

    @property
    def kept(self) -> int:
        """Bytes that requests keep now, at most."""
        return sum(reservation.size for reservation in self._reservations) + sum(
            len(body.data) for body in self._bodies
        )

    async def run_cheap(self, call: Callable[[], _Result]) -> _Result:
        """Make a cheap call of the log on a thread."""
        return await to_thread.run_sync(call, limiter=self._cheap)

    async def run_expensive(self, call: Callable[[], _Result]) -> _Result:
        """Make an expensive call on a thread, when it is its turn; it is not to wait for a client."""
        return await to_thread.run_sync(call, limiter=self._expensive)

    async def run_write(self, call: Callable[[], _Result]) -> _Result:
        """Make a call that writes to the log on a thread; one at a time."""
        return await to_thread.run_sync(call, limiter=self._writing)

    @asynccontextmanager
    async def reserve(self, size: int) -> AsyncIterator[Reservation]:
        """Reserve bytes of memory for the block, waiting until they are available.

        Raises:
            Overloaded: too many requests wait, it waited too long, or the block was cancelled because its client
                stalled.
        """
        reservation = await self._acquire(size)
        try:
            with reservation.scope:
                yield reservation
        finally:
            self._reservations.discard(reservation)
            self._changed()
        if reservation.scope.cancelled_caught:
            raise Overloaded("the client did not go on, and others waited for the memory that its request kept")

    @contextmanager
    def body(self) -> Iterator[Body]:
        """Provide the body of a request to a block that reads it, in the body's scope, and keeps it.

        Raises:
            Overloaded: it was the slowest of too many bodies.
            TimeoutError: it came too slowly.
        """
        body = Body(now := anyio.current_time(), anyio.CancelScope(deadline=now + BODY_SECONDS))
        self._bodies[body] = None
        try:
            self._limit_bodies(now)
            yield body
        finally:
            del self._bodies[body]
            self._changed()
        if body.gave_way:
            raise Overloaded("its body came slowly, and others waited for the memory that it kept")
        if body.scope.cancelled_caught:
            seconds = anyio.current_time() - body.began
            raise TimeoutError(f"{len(body.data)} bytes of the body came in {seconds:.0f} s")

    def extend(self, body: Body, part: bytes) -> None:
        """Add bytes that have arrived to a body."""
        body.data += part
        body.scope.deadline = body.began + BODY_SECONDS + len(body.data) / LEAST_BODY_BYTES
        self._limit_bodies(anyio.current_time())
        self._tell_kept(self.kept)

    async def pace(self, body: Body, source: str, size: int) -> None:
        """Wait until more of a body may be read.

        Args:
            body: that arrives.
            source: the address that it comes from, as `source_of` gives it; from a local one any number of bytes.
            size: of what has just arrived.
        """
        if is_local(source):
            return
        self._rates.count(source, BODY_BURST, size)
        if seconds := self._rates.wait(source, BODY_BURST):
            # It is not slow by itself.
            body.began += seconds
            body.scope.deadline += seconds
            await anyio.sleep(seconds)

    def _limit_bodies(self, now: float) -> None:
        """End the slowest bodies while there are too many, or while they keep more than half of the memory."""
        while True:
            arriving = [body for body in self._bodies if not body.gave_way]
            size = sum(len(body.data) for body in arriving)
            if len(arriving) <= 1 or (len(arriving) <= MOST_BODIES and size <= self._limit // 2):
                return
            slow = [body for body in arriving if not body.is_whole]
            if not slow:
                return
            body = min(slow, key=lambda body: body.rate(now))
            body.gave_way = True
            body.scope.cancel()

    def resize(self, reservation: Reservation, size: int) -> None:
        """Set how many bytes a request keeps, now that it is known; it may be more than what was reserved."""
        reservation.size = size
        self._changed()

    async def _acquire(self, size: int) -> Reservation:
        if not self._queue and self._fits(size):
            return self._grant(size)
        if len(self._queue) >= MOST_WAITING:
            raise Overloaded("too many requests wait already: try again later")
        waiting = _Waiting(size)
        self._queue.append(waiting)
        try:
            with anyio.move_on_after(WAIT_SECONDS):
                while waiting.reservation is None:
                    self._make_room(waiting)
                    with anyio.move_on_after(STALLED_SECONDS):
                        await waiting.changed.wait()
        except BaseException:
            if waiting.reservation is not None:
                self._reservations.discard(waiting.reservation)
            raise
        finally:
            if waiting.reservation is None:
                self._queue.remove(waiting)
            self._changed()
        if waiting.reservation is None:
            raise Overloaded("other requests keep the memory that this one needs: try again later")
        return waiting.reservation

    def _fits(self, size: int) -> bool:
        if not self._reservations:
            return True
        return len(self._reservations) < MOST_RESERVATIONS and self.kept + size <= self._limit and size <= self._room()

    def _grant(self, size: int) -> Reservation:
        reservation = Reservation(size)
        self._reservations.add(reservation)
        self._tell_kept(self.kept)
        return reservation

    def _serve(self) -> None:
        """Give reservations to those who wait, in their order."""
        while self._queue and self._fits(self._queue[0].size):
            waiting = self._queue.popleft()
            waiting.reservation = self._grant(waiting.size)
            waiting.changed.set()

    def _changed(self) -> None:
        self._tell_kept(self.kept)
        self._serve()

    def _make_room(self, waiting: _Waiting) -> None:
        """Make room for the first in the queue."""
        # Others may have given back some, of whom nothing is heard here.
        self._serve()
        if self._queue and self._queue[0] is waiting:
            self._take_back()

    def _take_back(self) -> None:
        """Cancel the request whose client has stalled for the longest time, if any has for long enough."""
        late = anyio.current_time() - STALLED_SECONDS
        stalled = [reservation for reservation in self._reservations if (reservation.stalled_since or math.inf) <= late]
        if stalled:
            min(stalled, key=lambda reservation: reservation.stalled_since or 0.0).scope.cancel()
