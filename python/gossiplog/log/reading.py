"""Reading a log: every stored message that the log hands out, builds upon or serves passes through here.

A disk may rot under a log, so each value is held against the key that it is stored under, and nothing that fails is
handed out. What looks like damage is read once more through a new connection before it is believed: an error of a disk
that passes looks the same. The audit and the Spark jobs, which look for damage, read the storage itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, TypeVar, cast

from gossiplog import core
from gossiplog.core import Batch, SignedMessage
from gossiplog.errors import CorruptLog, DecodeError, InvalidMessage, TreeError
from gossiplog.storage import Storage
from gossiplog.storage.base import MAX_INTEGER, DiskFailure, Reader, Transaction

_Result = TypeVar("_Result")
Row = tuple[int, bytes]
"""A sequence and a stored value."""
Leaf = tuple[bytes, bytes]
"""The key of a message and the hash of its leaf."""

_ANOTHER = "the value that is stored for it has another hash"
_MISSING = "it is not there"
# Sequences that are kept: some megabytes.
_MOST_KNOWN = 16_384


class _RaisingCorruptLog:
    """Translate decoding errors of stored data into CorruptLog.

    A class, because a generator costs each append microseconds.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        if isinstance(error, TreeError):
            raise CorruptLog([f"the tree: {error}"]) from error
        if isinstance(error, (DecodeError, InvalidMessage)):
            raise CorruptLog([f"a stored record: {error}"]) from error


raising_corrupt_log = _RaisingCorruptLog()


def read(storage: Storage, call: Callable[[Reader], _Result], *, single: bool = False) -> _Result:
    """Return what a call reads from one state of a log; if it meets damage, call it again over a new connection.

    Args:
        storage: of the log.
        call: takes the reader; what it changes must bear being done twice.
        single: as `Storage.reader` takes it.

    Raises:
        CorruptLog: the second time, too, it met damage.
        StorageError: the database failed.
    """
    # No context manager, which would take longer than a small read; and not in the handler: the second error does not
    # bear the first.
    try:
        return _read_once(storage, call, single)
    except (CorruptLog, DiskFailure):
        pass
    return _read_once(storage, call, single)


def _read_once(storage: Storage, call: Callable[[Reader], _Result], single: bool) -> _Result:
    with storage.reader(single=single) as reader, raising_corrupt_log:
        return call(reader)


def raise_damage(storage: Storage, error: CorruptLog) -> NoReturn:
    """Raise what was found outside a reader within one: it names the file, and later readers have new connections.

    Args:
        storage: that was read.
        error: to raise.
    """
    with storage.reader():
        raise error


@contextmanager
def locating_damage(storage: Storage) -> Iterator[None]:
    """Raise the damage that a block finds as `raise_damage` does."""
    try:
        yield
    except CorruptLog as error:
        raise_damage(storage, error)


def write(storage: Storage, call: Callable[[Transaction], _Result], *, again: bool = True) -> _Result:
    """Return what a call returns within a transaction, which is committed; if it meets damage, roll back and repeat it.

    Args:
        storage: of the log.
        call: takes the transaction; what it changes elsewhere must bear being done twice.
        again: whether it is repeated.

    Raises:
        CorruptLog: the second time, too, it met damage. Nothing is written.
        StorageError: the database failed.
    """
    is_done = False
    try:
        with storage.transaction() as transaction:
            result = call(transaction)
            is_done = True
    except (CorruptLog, DiskFailure):
        # What a commit that failed has written is not known: it is not repeated.
        if is_done or not again:
            raise
    else:
        return result
    return write(storage, call, again=False)


def read_message(reader: Reader, topic: str, key: bytes, count: int) -> SignedMessage | None:
    """Return the message with a key, None where it is not among the first `count`.

    Raises:
        CorruptLog: what is stored under the key is not that message.
    """
    return read_messages(reader, topic, [key], count).get(key)


def read_messages(
    reader: Reader, topic: str, keys: Sequence[bytes], count: int, limit: int | None = None
) -> dict[bytes, SignedMessage]:
    """Return messages as `Reader.values` does their values.

    Raises:
        CorruptLog: what is stored under one of the keys is not that message.
    """
    found: dict[bytes, SignedMessage] = {}
    for key, value in reader.values(keys, count, limit).items():
        try:
            message = core.read_message(value, topic)
        except InvalidMessage as error:
            raise _damaged(named_by_key(key), error if value else _MISSING) from error
        if message.key != key:
            raise _damaged(named_by_key(key), _ANOTHER)
        found[key] = message
    return found


def read_values(reader: Reader, keys: Sequence[bytes], count: int, limit: int | None = None) -> dict[bytes, bytes]:
    """Return stored values as `Reader.values` does; none is decoded.

    Raises:
        CorruptLog: a value is not that of its key.
    """
    found = reader.values(keys, count, limit)
    for index in core.misplaced([*found], [*found.values()]):
        key = [*found][index]
        raise _damaged(named_by_key(key), _ANOTHER if found[key] else _MISSING)
    return found


