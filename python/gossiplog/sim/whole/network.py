"""The network between simulated nodes: connections with streams on them, partitions.

Nodes are numbered. A connection carries streams, each of which delivers its bytes in order and whole, cut anywhere,
after as long as the latency model and `Faults.loss` say; when it breaks, what is on its way is lost, and each end
learns of it after a delay of its own. A partition breaks all connections that cross it, and lets no new connection
come about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from gossiplog.sim.kernel import Kernel
from gossiplog.sim.latency import Faults, Latency

# How probable it is that bytes written at once arrive in two pieces.
_CUT = 0.1
_SLOWEST_NOTICE = 0.5


class Node(Protocol):
    """How the network notifies a node."""

    def connected(self, end: ConnectionEnd, dialled: bool) -> None:
        """Handle a new connection."""

    def opened(self, stream: StreamEnd, protocol: str) -> None:
        """Handle a stream that the other end of a connection opened."""


class StreamEnd:
    """One end of a stream. Set `on_data` and `on_end` when it is made, before the next event.

    Attributes:
        connection: that it belongs to.
        on_data: called with the bytes that come.
        on_end: called once, when the other side has closed it or the connection broke.
    """

    __slots__ = ("_arrival", "_kernel", "_other", "closed", "connection", "on_data", "on_end")

    def __init__(self, connection: ConnectionEnd) -> None:
        self.connection = connection
        self.on_data: Callable[[bytes], object] = _nothing
        self.on_end: Callable[[], object] = _nothing
        self.closed = False
        self._kernel = connection.network.kernel
        self._other = self
        self._arrival = 0.0

    def write(self, data: bytes) -> None:
        """Send bytes; after the end of the stream nothing happens."""
        if self.closed or not data:
            return
        random = self._kernel.random
        if len(data) > 1 and random.random() < _CUT:
            cut = random.randrange(1, len(data))
            self._send(self._other.receive, data[:cut])
            data = data[cut:]
        self._send(self._other.receive, data)

    def close(self) -> None:
        """End the stream at this end now, and at the other when what was written has arrived."""
        if not self.closed:
            self._send(self._other.end)
            self.closed = True
            self.connection.forget(self)

    def receive(self, data: bytes) -> None:
        """Handle bytes that have arrived."""
        if not self.closed:
            self.on_data(data)

    def end(self) -> None:
        """Handle the close of the other end, or the break of the connection."""
        if not self.closed:
            self.closed = True
            self.connection.forget(self)
            self.on_end()

    def join(self, other: StreamEnd) -> None:
        """Make two ends one stream."""
        self._other, other._other = other, self

    def _send(self, call: Callable[..., object], *arguments: Any) -> None:
        connection = self.connection
        # Never before what was sent before it: a stream keeps its order whatever the jitter.
        self._arrival = max(self._arrival, self._kernel.now + connection.network.stream_delay(connection))
        self._kernel.at(self._arrival, connection.deliver, call, arguments)


class ConnectionEnd:
    """One end of a connection.

    Attributes:
        network: that it belongs to.
        here: the node.
        there: the node at the other end.
        alive: whether bytes still pass.
        on_end: called once, when this end learns that the connection has ended.
    """

    __slots__ = ("_ended", "_other", "_streams", "alive", "here", "network", "on_end", "there")

    def __init__(self, network: Network, here: int, there: int) -> None:
        self.network = network
        self.here = here
        self.there = there
        self.alive = True
        self.on_end: Callable[[], object] = _nothing
        self._other = self
        self._ended = False
        self._streams: dict[StreamEnd, None] = {}

    def open(self, protocol: str) -> StreamEnd:
        """Open a stream; the other end learns of it before its first bytes arrive."""
        near, far = StreamEnd(self), StreamEnd(self._other)
        near.join(far)
        self._streams[near] = self._other._streams[far] = None
        near._send(self._other._announce, far, protocol)
        return near

    def close(self) -> None:
        """End the connection: here now, at the other end later."""
        self.network.break_connection(self)
        self.notice()

    def deliver(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Deliver what has arrived, if the connection has not broken meanwhile."""
        if self.alive:
            call(*arguments)

    def forget(self, stream: StreamEnd) -> None:
        """Forget a stream that has ended."""
        self._streams.pop(stream, None)

    def join(self, other: ConnectionEnd) -> None:
        """Make two ends one connection."""
        self._other, other._other = other, self

    def cut(self) -> tuple[ConnectionEnd, ConnectionEnd]:
        """No more bytes pass."""
        self.alive = self._other.alive = False
        return self, self._other

    def notice(self) -> None:
        """Handle the end of the connection."""
        if not self._ended:
            self._ended = True
            self.alive = False
            for stream in list(self._streams):
                stream.end()
            self.on_end()

    def _announce(self, stream: StreamEnd, protocol: str) -> None:
        node = self.network.nodes.get(self.here)
        if node is not None and not self._ended:
            node.opened(stream, protocol)


