"""What peers push, and what comes by gossip, on its way into the log: stored a turn at a time (`fairness`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import anyio

from gossiplog.errors import RefusedMessage, StorageError
from gossiplog.net import events
from gossiplog.net.replicator.defects import defect_in
from gossiplog.net.replicator.fairness import MESH, FairQueue, Shares
from gossiplog.net.replicator.telemetry import Telemetry
from gossiplog.net.replicator.tracing import span
from gossiplog.net.transport.pacing import TimeSlice
from gossiplog.net.transport.stream import Signal
from gossiplog.protocol.broadcast import events as broadcast
from gossiplog.protocol.broadcast.events import Delivery
from gossiplog.replication.batches import InsertOutcome
from gossiplog.replication.verdicts import Judgement, parents_first, report_deliveries, report_failure


@dataclass(slots=True)
class _Progress:
    """What storing a turn has shown so far.

    Attributes:
        faulty: peers whose deliveries brought a defect to light; nothing more of theirs is stored.
        cpu_seconds: processor time that storing took.
    """

    faulty: set[broadcast.PeerId] = field(default_factory=set)
    cpu_seconds: float = 0.0


class InsertQueue:
    """Messages that wait to be stored, from all peers.

    Args:
        insert: verifies and inserts values (see `LogWriter.insert_values`).
        shares: of their writers.
        telemetry: counts, and notifies the application of failures.
        report: is called with what became of them, in batches.
        defect: is called with deliveries that a defect of this side kept from being judged, and what it raised; of the
            other deliveries of the same peer without that.
        name: gives the name of a peer.
        is_read: says whether what one writer sends is passed on to others.
        note: is called with the outcome of each batch, and with the peers that sent its values.
    """

    def __init__(
        self,
        insert: Callable[[Sequence[bytes]], Awaitable[InsertOutcome]],
        shares: Shares,
        telemetry: Telemetry,
        report: Callable[[*tuple[broadcast.InEvent, ...]], None],
        defect: Callable[[Delivery, BaseException | None], None],
        name: Callable[[broadcast.PeerId], str] = str,
        is_read: Callable[[], bool] = lambda: False,
        note: Callable[[Sequence[broadcast.PeerId], InsertOutcome], object] = lambda peers, outcome: None,
    ) -> None:
        self._insert = insert
        self._telemetry = telemetry
        self._report = report
        self._defect = defect
        self._name = name
        self._note = note
        self._queue = FairQueue(shares, is_read)
        self._changed = Signal()

    async def room(self, writer: str, until: float = math.inf) -> bool:
        """Wait while very many of a writer's messages wait, until some time at most; return whether there is room."""
        # Mostly there is room: a scope takes longer than the look.
        if self._queue.has_room(writer, anyio.current_time()):
            return True
        with anyio.move_on_at(until):
            while not self._queue.has_room(writer, anyio.current_time()):
                await self._changed.wait()
            return True
        return False

    def add(self, writer: str, delivery: Delivery) -> None:
        """Queue a message of a writer."""
        self._queue.add(writer, delivery)
        self._changed.set()

    async def run(self, *, long: bool) -> None:
        """Store messages as they come, without end: the long ones, or the others."""
        while True:
            turn = self._queue.take(anyio.current_time(), long=long)
            if not turn:
                with anyio.move_on_at(self._queue.next_due(anyio.current_time(), long=long)) as waited:
                    await self._changed.wait()
                if waited.cancelled_caught:
                    # While it waited its writer may have ceased to be limited: then the message is the other task's.
                    self._changed.set()
                continue
            began = anyio.current_time()
            # Also where several batches were made of them: parents are forwarded before what follows them.
            progress = _Progress()
            await self._report_all(await self._judge(list(chain(*turn.values())), progress))
            now = anyio.current_time()
            self._queue.finish(turn, now - began, now, progress.cpu_seconds)
            self._changed.set()

    def store_at_once(self, deliveries: Sequence[Delivery], insert: Callable[[], InsertOutcome | None]) -> bool:
        """Insert messages without a turn and without a wait; return False if that cannot be, or a defect prevents it.

        Args:
            deliveries: the messages.
            insert: inserts them, in this order; returns None if it would have to wait.
        """
        began = anyio.current_time()
        try:
            outcome = insert()
            if outcome is None:
                return False
            reports = self._note_outcome(deliveries, outcome, began)
        except StorageError as error:
            reports = self._note_failure(deliveries, error)
        except BaseException as error:
            if defect_in(error) is None:
                raise
            return False
        self._report(*parents_first(reports))
        return True

    async def store(self, deliveries: Sequence[Delivery], insert: Callable[[], Awaitable[InsertOutcome]]) -> None:
        """Insert messages without a turn. If a defect prevents that, queue them as the mesh's.

        Args:
            deliveries: the messages.
            insert: inserts them, in this order.
        """
        try:
            reports = await self._store(deliveries, _Progress(), insert)
        except BaseException as error:
            if defect_in(error) is None:
                raise
            for delivery in deliveries:
                self.add(MESH, delivery)
        else:
            await self._report_all(reports)

    async def _report_all(self, judgements: Sequence[Judgement]) -> None:
        reports, time_slice, count = parents_first(judgements), TimeSlice(), self._telemetry.most_at_once
        # Not one by one: a router is given the answers of a report together.
        for start in range(0, len(reports), count):
            await time_slice.rest()
            self._report(*reports[start : start + count])

    async def _judge(self, deliveries: Sequence[Delivery], progress: _Progress) -> Sequence[Judgement]:
        """Store deliveries together; where a defect prevents that, halve them until it is known whose it is."""
        try:
            values = [delivery.value for delivery in deliveries]
            return await self._store(deliveries, progress, lambda: self._insert(values))
        except BaseException as error:
            defect = defect_in(error)
            if defect is None:
                raise
            if len(deliveries) == 1:
                progress.faulty.add(deliveries[0].source)
                self._defect(deliveries[0], defect)
                return []
        reports: list[Judgement] = []
        half = len(deliveries) // 2
        for part in (deliveries[:half], deliveries[half:]):
            rest = [delivery for delivery in part if delivery.source not in progress.faulty]
            for delivery in part:
                if delivery.source in progress.faulty:
                    self._defect(delivery, None)
            if rest:
                reports += await self._judge(rest, progress)
        return reports

    async def _store(
        self, deliveries: Sequence[Delivery], progress: _Progress, insert: Callable[[], Awaitable[InsertOutcome]]
    ) -> Sequence[Judgement]:
        began = anyio.current_time()
        try:
            with span("store") as describe:
                outcome = await insert()
                describe(
                    {"messages": len(deliveries), "inserted": len(outcome.inserted), "orphans": len(outcome.orphans)}
                )
        except (StorageError, RefusedMessage) as error:
            return self._note_failure(deliveries, error)
        progress.cpu_seconds += outcome.cpu_seconds
        return self._note_outcome(deliveries, outcome, began)

    def _note_failure(
        self, deliveries: Sequence[Delivery], error: StorageError | RefusedMessage
    ) -> Sequence[Judgement]:
        self._telemetry.emit(events.Failed("storing what peers sent", error))
        return report_failure(deliveries)

    def _note_outcome(
        self, deliveries: Sequence[Delivery], outcome: InsertOutcome, began: float
    ) -> Sequence[Judgement]:
        self._telemetry.observe("storing", anyio.current_time() - began)
        for source, count in Counter(deliveries[index].source for index in outcome.inserted).items():
            self._telemetry.brought(self._name(source), count)
        gossiped = sum(deliveries[index].ticket is not None for index in outcome.inserted)
        self._telemetry.inserted("gossip", gossiped)
        self._telemetry.inserted("push", len(outcome.inserted) - gossiped)
        self._telemetry.count(orphans=len(outcome.orphans))
        self._telemetry.count_outcome(outcome)
        self._note([delivery.source for delivery in deliveries], outcome)
        return report_deliveries(deliveries, outcome)
