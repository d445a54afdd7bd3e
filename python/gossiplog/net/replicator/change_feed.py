"""What is committed to a log: by a driver's own transactions (`log_writer`), and by others.

Other threads of this process notify the feed as they commit, with their messages; commits of other processes are looked
for when the database announces them, and now and then.
Nothing is read from the database that this process has just written to it.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import anyio

from gossiplog.core import GossipValidator, Node, SignedMessage, read_message
from gossiplog.errors import CorruptLog, InvalidPayload, LogClosed, StorageError
from gossiplog.event_loop import loop_call_soon
from gossiplog.log.blocking import calling_back
from gossiplog.log.following import BY_OTHERS
from gossiplog.log.replica import Replica
from gossiplog.log.state import State
from gossiplog.net import events
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.workers import WorkerPool
from gossiplog.net.transport.pacing import TimeSlice
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.replication.batches import InsertOutcome

_PAGE = 256
_READ_AT_ONCE = 2**14
"""Bytes of messages whose reading takes less time than a thread takes to wake, however they are encoded."""
_NEWEST = 16
"""New messages of a commit that the validator learns of while no peer is connected."""
_RETRY_SECONDS = 1.0
"""Between attempts to read the log, where nothing goes on without."""
_LOOKED_AT = 32
"""New messages of a commit whose authors `Committed` names."""
_REPORT_SECONDS = 0.2
"""Between two events that report commits: each has the root, which costs more than a commit."""

_Result = TypeVar("_Result")


class ChangeFeed:
    """Report everything that is committed to a log: to the machine, and to the application.

    Args:
        workers: to run on.
        telemetry: counts, and notifies the application of commits and failures.
        report: is called with messages that others commit, those of the application and of other processes.
        is_heard: whether there is anybody to pass such messages on to.
        on_message: is called with each message that the log gets, once, in the order of arrival; or None.
        validator: of gossip, which needs to know what is stored; None where there is none.

    Attributes:
        writing: held during each of the driver's own transactions.
        writer: the thread of the one that is under way; None where there is none.
        index_behind: set after commits, once one of the next would have to write the index over many messages.
    """

    def __init__(
        self,
        replica: Replica,
        workers: WorkerPool,
        telemetry: Telemetry,
        report: Callable[[broadcast.InEvent], None],
        is_heard: Callable[[], bool],
        on_message: Callable[[SignedMessage], None] | None,
        validator: GossipValidator | None = None,
    ) -> None:
        self._replica = replica
        self._workers = workers
        self._telemetry = telemetry
        self._report = report
        self._is_heard = is_heard
        self._on_message = on_message
        self._validator = validator
        # Sequences that the driver's own transactions have written.
        self._own: list[range] = []
        # Free most of the time, and then not worth a turn of the event loop.
        self.writing = anyio.Lock(fast_acquire=True)
        self.writer: int | None = None
        # The last sequence that is known of, and the last that the machine and the application have been notified of.
        self._last = 0
        self._followed = 0
        self._is_closed = False
        # Whether others may have committed more than is known of.
        self._is_look_due = False
        self._news = Signal()
        self._committed = Signal()
        self._undelivered = Signal()
        self.index_behind = Signal()
        # The last sequence handed to the application, None while `deliver` reads more; and what the application raised.
        self._delivered: int | None = None
        self._raised: BaseException | None = None

    async def committed(self) -> None:
        """Wait until messages are committed to the log."""
        await self._committed.wait()

    async def root(self) -> Node:
        """Return the root of the log."""
        return await self._workers.read(self._replica.root)

    def note_own(self, outcome: InsertOutcome) -> None:
        """Note a commit of this driver's own. While there are no others, nothing has to be looked up."""
        if self._validator is not None:
            self._validator.stored_batch(outcome.batch.batch, outcome.held)
        for sequences in outcome.sequences:
            if sequences.start == self._followed + 1:
                self._followed += len(sequences)
                self._announce()
            elif sequences:
                self._own.append(sequences)
                self._note_commits(sequences[-1])

    def _announce(self) -> None:
        if self._delivered is None or not self._deliver_recent(self._delivered):
            self._undelivered.set()
        self._committed.set()
        if self._replica.is_index_behind:
            self.index_behind.set()

    def _note_commits(self, last: int | None) -> None:
        """Note that the log has messages up to this one, that others may have committed some, or that it was closed."""
        if last is None:
            self._is_closed = True
        elif last == BY_OTHERS:
            self._is_look_due = True
        elif last > self._last:
            self._last = last
        self._news.set()

    async def follow(self, cursor: int) -> None:
        """Notify the machine, and the application, of what others commit: other threads, and other processes."""
        call_soon = loop_call_soon()

        def listen(last: int | None) -> None:
            # Own commits are noted when their thread is done.
            if threading.get_ident() != self.writer:
                call_soon(self._note_commits, last)

        self._last, self._followed = max(self._last, cursor), cursor
        with self._replica.listening(listen):
            # What was committed before anybody listened.
            await self._look()
            while True:
                count = await self._count()
                # With the lock, the sequences of every transaction of ours are known.
                async with self.writing:
                    others = list(_gaps(self._own, self._followed, count))
                    self._own = [own for own in self._own if own.stop > count + 1]
                    self._followed = max(self._followed, count)
                self._announce()
                self._telemetry.inserted("append", sum(map(len, others)))
                for sequences in others:
                    if self._is_heard():
                        await self._forward(sequences)
                    else:
                        await self._note_newest(sequences)

    async def _count(self) -> int:
        """Wait for a sequence that was not announced, and return the last one."""
        while True:
            # Also where a commit of this process is known of: the one that was announced may have come after it.
            if self._is_look_due:
                self._is_look_due = False
                await self._look()
            if self._last > self._followed:
                return self._last
            with anyio.move_on_after(0 if self._is_closed else self._replica.poll_seconds) as wait:
                await self._news.wait()
            self._is_look_due |= wait.cancelled_caught

    async def _look(self) -> None:
        self._last = max(self._last, await self.retry_until_available("following the log", self._read_count))

    async def _read_count(self) -> int:
        found = self._replica.count_at_once()
        return found if found is not None else await self._workers.read(self._replica.count)

    async def _forward(self, sequences: range) -> None:
        after, time_slice = sequences.start - 1, TimeSlice()
        while after < sequences.stop - 1:
            # What this process committed a moment ago is read without waiting.
            await time_slice.rest()
            limit = min(_PAGE, self._telemetry.most_at_once, sequences.stop - 1 - after)
            rows = await self._messages(after, limit)
            if self._validator is not None:
                self._validator.stored([message.key for _, message in rows])
            self._report(broadcast.Appended([(message.key, message.value) for _, message in rows]))
            after = rows[-1][0]

    async def _note_newest(self, sequences: range) -> None:
        """Report to the validator the last of some messages that nobody is to be sent.

        What peers append later mostly follows these, or the heads. It asks for others.
        """
        if self._validator is None:
            return
        rows = self._replica.recent(max(sequences.start, sequences.stop - _NEWEST) - 1, _NEWEST)
        keys = [message.key for _, message in await self._parse(rows)]
        self._validator.stored(keys or await self.retry_until_available("reading the heads", self._read_heads))

    async def _messages(self, after: int, limit: int) -> Sequence[tuple[int, SignedMessage]]:
        rows = self._replica.recent(after, limit)
        if not rows:
            return await self.retry_until_available(
                "reading new messages", lambda: self._workers.read(self._replica.arrivals, after, limit)
            )
        return await self._parse(rows)

    async def _read_heads(self) -> list[bytes]:
        return await self._workers.read(self._replica.heads)

    async def _parse(self, rows: Sequence[tuple[int, bytes]]) -> Sequence[tuple[int, SignedMessage]]:
        if sum(len(value) for _, value in rows) > _READ_AT_ONCE:
            return await self._workers.read(_read, rows, self._replica.topic)
        return _read(rows, self._replica.topic)

    async def retry_until_available(self, doing: str, call: Callable[[], Awaitable[_Result]]) -> _Result:
        """Repeat a call that nothing goes on without until the database answers, and return its result.

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
                self._telemetry.emit(events.Failed(doing, error))
            await anyio.sleep(_RETRY_SECONDS)

    async def deliver(self, cursor: int) -> None:
        """Hand every message to the application, once, in the order of arrival; of several encodings, the first."""
        time_slice = TimeSlice()
        while self._on_message is not None:
            await time_slice.rest()
            if cursor >= self._followed:
                self._delivered = cursor
                await self._undelivered.wait()
                cursor, self._delivered = self._delivered, None
                if self._raised is not None:
                    raise self._raised
                time_slice = TimeSlice()
                continue
            messages = await self._messages(cursor, _PAGE)
            for _, message in await self._without_duplicates(messages):
                self._hand_over(self._on_message, message)
            cursor = messages[-1][0]

    def _deliver_recent(self, cursor: int) -> bool:
        """Hand new messages to the application without a wait; return whether `deliver` can go on waiting."""
        if self._on_message is None or self._raised is not None or self._replica.has_alternatives:
            return False
        rows = self._replica.recent(cursor, _PAGE)
        if not rows or rows[-1][0] != self._followed or sum(len(value) for _, value in rows) > _READ_AT_ONCE:
            return False
        try:
            for _, message in _read(rows, self._replica.topic):
                self._hand_over(self._on_message, message)
        except BaseException as error:  # noqa: BLE001 - `deliver` raises it
            self._raised = error
        self._delivered = rows[-1][0]
        return self._raised is None

    def _hand_over(self, on_message: Callable[[SignedMessage], object], message: SignedMessage) -> None:
        try:
            with calling_back():
                on_message(self._replica.typed(message))
        except InvalidPayload as error:
            # A program without the log's type for payloads stored it: that must not end the context.
            if error.id != message.id:
                raise

    async def _without_duplicates(
        self, messages: Sequence[tuple[int, SignedMessage]]
    ) -> Sequence[tuple[int, SignedMessage]]:
        """Return those of the messages of which no other encoding arrived before."""
        # Where this process has committed the last of them, it knows of all before.
        if not self._replica.has_alternatives and self._replica.recent(messages[-1][0] - 1, 1):
            return messages
        return await self.retry_until_available(
            "looking for other encodings", lambda: self._workers.read(self._replica.without_duplicates, messages)
        )

    async def _read_state(self) -> State:
        found = self._replica.state_at_once()
        return found if found is not None else await self._workers.read(self._replica.state)

    async def report_commits(self, cursor: int) -> None:
        """Notify the application of commits: with one event of those that come close together."""
        while True:
            if not self._telemetry.is_heard:
                await self._telemetry.until_heard()
                cursor = self._followed
            if cursor >= self._followed:
                await self._committed.wait()
                continue
            state = await self.retry_until_available("reading the root", self._read_state)
            while self._followed < state.count:
                # Who brought the last ones is not known yet.
                await self._committed.wait()
            new = await self._messages(cursor, _LOOKED_AT)
            authors = tuple(sorted({message.author for _, message in new}))
            inserted, cursor = state.count - cursor, state.count
            sources = self._telemetry.take_sources()
            self._telemetry.emit(events.Committed(cursor, state.tree.root, inserted, sources, authors))
            await anyio.sleep(_REPORT_SECONDS)


def _read(rows: Sequence[tuple[int, bytes]], topic: str) -> Sequence[tuple[int, SignedMessage]]:
    return [(sequence, read_message(value, topic)) for sequence, value in rows]


def _gaps(own: Sequence[range], after: int, last: int) -> Iterator[range]:
    """Yield the sequences after one, up to a last one, that are in none of the ranges."""
    start = after + 1
    for sequences in sorted(own, key=lambda sequences: sequences.start):
        if start < sequences.start:
            yield range(start, min(sequences.start, last + 1))
        start = max(start, sequences.stop)
    if start <= last:
        yield range(start, last + 1)
