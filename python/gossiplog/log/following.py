"""Following a log: messages in the order of their arrival, as they are committed, by whichever process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from gossiplog.core import SignedMessage, WritePlan
from gossiplog.errors import CursorOutdated, LogClosed, LogWentBack
from gossiplog.log.payloads import Payloads
from gossiplog.log.reading import read, read_arrivals
from gossiplog.log.results import Arrivals
from gossiplog.storage import Storage
from gossiplog.storage.base import MAX_INTEGER, Position, Reader

_GENERATION = 2**48
"""What a generation counts in a cursor: those of a log that was never rebased are the sequences themselves."""
POLL_SECONDS = 0.25
"""How often the commits of other processes are looked for."""
ANNOUNCED_POLL_SECONDS = 2.0
"""The same where the database announces them: an announcement may be lost on a connection that is."""
BY_OTHERS = 0
"""What a listener is called with when others may have committed: how far the log has come is to be looked up."""

Listener: TypeAlias = Callable[[int | None], object]
"""Is called with the sequence of the last message of a commit of this process, with BY_OTHERS, or with None when the
log was closed; on the thread of the commit, or of the storage, so it must not wait."""

# The last messages that are kept for those who follow, and their bytes: a database that has just written them need not
# be asked for them.
_RECENT = 512
_RECENT_BYTES = 2**20


class CommitNotifier:
    """Wakes those who follow a log.

    Args:
        position: returns the position of a state, and raises LogWentBack where it is before one that was seen.
        payloads: by which those who follow read the messages.
    """

    def __init__(
        self, storage: Storage, topic: str, position: Callable[[Reader], Position], payloads: Payloads[Any]
    ) -> None:
        self._storage = storage
        self._topic = topic
        self._position = position
        self._payloads = payloads
        self._changed = threading.Condition()
        self._waiting = 0
        self._wakings = 0
        self._listeners: tuple[Listener, ...] = ()
        # The values of messages by their sequences; guarded by the lock of `_changed`.
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._is_watching = False

    @property
    def poll_seconds(self) -> float:
        """How long a wait for commits of other processes lasts before they are looked for."""
        return ANNOUNCED_POLL_SECONDS if self._storage.announces_commits else POLL_SECONDS

    def committed(self, plan: WritePlan, last: int) -> None:
        """Announce that this process has committed the messages of a plan; `last` is the sequence of the last."""
        # Of very many, most would be pushed out again.
        if self._listeners and len(plan.order) <= _RECENT:
            with self._changed:
                for sequence, value, _ in plan.messages:
                    self._recent[sequence] = value
                    self._recent_bytes += len(value)
                while len(self._recent) > _RECENT or self._recent_bytes > _RECENT_BYTES:
                    _, value = self._recent.popitem(last=False)
                    self._recent_bytes -= len(value)
        self._wake(last)

    def closed(self) -> None:
        """End every wait: the log was closed."""
        self._wake(None)

    def _wake(self, last: int | None) -> None:
        # No lost wake-up: waiters register before they read what was committed.
        if self._waiting:
            with self._changed:
                self._wakings += 1
                self._changed.notify_all()
        for listener in self._listeners:
            listener(last)

    def _watch(self) -> None:
        """Have the storage announce the commits of others, from the first call until the log is closed."""
        if self._is_watching:
            return
        with self._changed:
            is_first, self._is_watching = not self._is_watching, True
        if is_first:
            self._storage.watch(lambda: self._wake(BY_OTHERS))

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Notify a listener of commits, for the time of a block."""
        with self._changed:
            self._listeners = (*self._listeners, listener)
        try:
            self._watch()
            yield
        finally:
            with self._changed:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

    def recent(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return messages (sequence, value) after a sequence, from memory: none where the next one is not there."""
        found: list[tuple[int, bytes]] = []
        with self._changed:
            while len(found) < limit and (value := self._recent.get(after + 1)) is not None:
                after += 1
                found.append((after, value))
        return found

    def follow(self, after: int | None, batch: int) -> Iterator[Arrivals]:
        """Return an iterator over messages after a cursor, by default the last one now, until the log is closed.

        Raises:
            CursorOutdated: the cursor is of another generation of the log.
            LogWentBack: the log has fewer messages than the cursor says; the iterator raises it, too.
            StorageError: the files of the log are not those that were opened, so that nothing more comes; raised by the
                iterator.
        """
        if after is not None:
            return self._follow(self.sequence_of(after), batch)
        return self._follow(read(self._storage, self._position).count, batch)

    def sequence_of(self, cursor: int) -> int:
        """Return how many messages had arrived when the log gave a cursor.

        Raises:
            CursorOutdated: the cursor is of another generation of the log.
            LogWentBack: the log has fewer messages than the cursor says.
            ValueError: no log gives such a cursor.
        """
        if not 0 <= cursor <= MAX_INTEGER:
            raise ValueError(f"a cursor of {cursor}: expected one that a list had, or 0")
        if cursor == 0:
            return 0
        position = read(self._storage, self._position)
        generation, sequence = divmod(cursor, _GENERATION)
        if generation != position.generation:
            raise CursorOutdated(
                f"the cursor {cursor} is of generation {generation} of this log, which has been rebased and is of"
                f" generation {position.generation}: begin anew with after=0, and clear what was made of the messages"
                " before",
                generation,
                position.generation,
            )
        if sequence > position.count:
            raise LogWentBack(position.count, sequence)
        return sequence

    def _follow(self, sequence: int, batch: int) -> Iterator[Arrivals]:
        try:
            while True:
                found, generation = self._arrivals(sequence, batch)
                if found:
                    sequence = found[-1][0]
                    messages = self._payloads.all_typed(message for _, message in found)
                    yield Arrivals(messages, generation * _GENERATION + sequence)
                else:
                    # Of files that have lost their names, the same would be read without end.
                    self._storage.check_files()
                    if (count := self.wait(sequence)) < sequence:
                        raise LogWentBack(count, sequence)
        except LogClosed:
            return

    def _arrivals(self, after: int, limit: int) -> tuple[Sequence[tuple[int, SignedMessage]], int]:
        """Return messages with their sequences, after one, and the generation of the log, which is 0 without any."""

        def arrivals(reader: Reader) -> tuple[Sequence[tuple[int, SignedMessage]], int]:
            found = read_arrivals(reader, self._topic, after, limit)
            return found, reader.position().generation if found else 0

        return read(self._storage, arrivals)

    def wait(self, cursor: int) -> int:
        """Wait until there are messages after a sequence, but `poll_seconds` at most.

        Returns:
            The sequence of the last message; that of before, if it had to wait.
        """
        with self._changed:
            self._waiting += 1
            wakings = self._wakings
        try:
            self._watch()
            # Looked up when it is known that somebody waits: what is committed from now on notifies. And not under the
            # lock, because a log in memory may not be read for as long as a transaction hangs, and who wakes must not.
            count = self._count()
            with self._changed:
                if count <= cursor and wakings == self._wakings:
                    self._changed.wait(self.poll_seconds)
            return count
        finally:
            with self._changed:
                self._waiting -= 1

    def _count(self) -> int:
        return read(self._storage, lambda reader: self._position(reader).count)
