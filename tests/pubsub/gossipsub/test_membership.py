"""How a router joins and leaves topics, and what GRAFT and PRUNE do."""

from __future__ import annotations

import pytest

from gossiplog.pubsub.events import Join, Leave, PeerConnected, Publish
from gossiplog.pubsub.gossipsub import Unsent
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB, Control, Rpc, Subscription
from tests.pubsub.gossipsub.node import TOPIC, Node, names, packets, single, told


@pytest.mark.parametrize("protocol", [GOSSIPSUB, FLOODSUB])
def test_a_new_peer_is_told_all_topics(protocol: str) -> None:
    """Seed 001, 12: whether it speaks floodsub or gossipsub."""
    node = Node()
    node.do(Join("one"))
    node.do(Join("two"))
    hello = single(node.do(PeerConnected(b"peer", protocol)), b"peer")
    assert hello == Rpc(subscriptions=(Subscription("one", True), Subscription("two", True)))


def test_the_topics_that_a_new_peer_is_told_are_those_of_that_moment() -> None:
    """Seed 001, 12: few or many, and other peers were told before."""
    node = Node()
    topics: list[str] = []

    def told_topics(peer: bytes) -> tuple[Subscription, ...]:
        return single(node.do(PeerConnected(peer, GOSSIPSUB)), peer).subscriptions

    for count, peer in ((1, b"a"), (2, b"b"), (7, b"c"), (1500, b"d")):
        for number in range(len(topics), count):
            topics.append(f"topic {number}")
            node.do(Join(topics[-1]))
        assert told_topics(peer) == tuple(Subscription(topic, True) for topic in topics)
    node.do(Leave(topics.pop(700)))
    assert told_topics(b"e") == tuple(Subscription(topic, True) for topic in topics)


def test_there_is_nothing_to_tell_without_topics() -> None:
    assert Node().do(PeerConnected(b"peer", GOSSIPSUB)) == ()


def test_changes_are_announced_to_every_peer() -> None:
    """Seed 001, 13: to those that share no topic as well."""
    node = Node()
    node.connect(b"member", b"elsewhere", topics=["elsewhere"])
    node.connect(b"nowhere", topics=[])
    node.connect(b"flooder", protocol=FLOODSUB)
    everybody = {b"member", b"elsewhere", b"nowhere", b"flooder"}
    for event, subscribe in ((Join(TOPIC), True), (Leave(TOPIC), False)):
        sent = packets(node.do(event))
        assert sent.keys() == everybody
        assert {packet.subscriptions for (packet,) in sent.values()} == {(Subscription(TOPIC, subscribe),)}
    # What is so already is not told again.
    assert node.do(Leave(TOPIC)) == ()
    node.do(Join(TOPIC))
    assert node.do(Join(TOPIC)) == ()


def test_changes_are_announced_to_any_number_of_peers() -> None:
    """Seed 001, 13."""
    node = Node()
    node.connect(*names(40), topics=[])
    for event in (Join(TOPIC), Leave(TOPIC)):
        assert packets(node.do(event)).keys() == set(names(40))


def test_fan_out_peers_move_into_the_mesh_first() -> None:
    """Seed 001, 4 and 14: then the fan-out is gone, and the mesh is filled to D at random."""
    node = Node()
    early, late = names(4, "early"), names(20, "late")
    node.connect(*early)
    node.do(Publish((TOPIC,), b"data"))
    node.connect(*late)
    node.do(Join(TOPIC))
    mesh = node.router.mesh(TOPIC)
    assert set(mesh[:4]) == set(early)
    assert len(set(mesh)) == 6
    assert set(mesh[4:]) < set(late)
    assert node.router.fanout(TOPIC) == ()


def test_other_nodes_draw_other_members() -> None:
    """Seed 001, 14 and 15: the draw is at random, not the first that are known."""
    node = Node()
    node.connect(*names(20), topics=["one", "two", "three"])
    for topic in ("one", "two", "three"):
        node.do(Join(topic))
    assert len({node.router.mesh(topic) for topic in ("one", "two", "three")}) == 3


@pytest.mark.parametrize(("members", "expected"), [(0, 0), (1, 1), (5, 5), (6, 6), (9, 6)])
def test_a_mesh_begins_with_d_members_or_all_there_are(members: int, expected: int) -> None:
    """Seed 001, 15: never with a floodsub peer."""
    node = Node()
    node.connect(*names(members))
    node.connect(*names(5, "flooder"), protocol=FLOODSUB)
    node.connect(*names(5, "elsewhere"), topics=["elsewhere"])
    node.do(Join(TOPIC))
    assert len(node.router.mesh(TOPIC)) == expected
    assert set(node.router.mesh(TOPIC)) <= set(names(members))


