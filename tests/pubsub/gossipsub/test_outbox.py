"""How what goes to one peer comes into one packet, and what is sent again."""

from __future__ import annotations

from gossiplog.pubsub.events import Join, Leave, Publish
from gossiplog.pubsub.gossipsub import Unsent
from gossiplog.pubsub.gossipsub.outbox import Outbox
from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc, Subscription, merge
from tests.pubsub.gossipsub.node import TOPIC, Node, id_of, message, names, packets, single, told

ONE, OTHER, THIRD = names(3)


def outbox() -> Outbox:
    return Outbox(lambda peer, topic, linked: True, lambda topic: False, lambda peer, topic: True, 10)


def test_a_message_to_many_is_one_packet_and_one_order() -> None:
    """Seed 001, 37: and the packet is shared."""
    made = outbox()
    packet = Rpc((message(1),))
    made.add([ONE, OTHER], packet)
    (send,) = made.flush()
    assert send.peers == [ONE, OTHER]
    assert send.packet is packet
    assert made.flush() == ()


def test_peers_that_get_the_same_share_an_order() -> None:
    """Seed 001, 37: messages, subscriptions and control of any topics."""
    made = outbox()
    made.add([ONE, OTHER, THIRD], Rpc((message(1),)))
    made.add([OTHER, THIRD], Rpc(subscriptions=(Subscription("a", True),)))
    made.link(THIRD, "a", True)
    made.link(OTHER, "a", True)
    made.add([ONE], Rpc(control=Control(iwant=(b"id",))))
    made.link(ONE, "b", False)
    sends = {tuple(send.peers): send.packet for send in made.flush()}
    assert sends == {
        (THIRD, OTHER): Rpc((message(1),), (Subscription("a", True),), Control(graft=("a",))),
        (ONE,): Rpc((message(1),), (), Control(iwant=(b"id",), prune=("b",))),
    }


def test_of_graft_and_prune_the_last_is_told() -> None:
    made = outbox()
    made.link(ONE, "a", True)
    made.link(ONE, "a", False)
    made.link(ONE, "b", False)
    made.link(ONE, "b", True)
    assert [send.packet.control for send in made.flush()] == [Control(graft=("b",), prune=("a",))]


def test_one_packet_of_several_has_all_that_they_say() -> None:
    first = Rpc((message(1),), (Subscription("a", True),), Control(iwant=(b"1",), graft=("a",)), ("extra",))
    second = Rpc((message(2),), (Subscription("b", False),), Control((IHave("b", (b"2",)),), (b"3",), (), ("b",)))
    assert merge([first, second]) == Rpc(
        (message(1), message(2)),
        (Subscription("a", True), Subscription("b", False)),
        Control((IHave("b", (b"2",)),), (b"1", b"3"), ("a",), ("b",)),
        ("extra",),
    )


def test_what_follows_from_one_packet_goes_to_each_peer_in_one() -> None:
    """Seed 001, 37: counted by packets."""
    node = Node()
    node.join()
    node.connect(ONE, OTHER, THIRD)
    for peer in (ONE, OTHER):
        node.receive(peer, graft=[TOPIC])
    node.receive(ONE, message(1))
    sent = packets(
        node.receive(
            OTHER,
            message(2),
            message(3),
            ihave=[IHave(TOPIC, (b"new",))],
            iwant=[id_of(message(1))],
            graft=["elsewhere"],
        )
    )
    assert sent == {
        ONE: [Rpc((message(2), message(3)))],
        OTHER: [Rpc((message(1),), (), Control(iwant=(b"new",), prune=("elsewhere",)))],
    }


# What could not be sent


def lonely() -> Node:
    """In a topic, with one peer that is to have one in the mesh, and another peer."""
    node = Node(d=1, d_low=1, d_high=1)
    node.connect(ONE)
    node.do(Join(TOPIC))
    node.connect(OTHER, topics=[])
    return node


def lose(node: Node, **control: tuple[str, ...]) -> None:
    assert node.do(Unsent(ONE, Rpc(control=Control(**control)))) == ()


def test_graft_and_prune_are_sent_again_with_the_next_packet() -> None:
    """Seed 001, 38: to that peer, and to no other."""
    node = lonely()
    node.receive(ONE, subscribe=["elsewhere"])
    lose(node, graft=(TOPIC,), prune=("elsewhere",))
    sent = packets(node.do(Join("next")))
    assert sent[ONE] == [
        Rpc(subscriptions=(Subscription("next", True),), control=Control(graft=(TOPIC,), prune=("elsewhere",)))
    ]
    assert sent[OTHER] == [Rpc(subscriptions=(Subscription("next", True),))]
    assert packets(node.do(Leave("next")))[ONE] == [Rpc(subscriptions=(Subscription("next", False),))]


def test_they_are_sent_again_at_the_next_heartbeat_at_the_latest() -> None:
    """Seed 001, 38."""
    node = lonely()
    lose(node, graft=(TOPIC,))
    assert packets(node.beat()) == {ONE: [Rpc(control=Control(graft=(TOPIC,)))]}
    assert packets(node.beat()) == {}


