"""Messages of several topics, which the guide to gossipsub calls recipients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.pubsub.events import Deliver, Join, Publish
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB, IHave, Message
from tests.pubsub.gossipsub.node import Node, delivered, id_of, names, packets, receivers, told
from tests.strategies import repeatable


def several(number: int, *topics: str, data: bytes = b"data") -> Message:
    return Message(topics, data, b"author", number.to_bytes(8, "big"))


def in_two_topics(**config: Any) -> Node:
    """In "a" and "b", with peers in their meshes, one in both, and floodsub peers; others are in "c"."""
    node = Node(**config)
    for topic in "ab":
        node.do(Join(topic))
    node.connect(b"a", topics="a")
    node.connect(b"b", topics="b")
    node.connect(b"ab", topics="ab")
    node.connect(b"c", topics="c")
    node.connect(b"flood-b", topics="b", protocol=FLOODSUB)
    node.connect(b"flood-c", topics="c", protocol=FLOODSUB)
    for peer, topics in ((b"a", "a"), (b"b", "b"), (b"ab", "ab")):
        node.receive(peer, graft=tuple(topics))
    return node


def test_a_message_of_several_topics_is_delivered_once_and_goes_to_the_union_of_their_meshes() -> None:
    """Seed 001, 46: those of the topics that we are in, each peer once; the packet has all topics, as it came."""
    node = in_two_topics()
    sent = several(1, "c", "b", "a")
    orders = node.receive(b"a", sent)
    assert delivered(orders) == [Deliver(("b", "a"), id_of(sent), b"data", b"a")]
    assert receivers(orders, sent) == [b"flood-b", b"b", b"ab"]
    assert node.receive(b"b", sent) == ()
    only = several(2, "c", "a")
    assert receivers(node.receive(b"b", only), only) == [b"a", b"ab"]
    assert node.receive(b"c", several(3, "c", "d")) == ()


def test_what_is_published_to_several_topics_is_one_message() -> None:
    """Seed 001, 46: for the meshes of those that we are in, the fan-outs of the others, and all floodsub peers."""
    node = in_two_topics()
    orders = node.do(Publish(("b", "c", "b", "a"), b"own"))
    (sent,) = {message for peers in packets(orders).values() for packet in peers for message in packet.messages}
    assert sent.topics == ("b", "c", "a")
    assert sorted(receivers(orders, sent)) == [b"a", b"ab", b"b", b"c", b"flood-b", b"flood-c"]
    assert delivered(orders) == [Deliver(("b", "a"), id_of(sent), b"own", None)]
    assert node.router.fanout("c") == (b"c",)
    assert node.router.fanout("a") == node.router.fanout("b") == ()
    assert delivered(node.do(Publish(("c", "d"), b"elsewhere"))) == []


def test_a_message_of_several_topics_is_gossiped_about_in_each() -> None:
    """Seed 001, 46."""
    node = in_two_topics(d_low=2)
    for topic in "ab":
        node.connect(f"lazy-{topic}".encode(), topics=topic)
    sent = several(1, "a", "c", "b", "a")
    node.receive(b"a", sent)
    ids = (id_of(sent),)
    for _ in range(3):
        assert told(node.beat(), "ihave") == {b"lazy-a": (IHave("a", ids),), b"lazy-b": (IHave("b", ids),)}
    assert told(node.beat(), "ihave") == {}
    assert receivers(node.receive(b"lazy-b", iwant=ids), sent) == [b"lazy-b"]


def test_a_topic_that_is_named_twice_counts_once() -> None:
    """Seed 001, 46: the message goes on as it is signed."""
    node = in_two_topics()
    sent = several(1, "a", "a", "c")
    orders = node.receive(b"ab", sent)
    assert delivered(orders) == [Deliver(("a",), id_of(sent), b"data", b"ab")]
    assert receivers(orders, sent) == [b"a"]


@pytest.mark.parametrize(("most", "config"), [(16, {}), (3, {"max_recipients": 3}), (1, {"max_recipients": 1})])
def test_the_topics_of_a_message_are_bounded(most: int, config: dict[str, int]) -> None:
    """Seed 001, 46."""
    node = in_two_topics(**config)
    topics = ("a", *map(str, range(20)))
    assert node.receive(b"a", several(1, *topics[: most + 1])) == ()
    assert len(delivered(node.receive(b"a", several(1, *topics[:most])))) == 1
    said = rf"a message to {most + 1} topics; this router's limit is {most} \(max_recipients\)"
    with pytest.raises(ValueError, match=said):
        node.do(Publish(topics[: most + 1], b"data"))
    assert len(delivered(node.do(Publish(topics[:most], b"data")))) == 1
    with pytest.raises(ValueError, match="a message to no topic"):
        node.do(Publish((), b"data"))


def test_the_length_of_each_topic_is_bounded() -> None:
    """Seed 001, 46."""
    node = in_two_topics(max_topic=9)
    assert node.receive(b"a", several(1, "a", 10 * "c")) == ()
    assert len(delivered(node.receive(b"a", several(1, "a", 9 * "c")))) == 1
    with pytest.raises(ValueError, match="a topic of 10 characters; at most 9"):
        node.do(Publish(("a", 10 * "c"), b"data"))


@pytest.mark.slow
@repeatable(200)
@given(
    st.sets(st.sampled_from("abcd")),
    st.lists(st.tuples(st.sets(st.sampled_from("abcd")), st.booleans()), min_size=1, max_size=6),
    st.sets(st.sampled_from("abcd"), min_size=1),
)
def test_several_topics_reach_whom_each_of_them_would(
    own: set[str], peers: list[tuple[set[str], bool]], topics: set[str]
) -> None:
    """Seed 001, 46: what comes, and what is published."""

    def made() -> Node:
        node = Node()
        for topic in sorted(own):
            node.do(Join(topic))
        for name, (theirs, floods) in zip(names(6), peers, strict=False):
            node.connect(name, protocol=FLOODSUB if floods else GOSSIPSUB, topics=sorted(theirs))
            if not floods:
                node.receive(name, graft=sorted(theirs & own))
        return node

    def reached(orders: Sequence[Any]) -> set[bytes]:
        sent = packets(orders)
        assert all(len(of) == len(of[0].messages) == 1 for of in sent.values())
        return set(sent)

    def come(*together: str) -> set[bytes]:
        return reached(made().receive(names(1)[0], several(1, *together)))

    def published(*together: str) -> set[bytes]:
        return reached(made().do(Publish(together, b"data")))

    # There are no more peers than D, so that all are drawn for a fan-out.
    for reach in (come, published):
        assert reach(*sorted(topics)) == {peer for topic in topics for peer in reach(topic)}
