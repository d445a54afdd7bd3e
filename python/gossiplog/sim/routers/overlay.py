"""What carries packets between simulated routers.

These are connections with a delay each, and the conditions that they are under.

A packet goes to several peers at once, and costs one event for each. That is nearly all that a simulation does, so
the way of a packet that suffers nothing but its delay is short: no calls that could be saved, nothing made for each
peer but the event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

from gossiplog.pubsub.events import ConnectFailed, PeerConnected, PeerDisconnected, Received, RoundTrip
from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import Latency
from gossiplog.sim.routers.plan import Conditions

_SLOWEST_NOTICE = 0.5  # seconds until an end learns that its connection broke


class Nodes(Protocol):
    """What the overlay asks and notifies."""

    def up(self, node: int) -> bool:
        """Return whether a node runs."""

    def protocol(self, node: int) -> str:
        """Return what a node speaks, as it announces it to its peers."""

    def receive(self, node: int, event: Any) -> object:
        """Handle what happens to a node, which may be down."""

    def broken(self, node: int, peer: int) -> object:
        """Handle the end of a node's connection, or one that did not come about; its router was notified."""

    def lost(self, packet: Any) -> object:
        """Handle a packet that will not arrive."""


class _OpenLinks(dict[int, float]):
    """The delays from a node to any other: any node that is known can be reached."""

    def __init__(self, node: int, latency: Latency) -> None:
        self._node = node
        self._latency = latency

    def __missing__(self, peer: int) -> float:
        delay = self[peer] = self._latency(self._node, peer)
        return delay


