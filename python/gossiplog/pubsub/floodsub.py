"""floodsub: every message goes to every peer that is in its topic.

The rules, from the libp2p pubsub interface (https://github.com/libp2p/specs/blob/master/pubsub/README.md) and from
"In the beginning was floodsub" of the gossipsub specification; where both are silent, from go-libp2p-pubsub
(floodsub.go):

1. A peer that connects is sent the topics that we are in, and every peer is notified when we join one or leave one.
2. A new message of a topic that we are in is delivered, and goes to all peers in the topic but the one that it came
   from and its author. One of several topics is delivered once, and goes to each peer that is in one of them which we
   are in, once. New is what was not seen for some time, is not our own, is made out as it has to be, and passes
   the application's judgement.
   Where the application asks for it (`validation`), a message is delivered at once, and goes on when the application
   has accepted it; not to peers that sent copies meanwhile. A rejection names all that sent it.
3. What the application publishes goes to all peers in the topic, or in any of its topics, whether we are in it or not.

There is nothing to maintain, so there is no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gossiplog.checks import check_positive
from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.protocol.gossip import MAX_DATA
from gossiplog.pubsub.authorship import Authorship, author_and_number, check_ids, compose_valid, fits, name_is_id
from gossiplog.pubsub.events import (
    Deliver,
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
)
from gossiplog.pubsub.rpc import Message, MessageId, Rpc, Seen, Subscription
from gossiplog.pubsub.unanswered import UnansweredMessages


@dataclass(frozen=True, slots=True)
class Config:
    """What a router remembers, at most. The limits are choices of this project.

    Attributes:
        seen_ttl: seconds for which a message's id is remembered, as gossipsub does.
        max_data: bytes of a message's data; a longer one is passed over, and cannot be published.
        max_recipients: topics of a message; one with more is passed over, and cannot be published. The routers of
            rust-libp2p and js-libp2p write one, and read the last of several: where there are such, it is to be 1.
        max_seen: ids that are remembered; more than anybody publishes in `seen_ttl`.
        max_topics: of a peer's; what it subscribes to beyond that is passed over.
        max_topic: characters of a topic; a longer one of a peer's is passed over, and so is a message to one.

    Raises:
        ValueError: a value that is 0 or less.
    """

    seen_ttl: float = 120.0
    max_data: int = MAX_DATA
    max_recipients: int = 16
    max_seen: int = 2**20
    max_topics: int = 1000
    max_topic: int = 1024

    def __post_init__(self) -> None:
        check_positive(self)


class FloodSub:
    """A router. A driver connects it to others, and does what it asks for.

    Args:
        authorship: of own messages and of others'.
        config: limits.
        id_of: the id of a message; all peers of a network use the same function. By default the author and its number.
        is_valid: the application's judgement of a message.
        name_of: a peer's name as an author of messages; by default it is known by that name.
        validation: whether others' messages wait for the application's `GossipAnswered`, after `is_valid`.

    Raises:
        ValueError: messages have no author, and `id_of` is the default, which would give all of them one id.
    """

    __slots__ = (
        "_authorship",
        "_config",
        "_id_of",
        "_is_valid",
        "_name_of",
        "_peers",
        "_seen",
        "_topics",
        "_unanswered",
    )

    def __init__(
        self,
        authorship: Authorship,
        config: Config | None = None,
        *,
        id_of: Callable[[Message], MessageId] = author_and_number,
        is_valid: Callable[[Message], bool] = lambda message: True,
        name_of: Callable[[PeerId], bytes] = name_is_id,
        validation: bool = False,
    ) -> None:
        check_ids(authorship, id_of)
        self._authorship = authorship
        self._config = config or Config()
        self._id_of = id_of
        self._is_valid = is_valid
        self._name_of = name_of
        self._seen = Seen(self._config.seen_ttl, self._config.max_seen)
        # Dictionaries without values: sets, but in an order that does not depend on hashes.
        self._topics: dict[str, None] = {}
        self._peers: dict[PeerId, dict[str, None]] = {}
        self._unanswered: UnansweredMessages[Message] | None = UnansweredMessages() if validation else None

    @property
    def topics(self) -> Sequence[str]:
        """The topics that we are in."""
        return tuple(self._topics)

    def members(self, topic: str) -> Sequence[PeerId]:
        """Return the peers that are in a topic, as far as they have announced."""
        return [peer for peer, topics in self._peers.items() if topic in topics]

    def start(self, now: float) -> Sequence[Any]:
        """Begin: there is nothing to do."""
        return ()

    def handle(self, event: Any, now: float) -> Sequence[Any]:
        """Return what follows from an event.

        Raises:
            ValueError: the application publishes what is too long, or to too many topics, or what it calls invalid
                itself.
        """
        match event:
            case Received(peer, packet):
                topics = self._peers.get(peer)
                if topics is None:
                    return ()
                if packet.subscriptions:
                    self._note(topics, packet.subscriptions)
                return [order for message in packet.messages for order in self._receive(peer, message, now)]
            case Publish(topics, data):
                return self._publish(topics, data, now)
            case GossipAnswered(id, answer) if self._unanswered is not None:
                return self._answer(self._unanswered, id, answer)
            case PeerConnected(peer):
                self._peers[peer] = {}
                return self._tell([peer], self._topics, True) if self._topics else ()
            case PeerDisconnected(peer):
                self._peers.pop(peer, None)
            case Join(topic) if topic not in self._topics:
                self._topics[topic] = None
                return self._tell(list(self._peers), [topic], True)
            case Leave(topic) if topic in self._topics:
                del self._topics[topic]
                return self._tell(list(self._peers), [topic], False)
        return ()

    def _note(self, topics: dict[str, None], subscriptions: Sequence[Subscription]) -> None:
        for change in subscriptions:
            if not change.subscribe:
                topics.pop(change.topic, None)
            elif len(topics) < self._config.max_topics and len(change.topic) <= self._config.max_topic:
                topics[change.topic] = None

    def _receive(self, source: PeerId, message: Message, now: float) -> Sequence[Any]:
        if self._topics.keys().isdisjoint(message.topics) or len(message.data) > self._config.max_data:
            return ()
        id = self._id_of(message)
        self._seen.expire(now)
        if self._seen.has(id) or not fits(message, self._config):
            if self._unanswered is not None:
                self._unanswered.add_source(id, source)
            return ()
        if not self._authorship.admits(message) or self._is_own(message):
            return ()
        self._seen.add(id, now)
        if not self._is_valid(message):
            return ()
        joined = self._joined(message)
        if self._unanswered is None:
            return [Deliver(joined, id, message.data, source), *self._flood(message, joined, (source,))]
        size = len(message.data) + sum(map(len, message.topics))
        has_room = self._unanswered.put(id, message, size, source)
        return (Deliver(joined, id, message.data, source),) if has_room else ()

    def _answer(self, messages: UnansweredMessages[Message], id: MessageId, answer: GossipAnswer) -> Sequence[Any]:
        waiting = messages.take(id)
        if waiting is None:
            return ()
        if answer is GossipAnswer.ACCEPT:
            return self._flood(waiting.item, self._joined(waiting.item), waiting.sources)
        peers = waiting.rejected_peers(answer)
        return (Rejected(peers),) if peers else ()

    def _publish(self, topics: tuple[str, ...], data: bytes, now: float) -> Sequence[Any]:
        message = compose_valid(self._authorship, topics, data, self._config, self._is_valid)
        id = self._id_of(message)
        self._seen.expire(now)
        # Where ids are made from content, somebody may have published the same.
        if self._seen.has(id):
            return ()
        self._seen.add(id, now)
        joined = self._joined(message)
        delivery = [Deliver(joined, id, data, None)] if joined else []
        return [*delivery, *self._flood(message, message.topics, ())]

    def _joined(self, message: Message) -> tuple[str, ...]:
        """Return the topics of a message that we are in, each once."""
        return tuple(topic for topic in dict.fromkeys(message.topics) if topic in self._topics)

    def _flood(self, message: Message, topics: Iterable[str], sources: Collection[PeerId]) -> Sequence[Send]:
        author = message.author
        targets = [
            peer
            for peer, theirs in self._peers.items()
            if not theirs.keys().isdisjoint(topics)
            and peer not in sources
            and (author is None or self._name_of(peer) != author)
        ]
        return [Send(targets, Rpc((message,)))] if targets else []

    def _is_own(self, message: Message) -> bool:
        return message.author is not None and message.author == self._authorship.author

    def _tell(self, peers: Sequence[PeerId], topics: Iterable[str], subscribe: bool) -> Sequence[Send]:
        subscriptions = tuple(Subscription(topic, subscribe) for topic in topics)
        return [Send(peers, Rpc(subscriptions=subscriptions))] if peers else []
