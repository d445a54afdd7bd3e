"""What passes between the two layers and the router, beyond the vocabulary of all routers (`pubsub.events`).

In-events of the membership layer are those of all routers but `Publish`; what it receives are `messages.Membership`.
The broadcast layer knows neighbours, which are reported to it, and no connections.

A layer's `Send` holds a bare message; the router puts it into an envelope.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto

from gossiplog.pubsub.events import PeerId


@dataclass(frozen=True, slots=True)
class NeighborUp:
    """The membership layer has added a peer to the active list."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class NeighborDown:
    """The membership layer has removed a peer from the active list."""

    peer: PeerId


class Timer(Enum):
    """What a layer does from time to time, each by a timer of its own."""

    STABILIZE = auto()
    OPTIMIZE = auto()
    SHUFFLE = auto()
    CHECK = auto()
    FLUSH = auto()
    MISSING = auto()
    EXPIRE = auto()


class Wait(Enum):
    """What the membership layer waits for, until a time-out."""

    NODES = auto()
    NEIGHBOR = auto()
    JOINED = auto()
    JUDGING = auto()
    LISTS = auto()
    SHUFFLE = auto()
    CHECK = auto()


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The timer of a wait.

    Attributes:
        wait: for what.
        key: of whom; None where there is only one.
    """

    wait: Wait
    key: Hashable = None