def test_what_is_outdated_is_not_sent_again() -> None:
    """Seed 001, 38: GRAFT for one no longer in the mesh, PRUNE for one now in it."""
    node = lonely()
    lose(node, graft=("elsewhere",), prune=(TOPIC,))
    assert packets(node.beat()) == {}
    lose(node, graft=(TOPIC,))
    node.receive(ONE, prune=[TOPIC], unsubscribe=[TOPIC])
    assert packets(node.beat()) == {}


def test_prune_of_a_topic_that_nobody_is_in_is_not_sent_again() -> None:
    """Seed 001, 19 and 38: GRAFTs from a peer that does not read leave no state."""
    node = lonely()
    for number in range(50):
        answer = single(node.receive(ONE, graft=[f"topic {number}"]), ONE)
        node.do(Unsent(ONE, answer))
    assert packets(node.beat()) == {}


def test_what_is_kept_for_a_peer_is_limited() -> None:
    """Seed 001, 38: although the peer is in each of the topics for a while."""
    node = Node(max_topics=10)
    node.connect(ONE, topics=[])
    for number in range(50):
        topic = f"topic {number}"
        node.receive(ONE, subscribe=[topic])
        lose(node, prune=(topic,))
        node.receive(ONE, unsubscribe=[topic])
    # What was lost of a topic last counts all the same, and is outdated here.
    lose(node, graft=("topic 0",))
    assert told(node.beat(), "prune") == {ONE: tuple(f"topic {number}" for number in range(1, 10))}


def test_what_has_changed_since_is_told_as_it_is_now() -> None:
    node = lonely()
    lose(node, graft=(TOPIC,))
    control = single(node.do(Leave(TOPIC)), ONE).control
    assert control == Control(prune=(TOPIC,))


def test_a_packet_may_fail_again() -> None:
    """Seed 001, 38."""
    node = lonely()
    lose(node, graft=(TOPIC,))
    again = single(node.beat(), ONE)
    node.do(Unsent(ONE, again))
    assert single(node.beat(), ONE) == again


def test_gossip_requests_and_messages_are_not_sent_again() -> None:
    """Seed 001, 38: IHAVE and IWANT."""
    node = lonely()
    packet = Rpc((message(1),), (), Control((IHave(TOPIC, (b"a",)),), (b"b",)))
    assert node.do(Unsent(ONE, packet)) == ()
    assert packets(node.beat()) == {}


def test_announcements_are_sent_again_as_they_are_now() -> None:
    node = lonely()
    lost = single(node.do(Join("a")), ONE)
    node.do(Unsent(ONE, lost))
    node.do(Unsent(ONE, Rpc(subscriptions=(Subscription("b", True),))))
    assert single(node.beat(), ONE).subscriptions == (Subscription("a", True), Subscription("b", False))


def test_what_cannot_be_sent_to_strangers_is_forgotten() -> None:
    node = lonely()
    node.do(Unsent(b"stranger", Rpc(control=Control(graft=(TOPIC,)))))
    assert packets(node.beat()) == {}


def test_a_fan_out_message_carries_what_was_kept() -> None:
    """Seed 001, 38: whatever the packet is."""
    node = lonely()
    node.receive(OTHER, subscribe=["outside"])
    lose(node, graft=(TOPIC,))
    node.receive(ONE, subscribe=["outside"])
    node.receive(OTHER, unsubscribe=["outside"])
    sent = single(node.do(Publish(("outside",), b"data")), ONE)
    assert sent.control == Control(graft=(TOPIC,))
    assert [type(one) for one in sent.messages] == [Message]


def test_what_was_kept_goes_to_its_own_peer() -> None:
    """Seed 001, 38: packets to others carry none of it."""
    node = lonely()
    lose(node, graft=(TOPIC,))
    node.receive(OTHER, subscribe=["outside"])
    assert single(node.do(Publish(("outside",), b"data")), OTHER).control is None
    assert packets(node.beat()) == {ONE: [Rpc(control=Control(graft=(TOPIC,)))]}


def test_a_prune_to_who_has_left_the_topic_is_sent_again() -> None:
    """Seed 001, 38: our GRAFT may have been on its way to it."""
    node = lonely()
    lost = single(node.receive(ONE, unsubscribe=[TOPIC]), ONE)
    assert lost.control == Control(prune=(TOPIC,))
    node.do(Unsent(ONE, lost))
    assert packets(node.beat()) == {ONE: [Rpc(control=Control(prune=(TOPIC,)))]}


def test_what_is_told_now_counts_before_what_was_kept() -> None:
    """Seed 001, 38."""
    made = outbox()
    made.keep(ONE, Rpc(control=Control(graft=("a", "b"))))
    made.link(ONE, "a", False)
    assert packets(made.flush()) == {ONE: [Rpc(control=Control(graft=("b",), prune=("a",)))]}
