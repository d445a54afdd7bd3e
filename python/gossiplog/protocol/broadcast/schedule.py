"""Which peers to sync with, and when: the broadcast machine's rules 4 to 7 (see `machine`)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    OutEvent,
    OverlapDue,
    PeerId,
    SetTimer,
    StartSync,
    StopSync,
    SyncCheck,
    SyncDue,
    SyncEnded,
    SyncResult,
)
from gossiplog.protocol.sync.events import SkippedMessages
from gossiplog.reprs import counted

Emit: TypeAlias = Callable[[OutEvent], None]

_MOST_DOUBLINGS = 32


def backoff(random: Random, first: float, longest: float, failures: int) -> float:
    """Return seconds to wait after some failures in a row: doubled each time, and up to half of it taken off at random.

    Jitter keeps peers that failed together from coming back together.
    """
    delay = min(longest, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
    return delay * random.uniform(0.5, 1.0)


@dataclass(slots=True, eq=False)
class _Source:
    """A connected peer, and what it advertised that the log lacks."""

    peer: PeerId
    gossips: bool
    advertised: dict[bytes, bool] = field(default_factory=dict)  # by key: whether an honest peer has stored it by now
    more: bool = False  # it advertised more than is remembered
    retry: bool = False  # it has what the application is to be asked again for
    syncing: bool = False
    queued_at: float | None = None
    timed: bool = False
    failures: int = 0
    broken_promises: int = 0
    not_before: float = float("-inf")


@dataclass(slots=True, eq=False)
class Sync:
    """A sync that was started and has not ended.

    Attributes:
        number: of the sync.
        peer: that it is with.
        skip: keys that are not asked for.
        inserted: messages that it brought.
        skipped: those of its messages that were refused, or descend from one; BroadcastConfig.skipped at most.
        unreliable: whether it was one too many that lacked what the peer advertised; reported when it has ended.
    """

    number: int
    peer: PeerId
    skip: frozenset[bytes]
    skipped: SkippedMessages
    source: _Source
    asked: Sequence[bytes]
    more: bool
    retry: bool
    started: float
    active: bool = False
    stalled: bool = False
    inserted: int = 0
    unreliable: bool = False


class Schedule:
    """The queue of syncs.

    Args:
        config: the limits.
        random: for the jitter of back-offs.
        emit: takes StartSync, StopSync and SetTimer.
        numbers: of syncs.
    """

    def __init__(self, config: BroadcastConfig, random: Random, emit: Emit, numbers: Iterator[int]) -> None:
        self._config = config
        self._random = random
        self._emit = emit
        self._sources: dict[PeerId, _Source] = {}
        self._advertised_by: dict[bytes, dict[PeerId, _Source]] = {}
        # Those that gossip does not reach, and those that it does.
        self._queue: deque[_Source] = deque()
        self._mesh_queue: deque[_Source] = deque()
        self._mesh_timer = -math.inf
        self._mesh_started = -math.inf
        self._running: dict[int, Sync] = {}
        self._numbers = numbers

    @property
    def is_idle(self) -> bool:
        """Whether no sync runs, and peers have advertised nothing that needs one."""
        return not self._running and not any(map(_has_cause, self._sources.values()))

    def connect(self, peer: PeerId, gossips: bool) -> None:
        """Allow syncs with a peer, which gossip reaches or not, from now on."""
        self._sources[peer] = _Source(peer, gossips)

    def disconnect(self, peer: PeerId) -> None:
        """Forget a peer; a sync with it is stopped, and still has to end."""
        source = self._sources.pop(peer, None)
        if source is None:
            return
        for key in list(source.advertised):
            self._drop(source, key)
        if source.queued_at is not None:
            self._queue_of(source).remove(source)
        for sync in self._running.values():
            if sync.source is source:
                self._emit(StopSync(sync.number))

    def get(self, number: int) -> Sync | None:
        """Return a sync that has not ended."""
        return self._running.get(number)

    def request(
        self,
        peer: PeerId,
        keys: Iterable[bytes],
        now: float,
        *,
        more: bool = False,
        retry: bool = False,
        promised: bool = True,
    ) -> None:
        """Request messages that a peer advertised and the log lacks.

        Args:
            peer: that has them.
            keys: of the messages.
            now: the time.
            more: whether there are others.
            retry: whether they are some that the application refused before.
            promised: whether an honest peer that advertises them has stored them.
        """
        source = self._sources.get(peer)
        if source is None:
            return
        source.more |= more
        source.retry |= retry
        for key in keys:
            if key in source.advertised:
                source.advertised[key] |= promised
                continue
            if len(source.advertised) >= self._config.advertised:
                source.more = True
                break
            source.advertised[key] = promised
            self._advertised_by.setdefault(key, {})[peer] = source
        self._enqueue(source, now)

    def resolve(self, keys: Iterable[bytes]) -> list[PeerId]:
        """Note that these messages no longer need a sync.

        Returns:
            The peers that had advertised them.
        """
        peers: list[PeerId] = []
        if self._advertised_by:
            for key in keys:
                for source in list(self._advertised_by.get(key, {}).values()):
                    self._drop(source, key)
                    peers.append(source.peer)
        return peers

    def due(self, peer: PeerId, now: float) -> None:
        """Handle the end of a peer's back-off."""
        source = self._sources.get(peer)
        if source is not None:
            source.timed = False
            self._enqueue(source, now)

    def overlap_due(self) -> None:
        """Handle the end of the time that a sync with a peer that gossip reaches has for itself."""
        self._mesh_timer = -math.inf

    def start(self, now: float, skip: Callable[[], frozenset[bytes]]) -> list[PeerId]:
        """Start as many syncs as there is room for.

        Args:
            now: the time.
            skip: says which keys are not to be asked for.

        Returns:
            The peers.
        """
        started: list[PeerId] = []
        while len(self._running) < self._config.syncs and (source := self._next(now)) is not None:
            source.queued_at = None
            # An earlier connection's sync may still be ending; its end puts the peer into the queue again.
            if any(sync.peer == source.peer for sync in self._running.values()) or not _has_cause(source):
                continue
            number, asked, skips = next(self._numbers), tuple(source.advertised), skip()
            skipped = SkippedMessages(skips, self._config.skipped)
            sync = Sync(number, source.peer, skips, skipped, source, asked, source.more, source.retry, now)
            source.more = source.retry = False
            source.syncing = True
            self._running[sync.number] = sync
            if source.gossips:
                self._mesh_started = now
            self._emit(StartSync(sync.number, sync.peer, sync.asked, sync.skip))
            self._emit(SetTimer(SyncCheck(sync.number), now + self._config.stall))
            started.append(sync.peer)
        if self._mesh_queue and (at := self._mesh_due()) > now and at != self._mesh_timer:
            self._mesh_timer = at
            self._emit(SetTimer(OverlapDue(), at))
        return started

    def _queue_of(self, source: _Source) -> deque[_Source]:
        return self._mesh_queue if source.gossips else self._queue

    def _next(self, now: float) -> _Source | None:
        """Take the next source out of its queue; one that gossip reaches only if another such sync may start now."""
        if self._mesh_queue and self._mesh_due() <= now:
            source = self._mesh_queue[0]
            if source.queued_at is not None and now - source.queued_at < self._config.turn:
                source = max(self._mesh_queue, key=lambda each: len(each.advertised))
            self._mesh_queue.remove(source)
            return source
        return self._queue.popleft() if self._queue else None

    def _mesh_due(self) -> float:
        """Return when another sync with a peer that gossip reaches may start."""
        # The last that began is the last here: this is asked after each event.
        for sync in reversed(self._running.values()):
            if sync.source.gossips:
                return max(sync.started + self._config.overlap, self._mesh_started + self._config.spacing)
        return self._mesh_started + self._config.spacing

    def check(self, number: int, now: float) -> None:
        """Stop a sync that stalls, or has had its turn while others wait."""
        sync = self._running.get(number)
        if sync is None:
            return
        sync.stalled = not sync.active
        if sync.stalled or ((self._queue or self._mesh_queue) and now - sync.started >= self._config.turn):
            self._emit(StopSync(number))
            return
        sync.active = False
        self._emit(SetTimer(SyncCheck(number), now + self._config.stall))

    def end(self, event: SyncEnded, now: float) -> tuple[Sync, str] | None:
        """Note that a sync has ended: the peer may have its next one, now or after a back-off.

        Returns:
            The sync, and what went wrong; None if there is no such sync.
        """
        sync = self._running.pop(event.sync, None)
        if sync is None:
            return None
        error = self._conclude(sync, event, now)
        source = self._sources.get(sync.peer)
        if source is not None:
            self._enqueue(source, now)
        return sync, error

    def _conclude(self, sync: Sync, event: SyncEnded, now: float) -> str:
        source = sync.source
        source.syncing = False
        cooldown = min(event.cooldown, self._config.longest_backoff)
        if event.result is SyncResult.FINISHED:
            absent = [key for key in sync.asked if key in source.advertised]
            is_broken = is_repeated = False
            for key in absent:
                if source.advertised[key]:
                    is_broken = True
                    self._drop(source, key)
                else:
                    # It is asked again, after the pause: by then it has stored the message.
                    source.advertised[key] = is_repeated = True
            # What was refused and forgotten may be what is absent.
            if is_broken and not sync.skipped.is_forgetful:
                source.broken_promises += 1
            elif not absent or sync.skipped.is_forgetful:
                source.broken_promises = 0
            sync.unreliable = source.broken_promises >= self._config.broken_promises
            fruitless = not sync.inserted and not sync.retry and bool(absent or sync.more or sync.skipped.is_forgetful)
            self._wait(source, now, fruitless or is_repeated, cooldown)
            return f"the peer advertised {counted(len(absent), 'message')} that it does not have" if absent else ""
        source.more |= sync.more
        source.retry |= sync.retry
        if event.result is SyncResult.ABORTED and not sync.stalled:
            progressed = sync.inserted or sync.skipped or event.statistics.complete
            self._wait(source, now, not progressed, cooldown)
            return event.reason or "the stream was ended early"
        self._wait(source, now, True, cooldown)
        if not sync.stalled:
            return event.reason
        asked = f"; the peer was asked for {event.unanswered}" if event.unanswered else ""
        return f"no bytes came for {self._config.stall:g} s{asked}"

    def _wait(self, source: _Source, now: float, failed: bool, least: float) -> None:
        delay = 0.0
        source.failures = source.failures + 1 if failed else 0
        if failed:
            delay = backoff(self._random, self._config.backoff, self._config.longest_backoff, source.failures)
        source.not_before = now + max(delay, least)

    def _enqueue(self, source: _Source, now: float) -> None:
        if source.syncing or source.queued_at is not None or not _has_cause(source):
            return
        if now >= source.not_before:
            source.queued_at = now
            self._queue_of(source).append(source)
        elif not source.timed:
            source.timed = True
            self._emit(SetTimer(SyncDue(source.peer), source.not_before))

    def _drop(self, source: _Source, key: bytes) -> None:
        del source.advertised[key]
        peers = self._advertised_by[key]
        del peers[source.peer]
        if not peers:
            del self._advertised_by[key]


def _has_cause(source: _Source) -> bool:
    return bool(source.advertised) or source.more
