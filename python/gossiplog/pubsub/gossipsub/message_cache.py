"""The message cache (gossipsub-v1.0.md, "Message Cache"): the latest messages, for peers that ask for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from gossiplog.pubsub.rpc import Message, MessageId


class MessageCache:
    """Messages by the heartbeat interval, or window, in which they came.

    Args:
        length: windows for which a message is kept.
        gossip: windows, the newest, whose messages are gossiped about.
        max_bytes: of all messages' data, and characters of their topics; the oldest go first.
        max_repeats: times that a peer gets a message.
    """

    __slots__ = ("_bytes", "_given", "_gossip", "_max_bytes", "_max_repeats", "_messages", "_windows")

    def __init__(self, length: int, gossip: int, max_bytes: int, max_repeats: int) -> None:
        self._gossip = gossip
        self._max_bytes = max_bytes
        self._max_repeats = max_repeats
        # The oldest first.
        self._messages: dict[MessageId, Message] = {}
        self._bytes = 0
        self._given: dict[MessageId, dict[Hashable, int]] = {}
        # Ids by topic, the newest window first.
        self._windows: deque[dict[str, list[MessageId]]] = deque(({} for _ in range(length)), maxlen=length)

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, id: MessageId, message: Message, age: int = 0) -> None:
        """Add a message to the window in which it came, under each of its topics, unless the cache has it.

        It comes again if its id was forgotten sooner, as happens where more messages come than ids are remembered.

        Args:
            id: of the message.
            message: that came.
            age: windows that have begun since; fewer than there are.
        """
        if id in self._messages:
            return
        self._messages[id] = message
        for topic in dict.fromkeys(message.topics):
            self._windows[age].setdefault(topic, []).append(id)
        self._bytes += message_size(message)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._messages)))

    def get(self, id: MessageId) -> Message | None:
        """Return the message with an id; None if it is not there, or no longer."""
        return self._messages.get(id)

    def give(self, id: MessageId, peer: Hashable) -> Message | None:
        """Return the message, for a peer that asks for it; None also if that has had it often enough."""
        message = self._messages.get(id)
        if message is None:
            return None
        given = self._given.setdefault(id, {})
        count = given.get(peer, 0)
        if count >= self._max_repeats:
            return None
        given[peer] = count + 1
        return message

    def gossip_ids(self, topic: str) -> list[MessageId]:
        """Return the ids of a topic to gossip about, the newest window's first."""
        messages = self._messages
        found: list[MessageId] = []
        for window, _ in zip(self._windows, range(self._gossip), strict=False):
            if topic in window:
                found += [id for id in window[topic] if id in messages]
        return found

    def shift(self) -> None:
        """Begin a new window, and drop the oldest."""
        for ids in self._windows[-1].values():
            for id in ids:
                if id in self._messages:
                    self._drop(id)
        self._windows.appendleft({})

    def _drop(self, id: MessageId) -> None:
        self._bytes -= message_size(self._messages.pop(id))
        self._given.pop(id, None)


def message_size(message: Message) -> int:
    """Return what a message counts as: bytes of its data, and characters of its topics."""
    return len(message.data) + sum(map(len, message.topics))
