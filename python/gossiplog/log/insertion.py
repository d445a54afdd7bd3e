"""Messages from outside on their way into a log: chunks are verified without a lock, then written.

While one chunk is written, the next is verified in another thread. A message whose parents are neither in the log nor
in its chunk is kept aside; when all chunks are through, what was kept is sorted by key, which puts parents first, and
goes through once more. So the order of messages within one call does not matter. Many of them are kept in a file.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TypeAlias

from gossiplog import core
from gossiplog.errors import GossipLogError, MissingParents, StorageError
from gossiplog.log.applying import LOCK_SECONDS
from gossiplog.log.replica import Replica
from gossiplog.log.results import InsertResult
from gossiplog.message import SignedMessage, ids_of, stored_value
from gossiplog.replication.batches import VerifiedBatch

# Messages and bytes in the first chunk; later ones follow the rate at which they are written.
_CHUNK = 4096
_CHUNK_BYTES = 8 * 2**20
_LEAST_CHUNK = 64
_MOST_CHUNK = 2**16
# Seconds that a chunk's write should take: what is slower than the one before still keeps the lock's limit.
_WRITE_SECONDS = LOCK_SECONDS / 2
# Bytes of messages without their parents that are kept in memory, not in a temporary file.
_ORPHAN_BYTES = 64 * 2**20
# Missing parents that take as much memory as another error does, about a kilobyte.
_ERROR_PARENTS = 16

_Item: TypeAlias = tuple[int, bytes]


class _Orphans:
    """Messages without their parents: their keys in memory, their values in a file if they are many."""

    def __init__(self) -> None:
        self._values = tempfile.SpooledTemporaryFile(_ORPHAN_BYTES)  # noqa: SIM115
        # (key, index, start and length of the value in the file)
        self._entries: list[tuple[bytes, int, int, int]] = []

    def close(self) -> None:
        # Its buffer is written first: where that failed before, it fails again.
        with suppress(OSError):
            self._values.close()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: bytes, index: int, value: bytes) -> None:
        """Keep a message.

        Raises:
            StorageError: the temporary folder does not take it.
        """
        with _temporary():
            start = self._values.tell()
            self._values.write(value)
        self._entries.append((key, index, start, len(value)))

    def sorted(self) -> Iterator[_Item]:
        """Yield the messages, parents first. No more can be added.

        Raises:
            StorageError: the temporary folder does not take the last of them, or cannot be read.
        """
        for _, index, start, length in sorted(self._entries):
            with _temporary():
                # Writes first what is in the file's buffer.
                self._values.seek(start)
                value = self._values.read(length)
            yield index, value


@contextmanager
def _temporary() -> Iterator[None]:
    """Translate errors of the temporary file into StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"messages that came before their parents do not fit into {tempfile.gettempdir()}: {error.strerror};"
            " name another folder in TMPDIR, or give messages in the order of their ids"
        ) from error


def insert_many(
    replica: Replica,
    messages: Iterable[SignedMessage | bytes],
    *,
    signed: bool = False,
    max_refused: int | None = None,
) -> InsertResult:
    """Insert every message that is valid and whose parents are in the log or among the messages.

    Args:
        replica: of the log.
        messages: or their stored values.
        signed: whether their signatures are known to be valid, and not to be verified again.
        max_refused: how many errors of refused messages are returned, of which one that names many missing parents
            counts as several; None returns all.

    Raises:
        TypeError: something that is neither a message nor bytes; messages before it may be inserted.
        StorageError: the database or the temporary folder failed; messages before may be inserted.
    """
    insertion = _Insertion(replica, signed, math.inf if max_refused is None else max_refused)
    with closing(_Orphans()) as orphans:
        insertion.run(enumerate(map(stored_value, messages)), orphans)
        if orphans:
            insertion.run(orphans.sorted(), None)
    refused = sorted(insertion.refused.items(), key=lambda item: item[0])
    return InsertResult(insertion.inserted, insertion.duplicates, tuple(refused), insertion.more_refused)


class _Insertion:
    """What has become of the messages so far."""

    def __init__(self, replica: Replica, signed: bool, max_refused: float) -> None:
        self.inserted = 0
        self.duplicates = 0
        self.refused: dict[int, GossipLogError] = {}
        self.more_refused = 0
        self._replica = replica
        self._signed = signed
        self._max_refused = max_refused
        self._kept = 0

    def run(self, items: Iterator[_Item], orphans: _Orphans | None) -> None:
        """Insert messages; keep those without parents, or where they are not kept, refuse them."""
        chunks = _Chunks(items)
        chunk = chunks.next()
        following = chunks.next()
        if not following:
            if chunk:
                # Its messages were sorted: no more parents come.
                self._write(chunk, self._prepare(chunk), chunks, None)
            return
        with ThreadPoolExecutor(1, "gossiplog-verify") as thread:
            batch = self._prepare(chunk)
            while chunk:
                ahead: Future[VerifiedBatch] | None = thread.submit(self._prepare, following) if following else None
                self._write(chunk, batch, chunks, orphans)
                chunk, following = following, chunks.next()
                if ahead is not None:
                    batch = ahead.result()

    def _prepare(self, chunk: Sequence[_Item]) -> VerifiedBatch:
        return self._replica.check(self._replica.verify([value for _, value in chunk], signed=self._signed))

    def _write(self, chunk: Sequence[_Item], batch: VerifiedBatch, chunks: _Chunks, orphans: _Orphans | None) -> None:
        begin = time.monotonic()
        outcome = self._replica.insert(batch)
        chunks.took(len(outcome.inserted), time.monotonic() - begin)
        self.inserted += len(outcome.inserted)
        self.duplicates += outcome.duplicates
        for index, error in itertools.chain(outcome.invalid, outcome.refused.items()):
            self._refuse(chunk[index][0], error)
        keys = outcome.keys if outcome.orphans else []
        for index, parents in outcome.orphans:
            place, value = chunk[index]
            if orphans is None:
                self._refuse(place, MissingParents(core.encode_id(keys[index]), ids_of(parents)))
            else:
                orphans.add(keys[index], place, value)

    def _refuse(self, index: int, error: GossipLogError) -> None:
        """Keep the error of a message, or count it where there are very many."""
        if self._kept < self._max_refused:
            self.refused[index] = error
            self._kept += 1 + (len(error.parents) // _ERROR_PARENTS if isinstance(error, MissingParents) else 0)
        else:
            self.more_refused += 1


class _Chunks:
    """Cuts what the caller gave into chunks that can be written while the lock is held no longer than it may be."""

    def __init__(self, items: Iterator[_Item]) -> None:
        self._items = items
        self._limit = _CHUNK

    def next(self) -> list[_Item]:
        chunk: list[_Item] = []
        size = 0
        while len(chunk) < self._limit and size < _CHUNK_BYTES:
            item = next(self._items, None)
            if item is None:
                break
            chunk.append(item)
            size += len(item[1])
        return chunk

    def took(self, messages: int, seconds: float) -> None:
        """Learn from a write of so many messages."""
        if messages >= _LEAST_CHUNK and seconds > 0:
            wanted = int(messages * _WRITE_SECONDS / seconds)
            # Half as many again at most: one fast write says little about the next.
            self._limit = max(_LEAST_CHUNK, min(wanted, self._limit + self._limit // 2, _MOST_CHUNK))
