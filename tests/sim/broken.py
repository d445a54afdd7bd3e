"""Broadcast machines without one of their rules, and drivers that misreport: what the simulator has to catch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

from gossiplog.core import read_batch
from gossiplog.log.replica import Replica
from gossiplog.protocol.broadcast.config import BroadcastConfig
from gossiplog.protocol.broadcast.events import (
    AnnounceDue,
    Appended,
    Delivery,
    Disconnect,
    GossipAnswer,
    GossipAnswered,
    InEvent,
    Judged,
    OutEvent,
    PeerCaughtUp,
    PeerConnected,
    Publish,
    RetryDue,
    SendInsert,
    SendUpdate,
    SetTimer,
    StartSync,
    SyncBrought,
    SyncDue,
    SyncEnded,
    SyncResult,
    TimerExpired,
    Verdict,
)
from gossiplog.protocol.broadcast.machine import Broadcast
from gossiplog.replication.verdicts import WRONG_KEY, Judgement
from gossiplog.sim.whole.peer import insert


class Altered(Broadcast):
    """A machine whose events are changed on their way out."""

    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        return [out for made in super().handle(event, now) for out in self.change(event, made)]

    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [out]


class ForwardsOrphans(Broadcast):
    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        outs = super().handle(event, now)
        if isinstance(event, Judged) and event.verdict is Verdict.ORPHAN:
            outs.append(Publish(event.delivery.key, event.delivery.value))
            others = tuple(peer for peer in self._peers if peer != event.delivery.source)
            outs.append(SendInsert(others, event.delivery.key, event.delivery.value))
        return outs


class ForwardsRefused(Broadcast):
    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        outs = super().handle(event, now)
        if isinstance(event, Judged) and event.verdict is Verdict.REFUSED:
            outs.append(SendInsert(tuple(self._peers), event.delivery.key, event.delivery.value))
        return outs


class BlamesOrphans(Broadcast):
    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        outs = super().handle(event, now)
        if isinstance(event, Judged) and event.verdict is Verdict.ORPHAN:
            outs.append(Disconnect(event.delivery.source, "an orphan"))
        return outs


class NoUpdateOnConnect(Altered):
    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [] if isinstance(event, PeerConnected) and isinstance(out, SendUpdate) else [out]


class NoUpdateAfterSync(Altered):
    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [] if isinstance(event, SyncEnded) and isinstance(out, SendUpdate) else [out]


class NoUpdateWhenCaughtUp(Altered):
    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [] if isinstance(event, PeerCaughtUp) and isinstance(out, SendUpdate) else [out]


class NoPush(Altered):
    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [] if isinstance(out, SendInsert) else [out]


class NoResume(Broadcast):
    """An aborted sync counts as finished."""

    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        if isinstance(event, SyncEnded) and event.result is SyncResult.ABORTED:
            event = SyncEnded(event.sync, SyncResult.FINISHED, event.held)
        return super().handle(event, now)


class NoBackoff(Broadcast):
    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        for source in self._schedule._sources.values():
            source.not_before = now
        outs = super().handle(event, now)
        for source in self._schedule._sources.values():
            source.not_before = now
        return [
            SetTimer(out.timer, now) if isinstance(out, SetTimer) and isinstance(out.timer, SyncDue) else out
            for out in outs
        ]


class NoCoalescing(Broadcast):
    """Every orphan starts a sync of its own."""

    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        outs = super().handle(event, now)
        if isinstance(event, Judged) and event.verdict is Verdict.ORPHAN:
            outs.append(StartSync(next(self._schedule._numbers), event.delivery.source, (), frozenset()))
        return outs


class NoRetry(Broadcast):
    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        if isinstance(event, TimerExpired) and isinstance(event.timer, RetryDue):
            return []
        return super().handle(event, now)


class BlamesRefusals(Broadcast):
    """What descends from a refused message is taken for a hole in its source's log."""

    def handle(self, event: InEvent, now: float) -> list[OutEvent]:
        outs = super().handle(event, now)
        if isinstance(event, SyncBrought) and event.orphans:
            sync = self._schedule.get(event.sync)
            if sync is not None:
                outs.append(Disconnect(sync.peer, "a hole"))
        return outs