def test_new_members_get_one_graft_with_the_announcement() -> None:
    """Seed 001, 16: wherever they came from; all others get the announcement alone."""
    node = Node()
    node.connect(*names(3))
    node.do(Publish((TOPIC,), b"data"))
    node.connect(*names(9)[3:])
    node.connect(b"flooder", protocol=FLOODSUB)
    sent = packets(node.do(Join(TOPIC)))
    mesh = node.router.mesh(TOPIC)
    assert set(names(3)) < set(mesh)
    announcement = (Subscription(TOPIC, True),)
    for peer in (*names(9), b"flooder"):
        control = Control(graft=(TOPIC,)) if peer in mesh else None
        assert sent[peer] == [Rpc(subscriptions=announcement, control=control)]
    assert told(node.beat(), "graft") == {}


def test_the_mesh_is_told_prune_with_the_announcement() -> None:
    """Seed 001, 17: then the mesh is gone."""
    node = Node()
    node.connect(*names(9))
    node.do(Join(TOPIC))
    mesh = node.router.mesh(TOPIC)
    sent = packets(node.do(Leave(TOPIC)))
    for peer in names(9):
        control = Control(prune=(TOPIC,)) if peer in mesh else None
        assert sent[peer] == [Rpc(subscriptions=(Subscription(TOPIC, False),), control=control)]
    assert node.router.mesh(TOPIC) == ()
    assert node.router.topics == ()
    assert packets(node.beat()) == {}


def test_graft_adds_its_sender() -> None:
    """Seed 001, 18: without an answer, and a second one changes nothing."""
    node = Node()
    node.join()
    node.connect(*names(20))
    for _ in range(2):
        for peer in names(20):
            assert node.receive(peer, graft=[TOPIC]) == ()
        assert node.router.mesh(TOPIC) == tuple(names(20))


def test_graft_says_that_its_sender_is_in_the_topic() -> None:
    node = Node()
    node.join()
    node.connect(b"peer", topics=[])
    assert node.receive(b"peer", graft=[TOPIC]) == ()
    assert node.router.mesh(TOPIC) == (b"peer",)
    assert node.router.topics_of(b"peer") == (TOPIC,)


@pytest.mark.parametrize("topics", [[], [TOPIC]])
def test_graft_for_another_topic_is_answered_with_prune(topics: list[str]) -> None:
    """Seed 001, 19: no state is kept."""
    node = Node()
    node.connect(b"peer", topics=topics)
    answer = single(node.receive(b"peer", graft=[TOPIC, TOPIC]), b"peer")
    assert answer == Rpc(control=Control(prune=(TOPIC,)))
    assert node.router.mesh(TOPIC) == node.router.fanout(TOPIC) == node.router.topics == ()
    assert node.router.topics_of(b"peer") == tuple(topics)
    assert packets(node.beat()) == {}


def test_graft_from_who_is_in_too_many_topics_is_answered_with_prune() -> None:
    node = Node(max_topics=1)
    node.join()
    node.connect(b"peer", topics=["elsewhere"])
    assert told(node.receive(b"peer", graft=[TOPIC]), "prune") == {b"peer": (TOPIC,)}
    assert node.router.mesh(TOPIC) == ()


def test_prune_removes_its_sender() -> None:
    """Seed 001, 20: without an answer, and harmless when it was not in the mesh."""
    node = Node()
    node.join(*[])
    node.connect(*names(3))
    node.receive(names(3)[0], graft=[TOPIC])
    for peer in names(2):
        for topics in ([TOPIC], [TOPIC, "unknown"]):
            assert node.receive(peer, prune=topics) == ()
    assert node.router.mesh(TOPIC) == ()
    assert node.router.peers.keys() == set(names(3))


def test_control_messages_of_unknown_peers_are_ignored() -> None:
    node = Node()
    node.join()
    assert node.receive(b"stranger", subscribe=[TOPIC], graft=[TOPIC, "other"], prune=[TOPIC], iwant=[b"id"]) == ()
    assert node.router.mesh(TOPIC) == ()
    assert node.router.peers == {}


