"""Messages that the local application refuses: the broadcast machine's rule 8 (see `machine`)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import PeerId, RetryDue, SetTimer
from gossiplog.protocol.broadcast.schedule import Emit, backoff


@dataclass(slots=True, eq=False)
class _SkippedSet:
    """What one peer sent and the application refused."""

    keys: dict[bytes, None] = field(default_factory=dict)
    trying: dict[bytes, None] = field(default_factory=dict)  # those of the last retry that were not refused again
    mentioned: bool = False  # it has messages that are in other peers' skipped sets
    timed: bool = False
    delay: float = 0.0
    retries: int = 0
    retried: float = 0.0


class SkippedSets:
    """Remember, within limits, which messages are skipped, and when to request them again.

    Each is in the skipped set of the peer that sent it first. When that peer disconnects, others that have it are
    asked.

    Args:
        config: the limits.
        random: for the jitter of back-offs.
        emit: takes SetTimer.
    """

    def __init__(self, config: BroadcastConfig, random: Random, emit: Emit) -> None:
        self._config = config
        self._random = random
        self._emit = emit
        self._sets: dict[PeerId, _SkippedSet] = {}
        # By key: in whose skipped set it is, and whose last retry it is in.
        self._set_of: dict[bytes, _SkippedSet] = {}
        self._tried_by: dict[bytes, _SkippedSet] = {}
        self._keys: frozenset[bytes] | None = None

    def __contains__(self, key: object) -> bool:
        """Return whether the message is skipped."""
        return key in self._set_of

    def keys(self) -> frozenset[bytes]:
        """Return the keys of all messages that are skipped."""
        if self._keys is None:
            self._keys = frozenset(self._set_of)
        return self._keys

    def connect(self, peer: PeerId) -> None:
        """Begin an empty skipped set for a peer."""
        self._sets[peer] = _SkippedSet()

    def disconnect(self, peer: PeerId) -> list[PeerId]:
        """Drop a peer's skipped set.

        Returns:
            Peers that may have what was in it.
        """
        rejected = self._sets.pop(peer, None)
        if rejected is None or not (rejected.keys or rejected.trying):
            return []
        self._clear(rejected)
        self._forget_retry(rejected)
        others = [other for other, theirs in self._sets.items() if theirs.mentioned]
        for other in others:
            self._sets[other].mentioned = False
        return others

    def mention(self, peer: PeerId) -> None:
        """Note that a peer has some of the messages that are skipped."""
        if peer in self._sets:
            self._sets[peer].mentioned = True

    def add(self, peer: PeerId, key: bytes, now: float) -> None:
        """Skip a message of the peer from now on, if there is room for it."""
        self.mention(peer)
        rejected = self._sets.get(peer)
        if rejected is None or key in self._set_of or len(rejected.keys) >= self._config.skipped:
            return
        rejected.keys[key] = None
        if (tried := self._tried_by.pop(key, None)) is not None:
            del tried.trying[key]
        self._set_of[key] = rejected
        self._keys = None
        if not rejected.timed:
            # What is refused long after the last retry has not been tried again in vain.
            if now > rejected.retried + rejected.delay:
                rejected.retries = 0
            rejected.timed = True
            rejected.retries += 1
            rejected.delay = backoff(self._random, self._config.retry, self._config.longest_retry, rejected.retries)
            self._emit(SetTimer(RetryDue(peer), now + rejected.delay))

    def discard(self, keys: Collection[bytes]) -> list[PeerId]:
        """Note that the log has these messages now.

        Returns:
            Peers whose skipped sets were cleared: the application took what it had refused, so it may take the rest,
            and what descends from that one may be in any skipped set.
        """
        if not (self._set_of or self._tried_by):
            return []
        if not any(key in self._set_of or key in self._tried_by for key in keys):
            return []
        held = set(keys)
        cleared = [peer for peer, rejected in self._sets.items() if not rejected.keys.keys() <= held]
        for rejected in self._sets.values():
            self._clear(rejected)
            self._forget_retry(rejected)
            rejected.retries = 0
        return cleared

    def retry(self, peer: PeerId, now: float) -> bool:
        """Clear a peer's skipped set when its time has come; return whether there was anything in it."""
        rejected = self._sets.get(peer)
        if rejected is None or not rejected.timed:
            return False
        rejected.timed = False
        rejected.retried = now
        found = bool(rejected.keys)
        self._forget_retry(rejected)
        rejected.trying = rejected.keys.copy()
        self._tried_by.update(dict.fromkeys(rejected.trying, rejected))
        self._clear(rejected)
        return found

    def _clear(self, rejected: _SkippedSet) -> None:
        for key in rejected.keys:
            del self._set_of[key]
        rejected.keys.clear()
        self._keys = None

    def _forget_retry(self, rejected: _SkippedSet) -> None:
        for key in rejected.trying:
            del self._tried_by[key]
        rejected.trying.clear()
