"""An episub router: the membership and the broadcast layer joined, under the vocabulary of all routers.

The rules of the layers stand in `membership` and `broadcast`. The router's own:

1. Every packet is an `Envelope`, with this node as its source and a sequence id that only grows. A packet counts if it
   comes from a connected peer, names it as its source, and has a larger sequence id than that peer's last one. With
   validation, a connected peer's that does not count is held against it as a rejected message is [ours].
2. The membership layer's NeighborUp and NeighborDown go to the broadcast layer, and what follows from them goes out in
   their place.
3. Messages of the broadcast layer count if they come from a neighbour; else the membership layer answers them.

A router has one topic. It asks its driver for connections and pings; how contacts are found is the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

from gossiplog.pubsub.episub.broadcast import Broadcast, Statistics
from gossiplog.pubsub.episub.config import Config
from gossiplog.pubsub.episub.encoding import MAX_DATA, MAX_TOPIC, topic_fits
from gossiplog.pubsub.episub.events import NeighborDown, NeighborUp, Timer
from gossiplog.pubsub.episub.membership import Membership
from gossiplog.pubsub.episub.messages import Envelope, Gossip, Graft, IHave, MessageId, Prune
from gossiplog.pubsub.episub.views import Views
from gossiplog.pubsub.events import (
    GossipAnswered,
    Join,
    Leave,
    PeerConnected,
    PeerDisconnected,
    PeerId,
    Publish,
    Received,
    Rejected,
    Send,
    TimerExpired,
)

_BROADCAST = (Gossip, IHave, Graft, Prune)
_BROADCAST_TIMERS = frozenset((Timer.FLUSH, Timer.MISSING, Timer.EXPIRE))


class Episub:
    """A router for one topic.

    Args:
        me: the node, as its peers know it.
        contacts: peers that may be in the overlay, to begin with.
        random: what is drawn with.
        config: the parameters.
        topic: of the overlay.
        sequence: the first sequence id. One that begins anew under the same name needs a larger one than any that it
            had, or its messages are taken for old ones.
        name: gives the ids of messages from their data, so that what several nodes publish is one message; None for
            this node's own name and the next sequence id.
        validation: whether others' messages wait for the application's `GossipAnswered`.

    Attributes:
        stale: packets of connected peers that did not count (rule 1).
    """

    def __init__(
        self,
        me: PeerId,
        contacts: Sequence[PeerId],
        random: Random,
        config: Config | None = None,
        topic: str = "",
        sequence: int = 0,
        name: Callable[[bytes], MessageId] | None = None,
        validation: bool = False,
    ) -> None:
        config = config or Config()
        self.stale = 0
        self._me = me
        self._topic = topic
        self._validation = validation
        self._numbers = count(sequence)
        self._membership = Membership(me, contacts, topic, random, config)
        self._broadcast = Broadcast(me, topic, name or self._next_name, config, validation)
        self._neighbours = self._membership.views.active
        # The last sequence id of each connected peer.
        self._last: dict[PeerId, int] = {}

    @property
    def views(self) -> Views:
        """The active and the passive list, to be read."""
        return self._membership.views

    @property
    def eager(self) -> Sequence[PeerId]:
        """The neighbours that messages are sent to."""
        return tuple(self._broadcast.eager)

    @property
    def lazy(self) -> Sequence[PeerId]:
        """The neighbours that messages are announced to."""
        return tuple(self._broadcast.lazy)

    @property
    def statistics(self) -> Statistics:
        """What the broadcast layer has counted."""
        return self._broadcast.statistics

    def start(self, now: float) -> Sequence[Any]:
        """Begin; there is nothing to do before the application joins."""
        return ()

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Return what follows from an event.

        Args:
            event: of the common vocabulary.
            now: the time.

        Raises:
            ValueError: `Join`, `Leave` or `Publish` names another topic than the router's, or several, or the
                application joins one of more than `MAX_TOPIC` bytes, publishes without having joined, or more than
                `MAX_DATA` bytes.
        """
        if type(event) is Received:
            return self._receive(event.peer, event.packet, now)
        match event:
            case TimerExpired(timer) if timer in _BROADCAST_TIMERS:
                return self._wrap(self._broadcast.handle(event, now), now)
            case GossipAnswered():
                return self._wrap(self._broadcast.handle(event, now), now)
            case Join(topic) | Leave(topic) if topic != self._topic:
                raise ValueError(f"topic {topic!r}: this router's is {self._topic!r}")
            case Publish(topics) if topics != (self._topic,):
                named = ", ".join(map(repr, topics))
                raise ValueError(
                    f"published to {named}: an episub router has one topic, and this one's is {self._topic!r}"
                )
            case Join(topic) if not topic_fits(topic):
                raise ValueError(
                    f"topic {topic!r}: expected text of {MAX_TOPIC} bytes at most, that can be announced to peers"
                )
            case Publish(data=data):
                if len(data) > MAX_DATA:
                    raise ValueError(f"a message of {len(data)} bytes: expected {MAX_DATA} at most")
                if not self._membership.joined:
                    raise ValueError("published before the topic was joined: episub has no other way to reach it")
                return self._wrap(self._broadcast.handle(event, now), now)
            case Leave():
                self._broadcast.forget()
            case PeerConnected(peer):
                self._last[peer] = -1
            case PeerDisconnected(peer):
                self._last.pop(peer, None)
        return self._wrap(self._membership.handle(event, now), now)

    def _next_name(self, data: bytes) -> MessageId:
        return self._me, next(self._numbers)

    def _receive(self, peer: PeerId, envelope: Envelope, now: float) -> Sequence[Any]:
        last = self._last.get(peer)
        if last is None:
            return ()
        if envelope.sequence <= last or envelope.source != peer:
            self.stale += 1
            # Its packets come in order: it repeats some, or speaks for another.
            return (Rejected((peer,)),) if self._validation else ()
        self._last[peer] = envelope.sequence
        message = envelope.message
        if peer in self._neighbours and isinstance(message, _BROADCAST):
            return self._wrap(self._broadcast.receive(peer, message, now), now)
        return self._wrap(self._membership.receive(peer, message, now), now)

    def _wrap(self, events: list[Any], now: float) -> Sequence[Any]:
        out: list[Any] = []
        for event in events:
            if type(event) is Send:
                out.append(Send(event.peers, Envelope(self._me, next(self._numbers), event.packet)))
            elif type(event) is NeighborUp or type(event) is NeighborDown:
                out += self._wrap(self._broadcast.handle(event, now), now)
            else:
                out.append(event)
        return out
