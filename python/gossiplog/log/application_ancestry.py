"""What `apply` may ask of the causal graph: whether a message follows another, in whatever encodings.

The messages that a transaction is about to write are in its plan, with their link records; all others are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from gossiplog import core
from gossiplog.errors import UnknownMessage
from gossiplog.log.reading import CheckedSequences, raising_corrupt_log
from gossiplog.storage.base import Reader

# Clocks at which the ancestors of the last message are kept.
_MOST_KEPT = 64
# Stored messages that are known by their keys, and bytes of link records that a transaction keeps.
_MOST_KNOWN = 16_384
_MOST_BYTES = 2**23


class KnownMessages:
    """What was found of stored messages, kept over transactions: it does not change, unless the log is replaced.

    An application asks about the same ones for each message, as those that added what a message adds again.

    Args:
        sequences: of the log.
    """

    def __init__(self, sequences: CheckedSequences) -> None:
        self.sequences = sequences
        self._found: dict[bytes, tuple[bytes, int]] = {}

    def get(self, key: bytes) -> tuple[bytes, int] | None:
        """Return the key of the canonical encoding and the sequence of some encoding, None where nobody has asked."""
        return self._found.get(key)

    def keep(self, key: bytes, content: bytes, sequence: int) -> None:
        """Keep what `get` returns."""
        if len(self._found) >= _MOST_KNOWN:
            self._found.clear()
        self._found[key] = content, sequence


class ApplicationAncestry:
    """Answers for one transaction.

    Args:
        reader: the transaction, in which the messages of the plan are not written yet.
        plan: for those messages; None where there are none.
        known: of stored messages.
        passed: by the keys of those of the plan that may be asked about, as others may be refused or come later, those
            of their canonical encodings. It may grow.
    """

    def __init__(
        self,
        reader: Reader,
        plan: core.WritePlan | None,
        known: KnownMessages,
        passed: Mapping[bytes, bytes] = MappingProxyType({}),
    ) -> None:
        self._reader = reader
        self._plan = plan
        self._known = known
        self._passed = passed
        # Of the last message that was asked about: its sequence, and its latest ancestors at clocks, with the keys of
        # the canonical encodings of those that are alternative ones.
        self._last = 0
        self._frontiers: dict[int, tuple[Collection[int], Collection[bytes]]] = {}
        # Link records, and the keys of canonical encodings where those are others: searches from messages beside each
        # other meet the same.
        self._records: dict[int, bytes] = {}
        self._record_bytes = 0
        self._contents: dict[int, bytes | None] = {}

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
        clock = core.decode_clock(ancestor)[0]
        if clock >= core.decode_clock(descendant)[0]:
            return False
        latest, contents = self._frontier(sequence, clock)
        return bool(latest) and (content in contents or self._sequence(content) in latest)

    def _frontier(self, sequence: int, clock: int) -> tuple[Collection[int], Collection[bytes]]:
        if sequence != self._last or len(self._frontiers) > _MOST_KEPT:
            self._last, self._frontiers = sequence, {}
        if clock not in self._frontiers:
            with raising_corrupt_log:
                latest = frozenset(core.frontier(sequence, clock, self._read_links))
            self._frontiers[clock] = latest, self._contents_of(latest)
        return self._frontiers[clock]

    def _contents_of(self, sequences: Collection[int]) -> Collection[bytes]:
        """Return the keys of the canonical encodings of those messages that are alternative ones."""
        known = self._contents
        if unread := [one for one in sequences if one not in known]:
            if len(known) + len(unread) > _MOST_KNOWN:
                known.clear()
                unread = [*sequences]
            stored = [one for one in unread if one not in self._links]
            found = self._alternatives | (self._reader.contents(stored) if stored else {})
            known.update((one, found.get(one)) for one in unread)
        return {content for one in sequences if (content := known[one]) is not None}

    def _read_links(self, sequences: Sequence[int]) -> Sequence[bytes]:
        planned, records = self._links, self._records
        try:
            return [records[one] for one in sequences]
        except KeyError:
            pass
        unread = [one for one in sequences if one not in planned and one not in records]
        read = dict(zip(unread, self._reader.links(unread) if unread else (), strict=True))
        found = [planned.get(one) or records.get(one) or read[one] for one in sequences]
        if self._record_bytes > _MOST_BYTES:
            self._record_bytes = 0
            records.clear()
        self._record_bytes += sum(map(len, found))
        records.update(zip(sequences, found, strict=True))
        return found

    def _resolve(self, key: bytes) -> tuple[bytes, int]:
        """Return the key of the canonical encoding of a message, and the sequence of some encoding.

        Raises:
            UnknownMessage: none is there.
        """
        known = self._known.get(key)
        if known is not None:
            return known
        sequence = self._sequence(key)
        if sequence is None:
            # The canonical encoding of one that is there in another.
            for other, content in self._alternatives.items():
                if content == key and self._keys[other] in self._passed:
                    return key, other
            found = self._reader.alternatives([key])
            if key not in found:
                raise UnknownMessage(core.encode_id(key))
            content, sequence = key, found[key]
        elif sequence in self._links:
            # It is not stored yet, and may never be.
            return self._alternatives.get(sequence, key), sequence
        else:
            content = self._reader.contents([sequence]).get(sequence, key)
        self._known.keep(key, content, sequence)
        return content, sequence

    def _sequence(self, key: bytes) -> int | None:
        planned = self._sequences.get(key) if key in self._passed else None
        # A leaf whose sequence rotted has the value of another message.
        return planned if planned is not None else self._known.sequences.of(self._reader, [key]).get(key)

    @cached_property
    def _sequences(self) -> Mapping[bytes, int]:
        return {} if self._plan is None else {key: sequence for key, _, sequence in self._plan.leaves}

    @cached_property
    def _keys(self) -> Mapping[int, bytes]:
        return {sequence: key for key, sequence in self._sequences.items()}

    @cached_property
    def _links(self) -> Mapping[int, bytes]:
        return {} if self._plan is None else {sequence: links for sequence, _, links in self._plan.messages}

    @cached_property
    def _alternatives(self) -> dict[int, bytes]:
        return {} if self._plan is None else dict(self._plan.alternatives)
