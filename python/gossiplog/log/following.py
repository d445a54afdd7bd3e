"""Following a log: messages in the order of their arrival, as they are committed, by whichever process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeAlias

from gossiplog.checks import check_integer
from gossiplog.core import SignedMessage, WritePlan
from gossiplog.errors import CursorOutdated, LogClosed, LogWentBack
from gossiplog.log.blocking import warn_on_event_loop
from gossiplog.log.payloads import P, Payloads
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
        self._lock = threading.Lock()
        # By what stands for each, since there may be thousands that come and go. Changed by the lock's holder alone.
        self._listeners: dict[object, Listener] = {}
        # The values of messages by their sequences; guarded by the lock.
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
            with self._lock:
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
        # Copied in one step, without the lock: a signal handler may close the log.
        for listener in [*self._listeners.values()]:
            listener(last)

    @property
    def is_watching(self) -> bool:
        """Whether the storage announces the commits of others, which the first listener begins."""
        return self._is_watching

    def watch(self) -> None:
        """Have the storage announce the commits of others, from the first call until the log is closed."""
        if self._is_watching:
            return
        with self._lock:
            is_first, self._is_watching = not self._is_watching, True
        if is_first:
            try:
                self._storage.watch(lambda: self._wake(BY_OTHERS))
            except BaseException:
                # As where no thread can be started: whoever waits next tries again.
                self._is_watching = False
                raise

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Notify a listener of commits, for the time of a block.

        No wake-up is lost: who waits listens before it reads what was committed.
        """
        key = object()
        with self._lock:
            self._listeners[key] = listener
        try:
            self.watch()
            yield
        finally:
            with self._lock:
                del self._listeners[key]

    def recent(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return messages (sequence, value) after a sequence, from memory: none where the next one is not there."""
        found: list[tuple[int, bytes]] = []
        with self._lock:
            while len(found) < limit and (value := self._recent.get(after + 1)) is not None:
                after += 1
                found.append((after, value))
        return found

    def start(self, after: int | None) -> int:
        """Return the sequence after which messages are wanted: that of a cursor, by default the last one now.

        Raises: as `sequence_of`.
        """
        return read(self._storage, self._position).count if after is None else self.sequence_of(after)

    def sequence_of(self, cursor: int) -> int:
        """Return how many messages had arrived when the log gave a cursor.

        Raises:
            CursorOutdated: the cursor is of another generation of the log.
            LogClosed: the log is closed.
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

    def look(self, after: int, batch: int) -> tuple[Arrivals[Any], int] | None:
        """Return the messages after a sequence, and the sequence of the last of them; None where there are none.

        Raises:
            LogClosed: the log was closed.
            LogWentBack: the log has fewer messages than the sequence says.
            StorageError: the files of the log are not those that were opened, so that nothing more comes.
        """

        def look(reader: Reader) -> tuple[Sequence[tuple[int, SignedMessage]], int]:
            found = read_arrivals(reader, self._topic, after, batch)
            return found, reader.position().generation if found else self._position(reader).count

        found, number = read(self._storage, look)
        if found:
            last = found[-1][0]
            messages = self._payloads.all_typed(message for _, message in found)
            return Arrivals(messages, number * _GENERATION + last), last
        # Of files that have lost their names, the same would be read without end.
        self._storage.check_files()
        if number < after:
            raise LogWentBack(number, after)
        return None


class Turn:
    """The turn of who iterates: a block that refuses others meanwhile, on threads and event loops alike."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another thread or task waits for the next of these: give each an iterator of its own")

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Subscription(Iterator[Arrivals[P]], Generic[P]):
    """Lists of messages as they arrive, until it or the log is closed. Made by `Log.subscribe`.

        with log.subscribe(after=cursor) as subscription:
            for messages in subscription:
                cursor = messages.cursor

    Each thread takes one of its own: who takes the next messages while another waits for them gets a RuntimeError.

    Args:
        notifier: of the log.
        after: the sequence after which it begins.
        batch_size: the most messages in a list.

    Examples:
        >>> log.append_many(["one", "two"])[0].clock
        1
        >>> with log.subscribe(after=0) as subscription:
        ...     for messages in subscription:
        ...         print([message.payload for message in messages], messages.cursor)
        ...         subscription.close()
        ['one', 'two'] 2
    """

    def __init__(self, notifier: CommitNotifier, after: int, batch_size: int) -> None:
        self._notifier = notifier
        self._sequence = after
        self._batch_size = batch_size
        self._is_closed = False
        self._turn = Turn()
        # Its `put` may be called by a signal handler in the midst of `get`, and no wake-up is lost.
        self._wakings: SimpleQueue[int | None] = SimpleQueue()

    def __next__(self) -> Arrivals[P]:
        """Return the next messages; wait for them.

        Raises:
            RuntimeError: another thread waits for them.
            LogWentBack, CorruptLog, StorageError: as `Log.subscribe` says; the subscription has ended then.
        """
        with self._turn:
            return self._next()

    def _next(self) -> Arrivals[P]:
        try:
            while not self._is_closed:
                # Nothing is announced to those who need not wait.
                if not self._notifier.is_watching and (messages := self._look()) is not None:
                    return messages
                # Those that steps without a wait have left: the look that comes finds what they announced.
                while not self._wakings.empty() and not self._is_closed:
                    self._wakings.get()
                with self._notifier.listening(self._wakings.put):
                    if (messages := self._look()) is not None:
                        return messages
                    warn_on_event_loop("iterating over Log.subscribe()", "`async for messages in log.subscribe()`")
                    with suppress(Empty):
                        self._wakings.get(timeout=self._notifier.poll_seconds)
        except LogClosed:
            self._is_closed = True
        except BaseException as error:
            self._is_closed = not isinstance(error, KeyboardInterrupt)
            raise
        raise StopIteration

    def _look(self) -> Arrivals[P] | None:
        found = self._notifier.look(self._sequence, self._batch_size)
        if found is None:
            return None
        messages, self._sequence = found
        return messages

    def close(self) -> None:
        """End it, and the wait of the thread that iterates. Any thread may, and a signal handler."""
        self._is_closed = True
        self._wakings.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> NoReturn:
        raise TypeError(
            "this subscription blocks its thread, and with it the event loop: async for takes that of a"
            " gossiplog.AsyncLog, as `async with gossiplog.open_async(...) as log` opens one"
        )


def check_subscription(after: int | None, batch_size: int) -> None:
    """Check what a subscription is asked for.

    Raises:
        TypeError: an id as the cursor, or a `batch_size` that is no integer.
        ValueError: a cursor below 0, a `batch_size` below 1, or one of them larger than a log can be.
    """
    if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
        raise TypeError(
            f"after is {after!r}: expected the `cursor` of a list that subscribe gave, or 0 for the start of the"
            " log; ids are for messages(after=...)"
        )
    check_integer("batch_size", batch_size)
    if not 1 <= batch_size <= MAX_INTEGER:
        raise ValueError(f"a batch_size of {batch_size}: expected 1 or more")
    if after is not None and not 0 <= after <= MAX_INTEGER:
        raise ValueError(f"a cursor of {after}: expected one that a list had, or 0")
