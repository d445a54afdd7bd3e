"""Streams of events to pages ("Server-sent events" of the HTML standard): a state, then what changes, in batches.

A page that connects again within seconds gets what it missed, by Last-Event-ID; any other the state. A reader that has
fallen behind gets a new state instead of what it missed, so that who makes the batches never waits for one. They are
written once for all readers, of whom there may be so many at a time. When there are, one more gets the place of the
oldest of the address that has the most, unless its own address would have as many then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gossiplog.net.http.addresses import host_of, source_of

MOST_BEHIND = 10
"""Missed batches up to which a reader is sent them; beyond, a new state."""
MOST_KEPT = 200
"""Batches that a page which connects again may have missed."""
MOST_KEPT_BYTES = 4 * 2**20
"""Bytes of the batches that are kept for that."""
MOST_READERS = 64
"""Pages that may be open at a time."""
SILENCE_SECONDS = 10.0
"""After which a line without meaning shows that the stream is alive, and finds readers that are gone."""


class Batches:
    """The last batches of changes, as text for readers. Nothing here waits or reads a clock.

    Args:
        session: tells the positions of these batches from those of others, which a page may remember: any short text.
        snapshot: gives the state as of the last batch, in JSON on one line.

    Attributes:
        position: of the last batch: how many there have been.
    """

    def __init__(self, session: str, snapshot: Callable[[], bytes]) -> None:
        self.position = 0
        self._session = session
        self._make_snapshot = snapshot
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._snapshot: tuple[int, bytes] | None = None

    def add(self, data: bytes) -> None:
        """Add a batch: changes of the state, in JSON on one line."""
        self.position += 1
        text = self._text("changes", data)
        self._kept.append(text)
        self._kept_bytes += len(text)
        while len(self._kept) > MOST_KEPT or (self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= len(self._kept.popleft())

    def since(self, position: int | None) -> bytes:
        """Return what brings a reader from a position to that of the last batch; nothing where it is there.

        Args:
            position: of the last batch that it has; None where it has nothing.
        """
        missed = None if position is None or position > self.position else self.position - position
        if missed is not None and missed <= min(MOST_BEHIND, len(self._kept)):
            return b"".join(list(self._kept)[len(self._kept) - missed :])
        if self._snapshot is None or self.position - self._snapshot[0] > min(MOST_BEHIND, len(self._kept)):
            self._snapshot = self.position, self._text("state", self._make_snapshot())
        begun, text = self._snapshot
        return text + self.since(begun)

    def resume(self, last_id: str) -> int | None:
        """Return the position that a page had, by the id of the last event that it got.

        Its events since then count as sent: they are, if they are still kept.

        Args:
            last_id: the header Last-Event-ID, which may be anything.

        Returns:
            None where the events since then are not kept, or it is no id of these batches.
        """
        session, _, number = last_id.rpartition("-")
        if session != self._session or not number.isascii() or not number.isdecimal() or len(number) > 15:
            return None
        position = int(number)
        return position if 0 <= self.position - position <= len(self._kept) else None

    def missed(self, position: int) -> bytes:
        """Return all batches since a position that `resume` returned just now, however many they are."""
        return b"".join(list(self._kept)[len(self._kept) - (self.position - position) :])

    def _text(self, kind: str, data: bytes) -> bytes:
        return b"id: %b-%d\nevent: %b\ndata: %b\n\n" % (self._session.encode(), self.position, kind.encode(), data)


class Readers:
    """The pages that read batches now.

    Args:
        batches: to be sent.

    Attributes:
        generation: of streams, by which `end_streams` tells those that began before it.
    """

    def __init__(self, batches: Batches) -> None:
        self.generation = 0
        # The oldest first.
        self._streams: dict[_Stream, None] = {}
        self._batches = batches
        self._added = anyio.Event()
        self._announced = batches.position
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._streams)

    def notify(self) -> None:
        """Send the batches that were added since the last call, if there are any."""
        if self._announced != self._batches.position:
            self._wake()

    def _wake(self) -> None:
        self._announced = self._batches.position
        self._added.set()
        self._added = anyio.Event()

    def close(self) -> None:
        """End all streams, also those that begin later: their pages try again."""
        self._is_closed = True
        self._wake()

    def open(self) -> None:
        """Undo `close`, on whichever event loop runs now."""
        self._is_closed = False
        self._added = anyio.Event()

    def end_streams(self) -> None:
        """End the streams of this generation: their pages come again at once, and are checked again."""
        self.generation += 1
        self._wake()

    def check_room(self, request: Request) -> None:
        """Refuse a reader too many.

        Raises:
            HTTPException: there are as many as there may be, and none has to give way to one of this address.
        """
        self._giving_way(_source(request))

    def _giving_way(self, source: str) -> _Stream | None:
        """Return the stream whose place one more of an address gets; None where there is room.

        Raises:
            HTTPException: there is none.
        """
        if self.count < MOST_READERS:
            return None
        counts = Counter(stream.source for stream in self._streams)
        most = max(counts.values(), default=0)
        # Otherwise two addresses would take the same place from each other again and again.
        if counts[source] + 1 >= most:
            raise HTTPException(503, f"{MOST_READERS} pages are open already: close one", {"Retry-After": "5"})
        return next(stream for stream in self._streams if counts[stream.source] == most)

    def answer(self, request: Request, generation: int | None = None) -> Response:
        """Return the stream as the answer to a request.

        Args:
            request: of a page.
            generation: when its access was checked; None where that was just now. A stream of an earlier one ends.

        Raises:
            HTTPException: there are as many readers as there may be.
        """
        source = _source(request)
        oldest = self._giving_way(source)
        if request.method == "HEAD":
            return Response(media_type=_TYPE, headers=_HEADERS)
        if oldest is not None:
            self._streams.pop(oldest)
            oldest.give_way()
        position = self._batches.resume(request.headers.get("last-event-id", ""))
        return _Stream(
            self._streams, source, self._parts(position, self.generation if generation is None else generation)
        )

    async def _parts(self, position: int | None, generation: int) -> AsyncIterator[bytes]:
        # After a restart of the program pages come back within a second.
        yield b"retry: 500\n\n"
        batches = self._batches
        if position is not None and generation == self.generation:
            text, position = batches.missed(position), batches.position
            if text:
                yield text
        while not self._is_closed and generation == self.generation:
            added = self._added
            text, position = batches.since(position), batches.position
            if text:
                # Only when this was sent the reader gets more: a slow one gets a newer state then.
                yield text
                continue
            with anyio.move_on_after(SILENCE_SECONDS) as waiting:
                await added.wait()
            if waiting.cancelled_caught:
                yield b": \n\n"


_TYPE = "text/event-stream"
# The second is nginx's, which would pass on an answer in large pieces.
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def _source(request: Request) -> str:
    return source_of(host_of(request.scope))


class _Stream(StreamingResponse):
    """A stream of events, which counts as a reader as long as it goes on.

    Args:
        streams: that count.
        source: the address that it goes to.
        parts: of it.
    """

    def __init__(self, streams: dict[_Stream, None], source: str, parts: AsyncIterator[bytes]) -> None:
        super().__init__(parts, media_type=_TYPE, headers=_HEADERS)
        self.source = source
        self._streams = streams
        self._scope = anyio.CancelScope()

    def give_way(self) -> None:
        """End within the answer, also where the client reads nothing."""
        self._scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        self._streams[self] = None
        try:
            with self._scope:
                await super().__call__(scope, receive, send)
        finally:
            self._streams.pop(self, None)
