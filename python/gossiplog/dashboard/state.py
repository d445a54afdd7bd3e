"""The state of a network: what follows from its events.

`page/state.js` is the same fold in the browser, and `tests/dashboard/test_page_state.py` holds the two against each
other. Change both together.

Everything is bounded, because a recording may be anybody's: peers, edges, the events that are remembered, and the
samples of the charts, which become half as dense whenever there are too many.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gossiplog.dashboard.events import (
    Committed,
    Connected,
    Delivered,
    Disconnected,
    Duplicated,
    Event,
    Healed,
    Link,
    LinkChanged,
    Name,
    Partitioned,
    PeerAdded,
    PeerKind,
    PeerRemoved,
    PeerStarted,
    PeerStopped,
    Published,
    RateChanged,
    Refused,
    SyncEnded,
    SyncStarted,
    TrafficCounted,
    as_objects,
)

MOST_PEERS = 2_000
"""Peers that are shown; what concerns others is counted as `omitted`."""
MOST_EDGES = 20_000
"""Pairs of peers that are shown as connected."""
MOST_RECENT = 100
"""Events that a page sees in its log when it is opened."""
MOST_SAMPLES = 600
"""Points of a chart: when there are more, every other one goes, and the interval between two doubles."""
SAMPLE_SECONDS = 0.5
"""The interval at first."""
SAMPLE_FIELDS = ("at", "messages", "roots", "lag", "latency_p50", "latency_p95", "bytes")
"""What a sample has: `messages` of the log that has most, `lag` the seconds since the logs were last equal."""

# Latencies that one interval keeps.
_MOST_LATENCIES = 500
# They come by the thousand, and say nothing that the state does not.
_UNREMEMBERED = frozenset({Committed, Delivered, Duplicated, TrafficCounted})

_Pair: TypeAlias = tuple[str, str]
Sample: TypeAlias = tuple[float | int | None, ...]


@dataclass(slots=True)
class Peer:
    """A peer as the last events have it; see `PeerAdded`, `Committed` and `TrafficCounted`."""

    label: str
    kind: PeerKind
    agent: str
    running: bool = True
    messages: int = 0
    root: str = ""
    heads: Sequence[str] = ()
    clock: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(slots=True)
class _Edge:
    """A pair of peers: whether they are connected, and how each uses the other, the lesser name's link first."""

    connected: bool
    links: list[Link]


