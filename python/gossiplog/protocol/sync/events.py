"""What a sync client is given, what it hands out, and what it skips."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol, TypeAlias

from gossiplog.core import Batch, Node, Nodes, Tree, encode_id, verify_batch
from gossiplog.errors import ProtocolError
from gossiplog.reprs import frozen

MOST_KEYS = 512
"""Keys in one GetValues: canvas-js serves as fast with 500 as with more."""


class Local(Protocol):
    """The local log, as a client reads it."""

    @property
    def tree(self) -> Tree:
        """The tree, read once, when the client is made."""

    def leaves(self, start: bytes, end: bytes | None) -> Sequence[tuple[bytes, bytes]]:
        """Return the tree's leaves (key, hash) with start <= key < end."""


@frozen
class SyncClientConfig:
    """How a client asks.

    Attributes:
        window: bytes of answers to have under way, estimated.
        keys: how many the first GetValues asks for; later ones grow, up to 512.
        value_size: bytes in a value, expected before the first has come.
        skip: keys whose values are not asked for.
        most_asked: requests under way, at most, until twice as many are answered; then half of those. None for a first
            stream, which has a limit of its own.
        complete: nodes of the server's tree of which the local log has every leaf, as an earlier stream has found. It
            need not be the same server: equal hashes are equal leaves.
        known: children that an earlier stream has brought, by their node: they are not asked for again. It need not be
            the same server either.
        parts: whether children are asked for in parts, as after an Abort: an answer of all may be too large.
        long: keys whose values were to come next where an earlier stream was cut off: perhaps they are too long.
        long_keys: how many of them a GetValues asks for, at most.
    """

    window: int = 4 * 2**20
    keys: int = MOST_KEYS
    value_size: int = 512
    skip: frozenset[bytes] = frozenset()
    most_asked: int | None = None
    complete: frozenset[Node] = frozenset()
    known: Mapping[Node, Nodes] = field(default_factory=dict)
    parts: bool = False
    long: frozenset[bytes] = frozenset()
    long_keys: int = MOST_KEYS

    @property
    def resumes(self) -> bool:
        """Return whether an earlier stream was cut off."""
        return self.most_asked is not None or self.parts or bool(self.complete or self.known)

    def without_walk(self) -> SyncClientConfig:
        """Return it without what earlier walks have found, which takes up to 13 MB."""
        return replace(self, complete=frozenset(), known={})


@frozen
class SyncStatistics:
    """What a sync cost.

    Attributes:
        requests: how many were sent.
        bytes_sent: to the source.
        bytes_received: from it.
        round_trips: the longest chain of requests each of which waited for the answer to the one before.
        values: how many were received.
        complete: nodes that differ, although the local log has every leaf below them: they bring no value.

    Examples:
        >>> async def main():
        ...     other = gossiplog.open(":memory:", log.topic, signer=alice)
        ...     other.append("from another peer")
        ...     def on_event(event):
        ...         if isinstance(event, gossiplog.SyncEnded) and event.inserted:
        ...             print(event.inserted, event.statistics.requests > 0)
        ...     async with gossiplog.Peer(other) as one:
        ...         async with gossiplog.Peer(log, bootstrap=one.addresses, on_event=on_event) as two:
        ...             await two.synced()
        >>> anyio.run(main)
        1 True
    """

    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    round_trips: int = 0
    values: int = 0
    complete: int = 0


@frozen
class Send:
    """Write these bytes to the server."""

    data: bytes


@frozen
class Received:
    """What the server has under some keys, ascending, also from one event to the next. None of it is verified yet.

    Attributes:
        keys: that were asked for.
        values: one for each.
        topic: of the log.
    """

    keys: list[bytes]
    values: list[bytes]
    topic: str

    def verify(self) -> tuple[Batch, ProtocolError | None]:
        """Verify the messages; it takes all cores, and may be called on a thread of its own.

        Returns:
            The batch up to the first value that is not its key's, and that violation, if there is one.
        """
        batch = verify_batch(self.values, self.topic)
        found = batch.keys
        if found == self.keys:
            return batch, None
        wrong = next(index for index, key in enumerate(self.keys) if found[index] != key)
        held = f"one of message {encode_id(found[wrong])}" if found[wrong] else "no message"
        violation = ProtocolError(f"the value for message {encode_id(self.keys[wrong])} is {held}")
        return verify_batch(self.values[:wrong], self.topic), violation


@frozen
class Aborted:
    """The server ended the stream early. Make a new client with `next_config` after the cooldown.

    Attributes:
        cooldown: milliseconds.
    """

    cooldown: int


@frozen
class Finished:
    """Everything that the server had and the local log lacked was handed out. Close the stream."""

    statistics: SyncStatistics


Event: TypeAlias = Send | Received | Aborted | Finished


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

    @property
    def keys(self) -> Collection[bytes]:
        """The keys that are remembered, without those that the source is not asked for."""
        return frozenset(self._keys)

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
