"""`gossiplog.pubsub.episub.router`: one, and small networks of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.pubsub.episub.config import Repair
from gossiplog.pubsub.episub.encoding import decode, encode
from gossiplog.pubsub.episub.messages import Envelope, GetTopics, Gossip, Graft, IHave, Join, Neighbor, Prune, Topics
from gossiplog.pubsub.episub.router import Episub
from gossiplog.pubsub.events import Deliver, Leave, PeerConnected, PeerDisconnected, Publish, Received, Rejected, Send
from gossiplog.pubsub.events import Join as JoinTopic
from tests.pubsub.episub.harness import ME, Lone, Net, sent
from tests.strategies import repeatable


def sequences(events: list[Any]) -> list[int]:
    return [event.packet.sequence for event in events if type(event) is Send]


# Envelopes


def test_every_packet_names_its_source_and_has_a_larger_sequence_id() -> None:
    """Seed 004, 4."""
    lone = Lone("n1", "n2")
    events = [event for _ in range(3) for event in lone.tell(Publish(("",), b"x"))]
    events += lone.get("n1", Join("far", 3)) + lone.tell(Leave(""))
    packets = [event.packet for event in events if type(event) is Send]
    assert all(type(packet) is Envelope and packet.source == ME for packet in packets)
    assert sequences(events) == sorted(set(sequences(events)))
    assert len(packets) >= 4


def test_replays_are_held_against_their_peer_where_messages_are_validated() -> None:
    """Seed 004, 4: they were dropped in silence, however many came."""
    router = Episub(ME, (), Random(0), validation=True)
    router.handle(JoinTopic(""), 0.0)
    router.handle(PeerConnected("n1"), 0.0)
    router.handle(Received("n1", Envelope("n1", 5, GetTopics())), 0.0)
    for packet in (Envelope("n1", 5, GetTopics()), Envelope("n2", 6, GetTopics())):
        assert router.handle(Received("n1", packet), 0.0) == (Rejected(("n1",)),)
    # What comes after the end of a connection is chance.
    assert router.handle(Received("n2", Envelope("n2", 6, GetTopics())), 0.0) == ()
    assert router.stale == 2


def test_a_packet_for_several_peers_is_one() -> None:
    lone = Lone("n1", "n2", "n3")
    [_, send] = [event for event in lone.tell(Publish(("",), b"x")) if type(event) in (Deliver, Send)]
    assert send.peers == ("n1", "n2", "n3")


def test_replays_and_packets_in_anothers_name_are_ignored() -> None:
    """Seed 004, 4."""
    lone = Lone("n1", "n2")
    packet = Envelope("n1", 1000, Gossip("s", 1, 1, b"x"))
    assert Deliver(("",), ("s", 1), b"x", "n1") in lone.tell(Received("n1", packet))
    assert lone.tell(Received("n1", packet)) == []
    assert lone.tell(Received("n1", Envelope("n1", 999, Gossip("s", 1, 2, b"y")))) == []
    assert lone.tell(Received("n2", Envelope("n1", 1001, Gossip("s", 1, 2, b"y")))) == []
    assert lone.tell(Received("nobody", Envelope("nobody", 1, Gossip("s", 1, 2, b"y")))) == []
    assert lone.router.stale == 3
    # Another connection is another count.
    lone.tell(PeerDisconnected("n1"))
    lone.tell(PeerConnected("n1"))
    assert sent(lone.tell(Received("n1", Envelope("n1", 0, Prune())))) != []


def test_the_first_sequence_id_is_the_drivers() -> None:
    router = Episub(ME, (), Random(0), sequence=5000)
    router.handle(JoinTopic(""), 0.0)
    [deliver, *_] = router.handle(Publish(("",), b"x"), 0.0)
    assert deliver.id == (ME, 5000)


def test_what_several_publish_under_one_name_is_one_message() -> None:
    router = Episub(ME, (), Random(0), name=lambda data: ("outside", len(data)))
    router.handle(JoinTopic(""), 0.0)
    [deliver, *_] = router.handle(Publish(("",), b"xyz"), 0.0)
    assert deliver.id == ("outside", 3)
    assert list(router.handle(Publish(("",), b"xyz"), 0.0)) == []


def test_another_topic_and_publishing_before_joining_are_errors() -> None:
    lone = Lone(joined=False)
    for event in (JoinTopic("other"), Leave("other")):
        with pytest.raises(ValueError, match="topic 'other': this router's is ''"):
            lone.tell(event)
    for topics, named in ((("other",), "'other'"), (("", "other"), "'', 'other'"), ((), "")):
        said = f"published to {named}: an episub router has one topic, and this one's is ''"
        with pytest.raises(ValueError, match=said):
            lone.tell(Publish(topics, b""))
    with pytest.raises(ValueError, match="before the topic was joined"):
        lone.tell(Publish(("",), b""))


def test_a_message_too_large_to_be_sent_is_refused_before_anything_happens() -> None:
    lone = Lone("n1")
    with pytest.raises(ValueError, match="a message of 1048577 bytes: expected 1048576 at most"):
        lone.tell(Publish(("",), bytes(2**20 + 1)))
    assert type(lone.tell(Publish(("",), bytes(2**20)))[0]) is Deliver


@pytest.mark.parametrize("topic", ["t" * 257, "é" * 129, "\ud800"])
def test_a_topic_that_peers_cannot_be_told_is_not_joined(topic: str) -> None:
    router = Episub(ME, ("n1",), Random(0), topic=topic)
    with pytest.raises(ValueError, match=r"topic .*: expected text of 256 bytes at most"):
        router.handle(JoinTopic(topic), 0.0)
    router.handle(PeerConnected("n1"), 0.0)
    assert sent(router.handle(Received("n1", Envelope("n1", 0, GetTopics())), 0.0)) == [("n1", Topics(()))]


@pytest.mark.parametrize("topic", ["t" * 256, "é" * 128])
def test_the_longest_topic_is_told_to_peers(topic: str) -> None:
    router = Episub(b"me", (), Random(0), topic=topic)
    router.handle(JoinTopic(topic), 0.0)
    router.handle(PeerConnected(b"n1"), 0.0)
    (told,) = router.handle(Received(b"n1", Envelope(b"n1", 0, GetTopics())), 0.0)
    assert decode(encode(told.packet)).message == Topics((topic,))


# Networks


@pytest.mark.slow
@repeatable(6)
@given(st.integers(2, 24), st.integers(0, 2**32), st.integers(1, 4))
def test_networks_of_any_size_become_one_symmetric_overlay(nodes: int, seed: int, contacts: int) -> None:
    """Seed 004, 5: the harness checks the lists at every event."""
    net = Net(nodes, contacts, seed, delay=lambda a, b: 0.01 + 0.1 * ((a * 7 + b * 7) % 11) / 11)
    net.run(30.0)
    assert net.symmetric()
    assert net.connected()
    net.publish(0, b"x")
    net.run(5.0)
    assert all(delivered == [b"x"] for delivered in net.delivered.values())


@pytest.mark.slow
@repeatable(6)
@given(st.integers(8, 16), st.integers(0, 2**32), st.lists(st.integers(0, 15), min_size=20, max_size=60))
def test_nodes_that_leave_and_join_at_any_time_have_no_neighbours_meanwhile(
    nodes: int, seed: int, toggled: list[int]
) -> None:
    """Seed 004, 5 and 18: the harness checks the lists at every event."""
    # Few links and many shuffles, so that connections are being made most of the time.
    sizes = {"random_links": 2, "near_links": 1, "shuffle": (0.5, 1.0)}
    net = Net(nodes, 2, seed, delay=lambda a, b: 0.1 + 0.1 * ((a * 7 + b * 7) % 11) / 11, **sizes)
    net.run(5.0)
    for number, node in enumerate(toggled):
        node %= nodes
        net.tell(node, Leave("") if node in net.joined else JoinTopic(""))
        if number % nodes in net.joined:
            net.publish(number % nodes, b"x")
        net.run(0.25)
    net.run(15.0)
    assert net.symmetric()


@pytest.mark.integration
def test_the_first_message_makes_a_tree_and_later_ones_hardly_any_copies() -> None:
    """Seed 004, 45."""
    net = Net(60, alpha=float("inf"), seed=1)
    net.run(40.0)
    for number in range(20):
        net.publish(0, b"%d" % number)
        net.run(0.5)
    copies = [sum(isinstance(m, Gossip) and m.data == b"%d" % n for _, _, _, m in net.log) - 59 for n in range(20)]
    assert copies[0] > 59 * 3
    assert sum(copies[5:]) < 0.2 * 59 * 15
    assert all(len(delivered) == 20 for delivered in net.delivered.values())
    eager = sum(len(router.eager) for router in net.routers.values())
    assert eager <= 2 * 59 * 1.1


@pytest.mark.integration
def test_proximity_lowers_the_round_trips_of_links() -> None:
    """Seed 004, 45: nodes on a ring, the delay is the distance."""

    def distance(a: int, b: int) -> float:
        apart = abs(a - b)
        return 0.01 + 0.006 * min(apart, 40 - apart)

    means = {}
    for alpha in (1.5, float("inf")):
        net = Net(40, delay=distance, alpha=alpha, optimize=(2.0, 3.0), check=(2.0, 3.0), seed=2)
        net.run(30.0)
        assert net.connected()
        delays = [distance(node, peer) for node, peers in net.active.items() for peer in peers]
        means[alpha] = sum(delays) / len(delays)
    assert means[1.5] < 0.9 * means[float("inf")]


@pytest.mark.integration
@pytest.mark.parametrize("repair", Repair)
def test_the_overlay_survives_the_loss_of_a_tenth_of_the_nodes(repair: Repair) -> None:
    """Seed 004, 44 and 45: it stays connected, the tree is repaired, and everybody gets every message."""
    net = Net(60, repair=repair, seed=4)
    net.run(40.0)
    for number in range(5):
        net.publish(0, b"%d" % number)
        net.run(0.2)
    for node in range(7, 60, 9):
        net.stop(node)
    failed = net.kernel.now
    for number in range(5, 30):
        net.publish(0, b"%d" % number)
        net.run(0.2)
    net.run(3.0)
    assert net.connected()
    assert net.symmetric()
    assert all(len(net.delivered[node]) == 30 for node in net.routers)
    grafts = [at - failed for at, _, _, message in net.log if at >= failed and isinstance(message, Graft)]
    asked = [at for at, _, _, message in net.log if at >= failed and isinstance(message, Graft) and message.msgs]
    assert max(grafts) < 5.0
    # What is promoted at once need not be asked for.
    if repair is Repair.PROMOTE:
        assert len(asked) < len(grafts)
        assert min(grafts) == 0.0
    else:
        assert len(asked) == len(grafts)
        assert min(grafts) > 0.25


def test_at_rest_nothing_is_announced() -> None:
    """Seed 004, 37."""
    net = Net(10)
    net.run(20.0)
    for number in range(3):
        net.publish(0, b"%d" % number)
    net.run(1.0)
    assert any(isinstance(message, IHave) for _, _, _, message in net.log)
    net.log.clear()
    net.run(20.0)
    assert net.log
    assert not any(isinstance(message, IHave) for _, _, _, message in net.log)


def test_neighbours_are_eager_as_soon_as_they_are_neighbours() -> None:
    """Seed 004, 33 and 43: whether they asked for the link or accepted it."""
    lone = Lone("n1", "n2")
    assert lone.router.eager == ("n1", "n2")
    lone.connect("n3")
    lone.get("n3", Neighbor((ME,)))
    assert lone.router.eager == ("n1", "n2", "n3")
