"""What happens at every heartbeat: meshes, fan-outs, gossip, and the shift of the message cache, in this order."""

from __future__ import annotations

from random import Random

import pytest

from gossiplog.pubsub.authorship import Named
from gossiplog.pubsub.events import Join, Leave, Publish, TimerExpired
from gossiplog.pubsub.gossipsub import GossipSub, Heartbeat
from gossiplog.pubsub.rpc import FLOODSUB, Control, IHave, Rpc
from tests.pubsub.gossipsub.node import OWN, TOPIC, Node, id_of, message, names, packets, receivers, single, told
from tests.pubsub.ids import Ids


def meshed(count: int, candidates: int = 0, **config: float) -> Node:
    """In a topic, with so many peers in the mesh, and as many others."""
    node = Node(**config)
    node.join()
    node.connect(*names(count), *names(candidates, "candidate"))
    for peer in names(count):
        node.receive(peer, graft=[TOPIC])
    return node


def test_heartbeats_come_once_an_interval() -> None:
    node = Node(heartbeat_interval=0.7)
    assert 0.0 <= node.due <= 0.7
    for _ in range(3):
        before = node.due
        node.beat()
        assert node.due == before + 0.7


def test_routers_do_not_beat_at_once() -> None:
    firsts = {GossipSub(OWN, Random(seed), Named(OWN, Random(0))).start(5.0)[0].at for seed in range(9)}
    assert len(firsts) == 9
    assert all(5.0 <= first <= 6.0 for first in firsts)


def test_other_timers_are_none_of_its_own() -> None:
    assert meshed(0, 9).do(TimerExpired("other")) == ()


@pytest.mark.parametrize(("before", "added"), [(0, 6), (2, 4), (3, 3), (4, 0), (5, 0), (6, 0)])
def test_a_mesh_below_d_low_is_filled_to_d(before: int, added: int) -> None:
    """Seed 001, 32: with random peers of the topic that are not in it, a GRAFT each."""
    node = meshed(before, 20)
    node.connect(*names(9, "flooder"), protocol=FLOODSUB)
    node.connect(*names(9, "elsewhere"), topics=["elsewhere"])
    grafted = told(node.beat(), "graft")
    assert set(grafted.values()) <= {(TOPIC,)}
    assert len(grafted) == added
    assert set(grafted) <= set(names(20, "candidate"))
    assert set(node.router.mesh(TOPIC)) == {*names(before), *grafted}


def test_a_mesh_is_filled_at_random() -> None:
    """Seed 001, 32: not with those who came first, or last."""
    candidates = names(20, "candidate")
    grafted = set(told(meshed(0, 20).beat(), "graft"))
    assert grafted not in (set(candidates[:6]), set(candidates[-6:]))


def test_the_mesh_of_each_topic_is_maintained() -> None:
    """Seed 001, 32 and 33: of thirty topics, half of which have too few members and half too many."""
    node = Node(d=1, d_low=1, d_high=2)
    topics = [f"topic {number}" for number in range(30)]
    for topic in topics:
        node.do(Join(topic))
    node.connect(*names(4), topics=topics)
    for peer in names(4):
        node.receive(peer, graft=topics[15:])
    node.beat()
    assert [len(node.router.mesh(topic)) for topic in topics] == [1] * 30


def test_a_mesh_is_filled_with_all_candidates_where_there_are_too_few() -> None:
    """Seed 001, 32."""
    node = meshed(2, 3)
    assert set(told(node.beat(), "graft")) == set(names(3, "candidate"))
    assert told(node.beat(), "graft") == {}


@pytest.mark.parametrize(("before", "removed"), [(6, 0), (12, 0), (13, 7), (14, 8), (30, 24)])
def test_a_mesh_above_d_high_is_cut_to_d(before: int, removed: int) -> None:
    """Seed 001, 33: at random, a PRUNE each."""
    node = meshed(before)
    pruned = told(node.beat(), "prune")
    assert set(pruned.values()) <= {(TOPIC,)}
    assert len(pruned) == removed
    assert set(node.router.mesh(TOPIC)) == set(names(before)) - set(pruned)
    # Not those who came first, or last.
    assert removed == 0 or set(pruned) not in (set(names(before)[:removed]), set(names(before)[-removed:]))


@pytest.mark.parametrize("ttl", [60.0, 120.0])
def test_a_fan_out_is_dropped_some_time_after_the_last_message(ttl: float) -> None:
    """Seed 001, 34: both sides of the bound. Seed 001, 1: a minute by default, two where that is set."""
    node = Node(fanout_ttl=ttl)
    node.connect(*names(3))
    node.do(Publish((TOPIC,), b"first"))
    node.now = 30.0
    node.do(Publish((TOPIC,), b"second"))
    node.now = 30.0 + ttl
    node.do(TimerExpired(Heartbeat()))
    assert len(node.router.fanout(TOPIC)) == 3
    node.now += 0.001
    node.do(TimerExpired(Heartbeat()))
    assert node.router.fanout(TOPIC) == ()


