"""What `apply` may ask of the causal graph: whether a message follows another, in whatever encodings.

The messages that a transaction is about to write are in its plan, with their link records; all others are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from gossiplog import core
from gossiplog.errors import UnknownMessage
from gossiplog.log.reading import raising_corrupt_log, read_values
from gossiplog.storage.base import MAX_INTEGER, Reader

# Clocks at which the ancestors of the last message are kept.
_MOST_KEPT = 64


class ApplicationAncestry:
    """Answers for one transaction.

    Args:
        reader: the transaction, in which the messages of the plan are not written yet.
        plan: for those messages; None where there are none.
    """

    def __init__(self, reader: Reader, plan: core.WritePlan | None) -> None:
        self._reader = reader
        self._plan = plan
        # Of the last message that was asked about: its sequence, and its latest ancestors at clocks.
        self._last = 0
        self._frontiers: dict[int, Collection[int]] = {}

    def is_ancestor(self, ancestor: bytes, descendant: bytes) -> bool:
        """Return whether some encoding of a message is a proper ancestor of another message.

        All encodings of a message have its clock and its parents. So any encoding of the descendant will do, and of the
        ancestor those are enough that stand among the latest ancestors at its clock: no two messages of one clock are
        related.

        Args:
            ancestor: the key of any encoding, or of the canonical one, which need not be there.
            descendant: likewise.

        Raises:
            UnknownMessage: no encoding of one of them is there.
            CorruptLog: what is read is damaged.
        """
        content, _ = self._resolve(ancestor)
        _, sequence = self._resolve(descendant)
        latest = self._frontier(sequence, core.decode_clock(ancestor)[0])
        if not latest:
            return False
        if self._sequence(content) in latest:
            return True
        planned = self._alternatives
        stored = [one for one in latest if one not in self._links]
        return content in {planned.get(one) for one in latest} or content in self._reader.contents(stored).values()

    def _frontier(self, sequence: int, clock: int) -> Collection[int]:
        if sequence != self._last or len(self._frontiers) > _MOST_KEPT:
            self._last, self._frontiers = sequence, {}
        if clock not in self._frontiers:
            with raising_corrupt_log:
                self._frontiers[clock] = frozenset(core.frontier(sequence, clock, self._read_links))
        return self._frontiers[clock]

    def _read_links(self, sequences: Sequence[int]) -> Sequence[bytes]:
        planned = self._links
        stored = [sequence for sequence in sequences if sequence not in planned]
        if len(stored) == len(sequences):
            return self._reader.links(sequences)
        found = dict(zip(stored, self._reader.links(stored) if stored else (), strict=True))
        return [planned[sequence] if sequence in planned else found[sequence] for sequence in sequences]

    def _resolve(self, key: bytes) -> tuple[bytes, int]:
        """Return the key of the canonical encoding of a message, and the sequence of some encoding.

        Raises:
            UnknownMessage: none is there.
        """
        sequence = self._sequence(key)
        if sequence is None:
            # The canonical encoding of one that is there in another.
            for other, content in self._alternatives.items():
                if content == key:
                    return key, other
            found = self._reader.alternatives([key])
            if key not in found:
                raise UnknownMessage(core.encode_id(key))
            return key, found[key]
        if sequence in self._links:
            return self._alternatives.get(sequence, key), sequence
        return self._reader.contents([sequence]).get(sequence, key), sequence

    def _sequence(self, key: bytes) -> int | None:
        planned = self._sequences.get(key)
        if planned is not None:
            return planned
        # A leaf whose sequence rotted has the value of another message.
        read_values(self._reader, [key], MAX_INTEGER)
        return self._reader.sequences([key]).get(key)

    @cached_property
    def _sequences(self) -> Mapping[bytes, int]:
        return {} if self._plan is None else {key: sequence for key, _, sequence in self._plan.leaves}

    @cached_property
    def _links(self) -> Mapping[int, bytes]:
        return {} if self._plan is None else {sequence: links for sequence, _, links in self._plan.messages}

    @cached_property
    def _alternatives(self) -> Mapping[int, bytes]:
        return {} if self._plan is None else dict(self._plan.alternatives)