class Overlay:
    """The connections of all nodes.

    Args:
        kernel: of the run.
        nodes: notified of what arrives.
        count: of the nodes.
        latency: seconds from one node to another, the same in each call for the same two.
        conditions: that packets are under.
        random: what losses are drawn with.
        open: whether packets go to any node, without connections.
        lasting: whether no node ends a connection by itself.
    """

    def __init__(
        self,
        kernel: Kernel,
        nodes: Nodes,
        count: int,
        latency: Latency,
        conditions: Conditions,
        random: Random,
        *,
        open: bool,
        lasting: bool,
    ) -> None:
        self._kernel = kernel
        self._nodes = nodes
        self._latency = latency
        self._conditions = conditions
        self._random = random
        self._open = open
        self._links: list[dict[int, float]] = [_OpenLinks(node, latency) if open else {} for node in range(count)]
        self._calm = conditions.calm
        # Where no connection ends, what was sent arrives.
        never_cut = open and not conditions.partitions
        self._land = nodes.receive if never_cut or (self._calm and lasting) else self._arrive
        self._sides: Mapping[int, int] = {}
        self._busy = 0.0  # when the machine is through with what it has to carry
        self._uplinks = [0.0] * count  # when each node is through with what it has to send
        self._arrivals: dict[tuple[int, int], float] = {}

    @property
    def free(self) -> float:
        """When the machine that carries all packets has no more to carry, as things are; it may have passed."""
        return self._busy

    def send(self, source: int, peers: Sequence[Any], packet: Any, size: int) -> None:
        """Send a packet of so many bytes to several peers. To those without a connection it is lost."""
        links = self._links[source]
        received = Received(source, packet)
        try:
            delays = [(links[peer], peer) for peer in peers]
        except KeyError:
            delays = [(links[peer], peer) for peer in peers if peer in links]
            for _ in range(len(peers) - len(delays)):
                self._nodes.lost(packet)
        if self._calm:
            self._kernel.spread(self._land, delays, received)
        else:
            self._send_under_conditions(source, delays, received, size)

    def connect(self, source: int, target: int) -> None:
        """Ask for a connection, which takes a round trip: both ends are notified, or the one that asked."""
        self._kernel.after(2 * self._latency(source, target), self._establish, source, target)

    def disconnect(self, node: int, peer: int) -> None:
        """End a connection: here at once, at the other end when what was sent before has arrived."""
        delay = self._links[node].get(peer)
        if delay is not None:
            self._kernel.after(0.0, self._close, node, peer)
            arrival = max(self._kernel.now + delay, self._arrivals.get((node, peer), 0.0))
            self._kernel.at(arrival, self._close, peer, node)

    def ping(self, node: int, peer: int) -> None:
        """Measure a round trip."""
        delay = self._links[node].get(peer)
        if delay is None:
            self._kernel.after(0.0, self._nodes.receive, node, RoundTrip(peer, None))
        else:
            seconds = 2 * delay * (1.0 + self._conditions.jitter * self._random.random())
            self._kernel.after(seconds, self._pong, node, peer, seconds)

    def stop(self, node: int) -> None:
        """Take a node down: its peers notice, each in its time."""
        if not self._open:
            for peer in list(self._links[node]):
                self._break(peer, node)
            self._links[node].clear()

    def part(self, sides: Mapping[int, int]) -> None:
        """Part the network: only nodes on the same side reach each other. An empty mapping heals it."""
        self._sides = sides
        if not self._open:
            for node, links in enumerate(self._links):
                for peer in links:
                    if not self._reachable(node, peer):
                        self._break(node, peer)

    def _reachable(self, source: int, target: int) -> bool:
        return self._sides.get(source) == self._sides.get(target)

    def _send_under_conditions(
        self, source: int, delays: Sequence[tuple[float, Any]], received: Received, size: int
    ) -> None:
        conditions, kernel, draw = self._conditions, self._kernel, self._random.random
        lag, bandwidth, loss, jitter = conditions.lag, conditions.bandwidth, conditions.loss, conditions.jitter
        now = kernel.now
        for delay, peer in delays:
            departure = now
            if lag:
                departure = self._busy = max(departure, self._busy) + lag
            if bandwidth is not None:
                departure = self._uplinks[source] = max(departure, self._uplinks[source]) + size / bandwidth
            if loss and draw() < loss:
                self._nodes.lost(received.packet)
                continue
            arrival = departure + delay * (1.0 + jitter * draw() if jitter else 1.0)
            if not self._open:
                # What travels on one connection does not overtake.
                arrival = self._arrivals[source, peer] = max(arrival, self._arrivals.get((source, peer), 0.0))
            kernel.at_with(arrival, self._land, peer, received)

    def _arrive(self, target: int, received: Received) -> None:
        source: Any = received.peer
        if (self._open or source in self._links[target]) and (not self._sides or self._reachable(source, target)):
            self._nodes.receive(target, received)
        else:
            self._nodes.lost(received.packet)

    def _establish(self, source: int, target: int) -> None:
        nodes = self._nodes
        if target in self._links[source] or not nodes.up(source):
            return
        if nodes.up(target) and self._reachable(source, target):
            self._links[source][target] = self._latency(source, target)
            self._links[target][source] = self._latency(target, source)
            nodes.receive(target, PeerConnected(source, nodes.protocol(source)))
            nodes.receive(source, PeerConnected(target, nodes.protocol(target)))
        else:
            nodes.receive(source, ConnectFailed(target))
            nodes.broken(source, target)

    def _break(self, node: int, peer: int) -> None:
        """Break a connection, which a node finds out after some time."""
        self._kernel.after(self._random.uniform(0.0, _SLOWEST_NOTICE), self._close, node, peer)

    def _close(self, node: int, peer: int) -> None:
        if self._links[node].pop(peer, None) is not None:
            self._nodes.receive(node, PeerDisconnected(peer))
            self._nodes.broken(node, peer)

    def _pong(self, node: int, peer: int, seconds: float) -> None:
        answered = peer in self._links[node] and self._nodes.up(peer) and self._reachable(node, peer)
        self._nodes.receive(node, RoundTrip(peer, seconds if answered else None))
