"""What becomes of messages: those that come, those that are published, and those that are asked for."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

import pytest

from gossiplog.protocol.broadcast.events import GossipAnswer
from gossiplog.pubsub.authorship import Anonymous, Signed
from gossiplog.pubsub.events import (
    Deliver,
    GossipAnswered,
    Join,
    Leave,
    PeerDisconnected,
    Publish,
    Rejected,
    TimerExpired,
)
from gossiplog.pubsub.gossipsub import Heartbeat
from gossiplog.pubsub.rpc import FLOODSUB, Control, IHave, Message, Rpc
from gossiplog.signer import Signer
from tests.pubsub.gossipsub.node import (
    OWN,
    TOPIC,
    Node,
    delivered,
    id_of,
    message,
    names,
    packets,
    receivers,
    single,
    told,
)

ONE, OTHER, THIRD = names(3)


def member(**config: Any) -> Node:
    """In a topic, with three peers in the mesh, which are enough, and two that speak floodsub."""
    node = Node(**{"d_low": 3} | config)
    node.join()
    node.connect(ONE, OTHER, THIRD)
    for peer in (ONE, OTHER, THIRD):
        node.receive(peer, graft=[TOPIC])
    node.connect(b"flooder", b"flooder too", protocol=FLOODSUB)
    return node


FLOODERS = [b"flooder", b"flooder too"]


def test_a_new_message_goes_to_floodsub_peers_first_and_then_to_the_mesh() -> None:
    """Seed 001, 26: all of them."""
    node = member()
    node.connect(b"lazy")
    orders = node.receive(b"lazy", message(1))
    assert delivered(orders) == [Deliver((TOPIC,), id_of(message(1)), b"data", b"lazy")]
    assert receivers(orders, message(1)) == [*FLOODERS, ONE, OTHER, THIRD]


@pytest.mark.parametrize("source", [ONE, b"flooder"])
@pytest.mark.parametrize("author", [OTHER, b"flooder too"])
def test_a_message_goes_neither_to_its_origin_nor_back(source: bytes, author: bytes) -> None:
    """Seed 001, 26."""
    orders = member().receive(source, message(1, author=author))
    assert set(receivers(orders, message(1, author=author))) == {*FLOODERS, ONE, OTHER, THIRD} - {source, author}


def crowd() -> tuple[Node, list[bytes], list[bytes]]:
    """In a topic, with more floodsub peers and a larger mesh than any parameter says."""
    node = Node()
    flooders, mesh = names(30, "flooder"), names(30)
    node.join()
    node.connect(*flooders, protocol=FLOODSUB)
    node.connect(*mesh)
    for peer in mesh:
        node.receive(peer, graft=[TOPIC])
    return node, flooders, mesh


def test_a_message_goes_to_all_however_many_they_are() -> None:
    """Seed 001, 26 and 29: others' messages and own ones."""
    node, flooders, mesh = crowd()
    assert receivers(node.receive(mesh[0], message(1)), message(1)) == [*flooders, *mesh[1:]]
    orders = node.do(Publish((TOPIC,), b"own"))
    (sent,) = single(orders, mesh[0]).messages
    assert receivers(orders, sent) == [*flooders, *mesh]


def test_a_message_for_nobody_else_is_delivered_only() -> None:
    node = Node()
    node.join()
    node.connect(ONE)
    node.receive(ONE, graft=[TOPIC])
    assert packets(node.receive(ONE, message(1))) == {}


def test_a_copy_is_neither_delivered_nor_forwarded() -> None:
    """Seed 001, 27: from anyone, as long as the id is remembered. Seed 001, 11: the seen cache gates both."""
    node = member()
    node.receive(ONE, message(1))
    node.now = 119.9
    node.do(TimerExpired(Heartbeat()))
    for peer in (ONE, OTHER, b"flooder"):
        assert node.receive(peer, message(1), message(1)) == ()
    node.now = 120.0
    node.do(TimerExpired(Heartbeat()))
    assert len(delivered(node.receive(ONE, message(1), message(1)))) == 1


def test_an_own_message_that_comes_back_is_ignored() -> None:
    """Seed 001, 27: also when it is not remembered any more."""
    node = member()
    (sent,) = single(node.do(Publish((TOPIC,), b"own")), ONE).messages
    assert sent.author == OWN
    assert node.receive(ONE, sent) == ()
    node.now = 1000.0
    node.do(TimerExpired(Heartbeat()))
    assert node.receive(ONE, sent) == ()


