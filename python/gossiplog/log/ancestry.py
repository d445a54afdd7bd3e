"""The latest ancestors of a message, 1, 2, 4, 8, ... clocks back, for strangers who ask: with a limit on what is read.

The authors of a log decide how wide its history is, so the answer, and even more the way to it, may be as large
as the log (see `core.frontier`). What a search computes follows from the link records that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from gossiplog import core
from gossiplog.errors import CorruptLog, LimitExceeded, UnknownMessage
from gossiplog.log.reading import CheckedSequences, Row, ids_of_sequences, raising_corrupt_log
from gossiplog.storage.base import Reader

_ROW_BYTES = 256
"""What a row counts for beside its bytes: about what finding it costs."""
_AT_ONCE = 64
"""Rows that are read before they are counted."""


def frontiers(
    reader: Reader, topic: str, key: bytes, sequences: CheckedSequences, *, most_ids: int, most_bytes: int
) -> list[tuple[int, tuple[str, ...]]]:
    """Return the latest ancestors of a message at or before the clocks 1, 2, 4, 8, ... before its own.

    Args:
        reader: to read one state.
        topic: that all messages have.
        key: of the message.
        sequences: those that this process has checked.
        most_ids: in the answer.
        most_bytes: of the log to read, each row counting for 256 more than it has.

    Returns:
        Pairs, ascending, of a clock and the ids, ascending, of those ancestors that no other at or before it follows.

    Raises:
        UnknownMessage: the message is not in the log.
        LimitExceeded: a limit is exceeded.
        CorruptLog: the log is damaged.
    """
    sequence = sequences.of(reader, [key]).get(key)
    if sequence is None:
        raise UnknownMessage(core.encode_id(key))
    clock, _ = core.decode_clock(key)
    allowance = _Allowance(reader, most_bytes)
    found: list[tuple[int, list[int]]] = []
    for back in (2**step for step in range(max(clock - 1, 0).bit_length())):
        with raising_corrupt_log:
            found.append((clock - back, core.frontier(sequence, clock - back, allowance.links)))
        if sum(len(at) for _, at in found) > most_ids:
            raise LimitExceeded(f"there are more than {most_ids} of them")

    def ids(sequences: Sequence[int]) -> tuple[str, ...]:
        return ids_of_sequences(reader, topic, [allowance.row(sequence) for sequence in sequences])

    return [(at, ids(sequences)) for at, sequences in reversed(found)]


class _Allowance:
    """Reads from a log until so many bytes were read; every record once."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self._size = size
        self._left = size
        self._records: dict[int, bytes] = {}

    def links(self, sequences: Sequence[int]) -> list[bytes]:
        """Return the link records of messages, as `Reader.links`."""
        missing = [sequence for sequence in sequences if sequence not in self._records]
        for start in range(0, len(missing), _AT_ONCE):
            part = missing[start : start + _AT_ONCE]
            records = self._reader.links(part)
            self._spend(records)
            self._records.update(zip(part, records, strict=True))
        return [self._records[sequence] for sequence in sequences]

    def row(self, sequence: int) -> Row:
        """Return the sequence and the stored value of a message.

        Raises:
            CorruptLog: it is not there.
        """
        rows = self._reader.arrivals(sequence - 1, 1)
        if not rows or rows[0][0] != sequence:
            raise CorruptLog([f"there is no message with the sequence {sequence}"])
        self._spend([rows[0][1]])
        return rows[0]

    def _spend(self, rows: Sequence[bytes]) -> None:
        self._left -= sum(_ROW_BYTES + len(row) for row in rows)
        if self._left < 0:
            raise LimitExceeded(f"more than {self._size} bytes of the log would have to be read")
