"""From the events of a network to what pages are sent: a state to begin with, then what changes, in batches.

Nothing here waits or reads a clock. Reporters call `publish`, which appends, and folds only when MOST_PENDING events
wait; the work for readers is done once for all of them, some twenty times a second, by `flush`.

A batch has every change of the state, and no more pulses than an eye can follow: of several reports of one log the last
alone, of many deliveries a sample. So it brings the totals and the samples of the charts, which cannot be counted from
it. `gossiplog.net.http.event_stream` has what becomes of readers that fall behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gossiplog.dashboard.events import Committed, Delivered, Duplicated, Event, LinkChanged, TrafficCounted, all_to_json
from gossiplog.dashboard.state import NetworkState
from gossiplog.net.http.event_stream import Batches

MOST_PULSES = 60
"""Deliveries and duplicates in a batch."""
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
        batches: of them, a twentieth of a second each, half a second of which a reader may miss before it gets a new
            state, and ten seconds a page that connects again.
    """

    def __init__(self, session: str) -> None:
        self.state = NetworkState()
        self.batches = Batches(session, self._snapshot)
        self._pending: list[Event] = []
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
            self.batches.add(self._changes(events))
        return events

    def _snapshot(self) -> bytes:
        return json.dumps(self.state.snapshot(), ensure_ascii=False, separators=(",", ":")).encode()

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