def test_messages_of_topics_that_we_are_not_in_are_ignored() -> None:
    """Seed 001, 40: unknown topics leave no state."""
    node = member()
    assert node.receive(ONE, message(1, topic="elsewhere")) == ()
    node.do(Join("elsewhere"))
    assert len(delivered(node.receive(ONE, message(1, topic="elsewhere")))) == 1


def test_messages_of_unknown_peers_are_ignored() -> None:
    node = member()
    assert node.receive(b"stranger", message(1)) == ()
    node.do(PeerDisconnected(ONE))
    assert node.receive(ONE, message(1)) == ()
    assert len(delivered(node.receive(OTHER, message(1)))) == 1


# Validation


def short(message: Message) -> bool:
    return len(message.data) <= 100


def test_invalid_messages_go_nowhere() -> None:
    """Seed 001, 25: not delivered, forwarded, cached or gossiped; judged after the checks that cost less."""
    judged: list[Message] = []

    def is_valid(message: Message) -> bool:
        judged.append(message)
        return short(message)

    node = Node(options={"is_valid": is_valid})
    node.join(ONE)
    node.connect(*names(9))
    node.receive(ONE, graft=[TOPIC])
    long, fine = message(1, data=bytes(101)), message(2, data=bytes(100))
    assert node.receive(ONE, long) == ()
    assert node.receive(ONE, long) == ()
    assert len(delivered(node.receive(ONE, fine))) == 1
    assert node.receive(OTHER, fine) == ()
    assert node.receive(OTHER, message(3, author=OWN)) == ()
    assert node.receive(OTHER, message(3, topic="elsewhere")) == ()
    assert judged == [long, fine]
    assert packets(node.receive(OTHER, iwant=[id_of(long)])) == {}
    gossip = told(node.beat(), "ihave")
    assert {ihave for (ihave,) in gossip.values()} == {IHave(TOPIC, (id_of(fine),))}


def test_invalid_messages_reach_nobody_else() -> None:
    """Seed 001, 25: neither the mesh nor floodsub peers."""
    node = Node(options={"is_valid": short})
    node.join()
    node.connect(ONE, OTHER)
    node.connect(*FLOODERS, protocol=FLOODSUB)
    node.receive(OTHER, graft=[TOPIC])
    assert node.receive(ONE, message(1, data=bytes(101))) == ()
    assert len(receivers(node.receive(ONE, message(2)), message(2))) == 3


def test_an_invalid_message_is_not_asked_for_again() -> None:
    node = Node(options={"is_valid": short})
    node.join()
    node.connect(ONE, OTHER)
    node.receive(ONE, message(1, data=bytes(101)))
    assert node.receive(OTHER, ihave=[IHave(TOPIC, (id_of(message(1)),))]) == ()


def test_the_application_is_told_what_it_cannot_publish() -> None:
    node = Node(options={"is_valid": short}, max_data=200)
    with pytest.raises(ValueError, match="calls this message in 'topic' invalid, of 101 bytes"):
        node.do(Publish((TOPIC,), bytes(101)))
    with pytest.raises(ValueError, match="a message of 201 bytes; at most 200 can be published"):
        node.do(Publish((TOPIC,), bytes(201)))
    node.connect(*names(9))
    assert packets(node.beat()) == {}


def validating(**config: Any) -> Node:
    """As `member`, but others' messages wait for the application's answer."""
    node = Node(options={"validation": True}, **{"d_low": 3} | config)
    node.join()
    node.connect(ONE, OTHER, THIRD)
    for peer in (ONE, OTHER, THIRD):
        node.receive(peer, graft=[TOPIC])
    node.connect(*FLOODERS, protocol=FLOODSUB)
    node.connect(b"lazy")
    return node


def test_a_message_that_waits_is_delivered_and_goes_nowhere() -> None:
    """Seed 001, 25: nor is one that waits for the application's answer forwarded, cached or gossiped."""
    node = validating()
    assert node.receive(ONE, message(1)) == (Deliver((TOPIC,), id_of(message(1)), b"data", ONE),)
    assert node.receive(OTHER, message(1)) == ()
    assert node.receive(THIRD, ihave=[IHave(TOPIC, (id_of(message(1)),))]) == ()
    assert packets(node.receive(b"lazy", iwant=[id_of(message(1))])) == {}
    assert told(node.beat(), "ihave") == {}