def test_a_fan_out_is_filled_to_d() -> None:
    """Seed 001, 34. Seed 001, 31: those that went away are replaced at the heartbeat."""
    node = Node()
    node.connect(*names(4))
    node.do(Publish((TOPIC,), b"data"))
    node.connect(*names(20)[4:])
    gone = names(1)[0]
    node.receive(gone, unsubscribe=[TOPIC])
    assert len(node.router.fanout(TOPIC)) == 3
    orders = node.beat()
    assert told(orders, "graft") == {}
    fanout = set(node.router.fanout(TOPIC))
    assert len(fanout) == 6
    assert set(names(4)) - {gone} < fanout <= set(names(20)) - {gone}


# Gossip


def test_gossip_goes_to_others_than_the_mesh() -> None:
    """Seed 001, 35: drawn among the gossipsub peers of the topic that are not in it, as many as D_lazy."""
    node = meshed(6, 20)
    node.receive(names(1)[0], message(1))
    seen = set()
    for _ in range(3):
        gossip = told(node.beat(), "ihave")
        assert set(gossip.values()) == {(IHave(TOPIC, (id_of(message(1)),)),)}
        assert len(gossip) == 6
        seen |= set(gossip)
    assert len(seen) > 6
    assert seen <= set(names(20, "candidate"))


@pytest.mark.parametrize(("lazy", "others", "expected"), [(None, 4, 4), (3, 9, 3), (9, 20, 9), (0, 9, 0), (9, 0, 0)])
def test_gossip_reaches_d_lazy_peers_or_all_there_are(lazy: int | None, others: int, expected: int) -> None:
    """Seed 001, 35. Seed 001, 1: D_lazy is D unless set."""
    node = Node(d_lazy=lazy)
    node.join()
    node.connect(*names(6), *names(others, "candidate"))
    for peer in names(6):
        node.receive(peer, graft=[TOPIC])
    node.receive(names(1)[0], message(1))
    assert len(told(node.beat(), "ihave")) == expected


def test_the_fan_out_is_gossiped_beyond_as_well() -> None:
    """Seed 001, 35: each topic in mesh and fanout, to peers that are in neither."""
    node = Node()
    node.connect(*names(10))
    (sent,) = single(node.do(Publish((TOPIC,), b"data")), node.router.fanout(TOPIC)[0]).messages
    gossip = told(node.beat(), "ihave")
    assert set(gossip) == set(names(10)) - set(node.router.fanout(TOPIC))
    assert set(gossip.values()) == {(IHave(TOPIC, (id_of(sent),)),)}


def test_each_topic_is_gossiped_about_with_all_of_its_ids() -> None:
    """Seed 001, 9 and 35: a hundred of each, and of no other topic."""
    node = Node(d=0, d_low=0, d_high=0, d_lazy=9)
    for topic in (TOPIC, "other"):
        node.do(Join(topic))
    node.connect(b"peer", topics=[TOPIC, "other"])
    many = {topic: [message(number, topic, topic.encode()) for number in range(100)] for topic in (TOPIC, "other")}
    node.receive(b"peer", *many[TOPIC], *many["other"])
    expected = tuple(IHave(topic, tuple(map(id_of, messages))) for topic, messages in many.items())
    assert told(node.beat(), "ihave") == {b"peer": expected}


def test_a_message_is_announced_at_three_heartbeats() -> None:
    """Seed 001, 9 and 10: not at a fourth; the cache is shifted once a heartbeat, after the gossip."""
    node = meshed(6, 3)
    node.receive(names(1)[0], message(1))
    assert [len(told(node.beat(), "ihave")) for _ in range(5)] == [3, 3, 3, 0, 0]


def test_a_message_can_be_asked_for_during_five_heartbeats() -> None:
    """Seed 001, 10: the cache is shifted once a heartbeat. Seed 001, 8."""
    node = meshed(6, 9)
    node.receive(names(1)[0], message(1))
    answered = []
    for asker in names(6, "candidate"):
        answered.append(len(receivers(node.receive(asker, iwant=[id_of(message(1))]), message(1))))
        node.beat()
    assert answered == [1, 1, 1, 1, 1, 0]


def test_there_is_no_gossip_without_messages() -> None:
    """Seed 001, 36: nor of other topics' messages."""
    node = meshed(6, 9)
    assert packets(node.beat()) == {}
    node.do(Join("quiet"))
    node.connect(*names(9, "quiet"), topics=["quiet"])
    node.beat()
    node.receive(names(1)[0], message(1))
    gossip = told(node.beat(), "ihave")
    assert {ihave.topic for ihaves in gossip.values() for ihave in ihaves} == {TOPIC}


def test_floodsub_peers_never_get_control_messages() -> None:
    """Seed 001, 36: from joining to leaving."""
    node = Node()
    node.connect(b"flooder", protocol=FLOODSUB)
    node.connect(*names(3))
    orders = [*node.do(Publish((TOPIC,), b"data")), *node.beat(), *node.do(Join(TOPIC))]
    orders += [*node.receive(names(1)[0], message(1)), *node.beat(2), *node.do(Leave(TOPIC))]
    sent = packets(orders)[b"flooder"]
    assert sum(len(packet.messages) for packet in sent) == 2
    assert [packet.control for packet in sent] == [None] * len(sent)


