"""Routers of one network under virtual time: packets take their time, keep their order, and may find no room."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from gossiplog.pubsub.authorship import Named
from gossiplog.pubsub.events import (
    Deliver,
    PeerConnected,
    PeerDisconnected,
    Received,
    Router,
    Send,
    SetTimer,
    TimerExpired,
)
from gossiplog.pubsub.gossipsub import Config, GossipSub, Unsent
from gossiplog.pubsub.rpc import GOSSIPSUB, Rpc
from gossiplog.sim.kernel import Kernel


class Network:
    """Nodes, and connections between some of them.

    Args:
        seed: of all that is random.
        slowest: seconds that a packet takes at most.
        no_room: of packets, the share that cannot be sent at once.

    Attributes:
        delivered: by node, the deliveries in their order.
        packets: that were sent, to each peer one.
    """

    def __init__(self, seed: int = 0, slowest: float = 0.1, no_room: float = 0.0) -> None:
        self._kernel = Kernel(seed)
        self._random = Random(seed)
        self._slowest = slowest
        self.no_room = no_room
        self._protocols: dict[bytes, str] = {}
        self._connections: dict[tuple[bytes, bytes], object] = {}
        self._arrivals: dict[tuple[bytes, bytes], float] = {}
        self._beating = True
        self.routers: dict[bytes, Any] = {}
        self.delivered: dict[bytes, list[Deliver]] = {}
        self.packets: list[Rpc] = []

    def add(self, name: bytes, router: Router | None = None, protocol: str = GOSSIPSUB, **config: Any) -> None:
        """A node; without a router of its own it gets a gossipsub router."""
        own = Random(f"{name!r} {self._random.random()}")
        self.routers[name] = router or GossipSub(name, own, Named(name, own), Config(**config))
        self._protocols[name] = protocol
        self.delivered[name] = []
        self._perform(name, self.routers[name].start(self._kernel.now))

    def connect(self, one: bytes, other: bytes) -> None:
        if (one, other) not in self._connections:
            connection = object()
            for name, peer in ((one, other), (other, one)):
                self._connections[name, peer] = connection
                self._arrivals[name, peer] = 0.0
            for name, peer in ((one, other), (other, one)):
                self.do(name, PeerConnected(peer, self._protocols[peer]))

    def disconnect(self, one: bytes, other: bytes) -> None:
        """What is on its way is lost."""
        if self._connections.pop((one, other), None) is not None:
            del self._connections[other, one]
            for name, peer in ((one, other), (other, one)):
                self.do(name, PeerDisconnected(peer))

    def do(self, name: bytes, event: Any) -> None:
        self._perform(name, self.routers[name].handle(event, self._kernel.now))

    def run(self, seconds: float) -> None:
        self._kernel.run(self._kernel.now + seconds)

    def rest(self) -> None:
        """Everything that is on its way arrives, and what follows from it; no heartbeat comes any more."""
        self._beating = False
        self.run(1000.0)

    def _perform(self, name: bytes, orders: Any) -> None:
        for order in orders:
            match order:
                case Send(peers, packet):
                    for peer in peers:
                        self._send(name, peer, packet)
                case Deliver():
                    self.delivered[name].append(order)
                case SetTimer(timer, at):
                    self._kernel.at(at, self._expire, name, timer)

    def _send(self, name: bytes, peer: bytes, packet: Rpc) -> None:
        assert (name, peer) in self._connections, f"{name!r} sends to {peer!r} without a connection"
        self.packets.append(packet)
        if self._random.random() < self.no_room:
            self._kernel.after(0.0, self._return, name, peer, self._connections[name, peer], packet)
            return
        arrival = self._kernel.now + self._random.uniform(0.0, self._slowest)
        arrival = self._arrivals[name, peer] = max(arrival, self._arrivals[name, peer])
        self._kernel.at(arrival, self._arrive, name, peer, self._connections[name, peer], packet)

    def _arrive(self, name: bytes, peer: bytes, connection: object, packet: Rpc) -> None:
        if self._connections.get((name, peer)) is connection:
            self.do(peer, Received(name, packet))

    def _return(self, name: bytes, peer: bytes, connection: object, packet: Rpc) -> None:
        if self._connections.get((name, peer)) is connection:
            self.do(name, Unsent(peer, packet))

    def _expire(self, name: bytes, timer: Any) -> None:
        if self._beating:
            self.do(name, TimerExpired(timer))


def meshes(network: Network, topic: str) -> Mapping[bytes, set[bytes]]:
    return {name: set(router.mesh(topic)) for name, router in network.routers.items()}