def test_an_accepted_message_goes_to_all_who_have_not_sent_it() -> None:
    """Seed 001, 25: neither the senders of copies get it, nor the first."""
    node = validating()
    node.receive(ONE, message(1))
    node.receive(OTHER, message(1))
    node.receive(b"flooder too", message(1))
    orders = node.do(GossipAnswered(id_of(message(1)), GossipAnswer.ACCEPT))
    assert receivers(orders, message(1)) == [b"flooder", THIRD]
    assert delivered(orders) == []
    assert told(node.beat(), "ihave") == {b"lazy": (IHave(TOPIC, (id_of(message(1)),)),)}
    assert single(node.receive(b"lazy", iwant=[id_of(message(1))]), b"lazy").messages == (message(1),)
    for answer in GossipAnswer:
        assert node.do(GossipAnswered(id_of(message(1)), answer)) == ()
    assert node.receive(THIRD, message(1)) == ()


def test_an_accepted_message_does_not_go_to_its_author() -> None:
    node = validating()
    node.receive(ONE, message(1, author=OTHER))
    orders = node.do(GossipAnswered(id_of(message(1, author=OTHER)), GossipAnswer.ACCEPT))
    assert receivers(orders, message(1, author=OTHER)) == [*FLOODERS, THIRD]


@pytest.mark.parametrize(
    ("answer", "orders"), [(GossipAnswer.IGNORE, ()), (GossipAnswer.REJECT, (Rejected((ONE, OTHER)),))]
)
def test_a_message_that_is_not_accepted_is_dropped_and_not_new_again(
    answer: GossipAnswer, orders: tuple[Any, ...]
) -> None:
    """Seed 001, 25: ignored or rejected."""
    node = validating()
    node.receive(ONE, message(1))
    node.receive(OTHER, message(1))
    assert node.do(GossipAnswered(id_of(message(1)), answer)) == orders
    assert node.do(GossipAnswered(id_of(message(1)), GossipAnswer.ACCEPT)) == ()
    assert node.receive(THIRD, message(1)) == ()
    assert packets(node.receive(b"lazy", iwant=[id_of(message(1))])) == {}
    assert told(node.beat(), "ihave") == {}


def test_an_answer_comes_too_late_when_messages_are_no_longer_kept() -> None:
    """Seed 001, 25: after as many heartbeats as messages are cached."""
    node = validating(mcache_len=5)
    for number in (1, 2):
        node.receive(ONE, message(number))
    node.beat(4)
    assert receivers(node.do(GossipAnswered(id_of(message(1)), GossipAnswer.ACCEPT)), message(1)) == [
        *FLOODERS,
        OTHER,
        THIRD,
    ]
    node.beat()
    assert node.do(GossipAnswered(id_of(message(2)), GossipAnswer.ACCEPT)) == ()


def test_a_message_that_waited_is_kept_no_longer_than_others() -> None:
    """Seed 001, 25: its heartbeats count from when it came, as in rust-libp2p, not from the answer."""
    node = validating(mcache_len=5, mcache_gossip=3)
    node.receive(ONE, message(1))
    node.receive(ONE, message(2))
    node.beat(2)
    node.do(GossipAnswered(id_of(message(1)), GossipAnswer.ACCEPT))
    assert told(node.beat(), "ihave") == {b"lazy": (IHave(TOPIC, (id_of(message(1)),)),)}
    node.do(GossipAnswered(id_of(message(2)), GossipAnswer.ACCEPT))
    assert told(node.beat(), "ihave") == {}
    wanted = [id_of(message(number)) for number in (1, 2)]
    assert len(single(node.receive(b"lazy", iwant=wanted), b"lazy").messages) == 2
    node.beat()
    assert packets(node.receive(b"lazy", iwant=wanted)) == {}


def test_what_finds_no_room_to_wait_is_not_delivered() -> None:
    """Seed 001, 25: and what is not delivered is not forwarded."""
    node = validating(max_unanswered=2)
    assert [len(delivered(node.receive(ONE, message(number)))) for number in range(3)] == [1, 1, 0]
    node.do(GossipAnswered(id_of(message(0)), GossipAnswer.IGNORE))
    assert [len(delivered(node.receive(ONE, message(number)))) for number in (2, 3)] == [0, 1]


