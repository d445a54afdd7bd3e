"""The vocabulary of all routers: their input, their output, and the one call that joins both.

A router does no I/O and reads no clock: it is given what happened and the time, draws from the random numbers
that it is given, and answers with what is to be done, in this order. So the same router runs in a simulation, in
tests under virtual time, and on a network. What peers send each other, and the timers, are each router's own.

Peers are named by any hashable value that the driver chooses. Times are seconds on any clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypeAlias

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.reprs import frozen

PeerId: TypeAlias = Hashable

# In-events


@frozen
class PeerConnected:
    """A connection to a peer is open, whichever side opened it.

    Attributes:
        peer: not connected before.
        protocol: that it speaks, of those that the router knows; "" where a router has only one.
    """

    peer: PeerId
    protocol: str = ""


@frozen
class PeerDisconnected:
    """The connection to a peer has ended, on whichever side."""

    peer: PeerId


@frozen
class Received:
    """A packet came.

    Attributes:
        peer: that sent it.
        packet: what another router of this kind sent.
    """

    peer: PeerId
    packet: Any


@frozen
class TimerExpired:
    """The time of a `SetTimer` has come."""

    timer: Hashable


@frozen
class Join:
    """The application subscribes to a topic."""

    topic: str


@frozen
class Leave:
    """The application unsubscribes from a topic."""

    topic: str


@frozen
class Publish:
    """The application publishes.

    Attributes:
        topics: that the message is published to, at once; ("",) where a router has only one.
        data: of the message.
    """

    topics: tuple[str, ...]
    data: bytes


@frozen
class GossipAnswered:
    """The application's answer for a message that it was delivered, where the router was made with `validation`.

    Attributes:
        id: of the `Deliver`. An answer for one that no longer waits changes nothing.
        answer: what the router does with it.
    """

    id: Hashable
    answer: GossipAnswer


@frozen
class ConnectFailed:
    """The connection that a `Connect` asked for did not come about."""

    peer: PeerId


@frozen
class RoundTrip:
    """What a `Ping` asked for.

    Attributes:
        peer: that was asked.
        seconds: until its answer; None where none came, or where there is no connection.
    """

    peer: PeerId
    seconds: float | None


# Out-events


@frozen
class Connect:
    """A connection to a peer is wanted: `PeerConnected` or `ConnectFailed` follows; nothing, where there is one."""

    peer: PeerId


@frozen
class Disconnect:
    """The connection to a peer is to end, after what was sent on it; `PeerDisconnected` follows on both sides."""

    peer: PeerId


@frozen
class Ping:
    """How long the way to a connected peer and back takes is to be measured; `RoundTrip` follows."""

    peer: PeerId


@frozen
class Send:
    """A packet is to go out, the same one to each of the peers.

    Attributes:
        peers: none twice.
        packet: immutable, so that it may be shared.
    """

    peers: Sequence[PeerId]
    packet: Any


@frozen
class Deliver:
    """A message for the application, which is handed to it once, however many of its topics we are in.

    Attributes:
        topics: that it was published to and that we are in, each once; ("",) where a router has only one. Strangers
            choose the others.
        id: of the message.
        data: of the message.
        source: the peer that it came from, who need not be its author; None for the application's own.
    """

    topics: tuple[str, ...]
    id: Hashable
    data: bytes
    source: PeerId | None


@frozen
class Rejected:
    """Peers sent a message that the application rejects. The router scores nobody: drivers may.

    Attributes:
        peers: that sent it before the answer, the first one first.
    """

    peers: tuple[PeerId, ...]


@frozen
class SetTimer:
    """A timer is to expire at a time; the same timer, if it is set, no more at the time that it was set for.

    Attributes:
        timer: any value that the router knows it by.
        at: seconds, on the clock that `now` is read from.
    """

    timer: Hashable
    at: float


class Router(Protocol):
    """A state machine that spreads messages. Made with its configuration and a source of random numbers."""

    def start(self, now: float) -> Sequence[Any]:
        """Begin.

        Args:
            now: seconds.

        Returns:
            What is to be done, in this order.
        """

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Return what follows from an event.

        Args:
            event: that happened.
            now: seconds, not before that of the last call.

        Returns:
            What is to be done, in this order.
        """