class Network:
    """All nodes, and what connects them.

    Args:
        kernel: of the run.
        latency: of streams.
        faults: of streams, and of the gossip on them.

    Attributes:
        nodes: those that are up, by number.
        faults: as above.
    """

    def __init__(self, kernel: Kernel, latency: Latency, faults: Faults | None = None) -> None:
        self.kernel = kernel
        self.faults = faults or Faults()
        self.nodes: dict[int, Node] = {}
        self._latency = latency
        self._sides: Mapping[int, int] = {}
        self._connections: dict[ConnectionEnd, None] = {}

    def reachable(self, source: int, target: int) -> bool:
        """Return whether two nodes are on the same side of a partition."""
        return self._sides.get(source) == self._sides.get(target)

    def dial(self, source: int, target: int, refused: Callable[[], object]) -> None:
        """Open a connection: both nodes are notified, or `refused` is called."""
        self.kernel.after(2 * self._latency(source, target), self._connect, source, target, refused)

    def partition(self, sides: Mapping[int, int]) -> None:
        """Part the network: only nodes on the same side reach each other. An empty mapping heals it."""
        self._sides = sides
        for end in [end for end in self._connections if not self.reachable(end.here, end.there)]:
            self.break_connection(end)

    def heal(self) -> None:
        """End a partition."""
        self._sides = {}

    def connections(self) -> Iterable[ConnectionEnd]:
        """One end of each connection."""
        return list(self._connections)

    def stop(self, node: int) -> None:
        """Remove a node: its connections break, and it learns nothing more."""
        self.nodes.pop(node, None)
        for end in [end for end in self._connections if node in (end.here, end.there)]:
            self.break_connection(end)

    def break_connection(self, end: ConnectionEnd) -> None:
        """Break a connection, and lose what is on its way; each end learns of it later."""
        if end.alive:
            for side in end.cut():
                self._connections.pop(side, None)
                self.kernel.after(self.kernel.random.uniform(0.0, _SLOWEST_NOTICE), side.notice)

    def stream_delay(self, end: ConnectionEnd) -> float:
        """Return seconds until what is written now arrives; what is lost on the way is sent again."""
        delay = self._latency(end.here, end.there)
        loss = self.faults.loss
        while loss and self.kernel.random.random() < loss:
            delay += 2 * self._latency(end.here, end.there)
            loss /= 2
        return delay

    def _connect(self, source: int, target: int, refused: Callable[[], object]) -> None:
        dialler, listener = self.nodes.get(source), self.nodes.get(target)
        if dialler is None or listener is None or not self.reachable(source, target):
            refused()
            return
        near, far = ConnectionEnd(self, source, target), ConnectionEnd(self, target, source)
        near.join(far)
        self._connections[near] = None
        listener.connected(far, False)
        dialler.connected(near, True)


def _nothing(*_: Any) -> None:
    pass