def test_own_messages_do_not_wait() -> None:
    node = validating()
    orders = node.do(Publish((TOPIC,), b"own"))
    (sent,) = single(orders, ONE).messages
    assert [order.source for order in delivered(orders)] == [None]
    assert receivers(orders, sent) == [*FLOODERS, ONE, OTHER, THIRD]


def test_invalid_messages_do_not_wait() -> None:
    node = Node(options={"validation": True, "is_valid": short})
    node.join(ONE)
    node.connect(ONE)
    assert node.receive(ONE, message(1, data=bytes(101))) == ()
    assert node.do(GossipAnswered(id_of(message(1)), GossipAnswer.REJECT)) == ()


def test_an_accepted_message_of_a_topic_that_we_have_left_goes_nowhere() -> None:
    node = validating()
    node.receive(ONE, message(1))
    node.do(Leave(TOPIC))
    assert packets(node.do(GossipAnswered(id_of(message(1)), GossipAnswer.ACCEPT))) == {}


def test_a_forged_message_does_not_stand_in_the_way_of_the_genuine_one() -> None:
    author = Signed(Signer(bytes(32)), Random(1))
    node = Node(Signed(Signer(bytes([1]) * 32), Random(2)))
    node.join()
    node.connect(ONE, OTHER)
    genuine = author.compose((TOPIC,), b"data")
    forged = Message((TOPIC,), b"other", genuine.author, genuine.seqno, genuine.signature)
    assert node.receive(ONE, forged) == ()
    assert [order.data for order in delivered(node.receive(OTHER, genuine))] == [b"data"]


# Ids


def test_ids_are_the_author_and_the_number_unless_told_otherwise() -> None:
    """Seed 001, 7: the same id everywhere it is compared."""
    node = member()
    (order,) = delivered(node.receive(ONE, message(7, author=b"them")))
    assert order.id == b"them" + bytes(7) + b"\7"


def by_content(message: Message) -> Hashable:
    return message.data


def test_anonymous_messages_need_ids_of_their_own() -> None:
    """Seed 001, 2: the author and the number would be the same of all of them."""
    with pytest.raises(ValueError, match="no author and no number to make their ids of; pass an id_of"):
        Node(Anonymous())


def test_ids_may_be_any_function_of_the_message() -> None:
    """Seed 001, 7: it is compared with what was seen, announced, asked for, and is delivered."""
    node = Node(options={"id_of": by_content}, d=1, d_low=1, d_high=1)
    node.join()
    node.connect(ONE, OTHER, THIRD)
    node.receive(ONE, graft=[TOPIC])
    first, again = message(1, data=b"same"), message(2, data=b"same")
    assert [order.id for order in delivered(node.receive(ONE, first))] == [b"same"]
    assert node.receive(OTHER, again) == ()
    asked = told(node.receive(OTHER, ihave=[IHave(TOPIC, (b"same", b"unknown"))]), "iwant")
    assert asked == {OTHER: (b"unknown",)}
    assert single(node.receive(OTHER, iwant=[b"same"]), OTHER).messages == (first,)
    assert set(told(node.beat(), "ihave").values()) == {(IHave(TOPIC, (b"same",)),)}
    # Its own, published twice, is one message.
    assert len(delivered(node.do(Publish((TOPIC,), b"mine")))) == 1
    assert node.do(Publish((TOPIC,), b"mine")) == ()


# Announcements and requests


def test_ihave_is_answered_with_one_iwant() -> None:
    """Seed 001, 22: for the ids that were not seen. Seed 001, 11: the seen cache gates the answer, own messages too."""
    node = member()
    (own,) = single(node.do(Publish((TOPIC,), b"own")), ONE).messages
    node.receive(ONE, message(1))
    known = (id_of(own), id_of(message(1)))
    orders = node.receive(OTHER, ihave=[IHave(TOPIC, (*known, b"a", b"b")), IHave(TOPIC, (b"b", b"c"))])
    assert packets(orders) == {OTHER: [Rpc(control=Control(iwant=(b"a", b"b", b"c")))]}
    assert node.receive(OTHER, ihave=[IHave(TOPIC, known)]) == ()