def test_gossip_of_each_topic_is_limited() -> None:
    node = meshed(6, 1, max_ids=3, d_low=0)
    node.do(Join("other"))
    node.receive(names(1, "candidate")[0], subscribe=["other"])
    for number in range(5):
        node.receive(names(1)[0], message(number), message(number + 5, "other"))
    (ihaves,) = told(node.beat(), "ihave").values()
    assert [(ihave.topic, len(ihave.ids)) for ihave in ihaves] == [(TOPIC, 3), ("other", 3)]


# The order


@pytest.mark.parametrize(("before", "candidates"), [(0, 6), (3, 9), (13, 0)])
def test_gossip_goes_to_those_whom_the_heartbeat_left_out_of_the_mesh(before: int, candidates: int) -> None:
    """Seed 001, 32, 33 and 35: meshes are filled or cut first."""
    node = meshed(before, candidates)
    node.receive([*names(before), *names(candidates, "candidate")][0], message(1))
    gossip = told(node.beat(), "ihave")
    everybody = {*names(before), *names(candidates, "candidate")}
    assert len(node.router.mesh(TOPIC)) == 6
    assert len(gossip) == min(6, len(everybody) - 6)
    assert set(gossip) <= everybody - set(node.router.mesh(TOPIC))


def test_gossip_goes_to_those_whom_the_heartbeat_left_out_of_the_fan_out() -> None:
    """Seed 001, 34 and 35: fan-outs are filled first, and those that are over are dropped."""
    node = Node()
    node.connect(*names(2))
    node.do(Publish((TOPIC,), b"data"))
    node.connect(*names(8)[2:])
    gossip = told(node.beat(), "ihave")
    assert set(gossip) == set(names(8)) - set(node.router.fanout(TOPIC))
    assert len(gossip) == 2
    brief = Node(fanout_ttl=0.1)
    brief.connect(*names(8))
    brief.now = brief.due - 0.2
    brief.do(Publish((TOPIC,), b"data"))
    assert told(brief.beat(), "ihave") == {}


def test_ids_are_forgotten_when_their_time_is_over() -> None:
    """Seed 001, 11: the seen cache is timed, also where no more messages come."""
    ids = Ids()
    node = Node(options={"id_of": ids.id_of})
    node.join()
    node.connect(b"peer")
    node.receive(b"peer", message(1))
    node.beat(100)
    assert ids.remembered == [True]
    node.beat(22)
    assert ids.remembered == [False]


# Peers that have what the mesh lacks


def hear(node: Node, peer: bytes, count: int) -> None:
    node.receive(peer, ihave=[IHave(TOPIC, tuple(b"%d %s" % (number, peer) for number in range(count)))])


def test_who_has_what_the_mesh_misses_joins_it_where_that_is_wanted() -> None:
    """Seed 001, 44: an option, off by default."""
    usual, eager = meshed(6, 3), meshed(6, 3, graft_after=3)
    some, more = names(2, "candidate")
    for node in (usual, eager):
        hear(node, some, 2)
        hear(node, more, 3)
    assert told(usual.beat(), "graft") == {}
    assert told(eager.beat(), "graft") == {more: (TOPIC,)}
    assert eager.router.mesh(TOPIC) == (*names(6), more)
    # What was missed before the last heartbeat does not count.
    hear(eager, some, 2)
    assert told(eager.beat(), "graft") == {}
    # Nor does it add who is in the mesh.
    hear(eager, more, 5)
    assert told(eager.beat(), "graft") == {}


def test_what_is_due_at_a_heartbeat_goes_to_a_peer_in_one_packet() -> None:
    """Seed 001, 37: gossip of one topic and GRAFT of another."""
    node = Node(d=1, d_low=1, d_high=1)
    node.join()
    node.connect(b"mesh")
    node.receive(b"mesh", graft=[TOPIC])
    node.do(Join("other"))
    node.connect(b"peer", topics=[TOPIC, "other"])
    node.receive(b"mesh", message(1))
    expected = Control(ihave=(IHave(TOPIC, (id_of(message(1)),)),), graft=("other",))
    assert packets(node.beat()) == {b"peer": [Rpc(control=expected)]}


def test_who_has_what_one_mesh_misses_joins_that_one() -> None:
    """Seed 001, 44: not those of other topics that it is in."""
    node = meshed(6, graft_after=3)
    node.do(Join("other"))
    node.connect(*names(6, "other"), topics=["other"])
    for peer in names(6, "other"):
        node.receive(peer, graft=["other"])
    node.connect(b"some", topics=[TOPIC, "other"])
    hear(node, b"some", 3)
    assert told(node.beat(), "graft") == {b"some": (TOPIC,)}
