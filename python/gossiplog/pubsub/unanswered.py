"""Messages that wait for the application's answer (gossipsub-v1.1.md, "Extended Validators"), in all routers.

They are bounded by number and bytes. The drivers of routers without a heartbeat answer each in time, so none waits for
ever; gossipsub's expire with the heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.rpc import MessageId

_Item = TypeVar("_Item")

MAX_WAITING = 4096
MAX_WAITING_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Unanswered(Generic[_Item]):
    """A message that waits.

    Attributes:
        item: what goes on if it is accepted.
        size: in bytes.
        sources: the peers that sent it, the first one first; the values mean nothing.
        since: heartbeats that there had been when it came, where the router has a heartbeat.
    """

    item: _Item
    size: int
    sources: dict[PeerId, None]
    since: int = 0

    def rejected_peers(self, answer: GossipAnswer) -> tuple[PeerId, ...]:
        """Return the peers that an answer holds the message against."""
        return tuple(self.sources) if answer is GossipAnswer.REJECT else ()


class UnansweredMessages(Generic[_Item]):
    """The messages that wait.

    Args:
        limit: messages.
        max_bytes: of all of them.
    """

    __slots__ = ("_bytes", "_limit", "_max_bytes", "_waiting")

    def __init__(self, limit: int = MAX_WAITING, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        # The oldest first.
        self._waiting: dict[MessageId, Unanswered[_Item]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, id: MessageId, item: _Item, size: int, source: PeerId, since: int = 0) -> bool:
        """Have a message wait; return whether there is room, and none waits under this id."""
        if id in self._waiting or len(self._waiting) >= self._limit or self._bytes + size > self._max_bytes:
            return False
        self._waiting[id] = Unanswered(item, size, {source: None}, since)
        self._bytes += size
        return True

    def add_source(self, id: MessageId, peer: PeerId) -> None:
        """Note that a peer sent a copy of a message, if it waits."""
        if id in self._waiting:
            self._waiting[id].sources[peer] = None

    def take(self, id: MessageId) -> Unanswered[_Item] | None:
        """Remove a message that waits, and return it; None if there is none."""
        waiting = self._waiting.pop(id, None)
        if waiting is not None:
            self._bytes -= waiting.size
        return waiting

    def expire(self, heartbeats: int) -> None:
        """Forget what came when there had been so many heartbeats, or fewer."""
        while self._waiting and self._waiting[oldest := next(iter(self._waiting))].since <= heartbeats:
            self.take(oldest)

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self._bytes = 0