def test_all_that_is_unknown_is_asked_for() -> None:
    """Seed 001, 22: a thousand ids, in two topics."""
    node = member()
    node.do(Join("other"))
    ids = [b"id %d" % number for number in range(1000)]
    told_of = [IHave(TOPIC, tuple(ids[:600])), IHave("other", tuple(ids[600:]))]
    assert told(node.receive(ONE, ihave=told_of), "iwant") == {ONE: tuple(ids)}


def test_ihave_of_topics_that_we_are_not_in_is_ignored() -> None:
    """Seed 001, 40: unknown topics do no harm."""
    node = member()
    assert node.receive(ONE, ihave=[IHave("elsewhere", (b"id",))]) == ()


def test_what_a_peer_can_make_us_ask_for_is_limited() -> None:
    node = member(max_ids=10)
    flood = [IHave(TOPIC, tuple(b"%d %d" % (packet, number) for number in range(4))) for packet in range(5)]
    asked = [len(told(node.receive(ONE, ihave=[ihave]), "iwant").get(ONE, ())) for ihave in flood]
    assert asked == [4, 4, 2, 0, 0]
    assert len(told(node.receive(OTHER, ihave=flood), "iwant")[OTHER]) == 10
    node.beat()
    assert len(told(node.receive(ONE, ihave=flood), "iwant")[ONE]) == 10


def test_iwant_is_answered_to_the_asker_alone() -> None:
    """Seed 001, 23: what is still in the cache; other ids are passed over without error."""
    node = member()
    node.receive(ONE, message(1))
    node.receive(ONE, message(2))
    orders = node.receive(OTHER, iwant=[b"unknown", id_of(message(2)), id_of(message(1)), id_of(message(2))])
    assert packets(orders) == {OTHER: [Rpc((message(2), message(1)))]}
    assert node.receive(OTHER, iwant=[b"unknown"]) == ()
    node.beat(5)
    assert node.receive(OTHER, iwant=[id_of(message(1))]) == ()


def test_all_that_is_asked_for_and_there_is_sent() -> None:
    """Seed 001, 23: a hundred messages, in one packet."""
    node = member()
    many = [message(number) for number in range(100)]
    for one in many:
        node.receive(ONE, one)
    assert packets(node.receive(OTHER, iwant=[id_of(one) for one in many])) == {OTHER: [Rpc(tuple(many))]}


def test_a_flood_of_iwant_is_answered_a_few_times() -> None:
    node = member()
    node.receive(ONE, message(1))
    answers = [len(receivers(node.receive(OTHER, iwant=[id_of(message(1))] * 100), message(1))) for _ in range(10)]
    assert answers == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert receivers(node.receive(THIRD, iwant=[id_of(message(1))]), message(1)) == [THIRD]


def test_messages_are_processed_before_control_messages() -> None:
    """Seed 001, 24: in one packet."""
    node = member()
    orders = node.receive(
        ONE, message(1), ihave=[IHave(TOPIC, (id_of(message(1)),))], iwant=[id_of(message(1))], prune=[TOPIC]
    )
    assert told(orders, "iwant") == {}
    assert receivers(orders, message(1)).count(ONE) == 1
    node = member()
    node.receive(ONE, prune=[TOPIC])
    orders = node.receive(ONE, message(1, author=OTHER), graft=[TOPIC])
    assert receivers(orders, message(1, author=OTHER)) == [*FLOODERS, THIRD]


def test_a_message_that_was_asked_for_is_as_good_as_any() -> None:
    """Seed 001, 28: delivered, cached, gossiped and forwarded to the mesh."""
    node = member()
    node.connect(b"lazy")
    assert told(node.receive(b"lazy", ihave=[IHave(TOPIC, (id_of(message(1)),))]), "iwant")
    orders = node.receive(b"lazy", message(1))
    assert len(delivered(orders)) == 1
    assert receivers(orders, message(1)) == [*FLOODERS, ONE, OTHER, THIRD]
    assert receivers(node.receive(b"lazy", iwant=[id_of(message(1))]), message(1)) == [b"lazy"]
    assert told(node.beat(), "ihave") == {b"lazy": (IHave(TOPIC, (id_of(message(1)),)),)}


# Publishing


