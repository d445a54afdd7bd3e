"""The events of gossipsub that other routers do not have, and its timer."""

from __future__ import annotations

from dataclasses import dataclass

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.rpc import MessageId, Rpc


@dataclass(frozen=True, slots=True)
class Unsent:
    """A packet could not be sent to a peer that is still connected: too much waited for it.

    Attributes:
        peer: that did not get it.
        packet: of a `Send`.
    """

    peer: PeerId
    packet: Rpc


@dataclass(frozen=True, slots=True)
class GossipAnswered:
    """The application's answer for a message that it was delivered, where the router was made with `validation`.

    Attributes:
        id: of the `Deliver`. An answer for one that no longer waits changes nothing.
        answer: what the router does with it.
    """

    id: MessageId
    answer: GossipAnswer


@dataclass(frozen=True, slots=True)
class Rejected:
    """Peers sent a message that the application rejects. The router scores nobody: drivers may.

    Attributes:
        peers: that sent it before the answer, the first one first.
    """

    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The timer of the heartbeat."""
