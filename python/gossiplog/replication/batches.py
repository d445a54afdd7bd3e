"""The values that pass through the steps of replication: a verified batch, and the outcome of its insertion."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gossiplog.core import Batch, SignedMessage
from gossiplog.errors import InvalidMessage, ProtocolError, RefusedMessage
from gossiplog.reprs import frozen

if TYPE_CHECKING:
    from gossiplog.protocol.sync.events import Received


NOT_MARKED = -1
"""The `count` of a batch in which no known messages were marked."""


@frozen
class VerifiedBatch:
    """Messages whose signatures and encodings were checked.

    Attributes:
        batch: verdicts of the core.
        count: number of messages in the log when known ones were marked, or NOT_MARKED; later ones are looked up under
            the lock.
        refused: indices of messages that the application's payload check refuses; None before the check.
        is_synced: whether it came by sync, from a source that holds the parents as well.
        violation: rule that the source broke with the value after the batch, if it came by sync.
    """

    batch: Batch
    count: int
    refused: Mapping[int, RefusedMessage] | None = None
    is_synced: bool = False
    violation: ProtocolError | None = None

    def check(self, check: Callable[[SignedMessage], None] | None) -> VerifiedBatch:
        """Return the batch with the messages marked that a payload check refuses.

        Args:
            check: raises RefusedMessage; None accepts everything.
        """
        refused: dict[int, RefusedMessage] = {}
        if check is not None:
            duplicates = set(self.batch.duplicates)
            for index, message in enumerate(self.batch):
                if isinstance(message, SignedMessage) and index not in duplicates:
                    try:
                        check(message)
                    except RefusedMessage as error:
                        refused[index] = error
        return replace(self, refused=refused)


def verify_received(received: Received, count: int) -> VerifiedBatch:
    """Verify what a sync received.

    Args:
        received: values of a sync whose walk has compared trees: none of them was known.
        count: number of messages in the log when the sync began.
    """
    batch, violation = received.verify()
    return VerifiedBatch(batch, count, is_synced=True, violation=violation)


@frozen
class InsertOutcome:
    """What became of a batch.

    Attributes:
        batch: that was inserted.
        inserted: indices of new messages, parents first.
        orphans: (index, keys of the missing parents).
        refused: indices, and errors of `apply` or of the payload check.
        duplicates: number of messages that were in the log before, or stand in the batch twice.
        sequences: of the inserted messages; one range for each transaction.
        cpu_seconds: processor time of the thread that inserted; 0 where that was not measured.
    """

    batch: VerifiedBatch
    inserted: Sequence[int]
    orphans: Sequence[tuple[int, Sequence[bytes]]]
    refused: Mapping[int, RefusedMessage]
    duplicates: int
    sequences: Sequence[range]
    cpu_seconds: float = 0.0

    @property
    def keys(self) -> Sequence[bytes]:
        """One for each value; b"" where the value is too broken to have one. Made anew at each access."""
        return self.batch.batch.keys

    @property
    def held(self) -> Sequence[int]:
        """Indices of the messages that are in the log now: new ones, and those that were there before."""
        if not self.duplicates:
            return self.inserted
        keys = self.keys
        lacking = {keys[index] for index in [*self.refused, *(index for index, _ in self.orphans)]}
        invalid = {index for index, _ in self.invalid}
        return [index for index, key in enumerate(keys) if index not in invalid and key not in lacking]

    @property
    def invalid(self) -> Sequence[tuple[int, InvalidMessage]]:
        """Indices of messages that every peer refuses, and what is wrong with them."""
        return self.batch.batch.invalid
