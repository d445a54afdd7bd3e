"""Messages that came by gossip before their parents, which are about to come: rule 12 of `machine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import Delivery, OrphansDue, OutEvent, SetTimer


@dataclass(slots=True)
class _Orphan:
    delivery: Delivery
    missing: set[bytes]
    until: float


class Orphans:
    """Keeps orphans for a moment, within a budget of messages and bytes.

    Args:
        config: how long, how many, and of how many bytes together.
        emit: takes what is to be done.
    """

    def __init__(self, config: BroadcastConfig, emit: Callable[[OutEvent], None]) -> None:
        self._config = config
        self._emit = emit
        # By key, the oldest first.
        self._orphans: dict[bytes, _Orphan] = {}
        # The orphans that wait for a message.
        self._children: dict[bytes, list[bytes]] = {}
        self._size = 0

    def add(self, delivery: Delivery, missing: Sequence[bytes], now: float) -> bool:
        """Keep an orphan; return False if there is no room, or if it is there already.

        Args:
            delivery: of the orphan.
            missing: keys of its missing parents.
            now: the time.
        """
        size = len(delivery.value)
        full = len(self._orphans) >= self._config.orphans or self._size + size > self._config.orphan_bytes
        if full or not missing or delivery.key in self._orphans:
            return False
        if not self._orphans:
            self._emit(SetTimer(OrphansDue(), now + self._config.orphan_wait))
        orphan = _Orphan(delivery, set(missing), now + self._config.orphan_wait)
        self._orphans[delivery.key] = orphan
        self._size += size
        for parent in orphan.missing:
            self._children.setdefault(parent, []).append(delivery.key)
        return True

    def resolve(self, keys: Iterable[bytes]) -> list[Delivery]:
        """Note that the log holds messages; return the orphans that lack no parent now, in the order of arrival."""
        ready: list[Delivery] = []
        for parent in keys:
            for key in self._children.pop(parent, ()):
                orphan = self._orphans[key]
                orphan.missing.discard(parent)
                if not orphan.missing:
                    self._remove(key)
                    ready.append(orphan.delivery)
        return ready

    def expire(self, now: float) -> list[tuple[Delivery, Sequence[bytes]]]:
        """Remove and return the orphans that have waited long enough, with what they lack: the timer has expired."""
        given_up: list[tuple[Delivery, Sequence[bytes]]] = []
        while self._orphans:
            key, orphan = next(iter(self._orphans.items()))
            if orphan.until > now:
                self._emit(SetTimer(OrphansDue(), orphan.until))
                break
            self._remove(key)
            given_up.append((orphan.delivery, tuple(orphan.missing)))
        return given_up

    def _remove(self, key: bytes) -> None:
        orphan = self._orphans.pop(key)
        self._size -= len(orphan.delivery.value)
        for parent in orphan.missing:
            siblings = self._children[parent]
            siblings.remove(key)
            if not siblings:
                del self._children[parent]
