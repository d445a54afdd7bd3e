"""What comes into a log: by a driver's own transactions, and by whatever else commits to it, which is seen by
following it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import anyio

from gossiplog.core import Batch, Node, SignedMessage
from gossiplog.errors import CorruptLog, LogClosed, StorageError
from gossiplog.log.replica import Replica
from gossiplog.log.state import read_stored
from gossiplog.log.writing import Outcome
from gossiplog.net import events
from gossiplog.net.record import Record
from gossiplog.net.threads import Threads
from gossiplog.protocol import broadcast_events as broadcast

_PAGE = 256
_RETRY_SECONDS = 1.0
"""Between attempts to read the log, where nothing goes on without."""

_Result = TypeVar("_Result")


class Feed:
    """Writes to a log, and tells of everything that is written to it.

    Args:
        replica: of the log.
        threads: to run on.
        record: counts, and tells the application of commits and failures.
        report: is told of messages that others commit, those of the application and of other processes.
        is_heard: whether there is anybody to pass such messages on to.
        on_message: is called with each message that the log gets, once, in the order of arrival; or None.
    """

    def __init__(
        self,
        replica: Replica,
        threads: Threads,
        record: Record,
        report: Callable[[broadcast.InEvent], None],
        is_heard: Callable[[], bool],
        on_message: Callable[[SignedMessage], None] | None,
    ) -> None:
        self._replica = replica
        self._threads = threads
        self._record = record
        self._report = report
        self._is_heard = is_heard
        self._on_message = on_message
        # Sequences that this feed's own transactions have written, and whether one is under way.
        self._own: list[range] = []
        self._writing = anyio.Lock()
        self._committed = anyio.Event()

    async def committed(self) -> None:
        """Waits until the log has got messages."""
        await self._committed.wait()

    async def root(self) -> Node:
        """The root of the log."""
        return await self._threads.read(self._replica.root)

    async def ingest(self, batch: Batch, count: int) -> Outcome:
        """Stores a batch (see `Replica.ingest`)."""
        async with self._writing:
            outcome = await self._threads.write(self._replica.ingest, batch, count)
            self._own += [sequences for sequences in outcome.sequences if sequences]
        return outcome

    async def follow(self, cursor: int) -> None:
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
                self._record.tell(events.Committed(count, await self.insist("reading the root", self.root)))
            if self._is_heard():
                for sequences in others:
                    await self._forward(sequences)

    async def _forward(self, sequences: range) -> None:
        after = sequences.start - 1
        while after < sequences.stop - 1:
            limit = min(_PAGE, sequences.stop - 1 - after)
            rows = await self._arrivals(after, limit)
            messages = [read_stored(value, self._replica.topic) for _, value in rows]
            self._report(broadcast.Appended([(message.key, message.value) for message in messages]))
            after = rows[-1][0]

    async def _news(self, after: int) -> int:
        return await self.insist("following the log", lambda: self._threads.follow(self._replica.wait, after))

    async def _arrivals(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        return await self.insist(
            "reading new messages", lambda: self._threads.read(self._replica.arrivals, after, limit)
        )

    async def insist(self, doing: str, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """A call that nothing goes on without: made again until the database answers.

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
                self._record.tell(events.Failed(doing, error))
            await anyio.sleep(_RETRY_SECONDS)

    async def announce(self, cursor: int) -> None:
        """Hands every message to the application, once, in the order of arrival."""
        while self._on_message is not None:
            # Taken before the look: what is committed after it sets this one.
            committed = self._committed
            rows = await self._arrivals(cursor, _PAGE)
            for sequence, value in rows:
                self._on_message(read_stored(value, self._replica.topic))
                cursor = sequence
            if not rows:
                await committed.wait()


def _gaps(own: Sequence[range], after: int, last: int) -> Iterator[range]:
    """The sequences after one, up to a last one, that are in none of the ranges."""
    start = after + 1
    for sequences in sorted(own, key=lambda sequences: sequences.start):
        if start < sequences.start:
            yield range(start, min(sequences.start, last + 1))
        start = max(start, sequences.stop)
    if start <= last:
        yield range(start, last + 1)