def test_control_messages_of_floodsub_peers_are_ignored() -> None:
    node = Node()
    node.join()
    node.connect(b"flooder", protocol=FLOODSUB)
    assert node.receive(b"flooder", graft=[TOPIC, "other"], prune=[TOPIC], iwant=[b"id"]) == ()
    assert node.router.mesh(TOPIC) == ()


def test_a_graft_that_may_have_crossed_a_prune_is_answered_with_graft() -> None:
    """Seed 001, 21: its sender may have taken itself out of the mesh again."""
    node = Node()
    node.connect(b"peer")
    node.do(Join(TOPIC))
    node.do(Leave(TOPIC))
    node.do(Join("elsewhere"))
    node.receive(b"peer", unsubscribe=[TOPIC])
    node.do(Join(TOPIC))
    assert node.router.mesh(TOPIC) == ()
    assert told(node.receive(b"peer", graft=[TOPIC]), "graft") == {b"peer": (TOPIC,)}
    # Once is enough.
    assert node.receive(b"peer", prune=[TOPIC]) == ()
    assert node.receive(b"peer", graft=[TOPIC]) == ()


def test_who_unsubscribes_leaves_the_mesh() -> None:
    """Seed 001, 21: our GRAFT may be on its way to who does so without PRUNE."""
    node = Node()
    node.join()
    node.connect(*names(2))
    one, other = names(2)
    node.receive(one, graft=[TOPIC])
    node.receive(other, graft=[TOPIC])
    assert node.receive(one, unsubscribe=[TOPIC], prune=[TOPIC]) == ()
    assert told(node.receive(other, unsubscribe=[TOPIC]), "prune") == {other: (TOPIC,)}
    assert node.router.mesh(TOPIC) == ()


def test_what_is_remembered_of_refusals_is_limited() -> None:
    node = Node(max_topics=10)
    node.connect(b"peer", topics=[])
    for number in range(50):
        topic = f"topic {number}"
        assert told(node.receive(b"peer", subscribe=[topic], graft=[topic]), "prune") == {b"peer": (topic,)}
        node.receive(b"peer", unsubscribe=[topic])
    answered = 0
    for number in range(50):
        topic = f"topic {number}"
        node.do(Join(topic))
        answered += len(told(node.receive(b"peer", subscribe=[topic], graft=[topic]), "graft"))
        node.do(Leave(topic))
        node.receive(b"peer", unsubscribe=[topic])
    assert answered == 10


def test_the_mesh_of_each_topic_is_told_prune() -> None:
    """Seed 001, 17: all of it, of a mesh above D_high."""
    node = Node()
    node.join()
    node.connect(*names(40))
    for peer in names(40):
        node.receive(peer, graft=[TOPIC])
    assert told(node.do(Leave(TOPIC)), "prune") == dict.fromkeys(names(40), (TOPIC,))


def test_prune_leaves_its_sender_in_the_topic() -> None:
    """Seed 001, 20."""
    node = Node()
    node.join()
    node.connect(b"peer")
    node.receive(b"peer", graft=[TOPIC])
    assert node.receive(b"peer", prune=[TOPIC]) == ()
    assert node.router.topics_of(b"peer") == (TOPIC,)


def test_an_answer_to_graft_for_a_topic_of_neither_side_is_forgotten() -> None:
    """Seed 001, 19: had it been remembered, a later GRAFT would be answered."""
    node = Node()
    node.connect(b"peer", topics=[])
    assert told(node.receive(b"peer", graft=[TOPIC]), "prune") == {b"peer": (TOPIC,)}
    node.do(Join(TOPIC))
    assert node.receive(b"peer", subscribe=[TOPIC], graft=[TOPIC]) == ()


def test_a_graft_that_was_not_sent_has_not_crossed_another() -> None:
    """Seed 001, 21: the last that the peer was told is the PRUNE before it, which its GRAFT may have crossed."""
    node = Node(d_low=0)
    node.join()
    node.connect(b"peer")
    node.receive(b"peer", graft=[TOPIC])
    node.do(Leave(TOPIC))
    lost = single(node.do(Join(TOPIC)), b"peer")
    assert lost.control == Control(graft=(TOPIC,))
    node.do(Unsent(b"peer", lost))
    node.receive(b"peer", prune=[TOPIC])
    node.beat()
    assert told(node.receive(b"peer", graft=[TOPIC]), "graft") == {b"peer": (TOPIC,)}
