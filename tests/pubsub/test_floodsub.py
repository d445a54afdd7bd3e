"""`gossiplog.pubsub.floodsub`."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.authorship import Anonymous, Authorship, Named
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
from gossiplog.pubsub.floodsub import Config, FloodSub
from gossiplog.pubsub.rpc import FLOODSUB, Message, Rpc, Subscription
from tests.pubsub.ids import Ids


class Node:
    """A router in topic "t", with peers that are in it, too."""

    def __init__(self, *peers: PeerId, authorship: Authorship | None = None, **options: Any) -> None:
        options.setdefault("id_of", lambda message: message.data[:4])
        self.router = FloodSub(authorship or Anonymous(), **options)
        self.now = 0.0
        assert self.router.start(0.0) == ()
        self.tell(Join("t"))
        for peer in peers:
            self.tell(PeerConnected(peer, FLOODSUB))
            self.get(peer, Rpc(subscriptions=(Subscription("t", True),)))

    def tell(self, event: Any) -> list[Any]:
        return list(self.router.handle(event, self.now))

    def get(self, peer: PeerId, packet: Rpc) -> list[Any]:
        return self.tell(Received(peer, packet))


def message(text: bytes, topic: str = "t") -> Rpc:
    return Rpc((Message((topic,), text),))


def test_a_message_goes_to_every_peer_in_the_topic_but_who_sent_it() -> None:
    """Seed 001, 41."""
    node = Node("a", "b", "c")
    node.tell(PeerConnected("elsewhere", FLOODSUB))
    packet = message(b"hello")
    assert node.get("b", packet) == [Deliver(("t",), b"hell", b"hello", "b"), Send(["a", "c"], packet)]
    assert node.get("a", packet) == []
    assert node.get("b", message(b"helpless", "other")) == []
    assert node.get("stranger", message(b"new")) == []


def test_a_message_goes_to_any_number_of_peers() -> None:
    """Seed 001, 41: others' messages and own ones."""
    peers = [f"peer {number}" for number in range(100)]
    node = Node(*peers)
    assert node.get(peers[0], message(b"hello"))[1].peers == peers[1:]
    assert node.tell(Publish(("t",), b"mine"))[1].peers == peers


def test_a_message_does_not_go_to_its_author() -> None:
    """Seed 001, 41."""
    options: dict[str, Any] = {"authorship": Named(b"me", Random(1)), "name_of": lambda peer: str(peer).encode()}
    node = Node("a", "b", "c", **options)
    signed = Message(("t",), b"hello", b"c", bytes(8))
    assert node.get("a", Rpc((signed,)))[1:] == [Send(["b"], Rpc((signed,)))]
    own = node.tell(Publish(("t",), b"mine"))
    (sent,) = own[1].packet.messages
    assert sent.author == b"me"
    assert node.get("a", Rpc((Message(("t",), b"me, again", b"me", bytes(8)),))) == []
    assert node.get("a", Rpc((Message(("t",), b"nobody's"),))) == []


def test_the_seen_cache_is_timed() -> None:
    """Seed 001, 41."""
    node = Node("a", config=Config(seen_ttl=120.0))
    assert node.get("a", message(b"once")) != []
    node.now = 119.9
    assert node.get("a", message(b"once")) == []
    node.now = 120.0
    assert node.get("a", message(b"once")) != []


def test_ids_are_forgotten_when_their_time_is_over() -> None:
    """Seed 001, 41: at the next message at the latest."""
    ids = Ids()
    node = Node("a", config=Config(seen_ttl=2.0), id_of=ids.id_of)
    for node.now in (0.0, 1.0, 2.5):
        assert node.get("a", message(b"data")) != []
    assert ids.remembered == [False, True, True]


def test_no_timers() -> None:
    """Seed 001, 41."""
    node = Node("a")
    orders = [*node.get("a", message(b"1")), *node.tell(Publish(("t",), b"2")), *node.tell(Leave("t"))]
    assert {type(order) for order in orders} == {Deliver, Send}


def test_topics_are_told_to_everybody() -> None:
    node = Node("a")
    assert node.tell(Join("u")) == [Send(["a"], Rpc(subscriptions=(Subscription("u", True),)))]
    assert node.tell(Join("u")) == []
    hello = Rpc(subscriptions=(Subscription("t", True), Subscription("u", True)))
    assert node.tell(PeerConnected("b", FLOODSUB)) == [Send(["b"], hello)]
    assert node.tell(Leave("t")) == [Send(["a", "b"], Rpc(subscriptions=(Subscription("t", False),)))]
    assert node.tell(Leave("t")) == []
    assert node.router.topics == ("u",)
    assert Node().tell(Join("x")) == []


def test_peers_come_and_go() -> None:
    node = Node("a", "b")
    assert node.router.members("t") == ["a", "b"]
    node.get("b", Rpc(subscriptions=(Subscription("t", False), Subscription("never", False))))
    node.tell(PeerDisconnected("a"))
    node.tell(PeerDisconnected("unknown"))
    assert node.router.members("t") == []
    assert node.tell(Publish(("t",), b"alone")) == [Deliver(("t",), b"alon", b"alone", None)]


def test_publishing_where_one_is_not() -> None:
    node = Node("a", "b")
    node.tell(Leave("t"))
    packet = message(b"from outside")
    assert node.tell(Publish(("t",), b"from outside")) == [Send(["a", "b"], packet)]
    assert node.tell(Publish(("t",), b"from elsewhere")) == []  # the same id
    assert node.get("a", packet) == []