class NetworkState:
    """What follows from the events so far. It does no I/O and reads no clock.

    Attributes:
        now: the time of the last event.
        peers: by name.
        totals: how often what has happened.
        groups: of the partition, or None.
        rate: messages a second that are appended by themselves.
        diverged: since when the logs are not all equal; None where they are.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.peers: dict[str, Peer] = {}
        self.totals = dict.fromkeys(
            ("published", "gossip", "push", "sync", "duplicated", "syncs", "refused", "omitted"), 0
        )
        self.groups: tuple[tuple[str, ...], ...] | None = None
        self.rate = 0.0
        self.diverged: float | None = None
        self._edges: dict[_Pair, _Edge] = {}
        self._others: dict[str, set[str]] = {}
        self._recent: deque[Event] = deque(maxlen=MOST_RECENT)
        self._roots: Counter[str] = Counter()
        self._bytes = 0
        self._interval = SAMPLE_SECONDS
        self._due = SAMPLE_SECONDS
        self._samples: list[Sample] = []
        self._latencies: list[float] = []
        self._folds: dict[type[Any], Callable[[Any], bool | None]] = {
            PeerAdded: self._add,
            PeerRemoved: self._remove,
            PeerStarted: self._start,
            PeerStopped: self._stop,
            Connected: self._connect,
            Disconnected: self._disconnect,
            LinkChanged: self._link,
            Published: lambda event: self._count("published"),
            Committed: self._commit,
            Delivered: self._deliver,
            Duplicated: lambda event: self._count("duplicated"),
            SyncStarted: lambda event: None,
            SyncEnded: lambda event: self._count("syncs"),
            Refused: lambda event: self._count("refused"),
            TrafficCounted: self._traffic,
            Partitioned: self._partition,
            Healed: self._heal,
            RateChanged: self._set_rate,
        }

    def apply(self, event: Event) -> None:
        """Take an event; one whose time is before that of the last counts as of now."""
        if event.at > self.now:
            if event.at >= self._due:
                self._sample_until(event.at)
            self.now = event.at
        kind = type(event)
        fold = self._folds.get(kind)
        if fold is not None and fold(event) is False:
            # What the other end has reported already.
            return
        if kind not in _UNREMEMBERED:
            self._recent.append(event)

    @property
    def bytes_sent(self) -> int:
        """What all peers have sent so far, by the last that they reported."""
        return self._bytes

    @property
    def distinct_roots(self) -> int:
        """How many different logs there are, among the peers that run."""
        return len(self._roots)

    @property
    def edges(self) -> dict[_Pair, tuple[bool, Link, Link]]:
        """By pair of peers, the lesser name first: whether they are connected, and how each uses the other."""
        return {pair: (edge.connected, edge.links[0], edge.links[1]) for pair, edge in self._edges.items()}

    @property
    def samples(self) -> tuple[float, Sequence[Sample]]:
        """The interval between two samples at the moment, and the samples, each with the fields SAMPLE_FIELDS."""
        return self._interval, self._samples

    def snapshot(self) -> dict[str, Any]:
        """Return all of the state as values for JSON; a fold that begins with it ends as one of all events does."""
        return {
            "at": self.now,
            "peers": {
                name: {
                    "label": peer.label,
                    "kind": peer.kind,
                    "agent": peer.agent,
                    "running": peer.running,
                    "messages": peer.messages,
                    "root": peer.root,
                    "heads": list(peer.heads),
                    "clock": peer.clock,
                    "bytes_sent": peer.bytes_sent,
                    "bytes_received": peer.bytes_received,
                }
                for name, peer in self.peers.items()
            },
            "edges": [
                {"peers": list(pair), "connected": edge.connected, "links": list(edge.links)}
                for pair, edge in self._edges.items()
            ],
            "groups": None if self.groups is None else [list(group) for group in self.groups],
            "rate": self.rate,
            "totals": dict(self.totals),
            "diverged": self.diverged,
            "bytes": self._bytes,
            "sampling": {"interval": self._interval, "due": self._due, "latencies": list(self._latencies)},
            "samples": [list(sample) for sample in self._samples],
            "recent": as_objects(self._recent),
        }

    # Peers

    def _peer(self, name: Name, label: str = "", kind: PeerKind = "peer", agent: str = "") -> Peer | None:
        """Return a peer, new if need be; None of one too many."""
        peer = self.peers.get(name)
        if peer is None and len(self.peers) < MOST_PEERS:
            peer = self.peers[name] = Peer(label or name, kind, agent)
            self._others[name] = set()
        if peer is None:
            self._count("omitted")
        return peer

    def _add(self, event: PeerAdded) -> None:
        peer = self._peer(event.peer)
        if peer is not None:
            self._forget_root(peer)
            peer.label, peer.kind, peer.agent, peer.running = event.label, event.kind, event.agent, True
            self._know_root(peer)
            self._note_divergence()

    def _remove(self, event: PeerRemoved) -> None:
        peer = self.peers.get(event.peer)
        if peer is not None:
            self._end_edges(event.peer)
            self._forget_root(peer)
            self._note_divergence()
            del self.peers[event.peer], self._others[event.peer]

    def _start(self, event: PeerStarted) -> bool:
        peer = self._peer(event.peer)
        if peer is None or peer.running:
            return False
        peer.running = True
        self._know_root(peer)
        self._note_divergence()
        return True

    def _stop(self, event: PeerStopped) -> bool:
        peer = self._peer(event.peer)
        if peer is None or not peer.running:
            return False
        self._end_edges(event.peer)
        self._forget_root(peer)
        self._note_divergence()
        peer.running = False
        return True

    # Edges

    def _edge(self, peer: str, other: str) -> tuple[_Pair, _Edge] | None:
        """Return the edge of two peers, new if need be; None where there are too many, or it is one peer."""
        pair = (peer, other) if peer < other else (other, peer)
        edge = self._edges.get(pair)
        if edge is None:
            if peer == other or len(self._edges) >= MOST_EDGES:
                self._count("omitted")
                return None
            if self._peer(peer) is None or self._peer(other) is None:
                return None
            edge = self._edges[pair] = _Edge(False, ["none", "none"])
            self._others[peer].add(other)
            self._others[other].add(peer)
        return pair, edge

    def _connect(self, event: Connected) -> bool:
        found = self._edge(event.peer, event.other)
        if found is None or found[1].connected:
            return False
        found[1].connected = True
        return True

    def _disconnect(self, event: Disconnected) -> bool:
        return self._end_edge(event.peer, event.other)

    def _link(self, event: LinkChanged) -> None:
        found = self._edge(event.peer, event.other)
        if found is None:
            return
        (lesser, _), edge = found
        edge.links[0 if event.peer == lesser else 1] = event.link
        if not edge.connected and edge.links == ["none", "none"]:
            self._end_edge(event.peer, event.other)

    def _end_edges(self, peer: str) -> None:
        for other in tuple(self._others[peer]):
            self._end_edge(peer, other)

    def _end_edge(self, peer: str, other: str) -> bool:
        """Remove an edge; return whether it was there."""
        if self._edges.pop((peer, other) if peer < other else (other, peer), None) is None:
            return False
        self._others[peer].discard(other)
        self._others[other].discard(peer)
        return True

    # Logs

    def _commit(self, event: Committed) -> None:
        peer = self._peer(event.peer)
        if peer is not None:
            if peer.root != event.root:
                self._forget_root(peer)
                peer.root = event.root
                self._know_root(peer)
                self._note_divergence()
            peer.messages, peer.heads, peer.clock = event.messages, event.heads, event.clock

    def _know_root(self, peer: Peer) -> None:
        if peer.running and peer.root and peer.kind != "bootstrap":
            self._roots[peer.root] += 1

    def _forget_root(self, peer: Peer) -> None:
        if peer.running and peer.root and peer.kind != "bootstrap":
            self._roots[peer.root] -= 1
            if not self._roots[peer.root]:
                del self._roots[peer.root]

    def _note_divergence(self) -> None:
        if len(self._roots) <= 1:
            self.diverged = None
        elif self.diverged is None:
            self.diverged = self.now

    def _deliver(self, event: Delivered) -> None:
        self._count(event.by)
        if event.latency is not None and len(self._latencies) < _MOST_LATENCIES:
            self._latencies.append(event.latency)

    def _traffic(self, event: TrafficCounted) -> None:
        peer = self._peer(event.peer)
        if peer is not None:
            # Fewer than before: the peer counts from its start on, and has started again.
            before = peer.bytes_sent if event.bytes_sent >= peer.bytes_sent else 0
            self._bytes += event.bytes_sent - before
            peer.bytes_sent, peer.bytes_received = event.bytes_sent, event.bytes_received

    # The network

    def _partition(self, event: Partitioned) -> None:
        self.groups = event.groups

    def _heal(self, event: Healed) -> None:
        self.groups = None

    def _set_rate(self, event: RateChanged) -> None:
        self.rate = event.rate

    def _count(self, what: str) -> None:
        self.totals[what] += 1

    # Samples

    def _sample_until(self, at: float) -> None:
        """Take the samples that were due by a time: the first, and the last if nothing happened in between."""
        self._sample(self._due)
        last = math.floor(at / self._interval) * self._interval
        if last > self._due:
            self._sample(last)
        self._due = last + self._interval

    def _sample(self, at: float) -> None:
        latencies = sorted(self._latencies)
        self._latencies.clear()
        half, most = len(latencies) // 2, len(latencies) * 19 // 20
        self._samples.append(
            (
                at,
                max((peer.messages for peer in self.peers.values()), default=0),
                len(self._roots),
                0 if self.diverged is None else max(at - self.diverged, 0),
                latencies[half] if latencies else None,
                latencies[most] if latencies else None,
                self._bytes,
            )
        )
        if len(self._samples) > MOST_SAMPLES:
            del self._samples[::2]
            self._interval *= 2
