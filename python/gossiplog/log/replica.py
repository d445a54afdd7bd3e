"""A log as the driver of a network uses it: verifies, checks and inserts encoded messages, and reads by key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from gossiplog import core
from gossiplog.errors import CorruptLog, UnknownMessage
from gossiplog.log import encodings
from gossiplog.log.ancestry import frontiers
from gossiplog.log.following import CommitNotifier, Listener
from gossiplog.log.payloads import Payloads
from gossiplog.log.reading import read, read_arrivals, read_messages, read_rows, read_values, write
from gossiplog.log.state import Snapshot, State, States, UnindexedMessages
from gossiplog.log.writing import Writer
from gossiplog.message import ids_of, key_of
from gossiplog.replication.batches import InsertOutcome, VerifiedBatch
from gossiplog.storage import Storage
from gossiplog.storage.base import MAX_INTEGER, PAGE_BYTES, Position, Reader, Transaction

_PAGE = 256
_FEW_MESSAGES = 16
"""Messages, at most, that are inserted or replayed without waking a thread."""
_FEW_KEYS = 256
"""Keys, at most, that are looked up in memory without waking a thread."""
_FEW_STORED, _FEW_BYTES = 4096, 2**20
"""Messages, and their bytes, at most, of a log in memory, any part of which is read without waking a thread."""
_KEYS = 4096
"""Keys that are compared with another log's at a time."""


