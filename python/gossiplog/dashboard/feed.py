"""From the events of a network to what pages are sent: a state to begin with, then what changes, in batches.

Nothing here waits or reads a clock. Whoever reports calls `publish`, which takes the same short time whether nobody
looks or many do; the work for readers is done once for all of them, some twenty times a second, by `flush`.

A batch has every change of the state, and no more pulses than an eye can follow: of several reports of one log the last
alone, of many deliveries a sample. So it brings the totals and the samples of the charts, which cannot be counted from
it. A reader that has fallen behind gets a new state instead of what it missed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gossiplog.dashboard.events import Committed, Delivered, Duplicated, Event, LinkChanged, TrafficCounted, all_to_json
from gossiplog.dashboard.state import NetworkState

MOST_PULSES = 60
"""Deliveries and duplicates in a batch."""
MOST_BEHIND = 10
"""Batches that a reader may have missed and still get: half a second. Then it gets a new state."""
MOST_KEPT = 200
"""Batches that a page which connects again may have missed: ten seconds."""
MOST_KEPT_BYTES = 4 * 2**20
"""Bytes of the batches that are kept for that."""
MOST_PENDING = 10_000
"""Events that wait for a batch: the next one makes it at once."""

# Of several with the same key the last alone matters to the state.
_KEYS: dict[type[Any], Callable[[Any], Hashable]] = {
    Committed: lambda event: ("log", event.peer),
    TrafficCounted: lambda event: ("traffic", event.peer),
    LinkChanged: lambda event: ("link", event.peer, event.other),
}
_PULSES = (Delivered, Duplicated)


class Feed:
    """The state of a network and its last changes, as text for readers (HTML standard, "Server-sent events").

    Args:
        session: tells the positions of this feed from those of another, which a page may remember: any short text.

    Attributes:
        state: as of the last batch.
        position: of the last batch: how many there have been.
    """

    def __init__(self, session: str) -> None:
        self.state = NetworkState()
        self.position = 0
        self._session = session
        self._pending: list[Event] = []
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._snapshot: tuple[int, bytes] | None = None
        self._known: tuple[float, int] = (self.state.samples[0], 0)

    def publish(self, event: Event) -> None:
        """Take an event."""
        self._pending.append(event)
        if len(self._pending) >= MOST_PENDING:
            self.flush()

    def flush(self) -> Sequence[Event]:
        """Make a batch of the events since the last one, unless there is none, and return these events."""
        events, self._pending = self._pending, []
        if events:
            for event in events:
                self.state.apply(event)
            self.position += 1
            self._keep(self._text("changes", self._changes(events)))
        return events

    def since(self, position: int | None) -> bytes:
        """Return what brings a reader from a position to that of the last batch; nothing where it is there.

        Args:
            position: of the last batch that it has; None where it has nothing.
        """
        missed = None if position is None or position > self.position else self.position - position
        if missed is not None and missed <= min(MOST_BEHIND, len(self._kept)):
            return b"".join(list(self._kept)[len(self._kept) - missed :])
        if self._snapshot is None or self.position - self._snapshot[0] > min(MOST_BEHIND, len(self._kept)):
            state = json.dumps(self.state.snapshot(), ensure_ascii=False, separators=(",", ":"))
            self._snapshot = self.position, self._text("state", state.encode())
        begun, text = self._snapshot
        return text + self.since(begun)

    def resume(self, last_id: str) -> int | None:
        """Return the position that a page had, by the id of the last event that it got.

        Its events since then count as sent: they are, if they are still kept.

        Args:
            last_id: the header Last-Event-ID, which may be anything.

        Returns:
            None where the events since then are not kept, or it is no id of this feed's.
        """
        session, _, number = last_id.rpartition("-")
        if session != self._session or not number.isascii() or not number.isdecimal() or len(number) > 15:
            return None
        position = int(number)
        return position if 0 <= self.position - position <= len(self._kept) else None

    def missed(self, position: int) -> bytes:
        """Return all batches since a position that `resume` returned just now, however many they are."""
        return b"".join(list(self._kept)[len(self._kept) - (self.position - position) :])

    def _changes(self, events: Sequence[Event]) -> bytes:
        chosen = _coalesced(events)
        interval, samples = self.state.samples
        known = self._known
        self._known = interval, len(samples)
        whole = interval != known[0]
        # What the fold counts, which the chosen events do not add up to.
        figures = {
            "at": self.state.now,
            "totals": self.state.totals,
            "diverged": self.state.diverged,
            "bytes": self.state.bytes_sent,
            "samples": samples if whole else samples[known[1] :],
            "all_samples": whole,
            "left_out": len(events) - len(chosen),
        }
        return b'{"figures":%b,"events":%b}' % (
            json.dumps(figures, separators=(",", ":")).encode(),
            all_to_json(chosen),
        )

    def _text(self, kind: str, data: bytes) -> bytes:
        return b"id: %b-%d\nevent: %b\ndata: %b\n\n" % (self._session.encode(), self.position, kind.encode(), data)

    def _keep(self, text: bytes) -> None:
        self._kept.append(text)
        self._kept_bytes += len(text)
        while len(self._kept) > MOST_KEPT or (self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1):
            self._kept_bytes -= len(self._kept.popleft())


def _coalesced(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of a batch: all that the state follows from, and a sample of the pulses."""
    last = {key(event): index for index, event in enumerate(events) if (key := _KEYS.get(type(event))) is not None}
    pulses = sum(isinstance(event, _PULSES) for event in events)
    stride = -(-pulses // MOST_PULSES)
    chosen: list[Event] = []
    passed = 0
    for index, event in enumerate(events):
        if isinstance(event, _PULSES):
            if passed % stride == 0:
                chosen.append(event)
            passed += 1
        elif (key := _KEYS.get(type(event))) is None or last[key(event)] == index:
            chosen.append(event)
    return chosen
