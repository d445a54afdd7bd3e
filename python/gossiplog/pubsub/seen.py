"""The cache of message ids that a router has seen, by which it knows copies."""

from __future__ import annotations

from collections.abc import Iterable

from gossiplog.pubsub.rpc import MessageId


class Seen:
    """Ids, each for a time after it was first seen: copies do not prolong it [go: FirstSeenCacheStrategy].

    Args:
        ttl: seconds.
        limit: ids; the oldest go first. Only who is flooded reaches it.
    """

    __slots__ = ("_limit", "_times", "_ttl")

    def __init__(self, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        # In the order in which they were first seen.
        self._times: dict[MessageId, float] = {}

    def __len__(self) -> int:
        return len(self._times)

    def has(self, id: MessageId, now: float) -> bool:
        """Whether an id was seen within the time."""
        time = self._times.get(id)
        return time is not None and now - time < self._ttl

    def unseen(self, ids: Iterable[MessageId], now: float) -> list[MessageId]:
        """Those ids that were not seen within the time."""
        times, ttl = self._times, self._ttl
        return [id for id in ids if id not in times or now - times[id] >= ttl]

    def add(self, id: MessageId, now: float) -> None:
        """An id is seen that was not within the time."""
        times = self._times
        times.pop(id, None)
        times[id] = now
        if len(times) > self._limit:
            del times[next(iter(times))]

    def expire(self, now: float) -> None:
        """Forgets what was seen too long ago."""
        times = self._times
        while times and now - times[oldest := next(iter(times))] >= self._ttl:
            del times[oldest]
