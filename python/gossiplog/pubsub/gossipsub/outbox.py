"""What is to be sent, gathered while an event is handled: all that goes to one peer goes in one packet.

GRAFT and PRUNE that could not be sent are kept, and travel with the next packet to their peer or at the next heartbeat,
unless they have become untrue; so are announcements of topics [go: pushControl, announceRetry]. Gossip is not: it would
come late. Nor is what is sent about topics that are neither ours nor the peer's: anybody can make us answer GRAFTs for
as many of these as there are names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gossiplog.pubsub.events import PeerId, Send
from gossiplog.pubsub.rpc import Control, Rpc, Subscription, merge


@dataclass(slots=True)
class _Kept:
    links: dict[str, bool] = field(default_factory=dict)
    topics: dict[str, None] = field(default_factory=dict)


class Outbox:
    """Packets in the making.

    Args:
        confirm: whether a peer is to be sent GRAFT (true) or PRUNE (false) of a topic after all. It is, if so.
        is_joined: whether we are in a topic.
        concerns: whether we are in a topic, or a peer is.
        max_topics: of which GRAFT and PRUNE are kept for a peer.
    """

    __slots__ = ("_concerns", "_confirm", "_is_joined", "_kept", "_links", "_max_topics", "_parts")

    def __init__(
        self,
        confirm: Callable[[PeerId, str, bool], bool],
        is_joined: Callable[[str], bool],
        concerns: Callable[[PeerId, str], bool],
        max_topics: int,
    ) -> None:
        self._confirm = confirm
        self._is_joined = is_joined
        self._concerns = concerns
        self._max_topics = max_topics
        self._parts: list[tuple[Sequence[PeerId], Rpc]] = []
        # By peer and topic: GRAFT if true, else PRUNE. A packet with both would not say which came last.
        self._links: dict[PeerId, dict[str, bool]] = {}
        self._kept: dict[PeerId, _Kept] = {}

    def add(self, peers: Sequence[PeerId], packet: Rpc) -> None:
        """Queue a packet for each of the peers."""
        self._parts.append((peers, packet))

    def link(self, peer: PeerId, topic: str, linked: bool) -> None:
        """Queue GRAFT for a peer, or PRUNE."""
        links = self._links.setdefault(peer, {})
        links.pop(topic, None)
        links[topic] = linked

    def keep(self, peer: PeerId, packet: Rpc) -> None:
        """Keep for later what matters of a packet that could not be sent: subscriptions, GRAFT and PRUNE."""
        kept = self._kept.setdefault(peer, _Kept())
        kept.topics.update(dict.fromkeys(change.topic for change in packet.subscriptions))
        if packet.control is not None:
            links = dict.fromkeys(packet.control.graft, True) | dict.fromkeys(packet.control.prune, False)
            for topic, linked in links.items():
                if topic in kept.links or (len(kept.links) < self._max_topics and self._concerns(peer, topic)):
                    kept.links[topic] = linked
        if not kept.topics and not kept.links:
            del self._kept[peer]

    def retry(self) -> None:
        """Send what was kept, whether anything else goes out or not."""
        for peer in self._kept:
            self._links.setdefault(peer, {})

    def forget(self, peer: PeerId) -> None:
        """Forget a peer that has gone."""
        self._kept.pop(peer, None)

    def flush(self) -> Sequence[Send]:
        """Return the packets, ready to be sent."""
        parts = self._parts
        # Nearly always there is nothing, or one message.
        if not parts and not self._links:
            return ()
        self._parts = []
        if len(parts) == 1 and not self._links and not self._kept:
            return (Send(*parts[0]),)
        addressed: dict[PeerId, list[int]] = {peer: [] for peer in self._links}
        for index, (peers, _) in enumerate(parts):
            for peer in peers:
                addressed.setdefault(peer, []).append(index)
        groups: dict[tuple[tuple[int, ...], Rpc | None], list[PeerId]] = {}
        for peer, indices in addressed.items():
            groups.setdefault((tuple(indices), self._own_part(peer)), []).append(peer)
        self._links.clear()
        sends = []
        for (shared, own), members in groups.items():
            packets = [parts[index][1] for index in shared]
            if own is not None:
                packets.append(own)
            if packets:
                sends.append(Send(tuple(members), merge(packets)))
        return sends

    def _own_part(self, peer: PeerId) -> Rpc | None:
        """Return what is sent to this peer alone, or by chance to others, too."""
        links = self._links.get(peer, {})
        kept = self._kept.pop(peer, None)
        subscriptions: tuple[Subscription, ...] = ()
        if kept is not None:
            subscriptions = tuple(Subscription(topic, self._is_joined(topic)) for topic in kept.topics)
            late = {topic: linked for topic, linked in kept.links.items() if self._confirm(peer, topic, linked)}
            links = late | links
        if not links and not subscriptions:
            return None
        graft = tuple(topic for topic, linked in links.items() if linked)
        prune = tuple(topic for topic, linked in links.items() if not linked)
        return Rpc(subscriptions=subscriptions, control=Control(graft=graft, prune=prune) if links else None)
