"""What a micro-batch takes of each of many logs, and how tasks share it.

No log waits for ever: those that a micro-batch has no room for come first in the next one, whatever arrives meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from gossiplog.spark.source.offsets import Reached

MOST_LOGS = 1000
"""Logs that a micro-batch with a limit is spread over, unless these have less than it may take: each is opened when it
is planned and again to be read, some milliseconds each time."""
OPENING = 500
"""Messages that are read while a log is opened, about."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of a log that arrived one after the other.

    Attributes:
        name: of the log, as the query has it.
        location: of the log, wherever a task runs.
        after: the sequence after which it begins.
        last: its last sequence.
        end: what the offset at the end of the micro-batch holds of the log, against which a task holds what it opens.
    """

    name: str
    location: str
    after: int
    last: int
    end: Reached

    def __len__(self) -> int:
        return self.last - self.after


@dataclass(frozen=True, slots=True)
class StreamPartition(InputPartition):
    """What one task reads."""

    stretches: tuple[Stretch, ...]


def shares(pending: Mapping[str, int], room: int, turn: str) -> tuple[dict[str, int], str]:
    """Return how many messages a micro-batch takes of each log, and the log whose turn was the last one.

    All of the room is taken, if there are as many messages. Logs have their turns in the order of their names, from the
    one after the last turn on; those that have a turn get equal shares, and what one has no use for goes to the others.
    Where the logs' turns do not come to all, each gets its own within as many micro-batches as the number of logs,
    divided by the room or by `MOST_LOGS`, the smaller of them.

    Args:
        pending: how many messages of each log wait.
        room: the most messages in the micro-batch, at least one.
        turn: of the last micro-batch.
    """
    waiting = sorted(log for log, messages in pending.items() if messages > 0)
    begin = bisect_right(waiting, turn)
    order = waiting[begin:] + waiting[:begin]
    served: list[str] = []
    held = 0
    for log in order:
        if len(served) == room or (len(served) >= MOST_LOGS and held >= room):
            break
        served.append(log)
        held += pending[log]
    taken: dict[str, int] = {}
    left = min(room, held)
    # Those with the fewest first: what they leave is shared by those after them.
    for others, log in zip(range(len(served), 0, -1), sorted(served, key=pending.__getitem__), strict=True):
        taken[log] = min(pending[log], left // others)
        left -= taken[log]
    return taken, served[-1] if len(served) < len(order) else turn


def partitions(stretches: Iterable[Stretch], wanted: int) -> list[StreamPartition]:
    """Return stretches in parts of about equal work, in their order: long ones are cut, short ones put together.

    Args:
        stretches: of which none is empty.
        wanted: number of parts, at least one. Of fewer messages there are fewer.
    """
    parts: list[list[Stretch]] = [[] for _ in range(wanted)]
    stretches = [*stretches]
    total = work(stretches)
    before = 0
    for stretch in stretches:
        length = OPENING + len(stretch)
        first, end = before * wanted // total, -(-(before + length) * wanted // total)
        bounds = [stretch.after]
        for part in range(first + 1, end):
            # The opening is spread over the messages: so a single log is cut into equal parts.
            bounds.append(stretch.after + (part * total - before * wanted) * len(stretch) // (length * wanted))
        bounds.append(stretch.last)
        for part, (after, last) in enumerate(pairwise(bounds), first):
            if after < last:
                parts[part].append(replace(stretch, after=after, last=last))
        before += length
    return [StreamPartition(tuple(part)) for part in parts if part]


def work(stretches: Sequence[Stretch]) -> int:
    """Return how many messages take as long to read as the stretches do."""
    return sum(OPENING + len(stretch) for stretch in stretches)
