"""A gossipsub router in the middle of peers that a test speaks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from gossiplog.pubsub.authorship import Authorship, Named
from gossiplog.pubsub.events import Deliver, Join, PeerConnected, Received, Send, SetTimer, TimerExpired
from gossiplog.pubsub.gossipsub import Config, GossipSub, Heartbeat
from gossiplog.pubsub.rpc import GOSSIPSUB, Control, IHave, Message, Rpc, Subscription

OWN = b"own"
TOPIC = "topic"


def message(number: int, topic: str = TOPIC, author: bytes = b"author", data: bytes = b"data") -> Message:
    return Message((topic,), data, author, number.to_bytes(8, "big"))


def id_of(message: Message) -> bytes:
    assert message.author is not None
    assert message.seqno is not None
    return message.author + message.seqno


def names(count: int, prefix: str = "peer") -> list[bytes]:
    return [f"{prefix}{number:02}".encode() for number in range(count)]


def packets(orders: Iterable[Any]) -> dict[Any, list[Rpc]]:
    """What each peer is sent."""
    found: dict[Any, list[Rpc]] = {}
    for order in orders:
        if isinstance(order, Send):
            assert order.peers, "a packet to nobody"
            assert len(set(order.peers)) == len(order.peers)
            for peer in order.peers:
                found.setdefault(peer, []).append(order.packet)
    return found


def single(orders: Iterable[Any], peer: bytes) -> Rpc:
    """The one packet that a peer is sent."""
    (packet,) = packets(orders)[peer]
    return packet


def told(orders: Iterable[Any], what: str) -> dict[Any, Any]:
    """The peers that are sent a certain kind of control message, with what it says."""
    return {
        peer: getattr(packet.control, what)
        for peer, sent in packets(orders).items()
        for packet in sent
        if packet.control is not None and getattr(packet.control, what)
    }


def receivers(orders: Iterable[Any], message: Message) -> list[Any]:
    """Who is sent a message, in this order."""
    return [peer for peer, sent in packets(orders).items() for packet in sent if message in packet.messages]


def delivered(orders: Iterable[Any]) -> list[Deliver]:
    return [order for order in orders if isinstance(order, Deliver)]


class Node:
    """A router, its time, and what it asked for last."""

    def __init__(
        self,
        authorship: Authorship | None = None,
        make: Callable[..., GossipSub] = GossipSub,
        options: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        authorship = authorship or Named(OWN, Random(1))
        self.router = make(OWN, Random(0), authorship, Config(**config), **(options or {}))
        self.now = 0.0
        (timer,) = self.router.start(self.now)
        assert isinstance(timer, SetTimer)
        self.due = timer.at

    def do(self, event: Any) -> Sequence[Any]:
        return self.router.handle(event, self.now)

    def connect(self, *peers: bytes, protocol: str = GOSSIPSUB, topics: Sequence[str] = (TOPIC,)) -> None:
        """Peers that are in topics."""
        for peer in peers:
            self.do(PeerConnected(peer, protocol))
            self.receive(peer, subscribe=topics)

    def join(self, *peers: bytes, topic: str = TOPIC) -> None:
        """Is in a topic, with these peers in the mesh. Call it before others are known to be in the topic."""
        self.do(Join(topic))
        for peer in peers:
            self.receive(peer, graft=(topic,))

    def receive(
        self,
        peer: bytes,
        *messages: Message,
        subscribe: Sequence[str] = (),
        unsubscribe: Sequence[str] = (),
        ihave: Sequence[IHave] = (),
        iwant: Sequence[bytes] = (),
        graft: Sequence[str] = (),
        prune: Sequence[str] = (),
    ) -> Sequence[Any]:
        changes = [Subscription(topic, True) for topic in subscribe]
        changes += [Subscription(topic, False) for topic in unsubscribe]
        control = Control(tuple(ihave), tuple(iwant), tuple(graft), tuple(prune))
        return self.do(Received(peer, Rpc(messages, tuple(changes), control)))

    def beat(self, count: int = 1) -> Sequence[Any]:
        """The next heartbeats, of which the last one's orders."""
        orders: Sequence[Any] = ()
        for _ in range(count):
            self.now = self.due
            orders = self.do(TimerExpired(Heartbeat()))
            (self.due,) = (order.at for order in orders if isinstance(order, SetTimer))
        return orders