class NoBlame(Altered):
    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [] if isinstance(out, Disconnect) else [out]


class AcceptsOrphans(Altered):
    """Gossip that is to be ignored is accepted."""

    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        if isinstance(out, GossipAnswered) and out.answer is GossipAnswer.IGNORE:
            return [GossipAnswered(out.source, out.ticket, GossipAnswer.ACCEPT)]
        return [out]


class NoReject(Altered):
    """Invalid gossip is ignored."""

    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        if isinstance(out, GossipAnswered) and out.answer is GossipAnswer.REJECT:
            return [GossipAnswered(out.source, out.ticket, GossipAnswer.IGNORE)]
        return [out]


class NoAnnounce(Altered):
    """Who gossips is not told the heads after a message."""

    def change(self, event: InEvent, out: OutEvent) -> Iterable[OutEvent]:
        return [] if isinstance(out, SetTimer) and isinstance(out.timer, AnnounceDue) else [out]


# Each with a seed, of 12 peers, whose run catches it, and what is said then.
BROKEN: list[tuple[Callable[[Random, BroadcastConfig], Broadcast], int, str]] = [
    (ForwardsOrphans, 0, "forwards"),
    (ForwardsRefused, 1, "forwards"),
    (BlamesOrphans, 1, "blames the honest node"),
    (NoUpdateOnConnect, 0, "at rest"),
    (NoUpdateAfterSync, 0, "at rest"),
    (NoUpdateWhenCaughtUp, 12, "at rest"),
    (NoPush, 4, "at rest"),
    (NoResume, 26, "at rest"),
    (NoBackoff, 8, "20 syncs with the hostile node"),
    (NoCoalescing, 0, "starts a second sync"),
    (NoRetry, 1, "at rest"),
    (BlamesRefusals, 1, "blames the honest node"),
    (NoBlame, 0, "nobody dropped"),
]

# What only a router between the machines shows.
BROKEN_GOSSIP: list[tuple[Callable[[Random, BroadcastConfig], Broadcast], int, str]] = [
    (AcceptsOrphans, 1, "forwards"),
    (NoReject, 62, "nobody dropped"),
    (NoAnnounce, 6, "at rest"),
]


def drops_wrong_keys(replica: Replica, deliveries: Sequence[Delivery]) -> Sequence[Judgement]:
    """A valid message under a wrong key is not inserted."""
    keys = read_batch([delivery.value for delivery in deliveries], replica.topic).keys
    dropped = [delivery for delivery, key in zip(deliveries, keys, strict=True) if key not in (delivery.key, b"")]
    invalid = [Judged(delivery, Verdict.INVALID, reason=WRONG_KEY) for delivery in dropped]
    return [*insert(replica, [delivery for delivery in deliveries if delivery not in dropped]), *invalid]


def keeps_wrong_keys(replica: Replica, deliveries: Sequence[Delivery]) -> Sequence[Judgement]:
    """A valid message under a wrong key is inserted, and not forwarded."""
    return [report for report in insert(replica, deliveries) if not isinstance(report, Appended)]


def takes_copies_for_duplicates(replica: Replica, deliveries: Sequence[Delivery]) -> Sequence[Judgement]:
    """A second copy in a batch is a duplicate, also where the log did not take the first."""
    seen: set[bytes] = set()
    reports: list[Judgement] = []
    for report in insert(replica, deliveries):
        if isinstance(report, Judged) and report.verdict in (Verdict.ORPHAN, Verdict.REFUSED):
            if report.delivery.key in seen:
                report = replace(report, verdict=Verdict.DUPLICATE, missing=())
            seen.add(report.delivery.key)
        reports.append(report)
    return reports


# Each with a seed, of 12 peers, whose run catches it, and what is said then.
BROKEN_REPORTS: list[tuple[Callable[[Replica, Sequence[Delivery]], Sequence[Judgement]], int, str]] = [
    (drops_wrong_keys, 2, "lost: 22 valid messages that hostile nodes sent"),
    (takes_copies_for_duplicates, 312, "which it does not hold"),
]
