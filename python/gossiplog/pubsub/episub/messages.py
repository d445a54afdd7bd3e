"""The fifteen messages of the seed, and the envelope that each travels in.

An envelope's source is who sends it on this connection. Its sequence id only grows, over everything that the source
sends to anybody; so a receiver drops whatever does not exceed the last one that came from a peer: connections keep the
order, so it is a replay. A message for the application is known by the source that published it and by one of its
sequence ids, which no envelope has; the seed's `GOSSIP.msg` is both that number and the data.

What the seed leaves open: `NODES.ttl` is the TTL that JOINs have at the node that answers, so that newcomers may follow
the overlay's. `hops` in an announcement are those that a GOSSIP from the announcer would have, so that both can be
compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gossiplog.pubsub.events import PeerId

Peers: TypeAlias = tuple[PeerId, ...]
MessageId: TypeAlias = tuple[PeerId, int]
"""The source that published it, and its number there."""

# Finding nodes


@dataclass(frozen=True, slots=True)
class GetNodes:
    """Asks for peers of the overlay."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Some of the passive list.

    Attributes:
        peers: of the overlay.
        ttl: that JOINs have here.
    """

    peers: Peers
    ttl: int


@dataclass(frozen=True, slots=True)
class GetTopics:
    """Asks which topics the peer is subscribed to."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Those that the sender is subscribed to."""

    topics: tuple[str, ...]


# Membership


@dataclass(frozen=True, slots=True)
class Join:
    """A newcomer looks for a neighbour.

    Attributes:
        peer: the newcomer.
        ttl: hops that its walk may still take.
    """

    peer: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class ForwardJoin:
    """A newcomer has joined.

    Attributes:
        peer: the newcomer.
        ttl: hops that the news may still take.
    """

    peer: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class Neighbor:
    """The sender's active list.

    If the receiver is in it, it has been accepted; else the sender asks for the link, and who has it already answers
    with a list.
    """

    peers: Peers


@dataclass(frozen=True, slots=True)
class Disconnect:
    """There is no link between the two, or no longer one."""


@dataclass(frozen=True, slots=True)
class Leave:
    """A node leaves the overlay.

    Attributes:
        source: the node.
        ttl: hops that the news takes in any case.
    """

    source: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Offers an exchange of passive peers.

    Attributes:
        peer: that began it.
        peers: that it offers.
        ttl: hops that the offer may still take.
    """

    peer: PeerId
    peers: Peers
    ttl: int


@dataclass(frozen=True, slots=True)
class ShuffleReply:
    """The other half of the exchange."""

    peers: Peers


# Broadcast


@dataclass(frozen=True, slots=True)
class Gossip:
    """A message for the application.

    Attributes:
        source: that published it.
        hops: that it has taken when it is received: 1 from its source.
        number: of the message at its source.
        data: of the message.
    """

    source: PeerId
    hops: int
    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class IHave:
    """Announces messages: their ids, each with the hops that it would have from here."""

    summary: tuple[tuple[MessageId, int], ...]


@dataclass(frozen=True, slots=True)
class Prune:
    """The link to the sender is to be lazy."""


@dataclass(frozen=True, slots=True)
class Graft:
    """The link to the sender is to be eager; and these messages are wanted."""

    msgs: tuple[MessageId, ...]


Membership: TypeAlias = (
    GetNodes | Nodes | GetTopics | Topics | Join | ForwardJoin | Neighbor | Disconnect | Leave | Shuffle | ShuffleReply
)
Broadcast: TypeAlias = Gossip | IHave | Prune | Graft
Message: TypeAlias = Membership | Broadcast


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels.

    Attributes:
        source: who sends it.
        sequence: larger than that of everything that the source sent before.
        message: in it.
    """

    source: PeerId
    sequence: int
    message: Message
