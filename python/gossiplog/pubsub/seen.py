"""The cache of message ids that a router has seen, by which it knows copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import filterfalse

from gossiplog.pubsub.rpc import MessageId


class Seen:
    """Ids, each for a time after it was first seen: copies do not prolong it [go: FirstSeenCacheStrategy].

    The time passes with `expire`: a router asks about ids far more often than any is forgotten.

    Args:
        ttl: seconds.
        limit: ids; the oldest go first. Only who is flooded reaches it.

    Attributes:
        has: whether an id is seen. It is the dictionary's own method, since this is asked for each copy of a message.
    """

    __slots__ = ("_limit", "_times", "_ttl", "has")

    def __init__(self, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        # In the order in which they were first seen.
        self._times: dict[MessageId, float] = {}
        self.has: Callable[[MessageId], bool] = self._times.__contains__

    def __len__(self) -> int:
        return len(self._times)

    def unseen(self, ids: Iterable[MessageId]) -> list[MessageId]:
        """Return those ids that are not seen."""
        return list(filterfalse(self.has, ids))

    def add(self, id: MessageId, now: float) -> None:
        """Note an id that was not seen before."""
        times = self._times
        times[id] = now
        if len(times) > self._limit:
            del times[next(iter(times))]

    def expire(self, now: float) -> None:
        """Forget what was seen too long ago."""
        times = self._times
        while times and now - times[oldest := next(iter(times))] >= self._ttl:
            del times[oldest]
