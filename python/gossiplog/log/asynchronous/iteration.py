"""Iteration in coroutines: over what is there in pages, and over messages as they arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

import anyio

from gossiplog.errors import LogClosed
from gossiplog.event_loop import Caller, loop_call_soon
from gossiplog.log.following import CommitNotifier, Turn
from gossiplog.log.payloads import P
from gossiplog.log.results import Arrivals
from gossiplog.threads import run_in_thread

_Item = TypeVar("_Item")

_PAGE = 256
_PAGE_BYTES = 2**20


class AsyncPages(AsyncIterator[_Item], Generic[_Item]):
    """Items that a blocking iterator reads, a page of them in each turn on a worker thread.

    A step that is cancelled loses nothing: the next one goes on where it stood. There is nothing to be closed.

    Args:
        begin: returns the iterator; it is called on a worker thread, as the iterator is.
        size: returns the bytes that an item takes in memory.
    """

    def __init__(self, begin: Callable[[], Iterator[_Item]], size: Callable[[_Item], int]) -> None:
        self._begin = begin
        self._size = size
        self._items: Iterator[_Item] | None = None
        self._page: deque[_Item] = deque()
        self._has_ended = False
        self._error: Exception | None = None
        # Held by the thread that reads: the one of a step that was cancelled may still do so.
        self._reading = threading.Lock()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Item:
        while True:
            # Looked at before the page: the thread of a step that was cancelled fills that first.
            has_ended = self._has_ended
            if self._page:
                return self._page.popleft()
            if has_ended:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                raise StopAsyncIteration
            await run_in_thread(self._read)

    def _read(self) -> None:
        with self._reading:
            if self._page or self._has_ended:
                return
            page, size, is_last = list[_Item](), 0, False
            try:
                if self._items is None:
                    self._items = self._begin()
                for item in self._items:
                    page.append(item)
                    size += self._size(item)
                    if len(page) == _PAGE or size >= _PAGE_BYTES:
                        break
                else:
                    is_last = True
            except Exception as error:  # noqa: BLE001 - the task raises it, after what came before
                self._error, is_last = error, True
            self._page.extend(page)
            self._has_ended = is_last

    def __iter__(self) -> NoReturn:
        raise TypeError("these are read on worker threads: take them by `async for`")


class AsyncSubscription(AsyncIterator[Arrivals[P]], Generic[P]):
    """Lists of messages as they arrive, until it or the log is closed. Made by `AsyncLog.subscribe`.

        async for messages in log.subscribe(after=cursor):
            cursor = messages.cursor

    A step that is cancelled loses nothing: the next one returns what has come meanwhile. While it waits it holds no
    thread, so that there may be a thousand; beyond that, pass on what one of them gives. Each task takes one of its
    own: who takes the next messages while another waits for them gets a RuntimeError. Once the log is closed it ends.

    Args:
        notifier: of the log.
        after: a cursor, 0 or None.
        batch_size: the most messages in a list.

    Examples:
        >>> async def main():
        ...     async with gossiplog.open_async("tea.db", "org.example.tea", signer=alice) as tea:
        ...         await tea.append("one")
        ...         async with tea.subscribe(after=0) as subscription:
        ...             async for messages in subscription:
        ...                 print([message.payload for message in messages])
        ...                 break
        >>> anyio.run(main)
        ['one']
    """

    def __init__(self, notifier: CommitNotifier, after: int | None, batch_size: int) -> None:
        self._notifier = notifier
        self._after = after
        self._sequence: int | None = None
        self._batch_size = batch_size
        self._is_closed = False
        self._turn = Turn()
        # Of the step that waits.
        self._wake: Callable[[], None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Arrivals[P]:
        """Return the next messages; wait for them.

        Raises:
            RuntimeError: another task waits for them.
            CursorOutdated, LogWentBack, CorruptLog, StorageError: as `Log.subscribe` says; the subscription has ended
                then.
        """
        with self._turn:
            try:
                messages = await self._next()
            except LogClosed:
                messages = None
            except Exception:
                self._is_closed = True
                raise
        if messages is None:
            self._is_closed = True
            raise StopAsyncIteration
        return messages

    async def _next(self) -> Arrivals[P] | None:
        if self._is_closed:
            return None
        sequence = await self._start()
        if not self._notifier.is_watching and not self._is_closed:
            # Nothing is announced to those who need not wait.
            if (messages := await self._look(sequence)) is not None:
                return messages
            await run_in_thread(self._notifier.watch)
        call_soon = loop_call_soon()
        messages = None
        while messages is None and not self._is_closed:
            messages = await self._look_or_wait(sequence, call_soon)
        return messages

    async def _look_or_wait(self, sequence: int, call_soon: Caller) -> Arrivals[P] | None:
        woken = anyio.Event()

        def wake(last: int | None = None) -> None:
            call_soon(woken.set)

        self._wake = wake
        try:
            with self._notifier.listening(wake):
                messages = await self._look(sequence)
                if messages is None and not self._is_closed:
                    with anyio.move_on_after(self._notifier.poll_seconds):
                        await woken.wait()
                return messages
        finally:
            self._wake = None

    async def _start(self) -> int:
        if self._sequence is None:
            self._sequence = await run_in_thread(self._notifier.start, self._after)
        return self._sequence

    async def _look(self, sequence: int) -> Arrivals[P] | None:
        found = await run_in_thread(self._notifier.look, sequence, self._batch_size)
        if found is None:
            return None
        # No wait comes after this: what is cancelled before it is read again.
        messages, self._sequence = found
        return messages

    def close(self) -> None:
        """End it, and the wait of the task that iterates. Any thread may, and a signal handler."""
        self._is_closed = True
        if (wake := self._wake) is not None:
            wake()

    async def __aenter__(self) -> Self:
        """Take up the log's end as it is now, where no cursor was given, and not as it is at the first step."""
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> NoReturn:
        raise TypeError("this subscription is that of an AsyncLog: take its messages by `async for`")