class Replica:
    """One replica of a log among others. Every method blocks for as long as the database takes, and is thread-safe.

    All raise LogClosed once the log is closed, StorageError when the database fails, CorruptLog when it is damaged.

    Args:
        payloads: what the application says of payloads.

    Examples:
        >>> from gossiplog.lowlevel import Replica, replica_of
        >>> isinstance(replica_of(log), Replica)
        True
    """

    def __init__(
        self,
        storage: Storage,
        states: States,
        topic: str,
        payloads: Payloads[Any],
        writer: Writer,
        notifier: CommitNotifier,
    ) -> None:
        self.topic = topic
        self._storage = storage
        self._states = states
        self._payloads = payloads
        self._writer = writer
        self._notifier = notifier

    @property
    def place(self) -> str:
        """Where the log is, for people: see `Storage.place`."""
        return self._storage.place

    @property
    def file(self) -> Path | None:
        """The file that the log is in: see `Storage.file`."""
        return self._storage.file

    @property
    def argument(self) -> str:
        """The log as an argument of a command: see `Storage.argument`."""
        return self._storage.argument

    @property
    def read_only(self) -> bool:
        """Whether the log was opened so that nothing can be stored."""
        return self._storage.read_only

    @property
    def write_refusal(self) -> str:
        """Why nothing can be stored, as it was found when the log was opened: see `Storage.write_refusal`."""
        return self._storage.write_refusal

    def count(self) -> int:
        """Return how many messages there are: the sequence of the last."""
        return read(self._storage, lambda reader: self._states.position(reader).count)

    def count_at_once(self) -> int | None:
        """Return what `count` does, if nothing has to be waited for; else None."""
        with self._storage.lock_if_free() as is_locked:
            return self.count() if is_locked else None

    def known(self, keys: Sequence[bytes]) -> Collection[bytes]:
        """Return those of the keys that are in the log."""
        return read(self._storage, lambda reader: reader.sequences(keys).keys(), single=True)

    @contextmanager
    def reading_at_once(self) -> Iterator[bool]:
        """Return a context whose value is whether reads in it wait for nobody, and take some milliseconds at most."""
        if self._states.count > _FEW_STORED:
            yield False
            return
        with self._storage.lock_if_free() as is_locked:
            yield is_locked and self._storage.size() <= _FEW_BYTES

    def known_at_once(self, keys: Sequence[bytes]) -> Collection[bytes] | None:
        """Return what `known` does, if nothing has to be waited for and it takes no longer than a thread; else None."""
        if len(keys) > _FEW_KEYS:
            return None
        # Most peers' heads are this log's.
        if len(heads := self._states.newest_heads.among(keys)) == len(keys):
            return heads
        with self._storage.lock_if_free() as is_locked:
            return self.known(keys) if is_locked else None

    def position(self) -> Position:
        """Return how far the log has come."""
        return read(self._storage, self._states.position)

    def lacking(self, other: Replica) -> Iterator[list[bytes]]:
        """Yield the keys, ascending and in pages, of the messages that another log lacks."""
        with self._storage.reader() as reader:
            count = reader.position().count
            with reader.scan(("key",), b"", None, count) as rows:
                while keys := [key for (key,) in islice(rows, _KEYS)]:
                    known = set(other.known(keys))
                    yield [key for key in keys if key not in known]

    def messages(self, keys: Sequence[bytes]) -> Iterator[core.SignedMessage]:
        """Yield messages of the log by their keys, which ascend; they are read in pages.

        Raises:
            CorruptLog: one of them is not there, or damaged.
        """
        start = 0
        while start < len(keys):
            page = keys[start : start + _PAGE]
            found = self._messages(page)
            if page[0] not in found:
                raise CorruptLog([f"message {core.encode_id(page[0])} is in the tree, but is not stored"])
            for key in page:
                # Of very long ones, the first.
                if key not in found:
                    break
                yield found[key]
                start += 1

    def _messages(self, keys: Sequence[bytes]) -> Mapping[bytes, core.SignedMessage]:
        return read(
            self._storage,
            lambda reader: read_messages(reader, self.topic, keys, reader.position().count, PAGE_BYTES),
        )

    def encodings(self, contents: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the keys of the log's first encodings of messages, by those of the canonical ones."""

        def encodings(reader: Reader) -> Mapping[bytes, bytes]:
            found = {key: key for key in reader.sequences(contents)}
            others = reader.alternatives(contents) if reader.position().alternative else {}
            for content, sequence in others.items():
                if content not in found:
                    found.update(
                        (content, message.key) for _, message in read_arrivals(reader, self.topic, sequence - 1, 1)
                    )
            return found

        return read(self._storage, encodings)

    def value(self, id: str) -> bytes:
        """Return the stored value of the message with an id.

        Raises:
            DecodeError: text that is no id.
            UnknownMessage: it is not in the log.
        """
        key = key_of(id)
        found = read(self._storage, lambda reader: read_values(reader, [key], MAX_INTEGER), single=True)
        if key not in found:
            raise self.unknown(id)
        return found[key]

    def unknown(self, id: str) -> UnknownMessage:
        """Return UnknownMessage, once the tree confirms that the message is absent.

        Raises:
            CorruptLog: the log has lost a message there.
        """
        self.snapshot().check_absent([key_of(id)])
        return UnknownMessage(id)

    def page(
        self, after: bytes | None, before: bytes | None, *, reverse: bool, limit: int, most_bytes: int
    ) -> tuple[Sequence[tuple[bytes, bytes]], bool]:
        """Return messages (key, value) between two keys, both left out: ascending, or descending, by key.

        Args:
            after: None is the start of the log.
            before: None is the end of the log.
            reverse: descending.
            limit: the most messages.
            most_bytes: of their values; one message is returned, however long it is, and alone if it has half of them.

        Returns:
            The messages, and whether there may be more.
        """
        snapshot = self.snapshot()
        count = snapshot.state.count

        def rows_of(reader: Reader) -> tuple[Sequence[tuple[bytes, bytes, bytes]], bool]:
            first = read_rows(reader, after, before, reverse, 1, count)
            size = sum(len(value) for _, _, value in first)
            # The storage reads one that exceeds its limit, too: behind a long message, that would be as much again.
            if not first or size > most_bytes // 2:
                return first, bool(first)
            ((key, _, _),) = first
            start, end = (after, key) if reverse else (key, before)
            return [*first, *read_rows(reader, start, end, reverse, limit, count)], False

        rows, is_more = read(self._storage, rows_of)
        page = rows
        if not is_more:
            totals = list(accumulate(len(value) for _, _, value in rows))
            page = rows[: max(1, min(limit, sum(total <= most_bytes for total in totals)))]
            # A page of the storage's ends with a long message, too: what follows is not known then.
            is_more = len(page) < len(rows) or (len(rows) > 0 and totals[-1] > PAGE_BYTES)
        leaves = [(key, hash) for key, hash, _ in rows]
        # What comes after the last one is not known then.
        end = leaves.pop()[0] if is_more else after if reverse else before
        if reverse:
            snapshot.check_range(end, before, leaves[::-1])
        else:
            snapshot.check_range(after, end, leaves)
        return [(key, value) for key, _, value in page], is_more

    def frontiers(self, id: str, most_ids: int, most_bytes: int) -> list[tuple[int, tuple[str, ...]]]:
        """Return the latest ancestors of a message some clocks back, within limits: see `ancestry.frontiers`."""
        key = key_of(id)
        try:
            return read(
                self._storage,
                lambda reader: frontiers(
                    reader, self.topic, key, self._states.sequences, most_ids=most_ids, most_bytes=most_bytes
                ),
            )
        except UnknownMessage:
            raise self.unknown(id) from None

    def heads(self) -> list[bytes]:
        """Return the keys, ascending, of the messages that no other names as a parent."""
        return [
            key
            for key, _ in read(self._storage, lambda reader: self._states.heads(reader, self._states.position(reader)))
        ]

    def next_parents(self) -> tuple[str, ...]:
        """Return the ids, ascending, of the heads that an own message would name now: all, or of many the last."""
        return ids_of(key for key, _ in read(self._storage, self._states.next_parents))

    def check_appendable(self) -> None:
        """Read what an append reads, so that damage there is found before one.

        Raises:
            CorruptLog: the head of an own message, or an index that leads to it, is damaged.
        """
        self.next_parents()

    def check_files(self) -> None:
        """Check that the files of the log are those that were opened, without waiting for writers.

        Raises:
            StorageError: one was deleted, replaced or written over, and nothing more is written.
        """
        self._storage.check_files()

    def root(self) -> core.Node:
        """Return the root of the tree."""
        return self.state().tree.root

    def state(self) -> State:
        """Return the messages' number, the tree and the heads, all of one moment."""
        return self._states.current()

    def state_at_once(self) -> State | None:
        """Return what `state` does, if nothing has to be waited for and few messages came since; else None."""
        if self._states.count - self._states.newest.count > _FEW_MESSAGES:
            return None
        with self._storage.lock_if_free() as is_locked:
            return self.state() if is_locked else None

    def snapshot(self) -> Snapshot:
        """Return the log as it is now, for a sync client or server."""
        return Snapshot(self._storage, self._states.current())

    def verify(self, values: Sequence[bytes], *, signed: bool = False) -> VerifiedBatch:
        """Verify encoded messages. The signatures of those that the log has already are not checked again.

        Args:
            values: as peers, or the application, gave them.
            signed: whether all signatures are known to be valid.
        """
        # Read first: what is committed after it is looked up again under the lock.
        count = self.count()
        if not signed:
            return VerifiedBatch(core.verify_batch(values, self.topic, self.known), count)
        batch = core.read_batch(values, self.topic)
        batch.drop_known(self.known(batch.fresh_keys()))
        return VerifiedBatch(batch, count)

    @property
    def may_refuse(self) -> bool:
        """Whether the application may refuse messages: it checks payloads, or applies them to tables of its own."""
        return self.checks or self._writer.applies

    @property
    def checks(self) -> bool:
        """Whether the application checks payloads, which may take any time."""
        return self._payloads.checks_others

    def check(self, batch: VerifiedBatch) -> VerifiedBatch:
        """Run the application's payload check over a batch, and nothing else."""
        check = self._payloads.check
        return batch.check((lambda message: check(message.payload, message.id)) if self.checks else None)

    def typed(self, message: core.SignedMessage) -> core.SignedMessage:
        """Return a message whose payload is read by the log's type for payloads, where it has one."""
        return self._payloads.typed(message)

    def insert(self, batch: VerifiedBatch) -> InsertOutcome:
        """Store the messages of a batch whose parents are in the log or in the batch; check it before, if need be.

        Raises:
            RefusedMessage: `apply` raised for a message that is stored already.
            StorageError: the database failed. What an earlier transaction of the call stored stays.
            CorruptLog: the log has lost a parent of a message that came by sync. What was inserted stays.
        """
        outcome = self._writer.insert(self.check(batch) if batch.refused is None else batch)
        if batch.is_synced and outcome.orphans:
            # This log may have lost a missing parent, and not its source.
            missing = {parent for _, parents in outcome.orphans for parent in parents}
            self.snapshot().check_absent(missing.difference(outcome.keys))
        return outcome

    def insert_at_once(self, batch: VerifiedBatch) -> InsertOutcome | None:
        """Insert a few checked messages, if nothing has to be waited for and it takes some milliseconds at most.

        Returns:
            None if it may take longer, as where a disk or `apply` has a part in it; then nothing was stored.
        """
        if batch.is_synced or (self.checks and batch.refused is None) or len(batch.batch) > _FEW_MESSAGES:
            return None
        return self._writer.insert_at_once(batch)

    @property
    def is_index_behind(self) -> bool:
        """Whether one of the next insertions will write the index over many messages, unless `index` is called."""
        return self._writer.is_index_behind

    def read_unindexed(self) -> UnindexedMessages:
        """Return the messages that the index does not cover, so that `index` does not read them with the lock held."""
        unindexed = self._states.read_unindexed()
        self._writer.note_indexed(unindexed.indexed)
        return unindexed

    def index(self, unindexed: UnindexedMessages | None = None) -> None:
        """Write the index over all messages, in a transaction of its own."""
        self._writer.index(unindexed)

    def try_writing(self) -> None:
        """Write and commit something that changes nothing.

        Raises:
            StorageError: the database cannot be written.
        """

        def touch(transaction: Transaction) -> None:
            applied = transaction.position().applied
            # SQLite writes no page whose content is never changed.
            transaction.set_applied(applied + 1)
            transaction.set_applied(applied)

        write(self._storage, touch)

    def listening(self, listener: Listener) -> AbstractContextManager[None]:
        """Notify a listener of commits, and of the log's end, for the time of a block."""
        return self._notifier.listening(listener)

    @property
    def poll_seconds(self) -> float:
        """How long a listener waits before it looks for commits of other processes that nobody announced."""
        return self._notifier.poll_seconds

    def recent(self, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return the values of what `arrivals` does, from memory.

        That is nothing, unless this process committed what follows a moment ago, while somebody listened.
        """
        return self._notifier.recent(after, limit)

    @property
    def has_alternatives(self) -> bool:
        """Whether any message is known to be an alternative encoding."""
        return self._states.alternative > 0

    def without_duplicates(
        self, messages: Sequence[tuple[int, core.SignedMessage]]
    ) -> Sequence[tuple[int, core.SignedMessage]]:
        """Return those of the log's messages, with their sequences, of which no other encoding arrived before."""
        contents = encodings.message_content_keys(messages)
        duplicates = read(self._storage, lambda reader: encodings.stored_duplicates(reader, contents))
        return [numbered for numbered in messages if numbered[0] not in duplicates] if duplicates else messages

    def arrivals(self, after: int, limit: int) -> Sequence[tuple[int, core.SignedMessage]]:
        """Return messages with their sequences, after one, in order of arrival; one at least, if there is one."""
        return read(self._storage, lambda reader: read_arrivals(reader, self.topic, after, limit), single=True)