def test_what_the_application_refuses_goes_nowhere() -> None:
    node = Node("a", "b", is_valid=lambda message: len(message.data) < 100)
    assert node.get("a", message(bytes(99))) != []
    assert node.get("a", message(b"x" * 100)) == []


def test_the_application_is_told_what_it_cannot_publish() -> None:
    node = Node("a", config=Config(max_data=200), is_valid=lambda message: len(message.data) <= 100)
    with pytest.raises(ValueError, match="calls this message in 't' invalid, of 101 bytes"):
        node.tell(Publish(("t",), bytes(101)))
    with pytest.raises(ValueError, match="a message of 201 bytes; at most 200 can be published"):
        node.tell(Publish(("t",), bytes(201)))
    # Nothing of it is remembered.
    assert len(node.tell(Publish(("t",), bytes(100)))) == 2


def test_what_peers_make_us_remember_is_limited() -> None:
    node = Node("a", "b", config=Config(max_data=10, max_topics=3, max_topic=5, max_seen=2))
    assert node.get("a", message(b"x" * 11)) == []
    node.get("a", Rpc(subscriptions=tuple(Subscription(name, True) for name in ("too long", "u", "v", "w"))))
    assert [topic for topic in ("t", "too long", "u", "v", "w") if "a" in node.router.members(topic)] == ["t", "u", "v"]
    for text in (b"1", b"2", b"3"):
        assert node.get("a", message(text)) != []
    assert node.get("a", message(b"3")) == []
    assert node.get("a", message(b"1")) != []


def test_anonymous_messages_need_ids_of_their_own() -> None:
    """Seed 001, 2."""
    with pytest.raises(ValueError, match="pass an id_of"):
        FloodSub(Anonymous())


def test_limits_that_are_none() -> None:
    with pytest.raises(ValueError, match="max_seen is 0; expected more than 0"):
        Config(max_seen=0)


def test_a_message_of_several_topics_is_delivered_once_and_goes_to_who_is_in_any() -> None:
    """Seed 001, 46: in any that we are in, where it came; in any at all, where it is published."""
    node = Node("t1", "t2")
    node.tell(Join("u"))
    for peer, topics in (("u", "u"), ("tu", "tu"), ("v", "v")):
        node.tell(PeerConnected(peer, FLOODSUB))
        node.get(peer, Rpc(subscriptions=tuple(Subscription(topic, True) for topic in topics)))
    packet = Rpc((Message(("v", "u", "t", "u"), b"1234"),))
    deliver = Deliver(("u", "t"), b"1234", b"1234", "t1")
    assert node.get("t1", packet) == [deliver, Send(["t2", "u", "tu"], packet)]
    assert node.get("u", packet) == []
    assert node.get("t1", Rpc((Message(("v", "w"), b"5678"),))) == []
    [own, send] = node.tell(Publish(("v", "t", "v"), b"mine"))
    assert own == Deliver(("t",), b"mine", b"mine", None)
    assert send == Send(["t1", "t2", "tu", "v"], Rpc((Message(("v", "t"), b"mine"),)))
    assert [type(order) for order in node.tell(Publish(("v", "w"), b"else"))] == [Send]


def test_the_topics_of_a_message_are_bounded() -> None:
    """Seed 001, 46."""
    node = Node("a", config=Config(max_recipients=2, max_topic=5))
    for topics in (("t", "u", "v"), ("t", "longer")):
        assert node.get("a", Rpc((Message(topics, b"1234"),))) == []
    assert len(node.get("a", Rpc((Message(("t", "short"), b"1234"),)))) == 1
    with pytest.raises(ValueError, match="a message to 3 topics; this router's limit is 2"):
        node.tell(Publish(("t", "u", "v"), b"mine"))
    assert Config().max_recipients == 16


def test_with_validation_a_message_waits_for_the_answer() -> None:
    """Seed 001, 41."""
    node = Node("a", "b", "c", validation=True)
    packet = message(b"hello")
    assert node.get("b", packet) == [Deliver(("t",), b"hell", b"hello", "b")]
    assert node.get("c", packet) == []
    assert node.tell(GossipAnswered(b"hell", GossipAnswer.ACCEPT)) == [Send(["a"], packet)]
    assert node.tell(GossipAnswered(b"hell", GossipAnswer.ACCEPT)) == []
    assert node.get("a", packet) == []


def test_with_validation_what_is_rejected_is_held_against_all_who_sent_it() -> None:
    """Seed 001, 41."""
    node = Node("a", "b", "c", validation=True)
    for peer in "ab":
        node.get(peer, message(b"bad!"))
        node.get(peer, message(b"late"))
    assert node.tell(GossipAnswered(b"bad!", GossipAnswer.REJECT)) == [Rejected(("a", "b"))]
    assert node.tell(GossipAnswered(b"late", GossipAnswer.IGNORE)) == []
    assert node.tell(GossipAnswered(b"none", GossipAnswer.REJECT)) == []
    assert node.get("c", message(b"bad!")) == []


def test_without_validation_answers_change_nothing() -> None:
    node = Node("a", "b")
    node.get("a", message(b"hello"))
    assert node.tell(GossipAnswered(b"hell", GossipAnswer.REJECT)) == []
