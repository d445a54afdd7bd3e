"""What peers push, and what comes by gossip, on its way into the log: stored together, all that has come by then."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import anyio

from gossiplog.errors import CorruptLog, Refused, StorageError
from gossiplog.log.replica import Replica
from gossiplog.net import events
from gossiplog.net.record import Record
from gossiplog.net.syncing import Ingest
from gossiplog.net.threads import Threads
from gossiplog.net.tracing import span
from gossiplog.protocol import broadcast_events as broadcast
from gossiplog.protocol.broadcast_events import Delivery, Judged, Verdict

_MOST = 1024
_MOST_BYTES = 8 * 2**20


class Deliveries:
    """Messages that wait to be stored, from all peers.

    Args:
        replica: of the log.
        threads: to run on.
        ingest: stores them.
        record: counts, and tells the application of failures.
        report: is told what became of each.
    """

    def __init__(
        self,
        replica: Replica,
        threads: Threads,
        ingest: Ingest,
        record: Record,
        report: Callable[[broadcast.InEvent], None],
    ) -> None:
        self._replica = replica
        self._threads = threads
        self._ingest = ingest
        self._record = record
        self._report = report
        self._waiting: deque[Delivery] = deque()
        self._size = 0
        self._added = anyio.Event()
        self._made_room = anyio.Event()

    async def room(self) -> None:
        """Waits while there are very many."""
        while len(self._waiting) >= _MOST or self._size > _MOST_BYTES:
            await self._made_room.wait()

    def add(self, delivery: Delivery) -> None:
        """One more."""
        self._waiting.append(delivery)
        self._size += len(delivery.value)
        self._added.set()

    async def run(self) -> None:
        """Stores them as they come."""
        while True:
            await self._added.wait()
            self._added = anyio.Event()
            deliveries = list(self._waiting)
            judged = await self._judge(deliveries)
            for _ in deliveries:
                self._size -= len(self._waiting.popleft().value)
            self._made_room.set()
            self._made_room = anyio.Event()
            for judgement in judged:
                self._report(judgement)

    async def _judge(self, deliveries: Sequence[Delivery]) -> Sequence[Judged]:
        began = anyio.current_time()
        try:
            with span("store") as describe:
                batch, count = await self._threads.verify(self._replica.verify, [item.value for item in deliveries])
                outcome = await self._ingest(batch, count)
                describe({"messages": len(batch), "inserted": len(outcome.inserted), "orphans": len(outcome.orphans)})
        except (CorruptLog, StorageError, Refused) as error:
            self._record.tell(events.Failed("storing what peers sent", error))
            return [Judged(delivery, Verdict.REFUSED) for delivery in deliveries]
        self._record.observe("storing", anyio.current_time() - began)
        keys, invalid, inserted, orphans = batch.keys, dict(batch.invalid), set(outcome.inserted), dict(outcome.orphans)
        gossiped = sum(deliveries[index].ticket is not None for index in inserted)
        self._record.inserted("gossip", gossiped)
        self._record.inserted("push", len(inserted) - gossiped)
        self._record.refused_messages(list(outcome.refused.values()))
        self._record.count(
            orphans=len(orphans), duplicates=outcome.duplicates, refused=len(outcome.refused), invalid=len(invalid)
        )
        judged: list[Judged] = []
        for index, delivery in enumerate(deliveries):
            if index in invalid:
                judged.append(Judged(delivery, Verdict.INVALID, reason=str(invalid[index])))
            elif keys[index] != delivery.key:
                judged.append(Judged(delivery, Verdict.INVALID, reason="its key is another message's"))
                if index in inserted:
                    # The message itself is valid, and the other peers' as much as any.
                    self._report(broadcast.Appended([(keys[index], delivery.value)]))
            elif index in orphans:
                judged.append(Judged(delivery, Verdict.ORPHAN, orphans[index]))
            elif index in outcome.refused:
                judged.append(Judged(delivery, Verdict.REFUSED))
            else:
                judged.append(Judged(delivery, Verdict.INSERTED if index in inserted else Verdict.DUPLICATE))
        # Parents are forwarded before what follows them.
        return sorted(judged, key=lambda judgement: judgement.delivery.key)