def test_what_is_published_goes_to_floodsub_peers_and_the_whole_mesh() -> None:
    """Seed 001, 29: it is cached for IWANT and for gossip like what came."""
    node = member()
    node.connect(b"lazy")
    orders = node.do(Publish((TOPIC,), b"own"))
    (sent,) = single(orders, ONE).messages
    assert receivers(orders, sent) == [*FLOODERS, ONE, OTHER, THIRD]
    assert delivered(orders) == [Deliver((TOPIC,), id_of(sent), b"own", None)]
    assert receivers(node.receive(b"lazy", iwant=[id_of(sent)]), sent) == [b"lazy"]
    assert told(node.beat(), "ihave") == {b"lazy": (IHave(TOPIC, (id_of(sent),)),)}


def test_own_messages_have_ascending_numbers() -> None:
    node = member()
    numbers = [single(node.do(Publish((TOPIC,), b"same")), ONE).messages[0].seqno for _ in range(3)]
    first = int.from_bytes(numbers[0] or b"", "big")
    assert numbers == [(first + step).to_bytes(8, "big") for step in range(3)]


def test_what_is_published_elsewhere_goes_to_floodsub_peers_and_the_fan_out() -> None:
    """Seed 001, 30: an empty fan-out is filled with D at random, and the next message uses the same."""
    node = Node()
    node.connect(*names(20))
    node.connect(*FLOODERS, protocol=FLOODSUB)
    first = packets(node.do(Publish((TOPIC,), b"first")))
    fanout = node.router.fanout(TOPIC)
    assert len(fanout) == 6
    assert set(first) == {*FLOODERS, *fanout}
    assert list(first)[:2] == FLOODERS
    node.connect(*names(40)[20:])
    assert set(packets(node.do(Publish((TOPIC,), b"second")))) == set(first)
    assert node.router.topics == ()


def test_what_is_published_elsewhere_goes_to_any_number_of_floodsub_peers_and_the_whole_fan_out() -> None:
    """Seed 001, 30."""
    node = Node(d=20, d_high=20)
    flooders = names(30, "flooder")
    node.connect(*names(40))
    node.connect(*flooders, protocol=FLOODSUB)
    sent = packets(node.do(Publish((TOPIC,), b"data")))
    assert len(node.router.fanout(TOPIC)) == 20
    assert set(sent) == {*flooders, *node.router.fanout(TOPIC)}


def test_what_is_published_elsewhere_is_not_delivered_here() -> None:
    node = Node()
    node.connect(ONE)
    assert delivered(node.do(Publish((TOPIC,), b"data"))) == []


@pytest.mark.parametrize("known", [0, 1, 5, 6, 7])
def test_a_fan_out_has_d_peers_or_all_there_are(known: int) -> None:
    """Seed 001, 30."""
    node = Node()
    node.connect(*names(known))
    assert len(packets(node.do(Publish((TOPIC,), b"data")))) == len(node.router.fanout(TOPIC)) == min(known, 6)


def test_fan_out_peers_that_went_away_are_replaced_at_the_next_message() -> None:
    """Seed 001, 31: to D, those who left the topic and those who disconnected."""
    node = Node()
    node.connect(*names(12))
    node.do(Publish((TOPIC,), b"first"))
    left, gone, *rest = node.router.fanout(TOPIC)
    node.receive(left, unsubscribe=[TOPIC])
    node.do(PeerDisconnected(gone))
    assert set(node.router.fanout(TOPIC)) == set(rest)
    sent = packets(node.do(Publish((TOPIC,), b"second")))
    assert len(sent) == 6
    assert set(rest) < set(sent) == set(node.router.fanout(TOPIC))
    assert not {left, gone} & set(sent)


def test_a_message_that_nobody_was_there_for_is_gossiped_about() -> None:
    node = Node()
    node.do(Publish((TOPIC,), b"data"))
    node.connect(*names(9))
    assert len(told(node.beat(), "ihave")) == 3


def test_anonymous_messages_travel_by_their_content() -> None:
    node = Node(Anonymous(), options={"id_of": by_content})
    node.join()
    node.connect(ONE, OTHER)
    for peer in (ONE, OTHER):
        node.receive(peer, graft=[TOPIC])
    bare = Message((TOPIC,), b"data")
    assert receivers(node.receive(ONE, bare), bare) == [OTHER]
    assert node.receive(OTHER, bare) == ()
    assert node.receive(OTHER, message(1, data=b"named")) == ()
    node.do(Leave(TOPIC))
    assert node.receive(ONE, Message((TOPIC,), b"more")) == ()
