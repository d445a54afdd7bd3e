"""What a sync skips, and so does not hold against its source: of rules 8 and 9 of `broadcast`, and for `Log.pull`."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable


class SkippedMessages:
    """Keys of messages that a sync does not insert: the application refuses them, or they descend from such.

    Args:
        unasked: those that the source is not asked for.
        limit: on further ones that are remembered; None for all.

    Attributes:
        is_forgetful: whether there were more.
    """

    def __init__(self, unasked: Collection[bytes] = (), limit: int | None = None) -> None:
        self.is_forgetful = False
        self._unasked = unasked
        self._limit = limit
        self._keys: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes) -> None:
        """Skip a message that the source sent."""
        if self._limit is None or len(self._keys) < self._limit:
            self._keys.add(key)
        else:
            self.is_forgetful = True

    def hole(self, missing: Iterable[bytes], rejected: Container[bytes] = ()) -> bytes | None:
        """Return the first missing parent of an orphan that nothing explains: the source's log lacks it.

        Parents have lower keys, so an honest source has sent them before.

        Args:
            missing: keys of the parents.
            rejected: further keys of messages that explain orphans.
        """
        return next((parent for parent in missing if not (self._explains(parent) or parent in rejected)), None)

    def _explains(self, parent: bytes) -> bool:
        return self.is_forgetful or parent in self._unasked or parent in self._keys
