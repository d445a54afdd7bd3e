"""Events as a stream: what `on_event` is called with, for `async for`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import NoReturn, Self
from weakref import WeakSet

from gossiplog.checks import check_integer
from gossiplog.event_loop import loop_call_soon
from gossiplog.log.following import Turn
from gossiplog.net.events import Event, EventsDropped
from gossiplog.net.transport.stream import Signal

MOST_WAITING = 1024
"""Events that wait in a stream by default; some hundred kilobytes."""


class EventStream(AsyncIterator[Event | EventsDropped]):
    """What happens from now on, until its hub, client or peer has ended. Made by their `events`.

        async for event in hub.events():
            match event:
                case gossiplog.Connected(peer=peer): ...

    Who does not keep up loses the oldest events, and gets an EventsDropped with their number in their place. A step
    that is cancelled loses nothing. A stream that nobody holds any more is forgotten. Each task takes one of its own:
    who takes the next event while another waits for it gets a RuntimeError.

    Args:
        capacity: how many events wait at most.

    Examples:
        >>> async def main():
        ...     async with gossiplog.Peer(log) as peer:
        ...         events = peer.events()
        ...         message = await gossiplog.AsyncLog(log).append("one")
        ...         async for event in events:
        ...             if isinstance(event, gossiplog.Committed):
        ...                 print(event.inserted, "message")
        ...                 break
        >>> anyio.run(main)
        1 message
    """

    def __init__(self, capacity: int) -> None:
        check_integer("a capacity", capacity)
        if not 1 <= capacity <= sys.maxsize:
            raise ValueError(f"a capacity of {capacity}: expected 1 or more, and no more than memory can hold")
        self._waiting: deque[Event] = deque(maxlen=capacity)
        self._dropped = 0
        self._has_ended = False
        self._is_closed = False
        self._call_soon = loop_call_soon()
        self._news = Signal()
        self._turn = Turn()

    def _put(self, event: Event) -> None:
        """Add an event, in the place of the oldest where too many wait.

        Args:
            event: what happened.
        """
        if self._has_ended or self._is_closed:
            return
        if len(self._waiting) == self._waiting.maxlen:
            self._dropped += 1
        self._waiting.append(event)
        self._news.set()

    def _end(self) -> None:
        """End after the waiting events."""
        self._has_ended = True
        self._news.set()

    def close(self) -> None:
        """End it at once, and the wait of the task that iterates. Any thread may, and a signal handler."""
        # What waits is for the loop to drop.
        self._is_closed = True
        self._call_soon(self._news.set)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | EventsDropped:
        """Return the next event; wait for it.

        Raises:
            RuntimeError: another task waits for it.
        """
        with self._turn:
            while not (self._waiting or self._has_ended or self._is_closed):
                await self._news.wait()
        if self._is_closed:
            self._waiting.clear()
        if not self._waiting:
            raise StopAsyncIteration
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return EventsDropped(dropped)
        return self._waiting.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> NoReturn:
        raise TypeError("events come by `async for event in ...events()`")


class EventSource(ABC):
    """What has events: a hub, a client or a peer."""

    def __init__(self) -> None:
        super().__init__()
        self._streams = EventStreams()

    @property
    @abstractmethod
    def _register_stream(self) -> Callable[[EventStream], object]:
        """What has a stream get events from now on.

        Raises:
            RuntimeError: it is not running.
        """

    def events(self, *, capacity: int = MOST_WAITING) -> EventStream:
        """Return what happens from now on, for `async for`: what `on_event` is called with.

        The stream ends once this hub, client or peer has ended. While more than `capacity` events wait, the oldest are
        dropped, and an EventsDropped with their number comes in their place.

        Args:
            capacity: how many wait at most.

        Raises:
            RuntimeError: it is not running.
            TypeError: `capacity` is no integer.
            ValueError: `capacity` is below 1, or larger than memory.
        """
        return self._streams.open(self._register_stream, capacity)


class EventStreams:
    """The streams of a hub, a client or a peer, which end with it."""

    def __init__(self) -> None:
        self._open: WeakSet[EventStream] = WeakSet()

    def open(self, register: Callable[[EventStream], object], capacity: int) -> EventStream:
        """Return a new stream.

        Args:
            register: of the telemetry whose events it gets.
            capacity: how many events wait at most.
        """
        stream = EventStream(capacity)
        self._open.add(stream)
        register(stream)
        return stream

    def end(self) -> None:
        """End all streams, once what waits in them has been taken."""
        for stream in [*self._open]:
            stream._end()
        self._open.clear()