def read_leaves(
    reader: Reader, start: bytes, end: bytes | None, count: int, limit: int | None = None
) -> Sequence[Leaf]:
    """Return leaves as `Reader.leaves` does.

    Raises:
        CorruptLog: a key has a wrong length.
    """
    leaves = reader.leaves(start, end, count, limit)
    for key, _ in leaves:
        if len(key) != core.KEY_LENGTH:
            raise CorruptLog([f"a leaf has the damaged key {key.hex()}"])
    return leaves


class CheckedSequences:
    """The sequences of messages, each held against the value at it: a leaf whose sequence rotted has that of another.

    What was checked is kept, up to a number: the same messages are asked for again and again. For several threads.
    """

    def __init__(self) -> None:
        # Only added to; another one takes its place.
        self._known: dict[bytes, int] = {}

    def add(self, leaves: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Take over the leaves (key, hash, sequence) of messages that this process has written."""
        self._keep({key: sequence for key, _, sequence in leaves}, {})

    def find(self, reader: Reader, keys: Sequence[bytes], limit: int) -> tuple[dict[bytes, int], bool]:
        """Return the sequences of those of the keys that are in the log, and whether these are all.

        Args:
            reader: to read one state.
            keys: of the messages.
            limit: bytes of values after which no more are read; another call goes on.

        Raises:
            CorruptLog: a value is not that of its key.
        """
        known = self._known
        found = {key: known[key] for key in keys if key in known}
        if len(found) == len(keys):
            return found, True
        sequences = reader.sequences([key for key in keys if key not in found])
        new = {key: sequences[key] for key in read_values(reader, [*sequences], MAX_INTEGER, limit)}
        self._keep(new, found)
        return found | new, len(new) == len(sequences)

    def of(self, reader: Reader, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Return the sequences of those of the keys that are in the log.

        Raises:
            CorruptLog: a value is not that of its key.
        """
        found, _ = self.find(reader, keys, MAX_INTEGER)
        return found

    def _keep(self, new: dict[bytes, int], used: dict[bytes, int]) -> None:
        """Add to what is known; where that is much, in place of all but what is in use."""
        if len(self._known) > _MOST_KNOWN:
            self._known = used | new
        else:
            self._known.update(new)


def read_rows(
    reader: Reader, after: bytes | None, before: bytes | None, reverse: bool, limit: int, count: int
) -> Sequence[tuple[bytes, bytes, bytes]]:
    """Return rows (key, leaf hash, value) as `Reader.page` does, up to the first damaged one; none is decoded.

    Raises:
        CorruptLog: the first value is not that of its key.
    """
    rows = reader.page(after, before, reverse, limit, count)
    keys = [key for key, _, _ in rows]
    wrong = core.misplaced(keys, [value for _, _, value in rows])
    sound = wrong[0] if wrong else len(rows)
    return rows[: _before_damage(rows, keys, (after, before), sound, reverse, _ANOTHER)]


def _before_damage(
    rows: Sequence[tuple[bytes, bytes, bytes]],
    keys: Sequence[bytes],
    bounds: tuple[bytes | None, bytes | None],
    sound: int,
    reverse: bool,
    reason: object,
) -> int:
    """Return how many rows of a page are handed out: those before the first that is damaged.

    Args:
        rows: (key, leaf hash, value).
        keys: of the rows.
        bounds: of the keys that were asked for, both left out.
        sound: how many rows come before the first whose value is not that of its key.
        reverse: whether the keys descend.
        reason: what is wrong with that value.

    Raises:
        CorruptLog: there is none; or the keys are not in their order, so that others may be missing.
    """
    after, before = bounds
    ordered = sorted(keys)
    # SQLite holds the keys that it finds against one of the bounds alone.
    is_inside = not rows or ((after is None or after < ordered[0]) and (before is None or ordered[-1] < before))
    is_ordered = is_inside and keys == (ordered[::-1] if reverse else ordered)
    if sound < len(rows) and (sound == 0 or not is_ordered):
        key, _, value = rows[sound]
        raise _damaged(named_by_key(key), reason if value else _MISSING)
    if not is_ordered:
        raise CorruptLog(["the leaves are not in the order of their keys"])
    return sound


def read_page(
    reader: Reader, topic: str, after: bytes | None, before: bytes | None, reverse: bool, limit: int, count: int
) -> tuple[list[SignedMessage], list[Leaf]]:
    """Return messages as `Reader.page` does their rows, up to the first damaged one, and their leaves.

    Raises:
        CorruptLog: the first is damaged.
    """
    rows = reader.page(after, before, reverse, limit, count)
    keys = [key for key, _, _ in rows]
    batch = core.read_batch([value for _, _, value in rows], topic)
    sound = len(rows)
    reason: object = None
    invalid, found = batch.invalid[:1], batch.keys
    if invalid or found != keys:
        sound = next((index for index, key in enumerate(keys) if found[index] != key), len(rows))
        reason = _ANOTHER
        if invalid and invalid[0][0] <= sound:
            ((sound, reason),) = invalid
    sound = _before_damage(rows, keys, (after, before), sound, reverse, reason)
    return _messages(batch, sound), [(key, hash) for key, hash, _ in rows[:sound]]


def _messages(batch: Batch, count: int) -> list[SignedMessage]:
    """Return the first messages of a batch, all of which are valid."""
    return cast(list[SignedMessage], [*batch][:count])


def read_arrivals(reader: Reader, topic: str, after: int, limit: int) -> list[tuple[int, SignedMessage]]:
    """Return messages with their sequences as `Reader.arrivals` does their rows, up to the first damaged one.

    Raises:
        CorruptLog: the first is damaged.
    """
    rows = reader.arrivals(after, limit)
    # Sequences have no gaps.
    there = [sequence for sequence, _ in rows]
    if there and there[0] != after + 1:
        raise CorruptLog([f"there is no message with the sequence {after + 1}"])
    if there and there[-1] != after + len(there):
        rows = [row for expected, row in enumerate(rows, after + 1) if row[0] == expected]
    batch = core.read_batch([value for _, value in rows], topic)
    sound, error = check_arrivals(reader, rows, batch)
    if error is not None and not sound:
        raise error
    return [*zip(range(after + 1, after + 1 + sound), _messages(batch, sound), strict=True)]


def check_newest(reader: Reader, topic: str) -> None:
    """Check that the last stored message has its own sequence, which is taken for the number of messages.

    In a damaged row it may be any number.

    Raises:
        CorruptLog: the last message has another sequence; or its value is damaged, and no leaf has its sequence.
    """
    newest = reader.newest()
    if newest is None:
        return
    sequence, value = newest
    sequences = reader.sequences([key for key in core.read_batch([value], topic).keys if key])
    for key, own in sequences.items():
        if own != sequence:
            raise _damaged(core.encode_id(key), f"its sequence is {own}, and it stands at {sequence}")
    if not sequences and not keys_at(reader, [sequence]):
        raise _damaged(f"of sequence {sequence}", "no leaf has its sequence")


def ids_of_sequences(reader: Reader, topic: str, rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the ids, ascending, of stored messages.

    Args:
        reader: of the log.
        topic: of the log.
        rows: of the messages.

    Raises:
        CorruptLog: one is damaged.
    """
    rows = [*rows]
    batch = core.read_batch([value for _, value in rows], topic)
    _, error = check_arrivals(reader, rows, batch)
    if error is not None:
        raise error
    return tuple(sorted(core.encode_id(key) for key in batch.keys))


def rows_of_sequences(reader: Reader, sequences: Sequence[int]) -> list[Row]:
    """Return the rows of messages that records name by their sequences.

    Raises:
        CorruptLog: one is not there.
    """
    rows = [row for sequence in sequences for row in reader.arrivals(sequence - 1, 1)]
    if [sequence for sequence, _ in rows] != [*sequences]:
        raise CorruptLog(["a record names a message that is not there"])
    return rows


def check_arrivals(reader: Reader, rows: Sequence[Row], batch: Batch) -> tuple[int, CorruptLog | None]:
    """Compare stored messages with the leaves, which have the key of each sequence.

    Args:
        reader: of the log.
        rows: of the messages.
        batch: of their values.

    Returns:
        How many are sound before the first that is not, and what is wrong with that one.
    """
    keys = batch.keys
    stored = reader.sequences([key for key in keys if key])
    invalid = dict(batch.invalid[:1])
    # Compared as lists: a value may be stored twice.
    if not invalid and [*map(stored.get, keys)] == [sequence for sequence, _ in rows]:
        return len(rows), None
    for index, ((sequence, _), key) in enumerate(zip(rows, keys, strict=True)):
        if index in invalid:
            return index, _damaged(_named_by_sequence(reader, sequence), invalid[index])
        if stored.get(key) != sequence:
            leaf = keys_at(reader, [sequence]).get(sequence)
            if leaf is None:
                return index, _damaged(core.encode_id(key), f"no leaf has its sequence, {sequence}")
            return index, _damaged(named_by_key(leaf), _ANOTHER)
    return len(rows), None


def _named_by_sequence(reader: Reader, sequence: int) -> str:
    key = keys_at(reader, [sequence]).get(sequence)
    return f"of sequence {sequence}" if key is None else named_by_key(key)


def keys_at(reader: Reader, sequences: Collection[int]) -> dict[int, bytes]:
    """Return the keys that leaves have for sequences, which takes a scan of all keys: for errors alone."""
    with reader.scan(("seq", "key"), b"", None, max(sequences)) as rows:
        return {sequence: key for sequence, key in rows if sequence in sequences}


def _damaged(name: str, reason: object) -> CorruptLog:
    return CorruptLog([f"the stored message {name}: {reason}"])


def named_by_key(key: bytes) -> str:
    """Return the id of a stored message, or what is stored in its place."""
    return core.encode_id(key) if len(key) == core.KEY_LENGTH else f"with the damaged key {key.hex()}"
