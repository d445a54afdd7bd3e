"""Episub's routers for tests: one that is driven by hand, and a small network under virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.episub.messages import Envelope, ForwardJoin, Message, Neighbor
from gossiplog.pubsub.episub.router import Episub
from gossiplog.pubsub.episub.views import Views
from gossiplog.pubsub.events import (
    Connect,
    ConnectFailed,
    Deliver,
    Disconnect,
    Join,
    Leave,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Ping,
    Publish,
    Received,
    RoundTrip,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.sim.kernel import Kernel

ME = "me"


def sent(events: Iterable[Any]) -> list[tuple[PeerId, Message]]:
    """Who is sent which message."""
    return [(peer, event.packet.message) for event in events if type(event) is Send for peer in event.peers]


def peers_of(events: Iterable[Any], kind: type) -> list[PeerId]:
    """The peers that events of a kind name."""
    return [event.peer for event in events if type(event) is kind]


class Lone:
    """The router of ME, driven by hand; its peers are names.

    Args:
        neighbours: that have been accepted.
        contacts: as the router's.
        joined: whether it is subscribed.
        seed: of its random numbers.
        options: of its configuration.
    """

    def __init__(
        self, *neighbours: str, contacts: tuple[str, ...] = (), joined: bool = True, seed: int = 0, **options: Any
    ) -> None:
        self.router = Episub(ME, contacts, Random(seed), Config(**options))
        self.now = 0.0
        self.timers: dict[Any, float] = {}
        self.first: list[Any] = []
        self._sequence = count()
        self._connected: set[str] = set()
        assert list(self.router.start(0.0)) == []
        if joined:
            self.first = self.tell(Join(""))
        for peer in neighbours:
            self.link(peer)

    @property
    def views(self) -> Views:
        return self.router.views

    def tell(self, event: Any) -> list[Any]:
        events = list(self.router.handle(event, self.now))
        for order in events:
            if type(order) is SetTimer:
                self.timers[order.timer] = order.at
        return events

    def get(self, peer: PeerId, message: Message) -> list[Any]:
        return self.tell(Received(peer, Envelope(peer, next(self._sequence), message)))

    def connect(self, *peers: str) -> list[Any]:
        self._connected.update(peers)
        return [event for peer in peers for event in self.tell(PeerConnected(peer))]

    def link(self, peer: str, *others: str) -> None:
        """Makes a peer a neighbour that has these others."""
        if peer not in self._connected:
            self.connect(peer)
        events = self.get(peer, Neighbor(others))
        assert sent(events)[0] == (peer, Neighbor(tuple(self.views.active)))

    def tell_lists(self, **lists: int) -> None:
        """Neighbours state their lists, of so many peers; ME is one of them."""
        for peer, size in lists.items():
            self.get(peer, Neighbor((ME, *(f"{peer}-{number}" for number in range(size - 1)))))

    def measure(self, **seconds: float) -> None:
        """Round trips are measured."""
        for peer, rtt in seconds.items():
            self.tell(RoundTrip(peer, rtt))

    def learn(self, *peers: str) -> None:
        """Passive peers become known."""
        for peer in peers:
            self.get(next(iter(self.views.active)), ForwardJoin(peer, 0))

    def expire(self, timer: Any) -> list[Any]:
        """Time goes on until a timer that is set, which expires."""
        self.now = max(self.now, self.timers.pop(timer))
        return self.tell(TimerExpired(timer))


class Net:
    """Routers on a network where every packet takes its pair's time; invariants are checked at each event.

    Args:
        nodes: how many, named from 0 on.
        contacts: how many each has; those before it, by chance.
        seed: of all that is random.
        delay: seconds between two nodes.
        hidden: nodes that nobody can connect to.
        options: of the routers' configuration.
    """

    def __init__(
        self,
        nodes: int,
        contacts: int = 3,
        seed: int = 0,
        delay: Callable[[int, int], float] = lambda a, b: 0.02,
        hidden: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        self.kernel = Kernel(seed)
        self.config = Config(**options)
        self.delivered: dict[int, list[bytes]] = {node: [] for node in range(nodes)}
        self.log: list[tuple[float, int, int, Message]] = []
        self.joined: set[int] = set()
        self._delay = delay
        self._hidden = hidden
        self._links: dict[int, set[int]] = {node: set() for node in range(nodes)}
        self._timers: dict[int, dict[Any, float]] = {node: {} for node in range(nodes)}
        self.routers: dict[int, Episub] = {}
        for node in range(nodes):
            known = tuple(self.kernel.random.sample(range(node), min(node, contacts)))
            self.routers[node] = Episub(node, known, Random(f"{seed} {node}"), self.config)
            self.kernel.at(node * 0.05, self.tell, node, Join(""))

    def run(self, seconds: float) -> None:
        self.kernel.run(self.kernel.now + seconds)

    def publish(self, node: int, data: bytes) -> None:
        self.tell(node, Publish(("",), data))

    def stop(self, node: int) -> None:
        """A node fails; its peers' connections break."""
        del self.routers[node]
        for peer in sorted(self._links[node]):
            self._close(peer, node)

    def tell(self, node: int, event: Any) -> None:
        router = self.routers.get(node)
        if router is None:
            return
        match event:
            case Join():
                self.joined.add(node)
            case Leave():
                self.joined.discard(node)
        orders = router.handle(event, self.kernel.now)
        self._check(node, router)
        for order in orders:
            match order:
                case Send(peers, envelope):
                    for peer in peers:
                        self.log.append((self.kernel.now, node, peer, envelope.message))
                        self.kernel.after(self._delay(node, peer), self._arrive, node, peer, envelope)
                case SetTimer(timer, at):
                    self._timers[node][timer] = at
                    self.kernel.at(at, self._expire, node, timer, at)
                case Deliver(data=data):
                    assert node in self.joined
                    self.delivered[node].append(data)
                case Connect(peer):
                    self.kernel.after(2 * self._delay(node, peer), self._connect, node, peer)
                case Disconnect(peer):
                    self.kernel.after(0.0, self._close, node, peer)
                    self.kernel.after(self._delay(node, peer), self._close, peer, node)
                case Ping(peer):
                    self.kernel.after(2 * self._delay(node, peer), self._pong, node, peer)

    def _check(self, node: int, router: Episub) -> None:
        views = router.views
        assert node not in views.active
        assert node not in views.passive
        assert not views.active.keys() & views.passive.keys()
        assert len(views.passive) <= self.config.passive
        assert len(views.active) <= self.config.most_links
        assert node in self.joined or not (views.active or views.passive)
        assert not set(router.eager) & set(router.lazy)
        assert {*router.eager, *router.lazy} == views.active.keys()

    def _arrive(self, source: int, target: int, envelope: Envelope) -> None:
        if source in self._links[target]:
            self.tell(target, Received(source, envelope))

    def _expire(self, node: int, timer: Any, at: float) -> None:
        if self._timers[node].get(timer) == at:
            del self._timers[node][timer]
            self.tell(node, TimerExpired(timer))

    def _connect(self, source: int, target: int) -> None:
        if target in self._links[source]:
            return
        if target in self.routers and target not in self._hidden:
            self._links[source].add(target)
            self._links[target].add(source)
            self.tell(target, PeerConnected(source))
            self.tell(source, PeerConnected(target))
        else:
            self.tell(source, ConnectFailed(target))

    def _close(self, node: int, peer: int) -> None:
        if peer in self._links[node]:
            self._links[node].discard(peer)
            self.tell(node, PeerDisconnected(peer))

    def _pong(self, node: int, peer: int) -> None:
        answered = peer in self._links[node] and peer in self.routers
        self.tell(node, RoundTrip(peer, 2 * self._delay(node, peer) if answered else None))

    # What tests look at

    @property
    def active(self) -> dict[int, list[Any]]:
        return {node: list(router.views.active) for node, router in self.routers.items()}

    def symmetric(self) -> bool:
        """Whether every link has two ends at rest: what is being made or dropped just now is settled a second later."""
        before = self._one_sided()
        self.run(1.0)
        return not before & self._one_sided()

    def _one_sided(self) -> set[tuple[int, int]]:
        active = self.active
        return {(node, peer) for node, peers in active.items() for peer in peers if node not in active.get(peer, ())}

    def connected(self) -> bool:
        """Whether the active links make one overlay of all nodes."""
        first = next(iter(self.active))
        reached, pending = {first}, [first]
        while pending:
            for peer in self.active[pending.pop()]:
                if peer not in reached:
                    reached.add(peer)
                    pending.append(peer)
        return reached == self.active.keys()
