"""The events of gossipsub that other routers do not have, and its timer."""

from __future__ import annotations

from dataclasses import dataclass

from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.rpc import Rpc


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
class Heartbeat:
    """The timer of the heartbeat."""
