"""A network of nothing but events, for tests of the page: what is appended is at once wherever a connection leads.

It obeys the commands of a page as real peers do, and says the same of it. It reads no clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gossiplog.dashboard.events import (
    Committed,
    Connected,
    Delivered,
    Disconnected,
    Event,
    Healed,
    LinkChanged,
    Partitioned,
    PeerAdded,
    PeerKind,
    PeerStarted,
    PeerStopped,
    Published,
    RateChanged,
    SyncEnded,
    SyncStarted,
)
from gossiplog.errors import NetworkError


@dataclass
class _Peer:
    label: str
    kind: PeerKind
    messages: set[str] = field(default_factory=set)
    running: bool = True


class ScriptedNetwork:
    """Peers in a ring with chords, which the page may command.

    Args:
        publish: takes the events.
        clock: gives the seconds since the network began.
    """

    def __init__(self, publish: Callable[[Event], object], clock: Callable[[], float]) -> None:
        self.peers: dict[str, _Peer] = {}
        self.edges: set[frozenset[str]] = set()
        self.rate = 0.0
        self._publish = publish
        self._clock = clock
        self._cut: set[frozenset[str]] = set()
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._number = 0

    def root(self, peer: str) -> str:
        """What stands for the tree over a peer's messages."""
        return hashlib.sha256("".join(sorted(self.peers[peer].messages)).encode()).hexdigest()[:32]

    def begin(self, count: int, *, kind: PeerKind = "peer", label: str = "{}") -> None:
        """Add so many peers."""
        for _ in range(count):
            self.add(kind, label)

    def add(self, kind: PeerKind = "peer", label: str = "{}") -> str:
        """Add a peer, connected to the one before, the fourth before, and the first."""
        number = len(self.peers)
        name = f"12D3KooW{number:04d}"
        before = list(self.peers)
        self.peers[name] = _Peer(label.format(number), kind)
        self._publish(PeerAdded(self._clock(), name, label.format(number), kind))
        for other in {before[at] for at in (0, number - 4, number - 1) if 0 <= at < number}:
            self.connect(name, other)
        self._report(name)
        return name

    def connect(self, peer: str, other: str) -> None:
        """Connect two peers, whose logs are the same then, and which are in each other's mesh every other time."""
        pair = frozenset((peer, other))
        if pair in self.edges or pair in self._cut or self._is_apart(peer, other):
            return
        if not (self.peers[peer].running and self.peers[other].running):
            return
        self.edges.add(pair)
        self._publish(Connected(self._clock(), peer, other))
        if (int(peer[-4:]) + int(other[-4:])) % 3:
            self._publish(LinkChanged(self._clock(), peer, other, "mesh"))
        if (int(peer[-4:]) + int(other[-4:])) % 2:
            self._publish(LinkChanged(self._clock(), other, peer, "mesh"))
        if self.peers[peer].messages != self.peers[other].messages:
            self._publish(SyncStarted(self._clock(), peer, other))
            self._publish(SyncEnded(self._clock(), peer, other, 1))
        self._spread(peer)

    async def append(self, peer: str) -> None:
        if not self.peers[peer].running:
            raise NetworkError(f"peer {self.peers[peer].label} has stopped: start it first")
        self._number += 1
        message = f"m{self._number:04d}"
        self.peers[peer].messages.add(message)
        self._publish(Published(self._clock(), peer, message, f"message {self._number}"))
        self._report(peer)
        self._spread(peer, message)

    async def stop(self, peer: str) -> None:
        self.peers[peer].running = False
        self._disconnect(pair for pair in self.edges if peer in pair)
        self._publish(PeerStopped(self._clock(), peer))

    async def start(self, peer: str) -> None:
        self.peers[peer].running = True
        self._publish(PeerStarted(self._clock(), peer))
        self._report(peer)
        self._mend()

    async def cut(self, peer: str, other: str) -> None:
        pair = frozenset((peer, other))
        self._cut.add(pair)
        self._disconnect([pair] if pair in self.edges else [])

    async def partition(self) -> None:
        names = list(self.peers)
        half = len(names) // 2
        self._groups = tuple(names[:half]), tuple(names[half:])
        self._publish(Partitioned(self._clock(), self._groups))
        self._disconnect(pair for pair in self.edges if self._is_apart(*pair))

    async def heal(self) -> None:
        self._groups = ()
        self._cut.clear()
        self._publish(Healed(self._clock()))
        self._mend()

    async def add_peer(self) -> None:
        self.add()

    async def auto_append(self, rate: float) -> None:
        self.rate = rate
        self._publish(RateChanged(self._clock(), rate))

    def _mend(self) -> None:
        names = list(self.peers)
        for number, name in enumerate(names):
            for at in (0, number - 4, number - 1):
                if 0 <= at < number:
                    self.connect(name, names[at])

    def _is_apart(self, peer: str, other: str) -> bool:
        return any((peer in group) != (other in group) for group in self._groups)

    def _disconnect(self, pairs: Iterable[frozenset[str]]) -> None:
        for pair in tuple(pairs):
            self.edges.discard(pair)
            self._publish(Disconnected(self._clock(), *sorted(pair)))

    def _spread(self, peer: str, message: str = "") -> None:
        reached = [peer]
        for name in reached:
            for pair in self.edges:
                if name in pair:
                    (other,) = pair - {name}
                    # The message goes on from there, even if the peer has it by the last sync.
                    if other not in reached:
                        reached.append(other)
                        self._deliver(name, other, message)
        everything = set().union(*(self.peers[name].messages for name in reached))
        for name in reached:
            if self.peers[name].messages != everything:
                self.peers[name].messages |= everything
                self._report(name)

    def _deliver(self, source: str, peer: str, message: str) -> None:
        if message and message not in self.peers[peer].messages:
            self._publish(Delivered(self._clock(), peer, message, source, "gossip", 0.01))

    def _report(self, name: str) -> None:
        peer = self.peers[name]
        if peer.kind != "bootstrap":
            heads = tuple(sorted(peer.messages)[-1:])
            count = len(peer.messages)
            self._publish(Committed(self._clock(), name, count, self.root(name), heads, count + 1))
