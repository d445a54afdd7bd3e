"""What a member reports, in the words of a dashboard.

Messages arrive by the thousand while a log catches up, and each costs the member: so what only a picture needs is made
when somebody looks (`observed`), of so many messages at a time, and what a log holds is read once for all commits since
the last look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gossiplog.core import SignedMessage
from gossiplog.dashboard import events as dashboard_events
from gossiplog.log import Log
from gossiplog.net import events
from gossiplog.net.routing.kinds import RouterName

MOST_MESSAGES = 16
"""Messages of a member that are shown between two looks; the others are counted in its commits."""


class Translator:
    """Translates what one member reports.

    Args:
        name: of the member.
        author: of what it appends, whose arrival at the member itself is none.
        log: its own; None for a bootstrap.
        clock: returns the seconds since the network began.
        hub: the name of its hub, which its own events name by a URL; "" if it is no client.

    Attributes:
        observed: whether somebody looks at more than who is connected, and which roots there are.
        flow: the measurement whose messages' latencies are kept; 0 for none.
        hub: as given.
        router: of the member, if it is a peer.
    """

    def __init__(self, name: str, author: str, log: Log | None, clock: Callable[[], float], hub: str = "") -> None:
        self.name = name
        self._author = author
        self.hub = hub
        self.router: RouterName = "libp2p"
        self.observed = False
        self.flow = 0
        self._log = log
        self._clock = clock
        self._events: list[dashboard_events.Event] = []
        self._latencies: list[float] = []
        # Since the last look.
        self._inserted: int | None = None
        # Messages that came and whose source is not known yet: (at, id, latency); so many in a row that are not shown.
        self._arrived: deque[tuple[float, str, float | None] | int] = deque()
        # Sources of messages, with how many each has brought: they are said before or after the messages.
        self._sources: deque[tuple[str, int]] = deque()
        self._shown = 0
        self._traffic = 0, 0
        self._syncing: set[str] = set()

    def handle_event(self, event: events.Event) -> None:
        """Note an event of the member's."""
        at = self._clock()
        match event:
            case events.Connected(peer):
                self._events.append(dashboard_events.Connected(at, self.name, self._named(peer)))
            case events.Disconnected(peer):
                self._syncing.discard(peer)
                self._events.append(dashboard_events.Disconnected(at, self.name, self._named(peer)))
            case events.Grafted(peer):
                self._events.append(dashboard_events.LinkChanged(at, self.name, self._named(peer), "mesh"))
            case events.Pruned(peer):
                # Episub's neighbours get announcements also when they are not eager.
                link: dashboard_events.Link = "lazy" if self.router == "episub" else "none"
                self._events.append(dashboard_events.LinkChanged(at, self.name, self._named(peer), link))
            case events.Subscribed(peer) if self.router == "episub":
                self._events.append(dashboard_events.LinkChanged(at, self.name, self._named(peer), "lazy"))
            case events.Unsubscribed(peer) if self.router == "episub":
                self._events.append(dashboard_events.LinkChanged(at, self.name, self._named(peer), "none"))
            case events.SyncStarted(peer):
                self._syncing.add(peer)
                self._events.append(dashboard_events.SyncStarted(at, self.name, self._named(peer)))
            case events.SyncEnded(peer, inserted=inserted, error=error):
                self._syncing.discard(peer)
                self._events.append(dashboard_events.SyncEnded(at, self.name, self._named(peer), inserted, error))
            case events.Committed(inserted=inserted, sources=sources):
                self._committed(inserted, sources)
            case events.Rejected(peer, reason):
                self._events.append(dashboard_events.Refused(at, self.name, reason, source=self._named(peer)))
            case events.MessagesRefused(refused, peer):
                for id, error in refused[:MOST_MESSAGES]:
                    source = self._named(peer) if peer else ""
                    self._events.append(dashboard_events.Refused(at, self.name, str(error), id, source))
            case events.Failed(doing, error):
                self._events.append(dashboard_events.Noted(at, f"{doing}: {error}", self.name))
            case events.Defect(doing=doing, error=defect):
                self._events.append(
                    dashboard_events.Noted(at, f"a defect of gossiplog while {doing}: {defect!r}", self.name)
                )
            case _:
                pass

    def take_message(self, message: SignedMessage) -> None:
        """Note a message that has come to the log."""
        if not (self.flow or self.observed) or message.author == self._author:
            return
        is_shown = self.observed and self._shown < MOST_MESSAGES
        if not (self.flow or is_shown):
            self._skip(1)
            return
        sent, flow = _stamp(message.payload)
        now = self._clock()
        latency = None if sent is None else max(now - sent, 0.0)
        if self.flow and flow == self.flow and latency is not None:
            self._latencies.append(latency)
        if is_shown:
            self._shown += 1
            self._arrived.append((now, message.id, latency))
        elif self.observed:
            self._skip(1)

    def append(self, at: float, ids: Sequence[str]) -> None:
        """Note messages that the member has appended itself."""
        if self.observed:
            self._events += [dashboard_events.Published(at, self.name, id) for id in ids[:MOST_MESSAGES]]

    def count_traffic(self, bytes_sent: int, bytes_received: int) -> None:
        """Note how many bytes the member has sent and received since it was started."""
        if self.observed and (bytes_sent, bytes_received) != self._traffic:
            self._traffic = bytes_sent, bytes_received
            self._events.append(dashboard_events.TrafficCounted(self._clock(), self.name, bytes_sent, bytes_received))

    def measure(self, flow: int) -> None:
        """Keep latencies of another flow from now on, and none of that before; 0 keeps none."""
        self.flow = flow
        self._latencies.clear()

    def changed(self, inserted: int = 0) -> None:
        """Have the log reported with the next look, though no event said that it has changed."""
        self._inserted = (self._inserted or 0) + inserted

    def take(self) -> tuple[list[dashboard_events.Event], list[float]]:
        """Return what happened since the last call, in order, and the latencies of a flow."""
        self._match_sources()
        if self._inserted is not None and self._log is not None:
            self._events.append(self._state(self._log, self._inserted))
        self._inserted = None
        found, self._events = self._events, []
        latencies, self._latencies = self._latencies, []
        self._shown = 0
        return found, latencies

    def _state(self, log: Log, inserted: int) -> dashboard_events.Event:
        root, count = log.root, len(log)
        heads, clock = (log.heads[: dashboard_events.MOST_HEADS], log.clock) if self.observed else ((), 0)
        return dashboard_events.Committed(self._clock(), self.name, count, root.hash.hex(), heads, clock, inserted)

    def _committed(self, inserted: int, sources: Mapping[str, int]) -> None:
        self.changed(inserted)
        if self.observed:
            self._sources += sources.items()
            self._match_sources()

    def _skip(self, count: int) -> None:
        if self._arrived and isinstance(last := self._arrived[-1], int):
            self._arrived[-1] = last + count
        else:
            self._arrived.append(count)

    def stopped(self) -> None:
        """Forget the messages of which nobody says any more which peer brought them: the member has stopped."""
        self._arrived.clear()
        self._sources.clear()
        self._syncing.clear()

    @property
    def is_waiting(self) -> bool:
        """Whether messages have come of which it is not known yet which peer brought them."""
        self._match_sources()
        return bool(self._arrived)

    def _match_sources(self) -> None:
        """Report messages whose source is known. Of several sources of a commit it is not said which brought which."""
        while self._arrived and self._sources:
            first = self._arrived.popleft()
            name, count = self._sources.popleft()
            if isinstance(first, int):
                taken = min(first, count)
                if first > taken:
                    self._arrived.appendleft(first - taken)
            else:
                taken = 1
                at, id, latency = first
                by: dashboard_events.Way = (
                    "sync" if name in self._syncing else "push" if self._pushes(name) else "gossip"
                )
                self._events.append(dashboard_events.Delivered(at, self.name, id, self._named(name), by, latency))
            if count > taken:
                self._sources.appendleft((name, count - taken))

    def _pushes(self, name: str) -> bool:
        """Return whether messages come from a peer without gossip: a hub's from its clients, and theirs from it."""
        return bool(self.hub) or name.startswith("did:")

    def _named(self, peer: str) -> str:
        return self.hub or peer


def payload_of(number: int, text: str, sent: float, flow: int = 0) -> dict[str, Any]:
    """Return the payload of a message, which says when it was sent, so that any member can tell how long it took."""
    return {"number": number, "text": text, "sent": sent} | ({"flow": flow} if flow else {})


def _stamp(payload: Any) -> tuple[float | None, int]:
    """Return when a message was sent, and the flow that it belongs to; browsers and strangers may write anything."""
    if not isinstance(payload, dict):
        return None, 0
    sent, flow = payload.get("sent"), payload.get("flow", 0)
    # DAG-CBOR has whole numbers as integers.
    is_number = isinstance(sent, int | float) and not isinstance(sent, bool)
    return (sent if is_number else None), (flow if isinstance(flow, int) else 0)
