"""What the broadcast machine learns of messages after their insertion: the verdicts. It decides whom to blame for them.

The table of the verdicts, and the reasons, are in docs/design/replication.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from gossiplog.core import Batch, SignedMessage
from gossiplog.protocol.broadcast.events import ACCEPTED, Appended, Delivery, Judged, PeerId, SyncBrought, Verdict
from gossiplog.replication.batches import InsertOutcome

WRONG_KEY = "its key is another message's"

Judgement: TypeAlias = Judged | Appended


def accepted_deliveries(batch: Batch, sources: Iterable[PeerId]) -> list[Delivery]:
    """Return the deliveries of messages that a gossip router has accepted.

    Args:
        batch: valid messages.
        sources: of each, in the same order.
    """
    messages = [message for message in batch if isinstance(message, SignedMessage)]
    return [
        Delivery(source, message.key, message.value, ACCEPTED)
        for source, message in zip(sources, messages, strict=True)
    ]


def report_deliveries(deliveries: Sequence[Delivery], outcome: InsertOutcome) -> list[Judgement]:
    """Return what the machine is to learn of deliveries, parents first.

    Args:
        deliveries: whose values were inserted as one batch, in this order.
        outcome: of the insertion.
    """
    keys, invalid, inserted = outcome.keys, dict(outcome.invalid), set(outcome.inserted)
    missing = {keys[index]: parents for index, parents in outcome.orphans}
    refused = {keys[index] for index in outcome.refused}
    reports: list[Judgement] = []
    for index, (delivery, key) in enumerate(zip(deliveries, keys, strict=True)):
        if index in invalid:
            reports.append(Judged(delivery, Verdict.INVALID, reason=str(invalid[index])))
        elif key != delivery.key:
            # The message itself is valid, and the other peers' as much as any.
            if index in inserted:
                reports.append(Appended([(key, delivery.value)]))
            reports.append(Judged(delivery, Verdict.INVALID, reason=WRONG_KEY))
        elif index in inserted:
            reports.append(Judged(delivery, Verdict.INSERTED))
        # By their keys: a copy of a message that the log did not take is no duplicate.
        elif key in missing:
            reports.append(Judged(delivery, Verdict.ORPHAN, missing[key]))
        else:
            reports.append(Judged(delivery, Verdict.REFUSED if key in refused else Verdict.DUPLICATE))
    return parents_first(reports)


def report_failure(deliveries: Iterable[Delivery]) -> list[Judgement]:
    """Return what the machine is to learn of deliveries that the log could not take: it asks for them later."""
    return [Judged(delivery, Verdict.UNSTORED) for delivery in deliveries]


def parents_first(reports: Iterable[Judgement]) -> list[Judgement]:
    """Sort reports by the keys of their messages: those of parents are lower."""
    return sorted(
        reports, key=lambda report: report.messages[0][0] if isinstance(report, Appended) else report.delivery.key
    )


def report_sync(sync: int, outcome: InsertOutcome) -> SyncBrought:
    """Return what the machine is to learn of a batch that a sync brought.

    Args:
        sync: number of the sync.
        outcome: of the batch's insertion.
    """
    keys, invalid = outcome.keys, outcome.invalid
    lacking = {index for index, _ in [*invalid, *outcome.orphans]} | outcome.refused.keys()
    return SyncBrought(
        sync,
        held=[key for index, key in enumerate(keys) if index not in lacking],
        inserted=len(outcome.inserted),
        refused=[keys[index] for index in outcome.refused],
        orphans=[(keys[index], missing) for index, missing in outcome.orphans],
        invalid=str(invalid[0][1]) if invalid else "",
    )
