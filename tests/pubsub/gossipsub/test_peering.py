"""Who is connected, in which topics, and what each gets."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.pubsub.events import Join, Leave, PeerConnected, PeerDisconnected, Publish
from gossiplog.pubsub.gossipsub import Peering, Unsent
from gossiplog.pubsub.gossipsub.peering import Peer, PeeringState
from gossiplog.pubsub.rpc import FLOODSUB, GOSSIPSUB, Control, Rpc, Subscription
from tests.pubsub.gossipsub.node import OWN, TOPIC, Node, message, names, packets, receivers, single, told


def test_peers_are_known_by_what_they_speak() -> None:
    """Seed 001, 3: peers that speak neither protocol never enter."""
    node = Node()
    node.connect(b"gossiper")
    node.connect(b"flooder", protocol=FLOODSUB)
    for protocol in ("/meshsub/9.0.0", "/ipfs/ping/1.0.0", ""):
        node.connect(b"stranger", protocol=protocol)
    assert node.router.peers == {b"gossiper": GOSSIPSUB, b"flooder": FLOODSUB}
    assert node.router.topics_of(b"stranger") == ()


def test_a_connection_to_oneself_is_none() -> None:
    node = Node()
    node.join()
    assert node.do(PeerConnected(OWN, GOSSIPSUB)) == ()
    node.receive(OWN, subscribe=[TOPIC], graft=[TOPIC])
    assert node.router.peers == {}
    assert node.router.mesh(TOPIC) == ()


def test_a_second_connection_changes_nothing() -> None:
    node = Node()
    node.join()
    node.connect(b"peer")
    node.receive(b"peer", graft=[TOPIC])
    assert node.do(PeerConnected(b"peer", FLOODSUB)) == ()
    assert node.router.peers == {b"peer": GOSSIPSUB}
    assert node.router.mesh(TOPIC) == (b"peer",)


def test_all_topics_of_a_peer_are_kept_until_it_leaves_them() -> None:
    """Seed 001, 5: those that we are not in as well."""
    node = Node()
    node.join()
    node.connect(b"peer", topics=["one", TOPIC, "two"])
    assert node.router.topics_of(b"peer") == ("one", TOPIC, "two")
    node.receive(b"peer", unsubscribe=["one", "unknown"])
    assert node.router.topics_of(b"peer") == (TOPIC, "two")


def test_who_disconnects_is_forgotten_everywhere() -> None:
    """Seed 001, 5: peers, topics, mesh, fan-out and queued control messages."""
    node = Node()
    node.connect(b"peer", b"other", topics=[TOPIC, "outside"])
    node.do(Publish(("outside",), b"data"))
    node.do(Join(TOPIC))
    assert set(node.router.mesh(TOPIC)) == set(node.router.fanout("outside")) == {b"peer", b"other"}
    node.do(Unsent(b"peer", Rpc(control=Control(graft=(TOPIC,)))))
    node.do(PeerDisconnected(b"peer"))
    assert b"peer" not in node.router.peers
    assert node.router.topics_of(b"peer") == ()
    assert node.router.mesh(TOPIC) == node.router.fanout("outside") == (b"other",)
    assert [peering for peering in node.router.peerings() if peering[0] == b"peer"] == []
    # Back again, it is told what a new peer is told, and nothing that was left over.
    assert packets(node.do(PeerConnected(b"peer", GOSSIPSUB)))[b"peer"][0].control is None
    assert b"peer" not in told(node.beat(), "graft")
    assert node.do(PeerDisconnected(b"stranger")) == ()


def test_what_waits_for_a_peer_goes_with_it() -> None:
    """Seed 001, 5: an announcement, and a PRUNE that would still be true."""
    node = Node()
    node.join()
    node.connect(b"peer", topics=["outside"])
    node.do(Unsent(b"peer", Rpc(subscriptions=(Subscription(TOPIC, True),), control=Control(prune=("outside",)))))
    node.do(PeerDisconnected(b"peer"))
    assert single(node.do(PeerConnected(b"peer", GOSSIPSUB)), b"peer") == Rpc(
        subscriptions=(Subscription(TOPIC, True),)
    )
    assert packets(node.beat()) == {}


def test_the_author_that_a_peer_was_goes_with_it() -> None:
    """Seed 001, 5: a driver may give its name here to another, who gets the messages of the one that had it before."""
    authors = {b"first": b"author", b"second": b"other"}
    node = Node(options={"name_of": lambda peer: authors[peer]})
    node.join()
    node.connect(b"first", b"second")
    node.do(PeerDisconnected(b"first"))
    authors[b"first"] = b"third"
    node.connect(b"first")
    for peer in authors:
        node.receive(peer, graft=[TOPIC])
    assert receivers(node.receive(b"second", message(1, author=b"author")), message(1, author=b"author")) == [b"first"]


def test_floodsub_peers_that_leave_a_topic_get_no_more_of_it() -> None:
    """Seed 001, 5: neither those that unsubscribe nor those that disconnect."""
    node = Node()
    node.join()
    node.connect(*names(3), protocol=FLOODSUB)
    one, other, third = names(3)
    node.receive(one, unsubscribe=[TOPIC])
    node.do(PeerDisconnected(other))
    assert packets(node.do(Publish((TOPIC,), b"data"))).keys() == {third}


def test_what_a_peer_is_left_out_of_is_dropped_with_its_last_member() -> None:
    state = PeeringState(Random(0), 10, 10)
    state.peers[b"peer"] = Peer(GOSSIPSUB)
    state.subscribe(b"peer", "a")
    state.subscribe(b"peer", "b")
    state.unsubscribe(b"peer", "a")
    assert state.members.keys() == {"b"}
    state.disconnect(b"peer")
    assert state.members == {}


def test_a_view_tells_what_each_peer_gets() -> None:
    """Seed 001, 6: full-message, metadata-only or fan-out, for each peer and topic."""
    node = Node(d=1, d_low=1, d_high=1)
    node.connect(b"mesh")
    node.do(Join(TOPIC))
    node.connect(b"lazy", topics=[TOPIC])
    node.connect(b"outside", topics=["outside"])
    node.connect(b"flooder", protocol=FLOODSUB, topics=[TOPIC, "outside"])
    node.do(Publish(("outside",), b"data"))
    node.connect(b"unused", topics=["outside"])
    assert list(node.router.peerings()) == [
        (b"mesh", TOPIC, Peering.FULL_MESSAGE),
        (b"lazy", TOPIC, Peering.METADATA_ONLY),
        (b"outside", "outside", Peering.FAN_OUT),
        (b"flooder", TOPIC, Peering.FULL_MESSAGE),
        (b"flooder", "outside", Peering.FULL_MESSAGE),
        (b"unused", "outside", Peering.METADATA_ONLY),
    ]
    assert node.router.peering(b"mesh", "outside") is None
    assert node.router.peering(b"stranger", TOPIC) is None


def test_fan_out_peers_are_never_told_so() -> None:
    """Seed 001, 6: neither when they are drawn nor when they are forgotten."""
    node = Node()
    node.connect(*names(3))
    sent = packets(node.do(Publish((TOPIC,), b"data")))
    assert sorted(node.router.fanout(TOPIC)) == names(3) == sorted(sent)
    assert all(packet.control is None for (packet,) in sent.values())
    for _ in range(70):
        orders = node.beat()
        assert told(orders, "graft") == told(orders, "prune") == {}
    assert node.router.fanout(TOPIC) == ()


def test_topics_of_a_peer_are_limited() -> None:
    node = Node(max_topics=3, max_topic=5)
    node.connect(b"peer", topics=["a", "b", "longer", "c", "d", "a"])
    assert node.router.topics_of(b"peer") == ("a", "b", "c")
    node.receive(b"peer", unsubscribe=["a"], subscribe=["e"])
    assert node.router.topics_of(b"peer") == ("b", "c")


TOPICS = ["a", "b", "c"]
PEERS = names(6)
actions = st.one_of(
    st.tuples(st.just("connect"), st.sampled_from(PEERS), st.sampled_from([GOSSIPSUB, GOSSIPSUB, FLOODSUB])),
    st.tuples(st.just("disconnect"), st.sampled_from(PEERS)),
    st.tuples(st.sampled_from(["join", "leave", "publish"]), st.sampled_from(TOPICS)),
    st.tuples(
        st.sampled_from(["subscribe", "unsubscribe", "graft", "prune"]), st.sampled_from(PEERS), st.sampled_from(TOPICS)
    ),
    st.tuples(st.just("beat")),
)


def apply(node: Node, action: tuple[str, ...]) -> None:
    match action:
        case ("connect", peer, protocol):
            node.do(PeerConnected(peer, protocol))
        case ("disconnect", peer):
            node.do(PeerDisconnected(peer))
        case ("join", topic):
            node.do(Join(topic))
        case ("leave", topic):
            node.do(Leave(topic))
        case ("publish", topic):
            node.do(Publish((topic,), b"data"))
        case ("beat",):
            node.beat()
        case (kind, peer, topic):
            node.receive(peer, **{kind: [topic]})


@given(st.lists(actions, max_size=40))
def test_the_state_is_consistent_after_any_event(script: list[tuple[str, ...]]) -> None:
    """Seed 001, 4: `mesh` has only subscribed topics, `fanout` only others, and no topic is in both."""
    node = Node(d=2, d_low=1, d_high=3)
    joined: set[str] = set()
    for action in script:
        apply(node, action)
        if action[0] == "join":
            joined.add(action[1])
        elif action[0] == "leave":
            joined.discard(action[1])
        router = node.router
        assert set(router.topics) == joined
        for topic in TOPICS:
            gossipers = {peer for peer in router.peers if router.peers[peer] == GOSSIPSUB}
            members = {peer for peer in gossipers if topic in router.topics_of(peer)}
            assert set(router.mesh(topic)) <= (members if topic in joined else set())
            assert set(router.fanout(topic)) <= (members if topic not in joined else set())


@pytest.mark.parametrize("count", [0, 3, 5, 9])
def test_peers_are_drawn_among_those_who_gossip_and_are_not_excluded(count: int) -> None:
    state = PeeringState(Random(1), 10, 10)
    for peer in [*names(6), b"flooder"]:
        state.peers[peer] = Peer(FLOODSUB if peer == b"flooder" else GOSSIPSUB)
        state.subscribe(peer, "a")
    drawn = state.draw("a", count, {names(6)[2]})
    assert len(drawn) == len(set(drawn)) == min(count, 5)
    assert {*drawn} <= {*names(6)} - {names(6)[2]}
    assert state.draw("b", count, ()) == []
