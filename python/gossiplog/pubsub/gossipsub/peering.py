"""The peering state (gossipsub-v1.0.md, "Peering State"): who is connected, in which topics, and what each gets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from gossiplog.pubsub.events import PeerId
from gossiplog.pubsub.rpc import GOSSIPSUB


class Peering(Enum):
    """What a peer gets of the messages of a topic that it is in (https://docs.libp2p.io/concepts/pubsub/overview/)."""

    FULL_MESSAGE = "every message: it is in our mesh, or speaks floodsub"
    METADATA_ONLY = "gossip at most"
    FAN_OUT = "those that we publish; we are not in the topic, and the peer does not know of it"


@dataclass(slots=True)
class Peer:
    """What is known of a connected peer.

    Attributes:
        protocol: that it speaks.
        topics: that it is in.
        pruned: topics that it was last sent PRUNE about, not GRAFT.
    """

    protocol: str
    topics: dict[str, None] = field(default_factory=dict)
    pruned: set[str] = field(default_factory=set)

    @property
    def gossips(self) -> bool:
        """Whether it speaks gossipsub."""
        return self.protocol == GOSSIPSUB


@dataclass(slots=True)
class Members:
    """The connected peers that are in a topic, by what they speak."""

    gossipsub: dict[PeerId, None] = field(default_factory=dict)
    floodsub: dict[PeerId, None] = field(default_factory=dict)


@dataclass(slots=True)
class Fanout:
    """The peers that get what we publish to a topic that we are not in.

    Attributes:
        published: when we last did so.
    """

    published: float
    peers: dict[PeerId, None] = field(default_factory=dict)


class PeeringState:
    """Peers by topic. Dictionaries stand for sets, in an order that does not depend on hashes.

    Args:
        random: what peers are drawn with.
        max_topics: that are remembered of a peer.
        max_topic: characters of a topic that is remembered.

    Attributes:
        peers: that are connected.
        members: of the topics that any of them is in.
        mesh: by each topic that we are in, the peers that we exchange all messages with.
        fanout: by topics that we are not in.
    """

    __slots__ = ("_max_topic", "_max_topics", "_random", "fanout", "members", "mesh", "peers")

    def __init__(self, random: Random, max_topics: int, max_topic: int) -> None:
        self._random = random
        self._max_topics = max_topics
        self._max_topic = max_topic
        self.peers: dict[PeerId, Peer] = {}
        self.members: dict[str, Members] = {}
        self.mesh: dict[str, dict[PeerId, None]] = {}
        self.fanout: dict[str, Fanout] = {}

    def disconnect(self, peer: PeerId) -> None:
        """Forget a peer."""
        state = self.peers.get(peer)
        if state is not None:
            for topic in list(state.topics):
                self.unsubscribe(peer, topic)
            del self.peers[peer]

    def subscribe(self, peer: PeerId, topic: str) -> bool:
        """Note that a connected peer is in a topic.

        Return False if the topic is passed over: the peer is in too many, or the topic's name is too long.
        """
        state = self.peers[peer]
        if topic in state.topics:
            return True
        if len(state.topics) >= self._max_topics or len(topic) > self._max_topic:
            return False
        state.topics[topic] = None
        members = self.members.setdefault(topic, Members())
        (members.gossipsub if state.gossips else members.floodsub)[peer] = None
        return True

    def unsubscribe(self, peer: PeerId, topic: str) -> bool:
        """Note that a connected peer left a topic; return whether it was in our mesh."""
        state = self.peers[peer]
        if topic not in state.topics:
            return False
        del state.topics[topic]
        members = self.members[topic]
        members.gossipsub.pop(peer, None)
        members.floodsub.pop(peer, None)
        if not members.gossipsub and not members.floodsub:
            del self.members[topic]
        if topic in self.fanout:
            self.fanout[topic].peers.pop(peer, None)
        mesh = self.mesh.get(topic, {})
        was_meshed = peer in mesh
        mesh.pop(peer, None)
        return was_meshed

    def concerns(self, peer: PeerId, topic: str) -> bool:
        """Return whether we are in a topic, or a connected peer is. Of other topics no honest peer sends GRAFT."""
        return topic in self.mesh or topic in self.peers[peer].topics

    def draw(self, topic: str, count: int, excluded: Collection[PeerId]) -> list[PeerId]:
        """Return gossipsub peers that are in a topic, at random: as many, or all that there are.

        Args:
            topic: that they are in.
            count: how many.
            excluded: peers that are not drawn.
        """
        members = self.members.get(topic)
        if members is None or count <= 0:
            return []
        candidates = [peer for peer in members.gossipsub if peer not in excluded]
        return candidates if len(candidates) <= count else self._random.sample(candidates, count)

    def draw_from_mesh(self, topic: str, count: int) -> list[PeerId]:
        """Return peers of the mesh of a topic that we are in, at random."""
        return self._random.sample(list(self.mesh[topic]), count)

    def peering(self, peer: PeerId, topic: str) -> Peering | None:
        """Return how we stand with a peer in a topic; None if it is not in it."""
        state = self.peers.get(peer)
        if state is None or topic not in state.topics:
            return None
        if not state.gossips or peer in self.mesh.get(topic, ()):
            return Peering.FULL_MESSAGE
        fanout = self.fanout.get(topic)
        return Peering.FAN_OUT if fanout is not None and peer in fanout.peers else Peering.METADATA_ONLY

    def peerings(self) -> Iterator[tuple[PeerId, str, Peering]]:
        """Yield how we stand with each peer in each topic that it is in."""
        for peer, state in self.peers.items():
            for topic in state.topics:
                found = self.peering(peer, topic)
                if found is not None:
                    yield peer, topic, found
